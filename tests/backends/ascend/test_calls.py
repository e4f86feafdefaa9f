"""That every call the simulator offers, and every call that lowering emits, has a test of its own."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import ascend_calls
import ascend_simd_calls
from ascend import every, needs_compiler, needs_tilelang, text
from ascend_calls import CALL, Calls, emitted, named
from deepinfer.backends.ascend.sim import build

pytestmark = needs_compiler


@cache
def offered() -> set[str]:
    """Names of functions in the preprocessed headers."""
    command = [build.compiler()[0], "-std=c++20", "-E", "-P", f"-I{build.HERE / 'include'}", "-x", "c++", "-"]
    text = '#include "c_api/asc_simd.h"\n#include "simt_api/asc_simt.h"\n'
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    names = set(re.findall(r"inline\s[^;{}()=]*?" + CALL + r"\(", done.stdout))
    return {name for name in names if not name.endswith("_t")}


def modules() -> list[ModuleType]:
    """The modules with tests of calls."""
    found = []
    for path in sorted(Path(__file__).parent.glob("test_calls_*.py")):
        spec = importlib.util.spec_from_file_location(f"calls_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.append(module)
    return found


@cache
def registry() -> dict[str, set[str]]:
    """By call, its tests: cases of its name on vector registers, statements with it, bodies of its name in threads."""
    found: dict[str, set[str]] = {}
    for case in ascend_simd_calls.CASES:
        found.setdefault(case.name.partition("-")[0], set()).add(f"test_calls_simd: {case.name}")
    for module in modules():
        tables = [of.statements for of in vars(module).values() if isinstance(of, Calls)]
        for statements in tables:
            for name, statement in statements.items():
                for call in named(statement):
                    found.setdefault(call, set()).add(f"{module.__name__}: {name}")
        for name in getattr(module, "BODIES", ()):
            found.setdefault(name.partition(" ")[0], set()).add(f"{module.__name__}: {name}")
    # What begins every kernel has no effect to test.
    found.setdefault("asc_init", set()).add("all")
    return found


def test_every_call_that_the_headers_define_has_a_test() -> None:
    assert {"asc_mmad_mx", "asc_copy_l0c2ub", "asc_max_scalar", "asc_shfl_down", "asc_set_atomic_min_int8"} <= offered()
    assert sorted(offered() - registry().keys()) == []


@needs_tilelang
@pytest.mark.parametrize("name, what", every())
def test_every_call_that_lowering_emits_has_a_test(name: str, what: str) -> None:
    calls = emitted(text(name, what))
    assert "asc_init" in calls and len(calls) >= 5
    assert sorted(calls - registry().keys()) == []


@needs_tilelang
def test_calls_inside_of_the_templates_are_found() -> None:
    calls = emitted("ascend_gemm_l1<32, 32>(c); auto x = simd_inst::vadd(a, b, m, MODE_ZEROING); asc_exp;")
    assert {"asc_mmad", "asc_copy_l12l0a", "asc_lock", "asc_add"} <= calls and "asc_exp" not in calls


def test_a_call_without_a_test_is_noticed() -> None:
    assert "asc_no_such_call" in named("asc_no_such_call(x);") - registry().keys()
    assert ascend_calls.named("asc_init;") == set()
