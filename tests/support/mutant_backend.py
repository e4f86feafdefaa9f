"""A backend of one op, `rms_norm`, whose kernel does what the variable MUTANT says: a plug-in for tests."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch

from deepinfer.hal.backend import Backend
from deepinfer.hal.contract import CONTRACT_VERSION
from deepinfer.hal.registry import REFERENCE, REGISTRY, Kernel

NAME = "mutant"


def reference(op: str) -> Any:
    """The reference's function of an op."""
    return next(k.fn for k in REGISTRY.kernels(op) if k.backend == REFERENCE)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor | None) -> Any:
    """Right, but for what MUTANT says, as 'ROWS=FAULT,…', of calls with so many rows of 128 channels."""
    faults = dict(entry.split("=") for entry in filter(None, os.environ.get("MUTANT", "").split(",")))
    fault = faults.get(str(x.shape[0]), "") if x.shape[1] == 128 else ""
    if fault == "crash":
        os.kill(os.getpid(), 11)
    elif fault == "exit":
        os._exit(3)
    elif fault == "hang":
        time.sleep(60)
    elif fault == "raise":
        raise RuntimeError("no such luck")
    result = reference("rms_norm")(x, weight, eps, out)
    if fault == "wrong":
        result[3, 5] += 1
    return result


def supports(signature: Any) -> str | None:
    return "rows that lie apart are not supported" if not signature.args["x"].contiguous else None


class Mutant(Backend):
    name = NAME
    contract_version = CONTRACT_VERSION

    def load(self) -> None:
        REGISTRY.add(Kernel("rms_norm", 0, NAME, rms_norm, source="triton", supports=supports))


backend = Mutant()


def install(folder: Path) -> None:
    """Announce the backend by an entry point in a folder of `sys.path`."""
    info = folder / "mutant-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mutant\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[deepinfer.backends]\n{NAME} = mutant_backend:backend\n")
