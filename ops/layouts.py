"""Bytes of cache records and pages: versioned descriptors, part of the contract. Pure Python, no torch.

A record holds one token's (or one compressed entry's) channels as low-precision codes and their scales. Records of an
*interleaved* layout follow one another: data then scales of entry 0, data then scales of entry 1, … A *planar* layout
keeps, inside one page, the data of all entries first and then the scales of all entries.

A page covers `PAGE_TOKENS` consecutive tokens, so `entries_per_page(ratio)` compressed entries of one owner; the record
of entry j of a sequence lies in page `block_table[j // entries]` at slot `j % entries`. What ops call `pages` is one
owner's byte range in every page: a `[pages, page_bytes(...)]` uint8 view whose row stride is that of the whole page,
often millions of bytes; offsets `page * stride` need 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..hal import errors

PAGE_TOKENS = 128
"""Tokens per page."""

Scale = Literal["e8m0", "e4m3"]


@dataclass(frozen=True)
class RecordLayout:
    """How the channels of one entry are stored.

    Attributes:
        name: how ops spell it.
        version: raised when a byte changes its meaning.
        bits: bits per channel: 8 (e4m3) or 4 (e2m1, the even channel in the low nibble).
        group: consecutive channels that share one scale byte.
        scale: scale format: 'e8m0' (byte b means 2**(b - 127)) or 'e4m3'.
        interleaved: records follow one another (True), or planes of data and of scales inside a page (False).
    """

    name: str
    version: int
    bits: int
    group: int
    scale: Scale
    interleaved: bool

    def data_bytes(self, channels: int) -> int:
        """Bytes of codes of one entry.

        Raises:
            InvalidArgumentError: `channels` is not a positive multiple of the group.
        """
        if channels <= 0 or channels % self.group:
            raise errors.InvalidArgumentError("channels", channels, f"positive multiples of {self.group} ({self.name})")
        return channels * self.bits // 8

    def scale_bytes(self, channels: int) -> int:
        """Bytes of scales of one entry."""
        return self.data_bytes(channels) * 8 // self.bits // self.group

    def record_bytes(self, channels: int) -> int:
        """Bytes of one entry, data and scales."""
        return self.data_bytes(channels) + self.scale_bytes(channels)

    def channels(self, record_bytes: int) -> int:
        """Channels of an entry of so many bytes: the inverse of `record_bytes`.

        Raises:
            InvalidArgumentError: no number of channels gives that size.
        """
        per_group = self.group * self.bits // 8 + 1
        if record_bytes <= 0 or record_bytes % per_group:
            raise errors.InvalidArgumentError(
                "record_bytes", record_bytes, f"positive multiples of {per_group} ({self.name})"
            )
        return record_bytes // per_group * self.group

    def page_bytes(self, channels: int, ratio: int) -> int:
        """Bytes of one owner's section of a page, without any padding behind it."""
        return entries_per_page(ratio) * self.record_bytes(channels)

    def data_offset(self, slot: int, channels: int, ratio: int) -> int:
        """Where the codes of the entry at `slot` start inside its section, in bytes."""
        _check_slot(slot, ratio)
        return slot * (self.record_bytes(channels) if self.interleaved else self.data_bytes(channels))

    def scale_offset(self, slot: int, channels: int, ratio: int) -> int:
        """Where the scales of the entry at `slot` start inside its section, in bytes."""
        _check_slot(slot, ratio)
        if self.interleaved:
            return slot * self.record_bytes(channels) + self.data_bytes(channels)
        return entries_per_page(ratio) * self.data_bytes(channels) + slot * self.scale_bytes(channels)


FP8_32 = RecordLayout("fp8_32", version=0, bits=8, group=32, scale="e8m0", interleaved=True)
"""Window KV of every layer; compressed KV where FP4 is off."""

FP4_16 = RecordLayout("fp4_16", version=0, bits=4, group=16, scale="e4m3", interleaved=True)
"""Compressed KV."""

FP4_32_INDEX = RecordLayout("fp4_32_index", version=0, bits=4, group=32, scale="e8m0", interleaved=False)
"""Index keys; also one packed index query (data, then scales)."""

LAYOUTS = {layout.name: layout for layout in (FP8_32, FP4_16, FP4_32_INDEX)}
COMPRESSED_RECORDS = (FP4_16.name, FP8_32.name)
"""Names that `record` arguments accept."""


def compressed_record(name: str) -> RecordLayout:
    """The layout that a `record` argument names.

    Raises:
        InvalidArgumentError: not a record of compressed KV.
    """
    if name not in COMPRESSED_RECORDS:
        raise errors.InvalidArgumentError("record", name, ", ".join(COMPRESSED_RECORDS))
    return LAYOUTS[name]


def entries_per_page(ratio: int) -> int:
    """Compressed entries of one owner in a page.

    Raises:
        InvalidArgumentError: the ratio is not a positive divisor of `PAGE_TOKENS`.
    """
    if ratio <= 0 or PAGE_TOKENS % ratio:
        raise errors.InvalidArgumentError("ratio", ratio, f"positive divisors of {PAGE_TOKENS} (tokens per page)")
    return PAGE_TOKENS // ratio


def entry_place(entry: int, ratio: int) -> tuple[int, int]:
    """(column of the block table, slot in the page) of an entry of a sequence."""
    return divmod(entry, entries_per_page(ratio))


def _check_slot(slot: int, ratio: int) -> None:
    if not 0 <= slot < entries_per_page(ratio):
        raise errors.InvalidArgumentError("slot", slot, f"0 to {entries_per_page(ratio) - 1} (ratio {ratio})")
