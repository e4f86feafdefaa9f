"""Binaries of Triton kernels, kept by content.

An entry is named by a digest of what its binary depends on: the sources of the kernel and of every helper it calls, the
constants they read, the signature, the launch options, the chip, and the versions of Triton and of this format. Paths
and line numbers take no part, so an entry made on one machine (`deepinfer build`) serves another.

An entry is a folder with the cubin and what is needed to launch it. It appears whole or not at all, and its parts carry
a digest: a damaged entry is made anew, with a warning.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import json
import os
import re
import shutil
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton.runtime.jit import DependenciesFinder

from ...hal.errors import KernelError
from . import binaries
from .binaries import CacheWarning

FORMAT = 1
"""Changes when entries of an older version must not be read."""

compilations = 0
"""How many kernels this process compiled."""

_compiling = threading.RLock()


@dataclass(frozen=True)
class Binary:
    """A compiled kernel.

    Attributes:
        name: of the function in the cubin.
        cubin: machine code.
        threads: per block.
        shared: bytes of dynamic shared memory per block.
        scratch: bytes of global memory per block, for descriptors made on the device; and their alignment.
        ctas: blocks in a cluster.
        tensor_memory: columns of SM100's tensor memory.
        registers: per thread, of the kernel itself. spills: bytes per thread that go to local memory for want of them.
        stack: bytes of local memory per thread.
    """

    name: str
    cubin: bytes
    threads: int
    shared: int
    scratch: int
    scratch_align: int
    ctas: int
    tensor_memory: int
    registers: int
    spills: int
    stack: int


def folder() -> Path:
    """Where entries are kept."""
    return binaries.folder() / "triton"


def source_digest(kernel: Any) -> str:
    """Digest of a kernel's source, its helpers' and the constants they read.

    Triton's own also holds line numbers, and misses constants that are read from another module.
    """
    finder = _Finder(
        name=kernel._fn_name,
        globals=kernel.__globals__,
        nonlocals=inspect.getclosurevars(kernel.fn).nonlocals,
        src=kernel.src,
    )
    finder.visit(kernel.parse())
    kernel.used_global_vals = dict(sorted(finder.used_global_vals.items()))
    constants = sorted((name, repr(_plain(value))) for (name, _), (value, _) in finder.used_global_vals.items())
    return hashlib.sha256(f"{finder.ret}{constants}".encode()).hexdigest()


class _Finder(DependenciesFinder):  # type: ignore[misc]
    def _update_hash(self, func: Any) -> None:
        # Before Triton 3.6 looks at what constants the helper reads, which it knows only then: a digest would depend on
        # whether another kernel with that helper came first.
        func.cache_key  # noqa: B018
        super()._update_hash(func)

    def record_reference(self, val: Any, var_dict: Any = None, name: Any = None) -> None:
        if var_dict is None and isinstance(val, triton.language.constexpr):
            self.hasher.update(repr(_plain(val)).encode())
        super().record_reference(val, var_dict, name)


def key(
    kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], options: Mapping[str, Any], arch: int
) -> str:
    """The name of an entry: see the module."""
    parts = [
        FORMAT,
        triton.__version__,
        arch,
        kernel.__name__,
        kernel.cache_key,
        sorted(types.items()),
        sorted((k, type(v).__name__, repr(_plain(v))) for k, v in constants.items()),
        sorted((k, repr(v)) for k, v in options.items()),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


def _plain(value: Any) -> Any:
    """A constant by its content: a device function by its source."""
    if isinstance(value, triton.language.constexpr):
        value = value.value
    return getattr(value, "cache_key", value)


def load(name: str, where: Path | None = None) -> Binary | None:
    """The binary of an entry; None where there is none. A damaged one is removed with a warning."""
    entry = (where or folder()) / name
    if not entry.exists():
        return None  # looked for first: one that appears meanwhile is not damaged
    try:
        facts = json.loads((entry / "entry.json").read_text(encoding="utf-8"))
        cubin = (entry / "kernel.cubin").read_bytes()
        digest = facts.pop("digest")
        found = Binary(cubin=cubin, **facts)
        if digest == _digest(found):
            return found
        problem = "its digest is another"
    except (FileNotFoundError, NotADirectoryError):
        problem = "a part is missing"
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"{type(error).__name__}: {error}"
    warnings.warn(f"cached kernel {entry} is damaged ({problem}) and is made anew", CacheWarning, stacklevel=2)
    shutil.rmtree(entry, ignore_errors=True)
    return None


def store(name: str, binary: Binary, where: Path | None = None) -> None:
    """Keep a binary. Of two processes that store one entry the first wins; an unwritable cache is warned of."""
    place = where or folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".making-", dir=place))
        try:
            facts = {k: v for k, v in asdict(binary).items() if k != "cubin"}
            _write(made / "kernel.cubin", binary.cubin)
            _write(made / "entry.json", json.dumps({**facts, "digest": _digest(binary)}, indent=1).encode())
            with contextlib.suppress(OSError):  # an entry of that name is there
                made.chmod(0o755)
                os.rename(made, place / name)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        warnings.warn(
            f"kernels cannot be kept in {place}: {error}; set DEEPINFER_JIT_CACHE_DIR", CacheWarning, stacklevel=2
        )


def _digest(binary: Binary) -> str:
    facts = {k: v for k, v in sorted(asdict(binary).items()) if k != "cubin"}
    return hashlib.sha256(json.dumps(facts).encode() + binary.cubin).hexdigest()


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def compile_source(source: Any, target: Any, options: dict[str, Any]) -> Binary:
    """Compile with Triton, outside of Triton's own cache, and note what the assembler says of registers and spills.

    Args:
        source: triton's ASTSource.
        target: triton's GPUTarget.
        options: launch options.
    """
    global compilations
    said = io.StringIO()
    with _compiling, _scratch_cache() as scratch, contextlib.redirect_stdout(said):
        compilations += 1
        triton.compile(source, target=target, options=options)
        facts = json.loads(next(scratch.glob(f"*/{source.name[:150]}.json")).read_text())
        cubin = next(scratch.glob("*/*.cubin")).read_bytes()
    if facts.get("profile_scratch_size"):
        raise KernelError(f"{source.name} asks for profiler scratch, which is not provided")
    log = said.getvalue()
    registers, stack, spills = _resources(log, facts["name"])
    return Binary(
        name=facts["name"],
        cubin=cubin,
        threads=32 * facts["num_warps"],
        shared=facts["shared"],
        scratch=facts.get("global_scratch_size") or 0,
        scratch_align=facts.get("global_scratch_align") or 1,
        ctas=facts.get("num_ctas") or 1,
        tensor_memory=facts.get("tmem_size") or 0,
        registers=registers,
        spills=spills,
        stack=stack,
    )


@contextlib.contextmanager
def _scratch_cache() -> Iterator[Path]:
    """A cache of Triton's for one compilation, whose assembler says what it used."""
    with tempfile.TemporaryDirectory(prefix="deepinfer-triton-") as made:
        kept = knobs.cache.dir, knobs.nvidia.dump_ptxas_log
        knobs.cache.dir, knobs.nvidia.dump_ptxas_log = made, True
        try:
            yield Path(made)
        finally:
            knobs.cache.dir, knobs.nvidia.dump_ptxas_log = kept


def _resources(log: str, name: str) -> tuple[int, int, int]:
    """Registers, stack bytes and spilled bytes of a kernel in the report of ptxas.

    Raises:
        KernelError: the report says nothing of the kernel.
    """
    part = re.search(
        rf"Function properties for {re.escape(name)}\n\s*(\d+) bytes stack frame, (\d+) bytes spill stores, "
        r"(\d+) bytes spill loads\n.*?Used (\d+) registers",
        log,
        re.DOTALL,
    )
    if part is None:
        raise KernelError(f"ptxas did not say what {name} uses: {log[:500]!r}")
    return int(part[4]), int(part[1]), int(part[2]) + int(part[3])
