"""Raw accesses of SIMT functions: races, bounds, launch limits, divergence."""

from __future__ import annotations

import pytest
import torch

from ascend import needs_compiler, written
from deepinfer.backends.ascend.sim import KernelFault, Schedule, schedules

pytestmark = needs_compiler
N = 100


def run(what: int, count: int = 64, schedule: Schedule | None = None) -> torch.Tensor:
    y = torch.full((N,), float("nan"))
    written("threads")(schedule or Schedule(), x=torch.arange(float(N)), y=y, what=what, count=count)
    return y


def test_neighbours_exchange_across_a_barrier_under_every_schedule() -> None:
    for schedule in schedules(2):
        y = run(0, schedule=schedule)
        assert torch.equal(y[:64], torch.cat([torch.arange(1.0, 64.0), torch.zeros(1)]))
        assert y[64:].isnan().all()


RACES = {
    1: r"byte \d+ of UB .* is (read|changed) here and (written|read) by thread \d+ with no asc_syncthreads between",
    2: r"is changed here and written by thread \d+",
    4: r"is (changed here and read|read here and written) by (thread \d+|several threads)",
    6: r"(updated|read) here and (read|written) by (thread 5|an atomic update)",
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("what", RACES)
def test_a_race_is_named_whichever_thread_goes_first(what: int, reverse: bool) -> None:
    with pytest.raises(KernelFault, match=RACES[what]) as fault:
        run(what, schedule=Schedule(reverse_threads=reverse))
    assert "kernel threads_kernel, block 0 AIV0, pipe V, instruction 1 body, thread" in str(fault.value)


@pytest.mark.parametrize("what", RACES)
def test_relaxed_leaves_out_the_rule_of_races_and_data_betrays_them(what: int) -> None:
    found = []
    for reverse in (False, True):
        y = torch.full((N,), float("nan"))
        schedule = Schedule(reverse_threads=reverse)
        written("threads")(schedule, relaxed=True, x=torch.arange(float(N)), y=y, what=what, count=64)
        found.append(y.nan_to_num(-1.0))
    assert torch.equal(*found) == (what == 2), "what races in case 2 goes nowhere"


@pytest.mark.parametrize("what, want", [(3, 7.0), (5, 64.0)])
def test_same_values_and_atomics_do_not_race(what: int, want: float) -> None:
    assert (run(what)[:64] == want).all()


OUTSIDE = {
    7: r"read of 4 bytes outside every memory and argument \(0 bytes behind the 400 of argument x",
    8: r"read of 4 bytes outside every memory and argument \(4 bytes before argument x",
    9: r"read of 4 bytes outside every memory and argument \(\d{10} bytes behind",
    17: r"read of 4 bytes outside every memory and argument \(\d{10} bytes before argument x",
    10: r"write of 4 bytes outside every memory and argument \(\d+ bytes behind the 400 of argument y",
    11: r"read of 4 bytes outside every memory and argument \(\d+ bytes behind the 221184 of UB .* 32 for the SIMT",
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_an_access_outside_is_named(what: int) -> None:
    with pytest.raises(KernelFault, match=OUTSIDE[what]):
        run(what)


def test_the_last_element_may_be_read() -> None:
    assert torch.equal(run(16)[:64], torch.arange(36.0, 100.0))


def test_divergence_at_a_barrier() -> None:
    with pytest.raises(KernelFault, match="divergence: of 64 threads 54 have ended, 10 wait in asc_syncthreads"):
        run(12)


def test_a_collective_needs_the_whole_warp() -> None:
    with pytest.raises(KernelFault, match="31 in a warp collective"):
        run(14)


def test_collectives() -> None:
    i = torch.arange(64)
    sums = torch.tensor([sum(range(32)), sum(range(32, 64))])[i // 32]
    assert torch.equal(run(15)[:64], (sums + (i ^ 1) + 1).float())


def test_a_device_assertion_names_the_thread() -> None:
    with pytest.raises(KernelFault, match="thread 17: device assertion failed: i != 17"):
        run(13)


def test_no_more_threads_than_the_launch_bound() -> None:
    with pytest.raises(KernelFault, match="launch of 65 threads exceeds the function's launch bound of 64"):
        run(3, count=65)
    with pytest.raises(KernelFault, match="launch of 2049 threads; 1 to 2048"):
        run(3, count=2049)
