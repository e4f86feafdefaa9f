"""Block-scaled products of the Ascend backend: what they run on, what they read, which codes they widen."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
import torch

from ascend import needs_tilelang
from ascend_ops import findings, launch, ops, scheduled
from deepinfer.backends.ascend import lower
from deepinfer.backends.ascend.linear import LINEAR_BF16, LINEAR_FP8, LINEAR_MX
from deepinfer.backends.ascend.moe import GROUPED_LINEAR
from deepinfer.backends.ascend.program import Program
from deepinfer.backends.ascend.sim import build
from deepinfer.ops.spec import SPECS

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
ONE = 127
OPS = ops()  # registers the kernels


@pytest.mark.parametrize("program", [GROUPED_LINEAR, LINEAR_MX, *LINEAR_FP8.values()], ids=lambda p: p.label)
def test_products_are_block_scaled_ones_of_the_matrix_unit(program: Program) -> None:
    """By hand `asc_mmad_mx` is in the source; TileLang calls its template, which the test below reads."""
    assert program.signature().kind in ("cube", "mix")
    call = "asc_mmad_mx(" if program.written else "ascend_blockscaled_gemm_l1<"
    assert call in program.text()


PLAIN = {program.label: program for program in LINEAR_BF16.values()}


@pytest.mark.parametrize("program", PLAIN.values(), ids=PLAIN)
def test_products_of_bf16_are_plain_ones_of_the_matrix_unit(program: Program) -> None:
    assert program.signature().kind in ("cube", "mix")
    text = program.text()
    assert re.findall(r"ascend_\w*gemm\w*(?=<)", text) == ["ascend_gemm_l1"] and "bfloat16_t>(" in text


@pytest.mark.skipif(bool(lower.missing()), reason=lower.missing())
@pytest.mark.parametrize(
    ("template", "call", "programs"),
    [
        ("ascend_blockscaled_gemm_l1", "asc_mmad_mx", LINEAR_FP8.values()),
        ("ascend_gemm_l1", "asc_mmad", LINEAR_BF16.values()),
    ],
)
def test_templates_of_the_wheel_call_the_matrix_unit(template: str, call: str, programs: Iterable[Program]) -> None:
    """A text names a template of the installed tilelang; whether that multiplies by blocks is the template's."""
    assert all("#include <tl_templates/ascend/gemm.h>" in program.text() for program in programs)
    _, folder = build.wheel()
    assert folder is not None
    header = (folder / "tl_templates" / "ascend" / "gemm.h").read_text(encoding="utf-8")
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", header, flags=re.DOTALL)
    (body,) = re.findall(rf"\b{template}\(.*?^}}", code, flags=re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"\basc_mmad\w*(?=\()", body)) == {call}


@needs_tilelang
@pytest.mark.parametrize("op", ["grouped_linear", "linear_fp8", "linear_fp8_grouped"])
def test_the_matrix_unit_steps(op: str) -> None:
    _, runs = launch(op, scheduled(op).args)
    assert any(run.report.cube_steps for run in runs)


@needs_tilelang
def test_every_code_of_e2m1_is_widened_to_its_value_in_both_halves_of_a_byte() -> None:
    """Rows of a unit matrix pick each channel alone, so the product is the weight as the matrix unit saw it."""
    codes = torch.arange(256, dtype=torch.uint8)
    weight = codes.repeat(32).view(1, 256 * 32 // 16, 16)  # 512 rows of 32 channels, every byte at every place
    scale = torch.full((1, weight.shape[1], 1), ONE, dtype=torch.uint8)
    handle = SPECS["grouped_linear"].prepare(weight, scale)
    x = torch.eye(32).to(torch.float8_e4m3fn)
    args = (x, torch.full((32, 1), ONE, dtype=torch.uint8), handle, None, torch.tensor([0, 32], dtype=torch.int32))
    (y,), _ = launch("grouped_linear", args)
    value = torch.tensor([*E2M1, *(-v for v in E2M1)])
    want = torch.stack((value[weight[0].long() & 15], value[weight[0].long() >> 4]), dim=2).flatten(1)
    assert torch.equal(y.float(), want.t())


@needs_tilelang
def test_codes_of_four_bits_are_read_as_they_lie_in_memory_and_only_of_experts_with_rows() -> None:
    n, k, experts = 128, 512, 6
    weight = torch.zeros((experts, n, k // 2), dtype=torch.uint8)
    scale = torch.full((experts, n, k // 32), ONE, dtype=torch.uint8)
    handle = SPECS["grouped_linear"].prepare(weight, scale)
    x = torch.zeros((3, k)).to(torch.float8_e4m3fn)
    offsets = torch.tensor([0, 0, 2, 2, 3, 3, 3], dtype=torch.int32)
    args = (x, torch.full((3, k // 32), ONE, dtype=torch.uint8), handle, None, offsets)
    _, (run,) = launch("grouped_linear", args)
    assert run.report.bytes["MTE2"] == 2 * n * (k // 2 + k // 32) + 3 * (k + k // 32)


@needs_tilelang
def test_a_row_of_nan_is_alone_where_channels_are_an_odd_number_of_groups() -> None:
    """What fills up the last pair of scales, and the codes under it, are numbers."""
    k, n = 96, 64
    g = torch.Generator().manual_seed(1)
    codes = torch.randint(0, 0x7F, (n, k), generator=g, dtype=torch.uint8).view(torch.float8_e4m3fn)
    handle = SPECS["linear_fp8"].prepare(codes, torch.full((n // 32, k // 32), ONE, dtype=torch.uint8))
    xq = torch.randint(0, 0x7F, (5, k), generator=g, dtype=torch.uint8)
    xs = torch.full((5, k // 32), ONE - 5, dtype=torch.uint8)
    xq[2], xs[2] = 0x7F, 0xFF
    assert findings("linear_fp8", (xq.view(torch.float8_e4m3fn), xs, handle)) == []
