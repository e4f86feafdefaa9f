"""Sampling on CUDA: the reference's bits, on rows that are made to go wrong; the real vocabulary on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton.language as tl

from cuda_calls import DEVICE, PLAIN, STRIDED, assert_kept, on_cuda, run, sample
from deepinfer.backends.cuda import sampling
from deepinfer.hal.registry import REGISTRY
from deepinfer.ops.sampling import FIXED_ONE, fixed31
from deepinfer.ops.spec import SPECS

INF = torch.inf
WIDTH = 2 * 512 + 76
"""Two tiles and a tail of the narrow tiles below; no multiple of anything."""


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 512 tokens, lists of 256, samples of 64: small rows then go the ways of large ones."""
    monkeypatch.setattr(sampling, "BLOCK", 512)
    monkeypatch.setattr(sampling, "WARP", 256)
    monkeypatch.setattr(sampling, "CAP", 256)
    monkeypatch.setattr(sampling, "SAMPLE", tl.constexpr(64))


def rows(*made: torch.Tensor) -> torch.Tensor:
    return torch.stack([row.float() for row in made])


def normal(seed: int, width: int = WIDTH) -> torch.Tensor:
    return torch.randn(width, generator=torch.Generator().manual_seed(seed)) * 3


def full(value: float, width: int = WIDTH) -> torch.Tensor:
    return torch.full((width,), value)


def filters(count: int, k: int = 0, p: float = 1.0, m: float = 0.0) -> tuple[torch.Tensor, ...]:
    return (
        torch.full((count,), k, dtype=torch.int32),
        torch.full((count,), fixed31(p)),
        torch.full((count,), fixed31(m)),
    )


def reference(op: str, *args: Any) -> tuple[torch.Tensor, ...]:
    with REGISTRY.using("reference"):
        found = SPECS[op].run(*args)
    return found if isinstance(found, tuple) else (found,)


def same(op: str, *args: Any) -> tuple[torch.Tensor, ...]:
    """The kernel's outputs, after they were held against the reference's bits."""
    got = run(op, *args)
    for name, a, b in zip(SPECS[op].outs, got, reference(op, *args), strict=False):
        kind = {1: torch.uint8, 4: torch.int32, 8: torch.int64}[a.element_size()]
        assert torch.equal(a.contiguous().view(kind), b.contiguous().view(kind)), (name.name, a, b)
    return got


OPS = ("adjust_logits", "sample_filter", "sample_draw", "token_logprobs", "smaller_mass", "top_logprobs")


@pytest.mark.parametrize("op", OPS)
def test_calls_without_rows(op: str) -> None:
    assert_kept(op, sample(op, "no rows").args)


@pytest.mark.parametrize(
    ("op", "label", "variant"),
    [
        ("adjust_logits", "5x1000", STRIDED),
        ("adjust_logits", "3x17001", PLAIN),
        ("sample_filter", "3x1, all", PLAIN),
        ("sample_draw", "scores of -infinity", PLAIN),
        ("sample_draw", "5x1000", STRIDED),
        ("sample_draw", "3x17001", PLAIN),
        ("token_logprobs", "3x17001", PLAIN),
        ("token_logprobs", "3x1, raw", PLAIN),
        ("token_logprobs", "invalid rows, other filters", STRIDED),
        ("smaller_mass", "5x1000", STRIDED),
        ("top_logprobs", "3x1, k 50", PLAIN),
        ("top_logprobs", "invalid rows, other filters", STRIDED),
    ],
)
def test_samples_in_every_form(op: str, label: str, variant: str) -> None:
    assert_kept(op, sample(op, label).args, variant)


@pytest.mark.parametrize(
    ("k", "p", "m", "force"),
    [(20, 1.0, 0.0, 0), (0, 0.9, 0.0, 0), (0, 1.0, 0.01, 0), (30, 0.95, 0.001, 0), (0, 0.7, 0.0, 40)],
    ids=["top-k", "top-p", "min-p", "all", "forced"],
)
def test_brackets_lists_and_whole_rows(narrow: None, k: int, p: float, m: float, force: int) -> None:
    """A row whose threshold is bracketed, and one of so few values that its list overflows."""
    z = rows(normal(1), torch.round(normal(2) / 6))
    same("sample_filter", z, torch.tensor([1.0, 0.8]), *filters(2, k, p, m), force)


def test_all_logits_are_equal(narrow: None) -> None:
    z = rows(full(0.25))
    for k, p, last in ((7, 1.0, 6), (0, 0.5, WIDTH // 2), (WIDTH, 1.0, -1)):
        got = same("sample_filter", z, torch.ones(1), *filters(1, k, p), 0)
        assert got[3].tolist() == [last]


@pytest.mark.parametrize("logits", [normal(3), normal(3) - 40, full(-7.5)], ids=["normal", "far below 0", "equal"])
def test_tiny_top_p_keeps_the_most_likely_token_and_equals_greedy(logits: torch.Tensor, narrow: None) -> None:
    z = rows(logits)
    got = same("sample_filter", z, torch.ones(1), *filters(1, 0, 1e-8), 0)
    assert got[4].tolist() == [1] and got[1].tolist() == [int(logits.argmax())]
    token = run(
        "sample_draw", z, torch.ones(1), got[2], got[3], got[4], got[1], torch.tensor([5]), torch.tensor([9]), 0
    )
    assert token[0].tolist() == got[1].tolist()


def test_invalid_rows_are_flagged_and_others_untouched(narrow: None) -> None:
    """A row of NaN, one NaN in the last column, nothing above -infinity; between them a row that is well."""
    one = normal(4)
    one[-1] = torch.nan
    z = rows(full(torch.nan), normal(5), one, full(-INF))
    inverse, given = torch.tensor([1.0, 1.0, 1.0, INF]), filters(4, 9, 0.9)
    kept = same("sample_filter", z, inverse, *given, 0)
    assert kept[4].tolist()[0::2] == [0, 0] and kept[4][3] == 0 and kept[1].tolist()[0::2] == [0, 0]
    alone = run("sample_filter", z[1:2], inverse[1:2], *(f[1:2] for f in given), 0)
    assert all(torch.equal(a[1:2], b) for a, b in zip(kept, alone, strict=True))
    seeds, positions = torch.arange(4), torch.arange(4)
    tokens = same("sample_draw", z, inverse, kept[2], kept[3], kept[4], kept[1], seeds, positions, 0)[0]
    assert tokens.tolist()[0::2] == [0, 0] and tokens[3] == 0
    values = same("token_logprobs", z, tokens, inverse, kept[2], kept[3])[0]
    assert values.tolist()[0::2] == [-9999.0, -9999.0] and values[1] > -9999.0


def test_the_drawn_token_is_in_the_returned_support(narrow: None) -> None:
    z, inverse = rows(normal(6)), torch.ones(1)
    _, max_id, threshold, last, count, _ = run("sample_filter", z, inverse, *filters(1, 8, 0.9), 0)
    seed = torch.tensor([1])
    edges = (threshold, last, count, max_id)
    drawn = {int(same("sample_draw", z, inverse, *edges, seed, torch.tensor([i]), 0)[0]) for i in range(3)}
    ids, _ = run("top_logprobs", z, inverse, threshold, last, 16)
    assert drawn <= set(ids[0, : int(count)].tolist()) and set(ids[0, int(count) :].tolist()) == {-1}


def test_a_draw_depends_on_seed_and_position_alone(narrow: None) -> None:
    """In any batch, at any place, cut into any number of parts."""
    z = rows(*(normal(8 + i) for i in range(5)))
    inverse, seeds, positions = (
        torch.full((5,), 0.5),
        torch.tensor([42, 42, -1, 7, 42]),
        torch.tensor([3, 4, 3, 2**40, 3]),
    )
    kept = reference("sample_filter", z, inverse, None, None, None, 0)
    edges = (kept[2], kept[3], kept[4], kept[1])
    together = run("sample_draw", z, inverse, *edges, seeds, positions, 0)[0]
    order = torch.tensor([4, 2, 0, 3, 1])
    turned = run("sample_draw", *(t[order] for t in (z, inverse, *edges, seeds, positions)), 0)[0]
    assert torch.equal(turned, together[order])
    for r in (0, 4):
        alone = run("sample_draw", *(t[r : r + 1] for t in (z, inverse, *edges, seeds, positions)), 0)[0]
        assert alone.tolist() == [together[r]]


def test_parts_of_a_row_change_nothing(narrow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    z, inverse = rows(normal(20)), torch.ones(1)
    args = ("sample_filter", z, inverse, *filters(1, 0, 0.8), 0)
    many = run(*args)
    monkeypatch.setattr(sampling, "PROGRAMS", 1)
    assert all(torch.equal(a, b) for a, b in zip(many, run(*args), strict=True))


def test_top_lists_longer_than_the_row_has_tokens(narrow: None) -> None:
    z = rows(torch.where(torch.arange(WIDTH) % 90 == 0, normal(21), -INF), normal(22) - 50)
    ids, values = same("top_logprobs", z, None, None, None, 20)
    assert (ids[0] >= 0).sum() == -(-WIDTH // 90) and (values[0, -1], ids[0, -1]) == (-9999.0, -1)


def test_long_lists_are_declined_in_words() -> None:
    with on_cuda():
        z = torch.zeros(1, 3000, device=DEVICE)
        verdicts = REGISTRY.explain(SPECS["top_logprobs"].signature(z, None, None, None, 1025))
    assert any("k up to 1024, got 1025" in v.reason for v in verdicts)


def test_smaller_mass_of_a_whole_row(narrow: None) -> None:
    z, inverse = rows(normal(23), normal(24)), torch.ones(2)
    kept = reference("sample_filter", z, inverse, None, None, None, 0)
    token = torch.tensor([int(z[0].argmax()), -1], dtype=torch.int32)
    same("smaller_mass", z, inverse, kept[0], kept[2], kept[3], token)


# ---- the real vocabulary, 256 rows ----------------------------------------------------------------------------------

VOCABULARY = 129280


def _real() -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of many kinds and inverse temperatures, on the GPU."""
    torch.manual_seed(1)
    z = torch.randn(256, VOCABULARY, device=DEVICE)
    z[32:64] *= 3
    z[64:96] = torch.round(z[64:96] * 16) / 16
    z[96:100], z[104], z[106], z[108] = 0.25, -INF, torch.nan, -0.0
    z[100:104, ::3], z[105, 7], z[107, 5] = -INF, torch.nan, INF
    z[110:120] *= 6
    z[120:130] *= 0.01
    z[130:140] -= 30
    z[140:150] = torch.round(z[140:150])
    z[150:160, :300] += 8
    z[160:170] -= 1e4
    z[170] *= 1e30
    z[171] *= 1e-40
    inverse = torch.ones(256, device=DEVICE)
    inverse[::3], inverse[5::16], inverse[6::16], inverse[7::16] = 1 / 0.7, INF, 50.0, 0.02
    return z, inverse


def _pick(values: list[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(values)[torch.randint(0, len(values), (256,))].to(dtype).to(DEVICE)


def _equal(op: str, *args: Any) -> tuple[torch.Tensor, ...]:
    """Outputs on the GPU, after they were held against those of the reference on the GPU."""
    with on_cuda():
        assert SPECS[op].kernel(*args).backend == "cuda"
        got = SPECS[op].run(*args)
    want = reference(op, *args)
    for a, b in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
        kind = {1: torch.uint8, 4: torch.int32, 8: torch.int64}[a.element_size()]
        assert torch.equal(a.view(kind), b.view(kind)), f"{op}: {int((a.view(kind) != b.view(kind)).sum())} differ"
    return want


@pytest.mark.gpu
def test_real_vocabulary() -> None:
    z, inverse = _real()
    k = _pick([0, 1, 2, 20, 50, 1000, 20000, VOCABULARY, 2**31 - 1], torch.int32)
    p = _pick([0, 1, 21, 2**30, fixed31(0.9), fixed31(0.95), fixed31(0.999), FIXED_ONE], torch.int64)
    m = _pick([0, 1, 2, fixed31(0.02), fixed31(0.5), FIXED_ONE], torch.int64)
    seeds = torch.randint(-(2**62), 2**62, (256,), device=DEVICE)
    positions = torch.randint(0, 2**40, (256,), device=DEVICE)
    tokens = _pick([-1, 0, 5, 70000, VOCABULARY - 1], torch.int32)
    for given in ((None, None, None, 0), (k, None, None, 0), (None, p, None, 0), (None, None, m, 0), (k, p, m, 0)):
        kept = _equal("sample_filter", z, inverse, *given)
        edges = (kept[2], kept[3], kept[4], kept[1])
        _equal("sample_draw", z, inverse, *edges, seeds, positions, 1)
    _equal("sample_filter", z, inverse, k, p, m, 300)
    for extra in ((inverse, kept[2], kept[3]), (inverse, None, None), (None, None, None)):
        _equal("token_logprobs", z, tokens, *extra)
        _equal("top_logprobs", z, *extra, 20)
    _equal("smaller_mass", z, inverse, kept[0], kept[2], kept[3], tokens)
