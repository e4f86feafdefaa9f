"""Sampling ops against the document's algorithm carried out row by row, and the rules that engines get wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import deepinfer.backends.reference.sampling  # noqa: F401
import numerics_document as document
from deepinfer.conformance.oracle import sampling as oracle
from deepinfer.hal.errors import ContractError, InvalidArgumentError
from deepinfer.ops import sampling as ops
from deepinfer.ops.spec import SPECS

INF = float("inf")
ONE = oracle.ONE
CPU = torch.device("cpu")


def f32(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def i64(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def i32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def logits(rows: int, width: int, seed: int = 0, spread: float = 3.0) -> torch.Tensor:
    return torch.from_numpy((np.random.default_rng(seed).standard_normal((rows, width)) * spread).astype(np.float32))


def bits(x: torch.Tensor) -> list[int]:
    return x.contiguous().view(torch.int32 if x.element_size() == 4 else torch.int64).flatten().tolist()


def assert_same(got: torch.Tensor, want: object, dtype: torch.dtype = torch.float32) -> None:
    assert got.dtype == dtype
    assert bits(got) == bits(torch.tensor(want, dtype=dtype).reshape(got.shape))


def assert_filter(got: ops.Filter, want: list[tuple]) -> None:
    dtypes = (torch.float32, torch.int32, torch.float32, torch.int32, torch.int32, torch.int64)
    for name, tensor, values, dtype in zip(got._fields, got, zip(*want, strict=True), dtypes, strict=True):
        assert bits(tensor) == bits(torch.tensor(values, dtype=dtype)), (name, tensor, values)


def parse_row(words: list[str], width: int) -> np.ndarray:
    z = np.full(width, document.number(words[-1]), np.float32)
    for item in words[:-1]:
        i, value = item.split(":")
        z[int(i)] = document.number(value)
    return z


# ---- vectors and samples ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", document.blocks()["vectors-filter"])
def test_filter_vectors_of_the_document(row: list[str]) -> None:
    arrow = row.index("->")
    width, inverse, (k, p, m, force) = int(row[0]), document.number(row[1]), map(int, row[2:6])
    z = torch.from_numpy(parse_row(row[6:arrow], width))[None]
    got = ops.sample_filter(z, f32(float(inverse)), i32(k), i64(p), i64(m), force)
    want = row[arrow + 1 :]
    assert_filter(got, [(*map(float, map(document.number, want[0:1])), int(want[1]), float(document.number(want[2])),
                         *map(int, want[3:]))])  # fmt: skip


@pytest.mark.parametrize("row", document.blocks()["vectors-draw"])
def test_draw_vectors_of_the_document(row: list[str]) -> None:
    arrow = row.index("->")
    z = torch.from_numpy(parse_row(row[5:arrow], int(row[0])))[None]
    inverse = f32(float(document.number(row[1])))
    seed = torch.from_numpy(np.array([int(row[2])], np.uint64).view(np.int64))
    kept = ops.sample_filter(z, inverse)
    token = ops.sample_draw(z, inverse, kept, seed, i64(int(row[3])), int(row[4]))
    assert_same(token, [int(row[arrow + 1])], torch.int32)


@pytest.mark.parametrize("row", document.blocks()["vectors-logprob"])
def test_log_probability_vectors_of_the_document(row: list[str]) -> None:
    arrow = row.index("->")
    z = torch.from_numpy(parse_row(row[3:arrow], int(row[0])))[None]
    got = ops.token_logprobs(z, i32(int(row[2])), f32(float(document.number(row[1]))))
    assert_same(got, [float(document.number(row[arrow + 1]))])


def samples(name: str, widest: int = 20_000) -> list:
    """The spec's samples; the released width is left to conformance, which has more time than the slow oracle."""
    return [s for s in SPECS[name].samples(np.random.default_rng(3), CPU) if s.args[0].shape[1] <= widest]


def numpy_args(args: tuple) -> list:
    return [a.numpy() if isinstance(a, torch.Tensor) else a for a in args]


def entry(array: np.ndarray | None, row: int, default: int) -> int:
    return default if array is None else int(array[row])


@pytest.mark.parametrize("sample", samples("sample_filter"), ids=lambda s: s.label)
def test_filter_samples(sample: object) -> None:
    z, inverse, k, p, m, force = numpy_args(sample.args)  # type: ignore[attr-defined]
    got = ops.sample_filter(*sample.args)  # type: ignore[attr-defined]
    want = [
        oracle.sample_filter(z[r], inverse[r], entry(k, r, -1), entry(p, r, ONE), entry(m, r, 0), force)
        for r in range(len(z))
    ]
    if want:
        assert_filter(got, want)
    assert all(len(t) == len(z) for t in got)


def kept_by(z: np.ndarray, threshold: float, last_id: int) -> list[int]:
    """Kept ids in order, from a filter result."""
    return [int(i) for i in oracle.order(z) if z[i] > threshold or (z[i] == threshold and i <= last_id)]


@pytest.mark.parametrize("sample", samples("sample_draw", 2000), ids=lambda s: s.label)
def test_draw_samples(sample: object) -> None:
    z, inverse, threshold, last, count, max_id, seeds, positions, purpose = numpy_args(sample.args)  # type: ignore[attr-defined]
    want = [
        oracle.draw(z[r], inverse[r], kept_by(z[r], threshold[r], last[r]), int(seeds[r]), int(positions[r]), purpose)
        if count[r]
        else 0
        for r in range(len(z))
    ]
    assert_same(SPECS["sample_draw"].run(*sample.args), want, torch.int32)  # type: ignore[attr-defined]


def log_probabilities(z: np.ndarray, inverse: np.ndarray | None, threshold: np.ndarray | None, last: object, r: int):
    kept = None if threshold is None else kept_by(z[r], threshold[r], last[r])  # type: ignore[index]
    row = z[r] if threshold is None or kept else np.full_like(z[r], -np.inf)
    return oracle.log_probabilities(row, None if inverse is None else inverse[r], kept)


@pytest.mark.parametrize("sample", samples("token_logprobs"), ids=lambda s: s.label)
def test_token_logprob_samples(sample: object) -> None:
    z, tokens, inverse, threshold, last = numpy_args(sample.args)  # type: ignore[attr-defined]
    logs = [log_probabilities(z, inverse, threshold, last, r) for r in range(len(z))]
    want = [-9999.0 if t < 0 else row[t] for t, row in zip(tokens, logs, strict=True)]
    assert_same(SPECS["token_logprobs"].run(*sample.args), want)  # type: ignore[attr-defined]


@pytest.mark.parametrize("sample", samples("top_logprobs"), ids=lambda s: s.label)
def test_top_logprob_samples(sample: object) -> None:
    z, inverse, threshold, last, k = numpy_args(sample.args)  # type: ignore[attr-defined]
    ids, values = SPECS["top_logprobs"].run(*sample.args)  # type: ignore[attr-defined]
    for r in range(len(z)):
        edges = (-np.inf, -1) if threshold is None else (threshold[r], last[r])
        kept = kept_by(z[r], *edges)[:k] if oracle.valid(z[r]) else []
        assert_same(ids[r], kept + [-1] * (k - len(kept)), torch.int32)
        logs = log_probabilities(z, inverse, threshold, last, r)[kept].tolist()
        assert_same(values[r], logs + [-9999.0] * (k - len(kept)))


@pytest.mark.parametrize("sample", samples("smaller_mass"), ids=lambda s: s.label)
def test_smaller_mass_samples(sample: object) -> None:
    z, inverse, _, threshold, last, tokens = numpy_args(sample.args)  # type: ignore[attr-defined]
    want = [
        oracle.smaller_mass(z[r], inverse[r], kept_by(z[r], threshold[r], last[r]), tokens[r])
        if tokens[r] >= 0 and oracle.valid(z[r])
        else 0
        for r in range(len(z))
    ]
    assert_same(SPECS["smaller_mass"].run(*sample.args), want, torch.int64)  # type: ignore[attr-defined]


@pytest.mark.parametrize("sample", samples("adjust_logits", 2000), ids=lambda s: s.label)
def test_adjust_logits_samples(sample: object) -> None:
    z, penalties, offsets, ids, counts, bias_offsets, bias_ids, bias, mask = numpy_args(sample.args)  # type: ignore[attr-defined]
    want = z.copy()
    for r in range(len(z)):
        for n in range(*offsets[r : r + 2]) if offsets is not None else ():
            x, (repetition, inverse, frequency, presence) = want[r, ids[n]], penalties[r]
            x = x * inverse if x > 0 else x * repetition
            x = x - frequency * np.float32(counts[n])
            want[r, ids[n]] = x - presence if counts[n] > 0 else x
        for n in range(*bias_offsets[r : r + 2]) if bias_offsets is not None else ():
            want[r, bias_ids[n]] = bias[n] if bias[n] == -np.inf else want[r, bias_ids[n]] + bias[n]
        for i in range(z.shape[1]) if mask is not None else ():
            if not int(mask[r, i // 32]) >> (i % 32) & 1:
                want[r, i] = -np.inf
    before = sample.args[0].clone()  # type: ignore[attr-defined]
    got = SPECS["adjust_logits"].run(*sample.args)  # type: ignore[attr-defined]
    assert np.array_equal(got.numpy(), want, equal_nan=True)
    assert bits(sample.args[0]) == bits(before), "the model's logits stay as they are"  # type: ignore[attr-defined]


def test_the_released_width_runs_every_sample() -> None:
    for name in ("adjust_logits", "sample_filter", "sample_draw", "token_logprobs", "smaller_mass", "top_logprobs"):
        for sample in SPECS[name].samples(np.random.default_rng(3), CPU):
            if sample.label.startswith("real"):
                SPECS[name].run(*sample.args)


# ---- filters ----------------------------------------------------------------------------------------------------

VALUES = st.sampled_from([-np.inf, -40.0, -3.0, -0.0, 0.0, 0.25, 1.0, 1.0, 7.5, 22.0, 1e30, np.inf])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(VALUES, min_size=1, max_size=24),
    st.sampled_from([0.01, 0.3, 1.0, 3.0, np.inf]),
    st.integers(-1, 26),
    st.one_of(st.integers(0, ONE), st.sampled_from([0, 1, ONE // 2, ONE - 1, ONE])),
    st.one_of(st.just(0), st.integers(0, ONE)),
    st.integers(0, 26),
)
def test_filter_is_exactly_the_brute_force_prefix(
    values: list[float], temperature: float, k: int, p: int, m: int, force: int
) -> None:
    z = np.array(values, np.float32)
    inverse = np.float32(np.inf) if np.isinf(temperature) else np.float32(1 / temperature)
    got = ops.sample_filter(torch.from_numpy(z)[None], torch.from_numpy(inverse[None]), i32(k), i64(p), i64(m), force)
    assert_filter(got, [oracle.sample_filter(z, inverse, k, p, m, force)])


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
@pytest.mark.parametrize("force", [0, 3, 1500, 9000])
def test_wide_rows_take_the_same_prefix_by_every_path(spread: float, force: int) -> None:
    """6,000 tokens: some prefixes end among the candidates, some need the whole row sorted."""
    z = logits(8, 6000, 5, spread)
    z[3] = torch.round(z[3] * 2)
    k = i32(-1, 5, 1023, 1024, 1025, 5999, 6000, -1)
    p = i64(*(int(v * ONE) for v in (0.1, 0.5, 0.9, 0.9, 0.999, 1.0, 0.99999, 1.0)))
    got = ops.sample_filter(z, torch.ones(8), k, p, None, force)
    want = [oracle.sample_filter(z[r].numpy(), np.float32(1), int(k[r]), int(p[r]), 0, force) for r in range(8)]
    assert_filter(got, want)


def test_top_k_cuts_ties_at_the_lower_ids() -> None:
    z = torch.zeros(1, 8320)
    z[0, 1::83] = 1.0  # 101 winners, the rest equal
    kept = ops.sample_filter(z, torch.ones(1), i32(2048))
    assert kept.count.item() == 2048
    losers = [i for i in range(8320) if z[0, i] == 0.0]
    assert kept.last_id.item() == losers[2048 - 101 - 1]


def test_top_k_orders_by_the_whole_fp32_value_not_its_upper_bits() -> None:
    z = (torch.arange(5000) + 0x3F800000).to(torch.int32).view(torch.float32).flip(0)[None]
    kept = ops.sample_filter(z, torch.ones(1), i32(2100))
    assert kept.threshold.item() == z[0, 2099].item() and kept.last_id.item() == 2099


@pytest.mark.parametrize("top_p", [1e-8, 1e-3])
def test_tiny_top_p_keeps_the_most_likely_token_and_equals_greedy(top_p: float) -> None:
    z = logits(64, 4096, 1, spread=0.001)
    inverse = torch.ones(64)
    kept = ops.sample_filter(z, inverse, None, torch.full((64,), ops.fixed31(top_p)))
    assert kept.count.min().item() >= 1
    if top_p == 1e-8:
        assert kept.count.max().item() == 1
        seeds, positions = torch.arange(64), torch.arange(64)
        assert torch.equal(ops.sample_draw(z, inverse, kept, seeds, positions).long(), z.argmax(1))


def test_the_crossing_token_is_kept_and_equality_counts_as_below() -> None:
    z = torch.tensor([[0.0, -INF, 0.0, -INF]])
    assert ops.sample_filter(z, torch.ones(1), None, i64(ONE // 2)).count.item() == 2
    assert ops.sample_filter(z, torch.ones(1), None, i64(ONE // 2 - 1)).count.item() == 1


def test_everything_off_keeps_every_token_above_minus_infinity_also_those_without_weight() -> None:
    z = f32(0.0, -1000.0, -INF, -5.0)[None]
    off = (i32(-1), i64(ONE), i64(0))
    for filters in ((None, None, None), off):
        kept = ops.sample_filter(z, torch.ones(1), *filters)
        assert kept.count.item() == 3 and kept.threshold.item() == -INF
    assert ops.sample_filter(z, torch.ones(1), None, i64(ONE - 1)).count.item() == 2


def test_absent_filters_and_switched_off_filters_have_the_same_bits() -> None:
    z, inverse = logits(7, 1000), torch.full((7,), 1.25)
    off = (torch.full((7,), -1, dtype=torch.int32), torch.full((7,), ONE), torch.zeros(7, dtype=torch.int64))
    for a, b in zip(ops.sample_filter(z, inverse), ops.sample_filter(z, inverse, *off, 1000), strict=True):
        assert bits(a) == bits(b)


def test_forced_top_k_comes_first_and_top_p_is_relative_to_it() -> None:
    z = torch.log(f32(0.4, 0.3, 0.2, 0.1))[None]
    p = i64(ops.fixed31(0.5))
    assert ops.sample_filter(z, torch.ones(1), None, p).count.item() == 2  # 0.4 <= 0.5
    # Within the first two, 0.4 has 0.57 of the mass, so the second one begins past one half.
    assert ops.sample_filter(z, torch.ones(1), None, p, None, 2).count.item() == 1


# ---- draws ------------------------------------------------------------------------------------------------------


def test_greedy_is_the_lowest_id_among_the_largest_whatever_the_filters_and_seeds() -> None:
    z = logits(5, 700)
    z[2, [17, 300, 301]] = 50.0
    z[3, [5, 6]] = INF
    inverse = torch.full((5,), ops.inverse_temperature(0.0))
    for filters in ((), (torch.full((5,), 40, dtype=torch.int32), torch.full((5,), ONE))):
        kept = ops.sample_filter(z, inverse, *filters)
        tokens = ops.sample_draw(z, inverse, kept, torch.arange(5), torch.arange(5))
        assert tokens.tolist() == [int(np.argmax(row)) for row in z.numpy()]
        assert ops.token_logprobs(z, tokens, inverse, kept).tolist() == [0.0] * 5


def test_invalid_rows_are_flagged_draw_the_fallback_and_leave_others_alone() -> None:
    z, inverse = logits(5, 3000, 2), torch.ones(5)
    k, p = torch.full((5,), 50, dtype=torch.int32), torch.full((5,), ops.fixed31(0.9))
    seeds, positions = torch.arange(5), torch.arange(5) + 9
    bad = z.clone()
    bad[0], bad[2, 2999], bad[4] = torch.nan, torch.nan, -INF
    for filters in ((None, None), (k, None), (None, p), (k, p)):
        good_kept, kept = ops.sample_filter(z, inverse, *filters), ops.sample_filter(bad, inverse, *filters)
        tokens = ops.sample_draw(bad, inverse, kept, seeds, positions)
        logs = ops.token_logprobs(bad, tokens, inverse, kept)
        ids, values = ops.top_logprobs(bad, 4, inverse, kept)
        for row in (0, 2, 4):
            assert kept.count[row].item() == 0 and tokens[row].item() == ops.FALLBACK_ID
            assert logs[row].item() == -9999.0
            assert ids[row].tolist() == [-1] * 4 and values[row].tolist() == [-9999.0] * 4
        for row in (1, 3):
            assert [bits(t[row : row + 1]) for t in kept] == [bits(t[row : row + 1]) for t in good_kept]
            assert tokens[row] == ops.sample_draw(z, inverse, good_kept, seeds, positions)[row]
    raw = ops.token_logprobs(bad, i32(1, 1, 1, 1, 1))
    assert (raw == -9999.0).tolist() == [True, False, True, False, True]
    assert ops.top_logprobs(bad, 2)[0][:, 0].tolist()[::2] == [-1, -1, -1]


@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_a_mixed_batch_of_greedy_and_sampled_rows_is_the_rows_alone(top_p: float) -> None:
    z = logits(6, 400)
    z[2, [17, 300, 301]] = 50.0
    inverse = f32(INF, 1.0, INF, 0.5, 2.0, INF)
    seeds, positions = torch.arange(6) + 100, torch.arange(6)
    filters = (torch.full((6,), 40, dtype=torch.int32), torch.full((6,), ops.fixed31(top_p)))
    kept = ops.sample_filter(z, inverse, *filters)
    assert kept.count[inverse == INF].tolist() == [1, 1, 1]
    together = ops.sample_draw(z, inverse, kept, seeds, positions)
    for r in range(6):
        row = slice(r, r + 1)
        alone = ops.sample_filter(z[row], inverse[row], *(t[row] for t in filters))
        assert [bits(t) for t in alone] == [bits(t[row]) for t in kept]
        assert ops.sample_draw(z[row], inverse[row], alone, seeds[row], positions[row]) == together[r]


FILTERS = [
    {}, {"top_k": 3}, {"top_k": 50}, {"top_p": 0.3}, {"top_p": 0.95}, {"min_p": 0.1}, {"top_k": 20, "top_p": 0.8},
    {"top_k": 1}, {"top_p": 1e-6}, {"top_k": 40, "top_p": 0.9, "min_p": 0.02},
]  # fmt: skip


def apply(z: torch.Tensor, inverse: torch.Tensor, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> ops.Filter:
    rows = len(z)
    k = torch.full((rows,), top_k, dtype=torch.int32) if top_k else None
    p = torch.full((rows,), ops.fixed31(top_p)) if top_p < 1 else None
    return ops.sample_filter(z, inverse, k, p, torch.full((rows,), ops.fixed31(min_p)) if min_p else None)


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_the_drawn_token_is_in_the_returned_support_and_truncation_shows(filters: dict) -> None:
    z = torch.round(logits(200, 300, 3) * 2) / 2  # many ties
    inverse = torch.full((200,), 0.8)
    kept = apply(z, inverse, **filters)
    tokens = ops.sample_draw(z, inverse, kept, torch.arange(200), torch.arange(200))
    ids, values = ops.top_logprobs(z, 300, inverse, kept)
    support = [set(row[row >= 0].tolist()) for row in ids]
    assert all(t in s for t, s in zip(tokens.tolist(), support, strict=True))
    assert [len(s) for s in support] == kept.count.tolist()
    short, _ = ops.top_logprobs(z, 1, inverse, kept)
    assert (short[:, 0] >= 0).all(), "a support capped at one is never empty; count > 1 says that it is cut"
    # A probability is off by the error of its logarithm, relatively: docs/numerics.md, section 4.5.
    limit = 2.0**-24 * (4 * 0.8 * float(z.max() - z.min()) + 8 * np.log(300) + 16 + 1)
    assert (values.double().exp().sum(1) - 1).abs().max() <= np.expm1(limit)
    own = ops.token_logprobs(z, tokens, inverse, kept)
    place = (ids == tokens[:, None]).int().argmax(1, keepdim=True)
    assert bits(own) == bits(values.gather(1, place)[:, 0])


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    """Two requests with one seed, started at different steps, in different rows, with any neighbours and padding."""
    row = logits(1, 500, 8, 1.0)
    inverse = torch.ones(1)
    alone = [
        ops.sample_draw(row, inverse, ops.sample_filter(row, inverse), i64(42), i64(p)).item() for p in range(30, 60)
    ]
    assert len(set(alone)) > 10
    batch = torch.cat((logits(3, 500, 9), row.expand(30, 500), torch.full((2, 500), torch.nan)))
    inverses = torch.cat((f32(INF, 0.5, 2.0), torch.ones(32)))
    seeds = torch.cat((i64(1, 42, -3), torch.full((30,), 42), i64(0, 0)))
    positions = torch.cat((i64(30, 31, 5), torch.arange(30, 60), i64(0, 0)))
    order = torch.from_numpy(np.random.default_rng(0).permutation(35))
    k = torch.full((35,), -1, dtype=torch.int32)
    k[0] = 7
    args = [t[order].contiguous() for t in (batch, inverses, k, seeds, positions)]
    kept = ops.sample_filter(*args[:3])
    tokens = torch.empty(35, dtype=torch.int32)
    tokens[order] = ops.sample_draw(args[0], args[1], kept, args[3], args[4])
    assert tokens[3:33].tolist() == alone


def test_another_seed_position_or_purpose_gives_another_stream() -> None:
    z, inverse = torch.zeros(1, 1000), torch.ones(1)
    kept = ops.sample_filter(z, inverse)
    tokens = {
        ops.sample_draw(z, inverse, kept, i64(seed), i64(position), purpose).item()
        for seed in (0, 1, 1 << 32, -1)
        for position in (0, 1, 1 << 32)
        for purpose in ops.Purpose
    }
    assert len(tokens) >= 44  # 48 draws from 1,000


def test_equal_scores_past_the_fp32_range_still_give_a_kept_token() -> None:
    z = f32(-INF, -3.2e38, -3e38, -3.1e38)[None]
    inverse = f32(4.0)
    kept = ops.sample_filter(z, inverse)
    assert kept.count.item() == 3
    assert ops.sample_draw(z, inverse, kept, i64(1), i64(1)).item() == 2


# ---- log-probabilities ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 43, 44, 45, 300])
def test_log_probability_bits_do_not_depend_on_the_number_of_rows(rows: int) -> None:
    row = logits(1, 3001, 4)
    inverse = torch.full((rows,), 1.25)
    z = torch.cat((logits(rows - 1, 3001, rows), row))
    kept = apply(z, inverse, top_p=0.9)
    token = i32(7)
    alone_kept = apply(row, inverse[:1], top_p=0.9)
    tokens = token.expand(rows).contiguous()
    assert bits(ops.token_logprobs(z, tokens)[-1:]) == bits(ops.token_logprobs(row, token))
    got = ops.top_logprobs(z, 5, inverse, kept)[1][-1]
    assert bits(got) == bits(ops.top_logprobs(row, 5, inverse[:1], alone_kept)[1][0])


def test_log_probabilities_are_close_to_the_real_ones() -> None:
    for width, spread in ((512, 3.0), (129280, 0.1), (129280, 4.0)):
        z = logits(2, width, 6, spread)
        want = torch.log_softmax(z.double(), 1)
        ids, values = ops.top_logprobs(z, 200)
        span = (z.max() - z.min()).item()
        bound = 2.0**-24 * (4 * span + 8 * np.log(width) + 16 + np.ceil(width / 8192))  # as the document says
        assert (values.double() - want.gather(1, ids.long())).abs().max().item() < bound


def test_raw_and_processed_have_the_same_bits_where_nothing_filters() -> None:
    z = logits(4, 1500)
    tokens = i32(0, 3, 1499, 77)
    kept = ops.sample_filter(z, torch.ones(4))
    assert bits(ops.token_logprobs(z, tokens)) == bits(ops.token_logprobs(z, tokens, torch.ones(4), kept))
    for a, b in zip(ops.top_logprobs(z, 9), ops.top_logprobs(z, 9, torch.ones(4), kept), strict=True):
        assert bits(a) == bits(b)


def test_invalid_rows_have_the_floor_whatever_row_their_filter_is_of() -> None:
    """One NaN, nothing above -infinity, NaN beside +infinity; the last row is well and has its own filter."""
    z, inverse, tokens = logits(4, 50), torch.ones(4), i32(3, 3, 8, 3)
    own = ops.sample_filter(z[3:], inverse[3:])
    z[0, 7], z[1], z[2, 7], z[2, 8] = torch.nan, -INF, torch.nan, INF
    assert own.threshold.item() == -INF
    others = apply(logits(3, 50, 1), inverse[:3], top_k=20)
    for foreign in (ops.Filter(*(x.expand(3) for x in own)), others):
        kept = ops.Filter(*map(torch.cat, zip(foreign, own, strict=True)))
        values = ops.token_logprobs(z, tokens, inverse, kept)
        assert values[:3].tolist() == [-9999.0] * 3
        assert bits(values[3:]) == bits(ops.token_logprobs(z[3:], tokens[3:]))
        ids, values = ops.top_logprobs(z, 60, inverse, kept)
        assert (ids[:3] == -1).all() and (values[:3] == -9999.0).all()
        assert bits(values[3:]) == bits(ops.top_logprobs(z[3:], 60)[1])


def test_top_lists_of_a_row_do_not_depend_on_the_longest_list_of_the_batch() -> None:
    z = torch.round(logits(3, 200))
    long_ids, long_values = ops.top_logprobs(z, 300)
    for k in (0, 1, 7, 200):
        ids, values = ops.top_logprobs(z, k)
        assert torch.equal(ids, long_ids[:, :k]) and bits(values) == bits(long_values[:, :k])
    assert (long_ids[:, 200:] == -1).all() and (long_values[:, 200:] == -9999.0).all()


def test_tokens_outside_the_kept_set_and_far_below_have_the_floor() -> None:
    z = f32(0.0, -1.0, -20000.0, -INF)[None].expand(4, 4).contiguous()
    assert ops.token_logprobs(z, i32(0, 2, 3, -1))[1:].tolist() == [-9999.0] * 3
    kept = ops.sample_filter(z, torch.ones(4), torch.full((4,), 1, dtype=torch.int32))
    assert ops.token_logprobs(z, i32(0, 1, 2, 3), torch.ones(4), kept).tolist() == [0.0, -9999.0, -9999.0, -9999.0]


def test_smaller_mass_as_a_probability() -> None:
    p = np.array([0.5, 0.2, 0.2, 0.1])
    z = torch.from_numpy(np.log(p).astype(np.float32))[None].expand(5, 4).contiguous()
    kept = ops.sample_filter(z, torch.ones(5))
    mass = ops.smaller_mass(z, torch.ones(5), kept, i32(0, 1, 2, 3, -1))
    share = mass.double() / kept.mass.double()
    # A weight: the rounded logarithm, three roundings of its exponent and two of exp2, cut off at 2^-31; in both sums.
    limit = 2 * (2.0**-24 * (p * (4 * -np.log(p) + 2)).sum() + 4 * 2.0**-31)
    assert np.allclose(share.numpy(), [0.5, 0.1, 0.1, 0.0, 0.0], rtol=0, atol=limit)


# ---- adjustments ------------------------------------------------------------------------------------------------


def test_penalties_bias_and_mask_in_their_order() -> None:
    z = f32(2.0, -2.0, 4.0, 1.0, 0.0)[None]
    got = ops.adjust_logits(
        z, f32(2.0, 0.5, 0.25, 1.0)[None], i32(0, 3), i32(0, 1, 2), i32(2, 0, 1),
        i32(0, 2), i32(0, 4), f32(10.0, -INF), i32(0b10111)[None],
    )  # fmt: skip
    # 2*.5 - .25*2 - 1 + 10; -2*2 (seen in the prompt only); 4*.5 - .25 - 1; masked; banned.
    assert got.tolist() == [[9.5, -4.0, 0.75, -INF, -INF]]


def test_a_ban_holds_against_infinity_and_nan() -> None:
    z = f32(INF, float("nan"), 1.0)[None]
    banned = ops.adjust_logits(z, bias_offsets=i32(0, 2), bias_ids=i32(0, 1), bias_values=f32(-INF, -INF))
    masked = ops.adjust_logits(z, bitmask=i32(0b100)[None])
    assert banned.tolist() == masked.tolist() == [[-INF, -INF, 1.0]]


def test_mask_bits_past_the_vocabulary_and_the_sign_bit() -> None:
    z = torch.zeros(1, 33)
    got = ops.adjust_logits(z, bitmask=i32(-(2**31), -2)[None])
    assert got[0].isfinite().nonzero().flatten().tolist() == [31]


def test_groups_are_given_whole() -> None:
    z = torch.zeros(1, 4)
    with pytest.raises(ContractError, match="whole or not at all"):
        ops.adjust_logits(z, penalties=torch.ones(1, 4))
    with pytest.raises(ContractError, match="whole or not at all"):
        ops.adjust_logits(z, bias_ids=i32(1))


# ---- calling ----------------------------------------------------------------------------------------------------


def test_no_rows() -> None:
    z, none, ids = torch.zeros(0, 70), torch.zeros(0), torch.zeros(0, dtype=torch.int32)
    wide = torch.zeros(0, dtype=torch.int64)
    kept = ops.sample_filter(z, none, ids, wide, wide)
    assert ops.sample_draw(z, none, kept, wide, wide).shape == (0,)
    assert ops.token_logprobs(z, ids, none, kept).shape == (0,)
    assert ops.top_logprobs(z, 3)[0].shape == (0, 3)
    assert ops.smaller_mass(z, none, kept, ids).shape == (0,)


def test_results_go_into_the_callers_tensors() -> None:
    z, inverse = logits(3, 50), torch.ones(3)
    want = ops.sample_filter(z, inverse, i32(4, 5, 6))
    out = tuple(torch.full_like(t, 77) for t in want)
    got = ops.sample_filter(z, inverse, i32(4, 5, 6), out=out)
    assert all(a is b for a, b in zip(got, out, strict=True))
    assert [bits(t) for t in out] == [bits(t) for t in want]
    tokens = torch.full((3,), -7, dtype=torch.int32)
    ops.sample_draw(z, inverse, want, i64(1, 2, 3), i64(4, 5, 6), out=tokens)
    assert torch.equal(tokens, ops.sample_draw(z, inverse, want, i64(1, 2, 3), i64(4, 5, 6)))


def test_a_purpose_outside_the_enumeration_is_refused() -> None:
    z, inverse = logits(1, 50), torch.ones(1)
    with pytest.raises(ContractError, match="purpose"):
        ops.sample_draw(z, inverse, ops.sample_filter(z, inverse), i64(1), i64(1), 4)


def test_host_helpers() -> None:
    assert ops.inverse_temperature(0.0) == INF and ops.inverse_temperature(1e-45) == INF
    assert ops.inverse_temperature(0.7) == float(np.float32(1 / 0.7))
    assert ops.fixed31(1.0) == ONE and ops.fixed31(0.5) == ONE // 2 and ops.fixed31(1e-12) == 0
    assert ops.fixed31(1 - 2.0**-53) == ONE - 1, "below one stays a filter"
    for value in (-0.1, float("nan"), INF):
        with pytest.raises(InvalidArgumentError, match="temperature"):
            ops.inverse_temperature(value)
    for value in (-0.1, 1.1, float("nan")):
        with pytest.raises(InvalidArgumentError, match="probability"):
            ops.fixed31(value)
