"""The device side: images of the kernels' texts with CANN's compiler, and their launches through CANN's runtime
(`acl.py`).

Every kernel is launched as the simulator runs it: the same text, its arguments by name, sizes as they are said.
TileLang's own driver would take sizes from the tensors' shapes instead, of which one without elements has none, and
compile each kernel anew. None of this has run on a device. It is kept apart and small; what it decides (command lines,
errors, places of images, the order of arguments) is tested with fake tools.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import OutOfMemoryError, device

from ...hal.errors import DeviceFaultError
from . import acl, versions
from .discovery import LIBRARY, Host, Tools, cann_version, compiler_paths
from .errors import CannError
from .sim import build

if TYPE_CHECKING:
    from .program import Program

# As TileLang compiles its kernels (-ffp-contract=off besides: exact ones round every product).
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
            try:
                done = subprocess.run(command, capture_output=True, text=True)
            except OSError as error:
                raise CannError(f"{command[0]} cannot be run: {error}", "see that CANN's toolkit is whole") from error
            if done.returncode:
                said = "\n".join((done.stderr or done.stdout).splitlines()[-12:])
                raise CannError(f"{Path(command[0]).name} refuses {image.stem}:\n{said}", "see what it says")
    image.with_suffix(".o").unlink(missing_ok=True)
    return image


_images: dict[str, Path] = {}


def launch(program: Program, work: int, arguments: Mapping[str, Any], where: device) -> None:
    """Launch on an NPU, on torch's current stream.

    Raises:
        CannError: the kernel cannot be compiled.
        DeviceFaultError: the device or its driver reports a fault. Memory that is short is torch's own error.
        InvalidArgumentError: an argument of the kernel is missing or does not fit its type.
    """
    import torch

    signature = program.signature()
    blocks = min(cores(where, signature.kind), work)
    given = {**arguments, "cores": blocks}
    try:
        with torch.npu.device(where):  # type: ignore[attr-defined]
            runtime().launch(_image(program), signature, blocks, given, where.index or 0, raw_stream(where))
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


def images() -> Path:
    """Folder of the images that launches use."""
    return build.cache_root() / versions.ARCH / "images"


def image_name(label: str, text: str, tools: Tools | None = None) -> str:
    """File name of an image: another for another text, tilelang (whose headers texts include), CANN or flags."""
    tools = Host() if tools is None else tools
    made_with = (versions.package_version("tilelang"), cann_version(tools), COMPILE_FLAGS, LINK_FLAGS)
    return f"{label}-{build.digest([text, repr(made_with)])}.aibin"


def _image(program: Program) -> Path:
    """The image of a kernel: one that was built ahead, or compiled now, once."""
    if program.label not in _images:
        text = program.text()
        image = images() / image_name(program.label, text)
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
