"""The copy from L0C to the UB of vector cores: each rule and limit of its documentation."""

from __future__ import annotations

import pytest
import torch

from ascend import needs_compiler
from ascend_calls import Calls
from deepinfer.backends.ascend.sim import KernelFault

pytestmark = needs_compiler


def copy(
    n: int = 32,
    m: int = 32,
    *,
    into: str = "u",
    pitch: int = 32,
    source: int = 32,
    sub: int = 0,
    dual: int = 0,
    quant: int = 0,
    relu: int = 0,
    split: str = "false",
    nd: str = "true",
    dn: str = "false",
) -> str:
    return (
        f"asc_copy_l0c2ub({into}, (__cc__ float*)0, {n}, {m}, {pitch}, {source}, {sub}, DUAL({dual}), UNIT(0), "
        f"QUANT({quant}), RELU({relu}), {split}, {nd}, {dn}, false);"
    )


STATEMENTS = {
    "core 0": copy(),
    "core 1": copy(sub=1),
    "rows": copy(dual=1),
    "columns": copy(dual=2, pitch=16),
    "part": copy(n=8, m=5, pitch=32),
    "bf16": copy(into="(__ubuf__ bfloat16_t*)u", quant=16),
    "fp16, relu": copy(into="(__ubuf__ half*)u", quant=1, relu=1),
    "halves of 24 columns": copy(n=24, dual=2, pitch=16),
    "halves of 5 rows": copy(m=5, dual=1),
    "halves and a conversion": copy(into="(__ubuf__ half*)u", dual=1, quant=1),
    "address": copy(into="u + 1"),
    "behind UB": copy(into="(__ubuf__ float*)(248 * 1024 - 64)"),
    "fractals": copy(nd="false"),
    "columns out": copy(nd="false", dn="true"),
    "behind L0C": copy(source=65535, n=32),
}
CALLS = Calls(
    "__mix__(1, 2)",
    "__gm__ half* a, __gm__ half* b, __gm__ float* y",
    STATEMENTS,
    before="""__ubuf__ float* u = (__ubuf__ float*)8192;
  if (ASC_IS_AIV) {
    asc_sync_intra_wait(PIPE_MTE3, 0);
    asc_copy_ub2gm_align(y + asc_get_sub_block_id() * 1024, u, 1, 4096, STORE, 4096, 4096);
    return;
  }
  asc_set_gm2l1_nz_para(1, 1, 32, 0);
  asc_copy_gm2l1_nd2nz((__cbuf__ half*)0, a, 32, LOAD, 32, 16, 0, false);
  asc_copy_gm2l1_nd2nz((__cbuf__ half*)4096, b, 32, LOAD, 32, 16, 0, false);
  FLAG(PIPE_MTE2, PIPE_MTE1, 0);
  asc_copy_l12l0a((__ca__ half*)0, (__cbuf__ half*)0, 0, 0, 2, 1, 2, 2);
  asc_copy_l12l0b((__cb__ half*)0, (__cbuf__ half*)4096, 0, 0, 2, 1, 2, 2);
  FLAG(PIPE_MTE1, PIPE_M, 0);
  asc_mmad((__cc__ float*)0, (__ca__ half*)0, (__cb__ half*)0, 32, 16, 32, 0, true, false, true);
  FLAG(PIPE_M, PIPE_FIX, 0);
  asc_set_l0c_copy_nz_para(1, 0, 0);""",
    after="asc_sync_intra_arrive(PIPE_FIX, 0); asc_sync_intra_arrive(PIPE_FIX, 16);",
)


def run(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """UB of both vector cores, and the product."""
    torch.manual_seed(1)
    a, b = (torch.randint(-4, 5, (32, 16)).half() for _ in range(2))
    y = torch.zeros(2, 1024)
    CALLS(name, a=a, b=b, y=y)
    return y, (a.double() @ b.double().T).float()


@pytest.mark.parametrize("core", [0, 1])
def test_one_core_gets_the_tile(core: int) -> None:
    y, want = run(f"core {core}")
    assert torch.equal(y[core].view(32, 32), want) and y[1 - core].isnan().all()


def test_each_core_gets_half_of_the_rows() -> None:
    y, want = run("rows")
    assert torch.equal(y[:, :512].reshape(32, 32), want) and y[:, 512:].isnan().all()


def test_each_core_gets_half_of_the_columns() -> None:
    y, want = run("columns")
    assert torch.equal(torch.cat([y[i, :512].view(32, 16) for i in (0, 1)], 1), want)
    assert y[:, 512:].isnan().all()


def test_part_of_a_tile_with_a_pitch() -> None:
    y, want = run("part")
    rows = y[0, : 5 * 32].view(5, 32)
    assert torch.equal(rows[:, :8], want[:5, :8]) and rows[:, 8:].isnan().all() and y[0, 160:].isnan().all()


def test_conversions() -> None:
    y, want = run("bf16")
    assert torch.equal(y[0].view(torch.bfloat16)[:1024].view(32, 32), want.bfloat16())
    y, want = run("fp16, relu")
    assert torch.equal(y[0].view(torch.float16)[:1024].view(32, 32), want.half().relu())


FAULTS = {
    "halves of 24 columns": "multiple of 32",
    "halves of 5 rows": "halves the rows, and M is 5",
    "halves and a conversion": "conversion|quant",
    "address": "multiple of 32",
    "behind UB": "outside the 248 KiB of UB",
    "fractals": "only row-major",
    "columns out": "only row-major",
    "behind L0C": "outside the 256 KiB of L0C",
}


@pytest.mark.parametrize("name", FAULTS)
def test_misuse_is_named(name: str) -> None:
    with pytest.raises(KernelFault, match=FAULTS[name]) as fault:
        run(name)
    assert "pipe FIX" in str(fault.value)
