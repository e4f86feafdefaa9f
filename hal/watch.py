"""Deadlines of collectives that a device has queued: the host does not wait for them, so a thread looks after them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from . import heartbeat
from .stream import Event


@dataclass(frozen=True)
class Pending:
    """A queued collective.

    Attributes:
        event: done once the device is past it.
        error: what the library has noticed by itself; "" for nothing.
        fail: called in the watch's thread once, with what went wrong, where the collective fails.
        began, end: moments (`time.monotonic`) at which it was queued and must be done.
    """

    event: Event
    error: Callable[[], str]
    fail: Callable[[str], None]
    began: float
    end: float


class Watch:
    """Looks after queued collectives, those of a group in their order. Holds no tensor of theirs.

    Args:
        begin: called first in the watch's thread, such as to select the device.
    """

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin
        self._queues: dict[str, deque[Pending]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, group: str, pending: Pending) -> None:
        """Look after one more collective of a group. Its first one starts the thread."""
        with self._lock:
            self._queues.setdefault(group, deque()).append(pending)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="deepinfer-collectives", daemon=True)
                self._thread.start()

    def look(self, now: float) -> None:
        """Forget what is done, and fail what is late or broken; later ones of that group are then forgotten too."""
        with self._lock:
            queues = list(self._queues.items())
        for group, queue in queues:
            while queue:
                problem = self._problem(queue[0], now)
                if problem is None:
                    break
                pending = queue.popleft()
                if problem:
                    with self._lock:
                        self._queues.pop(group, None)
                    pending.fail(problem)
                    break

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=2 * heartbeat.INTERVAL_SECONDS)

    @staticmethod
    def _problem(pending: Pending, now: float) -> str | None:
        """What is wrong with a collective: "" where it is done and well, None while it may still become so."""
        try:
            done = pending.event.done()
        except Exception as error:  # a fault of the device; the thread must live to say so
            return str(error) or type(error).__name__
        if problem := pending.error():
            return problem
        if done:
            return ""
        return "it is still in the device's queue" if now >= pending.end else None

    def _run(self) -> None:
        self._begin()
        while not self._stop.wait(heartbeat.INTERVAL_SECONDS):
            self.look(time.monotonic())
