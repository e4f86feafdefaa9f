"""Casts and dots of device code, against the reference's formats, over all codes."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

import triton.language as tl

from deepinfer.backends.cuda import portable
from deepinfer.backends.cuda.jit import INTERPRETED, jit
from deepinfer.backends.reference import formats

DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [] if INTERPRETED or torch.cuda.is_available() else [pytest.mark.gpu]


@jit
def apply(x_ptr, out_ptr, n, F: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    if F == "to_bf16":
        y = portable.to_bf16(x)
    elif F == "bf16_to_f32":
        y = portable.bf16_to_f32(x)
    elif F == "round_bf16":
        y = portable.round_bf16(x)
    elif F == "to_e4m3":
        y = portable.to_e4m3(x)
    elif F == "e4m3_to_f32":
        y = portable.e4m3_to_f32(x)
    elif F == "to_e2m1":
        y = portable.to_e2m1(x)
    elif F == "e2m1_to_f32":
        y = portable.e2m1_to_f32(x)
    else:
        y = portable.e8m0_to_f32(x)
    tl.store(out_ptr + at, y, mask=at < n)


@jit
def ceil(x_ptr, byte_ptr, inverse_ptr, LIMIT: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    byte, inverse = portable.e8m0_ceil(tl.load(x_ptr + at), LIMIT)
    tl.store(byte_ptr + at, byte)
    tl.store(inverse_ptr + at, inverse)


@jit
def product(a_ptr, b_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    acc = tl.full((N, N), 1.0, tl.float32)
    tl.store(out_ptr + at, portable.dot(tl.load(a_ptr + at), tl.load(b_ptr + at), acc))


def run(name: str, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    out = torch.full(x.shape, 77, dtype=torch.float32).to(dtype).to(DEVICE)
    apply[((x.numel() + 4095) // 4096,)](x.to(DEVICE), out, x.numel(), F=name, BLOCK=4096)
    return out.cpu()


def same(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Bit for bit; NaN equals NaN."""
    both = got.isnan() & want.isnan() if got.is_floating_point() else torch.zeros_like(got, dtype=torch.bool)
    return bool((both | (got.contiguous().view(torch.uint8).view(*got.shape, -1)
                         == want.contiguous().view(torch.uint8).view(*want.shape, -1)).all(-1)).all())  # fmt: skip


def numbers() -> torch.Tensor:
    """fp32: every bf16 number, the numbers beside it and halfway to the next, and the special ones."""
    high = torch.arange(1 << 16, dtype=torch.int64) << 16
    low = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
    bits = (high[:, None] + low).flatten()
    return torch.where(bits >= 1 << 31, bits - (1 << 32), bits).to(torch.int32).view(torch.float32)


def borders(values: torch.Tensor) -> torch.Tensor:
    """Every number of a format, the halfway points, and their fp32 neighbours, with both signs."""
    v = values[values.isfinite()].abs().unique()
    points = torch.cat((v, (v[1:] + v[:-1]) / 2, v * 1.25, torch.tensor([463.0, 464.0, 465.0, 480.0, 1e30, 1e-40])))
    bits = points.view(torch.int32)
    points = torch.cat([(bits + d).clamp(min=0).view(torch.float32) for d in (-1, 0, 1)])
    special = torch.tensor([float("inf"), float("nan"), 0.0])
    points = torch.cat((points, special))
    return torch.cat((points, -points))


ALL_BYTES = torch.arange(256, dtype=torch.uint8)


def test_bf16_from_fp32() -> None:
    x = numbers()
    got = run("to_bf16", x, torch.bfloat16)
    assert same(got, x.to(torch.bfloat16))


def test_bf16_nan_is_canonical() -> None:
    x = torch.tensor([0x7F800001, -1, 0x7FFFFFFF, -0x400000], dtype=torch.int32).view(torch.float32)
    assert run("to_bf16", x, torch.bfloat16).view(torch.int16).tolist() == [0x7FFF] * 4


def test_fp32_from_bf16() -> None:
    x = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    assert same(run("bf16_to_f32", x, torch.float32), x.to(torch.float32))


def test_round_bf16() -> None:
    x = numbers()[::7].contiguous()
    assert same(run("round_bf16", x, torch.float32), x.to(torch.bfloat16).to(torch.float32))


def test_e4m3_codes() -> None:
    x = torch.cat((borders(formats.decode_e4m3(ALL_BYTES)), numbers()[::5]))
    assert run("to_e4m3", x, torch.uint8).tolist() == formats.encode_e4m3(x).view(torch.uint8).tolist()


def test_e4m3_values() -> None:
    assert same(run("e4m3_to_f32", ALL_BYTES, torch.float32), formats.decode_e4m3(ALL_BYTES))


def test_e2m1_codes() -> None:
    x = torch.cat((borders(torch.tensor([0.0, 0.5, 1, 1.5, 2, 3, 4, 6])), numbers()[::5]))
    assert run("to_e2m1", x, torch.uint8).tolist() == formats.encode_e2m1(x).tolist()


def test_e2m1_values() -> None:
    want = formats.unpack_e2m1(ALL_BYTES.view(-1, 1))
    assert same(run("e2m1_to_f32", ALL_BYTES, torch.float32), want[:, 0])  # the high nibble has no influence
    assert same(run("e2m1_to_f32", ALL_BYTES >> 4, torch.float32), want[:, 1])


def test_e8m0_values() -> None:
    assert same(run("e8m0_to_f32", ALL_BYTES, torch.float32), formats.decode_e8m0(ALL_BYTES))


@pytest.mark.parametrize("limit", [448.0, 6.0])
def test_e8m0_ceil(limit: float) -> None:
    powers = torch.tensor([limit * 2.0**e for e in range(-126, 119)], dtype=torch.float64).to(torch.float32)
    powers = powers[powers.isfinite()]
    x = torch.cat([(powers.view(torch.int32) + d).view(torch.float32) for d in (-1, 0, 1)] + [powers * 1.37])
    x = x[(x.to(torch.float64) >= limit * 2.0**-126) & x.isfinite()]
    x = torch.cat((x, torch.tensor([float("inf"), float("nan"), 3.4028235e38])))
    x = torch.cat((x, x[:1].expand(1024 - len(x)))).to(DEVICE)
    byte, inverse = torch.zeros(1024, dtype=torch.uint8, device=DEVICE), torch.zeros(1024, device=DEVICE)
    ceil[(1,)](x, byte, inverse, LIMIT=limit, N=1024)
    want = formats.encode_e8m0_ceil(x.cpu(), limit)
    assert byte.tolist() == want[0].tolist()
    assert same(inverse.cpu(), want[1])


def test_a_dot_of_bf16_is_exact_where_the_sum_is() -> None:
    g = torch.Generator().manual_seed(3)
    a, b = (torch.randint(-64, 65, (32, 32), generator=g).to(torch.bfloat16) / 8 for _ in range(2))
    out = torch.zeros(32, 32, device=DEVICE)
    product[(1,)](a.to(DEVICE), b.to(DEVICE), out, N=32)
    assert torch.equal(out.cpu(), 1 + a.double() @ b.double())


def test_a_dot_of_e4m3_is_exact_where_the_sum_is() -> None:
    g = torch.Generator().manual_seed(4)
    a, b = (torch.randint(-16, 17, (32, 32), generator=g).to(torch.float8_e4m3fn) for _ in range(2))
    a[0, :2] = 2.0**-9  # a subnormal code
    a[0, 2:] = 0
    out = torch.zeros(32, 32, device=DEVICE)
    product[(1,)](a.to(DEVICE), b.to(DEVICE), out, N=32)
    assert torch.equal(out.cpu(), 1 + a.double() @ b.double())
