"""Bringing calls to a target: what a kernel declines, and what it does wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import deepinfer.ops  # noqa: F401 - defines the specs
from deepinfer.conformance.calls import Unsupported, call, samples, to_target
from deepinfer.conformance.case import Target
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.errors import KernelError
from deepinfer.hal.registry import REGISTRY, Kernel, Supports
from deepinfer.ops.spec import SPECS

TARGET = Target("preparing", torch.device("cpu"))
LINEAR = SPECS["linear_bf16"]


def never_ready(*weights: torch.Tensor) -> Any:
    raise KernelError("the tiles of this weight could not be made")


@pytest.fixture
def active() -> Iterator[list[Kernel]]:
    CATALOG.load("reference")
    added: list[Kernel] = []
    with REGISTRY.using(TARGET.backend):
        yield added
    for kernel in added:
        REGISTRY.remove(kernel)


def add(active: list[Kernel], supports: Supports | None) -> None:
    made = Kernel(
        LINEAR.name,
        LINEAR.version,
        TARGET.backend,
        lambda *a: None,
        source="triton",
        layout="tiles",
        prepare=never_ready,
        supports=supports,
    )
    active.append(REGISTRY.add(made))


def test_a_weight_that_a_kernel_fails_to_prepare_is_no_declined_call(active: list[Kernel]) -> None:
    add(active, None)
    with pytest.raises(KernelError, match="could not be made"):
        to_target(LINEAR, next(samples(LINEAR)).args, TARGET)


def test_a_weight_that_a_kernel_declines_is_one(active: list[Kernel]) -> None:
    add(active, lambda signature: "widths of 7 only")
    args = to_target(LINEAR, next(samples(LINEAR)).args, TARGET)
    with pytest.raises(Unsupported, match="widths of 7 only"):
        call(LINEAR, args, TARGET)


def test_a_pin_that_no_kernel_meets_is_said(active: list[Kernel]) -> None:
    sample = next(samples(LINEAR))
    with REGISTRY.pin(LINEAR.name, "nobody"), pytest.raises(Unsupported, match="pinned to 'nobody'"):
        to_target(LINEAR, sample.args, TARGET)
