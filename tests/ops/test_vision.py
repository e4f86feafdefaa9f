"""Vision ops: their meaning by small examples and by torch's own layers, refusals, and rows that stand alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from deepinfer import ops
from deepinfer.backends import reference
from deepinfer.conformance.oracle import expected
from deepinfer.hal.errors import ContractError
from deepinfer.ops.spec import SPECS
from row_parts import assert_rows_stand_alone, results

CPU = torch.device("cpu")
BF16 = torch.bfloat16
EXACT = ("image_patches", "merge_patches", "scatter_embeds")
ALONE = ("image_rope", "image_attention", "silu_mul", "vision_linear", *EXACT)
expected.load_oracles()


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    reference.backend.load()


def i32(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(BF16)


@pytest.mark.parametrize("op", EXACT)
def test_exact_ops_equal_their_definition(op: str) -> None:
    for sample in SPECS[op].samples(np.random.default_rng(11), CPU):
        args = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in sample.args)
        for want, got in zip(expected.BITS[op](*args), results(op, sample.args), strict=True):
            assert want is not None and want.want.dtype == got.dtype
            assert want.want.nan_to_num(7.5).equal(got.nan_to_num(7.5)), sample.label


@pytest.mark.parametrize("op", ALONE)
def test_rows_stand_alone(op: str) -> None:
    for sample in SPECS[op].samples(np.random.default_rng(5), CPU):
        if not sample.label.startswith(("real", "many", "261", "0 ", "no ")):
            assert_rows_stand_alone(op, sample.args)


# ---- patches --------------------------------------------------------------------------------------------------------


def test_a_patch_is_channel_by_channel_and_the_canvas_is_gray() -> None:
    """A 2 x 1 image in the middle of one patch of 4: everything else is 127."""
    pixels = torch.tensor([255, 0, 51, 0, 255, 102], dtype=torch.uint8)
    got = ops.image_patches(i32([[0, 0, 0]]), pixels, torch.tensor([[0, 2, 1, 1, 2]]), 4).view(3, 4, 4).float()
    gray = torch.tensor((127 / 255 - 0.5) / 0.5).to(BF16).item()
    want = torch.full((3, 4, 4), gray)
    want[:, 2, 1], want[:, 2, 2] = torch.tensor([1.0, -1.0, -0.6]), torch.tensor([-1.0, 1.0, -0.2])
    assert got.equal(want.to(BF16).float())


def test_normalisation_is_that_of_whole_images() -> None:
    """Every byte, against the formula over a whole image in numpy: fp32 with true divisions."""
    image = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    wide = (image.astype(np.float32) / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
    want = torch.from_numpy(wide).to(BF16).view(2, 8, 2, 8, 3).permute(0, 2, 4, 1, 3).reshape(4, -1)
    place = i32([[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]])
    described = torch.tensor([[0, 16, 16, 0, 0]])
    assert ops.image_patches(place, torch.from_numpy(image.reshape(-1)), described, 8).equal(want)


def test_pixels_outside_the_buffer_are_refused() -> None:
    with pytest.raises(ContractError, match="offset of a pixel"):
        ops.image_patches(i32([[0, 0, 0]]), torch.zeros(11, dtype=torch.uint8), torch.tensor([[0, 2, 2, 0, 0]]), 2)


# ---- layers ---------------------------------------------------------------------------------------------------------


def linear(x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
    return ops.vision_linear(x, ops.vision_linear_prepare(weight), *rest)


def test_the_sum_is_rounded_before_the_residual_joins() -> None:
    """257 * 1 rounds to 256 (bf16 has 8 bits); 256 + 1 rounds to 256, where one rounding of 258 would give 258."""
    x, weight = torch.tensor([[256.0, 1.0]], dtype=BF16), torch.ones((1, 2), dtype=BF16)
    assert linear(x, weight, None, None, "none").item() == 256.0
    assert linear(x, weight, None, torch.ones((1, 1), dtype=BF16), "none").item() == 256.0
    assert linear(x, weight, torch.ones(1, dtype=BF16), None, "none").item() == 258.0, "the bias joins in fp32"


def test_gelu_is_the_one_with_erf() -> None:
    x, weight, bias = randn(40, 64), randn(24, 64, seed=1) / 8, randn(24, seed=2)
    plain = linear(x, weight, bias, None, "none")
    assert linear(x, weight, bias, None, "gelu").allclose(F.gelu(plain.float()).to(BF16), rtol=2**-7, atol=1e-6)
    assert not linear(x, weight, bias, None, "gelu").allclose(
        F.gelu(plain.float(), approximate="tanh").to(BF16), rtol=0, atol=1e-9
    )


def test_the_gate_comes_first() -> None:
    got = ops.silu_mul(torch.tensor([[1.0, 3.0, -2.0, 4.0]], dtype=BF16))
    want = torch.tensor([[F.silu(torch.tensor(1.0)) * -2, F.silu(torch.tensor(3.0)) * 4]])
    assert got.equal(want.to(BF16))


def test_queries_and_keys_turn_by_row_and_column_and_values_do_not() -> None:
    """One head of 8 channels: pairs (0, 4) and (1, 5) turn by the row, (2, 6) and (3, 7) by the column."""
    angle = torch.tensor([[0.0, 0.0], [0.5, 0.25]])
    table = torch.stack((angle.cos(), angle.sin()), -1)
    qkv = torch.zeros((1, 3, 1, 8), dtype=BF16)
    qkv[..., :4] = 1.0
    turned = ops.image_rope(qkv, i32([[9, 1, 0]]), table)
    a, b = angle[1].cos().to(BF16), angle[1].sin().to(BF16)
    want = torch.tensor([a[0], a[1], 1, 1, b[0], b[1], 0, 0], dtype=BF16)
    assert turned[0, 0, 0].equal(want) and turned[0, 1, 0].equal(want)
    assert turned[0, 2].equal(qkv[0, 2])
    other = ops.image_rope(qkv, i32([[9, 0, 1]]), table)[0, 0, 0]
    assert other.equal(torch.tensor([1, 1, a[0], a[1], 0, 0, b[0], b[1]], dtype=BF16))
    with pytest.raises(ContractError, match=r"place\[:, 2\] holds 2"):
        ops.image_rope(qkv, i32([[0, 1, 2]]), table)


@pytest.mark.parametrize("lengths", [(1,), (5, 70, 3), (130,)])
def test_attention_is_torchs_own_image_by_image(lengths: tuple[int, ...]) -> None:
    total, scale = sum(lengths), 0.25
    qkv = randn(total, 3, 4, 16, seed=3)
    begin = [sum(lengths[:i]) for i, n in enumerate(lengths) for _ in range(n)]
    end = [sum(lengths[: i + 1]) for i, n in enumerate(lengths) for _ in range(n)]
    got = ops.image_attention(*qkv.unbind(1), i32(begin), i32(end), scale).double()
    for part in (slice(sum(lengths[:i]), sum(lengths[: i + 1])) for i in range(len(lengths))):
        q, k, v = qkv[part].double().permute(1, 2, 0, 3)
        want = F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(0, 1)
        assert (got[part] - want).abs().max() < 2**-7


def test_ranges_of_keys_are_checked() -> None:
    q = randn(2, 1, 8)
    for begin, end in ((0, 3), (-1, 1), (2, 1)):
        with pytest.raises(ContractError, match="begin and end"):
            ops.image_attention(q, q, q, i32([0, begin]), i32([1, end]), 1.0)


def test_merged_patches_are_channel_major() -> None:
    x = torch.arange(8, dtype=torch.float32).view(4, 2).to(BF16)
    got = ops.merge_patches(x, i32([[0, 1, 3, -1]]))
    assert got.tolist() == [[0, 2, 6, 0, 1, 3, 7, 0]]


def test_every_stream_of_an_image_row_is_replaced() -> None:
    x = torch.full((4, 2, 3), torch.nan, dtype=BF16)
    x[1] = 5.0
    values, marks = torch.ones((1, 3), dtype=BF16), torch.tensor([[2.0] * 3, [3.0] * 3], dtype=BF16)
    got = ops.scatter_embeds(x, values, marks, i32([0, -1, -2, -3]))
    assert got[:, 0, 0].tolist() == [1, 5, 2, 3] and got[:, 1].equal(got[:, 0])
    for source in (1, -4):
        with pytest.raises(ContractError, match="source holds"):
            ops.scatter_embeds(x, values, marks, i32([0, -1, -2, source]))
