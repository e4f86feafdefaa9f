"""The operators on kernels of another backend: those of the out-of-tree example, with their prepared weights."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from mutation import arguments, families, outputs  # noqa: F401 - they fill the table
from mutation.catch import catch
from mutation.operator import OPERATORS

import deepinfer.ops  # noqa: F401 - defines the specs
from deepinfer.hal.registry import REGISTRY, Kernel
from deepinfer.ops.spec import SPECS

SOURCE = Path(__file__).parents[2] / "examples" / "plugin_backend" / "src"
MODULES = {"topk_select": "index", "linear_bf16": "linear", "rms_norm": "norm"}
FITTING = {
    op: [n for n, o in OPERATORS.items() if o.fits(SPECS[op]) and op not in o.blind and "far" not in o.suites]
    for op in MODULES
}


@pytest.fixture(scope="module")
def kernels() -> Iterator[dict[str, Kernel]]:
    """The example's kernels; they leave the registry as they came."""
    if not any(map(shutil.which, ("g++", "clang++", "c++"))):
        pytest.skip("torch.compile needs a C++ compiler")
    before = set(map(id, REGISTRY.kernels()))
    sys.path.insert(0, str(SOURCE))
    try:
        for name in MODULES.values():
            importlib.import_module(f"compiled_backend.{name}")
        found = [k for k in REGISTRY.kernels() if id(k) not in before]
        yield {k.op: k for k in found}
    finally:
        sys.path.remove(str(SOURCE))
        for kernel in [k for k in REGISTRY.kernels() if id(k) not in before]:
            REGISTRY.remove(kernel)
        for name in [n for n in sys.modules if n.partition(".")[0] == "compiled_backend"]:
            del sys.modules[name]


@pytest.mark.parametrize("op", MODULES)
def test_the_suite_sees(kernels: dict[str, Kernel], op: str) -> None:
    with torch.compiler.set_stance("force_eager"):  # what is compiled is what is written, and takes minutes
        missed = [name for name in FITTING[op] if not catch(OPERATORS[name], op, kernels[op])[0]]
    assert len(FITTING[op]) >= 10 and not missed
