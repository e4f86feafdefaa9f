"""An out-of-tree backend: kernels that torch.compile makes on the CPU, behind the op contract of deepinfer.

Modules are named after the op families, as in every backend, so that an op's implementations are found side by side.
"""

from __future__ import annotations

import shutil

import torch

from deepinfer.hal.backend import Available, Backend, Unavailable, known_answer
from deepinfer.hal.contract import CONTRACT_VERSION
from deepinfer.hal.device import Device


class CompiledBackend(Backend):
    """Runs where torch.compile finds a C++ compiler."""

    name = "compiled"
    contract_version = CONTRACT_VERSION
    package = __name__
    kernel_modules = (".norm", ".linear", ".index")

    def probe(self) -> Available | Unavailable:
        # Quick, and without loading a kernel: the engine asks every backend at start.
        compiler = next(filter(shutil.which, ("g++", "clang++", "c++")), None)
        if compiler is None:
            return Unavailable("torch.compile needs a C++ compiler; install g++ (Debian, Ubuntu: the package g++)")
        return Available(f"torch {torch.__version__}, {compiler}")

    def self_test(self, device: Device) -> None:
        """Three products whose result is known: the tiles, the padding and the layout of the prepared weight."""
        from .linear import multiply, transpose

        (weight,) = transpose(torch.tensor([[1.0, 2.0], [3.0, -4.0]], dtype=torch.bfloat16))
        got = multiply(torch.tensor([[1.0, 1.0], [0.5, -1.0], [0.0, 2.0]]), weight, 2)
        want = torch.tensor([[3.0, -1.0], [-1.5, 5.5], [4.0, -8.0]])
        known_answer("product", got, want, device=device, arch_found="cpu", arch_wanted="any")


backend = CompiledBackend()
