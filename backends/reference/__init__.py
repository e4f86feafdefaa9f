"""The reference backend: plain PyTorch on any torch device, in the order and precision of the specification.

It is the oracle of the contract and the default where there is no accelerator. Importing this package registers
nothing; `backend.load()` does.
"""

from __future__ import annotations

import torch

from ...hal.backend import Available, Backend, Unavailable, known_answer
from ...hal.contract import CONTRACT_VERSION
from ...hal.device import Device
from ...hal.graph import Graphs, GraphsUnavailable, NoGraphReason


class ReferenceBackend(Backend):
    """Runs wherever torch does; `Device` says where."""

    name = "reference"
    contract_version = CONTRACT_VERSION
    package = __name__
    checked = ("reference",)
    kernel_modules = (
        ".embed",
        ".norm",
        ".quant",
        ".linear",
        ".rope",
        ".hyper_connections",
        ".kv",
        ".attention",
        ".index",
        ".moe",
        ".engram",
        ".sampling",
        ".draft",
        ".verify",
        ".step",
        ".moves",
        ".sampling_rows",
        ".exchange",
        ".mirror",
        ".fused",
        ".vision",
    )

    def probe(self) -> Available | Unavailable:
        return Available(f"torch {torch.__version__}")

    def load(self) -> None:
        """Register the kernels, and refuse a contract in which an op has none."""
        from ... import ops  # noqa: F401  (defines the specs)
        from ...ops.spec import freeze

        super().load()
        freeze()

    def level(self, device: Device) -> str:
        return "reference"

    def graphs(self, device: Device) -> Graphs | GraphsUnavailable:
        if device.type == "cpu":
            return GraphsUnavailable(device, NoGraphReason.NO_DEVICE_QUEUE)
        return GraphsUnavailable(device, NoGraphReason.FALLBACK_KERNELS, "the reference kernels are never captured")

    def self_test(self, device: Device) -> None:
        """Quantise a block whose codes are known, and multiply it: casts and products of the device are right.

        The block holds 448 (the largest E4M3, so the scale is 1), a tie between two codes (17 lies between 16 and 18,
        and goes to the even code), a subnormal (2^-9), the tie that goes to zero (2^-10) and a negative number.
        """
        from ...ops.spec import WeightHandle
        from .linear import linear_fp8
        from .quant import quant_fp8

        x = torch.zeros(1, 32, dtype=torch.bfloat16)
        x[0, :5] = torch.tensor([448.0, 17.0, 2.0**-9, 2.0**-10, -1.5])
        codes = torch.zeros(1, 32, dtype=torch.uint8)
        codes[0, :5] = torch.tensor([0x7E, 0x58, 0x01, 0x00, 0xBC])
        scale = torch.full((1, 1), 127, dtype=torch.uint8)
        q, s = quant_fp8(x.to(device.torch), None)
        self._compare("E4M3 codes", q.view(torch.uint8), codes, device)
        self._compare("E8M0 scale", s, scale, device)

        weight = torch.ones(32, 32).to(torch.float8_e4m3fn).to(device.torch)
        handle = WeightHandle("linear_fp8", "contract", (weight, scale.to(device.torch)), {}, 0, ())
        y = linear_fp8(q, s, handle, None)
        # 448 + 16 + 2^-9 - 1.5 = 462.5 + 2^-9, between the bf16 numbers 462 and 464
        self._compare("FP8 product", y, torch.full((1, 32), 462.0, dtype=torch.bfloat16), device)

    def _compare(self, check: str, got: torch.Tensor, want: torch.Tensor, device: Device) -> None:
        known_answer(check, got, want, device=device, arch_found=self.capability(device).arch, arch_wanted="any chip")


backend = ReferenceBackend()
