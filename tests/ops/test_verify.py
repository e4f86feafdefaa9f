"""Verification of drafts: vectors, an independent implementation bit by bit, every branch by small examples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import numerics_document as document
from deepinfer import ops
from deepinfer.backends import reference
from deepinfer.conformance.oracle import expected
from deepinfer.hal.errors import ContractError
from deepinfer.ops import sampling
from deepinfer.ops.spec import SPECS
from deepinfer.ops.verify import NO_DRAFT
from row_parts import assert_rows_stand_alone, results

CPU = torch.device("cpu")
NAN, INF = float("nan"), float("inf")
expected.load_oracles()


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    reference.backend.load()


def i32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def f32(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def i64(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def parse_row(words: list[str], width: int) -> torch.Tensor:
    z = np.full(width, document.number(words[-1]), np.float32)
    for item in words[:-1]:
        i, value = item.split(":")
        z[int(i)] = document.number(value)
    return torch.from_numpy(z)[None]


def verify(
    z: torch.Tensor, inverse: float, draft: int, pool: torch.Tensor | None = None, *, shared: bool = False, **at: int
) -> tuple[int, bool]:
    """One row without filters; `pool` [1, 1, V] holds what the draft was drawn from."""
    kept = sampling.sample_filter(z, f32(inverse))
    flat, place = (None, None) if pool is None else (pool.flatten(0, 1), i32(0))
    where = (i64(at.get("seed", 1)), i64(at.get("position", 9)))
    token, accepted = ops.verify_drafts(z, f32(inverse), kept, i32(draft), *where, flat, place, shared)
    return int(token), bool(accepted)


@pytest.mark.parametrize("row", document.blocks()["vectors-verify"], ids=lambda row: " ".join(row[:7]))
def test_vectors_of_the_document(row: list[str]) -> None:
    arrow = row.index("->")
    parts = " ".join(row[7:arrow]).split("/")
    width, inverse, k, mode = int(row[0]), f32(float(document.number(row[1]))), i32(int(row[2])), row[6]
    z = parse_row(parts[0].split(), width)
    seed = torch.from_numpy(np.array([int(row[3])], np.uint64).view(np.int64))
    log2q = draft_row = None
    if mode == "drawn":
        pool = torch.full((2, 1, width), NAN)
        other = parse_row(parts[1].split(), width)
        kept = sampling.sample_filter(other, inverse)
        ops.draft_distribution(other, inverse, kept, i32(0), i32(1), pool, 0)
        log2q, draft_row = pool.flatten(0, 1), i32(1)
    kept = sampling.sample_filter(z, inverse, k)
    token, accepted = ops.verify_drafts(
        z, inverse, kept, i32(int(row[5])), seed, i64(int(row[4])), log2q, draft_row, mode == "shared"
    )
    assert [int(token), int(accepted)] == [int(word) for word in row[arrow + 1 :]]


@pytest.mark.parametrize("op", ["draft_distribution", "verify_drafts", "accept_prefix"])
def test_every_sample_equals_an_independent_implementation(op: str) -> None:
    for sample in SPECS[op].samples(np.random.default_rng(23), CPU):
        if sample.label.startswith("real") and op != "accept_prefix":
            continue  # the oracle is slow there; the conformance suite has the time
        args = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in sample.args)
        for i, (want, got) in enumerate(zip(expected.BITS[op](*args), results(op, sample.args), strict=True)):
            assert want is not None and want.want.dtype == got.dtype
            assert want.want.nan_to_num(7.5).equal(got.nan_to_num(7.5)), f"{sample.label}, output {i}"


def test_rows_stand_alone() -> None:
    for sample in SPECS["verify_drafts"].samples(np.random.default_rng(5), CPU):
        if sample.label.startswith(("8x37", "5x1000", "3x17001")):
            assert_rows_stand_alone("verify_drafts", sample.args)


# ---- branches -----------------------------------------------------------------------------------------------------


def test_greedy_rows_accept_the_argmax_only() -> None:
    z = f32(0.0, 2.0, 2.0, 1.0)[None]
    assert verify(z, INF, 1) == (1, True)
    assert verify(z, INF, 2) == (1, False), "the lowest id among equals is the argmax"
    pool = torch.log2(torch.tensor([0.1, 0.1, 0.7, 0.1])).view(1, 1, 4)
    assert verify(z, INF, 2, pool) == (1, False), "whatever the drafter thought"


def test_invalid_rows_accept_nothing() -> None:
    for z in (f32(NAN, 1.0, 0.0)[None], torch.full((1, 3), -INF)):
        for shared in (False, True):
            assert verify(z, 1.0, 0, shared=shared) == (sampling.FALLBACK_ID, False)
            assert verify(z, 1.0, 1, shared=shared) == (sampling.FALLBACK_ID, False)


def test_a_draft_the_target_excludes_is_never_accepted() -> None:
    z = f32(0.0, -INF, 0.0)[None]
    for seed in range(50):
        token, accepted = verify(z, 1.0, 1, seed=seed)
        assert not accepted and token in (0, 2)


def test_a_draft_likelier_under_the_target_is_always_accepted() -> None:
    z = torch.log(f32(0.6, 0.3, 0.1))[None]
    pool = torch.log2(f32(0.5, 0.25, 0.25)).view(1, 1, 3)
    assert all(verify(z, 1.0, draft, pool, seed=seed) == (draft, True) for draft in (0, 1) for seed in range(50))


def test_a_rejected_draft_never_comes_back() -> None:
    """Its residual is 0 and so is that of all the drafter had too much of."""
    z = torch.log(f32(0.1, 0.2, 0.3, 0.4))[None]
    pool = torch.log2(f32(0.4, 0.3, 0.2, 0.1)).view(1, 1, 4)
    found = [verify(z, 1.0, 0, pool, seed=seed) for seed in range(200)]
    assert {token for token, accepted in found if not accepted} == {2, 3}
    assert 20 < sum(accepted for _, accepted in found) < 80, "a quarter passes"


def test_equal_distributions_accept_everything() -> None:
    z = torch.randn(1, 50, generator=torch.Generator().manual_seed(3))
    pool = torch.zeros(1, 1, 50)
    kept = sampling.sample_filter(z, f32(0.7))
    ops.draft_distribution(z, f32(0.7), kept, i32(0), i32(0), pool, 0)
    assert all(verify(z, 0.7, draft, pool, seed=draft) == (draft, True) for draft in range(50))


def test_a_residual_of_nothing_but_rounding_gives_the_likeliest_token() -> None:
    """The drafter had more of everything than the target, which no two distributions can: no r_i is left."""
    z = f32(0.0, 1.0, 0.5)[None]
    pool = torch.zeros(1, 1, 3)
    found = {verify(z, 1.0, 0, pool, seed=seed) for seed in range(40)}
    assert found == {(0, True), (1, False)}


def test_rows_without_a_draft_draw_as_plain_decoding_does() -> None:
    z = torch.randn(40, 300, generator=torch.Generator().manual_seed(5))
    inverse, seeds, positions = torch.ones(40), torch.arange(40), torch.arange(40) * 7
    kept = sampling.sample_filter(z, inverse)
    plain = sampling.sample_draw(z, inverse, kept, seeds, positions)
    none = torch.full((40,), NO_DRAFT, dtype=torch.int32)
    for shared in (False, True):
        token, accepted = ops.verify_drafts(z, inverse, kept, none, seeds, positions, shared=shared)
        assert token.equal(plain) and not accepted.any()


def test_shared_noise_gives_the_plain_draw_for_any_draft() -> None:
    z = torch.randn(200, 6, generator=torch.Generator().manual_seed(6))
    inverse, seeds, positions = torch.ones(200), torch.arange(200), torch.arange(200) * 3
    kept = sampling.sample_filter(z, inverse)
    plain = sampling.sample_draw(z, inverse, kept, seeds, positions)
    drafts = torch.arange(200, dtype=torch.int32) % 6
    token, accepted = ops.verify_drafts(z, inverse, kept, drafts, seeds, positions, shared=True)
    assert token.equal(plain) and accepted.equal(plain == drafts) and accepted.any() and not accepted.all()


def test_a_drafter_with_the_same_logits_and_noise_is_always_right() -> None:
    z = torch.randn(64, 300, generator=torch.Generator().manual_seed(7))
    inverse, seeds, positions = torch.ones(64), torch.arange(64), torch.arange(64)
    kept = sampling.sample_filter(z, inverse)
    drafts = sampling.sample_draw(z, inverse, kept, seeds, positions, sampling.Purpose.TARGET)
    assert ops.verify_drafts(z, inverse, kept, drafts, seeds, positions, shared=True)[1].all()


def test_what_does_not_go_together_is_refused() -> None:
    z = torch.zeros(1, 4)
    kept = sampling.sample_filter(z, f32(1.0))
    rest = (i32(0), i64(0), i64(0))
    with pytest.raises(ContractError, match="log2q and draft_row must be given together"):
        ops.verify_drafts(z, f32(1.0), kept, *rest, torch.zeros(1, 4))
    with pytest.raises(ContractError, match="drafts holds 4, must lie in"):
        ops.verify_drafts(z, f32(1.0), kept, i32(4), i64(0), i64(0))
    with pytest.raises(ContractError, match="draft_row holds 1, must lie in"):
        ops.verify_drafts(z, f32(1.0), kept, *rest, torch.zeros(1, 4), i32(1))
    with pytest.raises(ContractError, match="place is 2, the pool has 2 places"):
        ops.draft_distribution(z, f32(1.0), kept, i32(0), i32(0), torch.zeros(1, 2, 4), 2)
    with pytest.raises(ContractError, match="drafts and golden must be given together"):
        ops.accept_prefix(i32(1), torch.tensor([True]), i32(0), i32(1), 1, i32(1))


# ---- accepted prefix ----------------------------------------------------------------------------------------------


def test_the_prefix_ends_at_the_first_rejection() -> None:
    tokens = i32(10, 11, 12, 20, 21, 22, 30)
    accepted = torch.tensor([True, False, True, True, True, True, False])
    got = ops.accept_prefix(tokens, accepted, i32(0, 3, 6), i32(3, 3, 1), 4)
    assert got.accepted.tolist() == [1, 2, 0], "the last row of a sequence has no draft to accept"
    assert got.tokens.tolist() == [[10, 11, -1, -1], [20, 21, 22, -1], [30, -1, -1, -1]]
    assert got.last.tolist() == [11, 22, 30] and got.row.tolist() == [1, 5, 6]
    assert got.stop.tolist() == [False] * 3


def test_a_stop_token_counts_where_it_was_emitted() -> None:
    tokens, accepted = i32(1, 2, 3, 1, 2, 3), torch.tensor([True, False, False, False, True, False])
    stops = torch.tensor([[3, -1], [1, 9]], dtype=torch.int32)
    got = ops.accept_prefix(tokens, accepted, i32(0, 3), i32(3, 3), 3, stop_ids=stops)
    assert got.stop.tolist() == [False, True], "token 3 lies behind the rejection; -1 is no token"


def test_forced_tokens_decide() -> None:
    tokens, drafts, golden = i32(5, 6, 7), i32(5, 8, -1), i32(-1, 8, 9)
    got = ops.accept_prefix(tokens, torch.tensor([True, False, False]), i32(0), i32(3), 3, drafts, golden)
    assert got.accepted.tolist() == [2] and got.tokens.tolist() == [[5, 8, 9]]
    got = ops.accept_prefix(tokens, torch.tensor([True, True, False]), i32(0), i32(3), 3, i32(5, 6, -1), i32(-1, 8, 9))
    assert got.accepted.tolist() == [1] and got.tokens.tolist() == [[5, 8, -1]]


def test_sequences_without_rows_have_gained_nothing() -> None:
    got = ops.accept_prefix(i32(4), torch.tensor([False]), i32(-7, 0), i32(0, 1), 2, stop_ids=i32(-1, 4).view(2, 1))
    assert got.accepted.tolist() == [0, 0] and got.tokens.tolist() == [[-1, -1], [4, -1]]
    assert got.last.tolist() == [-1, 4] and got.row.tolist() == [-1, 0] and got.stop.tolist() == [False, True]
    for begin, rows in ((0, 3), (0, 2), (1, 1), (-1, 1), (0, -1)):
        with pytest.raises(ContractError, match="must lie in"):
            ops.accept_prefix(i32(4), torch.tensor([False]), i32(begin), i32(rows), 2)
