"""The out-of-tree example: found by its entry point alone, it keeps the contract and runs the model."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin_backend"

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="torch.compile needs a C++ compiler"
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables under which the example counts as installed: the package, and metadata with its entry point."""
    site = tmp_path_factory.mktemp("site")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    shutil.copytree(EXAMPLE / "src" / "compiled_backend", site / "compiled_backend")
    metadata = site / f"deepinfer_compiled_backend-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("".join(lines))
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def deepinfer(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "deepinfer", *words], capture_output=True, text=True, env=environment)


def kernels() -> list[str]:
    """The ops that the example registers."""
    lines = [line for path in (EXAMPLE / "src").rglob("*.py") for line in path.read_text().splitlines()]
    return [line.split('"')[1] for line in lines if line.startswith('@kernel("')]


def test_it_is_found_by_its_entry_point(environment: dict[str, str]) -> None:
    done = deepinfer(environment, "ops", "status", "--backend", "compiled")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["compiled", "deepinfer-compiled-backend"] in [words[:2] for words in lines]
    assert all(any(words[:1] == [op] and "compiled" in words for words in lines) for op in kernels())


@pytest.mark.slow
@needs_compiler
def test_it_keeps_the_contract(environment: dict[str, str]) -> None:
    words = [word for op in kernels() for word in ("--ops", op)]
    done = deepinfer(environment, "conformance", "run", "--backend", "compiled", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    words = done.stdout.splitlines()[-1].split()  # passed N of M required
    assert words[0] == "passed" and words[1] == words[3] and int(words[1]) > 50, done.stdout


@pytest.mark.slow
@needs_compiler
def test_the_model_runs_on_it(environment: dict[str, str]) -> None:
    words = ("generate", "--backend", "compiled", "--max-tokens", "4", "--temperature", "0", "--quiet", "Once")
    done = deepinfer(environment, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
