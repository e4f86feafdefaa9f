"""TileLang kernels to AscendC text.

    text = lower(Path("kernels.py"), "gemm", {"K": 512})

The file defines functions that return a TileLang-Ascend kernel. tilelang is imported in a child process only: it loads
a compiler and a solver, and whatever they do stays there. Texts are kept by content: the file, further files that it
needs, the function's name and arguments, and the version of tilelang.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...hal.errors import InvalidArgumentError
from .sim import build
from .sim.errors import SimulatorError

_SECONDS = 900.0  # the longest lowering seen takes 15 s on an idle core
_LINES = 12


class LoweringError(SimulatorError):
    """A kernel does not lower. The message ends with what tilelang said."""


def missing() -> str:
    """Why kernels cannot be lowered here, or ""."""
    return "" if build.wheel()[0] else "tilelang is not installed: install the ascend-sim extra"


def lower(
    file: Path,
    name: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    needs: Sequence[Path] = (),
    seconds: float = _SECONDS,
) -> str:
    """The AscendC text of a kernel, from the cache or lowered now in a child process.

    Args:
        file: Python file with the function.
        name: of the function; it returns the kernel.
        parameters: passed to it by name; JSON values.
        needs: further files that the text depends on.
        seconds: time limit.

    Raises:
        InvalidArgumentError: no such file; parameters that JSON cannot hold.
        LoweringError: tilelang is missing, refuses the kernel, or takes too long.
    """
    if not file.is_file():
        raise InvalidArgumentError("file", str(file), "a Python file with TileLang kernels")
    if reason := missing():
        raise LoweringError(f"{name}: {reason}")
    try:
        values = json.dumps(dict(parameters or {}), sort_keys=True)
    except TypeError as error:
        raise InvalidArgumentError("parameters", parameters, f"JSON values ({error})") from error
    key = build.digest([name, values, build.wheel()[0], *(path.read_bytes() for path in (file, *needs))])
    target = build.cache_root() / "lowered" / key

    def fill(folder: Path) -> None:
        (folder / "kernel.cpp").write_text(_in_child(file, name, values, seconds), encoding="utf-8")

    return (build.once(target, fill) / "kernel.cpp").read_text(encoding="utf-8")


def _in_child(file: Path, name: str, values: str, seconds: float) -> str:
    command = [sys.executable, "-m", __name__, str(file), name, values]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TILELANG_CLEAR_CACHE": "0"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment)
    except subprocess.TimeoutExpired as error:
        raise LoweringError(f"{name}: not lowered after {seconds:.0f} s") from error
    _, mark, text = done.stdout.partition(_MARK)
    if done.returncode or not mark:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise LoweringError(f"{name} does not lower (exit status {done.returncode}):\n" + "\n".join(said[-_LINES:]))
    return text


_MARK = "==== device text\n"


def _child(file: str, name: str, values: str) -> None:
    sys.path.insert(0, str(Path(file).resolve().parent))  # for parts that several files of kernels share
    spec = importlib.util.spec_from_file_location("kernels", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernels"] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        raise SystemExit(f"{file} has no function {name}")
    import tilelang  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from tvm.target import Target  # type: ignore[import-not-found, import-untyped, unused-ignore]

    target = Target({"kind": "ascend"})
    with target:
        made = tilelang.lower(getattr(module, name)(**json.loads(values)), target=target, enable_device_compile=False)
    sys.stdout.write(_MARK + made.kernel_source)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for argument in ("file", "name", "values"):
        parser.add_argument(argument)
    _child(**vars(parser.parse_args()))
