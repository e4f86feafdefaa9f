"""Packed conversions of records, on every code and scale."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

import triton.language as tl

from cuda_calls import DEVICE
from deepinfer.backends.cuda.jit import jit
from deepinfer.backends.cuda.portable_packed import FP4_DOWN, fp4_channels, fp8_channels
from deepinfer.backends.reference.formats import dequantize_fp4_e4m3, dequantize_fp8

N, CHANNELS = 256, 64


@jit
def unpack(words_ptr, scale_ptr, out_ptr, N: tl.constexpr, C: tl.constexpr, G: tl.constexpr, FP4: tl.constexpr):
    row = tl.arange(0, N)[:, None]
    words = tl.load(words_ptr + row * C + tl.arange(0, C)[None, :])
    scale = tl.load(scale_ptr + row * G + tl.arange(0, G)[None, :])
    if FP4:
        a, b, c, d = fp4_channels(words, scale)
    else:
        a, b, c, d = fp8_channels(words, scale)
    at = out_ptr + (row * C + tl.arange(0, C)[None, :]) * 4
    tl.store(at, a)
    tl.store(at + 1, b)
    tl.store(at + 2, c)
    tl.store(at + 3, d)


def unpacked(data: torch.Tensor, scale: torch.Tensor, fp4: bool) -> torch.Tensor:
    words = data.view(torch.int16 if fp4 else torch.int32).to(DEVICE)
    out = torch.empty((N, CHANNELS), dtype=torch.bfloat16, device=DEVICE)
    unpack[(1,)](words, scale.to(DEVICE), out, N=N, C=CHANNELS // 4, G=scale.shape[1], FP4=fp4, num_warps=4)
    return out.cpu().float()


@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_every_fp8_code_with_every_scale(first: int) -> None:
    """Row s has scale s; its codes are a quarter of all, each in every place of a word over the four runs."""
    codes = (torch.arange(CHANNELS) * 4 + first).to(torch.uint8)
    codes = torch.where((codes & 0x7F) == 0x7F, 0, codes).repeat(N, 1)
    scale = torch.arange(N, dtype=torch.uint8)[:, None].repeat(1, 2)
    got, want = unpacked(codes, scale, False), dequantize_fp8(codes, scale)
    normal = want.abs() >= 2.0**-126
    assert torch.equal(got[normal], want[normal])
    small = ~normal & ~want.isnan()
    assert bool((got[small] - want[small]).abs().le(2.0**-133).all())
    assert bool(got[255].isnan().all())


@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_a_nan_code_is_seen_in_its_row_and_in_no_other(code: int) -> None:
    codes = torch.full((N, CHANNELS), 0x7E, dtype=torch.uint8)
    codes[torch.arange(0, N, 4), torch.arange(0, N, 4) % CHANNELS] = code
    codes[torch.arange(1, N, 4), (torch.arange(1, N, 4) + 2) % CHANNELS] = code
    got = unpacked(codes, torch.full((N, 2), 127, dtype=torch.uint8), False)
    assert torch.equal(got.isnan().any(1), ((codes & 0x7F) == 0x7F).any(1))


def test_every_fp4_code_with_every_scale() -> None:
    data = torch.tensor([16 * high + low for low in range(16) for high in range(16)], dtype=torch.uint8)
    data = data.view(8, 32).repeat(N // 8, 1)
    scale = torch.arange(N, dtype=torch.uint8)[:, None].repeat(1, 4)
    for shift in range(8):  # every row of codes meets every scale
        turned = data.roll(shift, 0)
        got, want = unpacked(turned, scale, True), dequantize_fp4_e4m3(turned, scale) * float(FP4_DOWN.value)
        assert torch.equal(got.nan_to_num(7.0), want.nan_to_num(7.0))
        assert torch.equal(got.isnan(), want.isnan())
