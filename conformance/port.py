"""`deepinfer port new`: writes the files of a new kernel, its registration and its test, in this repository or outside.

Nothing that exists is overwritten: an op that the backend has already is refused, and files that are there are added
to.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..hal.errors import InvalidArgumentError
from ..ops.spec import SPECS, OpSpec
from . import scaffold

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_MODULES = re.compile(r"kernel_modules = \((?P<inside>[^)]*)\)")
_OPS = re.compile(r"^OPS = \[(?P<inside>[^\]]*)\]", re.MULTILINE)


@dataclass(frozen=True)
class Place:
    """Where the files of a backend go.

    Attributes:
        package: folder of the backend's modules.
        tests: folder of its tests.
        project: pyproject.toml of a project of its own; None inside the repository.
        home: how a kernel module imports deepinfer.
    """

    package: Path
    tests: Path
    project: Path | None
    home: str


@dataclass(frozen=True)
class Written:
    """One file that was made or added to."""

    path: Path
    what: str


def inside(root: Path, backend: str) -> Place:
    """The place of a backend of this repository, whose root is given."""
    return Place(root / "backends" / backend, root / "tests" / "backends" / backend, None, "...")


def outside(directory: Path, backend: str) -> Place:
    """The place of a backend that is a project of its own."""
    package = f"deepinfer_{backend}"
    return Place(directory / "src" / package, directory / "tests", directory / "pyproject.toml", "deepinfer")


def repository() -> Path | None:
    """The root of the source tree that this package runs from, None for an installed one."""
    root = Path(__file__).resolve().parents[1]
    return root if (root / "pyproject.toml").is_file() and (root / "src" / "deepinfer").is_dir() else None


def new(backend: str, op: str, place: Place) -> list[Written]:
    """Write or extend the backend's package, the module of the op's family and the test.

    Raises:
        InvalidArgumentError: no such op; a name that no package can have; the backend has a kernel of the op already.
    """
    spec = SPECS.get(op)
    if spec is None:
        raise InvalidArgumentError("OP", op, f"an op of the contract: {', '.join(sorted(SPECS))}")
    if not _NAME.fullmatch(backend) or keyword.iskeyword(backend):
        raise InvalidArgumentError("BACKEND", backend, "lower-case letters, digits and underscores, a letter first")
    # All texts are made, and with them every refusal, before anything is written.
    files = [
        _package(backend, spec, place),
        _kernel(backend, spec, place),
        _test(backend, spec, place),
    ]
    if place.project is not None and not place.project.exists():
        files.insert(0, (place.project, scaffold.project_file(backend, place.package.name), "made: project file"))
    for path, text, _ in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [Written(path, what) for path, _, what in files]


File = tuple[Path, str, str]


def _package(backend: str, spec: OpSpec, place: Place) -> File:
    path = place.package / "__init__.py"
    module = f'".{spec.family}"'
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    made = "kernel_modules" not in text
    if made:
        if len(text.strip().splitlines()) > 1:
            raise InvalidArgumentError(
                "BACKEND", backend, f"a package whose {path} lists its kernel_modules in a tuple"
            )
        text = scaffold.backend_module(backend, place.package.name, place.project is None)
    listed = _MODULES.search(text)
    if listed is None:
        raise InvalidArgumentError("BACKEND", backend, f"a package whose {path} lists its kernel_modules in a tuple")
    if module not in listed["inside"]:
        modules = [m for m in map(str.strip, listed["inside"].split(",")) if m]
        lines = "".join(f"        {m},\n" for m in [*modules, module])
        text = f"{text[: listed.start('inside')]}\n{lines}    {text[listed.end('inside') :]}"
    return path, text, f"{'made' if made else 'added to'}: the backend, with its list of kernel modules"


def _kernel(backend: str, spec: OpSpec, place: Place) -> File:
    path = place.package / f"{spec.family}.py"
    if not path.exists():
        return path, scaffold.module(spec, backend, place.home), f"made: the kernel of {spec.name}"
    text = path.read_text(encoding="utf-8")
    if re.search(rf'kernel\(\s*"{spec.name}"', text):
        raise InvalidArgumentError("OP", spec.name, f"an op that {path} has no kernel of yet")
    if spec.handle and "WeightHandle" not in text:
        text = _import_handle(text, place.home)
    return path, f"{text.rstrip()}\n\n\n{scaffold.function(spec, backend)}", f"added to: the kernel of {spec.name}"


def _import_handle(text: str, home: str) -> str:
    line = "from ...ops.spec import WeightHandle" if home == "..." else f"from {home}.ops.spec import WeightHandle"
    registry = re.search(r"^from .*registry import .*$", text, re.MULTILINE)
    if registry is None:
        raise InvalidArgumentError("BACKEND", home, "kernel modules that import `kernel` from hal.registry")
    return f"{text[: registry.end()]}\n{line}{text[registry.end() :]}"


def _test(backend: str, spec: OpSpec, place: Place) -> File:
    path = place.tests / f"test_{spec.family}_conformance.py"
    if not path.exists():
        return path, scaffold.test_module([spec.name], backend, place.project is None), f"made: the test of {spec.name}"
    text = path.read_text(encoding="utf-8")
    listed = _OPS.search(text)
    if listed is None:
        raise InvalidArgumentError("OP", spec.name, f"a test file {path} with a list OPS")
    if f'"{spec.name}"' not in listed["inside"]:
        text = f'{text[: listed.end("inside")]}, "{spec.name}"{text[listed.end("inside") :]}'
    return path, text, f"added to: the test of {spec.name}"


def next_steps(backend: str, spec_name: str, place: Place, known: Callable[[str], bool]) -> list[str]:
    """What is left to do by hand, in order."""
    steps = []
    if place.project is not None and not known(backend):
        steps.append(f"pip install --no-deps -e {place.project.parent}  (in the environment that deepinfer is in)")
    elif not known(backend):
        steps += [
            f'add  {backend} = "deepinfer.backends.{backend}:backend"  under '
            '[project.entry-points."deepinfer.backends"] in pyproject.toml',
            "add the same to BUILT_IN in hal/catalog.py, for source trees that are not installed",
        ]
    steps += [
        f"write the kernel: `deepinfer ops show {spec_name}` has the whole spec; until then the op raises on this "
        "backend",
        f"deepinfer conformance run --backend {backend} --ops {spec_name} --suite quick",
    ]
    return steps
