"""docs/ascend_ops.md, from the registry: which ops have a kernel here, which have none.

python -m deepinfer.backends.ascend.table > docs/ascend_ops.md
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import torch

from ... import ops  # noqa: F401  (defines the specs)
from ...hal.catalog import CATALOG
from ...hal.registry import REFERENCE, REGISTRY, Kernel, Signature
from ...ops.spec import SPECS, OpSpec
from . import backend
from .build import programs
from .program import Program
from .register import SIMULATED

_HEAD = """# Ops on Ascend

Made by `python -m deepinfer.backends.ascend.table > docs/ascend_ops.md`. An op without a kernel runs on the reference,
named by `deepinfer ops status --backend ascend`. How to write one: [kernels for Ascend](ascend_kernels.md).
"Takes" is what a kernel says to a call that it declines, which then runs on the reference as well; nothing is declined
after a kernel has been chosen. No row count is ever a reason.
"""
_SAMPLES, _PROBED = 24, 4
"""Samples of an op that are looked at, and those with the same tensors that are taken apart."""
_GOT = re.compile(r"[;,] got\b.*")


def page() -> str:
    """The page. Loads the backend's kernels, not the backend's self-test."""
    CATALOG.load(REFERENCE)  # samples are made by it
    backend.load()
    own = {kernel.op for kernel in REGISTRY.kernels() if kernel.backend == "ascend" and kernel.own}
    lines = [_HEAD, f"{len(own)} of {len(SPECS)} ops have a kernel; none has run on a device.", ""]
    lines += ["## There", "", "| op | family | numerics | | takes |", "|---|---|---|---|---|"]
    for name in sorted(own, key=lambda op: (SPECS[op].family, op)):
        spec = SPECS[name]
        kernel = next(k for k in REGISTRY.kernels(name) if k.backend == "ascend")
        takes = "; ".join(limits(spec, kernel)) or "all"
        lines.append(
            f"| `{name}` | {spec.family} | {type(spec.numerics).__name__.lower()} | {kernel.source} | {takes} |"
        )
    families: dict[str, list[str]] = {}
    for name, spec in SPECS.items():
        if name not in own:
            families.setdefault(spec.family, []).append(f"`{name}`")
    if families:
        lines += ["", "## Missing", "", "| family | ops |", "|---|---|"]
        lines += [f"| {family} | {', '.join(sorted(names))} |" for family, names in sorted(families.items())]
    lines += ["", "## Programs", "", "| text | source | cores | lines |", "|---|---|---|---|"]
    lines += [_row(program) for program in _shown(programs())]
    return "\n".join(lines) + "\n"


def limits(spec: OpSpec, kernel: Kernel) -> list[str]:
    """What a kernel says that it takes, found by changing one size or number of accepted calls at a time."""
    found: list[str] = []
    supports = kernel.supports
    if supports is None:
        return found
    rng = np.random.default_rng(0)
    with REGISTRY.using(REFERENCE):
        samples = list(islice(spec.samples(rng, torch.device("cpu")), _SAMPLES))
    probed: Counter[frozenset[str]] = Counter()
    for sample in samples:
        signature = replace(spec.signature(*sample.args), device_type="cpu", arch=SIMULATED)
        given = frozenset(signature.args)
        if probed[given] == _PROBED or supports(signature) is not None:
            continue
        probed[given] += 1
        for changed in _changed(signature):
            said = _GOT.sub("", supports(changed) or "")
            if said and said not in found:
                found.append(said)
    return found


def _changed(signature: Signature) -> Iterator[Signature]:
    numbers = {name: value for name, value in signature.scalars.items() if type(value) is int}
    for name, size in signature.dims.items():
        for other in _others(size):
            yield replace(signature, dims={**signature.dims, name: other})
    for name, number in numbers.items():
        for other in _others(number):
            yield replace(signature, scalars={**signature.scalars, name: other})


def _others(size: int) -> tuple[int, ...]:
    return 0, size + 1, 1 << 23, (1 << 23) + 1


def _shown(every: Iterable[Program]) -> list[Program]:
    return [program for program in every if program.committed.is_file()]


def _row(program: Program) -> str:
    text = program.committed.read_text(encoding="utf-8")
    kind = program.signature().kind
    return f"| `{program.committed.name}` | `{program.file}` | {kind} | {text.count(chr(10))} |"


if __name__ == "__main__":
    print(page(), end="")
