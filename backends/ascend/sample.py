"""A kernel with inputs and the results expected of it: what `deepinfer ascend sim` and the tests run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .sim import Kernel, Report, Schedule


@dataclass(frozen=True)
class Sample:
    """Arguments of one launch.

    Attributes:
        blocks: of the launch.
        arguments: tensors and scalars by parameter name; outputs hold what nothing should read (NaN, -1). Scalars that
            the kernel does not have are left out.
        expected: what the outputs should hold.
        limit: largest difference allowed, as a share of the largest expected value; 0 for equal bits.
        scratch: arguments that the kernel may write besides.
        parameters: of the function that returns the kernel.
    """

    blocks: int
    arguments: Mapping[str, torch.Tensor | int | float]
    expected: Mapping[str, torch.Tensor]
    limit: float = 0.0
    scratch: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """Outputs of a run, its report, and what is wrong with the outputs ("" for nothing)."""

    outputs: Mapping[str, torch.Tensor]
    report: Report
    wrong: str


def run(kernel: Kernel, sample: Sample, schedule: Schedule, **options: Any) -> Outcome:
    """Run a sample on copies of its arguments and compare.

    Raises:
        KernelFault: the run found a fault.
    """
    names = {p.name for p in kernel.signature.parameters}
    arguments = {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in sample.arguments.items()
        if name in names or isinstance(value, torch.Tensor)
    }
    report = kernel.run(arguments, schedule, **options)
    outputs = {n: v for n, v in arguments.items() if n in sample.expected and isinstance(v, torch.Tensor)}
    wrong = [difference(outputs[name], want, sample.limit, name) for name, want in sample.expected.items()]
    inputs = arguments.keys() - sample.expected.keys() - set(sample.scratch)
    wrong += [_changed(name, arguments[name], sample.arguments[name]) for name in sorted(inputs)]
    return Outcome(outputs, report, "; ".join(filter(None, wrong)))


def _changed(name: str, now: Any, before: Any) -> str:
    if isinstance(now, torch.Tensor) and not torch.equal(bits(now), bits(before)):
        return f"{name}: an input was changed"
    return ""


def difference(got: torch.Tensor, want: torch.Tensor, limit: float, name: str) -> str:
    """How `got` misses `want`, or "". What should be NaN or infinite has to be just that, with any limit."""
    if not limit:
        wrong = bits(got) != bits(want.to(got.dtype))
    else:
        have, need = got.double(), want.double()
        finite = need.isfinite()
        largest = need[finite].abs().max() if finite.any() else 0.0
        near = (have - need).abs() <= limit * largest
        same = (have == need) | (have.isnan() & need.isnan())
        wrong = ~torch.where(finite, near, same)
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in wrong.nonzero()[0])
    values = f"got {got[at].float().item():.6g}, want {want[at].float().item():.6g}"
    return f"{name}: {int(wrong.sum())} of {wrong.numel()} elements wrong, the first at {list(at)}: {values}"


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bits as integers."""
    return tensor.contiguous().view(
        {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    )


def differing(kernel: Kernel, sample: Sample, schedules: Sequence[Schedule], **options: Any) -> str:
    """Run a sample under all schedules: the first fault, wrong output, or difference between schedules, or "".

    Raises:
        KernelFault: a run found a fault.
    """
    first: Outcome | None = None
    for schedule in schedules:
        outcome = run(kernel, sample, schedule, **options)
        first = first or outcome
        for name, value in outcome.outputs.items():
            if not torch.equal(bits(value), bits(first.outputs[name])):
                return f"{name}: other bits under {schedule} than under {schedules[0]}"
        if outcome.wrong:
            return f"{outcome.wrong} [schedule {schedule}]"
    return ""
