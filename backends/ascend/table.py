"""docs/ascend_ops.md, from the registry: which ops have a kernel here, which have none.

python -m deepinfer.backends.ascend.table > docs/ascend_ops.md
"""

from __future__ import annotations

from collections.abc import Iterable

from ... import ops  # noqa: F401  (defines the specs)
from ...hal.registry import REGISTRY
from ...ops.spec import SPECS
from . import backend
from .build import programs
from .program import Program

_HEAD = """# Ops on Ascend

Made by `python -m deepinfer.backends.ascend.table > docs/ascend_ops.md`. An op without a kernel runs on the reference,
named by `deepinfer ops status --backend ascend`. How to write one: [kernels for Ascend](ascend_kernels.md).
"""


def page() -> str:
    """The page. Loads the backend's kernels, not the backend's self-test."""
    backend.load()
    own = {kernel.op for kernel in REGISTRY.kernels() if kernel.backend == "ascend" and kernel.own}
    lines = [_HEAD, f"{len(own)} of {len(SPECS)} ops have a kernel; none has run on a device.", ""]
    lines += ["## There", "", "| op | family | numerics | |", "|---|---|---|---|"]
    for name in sorted(own, key=lambda op: (SPECS[op].family, op)):
        spec = SPECS[name]
        source = next(k.source for k in REGISTRY.kernels(name) if k.backend == "ascend")
        lines.append(f"| `{name}` | {spec.family} | {type(spec.numerics).__name__.lower()} | {source} |")
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


def _shown(every: Iterable[Program]) -> list[Program]:
    return [program for program in every if program.committed.is_file()]


def _row(program: Program) -> str:
    text = program.committed.read_text(encoding="utf-8")
    kind = program.signature().kind
    return f"| `{program.committed.name}` | `{program.file}` | {kind} | {text.count(chr(10))} |"


if __name__ == "__main__":
    print(page(), end="")
