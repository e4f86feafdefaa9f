"""Which samples launch which texts of the Ascend backend; nothing is launched to tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from ascend_op_mutants import extra
from ascend_ops import TARGET, on_ascend, scheduled, size, supported
from deepinfer.backends.ascend.program import Program
from deepinfer.conformance.calls import call, to_target
from deepinfer.ops.spec import SPECS, Sample

MOST = 70_000
"""Elements of a sample besides that of `scheduled`: those of `compressed_store` with FP8 records have over 64,000."""


@contextmanager
def _only_named() -> Iterator[set[str]]:
    """Launches are left out; the labels of the programs that would have been launched."""
    launch, found = Program.__call__, set()

    def name(self: Program, work: int, **arguments: object) -> None:
        if work:
            found.add(self.label)

    Program.__call__ = name  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Program.__call__ = launch  # type: ignore[method-assign]


def texts(op: str, sample: Sample) -> frozenset[str]:
    """Labels of the programs that a call launches."""
    with on_ascend(), _only_named() as found:
        call(SPECS[op], to_target(SPECS[op], sample.args, TARGET), TARGET)
    return frozenset(found)


@cache
def of_every_text(op: str) -> tuple[tuple[Sample, frozenset[str]], ...]:
    """Samples that launch an op's texts, each with its own: that of `scheduled`, and others for what it leaves.

    Those are the largest of the contract's small enough ones that launch such a text, else of those made for it here or
    for mutants. A text that only large samples launch is left out; a test asks that none is.
    """
    first = scheduled(op)
    found = [(first, texts(op, first))]
    for some in (supported(op), sorted((*small(op), *extra(op)), key=size)):
        named = [(sample, texts(op, sample)) for sample in some if size(sample) <= MOST]
        while left := {label for _, labels in named for label in labels} - {t for _, labels in found for t in labels}:
            found.append([one for one in named if min(left) in one[1]][-1])
    return tuple(found)


def small(op: str) -> list[Sample]:
    """Small legal calls for texts that only large samples launch otherwise."""
    if op != "linear_fp8":
        return []
    g, (rows, outputs, channels) = torch.Generator().manual_seed(2), (20, 72, 512)
    xq, codes = (torch.randint(0, 0x7F, (n, channels), generator=g, dtype=torch.uint8) for n in (rows, outputs))
    xs, scale = (
        torch.randint(118, 132, (n, channels // 32), generator=g, dtype=torch.uint8) for n in (rows, outputs // 32 + 1)
    )
    handle = SPECS[op].prepare(codes.view(torch.float8_e4m3fn), scale)
    return [Sample("20 rows of 512 channels, few outputs", (xq.view(torch.float8_e4m3fn), xs, handle))]
