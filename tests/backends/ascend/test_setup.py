"""What is half installed, or wrong: one clear message from every command, before anything of it is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from ascend_machine import WHOLE, Fake
from deepinfer.backends import ascend
from deepinfer.backends.ascend import build, self_test, versions
from deepinfer.backends.ascend.discovery import discover
from deepinfer.backends.ascend.lower import LoweringError
from deepinfer.backends.ascend.program import Program
from deepinfer.cli.main import main
from deepinfer.hal import catalog

MACHINES = {
    "torch_npu without CANN": ({"torch_npu": "2.13.0"}, "torch_npu 2.13.0 is installed and CANN is not"),
    "torch_npu without a library": (
        {**WHOLE, "devices": ImportError("libhccl.so: cannot open shared object file\nmore")},
        "torch_npu is installed and cannot be used: ImportError: libhccl.so",
    ),
    "another torch's torch_npu": ({"cann": "9.2", "torch_npu": "2.12.0"}, "torch_npu is 2.12.0 beside torch 2.13.0"),
    "an older CANN": ({"cann": "8.5.0"}, "CANN is 8.5.0; wanted: from 9.2 on"),
    "another chip": ({**WHOLE, "devices": ["Ascend910B3"]}, "the device is Ascend910B3"),
}


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A machine on which something is wrong, in place of this one; what has to be said."""
    tools, words = MACHINES[request.param]
    monkeypatch.setitem(vars(ascend.backend), "found", discover(Fake(**tools)))  # type: ignore[arg-type]
    monkeypatch.setattr(catalog.CATALOG, "_loaded", catalog.CATALOG._loaded - {"ascend"})
    return words


@pytest.mark.parametrize(
    "command",
    [
        ["ops", "status", "--backend", "ascend"],
        ["generate", "--model", "tiny", "--backend", "ascend", "Once"],
        ["conformance", "run", "--backend", "ascend", "--ops", "rms_norm", "--suite", "quick"],
    ],
    ids=lambda command: command[0],
)
def test_commands_say_it_and_end_with_2(machine: str, command: list[str]) -> None:
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: backend 'ascend' is not available here: ") and machine in line


def test_the_build_says_it_once_and_runs_no_self_test(
    machine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(self_test, "run", lambda *given: pytest.fail("of a backend that cannot run"))
    monkeypatch.setattr(sys, "argv", ["build", "--self-test", "--name", "self_test"])
    assert build.main() == 1
    said = capsys.readouterr().out
    assert said.count(machine) == 1 and "no self-test: see the problem above" in said
    assert "self_test: kept text is current" in said, "what does not need it is done"


@pytest.mark.parametrize("write", [False, True])
def test_the_build_says_what_cannot_be_lowered_and_goes_on(
    write: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    broken, sound = (Program("norm_kernels.py", name) for name in ("no_such", "sound"))
    text = "tilelang refuses it"

    def lowered(program: Program) -> str:
        if program is broken:
            raise LoweringError(text)
        return "the text"

    monkeypatch.setattr(Program, "current", lambda program: False)
    monkeypatch.setattr(Program, "lowered", lowered)
    monkeypatch.setattr(Program, "committed", property(lambda program: tmp_path / program.label))
    monkeypatch.setattr(build, "programs", lambda: [broken, sound])
    monkeypatch.setattr(build, "orphans", lambda known: [])
    monkeypatch.setattr(sys, "argv", ["build", *(["--write"] if write else [])])
    assert build.main() == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-2] == f"no_such: not lowered: {text}" and said[-1].startswith("sound: lowered in ")
    assert [path.name for path in tmp_path.iterdir()] == (["sound"] if write else [])


def test_the_matrix_is_checked_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a module of its own, imported where the installed tilelang does not fit."""
    code = "import importlib.metadata as m; real = m.version\n" + (
        "m.version = lambda name: '0.2.0' if name == 'tilelang' else real(name)\n"
        "import sys; sys.modules['torch'] = type(sys)('torch')\n"  # this module needs none of it
        "import importlib.util as u\n"
        "import types; package = types.ModuleType('deepinfer.backends.ascend'); package.__path__ = [sys.argv[1]]\n"
        "sys.modules['deepinfer.backends.ascend'] = package\n"
        "from deepinfer.backends.ascend import versions; print(versions.PROBLEM)"
    )
    folder = str(Path(versions.__file__).parent)
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, env=_environment())
    assert "tilelang is 0.2.0; wanted: from 0.1.15 on" in done.stdout, done.stderr


# ---- torch loads torch_npu by itself, unless it is told not to ----------------------------------------------------


def _environment(**more: str) -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    return environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | more


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """A torch_npu as pip leaves it, on a machine without its libraries."""
    (tmp_path / "torch_npu").mkdir()
    (tmp_path / "torch_npu" / "__init__.py").write_text("raise ImportError('libhccl.so: cannot open')\n")
    data = tmp_path / "torch_npu-2.13.0.dist-info"
    data.mkdir()
    (data / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-npu\nVersion: 2.13.0\n")
    (data / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    return tmp_path


@pytest.fixture
def run(half: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A child process that has that torch_npu."""

    def of(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        environ = _environment(**more)
        environ["PYTHONPATH"] = f"{half}{os.pathsep}{environ['PYTHONPATH']}"
        return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environ)

    return of


def test_torch_is_told_not_to_load_torch_npu(run: Callable[..., subprocess.CompletedProcess[str]], half: Path) -> None:
    code = "import deepinfer, os; print(os.environ.get('TORCH_DEVICE_BACKEND_AUTOLOAD'))"
    assert run("-c", code).stdout == "0\n"
    assert run("-c", code, TORCH_DEVICE_BACKEND_AUTOLOAD="1").stdout == "1\n", "who sets it has the last word"
    (half / "torch_npu" / "__init__.py").unlink()
    (half / "torch_npu").rmdir()
    assert run("-c", code).stdout == "None\n", "where there is none, nothing is changed"


@pytest.mark.whole
def test_a_torch_npu_without_cann_is_one_message(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = run("-m", "deepinfer", "ops", "status", "--backend", "ascend")
    assert done.returncode == 2 and "torch_npu 2.13.0 is installed and CANN is not" in done.stderr
    assert "Traceback" not in done.stderr and run("-m", "deepinfer", "ops", "status").returncode == 0
