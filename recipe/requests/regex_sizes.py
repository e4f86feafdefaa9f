"""Bytes that the engine keeps for a set of characters.

It compiles a set for reading forwards and backwards, and the latter is the larger one: a state of 32 bytes for each
range of bytes in the UTF-8 of the characters, shared by those that begin alike; 4 bytes for each sequence of such
ranges; and two states around them. Sets of ASCII characters alone take 8 bytes for each range, and two states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

MAX_CODE = 0x10FFFF
_STATE = 32
_TRANSITION = 8
_ALTERNATIVE = 4
_LENGTHS = ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, MAX_CODE))
"""Characters of as many bytes of UTF-8; surrogates are none."""

Ranges = Sequence[tuple[int, int]]


def ranges_size(ranges: Ranges, is_negated: bool) -> int:
    """Bytes for the characters of `ranges`, or for all others."""
    merged = _merged(ranges)
    if is_negated:
        merged = _others(merged)
    if not merged:
        return _STATE
    if len(merged) == 1 and merged[0][0] == merged[0][1]:
        return _STATE * len(chr(merged[0][0]).encode())
    if merged[-1][1] < 0x80:
        return 2 * _STATE + _TRANSITION * len(merged)
    beginnings: set[tuple[tuple[int, int], ...]] = set()
    count = 0
    for first, last in merged:
        for sequence in _sequences(first, last):
            count += 1
            beginnings.update(sequence[:length] for length in range(1, len(sequence) + 1))
    return 2 * _STATE + _STATE * len(beginnings) + _ALTERNATIVE * count


def _merged(ranges: Ranges) -> list[tuple[int, int]]:
    """In order, with those that touch as one."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def _others(merged: Ranges) -> list[tuple[int, int]]:
    begin, others = 0, []
    for first, last in merged:
        if first > begin:
            others.append((begin, first - 1))
        begin = last + 1
    if begin <= MAX_CODE:
        others.append((begin, MAX_CODE))
    return others


def _sequences(first: int, last: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """The characters from `first` to `last` as ranges of bytes, one behind the other."""
    for lowest, highest in _LENGTHS:
        low, high = max(first, lowest), min(last, highest)
        if low <= high:
            yield from _of_one_length(low, high)


def _of_one_length(low: int, high: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Split where a byte but the last would not go through all its values."""
    for bits in (6, 12, 18):
        mask = (1 << bits) - 1
        if low & ~mask != high & ~mask and low >= 0x80:
            if low & mask:
                yield from _of_one_length(low, low | mask)
                yield from _of_one_length((low | mask) + 1, high)
                return
            if high & mask != mask:
                yield from _of_one_length(low, (high & ~mask) - 1)
                yield from _of_one_length(high & ~mask, high)
                return
    yield tuple(zip(chr(low).encode(), chr(high).encode()))
