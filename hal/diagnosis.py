"""Who is missing: what the members of a group have published, read after a collective failed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from . import heartbeat
from .comm import CommunicatorError


@dataclass(frozen=True)
class Failure:
    """A collective that failed.

    Attributes:
        what, number: which one, and its number in its group.
        waited: seconds since it was called.
        cause: what the transport, or the watch, says.
    """

    what: str
    number: int
    waited: float
    cause: str

    def __str__(self) -> str:
        return f"{self.what} (collective {self.number}) failed after {self.waited:.1f} s"


@dataclass(frozen=True)
class Members:
    """Those of a group, as errors and the store know them.

    Attributes:
        name: of the group in errors; `key`: in the store.
        rank: this process in the group; `ranks`: all of them, in the world.
        deadline: seconds a collective may take.
    """

    name: str
    key: str
    rank: int
    ranks: tuple[int, ...]
    deadline: float


def diagnose(
    members: Members, progress: heartbeat.Heartbeat, failure: Failure
) -> tuple[CommunicatorError, list[int] | None]:
    """Name the members that never came to a collective, and those that show no life. Takes about two seconds.

    Returns:
        The error; and the ranks in the world that are finding out the same, for `Heartbeat.leave`, None where the store
        is gone.
    """
    others = [r for r in range(len(members.ranks)) if r != members.rank]
    try:
        progress.publish()
        time.sleep(2 * heartbeat.INTERVAL_SECONDS)  # who entered just now has published it by then
        before = [progress.read(members.ranks[r], members.key) for r in others]
        time.sleep(heartbeat.WATCH_SECONDS)
        after = [progress.read(members.ranks[r], members.key) for r in others]
    except RuntimeError as error:
        holder = progress.holder
        message = f"{failure}, and {holder}, which holds the store, is gone ({first_line(error)})"
        missing = (0,) if holder == heartbeat.RANK_0 and 0 in members.ranks else ()
        return CommunicatorError(members.name, message, missing), None
    seen = list(zip(others, before, after, strict=True))
    came = [members.ranks[r] for r, old, new in seen if old[0] != new[0] and new[1] >= failure.number]
    silent = [r for r, old, new in seen if old[0] == new[0]]
    late = [r for r, old, _ in seen if old[1] < failure.number and r not in silent]
    parts = [f"{failure}, deadline {members.deadline:g} s"]
    if late:
        parts.append(f"rank {listed(late)} did not arrive")
    if silent:
        parts.append(f"rank {listed(silent)} gives no sign of life")
    if not late and not silent:
        parts.append(f"every member arrived; the transport says: {failure.cause}")
    return CommunicatorError(members.name, "; ".join(parts), tuple(sorted(late + silent))), came


def longest() -> float:
    """Seconds in which a diagnosis, and the wait of who holds the store for the others', should have ended."""
    return 2 * heartbeat.INTERVAL_SECONDS + heartbeat.WATCH_SECONDS + heartbeat.LINGER_SECONDS + 2.0


def listed(ranks: Sequence[int]) -> str:
    """Ranks as errors show them."""
    return ", ".join(map(str, ranks))


def first_line(error: BaseException) -> str:
    """What an exception says in one line: its kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
