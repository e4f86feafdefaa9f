"""build.sh, run against a stub interpreter that records what would be installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

DEV = "test,dev,crosscheck,recipe-test,structured,images,page-test,ascend-sim,cuda-sim,cuda-check"
"""The extras of `./build.sh dev`."""

STUB = """#!/bin/sh
case "$1 $2" in
    "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && echo "venv" >>"$STUB_LOG"; exit ;;
    "-m pip" | "-m pytest" | "-m deepinfer"*) shift; echo "$*" >>"$STUB_LOG"; exit "${STUB_STATUS:-0}" ;;
    "-c "*torch.version.cuda*) exit "${STUB_WITHOUT_CUDA:-0}" ;;
esac
exec "$STUB_PYTHON" "$@"
"""


@pytest.fixture
def tree(root: Path, tmp_path: Path) -> Path:
    """A copy of what build.sh reads, in a folder whose name has a space."""
    tree = tmp_path / "a tree"
    tree.mkdir()
    for name in ("build.sh", "pyproject.toml"):
        shutil.copy2(root / name, tree / name)
    shutil.copytree(root / "constraints", tree / "constraints")
    return tree


@pytest.fixture
def build(tree: Path, tmp_path: Path) -> Run:
    """Calls the copied build.sh from another folder, with no accelerator or CANN of this machine in sight."""
    stub = tmp_path / "the python"
    stub.write_text(STUB)
    stub.chmod(0o755)
    (tmp_path / "home").mkdir()

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        hidden = ("DEEPINFER_", "ASCEND_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        env |= {
            "DEEPINFER_ACCELERATOR": "cpu",
            "DEEPINFER_PYTHON": str(stub),
            "HOME": str(tmp_path / "home"),
            "STUB_LOG": str(tmp_path / "log"),
            "STUB_PYTHON": sys.executable,
        }
        command = [str(tree / "build.sh"), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=env | variables, capture_output=True, text=True)

    return run


@pytest.fixture
def log(tmp_path: Path) -> Callable[[], list[str]]:
    """What the stub was asked for since the last call."""

    def read() -> list[str]:
        path = tmp_path / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    return read


def installed(lines: list[str]) -> list[tuple[str, str]]:
    """(constraints file, what is installed) of each pip call."""
    return [(line.split("--constraint ")[1].split()[0], line.split()[-1]) for line in lines if line.startswith("pip")]


def test_torch_comes_first_through_the_constraints(build: Run, log: Callable[[], list[str]]) -> None:
    done = build()
    assert done.returncode == 0, done.stderr
    lines = log()
    assert lines[0] == "venv"
    assert installed(lines) == [("constraints/cpu.txt", "torch"), ("constraints/cpu.txt", ".")]


def test_a_second_run_installs_nothing(build: Run, log: Callable[[], list[str]]) -> None:
    assert build().returncode == 0
    log()
    assert build().returncode == 0
    assert log() == []


def test_extras_add_up_and_survive_a_changed_project(tree: Path, build: Run, log: Callable[[], list[str]]) -> None:
    build("dev")
    assert installed(log())[-1][1] == f".[{DEV}]"
    done = build("test", "-k", "a name")
    assert done.returncode == 0
    assert log() == ["pytest -k a name"]
    with (tree / "pyproject.toml").open("a") as file:
        file.write("\n")
    build()
    lines = log()
    assert "venv" not in lines
    assert installed(lines)[-1][1] == f".[{DEV}]"


def test_a_failed_installation_is_tried_again(build: Run, log: Callable[[], list[str]]) -> None:
    assert build(STUB_STATUS="3").returncode != 0
    assert build("test", STUB_STATUS="3").returncode != 0
    assert not any(line.startswith("pytest") for line in log())
    assert build().returncode == 0
    assert installed(log())


def test_failing_tests_fail_the_command(build: Run) -> None:
    assert build("test").returncode == 0
    assert build("test", STUB_STATUS="1").returncode == 1


def test_another_accelerator_makes_the_environment_anew(build: Run, log: Callable[[], list[str]]) -> None:
    build()
    log()
    assert build(DEEPINFER_ACCELERATOR="nvidia").returncode == 0
    lines = log()
    assert lines[0] == "venv"
    assert installed(lines)[0] == ("constraints/nvidia.txt", "torch")


def test_a_torch_without_cuda_is_no_installation_for_nvidia(build: Run, log: Callable[[], list[str]]) -> None:
    done = build(DEEPINFER_ACCELERATOR="nvidia", STUB_WITHOUT_CUDA="1")
    assert done.returncode == 1 and "the torch that pip found has no CUDA; check pip's configuration" in done.stderr
    assert [what for _, what in installed(log())] == ["torch"]
    assert build(DEEPINFER_ACCELERATOR="nvidia").returncode == 0, "the failed one left no stamp behind"
    assert build(STUB_WITHOUT_CUDA="1").returncode == 0, "a CPU needs none"


def test_a_moved_tree_makes_the_environment_anew(tree: Path, build: Run, log: Callable[[], list[str]]) -> None:
    build()
    log()
    made_with = tree / ".venv" / ".deepinfer-made-with"
    made_with.write_text(made_with.read_text().replace("a tree", "another tree"))
    assert build().returncode == 0
    assert log()[0] == "venv"


def test_a_foreign_environment_is_left_alone(tree: Path, build: Run, log: Callable[[], list[str]]) -> None:
    (tree / ".venv").mkdir()
    (tree / ".venv" / "mine").touch()
    done = build()
    assert done.returncode == 1
    assert ".venv was not made by build.sh" in done.stderr
    assert (tree / ".venv" / "mine").exists()
    assert log() == []


@pytest.mark.parametrize(
    ("spelling", "constraints"),
    [("cpu", "cpu"), ("reference", "cpu"), ("nvidia", "nvidia"), ("cuda", "nvidia"), ("ascend", "ascend")],
)
def test_both_spellings_of_an_accelerator(
    build: Run, log: Callable[[], list[str]], spelling: str, constraints: str
) -> None:
    build(DEEPINFER_ACCELERATOR=spelling)
    assert {file for file, _ in installed(log())} == {f"constraints/{constraints}.txt"}


@pytest.mark.parametrize("command", [[], ["test"], ["--check"]])
def test_an_unknown_accelerator_is_an_error_that_lists_the_known(
    build: Run, log: Callable[[], list[str]], command: list[str]
) -> None:
    done = build(*command, DEEPINFER_ACCELERATOR="tpu")
    assert done.returncode == 2
    for word in ("DEEPINFER_ACCELERATOR", "'tpu'", "cpu", "nvidia", "ascend", "reference", "cuda"):
        assert word in done.stderr
    assert log() == []


def test_torch_npu_is_installed_only_where_cann_is(build: Run, log: Callable[[], list[str]], tmp_path: Path) -> None:
    done = build(DEEPINFER_ACCELERATOR="ascend")
    lines = log()
    assert [what for _, what in installed(lines)] == ["torch", ".[ascend-sim]"]
    assert lines[-1] == "deepinfer.backends.ascend.build --self-test"
    assert "deepinfer generate --model kernel --backend ascend" in done.stdout
    assert "torch_npu is left out" in done.stdout
    build(DEEPINFER_ACCELERATOR="ascend", ASCEND_HOME_PATH=str(tmp_path))
    lines = log()
    assert lines[0] == "venv"
    assert [what for _, what in installed(lines)] == ["torch", "torch_npu", ".[ascend-sim]"]
    build(DEEPINFER_ACCELERATOR="ascend")
    assert log()[0] == "venv", "without CANN an environment with torch_npu is of no use"


def test_cann_does_not_matter_to_other_accelerators(build: Run, log: Callable[[], list[str]], tmp_path: Path) -> None:
    build(ASCEND_HOME_PATH=str(tmp_path))
    assert [what for _, what in installed(log())] == ["torch", "."]


def test_a_gpu_is_detected_by_its_driver(build: Run, log: Callable[[], list[str]], tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\nexit 0\n")
    (tools / "nvidia-smi").chmod(0o755)
    build(DEEPINFER_ACCELERATOR="", PATH=f"{tools}:{os.environ['PATH']}")
    assert installed(log())[0][0] == "constraints/nvidia.txt"


def test_the_interpreter_is_checked_first(build: Run, log: Callable[[], list[str]], tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    bare = tmp_path / "bare"
    bare.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\nexec "$STUB_PYTHON" "$@"\n')
    bare.chmod(0o755)
    for python, message in (
        (old, "is not Python 3.11 or later"),
        (tmp_path / "none", "is not a program"),
        (bare, "has no venv module"),
    ):
        done = build(DEEPINFER_PYTHON=str(python))
        assert done.returncode == 1
        assert message in done.stderr
    assert log() == []


def test_the_interpreter_may_be_a_relative_path(build: Run, log: Callable[[], list[str]]) -> None:
    assert build(DEEPINFER_PYTHON="./the python").returncode == 0
    assert log()[0] == "venv"


def test_an_activated_environment_does_not_remove_its_own_interpreter(tree: Path, build: Run) -> None:
    venv.create(tree / ".venv", with_pip=False)
    (tree / ".venv" / ".deepinfer-made-with").write_text("another accelerator\n")
    done = build("--dry-run", DEEPINFER_PYTHON=str(tree / ".venv" / "bin" / "python"))
    assert done.returncode == 0, done.stderr
    (making,) = [line for line in done.stdout.splitlines() if " -m venv " in line]
    assert ".venv/bin" not in making.split(" -m venv ")[0]


def test_check_diagnoses_without_installing(tree: Path, build: Run, log: Callable[[], list[str]]) -> None:
    done = build("--check")
    assert done.returncode == 1, "there is no torch before the first build"
    for word in ("Python", "torch", "compiler", "driver", "CUDA", "CANN", "memory", "./build.sh makes it"):
        assert word in done.stdout
    assert log() == []
    assert not (tree / ".venv").exists()


def test_check_asks_for_what_the_accelerator_needs(build: Run) -> None:
    done = build("--check", DEEPINFER_ACCELERATOR="ascend")
    assert done.returncode == 1
    assert "ASCEND_HOME_PATH" in done.stdout


def test_check_names_a_torch_npu_without_cann(tree: Path, build: Run, tmp_path: Path) -> None:
    python = tree / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        """#!/bin/sh
case "$2" in
    *torch.__version__*) [ "$TORCH_DEVICE_BACKEND_AUTOLOAD" = 0 ] && echo 2.13.0 ;;
    *torch_npu*) exec "$STUB_PYTHON" "$@" ;;
esac
"""
    )
    python.chmod(0o755)
    (tmp_path / "torch_npu").mkdir()
    (tmp_path / "torch_npu" / "__init__.py").write_text("raise ImportError('libhccl.so')")
    done = build("--check", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1 and "installed without CANN" in done.stdout and "pip uninstall torch_npu" in done.stdout
    assert "2.13.0" in done.stdout, "torch itself is well"
    assert (
        "installed without CANN"
        not in build("--check", PYTHONPATH=str(tmp_path), ASCEND_HOME_PATH=str(tmp_path)).stdout
    )
    assert "installed without CANN" not in build("--check", PYTHONPATH="").stdout


def test_check_is_ready_after_a_build(build: Run, tmp_path: Path) -> None:
    build()
    done = build("--check")
    assert done.returncode == 0, done.stdout
    assert "ready" in done.stdout


def test_a_dry_run_does_nothing(tree: Path, build: Run, log: Callable[[], list[str]]) -> None:
    done = build("--dry-run", "test", "-k", "x")
    assert done.returncode == 0
    assert "--constraint constraints/cpu.txt torch" in done.stdout
    assert log() == []
    assert not (tree / ".venv").exists()


@pytest.mark.parametrize("arguments", [["instal"], ["--chek"], ["dev", "extra"], ["--check", "x"]])
def test_wrong_arguments_are_refused(build: Run, log: Callable[[], list[str]], arguments: list[str]) -> None:
    done = build(*arguments)
    assert done.returncode == 2
    assert "--help" in done.stderr
    assert log() == []


def test_help_names_every_command(build: Run) -> None:
    done = build("--help")
    assert done.returncode == 0
    for word in ("test", "dev", "--check", "--dry-run", "DEEPINFER_ACCELERATOR", "DEEPINFER_PYTHON"):
        assert word in done.stdout


@pytest.mark.parametrize("name", ["build.sh", ".ci/run"])
def test_shell_scripts_are_clean(root: Path, name: str) -> None:
    subprocess.run(["bash", "-n", root / name], check=True)
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed; the syntax is right")
    done = subprocess.run(["shellcheck", root / name], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
