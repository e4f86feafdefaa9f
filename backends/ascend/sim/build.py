"""Building kernels with the host compiler, and the cache of what was built.

A build is keyed by content: the kernel's text, the simulator's headers and runtime, the wheel's template headers and
version, the compiler's own version, and the flags. Nothing is reused that any of them changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from ....hal import env
from ....hal.errors import InvalidArgumentError
from .. import versions
from . import source
from .errors import BuildError

HERE = Path(__file__).parent
# No contraction: a * b + c has two roundings wherever the text does not ask for one. The level of the instruction set
# is fixed, so that a cached object runs on any machine that can run the simulator.
FLAGS = ("-std=c++20", "-O2", "-march=x86-64-v3", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-pthread")
RUNTIME_FLAGS = ("-fvisibility=hidden",)
# The compiler calls a hook of ours (runtime/access.cpp) at each load and store; the checker's library is not linked.
KERNEL_FLAGS = ("-fsanitize=thread", "-w")
SANITIZERS = {
    "": (),
    "undefined": ("-fsanitize=undefined", "-fno-sanitize-recover=undefined", "-fno-sanitize=alignment,vptr"),
    "address": ("-fsanitize=address", "-fno-omit-frame-pointer"),
}
# The runtime's files by the translation units that they are compiled in: most of the time goes into the headers of the
# standard library, so there are as few as keep two processors at work.
UNITS = (("access", "cube", "launch", "memory"), ("dma", "schedule", "simt"))
_PREFIX = '#include "c_api/asc_simd.h"\n'  # what every kernel begins with, compiled once
_ERRORS_SHOWN = 12
_GCC_VERSION = re.compile(r"\) (\d+\.[\d.]+)")  # g++ (Debian 12.2.0-14) 12.2.0


def cache_root() -> Path:
    """Where builds and lowered texts are kept: `ascend` in DEEPINFER_CACHE_DIR, else in `deepinfer` under
    XDG_CACHE_HOME or ~/.cache."""
    own = env.get("DEEPINFER_CACHE_DIR")
    if own:
        return Path(str(own)) / "ascend"
    base = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "deepinfer" / "ascend"


def digest(parts: Iterable[str | bytes]) -> str:
    """A key of 24 hexadecimal digits; parts are kept apart by their lengths."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()[:24]


@cache
def compiler() -> tuple[str, str]:
    """The host compiler (CXX, else g++) and what it says of its version.

    Raises:
        BuildError: there is none, or it is no g++ of the matrix (`versions.MATRIX`).
    """
    remedy = f"install g++ {versions.row('g++').lowest} or later, or name one in CXX"
    name = os.environ.get("CXX") or "g++"
    path = shutil.which(name)
    if path is None:
        raise BuildError(f"no C++ compiler {name!r}: {remedy}")
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    except OSError as error:
        raise BuildError(f"the C++ compiler {path} cannot be run: {error.strerror}; {remedy}") from error
    if reason := _unfit(path, done.stdout):
        raise BuildError(f"{reason}; {remedy}")
    return path, done.stdout


def _unfit(path: str, said: str) -> str:
    """Why a compiler that says this of its version is not the one that kernels are built with, or ""."""
    first = said.partition("\n")[0].strip()
    if "Free Software Foundation" not in said:  # whose g++ is; other compilers may be called g++ as well
        return f"the C++ compiler {path} is {first or 'of no version'}, not g++; wanted: {versions.row('g++').allowed}"
    found = _GCC_VERSION.search(first)
    reason = versions.unfit("g++", found[1] if found else first)
    return f"the C++ compiler {path}: {reason}" if reason else ""


# What x86-64-v3 adds that a kernel's build may use, as Linux names it (abm: lzcnt).
_NEEDED = frozenset(("avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"))
_CPUINFO = Path("/proc/cpuinfo")


def processor() -> str:
    """Why this processor cannot run the builds, which are for x86-64-v3; "" where it can, or does not say."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"this processor is {platform.machine()}: builds are for x86-64-v3"
    try:
        found = re.search(r"^flags\s*:(.*)$", _CPUINFO.read_text(encoding="utf-8"), re.M)
    except OSError:
        return ""
    lacking = sorted(_NEEDED - set(found[1].split())) if found else []
    return f"this processor lacks {', '.join(lacking)}: builds are for x86-64-v3" if lacking else ""


def missing() -> str:
    """Why kernels cannot be built or run here, or ""."""
    try:
        compiler()
    except BuildError as error:
        return str(error)
    return processor()


def _tree(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return sorted(path for pattern in patterns for path in folder.rglob(pattern))


@cache
def wheel() -> tuple[str, Path | None]:
    """Version and template folder of the installed tilelang, found without importing it; ("", None) without it."""
    spec = importlib.util.find_spec("tilelang")
    if spec is None or spec.origin is None:
        return "", None
    return importlib.metadata.version("tilelang"), Path(spec.origin).parent / "src"


@cache
def _template_texts() -> dict[str, str]:
    """The wheel's template headers by their path, with the model's casts."""
    _, folder = wheel()
    if folder is None:
        return {}
    return {
        str(path.relative_to(folder)): source.rewrite_casts(path.read_text(encoding="utf-8"))
        for path in _tree(folder / "tl_templates" / "ascend", ["*.h"])
    }


@cache
def _header_key() -> str:
    files = _tree(HERE, ["*.h", "*.cpp"])
    return digest([str(path.relative_to(HERE)) for path in files] + [path.read_bytes() for path in files])


def _template_folder() -> Path | None:
    """The patched headers of this very wheel, in a folder named by their content."""
    texts = _template_texts()
    if not texts:
        return None
    target = cache_root() / "headers" / digest([wheel()[0], *texts, *texts.values()])

    def fill(folder: Path) -> None:
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")

    with _alone(target):
        return once(target, fill)


@contextlib.contextmanager
def _alone(target: Path) -> Iterator[None]:
    """While no other thread or process fills a folder beside `target`: what all need first is made by one of them."""
    if target.exists():
        yield
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
        yield


def once(target: Path, fill: Callable[[Path], None]) -> Path:
    """`target`, filled in a folder beside it and then renamed, so that nobody sees half of it."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fill(made)
        with contextlib.suppress(OSError):  # another process was first
            made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target


def _compile(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if re.search(r"error|undefined reference", line)]
        shown = "\n".join((lines or done.stderr.splitlines())[:_ERRORS_SHOWN])
        raise BuildError(f"{what} does not compile:\n{shown}")


def runtime(sanitize: str = "") -> Path:
    """The folder with the runtime's objects, compiled side by side at first use."""
    path, version = compiler()
    effort = "-O1" if sanitize else "-O3"  # a sanitized one is for few launches
    flags = (*FLAGS, effort, *RUNTIME_FLAGS, *SANITIZERS[sanitize])
    target = cache_root() / "runtime" / digest([_header_key(), version, *flags])

    def fill(folder: Path) -> None:
        def one(files: Sequence[str]) -> None:
            unit = folder / f"{'_'.join(files)}.cpp"
            unit.write_text("".join(f'#include "{HERE / "runtime" / name}.cpp"\n' for name in files), encoding="utf-8")
            _compile([path, *flags, "-c", str(unit), "-o", str(unit.with_suffix(".o"))], f"the runtime's {unit.name}")

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(one, UNITS))

    with _alone(target):
        return once(target, fill)


def _prefix(flags: Sequence[str]) -> Path:
    """A header that includes what every kernel begins with, and beside it its precompiled form for these flags."""
    path, version = compiler()
    target = cache_root() / "prefix" / digest([_header_key(), version, *flags])

    def fill(folder: Path) -> None:
        (folder / "prefix.h").write_text(_PREFIX, encoding="utf-8")
        made = ["-x", "c++-header", str(folder / "prefix.h"), "-o", str(folder / "prefix.h.gch")]
        _compile([path, *flags, f"-I{HERE / 'include'}", f"-I{HERE}", *made], "the headers of the simulator")

    with _alone(target):
        return once(target, fill) / "prefix.h"


def build(text: str, sanitize: str = "") -> Path:
    """The shared object of a kernel, from the cache or built now.

    Args:
        text: AscendC source of one kernel.
        sanitize: "", "undefined" or "address": the host compiler's sanitizer for kernel and runtime. With "address"
            the checks of raw accesses and races are off (the two cannot be combined), and the process has to be
            started with the sanitizer's library preloaded.

    Raises:
        InvalidArgumentError: another value of sanitize.
        SourceError: the text has no kernel that can be launched.
        BuildError: no compiler, it rejects the text, or the processor is not one that the build is for.
    """
    if sanitize not in SANITIZERS:
        raise InvalidArgumentError("sanitize", sanitize, "'', 'undefined' or 'address'")
    path, version = compiler()
    if unfit := processor():
        raise BuildError(unfit)
    of_headers = {name for header in _template_texts().values() for name in source.simd_functions(header)}
    code = source.prepared(text, of_headers if "tl_templates" in text else set())
    watched = KERNEL_FLAGS if sanitize != "address" else ("-w",)
    flags = (*FLAGS, *watched, *SANITIZERS[sanitize])
    templates = digest([*_template_texts(), *_template_texts().values()]) if "tl_templates" in text else ""
    key = digest([code, _header_key(), wheel()[0] if templates else "", templates, version, *flags])
    target = cache_root() / "kernels" / key
    if target.exists():
        return target / "kernel.so"
    objects, prefix = runtime(sanitize), _prefix(flags)
    folders = [HERE / "include", HERE]
    if templates and (patched := _template_folder()) is not None:
        folders.append(patched)

    def fill(folder: Path) -> None:
        (folder / "kernel.cpp").write_text(code, encoding="utf-8")
        include = [f"-I{f}" for f in folders]
        files = ["-include", str(prefix), "-c", str(folder / "kernel.cpp"), "-o", str(folder / "kernel.o")]
        _compile([path, *flags, *include, *files], "the kernel")
        linked = [*SANITIZERS[sanitize], "-shared", "-pthread", str(folder / "kernel.o")]
        together = [path, *linked, *map(str, sorted(objects.glob("*.o"))), "-o", str(folder / "kernel.so")]
        _compile(together, "the kernel")
        (folder / "kernel.o").unlink()

    return once(target, fill) / "kernel.so"


def build_all(texts: Sequence[str], sanitize: str = "", jobs: int = 0) -> list[Path]:
    """Several kernels side by side, `jobs` at a time (0: as many as processors); in order. Raises as `build`."""
    runtime(sanitize)
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        return list(pool.map(lambda text: build(text, sanitize), texts))
