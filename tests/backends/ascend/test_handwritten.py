"""Kernels written by hand from the calls' documentation: right at several sizes, the same bits under every schedule."""

from __future__ import annotations

import zlib

import pytest
import torch

import ascend_coverage
from ascend import needs_compiler, written
from ascend_written import KERNELS
from deepinfer.backends.ascend.sample import differing
from deepinfer.backends.ascend.sim import schedules

CASES = [(name, size) for name, kernel in KERNELS.items() for size in kernel.sizes]


@needs_compiler
@pytest.mark.parametrize("name, size", CASES, ids=[f"{n}-{'x'.join(map(str, s))}" for n, s in CASES])
def test_a_kernel_is_right_with_equal_bits_under_every_schedule(name: str, size: tuple[int, ...]) -> None:
    torch.manual_seed(zlib.crc32(name.encode()))
    sample = KERNELS[name].sample(*size)
    assert differing(written(name, sample.blocks), sample, schedules()) == ""


def test_every_form_is_in_a_kernel() -> None:
    sources = ascend_coverage.read(list(KERNELS))
    found = ascend_coverage.forms(sources)
    assert [form for form, kernels in found.items() if not kernels] == []
    assert {name for kernels in found.values() for name in kernels} == set(KERNELS), "each kernel adds a form"
    shown = ascend_coverage.table(ascend_coverage.calls(sources), list(sources))
    assert "| asc_mmad_mx | " in shown and len(shown.splitlines()) == len(ascend_coverage.calls(sources)) + 2


def test_every_kernel_says_what_it_covers() -> None:
    for name in KERNELS:
        head = (ascend_coverage.SOURCES / f"{name}.cpp").read_text(encoding="utf-8").split("#include")[0]
        assert "// Covers: " in head, name
