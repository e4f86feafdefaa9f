"""What of Ascend this machine has, cheapest questions first; the first that fails decides.

1. Is torch_npu installed? Asked without importing it: without CANN it breaks `import torch` itself.
2. Is CANN's runtime there (`libascendcl.so`), and in a version of the matrix?
3. Does torch_npu see a device, and is it a chip that the kernels are for?
4. Are CANN's compiler `bisheng` and its linker there?

Everything that touches the machine is in `Host`, so that the decisions are tested with fake tools.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol

from . import lower, versions
from .errors import AscendSetupError, CannError, ChipError, TorchNpuError
from .sim import build

LIBRARY = "libascendcl.so"
_HOMES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
_STATED = re.compile(r"^(?:toolkit_running_version\s*=\s*\[?(?:[^:\]\n]*:)?|[Vv]ersion\s*=\s*)(\d[\w.]*)", re.M)
_FOLDERS = ("ascend-toolkit/latest", "cann")


class Level(IntEnum):
    """How far kernels get here. Each level has what those before it have."""

    NOTHING = 0
    """Not even lowering; texts that are part of the package can be shown."""
    LOWERING = 1
    """TileLang lowers to AscendC."""
    CANN = 2
    """CANN is there as well."""
    TORCH_NPU = 3
    """torch_npu is there as well."""
    CHIP = 4
    """A device of the right chip answers."""

    @property
    def words(self) -> str:
        """What the level means, for messages."""
        return (
            "nothing: neither lowering nor a device",
            "lowering: TileLang writes AscendC; there is no CANN",
            "CANN: kernels can be compiled where bisheng is; there is no torch_npu",
            "torch_npu: CANN and torch_npu are there, and no device",
            "chip: a device answers",
        )[self]


@dataclass(frozen=True)
class Found:
    """What was found.

    Attributes:
        level: how far kernels get.
        lowering, simulator, compiler: why each is missing, "" where it is there.
        cann, torch_npu, chip: versions and name, "" where missing.
        problem: why what is installed cannot be used as it is meant; None where nothing is half there.
    """

    level: Level
    lowering: str
    simulator: str
    compiler: str
    cann: str = ""
    torch_npu: str = ""
    chip: str = ""
    problem: AscendSetupError | None = None

    def lines(self) -> list[str]:
        """A report, one line a fact."""
        return [
            f"level {int(self.level)} of {int(Level.CHIP)}, {self.level.words}",
            f"lowering: {_no(self.lowering) or 'yes, tilelang ' + (versions.package_version('tilelang') or '')}",
            f"simulator: {_no(self.simulator) or 'yes'}",
            f"CANN: {self.cann or 'not found'}",
            f"compiler: {_no(self.compiler) or 'yes'}",
            f"torch_npu: {self.torch_npu or 'not installed'}",
            f"chip: {self.chip or 'none'}",
            *([f"problem: {self.problem}"] if self.problem else []),
        ]


def _no(reason: str) -> str:
    return reason and f"no, because: {reason}"


class Tools(Protocol):
    """What discovery asks the machine."""

    environ: Mapping[str, str]

    def version(self, package: str) -> str | None: ...
    def lowering(self) -> str: ...
    def simulator(self) -> str: ...
    def loads(self, library: str) -> bool: ...
    def which(self, program: str) -> str | None: ...
    def read(self, path: str) -> str | None: ...
    def devices(self) -> list[str]: ...


class Host:
    """This machine."""

    environ: Mapping[str, str] = os.environ

    def version(self, package: str) -> str | None:
        """Version of an installed package; "unknown" for one without metadata; None without it. Imports nothing."""
        found = versions.package_version(package)
        return found or ("unknown" if importlib.util.find_spec(package) is not None else None)

    def lowering(self) -> str:
        """Why kernels cannot be lowered, or ""."""
        return lower.missing()

    def simulator(self) -> str:
        """Why kernels cannot be simulated, or ""."""
        return build.missing() or lower.missing()

    def loads(self, library: str) -> bool:
        """Whether the loader takes a library, named or by path."""
        try:
            ctypes.CDLL(library)
        except OSError:
            return False
        return True

    def which(self, program: str) -> str | None:
        """Path of a program, named or by path."""
        return shutil.which(program)

    def read(self, path: str) -> str | None:
        """Text of a file, None without it."""
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def devices(self) -> list[str]:
        """Names of the devices that torch_npu sees.

        Raises:
            Exception: whatever importing torch_npu or asking it raises.
        """
        importlib.import_module("torch_npu")
        npu: Any = importlib.import_module("torch").npu
        return [str(npu.get_device_name(i)) for i in range(npu.device_count())] if npu.is_available() else []


def discover(tools: Tools | None = None) -> Found:
    """Ask the machine, in the order above."""
    tools = Host() if tools is None else tools
    lowering, simulator = tools.lowering(), tools.simulator()
    base = Level.NOTHING if lowering else Level.LOWERING
    torch_npu = tools.version("torch_npu")
    cann, cann_problem = _cann(tools)
    compiler = _compiler(tools)

    def found(level: Level, problem: AscendSetupError | None = None, chip: str = "") -> Found:
        return Found(level, lowering, simulator, compiler, cann, torch_npu or "", chip, problem)

    if torch_npu is not None and not cann:
        return found(
            base,
            TorchNpuError(
                f"torch_npu {torch_npu} is installed and CANN is not ({LIBRARY} cannot be loaded): importing torch "
                "itself may fail",
                "install CANN and source its set_env.sh, or remove torch_npu (pip uninstall torch_npu)",
            ),
        )
    if not cann:
        return found(base)
    if cann_problem is not None:
        return found(base, cann_problem)
    if torch_npu is None:
        return found(max(base, Level.CANN))
    if reason := versions.unfit("torch_npu", torch_npu, tools.version):
        return found(max(base, Level.CANN), TorchNpuError(reason, versions.remedy("torch_npu", tools.version)))
    return _device(tools, found)


def _device(tools: Tools, found: Any) -> Found:
    try:
        names = tools.devices()
    except Exception as error:  # torch_npu raises what its libraries say
        said = str(error).strip().splitlines()
        problem = TorchNpuError(
            f"torch_npu is installed and cannot be used: {type(error).__name__}: {said[0] if said else ''}",
            "check that CANN's set_env.sh was sourced and that its version is the one torch_npu was made for",
        )
        return found(Level.CANN, problem)  # type: ignore[no-any-return]
    if not names:
        return found(Level.TORCH_NPU)  # type: ignore[no-any-return]
    if wrong := sorted({name for name in names if not name.lower().startswith(versions.CHIPS)}):
        problem_chip = ChipError(
            f"the device is {', '.join(wrong)}; the kernels are for Ascend 950 ({versions.ARCH})",
            "use another machine; without torch_npu (pip uninstall torch_npu) kernels run on the simulator here",
        )
        return found(Level.TORCH_NPU, problem_chip, ", ".join(wrong))  # type: ignore[no-any-return]
    return found(Level.CHIP, None, f"{len(names)} x {names[0]}")  # type: ignore[no-any-return]


def _cann(tools: Tools) -> tuple[str, CannError | None]:
    """Version of CANN's runtime ("" without one), and what speaks against it."""
    homes = _homes(tools)
    if not any(tools.loads(path) for path in (LIBRARY, *(f"{home}/lib64/{LIBRARY}" for home in homes))):
        return "", None
    version = cann_version(tools)
    if not version:
        return "of unknown version", CannError(
            f"{LIBRARY} is there, and no version of CANN can be read in {', '.join(homes)}",
            "set ASCEND_HOME_PATH to the toolkit's folder",
        )
    reason = versions.unfit("CANN", version)
    return version, CannError(reason, "install that CANN, and source its set_env.sh") if reason else None


def cann_version(tools: Tools) -> str:
    """Version of the CANN that a toolkit's folder states, "" for none."""
    return next(filter(None, (_cann_version(tools, home) for home in _homes(tools))), "")


def _homes(tools: Tools) -> list[str]:
    """Where a toolkit may lie, in the order that decides; build.sh's `cann_folders` prints the same."""
    named = [tools.environ[name] for name in _HOMES if tools.environ.get(name)]
    home = tools.environ.get("HOME")
    roots = ["/usr/local", *([home] if home else [])]
    return named + [f"{root}/Ascend/{folder}" for root in roots for folder in _FOLDERS]


def _cann_version(tools: Tools, home: str) -> str:
    """The version that a toolkit's folder states: in version.cfg or in an install.info, as its versions differ."""
    for name in ("version.cfg", "version.info", "x86_64-linux/ascend_toolkit_install.info",
                 "aarch64-linux/ascend_toolkit_install.info"):  # fmt: skip
        text = tools.read(f"{home}/{name}") or ""
        if found := _STATED.search(text):
            return found[1]
    return ""


def compiler_paths(tools: Tools) -> tuple[str, str] | None:
    """bisheng and the linker beside it: under BISHENG_HOME, else on the PATH."""
    home = tools.environ.get("BISHENG_HOME")
    folder = f"{home}/bin/" if home else ""
    compiler, linker = tools.which(f"{folder}bisheng"), tools.which(f"{folder}ld.lld")
    return (compiler, linker) if compiler and linker else None


def _compiler(tools: Tools) -> str:
    where = "in BISHENG_HOME/bin" if tools.environ.get("BISHENG_HOME") else "on the PATH"
    return "" if compiler_paths(tools) else f"no bisheng with its ld.lld {where}"
