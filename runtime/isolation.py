"""Finding out which request makes steps fail.

A step that raised says nothing about whose fault it was. So its requests are tried again in ever smaller groups, from
their first token, while everybody else pauses: a group that gets past the point where it failed is free again, a
request that fails on its own is guilty. n requests with one guilty one among them take about 2 log2(n) trials.

When nobody gets through, the fault may be the machine's. Some of the other requests are then tried as witnesses before
anyone is blamed.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Sequence

from ..hal.errors import DeviceFaultError
from .execute import Work
from .request import Request

MOST_WITNESSES = 4
"""Requests outside the failed step that are tried when all in it failed: a dead device is told after so many."""

MACHINE_FAULTS = (MemoryError, DeviceFaultError)
"""Errors that a request which nobody can stand witness for is not blamed for; torch's OutOfMemoryError is another."""


class Isolation:
    """One search, from the step that failed to the verdicts.

    Args:
        distrusted: keys of requests that failed on their own since one got through, in searches before this one too;
            kept up here. They are the last witnesses, so that a caller who goes on after an error meets others.

    Attributes:
        healthy: whether some request got through since the step failed, so that the machine works.
        failed: requests that failed on their own, with their errors; in no group any more.
    """

    def __init__(self, distrusted: set[int]) -> None:
        self.healthy = False
        self.failed: list[tuple[Request, Exception]] = []
        self._groups: list[list[Request]] = []
        self._goals: dict[int, int] = {}
        self._distrusted = distrusted
        self._witnesses = 0
        self._started = False

    def step_failed(self, work: Sequence[Work], error: Exception) -> None:
        """Takes note of a failed step, whose requests have been rolled back."""
        # The frames hold what the failed step had computed; the next one may need the memory.
        traceback.clear_frames(error.__traceback__)
        suspects = [item.request for item in work if not item.request.finished]
        for item in work:
            self._goals[item.request.key] = max(self._goals.get(item.request.key, 0), item.known_end)
        self._groups = [[one for one in group if one not in suspects] for group in self._groups]
        if len(work) == 1 and self._started:
            self.failed += [(one, error) for one in suspects]
            self._distrusted.update(one.key for one in suspects)
        else:
            half = (len(suspects) + 1) // 2
            self._groups += [suspects[half:], suspects[:half]]
        self._started = True

    def step_passed(self, work: Sequence[Work]) -> None:
        """Takes note of a step that ran."""
        # Rows before the point of failure prove nothing: the machine could compute them before, too.
        if any(item.known_end >= self._goals.get(item.request.key, 0) for item in work):
            self.healthy = True
            self._distrusted.clear()

    def trial(self) -> list[Request]:
        """The only requests that may run in the next step; empty when all have been tried."""
        while self._groups:
            group = [one for one in self._groups[-1] if not one.finished and one.computed < self._goals[one.key]]
            if group:
                self._groups[-1] = group
                return group
            self._groups.pop()
        return []

    def skip(self) -> None:
        """Gives up a group that cannot run now."""
        self._distrusted.update(one.key for one in self._groups.pop())

    def call_witness(self, others: Iterable[Request]) -> bool:
        """Tries one of the other requests. False when there are none, or enough have failed already."""
        if self._witnesses == MOST_WITNESSES:
            return False
        failed = {one.key for one, _ in self.failed}
        able = [one for one in others if one.key not in failed]
        if not able:
            return False
        # One that failed in a search before this may only have met a passing fault: it comes last, but it comes.
        witness = min(able, key=lambda one: one.key in self._distrusted)
        self._witnesses += 1
        self._goals[witness.key] = witness.computed + 1
        self._groups.append([witness])
        return True

    def take_guilty(self) -> list[tuple[Request, Exception]]:
        """Requests that are to blame for their errors; each is returned once."""
        guilty = [(request, error) for request, error in self.failed if not request.finished]
        self.failed = []
        return guilty


def is_everybodys(failed: Sequence[tuple[Request, Exception]]) -> bool:
    """Whether the errors of requests, with nobody who got through, are rather the machine's than theirs."""
    torch = sys.modules.get("torch")  # whoever raises its errors has loaded it
    faults = MACHINE_FAULTS if torch is None else (*MACHINE_FAULTS, torch.OutOfMemoryError)
    return len(failed) > 1 or any(isinstance(error, faults) for _, error in failed)


def describe(error: BaseException) -> str:
    """An error as text of an output."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
