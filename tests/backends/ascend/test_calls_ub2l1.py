"""The copy from the UB of a vector core to L1 of its cube core: each rule and limit of its documentation."""

from __future__ import annotations

import pytest
import torch

from ascend import needs_compiler
from ascend_calls import Calls
from deepinfer.backends.ascend.sim import KernelFault

pytestmark = needs_compiler
STATEMENTS = {
    "one burst": "asc_copy_ub2l1(l1, u, 1, 16, 0, 0);",
    "gaps": "asc_copy_ub2l1(l1, u + 16, 2, 4, 2, 3);",
    "nothing": "asc_copy_ub2l1(l1, u, 0, 4, 0, 0); asc_copy_ub2l1(l1, u, 4, 0, 0, 0);",
    "address": "asc_copy_ub2l1(l1, u + 1, 1, 1, 0, 0);",
    "behind UB": "asc_copy_ub2l1(l1, (__ubuf__ half*)(248 * 1024 - 32), 1, 2, 0, 0);",
    "behind L1": "asc_copy_ub2l1((__cbuf__ half*)(512 * 1024 - 64), u, 2, 1, 0, 1);",
}
# The cube core fills 16 rows of L1 with ones, lets AIV0 copy into them, and stores them times the unit matrix.
CALLS = Calls(
    "__mix__(1, 2)",
    "__gm__ half* a, __gm__ half* b, __gm__ float* c",
    STATEMENTS,
    before="""__ubuf__ half* u = (__ubuf__ half*)0;
  __cbuf__ half* l1 = (__cbuf__ half*)0;
  if (ASC_IS_AIC) {
    asc_fill_l1(l1, half(1.0f), {1, 16, 0});
    asc_sync_intra_arrive(PIPE_MTE2, 1);
    asc_set_gm2l1_nz_para(1, 1, 16, 0);
    asc_copy_gm2l1_nd2nz(l1 + 4096, b, 32, LOAD, 16, 16, 0, false);
    FLAG(PIPE_MTE2, PIPE_MTE1, 0);
    asc_sync_intra_wait(PIPE_MTE1, 0);
    asc_copy_l12l0a((__ca__ half*)0, l1, 0, 0, 1, 1, 1, 1);
    asc_copy_l12l0b((__cb__ half*)0, l1 + 4096, 0, 0, 1, 1, 1, 1);
    FLAG(PIPE_MTE1, PIPE_M, 0);
    asc_mmad((__cc__ float*)0, (__ca__ half*)0, (__cb__ half*)0, 16, 16, 16, 0, true, false, true);
    FLAG(PIPE_M, PIPE_FIX, 0);
    asc_set_l0c_copy_nz_para(1, 0, 0);
    asc_copy_l0c2gm(c, (__cc__ float*)0, 16, 16, 16, 16, STORE, UNIT(0), QUANT(0), RELU(0), false, true, false, false);
    return;
  }
  if (asc_get_sub_block_id() == 1) return;
  asc_copy_gm2ub_align(u, a, 1, 1024, 0, 0, false, LOAD, 1024, 1024);
  FLAG(PIPE_MTE2, PIPE_MTE3, 0);
  asc_sync_intra_wait(PIPE_MTE3, 1);""",
    after="asc_sync_intra_arrive(PIPE_MTE3, 0);",
)
A = torch.arange(512).view(32, 16).half()


def run(name: str, schedule: str = "") -> torch.Tensor:
    c = torch.full((16, 16), float("nan"))
    CALLS(name, schedule, a=A.clone(), b=torch.eye(16).half(), c=c)
    return c


@pytest.mark.parametrize("schedule", ["eager", "lazy", "last:MTE3", "lazy+late-AIC"])
def test_bursts_of_lines_with_gaps_on_both_sides(schedule: str) -> None:
    assert torch.equal(run("one burst", schedule), A[:16].float())
    assert torch.equal(run("nothing", schedule), torch.ones(16, 16))
    want = torch.ones(16, 16)
    want[:4], want[7:11] = A[1:5], A[7:11]
    assert torch.equal(run("gaps", schedule), want)


FAULTS = {
    "address": "source: offset 2 is not a multiple of 32",
    "behind UB": "source: bytes .* outside the 248 KiB of UB",
    "behind L1": "destination: bytes .* outside the 512 KiB of L1",
}


@pytest.mark.parametrize("name", FAULTS)
def test_misuse_is_named(name: str) -> None:
    with pytest.raises(KernelFault, match="pipe MTE3, instruction .* asc_copy_ub2l1, " + FAULTS[name]):
        run(name)
