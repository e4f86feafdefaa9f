"""Routing, packing, expert products, activation and combination."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import numerics_checks
from deepinfer import ops
from deepinfer.backends.reference import moe, quant  # noqa: F401  (quant registers a kernel the tests call)
from deepinfer.conformance.oracle import formats
from deepinfer.conformance.oracle import formulas as oracle
from deepinfer.conformance.oracle import moe as moe_oracle
from deepinfer.ops import layer_samples as make
from deepinfer.ops import moe_samples
from deepinfer.ops.numerics import Accumulated
from deepinfer.ops.spec import SPECS, WeightHandle
from numerics_checks import check_accumulated

CPU = torch.device("cpu")
NAN, INF = torch.nan, torch.inf
TEXT = torch.zeros(1, dtype=torch.bool)


def gate(logits: list[float], bias: list[float] | None = None, k: int = 2) -> tuple[list[float], list[int]]:
    """Route one row."""
    row = torch.tensor([logits])
    b = torch.zeros(len(logits)) if bias is None else torch.tensor(bias)
    weights, experts = ops.moe_gate(row, b, torch.full_like(b, NAN), TEXT, k, 1.5)
    return weights[0].tolist(), experts[0].tolist()


@pytest.mark.parametrize(("rows", "experts", "k"), [(0, 8, 2), (1, 8, 2), (37, 12, 3), (200, 384, 6), (9, 4, 4)])
def test_gate_against_float64(rows: int, experts: int, k: int) -> None:
    rng = np.random.default_rng(rows)
    logits = make.normal(rng, CPU, rows, experts, dtype=torch.float32) * 5
    bias, bias_vl = (make.normal(rng, CPU, experts, dtype=torch.float32) * 0.3 for _ in range(2))
    image = torch.from_numpy(rng.random(rows) < 0.5)
    weights, chosen = ops.moe_gate(logits, bias, bias_vl, image, k, 1.5)
    for t in range(rows):
        b = formats.f64(bias_vl if image[t] else bias)
        want, want_weights = oracle.route(formats.f64(logits)[t], b, k, 1.5)
        assert chosen[t].tolist() == want
        limit = moe_oracle.gate_weights(logits[t : t + 1], chosen[t : t + 1], 1.5).limit[0].numpy()
        assert (np.abs(formats.f64(weights)[t] - want_weights) <= limit).all()


def test_gate_ties_go_to_the_lower_expert() -> None:
    assert gate([1.0] * 5, k=3)[1] == [0, 1, 2]
    assert gate([0.0, 2.0, 2.0, 0.0, 2.0], k=4)[1] == [1, 2, 4, 0]
    assert gate([-300.0] * 3, bias=[-0.0, 0.0, -0.0], k=3)[1] == [0, 1, 2]  # -0 equals +0


def test_gate_nan_and_infinities() -> None:
    weights, experts = gate([NAN, 1.0, 2.0, NAN], k=2)
    assert experts == [2, 1] and np.isfinite(weights).all()
    weights, experts = gate([NAN, 1.0, 2.0, NAN], k=3)
    assert experts == [2, 1, 0] and np.isnan(weights).all()
    assert gate([NAN] * 3, k=2)[1] == [0, 1]
    assert gate([0.0, NAN, 0.0], bias=[-INF, 0.0, -INF], k=3)[1] == [0, 2, 1]  # -infinity before NaN
    assert gate([0.0, INF, 5.0], k=1)[1] == [1]
    weights, experts = gate([-INF, -INF, -INF], k=2)
    assert experts == [0, 1] and weights == [0.0, 0.0]


def test_gate_bias_chooses_but_does_not_weigh() -> None:
    weights, experts = gate([0.0, 0.0, 0.0], bias=[0.0, 7.0, 3.0], k=2)
    assert experts == [1, 2] and weights == [0.75, 0.75]  # s / 2s is exact


def test_gate_softplus_is_linear_above_twenty() -> None:
    weights, _ = gate([100.0, 25.0], k=2)
    # The roots 10 and 5 are exact, and so is their sum; a quotient and a product are rounded.
    assert weights == pytest.approx([1.5 * 10 / 15, 1.5 * 5 / 15], rel=2 * 2.0**-24)


def test_order_key_orders_like_the_numbers() -> None:
    x = torch.tensor([-INF, -3e38, -1.0, -1e-45, 0.0, 1e-45, 1.0, 3e38, INF])
    key = moe.order_key(x)
    assert (key[1:] > key[:-1]).all()
    assert moe.order_key(torch.tensor([-0.0, 0.0])).unique().numel() == 1
    assert moe.order_key(torch.tensor([NAN, -NAN])).tolist() == [-(2**31)] * 2


@pytest.mark.parametrize("first", [0, 3, 50])
@pytest.mark.parametrize(("rows", "k", "count"), [(0, 2, 4), (1, 2, 4), (37, 3, 5), (20, 2, 1)])
def test_pack_against_a_sort(rows: int, k: int, count: int, first: int) -> None:
    rng = np.random.default_rng(rows + first)
    experts = moe_samples.routes(rng, rows, k, 8)
    experts[rng.random(experts.shape) < 0.2] = -1
    weights = make.normal(rng, CPU, rows, k, dtype=torch.float32)
    source, packed, offsets, position = ops.moe_pack(make.ints(experts, CPU), weights, first, count)
    wanted = sorted((e, t, j) for (t, j), e in np.ndenumerate(experts) if first <= e < first + count)
    spare = rows * k - len(wanted)
    assert source.tolist() == [t for _, t, _ in wanted] + [-1] * spare
    assert packed.tolist() == [weights[t, j].item() for _, t, j in wanted] + [0.0] * spare
    assert offsets.tolist() == [sum(e < first + i for e, _, _ in wanted) for i in range(count + 1)]
    place = {(t, j): i for i, (_, t, j) in enumerate(wanted)}
    assert position.tolist() == [[place.get((t, j), -1) for j in range(k)] for t in range(rows)]


def experts_case(
    counts: tuple[int, ...], spare: int, n: int, k: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """xq, xs, weight, scale, source_row, offsets; unused experts and unread rows of x are NaN."""
    rng = np.random.default_rng(sum(counts) + n)
    xq, xs = make.activations(rng, CPU, 7, k)
    xs[0] = 0xFF  # no packed row reads row 0
    weight = torch.from_numpy(rng.integers(0, 256, (len(counts), n, k // 2), dtype=np.uint8))
    scale = make.scales(rng, CPU, len(counts), n, k // 32)
    for e, c in enumerate(counts):
        if c == 0:
            scale[e] = 0xFF
    source = make.ints([*rng.integers(1, 7, sum(counts)), *[-1] * spare], CPU)
    return xq, xs, weight, scale, source, make.ints(np.cumsum((0, *counts)), CPU)


CASES = [((0, 0), 3, 32, 32), ((1,), 0, 64, 64), ((5, 0, 17, 0, 1), 9, 40, 96), ((37, 16, 2), 1, 33, 64)]


@pytest.mark.parametrize(("counts", "spare", "n", "k"), CASES)
def test_grouped_linear_against_float64(counts: tuple[int, ...], spare: int, n: int, k: int) -> None:
    xq, xs, weight, scale, source, offsets = experts_case(counts, spare, n, k)
    y = ops.grouped_linear(xq, xs, ops.grouped_linear_prepare(weight, scale), source, offsets)
    assert y.shape == (sum(counts) + spare, n)
    x, w = formats.fp8(xq, xs), formats.fp4(weight, scale)
    for e, count in enumerate(counts):
        rows = slice(int(offsets[e]), int(offsets[e]) + count)
        check_accumulated(y[rows], *oracle.product(x[source[rows].numpy()], w[e]), terms=k)
        assert y[rows].isfinite().all()


@pytest.mark.parametrize(("counts", "spare", "n", "k"), CASES)
def test_grouped_linear_packed_rows_equal_gathered_ones(counts: tuple[int, ...], spare: int, n: int, k: int) -> None:
    xq, xs, weight, scale, source, offsets = experts_case(counts, spare, n, k)
    handle = ops.grouped_linear_prepare(weight, scale)
    used = sum(counts)
    whole = ops.grouped_linear(xq, xs, handle, source, offsets)
    packed_q = torch.full((used + spare, k), 0x7F, dtype=torch.uint8)
    packed_s = torch.full((used + spare, k // 32), 0xFF, dtype=torch.uint8)
    packed_q[:used], packed_s[:used] = xq.view(torch.uint8)[source[:used]], xs[source[:used]]
    y = ops.grouped_linear(packed_q.view(torch.float8_e4m3fn), packed_s, handle, None, offsets)
    assert y[:used].equal(whole[:used])


def test_grouped_linear_leaves_unused_rows_of_out_alone() -> None:
    counts, spare, n, k = CASES[2]
    xq, xs, weight, scale, source, offsets = experts_case(counts, spare, n, k)
    source[sum(counts) :] = 2**31 - 1  # never read
    out = torch.full((sum(counts) + spare, n), 7.0, dtype=torch.bfloat16)
    handle = ops.grouped_linear_prepare(weight, scale)
    assert ops.grouped_linear(xq, xs, handle, source, offsets, out=out) is out
    assert out[sum(counts) :].eq(7).all() and out[: sum(counts)].isfinite().all()
    out.fill_(7.0)
    ops.grouped_linear(xq, xs, handle, source, torch.zeros_like(offsets), out=out)
    assert out.eq(7).all()


def test_grouped_linear_row_does_not_depend_on_its_expert_rows() -> None:
    """The same token gives the same bits whether its expert got 1 row or 40, wherever it stands among them."""
    counts, _, n, k = (0, 40, 3), 0, 48, 96
    xq, xs, weight, scale, source, offsets = experts_case(counts, 0, n, k)
    handle = ops.grouped_linear_prepare(weight, scale)
    whole = ops.grouped_linear(xq, xs, handle, source, offsets)
    for row in (0, 15, 16, 39):
        alone = ops.grouped_linear(xq, xs, handle, source[row : row + 1], make.ints([0, 0, 1, 1], CPU))
        assert alone.equal(whole[row : row + 1])
    order = torch.randperm(40)
    shuffled = ops.grouped_linear(xq, xs, handle, torch.cat((source[order], source[40:])), offsets)
    assert shuffled[:40].equal(whole[order]) and shuffled[40:].equal(whole[40:])


def test_grouped_linear_expands_weights_a_few_experts_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, spare, n, k = CASES[2]
    xq, xs, weight, scale, source, offsets = experts_case(counts, spare, n, k)
    handle = ops.grouped_linear_prepare(weight, scale)
    whole = ops.grouped_linear(xq, xs, handle, source, offsets)
    for limit in (1, 2 * n * k):
        monkeypatch.setattr(moe, "CHUNK_ELEMENTS", limit)
        assert ops.grouped_linear(xq, xs, handle, source, offsets).equal(whole)


def test_fp4_low_nibble_is_the_even_channel_and_scales_cover_one_row() -> None:
    xq = torch.zeros(2, 32, dtype=torch.uint8)
    xq[0, 0], xq[1, 1] = 0x38, 0x38  # one
    weight = torch.zeros(1, 3, 16, dtype=torch.uint8)
    weight[0, :, 0] = 0x5A  # low nibble: -1, high nibble: 3
    scale = torch.tensor([[[127], [128], [126]]], dtype=torch.uint8)
    args = (xq.view(torch.float8_e4m3fn), torch.full((2, 1), 127, dtype=torch.uint8))
    y = ops.grouped_linear(*args, ops.grouped_linear_prepare(weight, scale), None, make.ints([0, 2], CPU))
    assert y.tolist() == [[-1, -2, -0.5], [3, 6, 1.5]]


def test_expert_weights_past_two_gigabytes() -> None:
    """Byte offsets of the last expert exceed 2^31; pages that are not touched cost nothing."""
    n, k = 4096, 4096
    experts = 2**31 // (n * k // 2) + 2
    weight = _lazy(experts, n, k // 2)
    scale = _lazy(experts, n, k // 32)
    weight[-1, :, 0], scale[-1, :, 0] = 0x02, 127
    xq = torch.zeros(1, k, dtype=torch.uint8)
    xq[0, 0] = 0x38
    offsets = torch.zeros(experts + 1, dtype=torch.int32)
    offsets[-1] = 1
    handle = WeightHandle("grouped_linear", "contract", (weight, scale), {}, 0, ())
    args = (xq.view(torch.float8_e4m3fn), torch.full((1, k // 32), 127, dtype=torch.uint8))
    assert moe.grouped_linear(*args, handle, None, offsets, None).eq(1).all()


def _lazy(*shape: int) -> torch.Tensor:
    """Zero bytes from the kernel, without touching them."""
    return torch.from_numpy(np.zeros(shape, dtype=np.uint8))


@pytest.mark.parametrize("weighted", [False, True])
def test_swiglu_quant_codes_are_the_oracles_or_its_neighbours_at_a_border(weighted: bool) -> None:
    rng = np.random.default_rng(3)
    x = make.normal(rng, CPU, 50, 256) * 5
    weight = make.normal(rng, CPU, 50, dtype=torch.float32).abs() if weighted else None
    got = ops.swiglu_quant(x, weight, 10.0)
    assert not numerics_checks.faults(SPECS["swiglu_quant"], (x, weight, 10.0), got, got)


def test_swiglu_clamps_gate_above_and_up_on_both_sides() -> None:
    x = torch.zeros(4, 64, dtype=torch.bfloat16)
    x[:, :32] = torch.tensor([[50.0], [-50.0], [50.0], [2.0]])
    x[:, 32:] = torch.tensor([[50.0], [50.0], [-50.0], [3.0]])
    q, s = ops.swiglu_quant(x, None, 10.0)
    # 100*sigmoid(10) = 399.98 / 4 and 6*sigmoid(2) = 338.2 / 64; the codes there are 384 and 416, 320 and 352.
    assert formats.fp8(q, s)[:, 0].tolist() == [384 / 4, 0, -384 / 4, 352 / 64]


def test_swiglu_weight_comes_before_quantisation_and_nan_rows_stay_alone() -> None:
    x = torch.ones(3, 64, dtype=torch.bfloat16)
    x[1] = NAN
    _, s = ops.swiglu_quant(x, torch.tensor([1.0, 0.0, 4.0]), 10.0)
    assert int(s[2, 0]) - int(s[0, 0]) == 2 and s[1, 0] == 255


def test_shared_width_is_not_rounded_to_bf16_before_quantisation() -> None:
    """Of many activations, some change code when the fp32 value is rounded to bf16 first; the op must keep fp32."""
    rng = np.random.default_rng(8)
    x = make.normal(rng, CPU, 200, 256) * 3
    q, s = ops.swiglu_quant(x, None, 10.0)
    act = torch.from_numpy(oracle.swiglu(formats.f64(x), None, 10.0)).float()
    direct, through = (ops.quant_fp8(a)[0].view(torch.uint8) for a in (act, act.to(torch.bfloat16)))
    got = q.view(torch.uint8)
    assert (got != direct).sum() * 5 < (got != through).sum()


@pytest.mark.parametrize(("rows", "k"), [(0, 2), (1, 2), (37, 6)])
def test_combine_against_float64(rows: int, k: int) -> None:
    rng = np.random.default_rng(rows)
    y, shared = make.normal(rng, CPU, rows * k, 96), make.normal(rng, CPU, rows, 96)
    position = rng.permutation(rows * k)
    remote = rng.random(rows * k) < 0.4
    y[torch.from_numpy(position[remote])] = NAN  # rows nobody names
    position[remote] = -1
    position = position.reshape(rows, k)
    terms = np.where(position[..., None] >= 0, formats.f64(y)[position], 0.0) if rows else np.zeros((0, k, 96))
    got = ops.moe_combine(y, make.ints(position, CPU), shared)
    base = formats.f64(shared)
    check_accumulated(got, terms.sum(1) + base, np.abs(terms).sum(1) + np.abs(base), k + 1)


def test_combine_adds_slots_in_order_then_the_shared_expert() -> None:
    """2^24 + 1 - 2^24: the small term survives in one order only."""
    y = torch.tensor([[2.0**24], [1.0], [-(2.0**24)]], dtype=torch.bfloat16)
    shared = torch.tensor([[0.5]], dtype=torch.bfloat16)
    assert ops.moe_combine(y, make.ints([[0, 1, 2]], CPU), shared).item() == 0.5
    assert ops.moe_combine(y, make.ints([[0, 2, 1]], CPU), shared).item() == 1.5


def test_combine_without_any_row() -> None:
    shared = torch.randn(2, 8).to(torch.bfloat16)
    assert ops.moe_combine(torch.zeros(0, 8, dtype=torch.bfloat16), make.ints([[-1], [-1]], CPU), shared).equal(shared)


def test_layer_of_experts_is_the_sum_over_the_split() -> None:
    """Packing, products and combination over all experts equal the per-token sum of the definition."""
    rng = np.random.default_rng(11)
    rows, k, experts, width = 9, 2, 5, 64
    chosen = make.ints(moe_samples.routes(rng, rows, k, experts), CPU)
    route = torch.ones(rows, k)
    xq, xs = make.activations(rng, CPU, rows, width)
    weight = torch.from_numpy(rng.integers(0, 256, (experts, 32, width // 2), dtype=np.uint8))
    scale = make.scales(rng, CPU, experts, 32, width // 32)
    source, _, offsets, position = ops.moe_pack(chosen, route, 0, experts)
    y = ops.grouped_linear(xq, xs, ops.grouped_linear_prepare(weight, scale), source, offsets)
    got = ops.moe_combine(y, position, torch.zeros(rows, 32, dtype=torch.bfloat16))
    x, w = formats.fp8(xq, xs), formats.fp4(weight, scale)
    for t in range(rows):
        parts = [w[e] @ x[t] for e in chosen[t].tolist()]
        total, limit = torch.from_numpy(np.array([parts, [np.abs(w[e]) @ np.abs(x[t]) for e in chosen[t].tolist()]]))
        limit = Accumulated.limit(width, limit, total, torch.bfloat16)  # of each expert's output
        outer = Accumulated.limit(k + 1, (total.abs() + limit).sum(0), total.sum(0), torch.bfloat16)
        # The errors of the terms go into the sum, and its rounding to bf16 sees them too.
        assert (np.abs(formats.f64(got)[t] - sum(parts)) <= (outer + limit.sum(0) * (1 + 2.0**-8)).numpy()).all()
