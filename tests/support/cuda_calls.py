"""Calls of CUDA kernels by the op's own judge: on the GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from deepinfer.conformance.calls import call, samples, to_target
from deepinfer.conformance.case import Target
from deepinfer.conformance.judge import judge
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.registry import REGISTRY
from deepinfer.ops.required import FAR, PLAIN, SPOILT, STRIDED, calls
from deepinfer.ops.spec import SPECS, Sample

__all__ = ["FAR", "PLAIN", "SPOILT", "STRIDED", "assert_kept", "every_call", "given", "on_cuda", "run", "sample"]

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TARGET = Target("cuda", DEVICE)


@contextmanager
def on_cuda() -> Iterator[None]:
    """The CUDA kernels are the active ones."""
    CATALOG.load("reference")
    CATALOG.load("cuda")
    with REGISTRY.using("cuda", "" if DEVICE.type == "cpu" else "sm_{}{}".format(*torch.cuda.get_device_capability())):
        yield


def sample(op: str, label: str) -> Sample:
    """The sample of an op whose label begins so."""
    CATALOG.load("reference")
    return next(s for s in samples(SPECS[op]) if s.label.startswith(label))


def assert_kept(op: str, args: tuple[Any, ...], variant: str = PLAIN) -> None:
    """The call keeps the op's class, in every form the judge knows: with `out`, guarded, not writing what it reads."""
    with on_cuda():
        found = judge(SPECS[op], args, TARGET, variant)
    assert not found.findings, [str(f) for f in found.findings]
    assert not found.skipped, found.skipped


def run(op: str, *args: Any) -> tuple[torch.Tensor, ...]:
    """Outputs of the op's CUDA kernel, then the arguments that it writes, on the CPU; the arguments given are kept."""
    spec = SPECS[op]
    with on_cuda():
        placed = to_target(spec, args, TARGET)
        outs = call(spec, placed, TARGET)
    written = [v for a, v in zip(spec.args, placed, strict=True) if getattr(a, "mutable", False)]
    return tuple(t.cpu() for t in (*outs, *written))


def every_call(op: str) -> list[tuple[str, tuple[Any, ...], str]]:
    """Label, arguments and variant of every call that a backend has to pass."""
    CATALOG.load("reference")
    spec = SPECS[op]
    return [(c.label, c.sample.args, c.variant) for c in calls(spec, "full", list(samples(spec)))]


def given(op: str, args: tuple[Any, ...]) -> dict[str, Any]:
    """Arguments by name."""
    return {a.name: v for a, v in zip(SPECS[op].args, args, strict=True)}
