"""Byte layout of pages and state slots: the released sizes, alignment, disjoint sections."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.model.cache_layout import CacheLayout, Section, build_cache_layout
from deepinfer.model.caches import Caches
from released import released_config


@pytest.fixture(scope="module")
def layout() -> CacheLayout:
    config = released_config()
    return build_cache_layout(config.text, config.topology)


def test_released_page(layout: CacheLayout) -> None:
    assert layout.page_bytes == 114_048
    assert {k: s.size for k, s in layout.main.items()} == {2: 18_432, 8: 18_432, 14: 18_432, 20: 36_864}
    assert {k: s.size for k, s in layout.index.items()} == {2: 4_352, 8: 4_352, 14: 4_352, 20: 8_704}
    used = sum(s.size for s in (*layout.main.values(), *layout.index.values()))
    assert used == 113_920 and used / layout.page_tokens == 890
    assert layout.index[2] == Section(0, 4_352) and layout.main[2].offset == 4_352, (
        "an owner's index section comes first"
    )


def test_released_state(layout: CacheLayout) -> None:
    assert (layout.ring_slots, layout.ring_record, layout.compressor_slots) == (134, 528, 7)
    assert {s.size for s in layout.rings.values()} == {70_752} and len(layout.rings) == 43
    assert {k: s.size for k, s in layout.compressor_rings.items()} == {2: 28_672, 8: 28_672, 14: 28_672}
    assert layout.state_bytes == 3_128_928
    assert layout.stored_state_bytes == 20 * 70_752
    assert layout.rings["layers.0"].offset == 0 and layout.rings["mtp.2"].offset == 42 * 70_752


def test_sections_are_disjoint_and_aligned(layout: CacheLayout) -> None:
    for sections, total in (
        ([*layout.main.values(), *layout.index.values()], layout.page_bytes),
        ([*layout.rings.values(), *layout.compressor_rings.values()], layout.state_bytes),
    ):
        ordered = sorted(sections, key=lambda s: s.offset)
        for a, b in zip(ordered, ordered[1:], strict=False):
            assert a.offset + a.size <= b.offset
        assert ordered[-1].offset + ordered[-1].size <= total
    assert all(s.offset % 32 == 0 for s in (*layout.main.values(), *layout.index.values()))
    assert layout.page_bytes % 1152 == 0


def test_fp8_compressed_kv(layout: CacheLayout) -> None:
    config = released_config()
    wide = build_cache_layout(dataclasses.replace(config.text, use_fp4_sparse_kv=False), config.topology)
    assert wide.record == "fp8_32" and wide.main[20].size == 128 * 528 and wide.page_bytes % 528 == 0


def test_backtrack_follows_the_draft_length() -> None:
    config = released_config()
    assert build_cache_layout(config.text, config.topology, max_draft=0).ring_slots == 129
    assert build_cache_layout(config.text, config.topology, max_draft=5, backtrack=9).compressor_slots == 10
    with pytest.raises(InvalidArgumentError, match="backtrack: got 5; allowed: at least 6"):
        build_cache_layout(config.text, config.topology, max_draft=5, backtrack=5)


def test_views_lie_where_the_layout_says() -> None:
    config = released_config()
    layout = build_cache_layout(config.text, config.topology)
    caches = Caches(layout, 3, 2, torch.device("cpu"), config.text.head_dim)
    assert caches.nbytes == 3 * layout.page_bytes + 2 * layout.state_bytes
    caches.main[14][2, 5] = 77
    assert caches.pages[2, layout.main[14].offset + 5] == 77
    caches.rings["layers.3"][1, 4, 6] = 9
    assert caches.state[1, layout.rings["layers.3"].offset + 4 * 528 + 6] == 9
    ring = caches.compressor_rings[8]
    assert ring.shape == (2, 7, 2, 512) and ring.dtype == torch.float32
    ring[1, 3, 1, 7] = 1.0
    at = layout.compressor_rings[8].offset + ((3 * 2 + 1) * 512 + 7) * 4
    assert caches.state[1, at : at + 4].tolist() == [0, 0, 0x80, 0x3F]
    for name in ("pages", "slots"):
        sizes = {"pages": 2, "slots": 2} | {name: 1}
        with pytest.raises(InvalidArgumentError, match=f"{name}: got 1; allowed: at least 2"):
            Caches(layout, sizes["pages"], sizes["slots"], torch.device("cpu"), 512)
