"""The markers of one stage as strings to search for: the next complete one, and one that the end may begin.

Searching is left to `str.find` and `str.endswith`, so that ordinary text costs a few calls per push and not a step per
character.
"""

from __future__ import annotations

from collections.abc import Sequence

from .stages import Marker

SHORT = 64
"""Longest pattern whose beginnings are listed: for longer ones the list would be quadratic in the length."""


class LongPattern:
    """One long pattern, matched character by character with the failure function of Knuth, Morris and Pratt.

    Holds no state: the caller keeps the number of characters that match.
    """

    __slots__ = ("_failure", "marker", "pattern")

    def __init__(self, pattern: str, marker: Marker) -> None:
        self.pattern = pattern
        self.marker = marker
        self._failure = _failure_function(pattern)

    def advance(self, text: str, start: int, end: int, length: int) -> tuple[int, int]:
        """Read text[start:end] when `length` characters match already.

        Returns (index behind the first complete match or -1, characters that match at the end).
        """
        pattern, failure = self.pattern, self._failure
        index = start
        while index < end:
            if length == 0:
                index = text.find(pattern[0], index, end)
                if index < 0:
                    break
            while length and text[index] != pattern[length]:
                length = failure[length]
            length += text[index] == pattern[length]
            index += 1
            if length == len(pattern):
                return index, 0
        return -1, length


def _failure_function(pattern: str) -> list[int]:
    """failure[n]: length of the longest proper beginning of pattern[:n] that is also its end."""
    failure = [0, 0]
    length = 0
    for index in range(1, len(pattern)):
        while length and pattern[index] != pattern[length]:
            length = failure[length]
        length += pattern[index] == pattern[length]
        failure.append(length)
    return failure


class Patterns:
    """The markers of a stage, spelled for text or for token ids.

    Attributes:
        short: (pattern, marker) in order.
        long: the patterns longer than `SHORT`.
        newline_beginnings: for each marker that owns the newlines before it, in order, the proper beginnings of its
            pattern, longest first.
    """

    __slots__ = ("_ends", "long", "newline_beginnings", "rank", "short")

    def __init__(self, pairs: Sequence[tuple[str, Marker]]) -> None:
        self.short = tuple((text, marker) for text, marker in pairs if len(text) <= SHORT)
        self.long = tuple(LongPattern(text, marker) for text, marker in pairs if len(text) > SHORT)
        self.rank = {marker: rank for rank, (_, marker) in enumerate(pairs)}
        self.newline_beginnings = tuple(
            (marker, tuple(text[:length] for length in range(len(text) - 1, 0, -1)))
            for text, marker in pairs
            if marker.newlines
        )
        ends: dict[str, set[str]] = {}
        for text, _ in self.short:
            for length in range(1, len(text)):
                ends.setdefault(text[length - 1], set()).add(text[:length])
        # Longest first: the first that fits is the longest partial match.
        self._ends = {last: tuple(sorted(texts, key=len, reverse=True)) for last, texts in ends.items()}

    def partial(self, text: str, start: int) -> int:
        """Length of the longest beginning of a short pattern that text[start:] ends in."""
        beginnings = self._ends.get(text[-1:])
        if beginnings is None or not text.endswith(beginnings, start):
            return 0
        return longest(text, start, len(text), beginnings)


def longest(text: str, start: int, end: int, beginnings: tuple[str, ...]) -> int:
    """Length of the first of `beginnings` that text[start:end] ends in; 0: none."""
    for beginning in beginnings:
        if text.endswith(beginning, start, end):
            return len(beginning)
    return 0
