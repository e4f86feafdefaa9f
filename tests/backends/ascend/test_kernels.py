"""Kernels lowered by tilelang: right results, the same bits under every schedule; and the texts that are wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import ascend_samples
from ascend import CAPACITIES, LOWERED, current, every, kept, needs_tilelang, text
from deepinfer.backends.ascend.sample import differing, run
from deepinfer.backends.ascend.sim import Kernel, KernelFault, Schedule, schedules

pytestmark = needs_tilelang
RIGHT = [name for name in ascend_samples.SAMPLES if name not in ascend_samples.BAD]


def kernels(names: list[str]) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.slow) if name in ascend_samples.LONG else name for name in names]


def test_the_kept_texts_are_of_the_sources_as_they_are() -> None:
    """`python tests/support/ascend.py --write` brings them up to date; `--check` lowers all as they are."""
    assert [kept(*one).name for one in every() if not current(*one)] == []
    assert sorted(LOWERED.glob("*.cpp")) == sorted(kept(*one) for one in every())
    assert set(CAPACITY) == set(CAPACITIES)


@pytest.mark.parametrize("name", kernels(RIGHT))
def test_a_kernel_is_right_with_equal_bits_under_every_schedule(name: str) -> None:
    sample = ascend_samples.sample(name)
    assert differing(Kernel(text(name), sample.blocks), sample, schedules()) == ""


@pytest.mark.parametrize("m", [1, 31, 32, 33, 64])
def test_ragged_rows(m: int) -> None:
    sample = ascend_samples.sample("gemm", m=m)
    assert run(Kernel(text("gemm"), 2), sample, Schedule("lazy")).wrong == ""


@pytest.mark.parametrize("n", [1, 255, 256, 257, 1024])
def test_ragged_elements(n: int) -> None:
    sample = ascend_samples.sample("vecadd", n=n)
    assert run(Kernel(text("vecadd"), 2), sample, Schedule("lazy")).wrong == ""


def wrong(name: str) -> str:
    sample = ascend_samples.sample(name)
    kernel = Kernel(text(name), sample.blocks)
    try:
        return differing(kernel, sample, schedules())
    except KernelFault as fault:
        return str(fault)


# Each of these lowers without complaint and is wrong; when one passes, tilelang was mended: use it, and drop the test.


@pytest.mark.slow
def test_miscompiled_a_slice_of_a_tile_is_stored_with_another_pitch() -> None:
    assert "C: " in wrong("gemm_slice")


@pytest.mark.slow
def test_miscompiled_the_gemm_template_overwrites_explicit_l0_tiles() -> None:
    assert "O: " in wrong("attention_mixed")


def test_miscompiled_rows_of_a_reduction_are_stored_64_lanes_apart() -> None:
    assert "Y: 7 of 8 elements wrong, the first at [1]" in wrong("reduce_simd")


CAPACITY = {
    "ub": "asc_copy_gm2ub_align, destination: bytes .* outside the 248 KiB of UB",
    "simt": "asc_copy_gm2ub_align, destination: bytes .* outside the 216 KiB of UB .248 KiB less 32",
    "threads": "launch of 4096 threads; 1 to 2048",
    "l1": "asc_copy_gm2l1_nd2nz: bytes .* outside the 512 KiB of L1",
    "l0c": "outside the (64|256) KiB of L0",
}


@pytest.mark.parametrize("what", CAPACITY)
def test_miscompiled_what_exceeds_a_memory_is_refused(what: str) -> None:
    sample = ascend_samples.sample("over_capacity", what=what)
    with pytest.raises(KernelFault, match=CAPACITY[what]):
        run(Kernel(text("over_capacity", what), 1), sample, Schedule())


def test_the_index_of_a_gather_is_checked() -> None:
    sample = ascend_samples.sample("gather")
    assert isinstance(sample.arguments["I"], torch.Tensor)
    sample.arguments["I"][5] = 50
    assert run(Kernel(text("gather"), 2), sample, Schedule()).wrong, "the text guards its reads by R"
    sample = replace(sample, arguments={**sample.arguments, "R": 51})
    with pytest.raises(KernelFault, match="read of .* outside every memory and argument .* argument X"):
        run(Kernel(text("gather"), 2), sample, Schedule())
