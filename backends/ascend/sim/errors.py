"""Typed errors of the simulator."""

from __future__ import annotations

from ....hal.errors import DeepInferError


class SimulatorError(DeepInferError):
    """Base of what goes wrong in the simulator."""


class SourceError(SimulatorError):
    """The text is no AscendC kernel that can be launched."""


class BuildError(SimulatorError):
    """The host compiler is missing or rejects the text. The message has the compiler's first errors."""


class KernelFault(SimulatorError):
    """A run found a fault of the kernel. Names kernel, block, core, pipe and instruction, and what was waited for."""
