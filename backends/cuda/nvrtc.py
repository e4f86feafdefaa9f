"""CUDA C++ to machine code with NVRTC, the compiler library that a CUDA build of torch brings. Needs no GPU.

The sources include nothing: NVRTC has the built-in names of CUDA C++, and what a kernel needs besides is inline PTX.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path

from ...hal.errors import BackendError, KernelError

_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")


@dataclass(frozen=True)
class Resources:
    """What one entry of a cubin needs, as ptxas reports it.

    Attributes:
        registers: per thread at the start of the kernel.
        spills: bytes per thread stored to and loaded from local memory because registers ran out.
        stack: bytes of local memory per thread.
        shared: bytes of static shared memory.
    """

    registers: int
    spills: int
    stack: int
    shared: int


@functools.cache
def library() -> ctypes.CDLL:
    """NVRTC.

    Raises:
        BackendError: it is not installed.
    """
    for candidate in (*_installed(), *_NAMES):
        try:
            # It looks for its built-in headers by name alone, so they are loaded from beside it first.
            for beside in (
                sorted(Path(candidate).parent.glob("libnvrtc-builtins.so.*")) if "/" in str(candidate) else ()
            ):
                ctypes.CDLL(str(beside))
            return ctypes.CDLL(str(candidate))
        except OSError:
            continue
    raise BackendError("NVRTC is not installed; a CUDA build of torch brings it, or `pip install nvidia-cuda-nvrtc`")


def _installed() -> list[Path]:
    """Libraries of installed wheels and of a toolkit, newest name first."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    found = [lib for name in _NAMES for root in roots for lib in sorted(root.glob(f"*/lib/{name}"))]
    toolkit = os.environ.get("CUDA_HOME")
    return found + ([Path(toolkit, "lib64", name) for name in _NAMES] if toolkit else [])


@functools.cache
def version() -> str:
    """Version of NVRTC, such as '13.0'.

    Raises:
        BackendError: it is not installed.
    """
    major, minor = ctypes.c_int(), ctypes.c_int()
    library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def _uncached() -> tuple[str, ...]:
    """From 12.9 on NVRTC keeps what it compiled where there is a driver, and reports no registers when it has it."""
    major, minor = map(int, version().split("."))
    return ("--no-cache",) if (major, minor) >= (12, 9) else ()


def compile_text(text: str, name: str, arch: str, options: tuple[str, ...] = ()) -> tuple[bytes, str]:
    """Machine code of a source, and the report of the compiler.

    Args:
        text: the source; its kernels are `extern "C"`.
        name: file name for messages.
        arch: such as 'sm_90a'.
        options: more options of NVRTC, such as '-DHEADS=64'.

    Raises:
        KernelError: the source does not compile; with the compiler's messages.
        BackendError: NVRTC is not installed.
    """
    lib = library()
    program = ctypes.c_void_p()
    _check(lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None))
    try:
        given = [f"-arch={arch}", "-std=c++17", "-default-device", "--ptxas-options=-v", *_uncached(), *options]
        flags = (ctypes.c_char_p * len(given))(*[option.encode() for option in given])
        status = lib.nvrtcCompileProgram(program, len(given), flags)
        log = _text(lib.nvrtcGetProgramLogSize, lib.nvrtcGetProgramLog, program).decode(errors="replace").rstrip("\0\n")
        if status:
            raise KernelError(f"{name} does not compile for {arch}:\n{log or _message(status)}")
        return _text(lib.nvrtcGetCUBINSize, lib.nvrtcGetCUBIN, program), log
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))


def resources(log: str) -> dict[str, Resources]:
    """The report of the compiler, by name of the kernel."""
    found = {}
    for part in re.split(r"Compiling entry function '", log)[1:]:

        def number(pattern: str, part: str = part) -> int:
            match = re.search(pattern, part)
            return int(match.group(1)) if match else 0

        found[part.split("'")[0]] = Resources(
            registers=number(r"Used (\d+) registers"),
            spills=number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
            stack=number(r"(\d+) bytes stack frame"),
            shared=number(r"(\d+) bytes smem"),
        )
    return found


def _text(size_of: ctypes._NamedFuncPointer, get: ctypes._NamedFuncPointer, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(size_of(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(get(program, buffer))
    return buffer.raw


def _check(status: int) -> None:
    if status:
        raise BackendError(f"NVRTC: {_message(status)}")


def _message(status: int) -> str:
    text = library().nvrtcGetErrorString
    text.restype = ctypes.c_char_p
    return str(text(status).decode())
