"""The known-answer test of a device: one small kernel whose casts, products and integers have known answers."""

from __future__ import annotations

import torch
import triton.language as tl

from ...hal.backend import known_answer
from ...hal.device import Device
from .compile_list import CompileCase
from .jit import jit
from .portable import dot, e4m3_to_f32, to_bf16, to_e4m3
from .register import ARCHS

SIZE = 32


@jit
def known_kernel(x_ptr, codes_ptr, product_ptr, hash_ptr, N: tl.constexpr):
    """Of x [N, N] fp32: its E4M3 codes; the product of bf16(x) and bf16 of those codes; a hash of 64-bit addresses.

    The product takes the numbers from 1/8 to 16 alone, so that its sums are exact in any order.
    """
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    x = tl.load(x_ptr + at)
    codes = to_e4m3(x)
    tl.store(codes_ptr + at, codes)
    plain = (tl.abs(x) >= 0.125) & (tl.abs(x) <= 16.0)
    a = to_bf16(tl.where(plain, x, 0.0))
    b = to_bf16(tl.where(plain, e4m3_to_f32(codes), 0.0))
    tl.store(product_ptr + at, dot(a, b, tl.zeros((N, N), tl.float32)))
    wide = (at.to(tl.int64) + 7) * 2862933555777941757  # wraps in 64 bits
    tl.store(hash_ptr + at, (wide >> 32).to(tl.int32) ^ (at // 3))


COMPILES = [
    CompileCase(
        known_kernel,
        {"x_ptr": "*fp32", "codes_ptr": "*u8", "product_ptr": "*fp32", "hash_ptr": "*i32"},
        {"N": SIZE},
    )
]


def inputs() -> torch.Tensor:
    """x: odd numbers of eighths, so that rounding to E4M3 has work to do, and the largest numbers and beyond."""
    x = ((torch.arange(SIZE * SIZE) * 37) % 257 - 128).to(torch.float32) / 8
    x[:6] = torch.tensor([448.0, 464.0, 1000.0, float("-inf"), 3 * 2.0**-10, -0.0])
    return x.view(SIZE, SIZE)


def answers(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What the kernel must give, computed on the host; every product and sum is exact in fp32."""
    coded = x.clamp(-448, 448).to(torch.float8_e4m3fn)
    plain = (x.abs() >= 0.125) & (x.abs() <= 16)
    product = x.where(plain, 0).double() @ coded.float().where(plain, 0).double()
    wrapped = [((i + 7) * 2862933555777941757 & (2**64 - 1)) >> 32 for i in range(SIZE * SIZE)]
    words = [(word ^ (i // 3)) - (word >> 31 << 32) for i, word in enumerate(wrapped)]
    return coded.view(torch.uint8), product.float(), torch.tensor(words, dtype=torch.int32).view(SIZE, SIZE)


def run(device: Device, arch: str) -> None:
    """Compare with the known answers on a device.

    Raises:
        SelfTestError: see `hal.backend.known_answer`.
    """
    x = inputs()
    codes = torch.zeros(SIZE, SIZE, dtype=torch.uint8, device=device.torch)
    product = torch.zeros(SIZE, SIZE, device=device.torch)
    words = torch.zeros(SIZE, SIZE, dtype=torch.int32, device=device.torch)
    known_kernel[(1,)](x.to(device.torch), codes, product, words, N=SIZE)
    checks = ("casts to E4M3", "a product of bf16 numbers", "64-bit integers")
    for check, got, want in zip(checks, (codes, product, words), answers(x), strict=True):
        known_answer(check, got, want, device=device, arch_found=arch, arch_wanted=" and ".join(ARCHS))
