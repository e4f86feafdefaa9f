"""A functional model of the Ascend 950 (dav-3510) on the CPU: AscendC kernels built with the host's compiler, run, and
judged. docs/ascend.md says what it proves and what it does not."""

from __future__ import annotations

from .errors import BuildError, KernelFault, SimulatorError, SourceError
from .launch import Event, Kernel, Report
from .schedule import Schedule, deterministic, parse, schedules

__all__ = [
    "BuildError",
    "Event",
    "Kernel",
    "KernelFault",
    "Report",
    "Schedule",
    "SimulatorError",
    "SourceError",
    "deterministic",
    "parse",
    "schedules",
]
