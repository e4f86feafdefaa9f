"""Scaffolds of new kernels: what is written, what is refused, and that the result loads."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import deepinfer.ops  # noqa: F401 - defines the specs
from deepinfer.conformance import port, run, scaffold
from deepinfer.conformance.case import Finding, Outcome, skip
from deepinfer.conformance.results import Result, Verdict
from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.ops.spec import SPECS, HandleArg

LONGEST = 120


@pytest.mark.parametrize("op", sorted(SPECS))
@pytest.mark.parametrize("home", ["...", "deepinfer"])
def test_the_kernel_of_every_op_is_a_module_with_the_calling_convention(op: str, home: str) -> None:
    spec = SPECS[op]
    text = scaffold.module(spec, "mine", home)
    assert max(map(len, text.splitlines())) <= LONGEST
    function = ast.parse(text).body[-1]
    assert isinstance(function, ast.FunctionDef)
    assert [a.arg for a in function.args.args] == [*(a.name for a in spec.args), "out"]
    imported = {alias.name for node in ast.parse(text).body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert ("WeightHandle" in imported) == any(isinstance(a, HandleArg) for a in spec.args)
    assert f"version={spec.version}" in text


def test_a_project_outside_grows_op_by_op(tmp_path: Path) -> None:
    place = port.outside(tmp_path / "mine", "mine")
    for op in ("rms_norm", "linear_bf16", "linear_fp8"):
        port.new("mine", op, place)
    package = (place.package / "__init__.py").read_text()
    assert package.count('".norm"') == 1 and package.count('".linear"') == 1
    linear = (place.package / "linear.py").read_text()
    assert linear.count("import WeightHandle") == 1 and linear.count("@kernel") == 2
    assert 'OPS = ["linear_bf16", "linear_fp8"]' in (place.tests / "test_linear_conformance.py").read_text()
    assert 'mine = "deepinfer_mine:backend"' in (tmp_path / "mine" / "pyproject.toml").read_text()


def test_a_module_without_weights_gets_the_import_with_the_first_one(tmp_path: Path) -> None:
    place = port.outside(tmp_path, "mine")
    families: dict[str, list[str]] = {}
    for spec in SPECS.values():
        families.setdefault(spec.family, []).append(spec.name)
    mixed = next(ops for ops in families.values() if SPECS[ops[0]].handle is None and any(SPECS[o].handle for o in ops))
    for op in mixed:
        port.new("mine", op, place)
    family = SPECS[mixed[0]].family
    assert (place.package / f"{family}.py").read_text().count("import WeightHandle\n") == 1


def test_the_scaffold_loads_and_its_kernel_says_that_it_is_unwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port.new("unwritten", "rms_norm", port.outside(tmp_path, "unwritten"))
    code = (
        "import torch; from deepinfer.hal.catalog import CATALOG; from deepinfer_unwritten import backend\n"
        "CATALOG.add(backend); CATALOG.activate('unwritten')\n"
        "from deepinfer.ops import rms_norm\n"
        "rms_norm(torch.ones(1, 32).bfloat16(), torch.ones(32).bfloat16(), 0.0)"
    )
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "src"), os.environ.get("PYTHONPATH", "")])
    }
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert "NotImplementedError: the kernel of rms_norm is still to be written" in done.stderr


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    place = port.outside(tmp_path, "mine")
    port.new("mine", "rms_norm", place)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(InvalidArgumentError, match=r"OP: got 'rms_norm'; allowed: an op that .*norm\.py has no kernel"):
        port.new("mine", "rms_norm", place)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_package_that_lists_its_modules_otherwise_is_left_alone(tmp_path: Path) -> None:
    place = port.outside(tmp_path, "mine")
    place.package.mkdir(parents=True)
    (place.package / "__init__.py").write_text("kernel_modules = MODULES\n")
    with pytest.raises(InvalidArgumentError, match="kernel_modules in a tuple"):
        port.new("mine", "rms_norm", place)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["__init__.py"]


@pytest.mark.parametrize(
    "backend, op, parameter",
    [("mine", "rms_nrom", "OP"), ("My-Backend", "rms_norm", "BACKEND"), ("class", "rope", "BACKEND")],
)
def test_names_are_checked(tmp_path: Path, backend: str, op: str, parameter: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{parameter}: got"):
        port.new(backend, op, port.outside(tmp_path, backend))
    assert not any(tmp_path.iterdir())


def test_a_backend_of_the_repository(tmp_path: Path) -> None:
    (tmp_path / "backends" / "cuda").mkdir(parents=True)
    (tmp_path / "backends" / "cuda" / "__init__.py").write_text('"""None exist yet."""\n')
    place = port.inside(tmp_path, "cuda")
    port.new("cuda", "rms_norm", place)
    assert "from ...hal.registry import kernel" in (place.package / "norm.py").read_text()
    assert "from ...hal.backend import" in (place.package / "__init__.py").read_text()
    assert (tmp_path / "tests" / "backends" / "cuda" / "test_norm_conformance.py").is_file()
    assert 'device_type = "cuda"' in (place.package / "__init__.py").read_text()
    steps = port.next_steps("cuda", "rms_norm", place, lambda name: False)
    assert any("pyproject.toml" in step for step in steps)
    assert not any("pyproject.toml" in s for s in port.next_steps("cuda", "rms_norm", place, lambda name: True))


def test_a_project_is_installed_once(tmp_path: Path) -> None:
    place = port.outside(tmp_path, "mine")
    assert "pip install --no-deps -e " in port.next_steps("mine", "rope", place, lambda name: False)[0]
    assert not any("pip" in step for step in port.next_steps("mine", "rope", place, lambda name: True))


@pytest.mark.parametrize(
    ("outcomes", "says"),
    [
        ({"a": Outcome(), "b": skip("unavailable", "no memory")}, None),
        (
            {"a": Outcome((Finding("limit", "y[0] is off"),)), "b": Outcome()},
            "ops/rope/a\n    limit: y[0] is off",
        ),
        ({"a": skip("declared unsupported", "even widths only")}, "skipped 1: declared unsupported: even widths only"),
    ],
)
def test_the_written_test_accepts_a_declined_call_and_shows_what_failed(
    outcomes: dict[str, Outcome], says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [Result(f"ops/rope/{label}", outcome, True, 0.0) for label, outcome in outcomes.items()]
    monkeypatch.setattr(run, "run", lambda request: Verdict(results))
    made: dict[str, Any] = {}
    exec(scaffold.test_module(["rope"], "mine", inside=False), made)
    if says is None:
        made["test_the_kernel_keeps_the_contract"]("rope")
    else:
        with pytest.raises(AssertionError) as raised:
            made["test_the_kernel_keeps_the_contract"]("rope")
        assert says in str(raised.value) and "passed " in str(raised.value)


def test_the_source_tree_is_found() -> None:
    root = port.repository()
    assert root is not None and importlib.import_module("deepinfer.conformance").__file__
    assert (root / "conformance" / "port.py").is_file()
