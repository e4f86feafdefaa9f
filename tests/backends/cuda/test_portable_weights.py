"""Codes of weights to bf16: every code with every scale, in natural order."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

import triton.language as tl

from cuda_calls import DEVICE
from deepinfer.backends.cuda.jit import jit
from deepinfer.backends.cuda.portable_weights import (
    FP4_CLEAN,
    FP8_CLEAN,
    fp4_order,
    fp4_words,
    fp8_bytes,
    fp8_words,
)  # fmt: skip
from deepinfer.backends.reference.formats import decode_e4m3, decode_e8m0, unpack_e2m1

FP8 = [0, 2, 1, 3]
FP4 = [0, 4, 1, 5, 2, 6, 3, 7]


@jit
def convert(code_ptr, scale_ptr, out_ptr, KIND: tl.constexpr, CLEAN: tl.constexpr):
    """64 rows of 256 codes, and a scale for each row."""
    row = tl.program_id(0) * 64 + tl.arange(0, 64)
    scale = tl.load(scale_ptr + row)[:, None]
    at = row[:, None] * 256 + tl.arange(0, 256)[None, :]
    if KIND == 4:
        word = row[:, None] * 32 + tl.arange(0, 32)[None, :]
        value = fp4_words(tl.load(code_ptr + word), scale, CLEAN)
    elif KIND == 8:
        word = row[:, None] * 64 + tl.arange(0, 64)[None, :]
        value = fp8_words(tl.load(code_ptr + word), scale, CLEAN)
    elif KIND == 1:
        value = fp8_bytes(tl.load(code_ptr + at), scale)
    else:
        value = fp4_order(fp8_bytes(tl.load(code_ptr + at), scale))
    tl.store(out_ptr + at, value)


def converted(code: torch.Tensor, scale: torch.Tensor, kind: int, order: list[int], clean: bool) -> torch.Tensor:
    """What the kernel gives, in natural order."""
    out = torch.empty((256, 256), dtype=torch.bfloat16, device=DEVICE)
    convert[(4,)](code.to(DEVICE), scale.to(DEVICE), out, KIND=kind, CLEAN=clean)
    size = len(order)
    natural = torch.empty((256, 256 // size, size), dtype=torch.bfloat16)
    natural[:, :, order] = out.cpu().view(256, 256 // size, size)
    return natural.view(256, 256)


def assert_same(got: torch.Tensor, want: torch.Tensor) -> None:
    """Bits but those of NaN, and of values too small for bf16's last subnormal place."""
    rounded = want.to(torch.bfloat16)
    same = (got.view(torch.int16) == rounded.view(torch.int16)) | (got.isnan() & want.isnan())
    tiny = (want.abs() < 2.0**-126) & ((got.float() - want).abs() <= 2.0**-133)
    assert (same | tiny).all(), torch.nonzero(~(same | tiny))[:5]


SCALE = torch.arange(256, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("kind", "order", "clean"), [(1, FP8, False), (2, FP4, False), (8, FP8, False), (8, FP8, True)]
)
def test_every_e4m3_code_with_every_scale(kind: int, order: list[int], clean: bool) -> None:
    code = torch.arange(256, dtype=torch.uint8).repeat(256, 1)
    broken = ((code & 0x7F) == 0x7F).view(256, 64, 4).any(2)
    scale = SCALE.clamp(max=FP8_CLEAN) if clean else SCALE
    want = decode_e4m3(code.view(torch.float8_e4m3fn)) * decode_e8m0(scale)[:, None]
    got = converted(code.view(torch.int32) if kind == 8 else code, scale, kind, order, clean)
    if not clean:  # a NaN code spoils its word of four, somewhere in it
        assert got.view(256, 64, 4).isnan().any(2)[broken].all()
    whole = ~broken.unsqueeze(2).expand(256, 64, 4).reshape(256, 256)
    assert_same(got[whole], want[whole])


@pytest.mark.parametrize("clean", [False, True])
def test_every_pair_of_e2m1_codes_with_every_scale(clean: bool) -> None:
    scale = SCALE.clamp(max=FP4_CLEAN) if clean else SCALE
    pairs = torch.arange(256, dtype=torch.uint8)
    for half in (pairs[:128], pairs[128:]):
        code = half.repeat(256, 1)
        want = unpack_e2m1(code) * decode_e8m0(scale)[:, None]
        assert_same(converted(code.view(torch.int32), scale, 4, FP4, clean), want)
