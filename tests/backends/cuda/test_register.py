"""What kernels are chosen by: never by an address or a stride, since two kernels may round in other places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("triton")

from deepinfer.conformance.calls import samples
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.registry import REGISTRY, ArgInfo, Kernel, Signature
from deepinfer.ops.spec import SPECS

CATALOG.load("reference")
CATALOG.load("cuda")
OPS = sorted({kernel.op for kernel in REGISTRY.kernels() if kernel.backend == "cuda"})


def placed(info: ArgInfo, *, aligned: bool, odd: bool) -> ArgInfo:
    """The same argument elsewhere: behind an odd address, or with rows an element further apart."""
    if not odd or info.strides is None:
        return replace(info, aligned=aligned)
    return replace(info, aligned=aligned, strides=tuple(s + 1 if s > 1 else s for s in info.strides))


def answers(kernel: Kernel, signature: Signature) -> set[Any]:
    """What a kernel says to a call wherever its tensors lie."""
    if kernel.supports is None:
        return {None}
    said = set()
    for aligned in (True, False):
        for odd in (True, False):
            args = {name: placed(info, aligned=aligned, odd=odd) for name, info in signature.args.items()}
            said.add(kernel.supports(replace(signature, args=args)) is None)
    return said


def signatures(op: str) -> Iterator[Signature]:
    spec = SPECS[op]
    for sample in samples(spec):
        found = spec.signature(*sample.args)
        for arch in ("sm_90", "sm_100"):
            yield replace(found, device_type="cuda", arch=arch)


@pytest.mark.parametrize("op", OPS)
def test_no_choice_depends_on_where_tensors_lie(op: str) -> None:
    kernels = [k for k in REGISTRY.kernels(op) if k.backend == "cuda"]
    for signature in signatures(op):
        for kernel in kernels:
            assert len(answers(kernel, signature)) == 1, f"{kernel.id} is chosen by an address or a stride"


def test_a_kernel_that_looks_at_addresses_is_seen() -> None:
    kernel = next(k for k in REGISTRY.kernels("quant_fp8") if k.backend == "cuda")
    asks = replace(kernel, supports=lambda s: None if all(i.aligned for i in s.args.values()) else "not aligned")
    assert len(answers(asks, next(signatures("quant_fp8")))) == 2
