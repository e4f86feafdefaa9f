"""Inputs of the kernels written by hand, and what they should give, from formulas in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from deepinfer.backends.ascend.sample import Sample

NAN = float("nan")
BF16, F16, F32, F8 = torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn
E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def poison(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.full(shape, NAN, dtype=dtype) if dtype.is_floating_point else torch.full(shape, -7, dtype=dtype)


def random(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


def exact(tensor: torch.Tensor) -> np.ndarray:
    """Values of a tensor in float64."""
    return tensor.double().numpy()


def tensor(array: np.ndarray, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(dtype)


def copy_blocks(rows: int, cols: int, left: int, constant: int) -> Sample:
    xpitch, right = cols + 5, 15 - (left + cols - 1) % 16
    ypitch = left + cols + right + 3
    x = random(rows, xpitch, dtype=F16)
    padded, inner = poison(rows, ypitch, dtype=F16), poison(rows, ypitch, dtype=F16)
    want = padded.clone()
    for r in range(rows):
        pad = 2.5 if constant else float(x[r, 0])
        want[r, : left + cols + right] = pad
        want[r, left : left + cols] = x[r, :cols]
    straight = inner.clone()
    straight[:, :cols] = x.flatten()[: rows * cols].view(rows, cols)
    arguments = {
        "x": x, "padded": padded, "inner": inner, "rows": rows, "cols": cols, "xpitch": xpitch, "ypitch": ypitch,
        "left": left, "constant": constant,
    }  # fmt: skip
    return Sample(1, arguments, {"padded": want, "inner": straight})


def gemm_nd(m: int, n: int, k: int) -> Sample:
    a, b, c = random(m, k + 3, dtype=BF16), random(n, k, dtype=BF16), poison(m, n + 9)
    a[:, k:] = NAN
    want = exact(c)
    want[:, :n] = exact(a)[:, :k] @ exact(b).T
    arguments = {"a": a, "b": b, "c": c, "M": m, "N": n, "K": k, "apitch": k + 3, "cpitch": n + 9}
    return Sample(1, arguments, {"c": tensor(want)}, 1e-6)


def gemm_dn(m: int, n: int, k: int, relu: int) -> Sample:
    a, b = random(k, m, dtype=F16), random(k, n, dtype=F16)
    want = exact(a).T @ exact(b)
    want = np.maximum(want, 0.0) if relu else want
    arguments = {"a": a, "b": b, "c": poison(m, n, dtype=F16), "M": m, "N": n, "K": k, "relu": relu}
    return Sample(1, arguments, {"c": tensor(want)}, 5e-4)


def gemm_trans(m: int, n: int, k: int) -> Sample:
    a, b = random(k, m, dtype=BF16), random(k, n, dtype=BF16)
    c = poison((n + 31) // 32, m, 32, dtype=BF16)
    want = c.double()
    for j, part in enumerate(tensor(exact(a).T @ exact(b)).split(32, dim=1)):
        want[j, :, : part.shape[1]] = part
    return Sample(1, {"a": a, "b": b, "c": c, "M": m, "N": n, "K": k}, {"c": want}, 4e-3)


def gemm_fp8(m: int, n: int, k: int) -> Sample:
    a, b = random(m, k, dtype=F8), random(n, k, dtype=F8)
    arguments = {"a": a, "b": b, "c": poison(m, n), "M": m, "N": n, "K": k}
    return Sample((m + 31) // 32 + 1, arguments, {"c": tensor(exact(a) @ exact(b).T)}, 1e-6)


def _scales(rows: int, k: int) -> tuple[torch.Tensor, np.ndarray]:
    codes = torch.randint(119, 136, (rows, k // 32), dtype=torch.uint8)
    return codes.view(torch.uint16), np.repeat(2.0 ** (codes.numpy().astype(np.float64) - 127), 32, axis=1)


def _mx(m: int, n: int, k: int, first: int, codes: Callable[[int, int], tuple[torch.Tensor, np.ndarray]]) -> Sample:
    (a, left), (b, right) = codes(m, k), codes(n, k)
    (sa, left_scale), (sb, right_scale) = _scales(m, k), _scales(n, k)
    want = (left * left_scale) @ (right * right_scale).T
    arguments = {"a": a, "b": b, "sa": sa, "sb": sb, "c": poison(m, n), "M": m, "N": n, "K": k, "first": first}
    return Sample(1, arguments, {"c": tensor(want)}, 1e-6)


def _e4m3(rows: int, k: int) -> tuple[torch.Tensor, np.ndarray]:
    values = random(rows, k, dtype=F8)
    return values.view(torch.uint8), exact(values)


def _e2m1(rows: int, k: int) -> tuple[torch.Tensor, np.ndarray]:
    codes = torch.randint(0, 16, (rows, k), dtype=torch.uint8)
    values = E2M1[codes.numpy() & 7] * np.where(codes.numpy() & 8, -1.0, 1.0)
    return (codes[:, ::2] | codes[:, 1::2] << 4).contiguous(), values


def gemm_mx8(m: int, n: int, k: int, first: int) -> Sample:
    return _mx(m, n, k, first, _e4m3)


def gemm_mx4(m: int, n: int, k: int, first: int) -> Sample:
    return _mx(m, n, k, first, _e2m1)


def gemm_bias(m: int, n: int, k: int, given: int, biased: int) -> Sample:
    a, b, bias = random(given, k, dtype=F16), random(n, k, dtype=F16), random(biased)
    every = np.concatenate([exact(bias), np.zeros(n - biased)])
    full = np.ones((m, k))
    full[:given] = exact(a)
    arguments = {"a": a, "b": b, "bias": bias, "c": poison(m, n), "M": m, "N": n, "K": k, "given": given}
    return Sample(1, {**arguments, "biased": biased}, {"c": tensor(full @ exact(b).T + every)}, 1e-6)


def halves(m: int, n: int, k: int, dual: int) -> Sample:
    a, b = random(m, k, dtype=F16), random(n, k, dtype=F16)
    want = exact(a) @ exact(b).T
    narrow = tensor(np.maximum(want, 0.0))
    arguments = {"a": a, "b": b, "c": poison(m, n), "narrow": poison(m, n, dtype=BF16), "M": m, "N": n, "K": k}
    return Sample(1, {**arguments, "dual": dual}, {"c": tensor(want), "narrow": narrow}, 4e-3)


def pipelined(n: int) -> Sample:
    x = random(n)
    want = (2 * x.numpy() + np.float32(1.0)).astype(np.float32)
    return Sample(3, {"x": x, "y": poison(n), "n": n, "cores": 3}, {"y": tensor(want, F32)})


def ring(cores: int, width: int) -> Sample:
    x, order = random(cores, width), np.roll(np.arange(cores, dtype=np.int32), 1)
    want = np.empty((cores, width), np.float32)
    middle = np.empty_like(want)
    middle[order] = x.numpy()
    want[order] = middle
    counts = (middle > 0).sum(1)
    arguments = {
        "x": x, "w": poison(cores, width), "y": poison(cores, width), "next": tensor(order, torch.int32),
        "count": poison(cores, dtype=torch.int32), "width": width,
    }  # fmt: skip
    return Sample(cores, arguments, {"y": tensor(want, F32), "count": tensor(counts, torch.int32)}, scratch=("w",))


def simt_scan(rows: int, n: int) -> Sample:
    x = torch.randint(-50, 50, (rows, n)).float()  # sums are exact in any order
    z = poison(rows, 8)
    want = z.clone().numpy()
    for r in range(rows):
        for w in range(min(2, (n + 31) // 32)):
            part = x.numpy()[r, w * 32 : w * 32 + 32]
            want[r, w * 4 : w * 4 + 4] = part.max(), part.min(), len(part), part.max()
    arguments = {"x": x, "y": poison(rows, n), "z": z, "rows": rows, "n": n}
    return Sample(2, arguments, {"y": tensor(np.cumsum(x.numpy(), 1), F32), "z": tensor(want, F32)})


def simt_histogram(n: int, kinds: int) -> Sample:
    key = 2 * torch.randint(0, (kinds + 1) // 2, (n,), dtype=torch.int32)  # nothing of every other kind
    place, value = torch.randint(0, 64, (n,), dtype=torch.int32), torch.randint(-99, 99, (64,), dtype=torch.int32)
    counts = np.arange(kinds, dtype=np.int32)
    top, low = np.full(kinds, -1000, np.int32), np.full(kinds, 1000, np.int32)
    arguments = {
        "key": key, "place": place, "value": value, "counts": tensor(counts.copy(), torch.int32),
        "top": tensor(top.copy(), torch.int32), "low": tensor(low.copy(), torch.int32), "n": n, "kinds": kinds,
    }  # fmt: skip
    np.add.at(counts, key.numpy(), 1)
    np.maximum.at(top, key.numpy(), value.numpy()[place.numpy()])
    np.minimum.at(low, key.numpy(), value.numpy()[place.numpy()])
    expected = {"counts": counts, "top": top, "low": low}
    return Sample(2, arguments, {name: tensor(array, torch.int32) for name, array in expected.items()})


def simd_arith(n: int) -> Sample:
    a, b = random(n), random(n)
    i, j = torch.randint(-999, 999, (n,), dtype=torch.int32), torch.randint(-999, 999, (n,), dtype=torch.int32)
    x, y = exact(a), exact(b)
    want = np.where(x < 0, 3.0, np.abs(x * y - np.maximum(x, 0.5)) / (1 + np.exp(-x)))
    arguments = {"a": a, "b": b, "y": poison(n), "i": i, "j": j, "z": poison(n, dtype=torch.int32), "n": n}
    bits = (i.numpy() << 2) ^ (j.numpy() | 12)
    return Sample(1, arguments, {"y": tensor(want), "z": tensor(bits, torch.int32)}, 1e-6)


def simd_reduce(rows: int, width: int) -> Sample:
    x = random(rows, width)
    v = exact(x)
    want = np.stack([v.sum(1), v.max(1), v.min(1), v[:, 0] - v.mean(1)], 1)
    arguments = {"x": x, "y": poison(rows, 4), "rows": rows, "width": width}
    return Sample(1, arguments, {"y": tensor(want)}, 1e-6)


def simd_layout(rows: int, cols: int, n: int) -> Sample:
    x, table, moved = random(rows, cols, dtype=BF16), random(128), random(128)
    start = torch.randint(0, 128, (n,)).numpy().astype(np.uint32)
    last = [127][: n - 1]  # the last element too, and one time not
    to = np.concatenate([last, np.random.default_rng(n).permutation(127)[: n - len(last)]]).astype(np.uint32)
    want = moved.numpy().copy()
    want[to] = table.numpy()[start]
    nz = x.view(rows, cols // 16, 16).transpose(0, 1).contiguous()
    t = table.numpy()
    weave = np.concatenate([np.stack([t[:64], t[64:]], 1).ravel(), t[::2], t[1::2]])
    arguments = {
        "x": x, "y": poison(rows, cols, dtype=BF16), "nz": poison(cols // 16, rows, 16, dtype=BF16), "table": table,
        "from": tensor(start, torch.uint32), "to": tensor(to, torch.uint32), "moved": moved, "weave": poison(256),
        "rows": rows, "cols": cols, "n": n,
    }  # fmt: skip
    expected = {"y": x * 2, "nz": nz, "moved": tensor(want, F32), "weave": tensor(weave, F32)}
    return Sample(1, arguments, expected)


def store_atomic(cores: int, width: int) -> Sample:
    x, y = torch.randint(-99, 99, (cores, width)).float(), torch.randint(-99, 99, (width,)).float()
    want = y.numpy() + x.numpy().sum(0)
    arguments = {"x": x, "y": y, "copy": poison(cores, width), "width": width}
    return Sample(cores, arguments, {"y": tensor(want, F32), "copy": x})


@dataclass(frozen=True)
class Written:
    """A kernel of tests/backends/ascend/kernels with the sizes it is tried with."""

    sample: Callable[..., Sample]
    sizes: tuple[tuple[int, ...], ...]


KERNELS: Mapping[str, Written] = {
    f.__name__: Written(f, sizes)
    for f, sizes in (
        (copy_blocks, ((1, 1, 0, 1), (5, 37, 3, 1), (4, 16, 16, 0), (3, 2, 15, 0), (7, 64, 0, 0))),
        (gemm_nd, ((16, 16, 16), (1, 1, 1), (33, 47, 80), (48, 17, 65), (16, 64, 129))),
        (gemm_dn, ((16, 16, 16, 0), (1, 3, 2, 1), (45, 33, 70, 1), (32, 80, 31, 0))),
        (gemm_trans, ((16, 16, 16), (1, 1, 1), (40, 24, 72), (31, 65, 33))),
        (gemm_fp8, ((32, 16, 64), (1, 1, 1), (70, 33, 200), (96, 48, 129), (300, 224, 1))),
        (gemm_mx8, ((16, 16, 64, 1), (40, 50, 192, 2), (1, 17, 128, 1), (33, 16, 320, 4))),
        (gemm_mx4, ((16, 16, 64, 1), (40, 50, 192, 2), (1, 17, 128, 1), (33, 16, 320, 4))),
        (gemm_bias, ((16, 16, 16, 16, 16), (33, 40, 31, 20, 13), (16, 24, 64, 1, 24), (48, 12, 50, 47, 3))),
        (halves, ((32, 32, 32, 0), (32, 32, 48, 1), (32, 64, 16, 2), (64, 24, 80, 1), (64, 40, 16, 0))),
        (pipelined, ((1,), (511,), (512,), (1537,), (5000,))),
        (ring, ((1, 8), (2, 1), (5, 100))),
        (simt_scan, ((1, 1), (3, 31), (2, 33), (5, 100), (2, 256))),
        (simt_histogram, ((1, 1), (127, 5), (1000, 16))),
        (simd_arith, ((1,), (63,), (64,), (65,), (1000,))),
        (simd_reduce, ((1, 1), (3, 63), (4, 65), (2, 200))),
        (simd_layout, ((16, 64, 1), (32, 128, 63), (16, 16, 100))),
        (store_atomic, ((1, 5), (4, 129))),
    )
}
