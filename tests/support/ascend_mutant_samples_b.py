"""Samples for mutants: rows, linear layers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from deepinfer.conformance.calls import REFERENCE
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.registry import REGISTRY
from deepinfer.ops import sampling_samples
from deepinfer.ops.cache_steps import rope_table
from deepinfer.ops.layer_samples import EPS, HC_EPS, SINKHORN
from deepinfer.ops.layouts import FP4_16, FP8_32
from deepinfer.ops.spec import SPECS, Sample, WeightHandle


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _bf16(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return _f32(rng, *shape).bfloat16()


def _f32(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))


def _bytes(rng: np.random.Generator, low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.integers(low, high, shape, dtype=np.uint8))


def _i32(values: object) -> torch.Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.int32)


def _prepared(op: str, *weight: torch.Tensor) -> WeightHandle:
    """A weight as the contract packs it, as in the op's own samples."""
    CATALOG.load(REFERENCE)
    with REGISTRY.using(REFERENCE):
        return SPECS[op].prepare(*weight)


def mask_rows() -> list[Sample]:
    """A row of three pieces of 8,192 tokens that ends with a whole word."""
    rng, width = _rng(), 2 * 8192 + 288
    logits = _f32(rng, 2, width)
    words = torch.from_numpy(rng.integers(-(2**31), 2**31, (3, width // 32)).astype(np.int32))
    return [Sample("pieces", (logits, words, _i32([0, -1, 1]), _i32([0, 0, 0]), _i32([0, 1, 2])))]


def merge_patches() -> list[Sample]:
    """Two pieces of 1,024 channels and a tail."""
    return [Sample("pieces", (_bf16(_rng(), 4, 2148), _i32([[0, -1, 3], [1, 2, 4]])))]


def silu_mul() -> list[Sample]:
    """Two pieces of 4,096 channels and a tail."""
    return [Sample("pieces", (_bf16(_rng(), 2, 2 * 8292),))]


def draft_tap() -> list[Sample]:
    """Two pieces of 8,192 channels and a tail."""
    taps = torch.zeros((1, 2, 16484), dtype=torch.bfloat16)
    return [Sample("pieces", (_bf16(_rng(), 1, 2, 16484), taps, 1))]


def lookup_candidates() -> list[Sample]:
    """Two pieces of 512 wanted ids, the second in part, in lists of 8,192 and a tail, more rows than cores."""
    rng, rows, count = _rng(), 4, 8252
    ids = np.stack([rng.permutation(9000)[:count] for _ in range(rows)])
    values = torch.from_numpy(-rng.exponential(4, (rows, count)).astype(np.float32))
    return [Sample("pieces", (_i32(ids), values, _i32(rng.integers(-1, 9000, (rows, 600)))))]


def hc_coefficients() -> list[Sample]:
    """Three rows at once and two behind them, groups of 64 rows, channels of a piece of 512 and a tail."""
    rng, streams, width = _rng(), 4, 150
    fn = _f32(rng, 24, streams * width) * (streams * width) ** -0.5
    x, base, scale = _bf16(rng, 200, streams, width), _f32(rng, 24), _f32(rng, 3)
    return [Sample("pieces", (x, fn, base, scale, EPS, HC_EPS, SINKHORN))]


def moe_dispatch() -> list[Sample]:
    """More tiles of 256 slots than cores; some slots are nobody's; the last of a tile takes not the first replica.

    The first slot of a core's second tile is nobody's, as that of its first is not.
    """
    rng, rows, k, experts, replicas = _rng(), 200, 8, 12, 3
    chosen = np.stack([rng.permutation(experts)[:k] for _ in range(rows)])
    chosen[rng.random(chosen.shape) < 0.2] = -1
    chosen[31, 7], chosen[0, 0], chosen[96, 0] = experts - 1, 0, -1
    table = np.full((experts, replicas), -1)
    for expert in range(experts):
        count = 1 + expert % replicas
        table[expert, :count] = rng.permutation(24)[:count]
    xq, xs = _bytes(rng, 0, 0x7F, rows, 32).view(torch.float8_e4m3fn), _bytes(rng, 118, 132, rows, 1)
    given = (xq, xs, _i32(chosen), _f32(rng, rows, k), _i32(table), 3, 8, 0, rows, rows * k)
    return [Sample("tiles", given)]


def index_query_pack() -> list[Sample]:
    """More than 16 groups of 32 channels, and the largest channel of a row the last."""
    query = _bf16(_rng(), 5, 8, 128)
    query[:, -1, -1] = 99
    return [Sample("last channels", (query, _i32([0, 1, 2, 3, 5]), rope_table(8, 64, torch.device("cpu"))))]


def topk_select() -> list[Sample]:
    """A chunk of 16,384 lanes and a tail of a register and a part, of either type, with blocks and without; ties; a few
    lanes of more rows than cores."""
    rng, found, lanes = _rng(), [], 16384 + 104
    blocks = np.stack([np.sort(rng.permutation(3000)[: lanes // 8]) for _ in range(2)])
    kept = blocks[:, [13, 14, 15, -1]]
    blocks[rng.random(blocks.shape) < 0.1] = -1
    blocks[:, [13, 14, 15, -1]] = kept
    for dtype in (torch.bfloat16, torch.float32):
        scores = (_f32(rng, 2, lanes) * 2).round().to(dtype)
        scores[:, -2:], scores[:, 104:128] = 99, 50  # the last ones, and what UB holds behind the tail
        scores[0, -1], scores[0, 103] = 50, -50  # the last lane is kept, not the one in its place in the first chunk
        found.append(Sample(f"{dtype}", (scores, _i32([lanes, lanes - 50]), 512, None, 8)))
        found.append(Sample(f"{dtype}, blocks", (scores, _i32([24000, 20001]), 512, _i32(blocks), 8)))
    rows = np.arange(7)[:, None] % 3 + np.arange(9) * 2
    few = (_f32(rng, 7, 72) * 2).round(), _i32([150, 40, 150, 9, 150, 0, 140]), 16, _i32(rows), 8
    return [*found, Sample("more rows than cores, blocks", few)]


def _scores() -> tuple[np.ndarray, ...]:
    """Scores of more rows than cores, of a chunk of 8,192 tokens and a tail, with what is kept of them."""
    rng = _rng()
    z, inverse = rng.standard_normal((4, 8292)).astype(np.float32), np.array([1, 2, 0.5, 1.25], np.float32)
    z[1, 8200:8210] += 9  # the largest is behind the first chunk, and others there are kept
    z[3, -1] = 12
    _, largest, threshold, last, count = sampling_samples._kept(rng, z, inverse)
    return z, inverse, largest, threshold, last, count


def sample_draw() -> list[Sample]:
    z, inverse, largest, threshold, last, count = _scores()
    seeds = np.array([1, -1, 2**40, 7], np.int64)
    given = (z, inverse, threshold, last, count, largest, seeds, seeds + 5, 1)
    return [Sample("chunks", sampling_samples._send(torch.device("cpu"), *given))]


def sample_filter() -> list[Sample]:
    """Each filter on rows of two chunks, one with a NaN in the second; NaN in the first; logits far below zero."""
    z, inverse, *_ = _scores()
    z[2, 8200] = np.nan
    k, one = np.array([50, 0, 9, 8290], np.int32), 1 << 31
    p, m = np.array([one // 2, one // 3, 5, one - 1], np.int64), np.array([0, one // 999, 5, one // 99], np.int64)
    few = z[:2, 8192:] - np.float32(300), inverse[:2]
    wrong = z[:2].copy()
    wrong[0, 5] = wrong[1, 40] = np.nan
    given = [
        ("chunks", (z, inverse, k, p, m, 0)),
        ("chunks, NaN", (wrong, inverse[:2], None, None, None, 0)),
        ("far below zero", (*few, None, p[:2], None, 70)),
        (
            "the first token is the least",
            (np.array([[2, 3, 1, 0]], np.float32), inverse[:1], None, None, m[3:] * 20, 0),
        ),
    ]
    return [Sample(label, sampling_samples._send(torch.device("cpu"), *args)) for label, args in given]


def top_logprobs() -> list[Sample]:
    """The last of the first 512 tokens is the best, and the first one is none; more places than tokens."""
    z = _f32(_rng(), 2, 600)
    z[0, 511], z[1, :-9] = 9, -torch.inf
    return [Sample("first and last", (z, None, None, None, 12))]


def smaller_mass() -> list[Sample]:
    z, inverse, largest, threshold, last, _ = _scores()
    tokens = np.array([8200, 8205, largest[2], 3], np.int32)
    given = ("chunks", (z, inverse, z.max(1), threshold, last, tokens))
    return [Sample(given[0], sampling_samples._send(torch.device("cpu"), *given[1]))]


def _two_rows() -> tuple[np.ndarray, ...]:
    """Two rows of `_scores`, most likely in the first chunk and in the second; all tokens are kept but the last."""
    z, inverse, *_ = _scores()
    order = np.argsort(-z[:2], 1, kind="stable")
    last = order[:, -2].astype(np.int32)
    return z[:2], inverse[:2], z[[0, 1], last], last, np.full(2, z.shape[1] - 1, np.int32), order.astype(np.int32)


def verify_drafts() -> list[Sample]:
    """Drafts that are replaced, one by the last token; what they were drawn from is known, or they were certain."""
    rng = _rng()
    z, inverse, threshold, last, count, order = _two_rows()
    log2q = -rng.exponential(9, z.shape).astype(np.float32) - np.float32(9)
    seeds = np.array([2**41 + 3, -5], np.int64)
    given = (z, inverse, threshold, last, count, order[:, 0].copy(), order[:, -1].copy(), seeds, seeds + 9)
    few = z[:1, :256].copy()
    few[0, -1], few[0, 7] = 20, -20
    edges = np.array([-np.inf], np.float32), np.array([-1], np.int32), np.array([256], np.int32)
    one = (few, inverse[:1], *edges, np.array([255], np.int32), np.array([7], np.int32), seeds[:1], seeds[:1])
    device = torch.device("cpu")
    return [
        Sample("last token", sampling_samples._send(device, *one, None, None, False)),
        Sample("chunks", sampling_samples._send(device, *given, log2q, np.array([1, 0], np.int32), False)),
        Sample("chunks, certain", sampling_samples._send(device, *given, None, None, False)),
    ]


def draft_distribution() -> list[Sample]:
    z, inverse, threshold, last, count, order = _two_rows()
    count[1], threshold[1], last[1] = 1, z[1].max(), order[1, 0]
    given = (z, inverse, threshold, last, count, order[:, 0].copy(), np.array([1, 0], np.int32))
    pool = np.full((2, 1, z.shape[1]), np.nan, np.float32)
    return [Sample("chunks", sampling_samples._send(torch.device("cpu"), *given, pool, 0))]


def token_logprobs() -> list[Sample]:
    z, inverse, largest, threshold, last, _ = _scores()
    wrong = z.copy()
    wrong[2, 5] = np.nan
    low = z[:2, :100] - np.float32(300)
    given = [
        ("chunks", (z, largest, inverse, threshold, last)),
        ("chunks, NaN", (wrong, largest, None, None, None)),
        ("far below zero", (low, largest[:2] % 100, None, None, None)),
    ]
    return [Sample(label, sampling_samples._send(torch.device("cpu"), *args)) for label, args in given]


def moe_pack() -> list[Sample]:
    """One expert less than two registers of counts, so that what follows the last offset was written by nothing."""
    rng = _rng()
    chosen = np.stack([rng.permutation(140)[:6] for _ in range(120)])
    return [Sample("127 experts", (_i32(chosen), _f32(rng, 120, 6), 5, 127))]


def load_records() -> list[Sample]:
    """The last range goes from within a page to its end."""
    rng, found = _rng(), []
    for layout in (FP8_32, FP4_16):
        pages = _bytes(rng, 0, 0x7F, 2, 4 * layout.record_bytes(64))
        plan = _i32([[0, 1, 3, 0], [1, 2, 4, 2]])
        found.append(Sample(f"to the end, {layout.name}", (pages, plan, 4, 4, 64, layout.name)))
    return found


def linear_bf16() -> list[Sample]:
    """More tiles than cores, with tails of rows, outputs and channels behind whole tiles; channels of half a tile."""
    rng, found = _rng(), []
    for rows, outputs, channels in ((300, 200, 300), (130, 130, 50)):
        x, weight = _bf16(rng, rows, channels), _prepared("linear_bf16", _bf16(rng, outputs, channels))
        found += [Sample(f"{channels} channels", (x, weight, fp32)) for fp32 in (False, True)]
    return found


def linear_fp8() -> list[Sample]:
    """As `linear_bf16`, for each of the programs: 256 or 64 channels at once, or an odd number of groups."""
    rng, found = _rng(), []
    for m, channels in ((300, 512), (300, 192), (300, 416), (20, 512)):
        xq, codes = (_bytes(rng, 0, 0x7F, rows, channels).view(torch.float8_e4m3fn) for rows in (m, 200))
        xs, scale = _bytes(rng, 118, 132, m, channels // 32), _bytes(rng, 118, 132, 7, channels // 32)
        found.append(Sample(f"{m} rows of {channels} channels", (xq, xs, _prepared("linear_fp8", codes, scale))))
    return found


EXTRA: dict[str, Callable[[], list[Sample]]] = {
    "draft_distribution": draft_distribution,
    "draft_tap": draft_tap,
    "hc_coefficients": hc_coefficients,
    "index_query_pack": index_query_pack,
    "linear_bf16": linear_bf16,
    "linear_fp8": linear_fp8,
    "load_records": load_records,
    "lookup_candidates": lookup_candidates,
    "mask_rows": mask_rows,
    "merge_patches": merge_patches,
    "moe_dispatch": moe_dispatch,
    "moe_pack": moe_pack,
    "sample_draw": sample_draw,
    "sample_filter": sample_filter,
    "silu_mul": silu_mul,
    "smaller_mass": smaller_mass,
    "token_logprobs": token_logprobs,
    "top_logprobs": top_logprobs,
    "topk_select": topk_select,
    "verify_drafts": verify_drafts,
}
