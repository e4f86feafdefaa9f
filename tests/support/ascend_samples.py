"""Inputs and expected results of the kernels in ascend_kernels.py, from formulas in torch."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import torch

from deepinfer.backends.ascend.sample import Sample

NAN = float("nan")
BF16, F32, F8 = torch.bfloat16, torch.float32, torch.float8_e4m3fn


def _empty(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.full(shape, NAN, dtype=dtype) if dtype.is_floating_point else torch.full(shape, -1, dtype=dtype)


def vecadd(n: int = 1100) -> Sample:
    a, b = torch.randn(n), torch.randn(n)
    return Sample(2, {"A": a, "B": b, "C": _empty(n), "n": n}, {"C": a + b})


def _rmsnorm(m: int, width: int, dtype: torch.dtype, limit: float) -> Sample:
    x, w = torch.randn(m, width).to(dtype), torch.randn(width).to(dtype)
    y = x.double() * torch.rsqrt(x.double().pow(2).mean(-1, keepdim=True) + 1e-6) * w.double()
    return Sample(2, {"X": x, "W": w, "Y": _empty(m, width, dtype=dtype), "m": m}, {"Y": y}, limit)


def rmsnorm_simt(m: int = 19) -> Sample:
    return _rmsnorm(m, 256, BF16, 4e-3)


def rmsnorm_simd(m: int = 19) -> Sample:
    return _rmsnorm(m, 128, F32, 2e-6)


def gemm(m: int = 45, n: int = 56) -> Sample:
    a, b = torch.randn(m, 96).to(BF16), torch.randn(n, 96).to(BF16)
    return Sample(2, {"A": a, "B": b, "C": _empty(m, n), "M": m}, {"C": a.double() @ b.double().T}, 1e-6)


def gemm_slice() -> Sample:
    return gemm(n=64)


def grouped_gemm() -> Sample:
    offsets = torch.tensor([0, 13, 13, 53], dtype=torch.int32)
    m = int(offsets[-1])
    a, b = torch.randn(m, 64).to(BF16), torch.randn(3, 64, 64).to(BF16)
    want = torch.cat([a[offsets[e] : offsets[e + 1]].double() @ b[e].double().T for e in range(3)])
    arguments = {"A": a, "B": b, "Off": offsets, "C": _empty(m, 64, dtype=BF16), "M": m}
    return Sample(2, arguments, {"C": want}, 4e-3)


def topk(m: int = 5) -> Sample:
    x = torch.randn(m, 128)
    x[m // 2, 126:] = torch.tensor([9.0, 8.0])  # the last thread's
    values, places = torch.topk(x, 4, dim=-1)
    arguments = {"X": x, "V": _empty(m, 4), "I": _empty(m, 4, dtype=torch.int32), "m": m}
    return Sample(2, arguments, {"V": values, "I": places.int()})


def attention(batch: int = 3, peaked: bool = False) -> Sample:
    heads, width, rows, chosen = 32, 64, 100, 64
    q, kv = torch.randn(batch, heads, width).to(BF16), torch.randn(rows, width).to(BF16)
    if peaked:  # all scores of a head far above or far below 0, so that only the true maximum keeps exp in range
        signs = torch.ones(heads, 1).index_fill_(0, torch.arange(1, heads, 2), -1.0)
        q, kv = (200 * q.float().abs() * signs).to(BF16), kv.abs()
    places = torch.randint(0, rows, (batch, chosen), dtype=torch.int32)
    picked = kv.double()[places.long()]
    want = torch.softmax(q.double() @ picked.transpose(1, 2) * width**-0.5, -1) @ picked
    arguments = {"Q": q, "KV": kv, "Idx": places, "O": _empty(batch, heads, width, dtype=BF16), "B_": batch, "R": rows}
    return Sample(2, arguments, {"O": want}, 1e-2)


def attention_mixed() -> Sample:
    return attention()


def gemm_fp8() -> Sample:
    a, b = torch.randn(32, 128).to(F8), torch.randn(32, 128).to(F8)
    return Sample(1, {"A": a, "B": b, "C": _empty(32, 32)}, {"C": a.double() @ b.double().T}, 1e-6)


def gemm_nn() -> Sample:
    a, b = torch.randn(32, 64).to(BF16), torch.randn(64, 48).to(BF16)
    return Sample(1, {"A": a, "B": b, "C": _empty(32, 48)}, {"C": a.double() @ b.double()}, 1e-6)


def gemm_mx() -> Sample:
    a, b = torch.randn(32, 128).to(F8), torch.randn(32, 128).to(F8)
    sa, sb = (torch.randint(120, 134, (32, 4), dtype=torch.uint8) for _ in range(2))
    left, right = (
        x.double() * torch.pow(2.0, s.double() - 127).repeat_interleave(32, 1) for x, s in ((a, sa), (b, sb))
    )
    arguments = {"A": a, "B": b, "SA": sa.view(torch.uint16), "SB": sb.view(torch.uint16), "C": _empty(32, 32)}
    return Sample(1, arguments, {"C": left @ right.T}, 1e-6)


def gather() -> Sample:
    x, places = torch.randn(50, 64).to(BF16), torch.randint(0, 50, (16,), dtype=torch.int32)
    places[3], places[6], places[12] = 49, -1, 50  # the last row, and two that are none
    there = (places >= 0) & (places < 50)
    want = torch.where(there.unsqueeze(1), x[places.clamp(0, 49).long()], torch.zeros(()).to(BF16))
    return Sample(2, {"X": x, "I": places, "Y": _empty(16, 64, dtype=BF16), "R": 50}, {"Y": want})


def reduce_simd() -> Sample:
    x = torch.randn(8, 128)
    return Sample(1, {"X": x, "Y": _empty(8)}, {"Y": x.double().sum(1)}, 1e-5)


def cast_simd() -> Sample:
    x = torch.randn(4, 192).to(BF16)
    return Sample(1, {"X": x, "Y": _empty(4, 192, dtype=BF16)}, {"Y": (x.float() ** 2).to(BF16)})


def hist() -> Sample:
    x = torch.randint(0, 16, (256,), dtype=torch.int32)
    x[5], x[77], x[250] = 16, -1, 20  # of no bin
    counts = torch.arange(16, dtype=torch.int32)
    found = torch.bincount(x[(x >= 0) & (x < 16)], minlength=16).int()
    return Sample(1, {"X": x, "Y": counts}, {"Y": counts + found})


def grid_sum() -> Sample:
    x = torch.randn(3, 64)
    want = (2 * x[0] + 2 * x[1] + 2 * x[2]).expand(3, 64).contiguous()
    return Sample(3, {"X": x, "W": _empty(3, 64), "Y": _empty(3, 64)}, {"Y": want}, scratch=("W",))


def over_capacity(what: str = "ub") -> Sample:
    if what in ("l1", "l0c"):
        m, n, k = (128, 128, 2304) if what == "l1" else (256, 512, 64)
        a, b = torch.ones(m, k, dtype=BF16), torch.ones(n, k, dtype=BF16)
        expected = torch.full((m, n), float(k))
        return Sample(1, {"A": a, "B": b, "C": _empty(m, n)}, {"C": expected}, parameters={"what": what})
    x = torch.randn({"ub": 75, "simt": 60, "threads": 1}[what] * 1024)
    want = x if what == "ub" else x + 1.0
    return Sample(1, {"X": x, "Y": torch.full_like(x, NAN)}, {"Y": want}, parameters={"what": what})


SAMPLES: dict[str, Callable[..., Sample]] = {
    f.__name__: f
    for f in (
        vecadd, rmsnorm_simt, rmsnorm_simd, gemm, gemm_slice, grouped_gemm, topk, attention, attention_mixed, gemm_fp8,
        gemm_nn, gemm_mx, gather, reduce_simd, cast_simd, hist, grid_sum, over_capacity,
    )
}  # fmt: skip


BAD = ("gemm_slice", "attention_mixed", "reduce_simd", "over_capacity")
"""What the compiler lowers wrongly."""
LONG = ("attention", "grouped_gemm", "attention_mixed", "gemm_slice")
"""Kernels whose lowering takes seconds."""

LARGE: dict[str, tuple[int, ...]] = {
    "vecadd": (3333,), "rmsnorm_simt": (50,), "rmsnorm_simd": (50,), "topk": (19,), "attention": (13,),
}  # fmt: skip
"""Further sizes: more tiles than a group of tiles has (8), the last one ragged or odd."""


def vecadd_large() -> Sample:
    return vecadd(*LARGE["vecadd"])


def rmsnorm_simt_large() -> Sample:
    return rmsnorm_simt(*LARGE["rmsnorm_simt"])


def rmsnorm_simd_large() -> Sample:
    return rmsnorm_simd(*LARGE["rmsnorm_simd"])


def topk_large() -> Sample:
    return topk(*LARGE["topk"])


def attention_large() -> Sample:
    return attention(*LARGE["attention"])


def attention_peaked() -> Sample:
    return attention(peaked=True)


def sample(name: str, **parameters: str) -> Sample:
    """The sample of a kernel, the same at every call."""
    torch.manual_seed(zlib.crc32(name.encode()))
    return SAMPLES[name](**parameters)


def samples(name: str) -> list[Sample]:
    """The sample of a kernel and those of its further sizes."""
    first = sample(name)
    peaked = [attention_peaked()] if name == "attention" else []
    return [first, *(SAMPLES[name](size) for size in LARGE.get(name, ())), *peaked]
