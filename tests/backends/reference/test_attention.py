"""Sparse attention of the reference: values against float64, and what a row's bits must not depend on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from cache_world import Stage, Story, same_bits
from deepinfer.backends.reference import attention as kernels
from deepinfer.conformance.oracle import attention as oracle
from deepinfer.conformance.oracle import formats
from deepinfer.hal.errors import ContractError
from deepinfer.ops import attention as ops
from deepinfer.ops.layouts import FP4_16

POISONS = (0x00, 0x7F, 0xFF, 0x7E)
"""Zero, NaN of either sign, and the largest finite codes with a scale of 2**-1 (448 as an E4M3 scale)."""


def check_against_oracle(stage: Stage, window: int, result: torch.Tensor) -> None:
    for (s, p), row in stage.by_row(result).items():
        story = stage.places[s][0]
        keys = formats.decode(story.window[max(0, p - window + 1) : p + 1], "fp8_32")
        if story.k:
            chosen = story.indices[p][story.indices[p] >= 0].numpy()
            keys = np.concatenate((keys, formats.decode(story.entries[chosen], story.record)))
        want, bound = oracle.attention(story.q[p].double().numpy(), keys, story.sink.double().numpy(), story.d**-0.5)
        error = np.abs(row.double().numpy() - want)
        assert (error <= bound).all(), f"sequence {s} position {p}: {error.max()}"


@pytest.mark.parametrize("record", ["fp4_16", "fp8_32"])
@pytest.mark.parametrize("ratio", [1, 2])
def test_values(ratio: int, record: str) -> None:
    stories = [Story(i, n, ratio=ratio, record=record) for i, n in enumerate((7, 201, 140, 303))]
    stage = Stage(
        [(stories[0], 0, 7), (stories[1], 200, 201), (stories[2], 61, 140), (stories[3], 300, 303)], padding=2
    )
    result = stage.attention(16)
    check_against_oracle(stage, 16, result)
    assert not result[-2:].any(), "padding rows are zero although their query is NaN"


def test_values_window_only() -> None:
    stage = Stage([(Story(1, 50, k=0), 3, 50)])
    check_against_oracle(stage, 16, stage.attention(16, ratio=0))


def test_values_several_tiles_with_tails() -> None:
    stage = Stage([(Story(2, 190, k=150), 0, 190)])
    check_against_oracle(stage, 130, stage.attention(130))


def test_values_released_widths() -> None:
    stage = Stage([(Story(3, 600, heads=64, d=512, k=512, ratio=1), 598, 600)])
    check_against_oracle(stage, 128, stage.attention(128))


# ---- what a row does not depend on ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone() -> tuple[Story, torch.Tensor]:
    """A sequence and its output computed in one step, on its own: 70 window keys and 80 selected, two tiles each."""
    story = Story(4, 150, k=80)
    return story, Stage([(story, 0, 150)]).attention(70)


@pytest.mark.parametrize("border", [1, 2, 63, 64, 69, 70, 71, 127, 128, 129, 149])
def test_chunk_borders(alone: tuple[Story, torch.Tensor], border: int) -> None:
    story, want = alone
    parts = [Stage([(story, a, b)], seed=border).attention(70) for a, b in ((0, border), (border, 150))]
    assert same_bits(torch.cat(parts), want)


def test_one_row_at_a_time(alone: tuple[Story, torch.Tensor]) -> None:
    story, want = alone
    for p in (*range(4), *range(62, 74), 127, 128, 129, 149):
        assert same_bits(Stage([(story, p, p + 1)], seed=p).attention(70)[0], want[p]), p


def test_any_batch_place_and_padding(alone: tuple[Story, torch.Tensor]) -> None:
    story, want = alone
    others = [Story(10 + i, 200, k=80) for i in range(3)]
    for seed in range(4):
        places = [(others[0], 0, 33), (others[1], 199, 200), (story, 90, 97 + seed), (others[2], 5, 6)]
        order = np.random.default_rng(seed).permutation(4)
        stage = Stage([places[i] for i in order], padding=seed, seed=seed)
        rows = stage.by_row(stage.attention(70))
        for p in range(90, 97 + seed):
            assert same_bits(rows[int(np.argmax(order == 2)), p], want[p]), (seed, p)


def test_neighbour_decode_batch_of_many(alone: tuple[Story, torch.Tensor]) -> None:
    story, want = alone
    for count in (2, 15, 16, 17, 45):
        stage = Stage([(story, 100 + i, 101 + i) for i in range(count)])
        assert same_bits(stage.attention(70), want[100 : 100 + count]), count


def test_trailing_empty_columns_change_no_bit(alone: tuple[Story, torch.Tensor]) -> None:
    story, want = alone
    stage = Stage([(story, 0, 150)])
    wider = torch.nn.functional.pad(stage.rows("indices", -1), (0, 130), value=-1)
    assert same_bits(stage.attention(70, indices=wider), want)


@pytest.mark.parametrize("elements", [1, 1 << 16, 1 << 18])
def test_scratch_limit_changes_no_bit(
    alone: tuple[Story, torch.Tensor], monkeypatch: pytest.MonkeyPatch, elements: int
) -> None:
    story, want = alone
    monkeypatch.setattr(kernels, "CHUNK_ELEMENTS", elements)
    assert same_bits(Stage([(story, 120, 150)]).attention(70), want[120:])


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_thread_count_changes_no_bit(alone: tuple[Story, torch.Tensor]) -> None:
    story, want = alone
    wide = Story(5, 200, heads=64, d=512, k=100)
    outputs = []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        assert same_bits(Stage([(story, 0, 150)]).attention(70), want)
        outputs.append(Stage([(wide, 180, 200)]).attention(128))
    assert same_bits(outputs[0], outputs[1]) and same_bits(outputs[0], outputs[2])


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 16])
def test_shards_of_heads(alone: tuple[Story, torch.Tensor], heads: int) -> None:
    story = Story(6, 40, heads=20)
    stage = Stage([(story, 0, 40)])
    whole = stage.attention(16)
    shard = stage.attention(16, q=story.q[:, 2 : 2 + heads].contiguous(), sink=story.sink[2 : 2 + heads].contiguous())
    assert same_bits(shard, whole[:, 2 : 2 + heads].contiguous())


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("ratio", [1, 2])
def test_unasked_bytes(ratio: int, poison: int) -> None:
    """Stale bytes of a page's tail, the null page, unwritten ring slots, padding rows: any content, same bits."""
    places = [(Story(i, n, ratio=ratio), a, n) for i, (a, n) in enumerate(((0, 9), (130, 131), (40, 63)))]
    want = Stage(places, poison=0x00, padding=2).attention(16)
    assert torch.isfinite(want.float()).all()
    assert same_bits(Stage(places, poison=poison, padding=2).attention(16), want)


@pytest.mark.parametrize("poison", POISONS)
def test_empty_columns_read_nothing(poison: int) -> None:
    """Rows without any selected entry whose empty columns would point at the null page."""
    stage = Stage([(Story(7, 30), 0, 30)], poison=poison)
    none = torch.full((30, 16), -1, dtype=torch.int32)
    want = stage.attention(16, pages=None, block_table=None, indices=None)
    assert same_bits(stage.attention(16, indices=none), want)


def test_large_page_addresses(tmp_path: Path) -> None:
    """Page views with packed strides whose byte offsets pass 2**31: same result as in a small pool."""
    story = Story(8, 300)
    stage = Stage([(story, 290, 300)])
    want = stage.attention(16)
    near = stage.pages("entries", FP4_16, story.d)
    for stride, page in ((1_077_120, 1_994), (114_048, 18_830), (114_048, 37_660)):
        assert stride * page > 2**31 - stride
        pool = sparse_pool(tmp_path / "pool", page + 4, stride)
        far = pool[:, 96 : 96 + near.shape[1]]
        table = torch.where(stage.step.block_table >= 0, stage.step.block_table + page - 2, -1).int()
        for old, new in zip(stage.step.block_table.flatten().tolist(), table.flatten().tolist()):
            if old >= 0:
                far[new] = near[old]
        assert same_bits(stage.attention(16, pages=far, block_table=table), want)


def test_large_state_slots(tmp_path: Path) -> None:
    """Ring slots whose byte offsets pass 2**31."""
    story = Story(9, 100)
    stage = Stage([(story, 90, 100)])
    ring = stage.ring(22)
    slot = 2**31 // 3_128_928 + 3
    pool = sparse_pool(tmp_path / "pool", slot + 1, 3_128_928)
    far = pool[:, : 22 * ring.shape[2]].unflatten(1, (22, -1))
    far[slot] = ring[int(stage.step.state_slot[0])]
    moved = torch.tensor([slot], dtype=torch.int32)
    assert same_bits(stage.attention(16, ring=far, state_slot=moved), stage.attention(16))


def sparse_pool(path: Path, pages: int, stride: int) -> torch.Tensor:
    """A pool backed by a sparse file: only what is touched takes room."""
    return torch.from_file(str(path), shared=True, size=pages * stride, dtype=torch.uint8).view(pages, stride)


# ---- the softmax ----------------------------------------------------------------------------------------------------


def attend(scores: list[float], values: list[float], sink: float) -> float:
    """One head over keys: a query of 1 in channel 0, where each key holds its score; channel 1 holds its value."""
    keys = torch.zeros(1, 64, 32)
    keys[0, : len(scores), 0], keys[0, : len(scores), 1] = torch.tensor(scores), torch.tensor(values)
    q = torch.zeros(1, 1, 32, dtype=torch.bfloat16)
    q[0, 0, 0] = 1
    present = (torch.arange(64) < len(scores))[None]
    return float(kernels.attend(q, keys, present, torch.tensor([sink]), 1.0)[0, 0, 1])


def as_bf16(x: float) -> float:
    return float(torch.tensor(x, dtype=torch.float32).bfloat16())


def test_sink_joins_the_denominator_only() -> None:
    assert attend([0.0], [1.0], 0.0) == 0.5
    assert attend([-3.0], [1.0], -3.0) == 0.5
    assert attend([2.0], [1.0], -torch.inf) == 1.0
    assert attend([0.0], [1.0], 1000.0) == 0.0


def test_weights_are_rounded_to_bf16_but_their_sum_is_not() -> None:
    """40 keys of weight P = exp(-s) beside one of weight 1 and value 0: four readings of the rule, four results."""
    s, sink, n = 0.5859375, 3.5, 40
    p, total = np.exp(-s), 1 + n * np.exp(-s) + np.exp(sink)
    right = as_bf16(n * as_bf16(p) / total)
    unrounded = as_bf16(n * p / total)
    rounded_sum = as_bf16(n * as_bf16(p) / (1 + n * as_bf16(p) + np.exp(sink)))
    sink_in_maximum = as_bf16(n * as_bf16(np.exp(-s - sink)) / (total * np.exp(-sink)))
    assert right not in (unrounded, rounded_sum, sink_in_maximum)
    assert attend([0.0] + [-s] * n, [0.0] + [1.0] * n, sink) == right


def test_maximum_is_over_present_keys_only() -> None:
    """All scores far below zero: an empty slot of score 0 in the maximum would underflow every weight."""
    assert attend([-200.0, -200.0], [1.0, 3.0], -torch.inf) == 2.0


def test_nan_of_a_key_stays_in_its_row() -> None:
    story = Story(11, 40, k=0)
    good = Stage([(story, 0, 40)]).attention(16, ratio=0)
    story.window[10, 0] = 0x7F
    bad = Stage([(story, 0, 40)]).attention(16, ratio=0)
    touched = bad.isnan().flatten(1).any(1)
    assert torch.equal(touched, (torch.arange(40) >= 10) & (torch.arange(40) < 26))
    assert same_bits(bad[~touched], good[~touched])


def test_no_rows_and_no_sequences() -> None:
    stage = Stage([(Story(12, 5), 0, 5)])
    none = dict.fromkeys(("first_key", "last_key", "row_seq"), torch.zeros(0, dtype=torch.int32))
    result = stage.attention(
        16,
        q=torch.zeros(0, 4, 32).bfloat16(),
        fresh=torch.zeros(0, 33).byte(),
        indices=torch.zeros(0, 16).int(),
        **none,
    )
    assert result.shape == (0, 4, 32) and result.dtype == torch.bfloat16
    empty = torch.zeros(0, dtype=torch.int32)
    padding = stage.attention(
        16,
        row_seq=torch.full((5,), -1, dtype=torch.int32),
        seq_start=empty,
        row_begin=empty,
        state_slot=empty,
        block_table=torch.zeros(0, 1, dtype=torch.int32),
    )
    assert not padding.any()


def test_out_is_written() -> None:
    stage = Stage([(Story(13, 20), 0, 20)])
    out = torch.full((20, 4, 32), torch.nan, dtype=torch.bfloat16)
    assert stage.attention(16, out=out) is out
    assert same_bits(out, stage.attention(16))
    assert ops.KEY_TILE == 64


def test_selected_entry_without_a_page() -> None:
    stage = Stage([(Story(14, 20), 0, 20)])
    hole = torch.full_like(stage.step.block_table, -1)
    with pytest.raises(ContractError, match="block_table holds -1, must lie in"):
        stage.attention(16, block_table=hole)


# ---- first and last key ---------------------------------------------------------------------------------------------


def bounded(stage: Stage, window: int, first: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """Attention with other edges of the window, held against float64."""
    result = stage.attention(window, first_key=first, last_key=last)
    rows = stage.by_row(result)
    edges = stage.by_row(torch.stack((first, last), 1))
    for (s, p), row in rows.items():
        story = stage.places[s][0]
        begin, end = edges[s, p].tolist()
        keys = formats.decode(story.window[max(0, begin, end - window + 1) : max(end + 1, 0)], "fp8_32")
        if story.k:
            chosen = story.indices[p][story.indices[p] >= 0].numpy()
            keys = np.concatenate((keys, formats.decode(story.entries[chosen], story.record)))
        if not len(keys):
            assert not row.any(), (s, p)
            continue
        want, bound = oracle.attention(story.q[p].double().numpy(), keys, story.sink.double().numpy(), story.d**-0.5)
        assert (np.abs(row.double().numpy() - want) <= bound).all(), (s, p)
    return result


@pytest.mark.parametrize("k", [0, 16])
def test_lower_bounds(k: int) -> None:
    """A first key before the window, inside it in the ring, inside it in the step, the row's own, and past the row."""
    story = Story(15, 90, k=k)
    stage = Stage([(story, 60, 90)])
    last = stage.step.positions
    for first in (last - 20, torch.full_like(last, 55), torch.full_like(last, 70), last, last + 1):
        bounded(stage, 16, first, last)
    free = stage.attention(16)
    assert same_bits(stage.attention(16, first_key=last - 15), free)
    assert not same_bits(stage.attention(16, first_key=last - 14), free)


def test_what_lies_below_the_first_key_is_not_read() -> None:
    """Ring slots and rows of the step that no bound admits may hold NaN."""
    story = Story(16, 90)
    stage = Stage([(story, 60, 90)])
    first = torch.full_like(stage.step.positions, 65)
    want = stage.attention(16, first_key=first)
    ring, fresh = stage.ring(22), stage.rows("window", 0xFF)
    ring[:], fresh[:5] = 0x7F, 0x7F
    assert same_bits(stage.attention(16, first_key=first, ring=ring, fresh=fresh), want)


def test_truncated_rows_are_the_same_alone() -> None:
    """Rows inside a rectangle give the same bits whether the rows before it are in the step or not."""
    story = Story(17, 90)
    whole = Stage([(story, 40, 90)])
    want = whole.attention(16, first_key=torch.full((50,), 75, dtype=torch.int32))[35:]
    kept = Stage([(story, 75, 90)], poison=0x7F)
    ring = torch.full_like(kept.ring(22), 0x7F)
    got = kept.attention(16, first_key=torch.full((15,), 75, dtype=torch.int32), ring=ring)
    assert same_bits(got, want)


def block_of(story: Story, start: int, n: int, **options: object) -> Stage:
    return Stage([(story, start, start + n)], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [1, 3, 5])
@pytest.mark.parametrize("start", [0, 1, 10, 16, 17, 70])
def test_rows_of_a_draft_block_see_the_window_before_it_and_one_another(start: int, n: int) -> None:
    stage = block_of(Story(18, 100, k=0), start, n)
    last = torch.full((n,), start + n - 1, dtype=torch.int32)
    result = bounded(stage, 16 + n, torch.full_like(last, start - 16), last)
    keys = max(0, start - 16)
    assert same_bits(stage.attention(16 + n, last_key=last), result), f"the window alone starts at {keys}"


def test_draft_blocks_do_not_depend_on_their_neighbours() -> None:
    story, others = Story(19, 100, k=0), [Story(20 + i, 300, k=0) for i in range(40)]
    last = torch.full((5,), 74, dtype=torch.int32)
    want = block_of(story, 70, 5).attention(21, last_key=last)
    for count in (1, 3, 40):
        places = [(o, 7 * i, 7 * i + 5) for i, o in enumerate(others[:count])]
        places.insert(count // 2, (story, 70, 75))
        stage = Stage(places, padding=count, seed=count)
        sequence = stage.step.row_seq.clamp(min=0).long()
        got = stage.by_row(stage.attention(21, last_key=stage.step.seq_end[sequence] - 1))
        for i in range(5):
            assert same_bits(got[count // 2, 70 + i], want[i]), (count, i)
