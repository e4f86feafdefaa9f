"""What a request may say next.

The state follows the tokens that the request has said and nothing else, so it can be brought to any point of them at
any time: a request that was preempted, or whose step failed, goes on with the state that it had.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from .args import Structure
from .vocabulary import load_xgrammar

NOTHING_FITS = "no token of the vocabulary goes on with so_args['schema']"
Words = np.ndarray[Any, np.dtype[np.int32]]


class Phase(Enum):
    """Where an output is."""

    FREE = 0
    """Before the trigger: anything but the end."""
    FORCED = 1
    """Behind the bound: the trigger, token by token."""
    INSIDE = 2
    """In the structure."""
    ENDED = 3
    """Behind its end: nothing but the end token, or anything where that ends nothing."""


class Constraint:
    """The state of one sample. Belongs to the thread of the engine's steps.

    Args:
        structure, compiled: what the output has to be.
        vocab_size: bits of a mask.
        eos_id: ends the output.
        ignore_eos: whether the request goes on behind that.

    Attributes:
        error: why no token can be said any more; None while one can.
    """

    def __init__(
        self, structure: Structure, compiled: Any, vocab_size: int, eos_id: int, ignore_eos: bool = False
    ) -> None:
        self.structure, self.compiled = structure, compiled
        self.vocab_size, self.eos_id, self.ignore_eos = vocab_size, eos_id, ignore_eos
        self.words = -(-vocab_size // 32)
        self.error: str | None = None
        self._failure = _prefix_function(structure.trigger)
        self._begin()

    def fresh(self, structure: Structure, eos_id: int, ignore_eos: bool) -> Constraint:
        """Of another sample that has to be the same, behind a trigger of its own."""
        return Constraint(structure, self.compiled, self.vocab_size, eos_id, ignore_eos)

    def _begin(self) -> None:
        self._matcher = load_xgrammar().GrammarMatcher(self.compiled, override_stop_tokens=[self.eos_id])
        self._phase = Phase.FREE if self.structure.trigger else Phase.INSIDE
        self._progress = 0  # tokens of the trigger that have been said
        self._said = 0

    # ---- following the output

    def follow(self, output: Sequence[int] | Words) -> None:
        """Brings the state behind the tokens said so far. A token that was not allowed becomes `error`."""
        if self.error is not None:
            return
        if len(output) < self._said:
            self._begin()
        try:
            for token in output[self._said :]:
                if not self._take(int(token)):
                    self.error = f"output token {self._said}, {int(token)}, does not fit so_args['schema']"
                    return
                self._said += 1
        except Exception as error:  # of the matcher: this request's alone
            self.error = f"the grammar failed: {error}"

    def _take(self, token: int) -> bool:
        trigger = self.structure.trigger
        if self._phase is Phase.FREE:
            if token == self.eos_id and not self.ignore_eos and not self._completes(token):
                return False
            if token == self.structure.bound and not self._completes(token):
                self._phase, self._progress = Phase.FORCED, 0
                return True
            self._progress = self._longest(token)
        elif self._phase is Phase.FORCED:
            if token != trigger[self._progress]:
                return False
            self._progress += 1
        elif self._phase is Phase.INSIDE:
            if not self._matcher.accept_token(token):
                return False
            if token == self.eos_id:
                self._phase = Phase.ENDED
            return True
        else:
            return self.ignore_eos or token == self.eos_id
        if self._progress == len(trigger):
            self._phase = Phase.INSIDE
        return True

    def _longest(self, token: int) -> int:
        """Length of the longest beginning of the trigger that ends with a token."""
        trigger, at = self.structure.trigger, self._progress
        while at and trigger[at] != token:
            at = self._failure[at - 1]
        return at + 1 if trigger[at] == token else 0

    def _completes(self, token: int) -> bool:
        return self._longest(token) == len(self.structure.trigger)

    # ---- what may follow

    def masks(self, output: Sequence[int] | Words, drafts: Sequence[int] = ()) -> Words:
        """Allowed tokens behind the output, and behind each draft as far as the drafts before it are allowed.

        Returns:
            [1 + k, ceil(vocab_size / 32)], bit t % 32 of word t // 32 is token t; k drafts are allowed. A row is 0
            where `error` says why.
        """
        self.follow(output)
        rows = np.zeros((1 + len(drafts), self.words), np.int32)
        kept, before = 0, (self._phase, self._progress)
        taken = 0
        try:
            while self.error is None:
                self._fill(rows, kept)
                if not rows[kept].any():
                    if not kept:
                        self.error = NOTHING_FITS
                    break
                if kept == len(drafts) or not _has(rows[kept], drafts[kept]):
                    break
                inside = self._phase is Phase.INSIDE
                if not self._take(drafts[kept]):
                    break
                taken += inside
                kept += 1
            if taken:
                self._matcher.rollback(taken)
        except Exception as error:
            self.error = f"the grammar failed: {error}"
            rows[:] = 0
        self._phase, self._progress = before
        return rows[: kept + 1]

    def allowed(self, output: Sequence[int] | Words, drafts: Sequence[int]) -> int:
        """How many of the drafts behind the output may be said. The state is as it was."""
        self.follow(output)
        kept, taken, before = 0, 0, (self._phase, self._progress)
        try:
            while self.error is None and kept < len(drafts):
                inside = self._phase is Phase.INSIDE
                if not self._take(drafts[kept]):
                    break
                taken += inside
                kept += 1
            if taken:
                self._matcher.rollback(taken)
        except Exception as error:
            self.error = f"the grammar failed: {error}"
        self._phase, self._progress = before
        return kept

    def forced(self, output: Sequence[int] | Words, most: int) -> list[int]:
        """Tokens that all that may follow begins with; tokens that write the same otherwise may be said instead.

        As drafts they are verified like any others, so that they decide nothing.
        """
        self.follow(output)
        if self.error is not None or most <= 0:
            return []
        if self._phase is Phase.FORCED:
            return list(self.structure.trigger[self._progress :][:most])
        if self._phase is not Phase.INSIDE:
            return []
        try:
            return [int(token) for token in self._matcher.find_jump_forward_tokens()][:most]
        except Exception as error:
            self.error = f"the grammar failed: {error}"
            return []

    def _fill(self, rows: Words, row: int) -> None:
        if self._phase is Phase.INSIDE:
            self._matcher.fill_next_token_bitmask(rows, row)
            if self.vocab_size % 32:  # where all is allowed, bits past the vocabulary are set as well
                rows[row, -1] &= (1 << self.vocab_size % 32) - 1
            return
        if self._phase is Phase.FREE or (self._phase is Phase.ENDED and self.ignore_eos):
            rows[row] = -1
            if self.vocab_size % 32:
                rows[row, -1] = (1 << self.vocab_size % 32) - 1
            if self._phase is Phase.FREE and not self.ignore_eos and not self._completes(self.eos_id):
                _set(rows[row], self.eos_id, False)
            return
        only = self.eos_id if self._phase is Phase.ENDED else self.structure.trigger[self._progress]
        _set(rows[row], only, True)


def _prefix_function(trigger: Sequence[int]) -> list[int]:
    """Knuth, Morris and Pratt's: of each beginning, the longest shorter one that it ends with."""
    found = [0] * len(trigger)
    at = 0
    for i in range(1, len(trigger)):
        while at and trigger[i] != trigger[at]:
            at = found[at - 1]
        at += trigger[i] == trigger[at]
        found[i] = at
    return found


def _has(row: Words, token: int) -> bool:
    return 0 <= token < 32 * len(row) and bool(int(row[token // 32]) >> (token % 32) & 1)


def _set(row: Words, token: int, value: bool) -> None:
    word = row[token // 32 : token // 32 + 1].view(np.uint32)
    bit = np.uint32(1 << token % 32)
    word[0] = word[0] | bit if value else word[0] & ~bit
