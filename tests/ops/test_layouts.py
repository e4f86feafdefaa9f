"""Record and page bytes."""

from __future__ import annotations

import pytest

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.ops.layouts import (
    FP4_16,
    FP4_32_INDEX,
    FP8_32,
    LAYOUTS,
    RecordLayout,
    compressed_record,
    entries_per_page,
    entry_place,
)
from numerics_document import blocks


def test_sizes_of_the_released_model() -> None:
    assert [FP8_32.record_bytes(512), FP4_16.record_bytes(512), FP4_32_INDEX.record_bytes(128)] == [528, 288, 68]
    assert [FP4_32_INDEX.page_bytes(128, r) for r in (2, 1)] == [4352, 8704]
    assert [FP4_16.page_bytes(512, r) for r in (2, 1)] == [18432, 36864]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("ratio", [1, 2])
def test_data_and_scales_tile_the_page(layout: RecordLayout, ratio: int) -> None:
    """Every byte of a section belongs to exactly one plane of one slot."""
    channels, owners = 64, []
    for slot in range(entries_per_page(ratio)):
        data = layout.data_offset(slot, channels, ratio)
        scale = layout.scale_offset(slot, channels, ratio)
        owners += range(data, data + layout.data_bytes(channels))
        owners += range(scale, scale + layout.scale_bytes(channels))
    assert sorted(owners) == list(range(layout.page_bytes(channels, ratio)))


@pytest.mark.parametrize("row", blocks()["vectors-pages"], ids=" ".join)
def test_bytes_lie_where_the_document_says(row: list[str]) -> None:
    layout, (channels, ratio, slot) = LAYOUTS[row[0]], map(int, row[1:4])
    places = layout.data_offset(slot, channels, ratio), layout.scale_offset(slot, channels, ratio)
    assert [*places, layout.page_bytes(channels, ratio)] == list(map(int, row[5:]))


def test_interleaved_and_planar() -> None:
    assert (FP4_16.data_offset(3, 512, 1), FP4_16.scale_offset(3, 512, 1)) == (3 * 288, 3 * 288 + 256)
    assert (FP8_32.data_offset(3, 512, 1), FP8_32.scale_offset(3, 512, 1)) == (3 * 528, 3 * 528 + 512)
    assert (FP4_32_INDEX.data_offset(3, 128, 2), FP4_32_INDEX.scale_offset(3, 128, 2)) == (192, 64 * 64 + 12)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_channels_is_the_inverse(layout: RecordLayout) -> None:
    for channels in (32, 64, 512):
        assert layout.channels(layout.record_bytes(channels)) == channels


def test_places() -> None:
    assert [entry_place(j, 1) for j in (0, 127, 128)] == [(0, 0), (0, 127), (1, 0)]
    assert [entry_place(j, 2) for j in (0, 63, 64)] == [(0, 0), (0, 63), (1, 0)]


def test_refusals_name_the_parameter() -> None:
    for call, words in (
        (lambda: FP8_32.record_bytes(48), "channels: got 48"),
        (lambda: FP8_32.record_bytes(0), "channels: got 0"),
        (lambda: FP8_32.channels(40), "record_bytes: got 40"),
        (lambda: entries_per_page(3), "ratio: got 3"),
        (lambda: entries_per_page(0), "ratio: got 0"),
        (lambda: compressed_record("fp4_32_index"), "record: got 'fp4_32_index'.*fp4_16, fp8_32"),
        (lambda: FP4_16.data_offset(64, 512, 2), "slot: got 64.*0 to 63"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            call()
