"""Bytes of the caches: where each layer's records lie inside a page and inside a sequence's state.

Two pools hold everything a sequence leaves behind. *Pages* grow with it: one page covers 128 tokens, and every owner of
compressed KV or index keys has its own byte range in it, so one block table serves all. *State slots* have a fixed
size: one window ring per layer and one compressor ring per ratio-2 owner. Pure Python; the tensors are in `caches.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..hal import errors
from ..ops import layouts
from .config import TextConfig
from .topology import Topology

ALIGNMENT = 32
"""Sections start on multiples of this many bytes."""

PAGE_MULTIPLE = 128
"""A page is a multiple of this and of the main record, so that a page can be viewed as whole records."""

DEFAULT_MAX_DRAFT = 5
"""Draft tokens per step that rings leave room for by default."""


@dataclass(frozen=True)
class Section:
    """One owner's byte range, inside every page or every state slot."""

    offset: int
    size: int


@dataclass(frozen=True)
class CacheLayout:
    """Byte layout of both pools.

    Attributes:
        page_tokens: tokens per page.
        page_bytes, state_bytes: bytes of one page and of one state slot, padding included.
        record: name of the record format of compressed KV ('fp4_16' or 'fp8_32').
        main, index: owner layer -> its section of a page (compressed KV, index keys).
        rings: layer prefix ('layers.3', 'mtp.0') -> window ring [ring_slots, ring_record] in a state slot.
        compressor_rings: ratio-2 owner -> fp32 [compressor_slots, 2, head_dim] in a state slot.
        ring_slots: positions a window ring keeps, window plus backtrack.
        ring_record: bytes of one window record.
        compressor_slots: positions a compressor ring keeps.
        stored_state_bytes: leading bytes of a state slot that belong to producer layers' rings.
    """

    page_tokens: int
    page_bytes: int
    state_bytes: int
    record: str
    main: dict[int, Section]
    index: dict[int, Section]
    rings: dict[str, Section]
    compressor_rings: dict[int, Section]
    ring_slots: int
    ring_record: int
    compressor_slots: int
    stored_state_bytes: int

    def pages_for(self, tokens: int) -> int:
        """Pages that a sequence of so many tokens occupies."""
        return -(-tokens // self.page_tokens)


def build_cache_layout(
    text: TextConfig, topology: Topology, *, max_draft: int = DEFAULT_MAX_DRAFT, backtrack: int | None = None
) -> CacheLayout:
    """Lay out the caches of a model.

    Args:
        text, topology: the model.
        max_draft: most draft tokens that one step may verify.
        backtrack: extra positions that rings keep so that rejected drafts can be taken back; at least max_draft + 1.

    Raises:
        InvalidArgumentError: `backtrack` is below max_draft + 1.
    """
    least = max_draft + 1
    extra = least if backtrack is None else backtrack
    if extra < least:
        raise errors.InvalidArgumentError("backtrack", extra, f"at least {least} (draft length + 1)")
    record = layouts.FP4_16 if text.use_fp4_sparse_kv else layouts.FP8_32
    main, index, used = _page_sections(text, topology, record)
    page_bytes = _round_up(used, math.lcm(PAGE_MULTIPLE, record.record_bytes(text.head_dim)))
    ring_slots = text.sliding_window + extra
    ring_record = layouts.FP8_32.record_bytes(text.head_dim)
    compressor_slots = 2 + extra - 1
    rings, stored, used = _ring_sections(topology, ring_slots * ring_record)
    compressor_rings: dict[int, Section] = {}
    for role in topology.layers:
        if role.owns_kv and role.ratio == 2:
            section = Section(_round_up(used, ALIGNMENT), compressor_slots * 2 * text.head_dim * 4)
            compressor_rings[role.layer] = section
            used = section.offset + section.size
    return CacheLayout(
        page_tokens=layouts.PAGE_TOKENS,
        page_bytes=page_bytes,
        state_bytes=_round_up(used, math.lcm(ALIGNMENT, ring_record)),
        record=record.name,
        main=main,
        index=index,
        rings=rings,
        compressor_rings=compressor_rings,
        ring_slots=ring_slots,
        ring_record=ring_record,
        compressor_slots=compressor_slots,
        stored_state_bytes=stored,
    )


def _page_sections(
    text: TextConfig, topology: Topology, record: layouts.RecordLayout
) -> tuple[dict[int, Section], dict[int, Section], int]:
    """Sections by owner id; an owner's index section comes before its main section."""
    main: dict[int, Section] = {}
    index: dict[int, Section] = {}
    used = 0
    for role in topology.layers:
        for owns, layout, channels, sections in (
            (role.owns_index_k, layouts.FP4_32_INDEX, text.index_head_dim, index),
            (role.owns_kv, record, text.head_dim, main),
        ):
            if owns:
                size = layout.page_bytes(channels, role.ratio)
                sections[role.layer] = Section(used, size)
                used = _round_up(used + size, ALIGNMENT)
    return main, index, used


def _ring_sections(topology: Topology, size: int) -> tuple[dict[str, Section], int, int]:
    """Rings of producers first, so that what a store of long prompts keeps is one contiguous range."""
    rings: dict[str, Section] = {}
    used = stored = 0
    for half in ("producer", "consumer", "draft"):
        for role in (*topology.layers, *topology.drafts):
            if role.half == half:
                rings[role.prefix] = Section(used, size)
                used += size
        if half == "producer":
            stored = used
    return rings, stored, used


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
