"""That every call the simulator offers has a test of its own."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import ascend_simd_calls
from ascend import SOURCES, needs_compiler
from ascend_calls import Calls
from deepinfer.backends.ascend.sim import build

pytestmark = needs_compiler
# Conversions and the two fused forms keep the names that the device compiler has for its own.
CALL = r"\b(asc_[a-z0-9_]+|vcvt|vmadd|vmula)"


def offered() -> set[str]:
    """Names of functions in the preprocessed headers."""
    command = [build.compiler()[0], "-std=c++20", "-E", "-P", f"-I{build.HERE / 'include'}", "-x", "c++", "-"]
    text = '#include "c_api/asc_simd.h"\n#include "simt_api/asc_simt.h"\n'
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    names = set(re.findall(r"inline\s[^;{}()=]*?" + CALL + r"\(", done.stdout))
    return {name for name in names if not name.endswith("_t")}


def covered() -> set[str]:
    """Names in the kernels of the tests of calls, and in those written by hand."""
    texts = [ascend_simd_calls.text()] + [path.read_text(encoding="utf-8") for path in SOURCES.glob("*.cpp")]
    for path in sorted(Path(__file__).parent.glob("test_calls_*.py")):
        spec = importlib.util.spec_from_file_location(f"calls_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        texts += [found.text for found in vars(module).values() if isinstance(found, Calls)]
    return set(re.findall(CALL + r"(?=[(<])", "\n".join(texts)))


def test_every_call_is_tested() -> None:
    names = offered()
    assert {"asc_mmad_mx", "asc_copy_l0c2ub", "asc_max_scalar", "asc_shfl_down", "asc_set_atomic_min_int8"} <= names
    assert sorted(names - covered()) == []
