"""Indexer of the reference: scores against float64 and free of their surroundings; selection exact to the last tie."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from cache_world import CPU, Stage, Story, same_bits
from deepinfer.backends.reference import index as kernels
from deepinfer.conformance.oracle import attention as oracle
from deepinfer.conformance.oracle import formats
from deepinfer.ops import cache_steps as build
from deepinfer.ops import index as ops
from deepinfer.ops.cache_samples import candidates
from deepinfer.ops.layouts import FP4_32_INDEX

INF, NAN = float("inf"), float("nan")


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


# ---- scores ---------------------------------------------------------------------------------------------------------


def test_query_pack_bytes() -> None:
    q = build.normal(np.random.default_rng(0), CPU, 9, 4, 64)
    table = build.rope_table(64, 16, CPU)
    got = ops.index_query_pack(q, torch.arange(9, dtype=torch.int32), table).numpy()
    rotated = oracle.rotate(q, range(9), table)
    assert np.array_equal(got.reshape(36, -1), formats.encode(rotated.reshape(36, 64), "fp4_32_index"))


@pytest.mark.parametrize(("heads", "di"), [(4, 32), (32, 128), (3, 64)])
@pytest.mark.parametrize("ratio", [1, 2])
def test_score_values(ratio: int, heads: int, di: int) -> None:
    stories = [Story(i, n, ratio=ratio, index_heads=heads, di=di) for i, n in enumerate((9, 140, 303))]
    stage = Stage([(stories[0], 0, 9), (stories[1], 125, 140), (stories[2], 302, 303)], padding=2)
    for (s, p), row in stage.by_row(stage.scores()).items():
        story, seen = stage.places[s][0], (p + 1) // ratio
        want, bound = oracle.index_scores(
            formats.decode(story.queries[p].numpy(), "fp4_32_index"),
            story.head_weight[p].double().numpy(),
            formats.decode(story.keys[:seen], "fp4_32_index"),
        )
        assert (np.abs(row[:seen].double().numpy() - want) <= bound).all(), (s, p)


@pytest.fixture(scope="module")
def whole() -> tuple[Story, torch.Tensor]:
    """All scores of one sequence, computed in one step."""
    story = Story(5, 200, index_heads=32, di=128)
    return story, Stage([(story, 0, 200)]).scores()


def test_score_of_a_row_does_not_depend_on_rows_lanes_or_chunks(
    whole: tuple[Story, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    story, want = whole
    for p in (0, 63, 64, 199):
        assert same_bits(Stage([(story, p, p + 1)], seed=p).scores()[0], want[p, : p + 1])
    other = Story(6, 330, index_heads=32, di=128)
    stage = Stage([(other, 300, 330), (story, 77, 99)], padding=1)
    rows = stage.by_row(stage.scores(384))
    assert all(same_bits(rows[1, p][:200], want[p]) for p in range(77, 99))
    for columns, elements in ((7, 1), (64, 1 << 16)):
        monkeypatch.setattr(kernels, "COLUMNS", columns)
        monkeypatch.setattr(kernels, "CHUNK_ELEMENTS", elements)
        assert same_bits(Stage([(story, 120, 130)]).scores(), want[120:130, :130].contiguous())


def test_block_scores_are_the_full_scores(whole: tuple[Story, torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "COLUMNS", 50)
    monkeypatch.setattr(kernels, "CHUNK_ELEMENTS", 1 << 17)
    story, want = whole
    stage = Stage([(story, 0, 200)], poison=0xFF)
    visible = stage.step.visible(1)
    blocks = candidates(np.random.default_rng(0), stage.step, 1, 8, 9)
    pages = stage.pages("keys", FP4_32_INDEX, story.di)
    got = ops.index_score_blocks(
        story.queries, story.head_weight, pages, blocks, visible, stage.step.row_seq, stage.step.block_table, 1, 8
    )
    assert got.shape == (200, 72)
    for t in range(200):
        for c in range(72):
            entry = int(blocks[t, c // 8]) * 8 + c % 8
            if 0 <= entry < visible[t]:
                assert same_bits(got[t, c], want[t, entry])


@pytest.mark.parametrize("poison", [0x00, 0x7F, 0xFF, 0x7E])
def test_scores_ignore_unasked_bytes(poison: int) -> None:
    places = [(Story(i, n), a, n) for i, (a, n) in enumerate(((0, 9), (130, 131), (40, 63)))]
    want = Stage(places, poison=0x00, padding=2).scores(256)
    got = Stage(places, poison=poison, padding=2).scores(256)
    assert same_bits(got, want) and not want.isnan().any()


def test_scores_at_large_page_addresses(tmp_path: Path) -> None:
    """Block id 29,077 with a stride of 147,712 bytes: the top-k of the low copy of the same data."""
    story = Story(7, 300)
    stage = Stage([(story, 280, 300)])
    want = stage.scores()
    near = stage.pages("keys", FP4_32_INDEX, story.di)
    visible, row_seq = stage.step.visible(1), stage.step.row_seq
    blocks = candidates(np.random.default_rng(0), stage.step, 1, 8, 9)

    def in_blocks(pages: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        got = ops.index_score_blocks(
            stage.rows("queries", 0), stage.rows("head_weight", 0), pages, blocks, visible, row_seq, table, 1, 8
        )
        entry = (blocks.unsqueeze(2) * 8 + torch.arange(8)).flatten(1)
        return torch.where((entry >= 0) & (entry < visible[:, None]), got, -torch.inf)

    compact = in_blocks(near, stage.step.block_table)
    for stride, page in ((147_712, 29_077), (1_077_120, 1_994), (114_048, 18_830)):
        pool = torch.from_file(str(tmp_path / "pool"), shared=True, size=(page + 4) * stride, dtype=torch.uint8)
        far = pool.view(-1, stride)[:, 64 : 64 + near.shape[1]]
        table = torch.where(stage.step.block_table >= 0, stage.step.block_table + page - 2, -1).int()
        for old, new in zip(stage.step.block_table.flatten().tolist(), table.flatten().tolist(), strict=True):
            if old >= 0:
                far[new] = near[old]
        assert same_bits(stage.scores(pages=far, block_table=table), want)
        assert same_bits(in_blocks(far, table), compact)
        (tmp_path / "pool").unlink()


def test_scores_without_rows_or_sequences() -> None:
    pages = torch.zeros(1, 128 * 17, dtype=torch.uint8)
    none = ops.index_score(
        torch.zeros(0, 4, 17).byte(), torch.zeros(0, 4).bfloat16(), pages, ints(), ints(), torch.zeros(0, 1).int(), 1, 0
    )
    assert none.shape == (0, 0)
    padding = (torch.full((2, 4, 17), 0xFF).byte(), torch.full((2, 4), NAN).bfloat16(), pages)
    full = ops.index_score(*padding, ints(0, 0), ints(-1, -1), torch.zeros(0, 1).int(), 1, 5)
    assert full.shape == (2, 5) and full.dtype == torch.bfloat16
    compact = ops.index_score_blocks(
        *padding, torch.full((2, 3), -1).int(), ints(0, 0), ints(-1, -1), torch.zeros(0, 1).int(), 1, 8
    )
    assert compact.shape == (2, 24)


# ---- selection ------------------------------------------------------------------------------------------------------


def top(
    scores: list[float] | torch.Tensor, k: int, visible: int | None = None, dtype: torch.dtype = torch.float32
) -> list[int]:
    row = torch.as_tensor(scores, dtype=dtype)[None]
    return ops.topk_select(row, ints(row.shape[1] if visible is None else visible), k, None, 8)[0].tolist()


VALUES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, -NAN, 3.3895314e38, -3.3895314e38, 1e-45]),
    st.integers(-3, 3).map(float),
    st.floats(width=32),
)


@given(st.lists(st.lists(VALUES, min_size=5, max_size=5), min_size=1, max_size=8), st.integers(1, 9), st.data())
def test_topk_is_the_brute_force_result(rows: list[list[float]], k: int, data: st.DataObject) -> None:
    visible = [data.draw(st.integers(0, 5)) for _ in rows]
    for dtype in (torch.float32, torch.bfloat16):
        scores = torch.tensor(rows, dtype=torch.float64).to(torch.float32).to(dtype)
        got = ops.topk_select(scores, ints(*visible), k, None, 8).tolist()
        for row, seen, chosen in zip(scores.double().numpy(), visible, got, strict=True):
            want = oracle.best(row[:seen], k)
            assert chosen == want + [-1] * (k - len(want))


@given(st.integers(0, 40), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_topk_inside_candidate_blocks(seen: int, k: int, seed: int) -> None:
    """Compact lanes map to entries; lanes of absent blocks and past the visible count never take part."""
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.permutation(6)[:4])
    count = int(rng.integers(0, 5))
    blocks = torch.tensor([[*ids[:count], *[-1] * (4 - count)]], dtype=torch.int32)
    scores = torch.from_numpy(rng.integers(-2, 3, (1, 32)).astype(np.float32)).bfloat16()
    lanes = {int(b) * 8 + i: c * 8 + i for c, b in enumerate(ids[:count]) for i in range(8) if b * 8 + i < seen}
    scores[0, [c for c in range(32) if c not in lanes.values()]] = INF
    got = [e for e in ops.topk_select(scores, ints(seen), k, blocks, 8)[0].tolist() if e >= 0]
    entries = sorted(lanes)
    best = oracle.best(np.array([float(scores[0, lanes[e]]) for e in entries]), k)
    assert got == [entries[i] for i in best]


def test_topk_order_of_special_values() -> None:
    assert top([NAN, -INF, 1.0], 2) == [1, 2], "NaN is below -infinity"
    assert top([NAN, 1.0, -NAN], 2) == [0, 1], "NaN only when numbers run out, lower index first"
    assert top([1.0, INF, 2.0, INF], 1) == [1]
    assert top([-0.0, 0.0], 1) == [0] and top([0.0, -0.0], 1) == [0], "zeros are equal"
    assert top([1.0, 2.0], 4) == [0, 1, -1, -1]
    assert top([1.0, 2.0], 4, visible=0) == [-1] * 4
    assert top([1.0, 2.0], 2, visible=7) == [0, 1], "a visible count past the lanes is the number of lanes"


def test_topk_few_winners_among_equal_zeros() -> None:
    """Length 8320, k 2048, 100 winners: the valid prefix holds no -1 and ties go to the lowest ids."""
    winners = np.random.default_rng(0).permutation(8320)[:100]
    scores = torch.zeros(8320)
    scores[winners] = torch.linspace(1, 2, 100)
    got = top(scores, 2048)
    zeros = [i for i in range(8320) if i not in set(winners.tolist())]
    assert got == sorted([*winners.tolist(), *zeros[:1948]])


def test_topk_by_all_bits_of_fp32() -> None:
    """9000 values that agree in their high bits: a coarse threshold bin cannot decide."""
    scores = torch.from_numpy((0x3F800000 + np.random.default_rng(1).permutation(9000)).astype(np.int32)).view(
        torch.float32
    )
    assert top(scores, 512) == sorted(scores.argsort(descending=True)[:512].tolist())


def test_topk_lanes_past_the_length_never_take_part() -> None:
    """Odd length, every score below -65504, more than 148 rows, better values in the lanes past the length."""
    rng = np.random.default_rng(2)
    scores = -65505 - torch.from_numpy(rng.random((150, 1029), dtype=np.float32)) * 1e6
    visible = torch.from_numpy(rng.integers(0, 1029, 150).astype(np.int32))
    for beyond in (0.0, INF, NAN):
        poisoned = torch.where(torch.arange(1029) < visible[:, None], scores, beyond)
        got = ops.topk_select(poisoned, visible, 600, None, 8)
        for row, seen, chosen in zip(scores, visible.tolist(), got.tolist(), strict=True):
            want = sorted(row[:seen].argsort(descending=True, stable=True)[:600].tolist())
            assert chosen == want + [-1] * (600 - len(want))


def test_topk_of_more_than_2_to_the_24_lanes() -> None:
    """A tie at the border between lanes that fp32 indices could not tell apart, and one NaN."""
    first = 2**24 - 1
    scores = torch.zeros(1, first + 6, dtype=torch.bfloat16)
    scores[0, 0], scores[0, first:] = NAN, 1.0
    assert ops.topk_select(scores, ints(first + 6), 4, None, 8).tolist() == [list(range(first, first + 4))]


def test_topk_rows_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = torch.from_numpy(np.random.default_rng(3).integers(-3, 4, (40, 90)).astype(np.float32))
    visible = torch.arange(40, dtype=torch.int32) * 2
    want = ops.topk_select(scores, visible, 16, None, 8)
    monkeypatch.setattr(kernels, "CHUNK_ELEMENTS", 1)
    assert torch.equal(ops.topk_select(scores, visible, 16, None, 8), want)
    assert torch.equal(ops.topk_select(scores[7:8], visible[7:8], 16, None, 8), want[7:8])


def blocks_of(row: list[float], k: int, size: int, visible: int | None = None) -> list[int]:
    scores = torch.tensor([row], dtype=torch.float64).to(torch.bfloat16)
    return ops.block_select(scores, ints(len(row) if visible is None else visible), size, k)[0].tolist()


@given(st.lists(VALUES, min_size=0, max_size=30), st.integers(1, 5), st.integers(1, 8), st.integers(0, 30))
@example([3.3895314e38, INF, 0.0], 2, 1, 3)
def test_block_select_is_the_brute_force_result(row: list[float], k: int, size: int, visible: int) -> None:
    seen = min(visible, len(row))
    scores = torch.tensor(row, dtype=torch.float64).to(torch.bfloat16).double().numpy()[:seen]
    best = []
    for first in range(0, seen, size):
        numbers = scores[first : first + size][~np.isnan(scores[first : first + size])]
        best.append(min(numbers.max(), torch.finfo(torch.bfloat16).max) if numbers.size else NAN)
    if best:
        best[-1] = INF
    want = oracle.best(np.array(best), k)
    assert blocks_of(row, k, size, visible) == want + [-1] * (k - len(want))


def test_block_select_keeps_the_newest_block() -> None:
    assert blocks_of([9.0] * 24 + [-INF], 2, 8) == [0, 3]
    assert blocks_of([INF] * 24 + [-INF], 2, 8) == [0, 3], "an infinite score does not push it out"
    assert blocks_of([NAN] * 24 + [NAN], 2, 8) == [0, 3]
    assert blocks_of([1.0] * 24, 2, 8, visible=17) == [0, 2]
    assert blocks_of([1.0] * 24, 2, 8, visible=16) == [0, 1]
    assert blocks_of([1.0, 1.0, INF, NAN] + [9.0] * 4, 3, 2, visible=2) == [0, -1, -1]


def vectors(name: str) -> list[list[str]]:
    """Rows of a table of `docs/numerics.md`, split at blanks."""
    text = (Path(__file__).parents[3] / "docs" / "numerics.md").read_text(encoding="utf-8")
    found = re.search(rf"^```table {name}\n(.*?)^```", text, re.S | re.M)
    assert found, name
    return [line.split() for line in found.group(1).splitlines() if not line.startswith("#")]


def number(text: str) -> float:
    return float(text) if text.lstrip("-") in ("inf", "nan") else float.fromhex(text)


@pytest.mark.parametrize("words", vectors("vectors-topk"), ids=" ".join)
def test_documented_topk(words: list[str]) -> None:
    k, visible = map(int, words[:2])
    arrow = words.index("->")
    assert top([number(w) for w in words[2:arrow]], k, visible) == [int(w) for w in words[arrow + 1 :]]


@pytest.mark.parametrize("words", vectors("vectors-block"), ids=" ".join)
def test_documented_block_selection(words: list[str]) -> None:
    size, k, visible = map(int, words[:3])
    arrow = words.index("->")
    assert blocks_of([number(w) for w in words[3:arrow]], k, size, visible) == [int(w) for w in words[arrow + 1 :]]
