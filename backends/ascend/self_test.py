"""Known answers of one small kernel, through the path that all kernels take."""

from __future__ import annotations

import torch

from ...hal.backend import known_answer
from ...hal.device import Device
from .program import Program
from .register import ARCHS

SELF_TEST = Program("self_test_kernels.py", "self_test")
_ROWS, _WIDTH = 7, 64


def run(device: Device, arch: str) -> None:
    """Run the kernel on a device.

    Raises:
        SelfTestError: wrong answers; names the chip that was found and the one that kernels are for.
    """
    x = torch.arange(_ROWS * _WIDTH, dtype=torch.int32).reshape(_ROWS, _WIDTH)
    got = torch.full((_ROWS, _WIDTH), -1, dtype=torch.int32, device=device.torch)
    SELF_TEST(work=_ROWS, X=x.to(device.torch), Y=got, m=_ROWS)
    known_answer("3 x + 7", got, 3 * x + 7, device=device, arch_found=arch, arch_wanted=", ".join(ARCHS))
