"""Which level a machine is at, and the one message for what is half there; with fake tools."""

from __future__ import annotations

import pickle
import re
import subprocess
from pathlib import Path

import pytest

from ascend_machine import HOME, WHOLE, Fake
from deepinfer.backends.ascend import AscendBackend, discovery, driver, verdict, versions
from deepinfer.backends.ascend.discovery import Found, Level, discover
from deepinfer.backends.ascend.errors import AscendSetupError, CannError, ChipError, TorchNpuError
from deepinfer.hal.backend import Available, Unavailable

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("machine", "level"),
    [
        ({"lowering": "no tilelang", "simulator": "no tilelang"}, Level.NOTHING),
        ({}, Level.LOWERING),
        ({"cann": "9.2.1"}, Level.CANN),
        ({"cann": "9.2.1", "lowering": "no tilelang"}, Level.CANN),
        ({"cann": "9.2.1", "torch_npu": "2.13.0"}, Level.TORCH_NPU),
        (WHOLE, Level.CHIP),
        ({**WHOLE, "devices": ["Ascend910_9391"]}, Level.TORCH_NPU),
    ],
)
def test_levels(machine: dict[str, object], level: Level) -> None:
    assert discover(Fake(**machine)).level is level  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("machine", "kind", "words"),
    [
        ({"torch_npu": "2.13.0"}, TorchNpuError, ["torch_npu 2.13.0", "CANN is not", "pip uninstall torch_npu"]),
        ({"cann": "8.5.0", "torch_npu": "2.13.0"}, CannError, ["CANN is 8.5.0", "from 9.2 on", "set_env.sh"]),
        ({"cann": "10.0"}, CannError, ["CANN is 10.0", "below 10"]),
        ({"library": True}, CannError, ["no version of CANN", "ASCEND_HOME_PATH"]),
        (
            {"cann": "9.2", "torch_npu": "2.12.0"},
            TorchNpuError,
            ["2.12.0 beside torch 2.13.0", "pip install 'torch_npu==2.13.*'"],
        ),
        ({**WHOLE, "devices": ImportError("libhccl.so: no such file\nmore")}, TorchNpuError, ["libhccl.so", "set_env"]),
        ({**WHOLE, "devices": ["Ascend910B3"]}, ChipError, ["Ascend910B3", "Ascend 950", "simulator here"]),
        ({**WHOLE, "devices": ["Ascend950PR", "Ascend910B3"]}, ChipError, ["Ascend910B3"]),
    ],
)
def test_what_is_half_there_is_one_clear_message(
    machine: dict[str, object], kind: type[AscendSetupError], words: list[str]
) -> None:
    found = discover(Fake(**machine))  # type: ignore[arg-type]
    assert type(found.problem) is kind
    message = str(found.problem)
    assert all(word in message for word in words) and "\n" not in message
    refused = verdict(found)
    assert isinstance(refused, Unavailable) and str(refused) == message
    again = pickle.loads(pickle.dumps(found.problem))
    assert type(again) is kind and str(again) == message


@pytest.mark.parametrize("machine", [{"torch_npu": "2.13.0"}, {"cann": "8.0", "torch_npu": "2.13.0"}])
def test_torch_npu_is_not_imported_before_cann_is_known_to_fit(machine: dict[str, str]) -> None:
    fake = Fake(**machine)  # type: ignore[arg-type]
    discover(fake)
    assert not fake.asked, "importing torch_npu without its libraries breaks torch"


def test_a_device_is_preferred_to_the_simulator() -> None:
    found = verdict(discover(Fake(**WHOLE)))  # type: ignore[arg-type]
    assert isinstance(found, Available) and "2 x Ascend950PR_9599, CANN 9.2.0, torch_npu 2.13.0" == found.detail


def test_without_a_device_kernels_are_simulated_and_said_to_be() -> None:
    found = verdict(discover(Fake()))
    assert isinstance(found, Available) and "simulated" in found.detail and "level 1" in found.detail
    none = verdict(discover(Fake(simulator="no C++ compiler 'g++'")))
    assert isinstance(none, Unavailable) and "no C++ compiler" in none.reason and "build.sh" in none.remedy


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("toolkit_running_version=[9.2.RC1:9.2.RC1.alpha001]", "9.2.RC1.alpha001"),
        ("toolkit_running_version=[CANN:9.2.0]", "9.2.0"),
        ("package_name=x\nversion=9.3.1\n", "9.3.1"),
        ("Version=9.2.0", "9.2.0"),
        ("nothing", ""),
    ],
)
def test_versions_of_cann_as_its_files_state_them(text: str, version: str) -> None:
    fake = Fake(library=True)
    fake.files = {f"{HOME}/version.info": text}
    assert discover(fake).cann == (version or "of unknown version")


@pytest.mark.parametrize("where", [0, 1, 2, 3, 4, 5])
def test_a_toolkit_is_found_wherever_the_installation_looks(where: int) -> None:
    """build.sh installs torch_npu for a toolkit in these places, so discovery has to look in them, in this order."""
    environ = {"ASCEND_HOME_PATH": "/opt/a b", "ASCEND_TOOLKIT_HOME": "/opt/t", "HOME": "/home/u v"}
    folders = installation(environ)
    assert folders == [
        "/opt/a b",
        "/opt/t",
        "/usr/local/Ascend/ascend-toolkit/latest",
        "/usr/local/Ascend/cann",
        "/home/u v/Ascend/ascend-toolkit/latest",
        "/home/u v/Ascend/cann",
    ]
    fake = Fake(environ=environ)
    fake.files = {f"{folder}/version.cfg": f"version=9.2.{n}\n" for n, folder in enumerate(folders) if n >= where}
    fake.loads = lambda library: library == f"{folders[where]}/lib64/libascendcl.so"  # type: ignore[method-assign]
    assert discover(fake).cann == f"9.2.{where}"


@pytest.mark.parametrize(
    "environ", [{}, {"HOME": ""}, {"ASCEND_HOME_PATH": "", "ASCEND_TOOLKIT_HOME": "/t", "HOME": "/h"}]
)
def test_what_is_not_set_names_no_folder(environ: dict[str, str]) -> None:
    assert discovery._homes(Fake(environ=environ)) == installation(environ)


def installation(environ: dict[str, str]) -> list[str]:
    """Where build.sh looks for a toolkit."""
    script = (ROOT / "build.sh").read_text(encoding="utf-8")
    (function,) = re.findall(r"^cann_folders\(\) \{$.*?^\}$", script, flags=re.DOTALL | re.MULTILINE)
    command = ["/bin/bash", "-euc", f"{function}\ncann_folders"]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_compiler_is_found_under_its_home_or_on_the_path(tmp_path: Path) -> None:
    assert discover(Fake()).compiler == "no bisheng with its ld.lld on the PATH"
    assert not discover(Fake(programs=("bisheng", "ld.lld"))).compiler
    assert discover(Fake(programs=("bisheng",))).compiler, "the linker is needed as well"
    home = Fake(programs=("/b/bin/bisheng", "/b/bin/ld.lld"), environ={"BISHENG_HOME": "/b"})
    assert not discover(home).compiler
    compiling, linking = driver.compile_commands(Path("k.asc"), tmp_path / "k.aibin", home)
    assert compiling[0] == "/b/bin/bisheng" and linking[0] == "/b/bin/ld.lld"
    assert {"--npu-arch=dav-3510", "-ffp-contract=off", "--cce-aicore-only"} <= set(compiling)
    assert compiling[-1] == linking[-3] == str(tmp_path / "k.o") and linking[-1] == str(tmp_path / "k.aibin")
    with pytest.raises(CannError, match="BISHENG_HOME"):
        driver.compile_commands(Path("k.asc"), tmp_path / "k.aibin", Fake())


def test_a_compiler_that_refuses_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name, body in (("bisheng", "echo 'k.asc:3: error: no such call' >&2; exit 1"), ("ld.lld", "exit 0")):
        tool = tmp_path / "bin" / name
        tool.write_text(f"#!/bin/sh\n{body}\n")
        tool.chmod(0o755)
    fake = Fake(programs=tuple(str(tmp_path / "bin" / n) for n in ("bisheng", "ld.lld")))
    fake.environ = {"BISHENG_HOME": str(tmp_path)}
    with pytest.raises(CannError, match="no such call"):
        driver.compile_image("text", tmp_path / "k.aibin", fake)


def test_the_matrix() -> None:
    installed = {"torch": "2.13.0", "tilelang": "0.1.15"}
    assert versions.problem(installed.get) is None and versions.problem({}.get) is None
    wrong = versions.problem({**installed, "tilelang": "0.1.14"}.get)
    assert wrong is not None and "tilelang is 0.1.14" in str(wrong) and "pip install" in wrong.remedy
    assert "torch_npu is 2.12.1 beside torch 2.13.0" in str(versions.problem({**installed, "torch_npu": "2.12.1"}.get))
    assert "no number" in versions.unfit("CANN", "unknown")
    for line in versions.MATRIX:
        assert versions.numbers(line.lowest) < versions.numbers(line.below), line


def test_what_does_not_fit_the_matrix_makes_the_backend_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PROBLEM", versions.problem({"tilelang": "0.2.0"}.get))
    refused = AscendBackend().probe()
    assert isinstance(refused, Unavailable) and "tilelang is 0.2.0" in refused.reason


def test_the_backend_is_on_the_device_where_it_answers() -> None:
    there, simulated = AscendBackend(), AscendBackend()
    there.found = Found(Level.CHIP, "", "", "", "9.2", "2.13", "1 x Ascend950PR")  # type: ignore[misc]
    simulated.found = Found(Level.LOWERING, "", "", "")  # type: ignore[misc]
    assert (there.device_type, simulated.device_type) == ("npu", "cpu")
    assert discovery.LIBRARY == "libascendcl.so"
