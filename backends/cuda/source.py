"""Kernels in CUDA C++ (the files in `source/`): compiled by NVRTC, kept by content, launched through the driver.

    SCALE = SourceKernel("scale.cu", "scale", "PPfi", threads=256, defines={"WIDTH": 512})
    SCALE.launch((rows, 1, 1), x.device.index, x.data_ptr(), out.data_ptr(), 2.0, rows)

Nothing is built or loaded before the first launch; `build` compiles ahead of time, without a GPU. A launch goes to
torch's current stream of the device and may be captured in a graph.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import struct
import tempfile
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...hal.errors import BackendError, DeviceFaultError, InvalidArgumentError, KernelError
from . import binaries, nvrtc
from .binaries import CacheWarning
from .driver import REFUSED
from .driver import functions as driver

FOLDER = Path(__file__).parent / "source"
"""Where the sources lie."""

_LETTERS = "PiIqQf"


@dataclass(frozen=True)
class Built:
    """A compiled source.

    Attributes:
        path: where the cubin is kept. cubin: its bytes.
        resources: what each kernel of it needs.
    """

    path: Path
    cubin: bytes
    resources: dict[str, nvrtc.Resources]


def text_of(file: str) -> str:
    """The text of a source, from its name in `source/`."""
    return (FOLDER / file).read_text(encoding="utf-8")


def digest(file: str) -> str:
    """SHA-256 of a source's text: what a recorded run on a GPU names."""
    return hashlib.sha256(text_of(file).encode()).hexdigest()


def cache_folder() -> Path:
    """Where cubins are kept."""
    return binaries.folder() / "cuda_source"


def build(file: str, arch: str, options: tuple[str, ...] = (), folder: Path | None = None) -> Built:
    """The cubin of a source: from the cache, else compiled and kept there.

    Args:
        file: name in `source/`. arch: such as 'sm_90a'. options: as for NVRTC.
        folder: cache to use; None for `cache_folder()`.

    Raises:
        KernelError: the source does not compile, or compiling is forbidden (`binaries.no_compile`).
        BackendError: NVRTC is not installed, and the cache has no such cubin.
    """
    text = text_of(file)
    folder = folder or cache_folder()
    known = _cached(folder, file, text, arch, options)
    if known:
        return known
    binaries.check_may_compile(f"{file} ({arch}, {' '.join(options)})")
    cubin, log = nvrtc.compile_text(text, file, arch, options)
    built = Built(folder / _name(file, text, arch, options, nvrtc.version()), cubin, nvrtc.resources(log))
    _store(built)
    return built


def _cached(folder: Path, file: str, text: str, arch: str, options: tuple[str, ...]) -> Built | None:
    """A kept cubin of this compiler; of any compiler where there is none, as with binaries made ahead of time."""
    try:
        versions = [nvrtc.version()]
    except BackendError:
        pattern = _name(file, text, arch, options, "*")
        versions = [path.name.split(".nvrtc")[1].removesuffix(".cubin") for path in sorted(folder.glob(pattern))[::-1]]
    for version in versions:
        found = _load(folder / _name(file, text, arch, options, version))
        if found:
            return found
    return None


def _load(path: Path) -> Built | None:
    """A kept cubin; None where there is none. A damaged one is removed with a warning."""
    report = path.with_suffix(".json")
    try:
        facts = json.loads(report.read_text(encoding="utf-8"))
        cubin = path.read_bytes()
        found = Built(path, cubin, {k: nvrtc.Resources(**v) for k, v in facts["resources"].items()})
        if facts["digest"] == _digest(cubin, found.resources):
            return found
        problem = "its digest is another"
    except (FileNotFoundError, NotADirectoryError):
        return None  # of two files that are written one after the other, one can be missing
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"
    warnings.warn(f"cached kernel {path} is damaged ({problem}) and is made anew", CacheWarning, stacklevel=2)
    for part in (path, report):
        with contextlib.suppress(OSError):
            part.unlink()
    return None


def _store(built: Built) -> None:
    """Keep a cubin and its report; an unwritable cache is warned of."""
    facts = {
        "resources": {name: vars(needs) for name, needs in built.resources.items()},
        "digest": _digest(built.cubin, built.resources),
    }
    try:
        _write(built.path.with_suffix(".json"), json.dumps(facts).encode())
        _write(built.path, built.cubin)
    except OSError as error:
        warnings.warn(
            f"kernels cannot be kept in {built.path.parent}: {error}; set DEEPINFER_JIT_CACHE_DIR",
            CacheWarning,
            stacklevel=2,
        )


def _digest(cubin: bytes, resources: dict[str, nvrtc.Resources]) -> str:
    facts = json.dumps({name: vars(needs) for name, needs in sorted(resources.items())}, sort_keys=True)
    return hashlib.sha256(facts.encode() + cubin).hexdigest()


def _name(file: str, text: str, arch: str, options: tuple[str, ...], version: str) -> str:
    key = hashlib.sha256("\0".join([text, arch, *options]).encode()).hexdigest()[:32]
    return f"{Path(file).stem}-{key}.nvrtc{version}.cubin"


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all: processes that build the same thing at once do not see halves."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


class SourceKernel:
    """One kernel of one source, for one set of defines.

    Args:
        file: name in `source/`, or a path.
        entry: name of the `extern "C" __global__` function.
        signature: one letter per parameter, as in `struct`: P pointer, i and I 32 bits, q and Q 64 bits, f fp32.
        threads: threads per block.
        shared: bytes of dynamic shared memory per block.
        defines: macros, passed as -DNAME=VALUE.
        options: more options of NVRTC, such as '-fmad=false'.
        archs: chips it compiles for, as in `register.ARCHS`.
    """

    def __init__(
        self,
        file: str,
        entry: str,
        signature: str,
        *,
        threads: int,
        shared: int = 0,
        defines: Mapping[str, int | str] | None = None,
        options: tuple[str, ...] = (),
        archs: tuple[str, ...] = ("sm_90", "sm_100"),
    ) -> None:
        unknown = set(signature) - set(_LETTERS)
        if unknown:
            raise InvalidArgumentError("signature", signature, f"letters of {_LETTERS}")
        self.file, self.entry, self.threads, self.shared, self.archs = file, entry, threads, shared, archs
        self.options = (*(f"-D{k}={v}" for k, v in (defines or {}).items()), *options)
        self.signature = signature
        self._pack = struct.Struct("@" + signature)
        self._functions: dict[int, int] = {}
        self._local = threading.local()
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return f"{self.file}:{self.entry}({' '.join(self.options)})"

    def build(self, arch: str, folder: Path | None = None) -> Built:
        """Compile for a chip, 'sm_90' or 'sm_100', with that chip's own instructions. See `build`."""
        if arch not in self.archs:
            raise InvalidArgumentError("arch", arch, f"{', '.join(self.archs)} ({self.file})")
        return build(self.file, f"{arch}a", self.options, folder)

    def launch(
        self,
        grid: tuple[int, int, int],
        device: int,
        *args: Any,
        cluster: tuple[int, int, int] | None = None,
        early: bool = False,
    ) -> None:
        """Launch on torch's current stream of a device.

        Args:
            grid: blocks. device: its index. args: numbers, in the order of the signature; `data_ptr()` of tensors.
            cluster: blocks of a cluster, of which the grid is a multiple; None for none, or what the source says.
            early: blocks may start when those of the kernel before have said that they may (griddepcontrol); the source
                then waits for its end before it reads what that wrote.

        Raises:
            InvalidArgumentError: an argument does not fit its type.
            KernelError: the kernel cannot be built, loaded or launched. DeviceFaultError: the device had failed before.
        """
        function = self._functions.get(device) or self._load(device)
        buffer = self._local.__dict__.get("buffer") or self._buffer()
        try:
            self._pack.pack_into(buffer[0], 0, *args)
        except struct.error as error:
            raise InvalidArgumentError(f"{self.entry}: arguments", args, f"{self.signature} ({error})") from None
        current = torch._C._cuda_getDevice()
        if current != device:
            torch._C._cuda_setDevice(device)
        try:
            stream = torch._C._cuda_getCurrentRawStream(device)
            if cluster is None and not early:
                status = driver().launch(function, *grid, self.threads, 1, 1, self.shared, stream, None, buffer[1])
            else:
                status = driver().launch_with(
                    function, grid, self.threads, self.shared, stream, buffer[1], cluster, early
                )
        finally:
            if current != device:
                torch._C._cuda_setDevice(current)
        if status:
            failed = KernelError if status in REFUSED else DeviceFaultError
            raise failed(f"{self} with grid {grid} is not launched: {driver().message(status)}")

    def _buffer(self) -> tuple[Any, Any, Any]:
        """Memory of this thread that the driver reads the arguments from, and the list that points to it."""
        data = ctypes.create_string_buffer(max(1, self._pack.size))
        size = ctypes.c_size_t(self._pack.size)
        # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(data), 2, ctypes.addressof(size), 0)
        self._local.buffer = found = (data, extra, size)
        return found

    def _load(self, device: int) -> int:
        """The function on a device, loaded once."""
        with self._lock:
            if device in self._functions:
                return self._functions[device]
            major, minor = torch.cuda.get_device_capability(device)
            with torch.cuda.device(device):
                torch.cuda.current_stream()  # makes torch's context current in this thread
                built = self.build(f"sm_{major}{minor}")
                self._functions[device] = driver().load(built.cubin, self.entry, self.shared)
            return self._functions[device]
