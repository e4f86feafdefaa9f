"""Lowering ahead of time, for `deepinfer build --arch dav-3510`: texts of kernels, and images where bisheng is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import FunctionType, ModuleType

from ...hal.errors import DeepInferError, InvalidArgumentError
from ...hal.registry import REGISTRY
from . import backend, driver, versions
from .build import programs
from .discovery import Host, Tools, compiler_paths
from .program import Program
from .sim import build

ARCH = versions.ARCH


@dataclass(frozen=True)
class Built:
    """What became of one program.

    Attributes:
        name: its label. origin: where its text is from: "kept", "lowered" or "by hand".
        seconds: that it took, compiling included.
        text, image: the files written, "" for none.
        differs: with `check`, whether the text is another than the one that is part of the package.
        error: why it could not be lowered or compiled, "" where it could.
    """

    name: str
    origin: str
    seconds: float
    text: str = ""
    image: str = ""
    differs: bool = False
    error: str = ""


def folder() -> Path:
    """Where texts and images are written when nobody says where."""
    return build.cache_root() / ARCH


def chosen(ops: Sequence[str]) -> list[Program]:
    """The programs of these ops' families and of those that they call, all for no op.

    Raises:
        InvalidArgumentError: an op of which this backend has no kernel.
    """
    every = programs()
    if not ops:
        return every
    backend.load()
    files = {k.op: k.fn.__module__ for k in REGISTRY.kernels() if k.backend == backend.name}
    for op in ops:
        if op not in files:
            raise InvalidArgumentError("op", op, f"one of {', '.join(sorted(files))}")
    modules: set[str] = set()
    for op in ops:
        _follow(files[op], modules)
    values = [value for name in modules for value in vars(sys.modules[name]).values()]
    members = [m for value in values for m in (value.values() if isinstance(value, dict) else (value,))]
    labels = {member.label for member in members if isinstance(member, Program)}
    return [program for program in every if program.label in labels]


def _follow(name: str, found: set[str]) -> None:
    """A module of this package, and those whose functions or values it uses."""
    if name in found or name == __package__ or not name.startswith(f"{__package__}."):
        return
    found.add(name)
    for value in vars(sys.modules[name]).values():
        if isinstance(value, ModuleType):
            _follow(value.__name__, found)
        elif isinstance(value, FunctionType):
            _follow(value.__module__, found)


def build_ahead(
    where: Path,
    ops: Sequence[str] = (),
    *,
    check: bool = False,
    progress: Callable[[int, int, str], None] = lambda done, total, name: None,
    tools: Tools | None = None,
) -> list[Built]:
    """Write the AscendC text of every kernel, and its image where bisheng is found.

    A text that is not current is lowered, and kept in the cache for later processes.

    Args:
        where: folder of `LABEL.cpp` and, in `images/`, of the images; made where it is missing. Launches look for
            images in that of `folder()` alone.
        ops: only kernels of these ops' families, and of those that they call; all by default.
        check: lower everything anew, past the cache, and compare with the texts that are part of the package.
        progress: called with how many are done, how many there are, and what comes next.
        tools: what the machine has; fakes in tests.

    Returns:
        One entry for each program; one that fails keeps no other from being built.

    Raises:
        InvalidArgumentError: an unknown op.
    """
    tools = Host() if tools is None else tools
    work = chosen(ops)
    where.mkdir(parents=True, exist_ok=True)
    found = []
    for done, program in enumerate(work):
        progress(done, len(work), program.label)
        found.append(_one(program, where, check, tools if compiler_paths(tools) else None))
    progress(len(work), len(work), "")
    return found


def _one(program: Program, where: Path, check: bool, tools: Tools | None) -> Built:
    begun = perf_counter()
    kept = program.current() and not check
    origin = "by hand" if program.written else "kept" if kept else "lowered"
    text = image = ""
    differs = False
    try:
        fresh = check and not program.written
        content = program.lowered() if fresh else program.text()
        committed = program.committed
        differs = fresh and not (committed.is_file() and committed.read_text(encoding="utf-8") == content)
        path = where / f"{program.label}.cpp"
        path.write_text(content, encoding="utf-8")
        text = str(path)
        if tools is not None:
            (where / "images").mkdir(exist_ok=True)
            path = where / "images" / driver.image_name(program.label, content, tools)
            image = str(driver.compile_image(content, path, tools))
    except DeepInferError as error:
        return Built(program.label, origin, perf_counter() - begun, text, image, differs, str(error))
    return Built(program.label, origin, perf_counter() - begun, text, image, differs)


def table(built: Sequence[Built], where: Path, compiler: bool) -> str:
    """The result as lines: one for each program that is not just the kept text, and what there is in all."""
    lines = []
    for one in built:
        if one.error:
            lines.append(f"{one.name}: {one.error}")
        elif one.differs:
            lines.append(f"{one.name}: lowered in {one.seconds:.1f} s, differs from the text of the package")
        elif one.origin == "lowered":
            lines.append(f"{one.name}: lowered in {one.seconds:.1f} s")
    count = {origin: sum(one.origin == origin for one in built) for origin in ("kept", "lowered", "by hand")}
    texts, images = sum(bool(one.text) for one in built), sum(bool(one.image) for one in built)
    made = f"{images} images" if compiler else "no images: there is no bisheng with its ld.lld"
    origins = ", ".join(f"{n} {origin}" for origin, n in count.items() if n)
    lines.append(f"{texts} of {len(built)} texts for {ARCH} in {where} ({origins}); {made}")
    return "\n".join(lines)
