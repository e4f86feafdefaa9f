"""The lanes that a report says are at work, in kernels whose idle lanes are known."""

from __future__ import annotations

import pytest
import torch

from ascend import needs_compiler
from ascend_calls import HEAD, built
from deepinfer.backends.ascend.sim import Kernel, parse, report

pytestmark = needs_compiler

SIMT = """{head}
__simt_vf__ __launch_bounds__(64) inline void some(__gm__ int32_t* y, int32_t n) {{
  {body}
}}
extern "C" __global__ __vector__ void some_kernel(__gm__ int32_t* y, int32_t n) {{
  asc_init();
  asc_vf_call<some>(cce::dim3(64), y, n);
}}
"""
SIMD = """{head}
__simd_vf__ inline void some(__ubuf__ float* u, uint32_t n) {{
  vector_f32 a;
  vector_bool m = asc_update_mask_b32(n);
  asc_loadalign(a, u, 0);
  asc_add(a, a, a, m);
  asc_storealign(u, a, 0, m);
}}
extern "C" __global__ __vector__ void some_kernel(__gm__ int32_t* y, int32_t n) {{
  asc_init();
  __ubuf__ float* u = (__ubuf__ float*)0;
  asc_vf_call<some>(u, uint32_t(n));
}}
"""


def run(text: str, n: int, schedule: str = "eager") -> tuple[Kernel, report.Report]:
    kernel = built(text)
    return kernel, kernel.run({"y": torch.zeros(64, dtype=torch.int32), "n": n}, parse(schedule))


@pytest.mark.parametrize("schedule", ["eager", "eager+threads"])
@pytest.mark.parametrize(("n", "busy", "offered"), [(64, 64, 64), (40, 40, 64), (8, 8, 32), (1, 1, 32), (0, 0, 0)])
def test_threads_that_store_nothing_stand_idle(n: int, busy: int, offered: int, schedule: str) -> None:
    """A warp in which nobody stores takes no time; one in which one thread stores takes as much as a whole one."""
    text = SIMT.format(head=HEAD, body="if (threadIdx.x < n) y[threadIdx.x] = 1;").replace("{functions}", "")
    assert run(text, n, schedule)[1].simt == (busy, offered)


def test_barriers_part_what_is_compared() -> None:
    """Half of the threads before a barrier and the other half behind it: each part is half idle, though sums agree."""
    half = "if (threadIdx.x % 2 == 0) y[threadIdx.x] = n; asc_syncthreads(); if (threadIdx.x % 2) y[threadIdx.x] = n;"
    text = SIMT.format(head=HEAD, body=half).replace("{functions}", "")
    assert run(text, 3)[1].simt == (64, 128)


@pytest.mark.parametrize("n", [64, 33, 1])
def test_lanes_of_vectors_by_their_masks(n: int) -> None:
    """One sum and one store of 64 lanes, n of which are on."""
    text = SIMD.format(head=HEAD).replace("{functions}", "")
    kernel, found = run(text, n)
    assert found.simd == (2 * n, 128) and found.simt == (0, 0)
    assert f"vector lanes at work: {100 * n / 64:.0f} %" in report.text(found, kernel.signature.simt)
