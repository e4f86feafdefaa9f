"""What a run prints: the order of instructions, how full the memories were, and an estimate of the work."""

from __future__ import annotations

from collections.abc import Mapping

from .launch import MEMORIES, Event, Report
from .schedule import PIPES

# Of docs/ascend.md; every report ends with it.
CAVEAT = (
    "A functional simulation. It shows that the kernel's logic, layouts, bounds, capacity and synchronisation hold in "
    "the model under the schedules run. It does not show that the device compiler accepts the text, how fast it is, or "
    "how the device rounds: sums of the matrix unit, exponentials, divisions and their like may differ in their last "
    "bits. Nothing here has run on a device."
)
CAPACITY = {"UB": 248, "L1": 512, "L0A": 64, "L0B": 64, "L0C": 256}  # KiB
UB_WITH_SIMT = 216  # KiB: the data cache of SIMT functions takes the rest
# Bytes a cycle that a pipe moves at its best, as documented for the memories at both its ends (None: not published).
RATES: Mapping[str, int | None] = {"MTE1": 256, "MTE2": None, "MTE3": None, "M": None, "FIX": 128, "V": None}
_WIDTH = 100


def timeline(events: tuple[Event, ...], most: int = 60) -> list[str]:
    """One line per instruction in the order of execution, a column for each pipe; no time. `most` lines a core."""
    lines: list[str] = []
    pipes = [pipe for pipe in PIPES if any(e.pipe == pipe for e in events)]
    for block, core in dict.fromkeys((e.block, e.core) for e in events):
        own = [e for e in events if (e.block, e.core) == (block, core)]
        used = [pipe for pipe in pipes if any(e.pipe == pipe for e in own)]
        width = max((len(_short(e.name)) for e in own), default=4) + 5
        lines.append(f"block {block} {core}: order of execution, not time")
        lines.append("  " + "".join(pipe.ljust(width) for pipe in used).rstrip())
        for e in own[:most]:
            lines.append("  " + " " * (width * used.index(e.pipe)) + f"{_short(e.name)} {e.number}")
        if len(own) > most:
            lines.append(f"  … and {len(own) - most} more")
    return lines


def _short(name: str) -> str:
    return name.removeprefix("asc_").replace("sync_", "")


def occupancy(report: Report, simt: bool) -> list[str]:
    """By memory, the end of the highest byte that was touched on any core, as a share of what there is."""
    lines = []
    for memory in MEMORIES:
        size = UB_WITH_SIMT if memory == "UB" and simt else CAPACITY[memory]
        if report.high[memory]:
            used = report.high[memory] / 1024
            lines.append(f"{memory:4s} {used:7.1f} of {size} KiB ({100 * used / size:.0f} %)")
    return lines or ["no on-chip memory was touched"]


def estimate(report: Report) -> list[str]:
    """Bytes by pipe and cycles of the matrix unit, from counts; labelled an estimate."""
    lines = ["estimate, from counts and documented rates; not measured, and no prediction of time:"]
    for pipe, moved in report.bytes.items():
        if not report.instructions[pipe]:
            continue
        rate = RATES[pipe]
        cycles = f", at least {-(-moved // rate)} cycles at {rate} B a cycle, all cores in turn" if rate else ""
        lines.append(f"  {pipe:4s} {report.instructions[pipe]:6d} instructions {moved:10d} bytes{cycles}")
    if report.cube_steps:
        lines.append(f"  matrix unit: {report.flop} FLOP, at least {report.cube_steps} cycles at one fractal a cycle")
    if report.threads:
        lines.append(f"  SIMT: {report.threads} threads started, {report.barriers} barriers passed")
    for kind, (busy, offered) in (("vector", report.simd), ("SIMT", report.simt)):
        if offered:
            lines.append(f"  {kind} lanes at work: {100 * busy / offered:.0f} %")
    return lines


def caveat() -> list[str]:
    """`CAVEAT` in lines."""
    lines, line = [], ""
    for word in CAVEAT.split():
        if len(line) + len(word) >= _WIDTH:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return [*lines, line]


def text(report: Report, simt: bool, most: int = 60) -> str:
    """All parts of a report, the timeline if the run was traced."""
    parts = [timeline(report.events, most)] if report.events else []
    parts += [["occupancy, highest byte touched on any core:", *(f"  {x}" for x in occupancy(report, simt))]]
    parts += [estimate(report), caveat()]
    return "\n\n".join("\n".join(part) for part in parts)
