"""Linear layers: the class, and equal bits of a row whatever the way, the tile and the rows beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import numpy as np

import cuda_children
from cuda_calls import DEVICE, PLAIN, SPOILT, STRIDED, assert_kept, every_call, run, sample
from deepinfer.backends.cuda import linear
from deepinfer.backends.cuda import linear_launches as launches
from deepinfer.ops.layer_samples import activations, fp8_codes, normal, scales
from deepinfer.ops.spec import SPECS

CPU = torch.device("cpu")
OPS = ("linear_fp8", "linear_fp8_grouped", "linear_bf16", "vision_linear")
ROWS = (1, launches.FEW + 1, 65)
"""A row count for each way below MANY, and a large tile."""


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int16 if x.element_size() == 2 else torch.int32)


def weight(op: str, *parts: torch.Tensor) -> Any:
    sample(op, "")  # loads the reference
    return SPECS[op].prepare(*parts)


def fp8_call(rng: np.random.Generator, rows: int, n: int, k: int) -> list[Any]:
    handle = weight("linear_fp8", fp8_codes(rng, CPU, n, k), scales(rng, CPU, -(-n // 32), k // 32))
    return [*activations(rng, CPU, rows, k), handle]


def test_parts_follow_from_the_weight_alone() -> None:
    assert launches.part_of(32768, 1280) == 1280
    assert launches.part_of(129280, 5120) == 5120
    for n, k in ((5120, 8192), (4608, 5120), (384, 5120), (8192, 4096), (40, 1100)):
        part = launches.part_of(n, k)
        assert part % 128 == 0
        tiles, parts = -(-n // 128), -(-k // part)
        assert tiles * parts >= min(launches.ENOUGH, tiles * min(k // 512, launches.MOST_PARTS)), (n, k, part)
        assert parts <= launches.MOST_PARTS


@pytest.mark.parametrize("variant", [PLAIN, STRIDED, SPOILT])
@pytest.mark.parametrize("op", OPS)
def test_small_calls_in_every_form(op: str, variant: str) -> None:
    assert_kept(op, sample(op, "37 rows").args, variant)


@pytest.mark.parametrize(
    ("op", "label"),
    [
        *((op, f"{rows} rows") for op in OPS for rows in (0, 1)),
        ("linear_fp8", "NaN row"),
        ("linear_fp8", "few outputs"),
        ("linear_fp8", "tails"),
        ("linear_fp8", "261 rows"),
        ("linear_fp8_grouped", "NaN in one group"),
        ("linear_bf16", "NaN row"),
        ("linear_bf16", "tails"),
        ("linear_bf16", "261 rows"),
        ("linear_bf16", "real index keys"),
        ("vision_linear", "NaN row"),
        ("vision_linear", "gelu over"),
        ("vision_linear", "gelu and"),
        ("vision_linear", "one output"),
        ("vision_linear", "261 rows"),
    ],
)
def test_samples(op: str, label: str) -> None:
    assert_kept(op, sample(op, label).args)


@pytest.mark.parametrize(("n", "k"), [(40, 1056), (72, 96)])
def test_fp8_rows_have_their_bits_in_every_way(n: int, k: int) -> None:
    """With parts and a tail of channels, and without."""
    rng = np.random.default_rng(1)
    assert (launches.part_of(n, k) < k) == (k > 1024)
    xq, xs, handle = fp8_call(rng, launches.MANY, n, k)
    # Large terms at the beginning and at the end cancel: what is left shows where sums in between were rounded.
    xq.view(torch.uint8)[:, -32:] = xq.view(torch.uint8)[:, :32] ^ 0x80
    xs[:, 0] = xs[:, -1] = 140
    codes, scale = handle.tensors
    codes.view(torch.uint8)[:, -32:] = codes.view(torch.uint8)[:, :32]
    scale[:, -1] = scale[:, 0]
    assert_kept("linear_fp8", (xq[:3], xs[:3], handle))
    (many,) = run("linear_fp8", xq, xs, handle)
    for rows in ROWS if k < 1024 else ROWS[:2]:
        (last,) = run("linear_fp8", xq[-rows:], xs[-rows:], handle)
        assert torch.equal(bits(last), bits(many[-rows:])), rows


def test_weights_in_blocks_of_64_outputs_by_64_channels() -> None:
    codes = torch.arange(3 * 128 * 192, dtype=torch.int32).remainder(251).to(torch.uint8).view(3, 128, 192)
    made = launches.in_blocks(codes.view(torch.float8_e4m3fn), 64)
    assert (made.dtype, made.shape) == (torch.float8_e4m3fn, codes.shape)
    flat = made.view(torch.uint8).flatten()
    for g, n, k in ((0, 0, 0), (0, 63, 65), (1, 64, 127), (2, 127, 191), (2, 70, 5)):
        block = (g * 2 + n // 64) * 3 + k // 64
        assert flat[block * 4096 + n % 64 * 64 + k % 64] == codes[g, n, k], (g, n, k)


def test_fp8_weights_in_blocks_have_their_sums_in_every_way() -> None:
    """Two blocks of outputs and of channels, and half a step of channels more than the kernel takes at once."""
    rng = np.random.default_rng(6)
    n, k = 128, 192
    assert launches.blocked(n, k)
    xq, xs, handle = fp8_call(rng, launches.MANY, n, k)
    for rows in (1, launches.FEW + 1):
        assert_kept("linear_fp8", (xq[:rows], xs[:rows], handle))
    (many,) = run("linear_fp8", xq, xs, handle)
    for rows in ROWS[:2]:
        (last,) = run("linear_fp8", xq[-rows:], xs[-rows:], handle)
        assert torch.equal(bits(last), bits(many[-rows:])), rows
    groups = weight("linear_fp8_grouped", fp8_codes(rng, CPU, 2, 64, 64), scales(rng, CPU, 2, 2, 2))
    assert_kept("linear_fp8_grouped", (*activations(rng, CPU, 3, 2, 64), groups))


@pytest.mark.parametrize("op", ["linear_bf16", "vision_linear"])
def test_bf16_rows_have_their_bits_in_every_way(op: str) -> None:
    rng = np.random.default_rng(2)
    n, k = 40, 1100
    assert launches.part_of(n, k) < k
    x, handle = normal(rng, CPU, 80, k), weight(op, normal(rng, CPU, n, k))
    bias, residual = normal(rng, CPU, n), normal(rng, CPU, 80, n)

    def call(rows: slice) -> torch.Tensor:
        rest = (True,) if op == "linear_bf16" else (bias, residual[rows], "gelu")
        return run(op, x[rows], handle, *rest)[0]

    many = call(slice(0, 80))
    for rows in (slice(3, 20), slice(15, 79)):
        assert torch.equal(bits(call(rows)), bits(many[rows])), rows


def test_groups_have_the_bits_of_their_rows_in_every_way() -> None:
    rng = np.random.default_rng(3)
    handle = weight("linear_fp8_grouped", fp8_codes(rng, CPU, 3, 32, 96), scales(rng, CPU, 3, 1, 3))
    xq, xs = activations(rng, CPU, launches.MANY, 3, 96)
    (many,) = run("linear_fp8_grouped", xq, xs, handle)
    for rows in ROWS[:2]:
        (some,) = run("linear_fp8_grouped", xq[-rows:], xs[-rows:], handle)
        assert torch.equal(bits(some), bits(many[-rows:])), rows


@pytest.mark.skipif(DEVICE.type != "cpu", reason="needs a matrix unit with block scales")
@pytest.mark.parametrize(
    ("op", "label"),
    [("linear_fp8", "37 rows"), ("linear_fp8", "NaN row"), ("linear_fp8", "tails"), ("linear_fp8_grouped", "16 rows")],
)
def test_native_kernels_by_their_formulas(op: str, label: str) -> None:
    """Beside the other kernels, whose sums take the channels in another order."""
    args = sample(op, label).args
    native = linear.linear_fp8_native if op == "linear_fp8" else linear.linear_fp8_grouped_native
    torch.testing.assert_close(native(*args, None), run(op, *args)[0], rtol=2.0**-7, atol=1e-5, equal_nan=True)


def test_native_kernels_compile_to_block_scaled_products(tmp_path: Path) -> None:
    found = cuda_children.run(Path(cuda_children.SUPPORT) / "cuda_native.py", cache=tmp_path)
    assert len(found) == 3
    for label, kinds in found.items():
        assert kinds, label
        assert all("kind::mxf8f6f4" in kind and "block_scale" in kind for kind in kinds), (label, kinds)


# ---- on a GPU -------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("op", OPS)
def test_every_required_call(op: str) -> None:
    for label, args, variant in every_call(op):
        try:
            assert_kept(op, args, variant)
        except AssertionError as error:
            raise AssertionError(f"{op}, {label}: {error}") from None


COUNTS = (*range(1, 18), 31, 32, 33, 47, 48, 49, 63, 64, 65, 96, 127, 128, 129, 200, 255, 256)


def on_device(op: str, args: list[Any], rows: slice) -> torch.Tensor:
    """The op on some rows of its leading tensors, without judging."""
    taken = [a[rows].contiguous() if isinstance(a, torch.Tensor) else a for a in args]
    return SPECS[op].run(*taken)  # type: ignore[no-any-return]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("op", "groups", "n", "k"),
    [
        ("linear_fp8", 1, 32768, 1280),
        ("linear_fp8", 1, 5120, 8192),
        ("linear_fp8", 1, 1280, 5120),
        ("linear_fp8_grouped", 8, 1024, 4096),
        ("linear_bf16", 1, 384, 5120),
        ("linear_bf16", 1, 8192, 5120),
        ("vision_linear", 1, 3072, 1024),
    ],
)
def test_bits_of_1_to_256_rows_at_released_sizes(op: str, groups: int, n: int, k: int) -> None:
    """Scales far apart, so that the order of every sum shows; rows at other positions as well."""
    from cuda_calls import on_cuda

    rng = np.random.default_rng(4)
    with on_cuda():
        if op.startswith("linear_fp8"):
            shape = (groups,) if op.endswith("grouped") else ()
            parts = (
                fp8_codes(rng, DEVICE, *shape, n, k),
                scales(rng, DEVICE, *shape, n // 32, k // 32, low=100, high=130),
            )
            x = fp8_codes(rng, DEVICE, 300, *shape, k), scales(rng, DEVICE, 300, *shape, k // 32, low=100, high=130)
            args = [*x, SPECS[op].prepare(*parts)]
        else:
            wide = [
                normal(rng, DEVICE, r, k) * 2.0 ** torch.from_numpy(rng.integers(-9, 9, k)).to(DEVICE) for r in (300, n)
            ]
            x_, w_ = (v.to(torch.bfloat16) for v in wide)
            args = [x_, SPECS[op].prepare(w_), *((True,) if op == "linear_bf16" else (None, None, "none"))]
        many = on_device(op, args, slice(0, 300))
        assert not many.isnan().any()
        for rows in COUNTS:
            for first in (0, 300 - rows, 7):
                part = slice(first, first + rows)
                some = on_device(op, args, part)
                assert torch.equal(bits(some), bits(many[part])), (rows, first)
