"""Pipes and what orders them; limits of copies; what errors say."""

from __future__ import annotations

import pytest
import torch

from ascend import needs_compiler, written
from deepinfer.backends.ascend.sim import KernelFault, Schedule, deterministic, parse, schedules

pytestmark = needs_compiler
N = 24


def run(what: int, schedule: str = "eager", **options: object) -> torch.Tensor:
    y = torch.full((N,), float("nan"))
    written("pipes")(parse(schedule), x=torch.arange(2.0 * N), y=y, what=what, n=N, **options)
    return y


def test_a_right_kernel_gives_the_same_bits_under_every_schedule() -> None:
    for schedule in schedules():
        assert torch.equal(run(0, str(schedule)), torch.arange(float(N))), schedule


def test_a_missing_wait_shows_under_some_schedule() -> None:
    right = [torch.equal(run(1, str(schedule)), torch.arange(float(N))) for schedule in deterministic()]
    assert any(right) and not all(right)


FAULTS = {
    3: "pipe MTE2, instruction 2 asc_sync_notify: flag MTE2->V id 1 is set again before it was waited for",
    4: "the kernel ends with flag MTE2->V id 1 still set",
    5: "pipe S, asc_lock: asc_lock of mutex 4, which is locked already",
    6: "asc_unlock of mutex 4, which is not locked",
    9: "instruction 1 asc_copy_gm2ub_align: .*offset 4 is not a multiple of 32 bytes",
    10: r"asc_copy_gm2ub_align, source: 100 bytes of global memory outside every argument \(4 bytes behind the 192 of",
    11: r"destination: bytes \[253920, 254016\) are outside the 248 KiB of UB of block 0 AIV0",
    12: "asc_sync_notify: id 8 is outside 0 to 7",
    14: "integer division by zero",
    16: r"pipe S: read of 4 bytes outside every memory and argument \(0 bytes behind the 192 of argument x",
    18: "undefined behaviour, a division by the constant zero or the like",
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_names_where_and_what(what: int) -> None:
    with pytest.raises(KernelFault, match=FAULTS[what]) as fault:
        run(what)
    assert "kernel pipes_kernel, block 0 AIV0, pipe " in str(fault.value)
    assert "[schedule eager]" in str(fault.value)


def test_a_deadlock_names_the_head_of_every_pipe_and_what_it_waits_for() -> None:
    with pytest.raises(KernelFault, match="kernel pipes_kernel: deadlock, nothing can run") as fault:
        run(2)
    assert "block 0 AIV0 program: at its end" in str(fault.value)
    assert "pipe MTE3: instruction 1 asc_sync_wait waits for flag V->MTE3 id 5; 2 queued" in str(fault.value)


def test_relaxed_leaves_out_the_rules_of_flags() -> None:
    run(3, relaxed=True)
    run(4, relaxed=True)
    with pytest.raises(KernelFault, match="deadlock"):
        run(2, relaxed=True)


def test_copies_of_one_pipe_may_overlap_unless_a_barrier_divides_them() -> None:
    last = torch.arange(float(N), 2 * N)
    assert torch.equal(run(7, "lazy"), last)
    assert not torch.equal(run(7, "lazy+overlap"), last)
    for schedule in schedules():
        assert torch.equal(run(8, str(schedule)), last), schedule


def test_a_program_without_end_is_stopped() -> None:
    with pytest.raises(KernelFault, match="time limit reached"):
        run(13, seconds=0.3)


def test_memory_that_nothing_wrote_is_poison() -> None:
    assert run(15).isnan().all()


def test_the_program_waits_for_a_pipe() -> None:
    for schedule in schedules(2):
        assert run(17, str(schedule))[0] == N - 1


def test_a_cube_core_and_its_vector_cores() -> None:
    torch.manual_seed(1)
    a, b = torch.randn(32, 32).bfloat16(), torch.randn(32, 32).bfloat16()
    first = None
    for schedule in schedules(2):
        c = torch.full((32, 32), float("nan"))
        report = written("mixed")(schedule, a=a, b=b, c=c, what=0)
        first = c if first is None else first
        assert torch.equal(c, first), schedule
        torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=0, atol=1e-5)
    assert report.flop == 2 * 32**3 and report.cube_steps == 2 * 2 * 2
    assert report.bytes["MTE2"] == 2 * 32 * 32 * 2 and report.high["L0C"] == 32 * 32 * 4


def test_a_missing_wait_for_the_other_core_is_noticed() -> None:
    a = b = torch.ones(32, 32).bfloat16()
    noticed = 0
    for schedule in deterministic():
        c = torch.full((32, 32), float("nan"))
        try:
            written("mixed")(schedule, relaxed=True, a=a, b=b.clone(), c=c, what=1)
            noticed += not torch.equal(c, torch.full((32, 32), 32.0))
        except KernelFault:
            noticed += 1
    assert noticed


def test_a_core_that_waits_for_another_says_for_which() -> None:
    a, b = torch.ones(32, 32).bfloat16(), torch.ones(32, 32).bfloat16()
    with pytest.raises(KernelFault, match="deadlock") as fault:
        written("mixed")(Schedule(), a=a, b=b, c=torch.empty(32, 32), what=2)
    assert "block 0 AIV0 pipe MTE3: instruction 4 asc_sync_intra_wait waits for an arrival of AIC, counter 2" in str(
        fault.value
    )
