"""Typed errors of an Ascend installation: what is wrong, in one line, and what to do."""

from __future__ import annotations

from ...hal.errors import BackendError


class AscendSetupError(BackendError):
    """The Ascend software or device of this machine cannot be used.

    Args:
        reason: what was found.
        remedy: what to do about it.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason, self.remedy = reason, remedy
        super().__init__(f"{reason}; {remedy}")

    def __reduce__(self) -> tuple[type[AscendSetupError], tuple[str, str]]:
        return (type(self), (self.reason, self.remedy))


class TorchNpuError(AscendSetupError):
    """torch_npu is installed without what it needs, or is missing beside a device."""


class CannError(AscendSetupError):
    """CANN is missing, or of a version that the kernels are not for."""


class ChipError(AscendSetupError):
    """The device does not answer, or is another chip than the kernels are for."""


class VersionError(AscendSetupError):
    """An installed package has a version outside the matrix (`versions.MATRIX`)."""
