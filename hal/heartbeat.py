"""Signs of life between the processes of a world, published in the store they share.

Communicators use them to say, after a failure, which process died and which never came.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

INTERVAL_SECONDS = 0.25
# After a failure the others are watched this long; a process that publishes nothing meanwhile is called dead.
WATCH_SECONDS = 1.5
# The process that holds the store outlives its own failure this long at most, so that the others can find out who is
# missing.
LINGER_SECONDS = 10.0
RANK_0 = "rank 0 of the world"
"""Who holds the store, where no launcher does."""

log = logging.getLogger(__name__)


class Heartbeat:
    """Publishes this process's heartbeat and position, and reads those of the others.

    The thread has a connection to the store of its own, so that it goes on while a collective blocks.
    """

    def __init__(self, store: Any, rank: int, holder: str = RANK_0) -> None:
        self._store = store.clone()
        self._rank = rank
        self.holder = holder
        self._holds_store = rank == 0 and holder == RANK_0
        self._beats = 0
        self._entered: dict[str, int] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deepinfer-heartbeat", daemon=True)
        self.publish()
        self._thread.start()

    def enter(self, group: str) -> int:
        """Note that this process enters its next collective of a group; returns its number."""
        with self._lock:
            self._entered[group] = self._entered.get(group, 0) + 1
            return self._entered[group]

    def publish(self) -> None:
        """Write a heartbeat and the positions to the store."""
        with self._lock:
            self._beats += 1
            positions = ",".join(f"{name}={n}" for name, n in self._entered.items())
            text = f"{self._beats};{positions}"
        self._store.set(f"deepinfer/progress/{self._rank}", text)

    def read(self, rank: int, group: str) -> tuple[int, int]:
        """Number of a rank's last heartbeat, and how many collectives of the group it has entered."""
        key = f"deepinfer/progress/{rank}"
        if not self._store.check([key]):
            return 0, 0
        beat, _, positions = self._store.get(key).decode().partition(";")
        entered = dict(part.rsplit("=", 1) for part in positions.split(",") if part)
        return int(beat), int(entered.get(group, 0))

    def leave(self, group: str, others: Sequence[int]) -> None:
        """Note that this process has read what it needs. The one that holds the store waits for `others` to do so."""
        if not self._holds_store:
            self._store.set(f"deepinfer/left/{group}/{self._rank}", "1")
            return
        end = time.monotonic() + LINGER_SECONDS
        keys = [f"deepinfer/left/{group}/{rank}" for rank in others]
        while not all(self._store.check([key]) for key in keys) and time.monotonic() < end:
            time.sleep(0.05)

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(timeout=2 * INTERVAL_SECONDS)

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_SECONDS):
            try:
                self.publish()
            except RuntimeError as error:  # the store's owner is gone; a collective will report it
                log.debug("heartbeat lost: %s", error)
                return
