"""The known-answer test at load: passes where arithmetic is right, and names the chips where it is not."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from deepinfer.backends.cuda import backend, self_test_kernels
from deepinfer.backends.cuda.jit import INTERPRETED
from deepinfer.hal.backend import Available
from deepinfer.hal.device import Device
from deepinfer.hal.errors import SelfTestError

if not INTERPRETED and not torch.cuda.is_available():
    pytest.skip("needs the interpreter or a GPU", allow_module_level=True)
DEVICE = Device("cpu" if INTERPRETED else "cuda")


def test_the_device_gives_the_known_answers() -> None:
    assert isinstance(backend.probe(), Available)
    backend.self_test(DEVICE)


@pytest.mark.parametrize(
    ("wrong", "check"), [(0, "casts to E4M3"), (1, "a product of bf16 numbers"), (2, "64-bit integers")]
)
def test_a_wrong_answer_names_the_check_and_the_chips(monkeypatch: pytest.MonkeyPatch, wrong: int, check: str) -> None:
    right = self_test_kernels.answers(self_test_kernels.inputs())

    def answers(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        changed = [part.clone() for part in right]
        changed[wrong][3, 5] += 1
        return tuple(changed)

    monkeypatch.setattr(self_test_kernels, "answers", answers)
    with pytest.raises(SelfTestError, match=f"'{check}'.*the kernels are for sm_90 and sm_100"):
        self_test_kernels.run(DEVICE, "sm_80")


def test_every_answer_is_exact_in_fp32() -> None:
    _, product, _ = self_test_kernels.answers(self_test_kernels.inputs())
    assert product.abs().max() * 64 < 2**24 and torch.equal((product * 64).round(), product * 64)
