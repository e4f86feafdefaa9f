"""The device side: images with CANN's compiler, and launches: TileLang's kernels through its own driver, those in
AscendC by hand through CANN's runtime (`acl.py`).

None of this has run on a device. It is kept apart and small; what it decides (command lines, errors, the order of
arguments) is tested with fake tools.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import OutOfMemoryError, device

from ...hal.errors import DeviceFaultError
from . import acl, versions
from .discovery import LIBRARY, Host, Tools, compiler_paths
from .errors import CannError
from .sim import build

if TYPE_CHECKING:
    from .program import Program

# As TileLang's driver compiles (-ffp-contract=off besides: exact kernels round every product).
COMPILE_FLAGS = (
    "-O2", "-fPIC", "-std=c++20", "-ffp-contract=off", "-mllvm", "-cce-aicore-dcpreload-args=false",
    f"--npu-arch={versions.ARCH}", "--cce-aicore-only",
)  # fmt: skip
LINK_FLAGS = ("-m", "aicorelinux", "-Ttext", "0", "--no-mmap-output-file")


def compile_commands(source: Path, image: Path, tools: Tools | None = None) -> tuple[list[str], list[str]]:
    """The command lines that make a device image of an AscendC source: compiling and linking.

    Raises:
        CannError: there is no bisheng with its ld.lld.
    """
    found = compiler_paths(Host() if tools is None else tools)
    if found is None:
        raise CannError(
            "no bisheng with its ld.lld: device images cannot be compiled here",
            "install CANN's toolkit, and put its compiler on the PATH or name it in BISHENG_HOME",
        )
    compiler, linker = found
    _, headers = build.wheel()
    include = [f"-I{headers}"] if headers is not None else []
    middle = image.with_suffix(".o")
    return (
        [compiler, *COMPILE_FLAGS, *include, str(source), "-o", str(middle)],
        [linker, *LINK_FLAGS, str(middle), "-o", str(image)],
    )


def compile_image(text: str, image: Path, tools: Tools | None = None) -> Path:
    """Compile an AscendC text into a device image.

    Raises:
        CannError: no compiler, or it refuses the text; with the end of what it says.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.asc"
        source.write_text(text, encoding="utf-8")
        for command in compile_commands(source, image, tools):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                said = "\n".join((done.stderr or done.stdout).splitlines()[-12:])
                raise CannError(f"{Path(command[0]).name} refuses {image.stem}:\n{said}", "see what it says")
    image.with_suffix(".o").unlink(missing_ok=True)
    return image


_compiled: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {}
_images: dict[str, Path] = {}


def launch(program: Program, work: int, arguments: Mapping[str, Any], where: device) -> None:
    """Launch on an NPU, on torch's current stream. Sizes are taken from the tensors by TileLang's driver.

    Raises:
        CannError: the kernel cannot be compiled.
        DeviceFaultError: the device or its driver reports a fault. Memory that is short is torch's own error.
    """
    signature = program.signature()
    blocks = min(cores(where, signature.kind), work)
    given = {**arguments, "cores": blocks}
    try:
        if program.written:
            runtime().launch(_image(program), signature, blocks, given, where.index or 0, raw_stream(where))
            return
        key = f"{program.label} {program.digest()}"
        if key not in _compiled:
            _compiled[key] = _compile(program)
        kernel, names = _compiled[key]
        kernel(*(given[name] for name in names))
    except OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise DeviceFaultError(f"{program.label} on {where}: {error}") from error


@cache
def runtime() -> acl.Runtime:
    """CANN's runtime, as torch_npu has loaded it."""
    return acl.Runtime(ctypes.CDLL(LIBRARY))


def raw_stream(where: device) -> int:
    """Address of torch's current stream of an NPU."""
    import torch

    return int(torch.npu.current_stream(where).npu_stream)  # type: ignore[attr-defined]


def _image(program: Program) -> Path:
    """The image of a kernel by hand, compiled once and kept in the cache by its text and compiler."""
    if program.label not in _images:
        text = program.text()
        found = compiler_paths(Host())
        name = build.digest([text, repr(COMPILE_FLAGS), repr(LINK_FLAGS), repr(found)])
        image = build.cache_root() / versions.ARCH / "images" / f"{program.label}-{name}.aibin"
        if not image.is_file():
            image.parent.mkdir(parents=True, exist_ok=True)
            made = compile_image(text, image.with_name(f"{image.stem}-{os.getpid()}.aibin"))
            made.replace(image)  # several processes may compile at once
        _images[program.label] = image
    return _images[program.label]


def cores(where: device, kind: str) -> int:
    """Cores of a kind on a device: vector cores for vector kernels, cube cores for others."""
    import torch

    properties = torch.npu.get_device_properties(where)  # type: ignore[attr-defined]
    return int(properties.vector_core_num if kind == "vector" else properties.cube_core_num)


def _compile(program: Program) -> tuple[Callable[..., Any], tuple[str, ...]]:
    import importlib.util

    import tilelang  # type: ignore[import-not-found, import-untyped, unused-ignore]

    from .program import HERE

    spec = importlib.util.spec_from_file_location(f"{__name__}.{program.name}", HERE / program.file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function = getattr(module, program.name)(**program.parameters)
    kernel = tilelang.compile(function, target="ascend", execution_backend="cython")
    return kernel, argument_names(function)


def argument_names(function: Any) -> tuple[str, ...]:
    """Names of a TileLang function's arguments, in its order: of tensors the buffer's, without the handle's suffix."""
    names = []
    for parameter in function.params:
        buffer = function.buffer_map[parameter] if parameter in function.buffer_map else None
        names.append(str(parameter.name if buffer is None else buffer.name))
    return tuple(names)
