"""What betrays each mutant of each kernel, as the rows of the table in docs/ascend.md.

`python tests/support/ascend_mutants.py` prints the table; with names, their rows only.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Sequence

import torch

import ascend_samples
from ascend import SOURCES, text
from ascend_written import KERNELS
from deepinfer.backends.ascend.sample import Sample
from deepinfer.backends.ascend.sim import mutate
from deepinfer.backends.ascend.sweep import Swept, sweep

LOWERED = tuple(name for name in ascend_samples.SAMPLES if name not in ascend_samples.BAD)
NAMES = (*LOWERED, *(f"{name}.cpp" for name in (*KERNELS, "paged")))
"""Kernels lowered by tilelang, and files of those written by hand (the others there hold planted faults)."""
HEAD = (
    "| kernel | pairs | in outputs | on bad data | redundant | sizes, indices | faults | in outputs | redundant |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def paged() -> Sample:
    """Rows of three of four pages, which begin at element 100 of their pool."""
    pages, table = torch.randn(400).half(), torch.tensor([2, 1, 4], dtype=torch.int32)
    arguments = {
        "pages": pages, "table": table, "out": torch.full((3, 64), float("nan")).half(), "origin": 100, "count": 3,
        "stride": 100, "width": 64, "narrow": 0,
    }  # fmt: skip
    return Sample(1, arguments, {"out": pages.view(4, 100)[table.long() - 1, :64]})


def given(name: str) -> tuple[str, Sequence[Sample]]:
    """Text and samples of a kernel."""
    if not name.endswith(".cpp"):
        return text(name), ascend_samples.samples(name)
    name = name.removesuffix(".cpp")
    torch.manual_seed(zlib.crc32(name.encode()))
    samples = [paged()] if name == "paged" else [KERNELS[name].sample(*size) for size in KERNELS[name].sizes]
    return (SOURCES / f"{name}.cpp").read_text(encoding="utf-8"), samples


def pairs(name: str) -> Swept:
    """All synchronisation between two pipes left out at once, so that only data can betray it."""
    return sweep(*given(name), ("pair",), relaxed=True, seeds=2)


def sizes(name: str) -> Swept:
    """Every size and index changed."""
    return sweep(*given(name), mutate.OPERATORS)


def row(name: str, of_pairs: Swept, of_sizes: Swept) -> str:
    cells: list[object] = [f"`{name}`"]
    for swept, order in ((of_pairs, ("output", "error")), (of_sizes, ("error", "output"))):
        rules = ", ".join(f"{count} {rule}" for rule, count in swept.rules().items())
        cells += [swept.count, *(swept.by(how) for how in order), rules or "0"]
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    print(HEAD)
    for kernel in sys.argv[1:] or NAMES:
        print(row(kernel, pairs(kernel), sizes(kernel)), flush=True)
