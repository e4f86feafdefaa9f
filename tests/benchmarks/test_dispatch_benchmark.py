"""The dispatch benchmark runs, and leaves neither its op nor its kernel behind."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from deepinfer.hal.registry import REGISTRY
from deepinfer.ops.spec import SPECS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "dispatch.py"


def test_it_measures_both_sides_and_cleans_up() -> None:
    spec = importlib.util.spec_from_file_location("dispatch_benchmark", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for _ in range(2):
        found = module.run(repeats=2, number=50)
        assert found["dispatch_us"] > 0 and found["torch_add_us"] > 0 and found["bar"] == 4.0
        assert abs(found["ratio"] - found["dispatch_us"] / found["torch_add_us"]) < 1e-9
    assert module.OP not in SPECS and not REGISTRY.kernels(module.OP) and REGISTRY.active != "null"
