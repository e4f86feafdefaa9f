"""A TileLang kernel of this backend: where it is written, its AscendC text, and its launch.

PROGRAM = Program("norm_kernels.py", "rms_norm")          # at module level; nothing is lowered or built
PROGRAM(work=len(x), X=flat(x), ..., eps=eps)             # on the device of the tensors

The text of a kernel is part of the package (`lowered/`), with a digest of the source that it came from. Where that
source has changed since, it is lowered anew and kept in the cache. On CPU tensors the text runs on the simulator; on an
NPU its image is launched (`driver.py`).
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from . import lower, versions
from .scratch import nothing
from .sim import Kernel, Report, Schedule, SourceError, build
from .sim import source as sim_source

HERE = Path(__file__).parent
LOWERED = HERE / "lowered"
WRITTEN = HERE / "source"
_MARK = "// Lowered by tilelang "
_DEVICE_LIMIT = 1 << 31

SIMULATED_CORES: Mapping[str, int] = {"vector": 3, "cube": 2, "mix": 2}
"""Blocks of a simulated launch by kind: more than one, so that work is shared, and few, since they run in turn."""


@dataclass(frozen=True)
class Run:
    """One launch on the simulator: the program, what it did, and the seconds that it took."""

    program: Program
    report: Report
    seconds: float


class Program:
    """One kernel.

    Args:
        file: `<family>_kernels.py` in this folder, or a `.cpp` in `source/` for a kernel that TileLang cannot express.
        name: the function in it that returns the kernel; the kernel's own name for a `.cpp`.
        needs: further files in this folder that the text depends on.
        parameters: arguments of that function, JSON values; they are part of the program's label.
    """

    def __init__(self, file: str, name: str, *, needs: tuple[str, ...] = (), **parameters: Any) -> None:
        self.file, self.name, self.needs, self.parameters = file, name, needs, parameters
        self._text: str | None = None
        self._signature: sim_source.Signature | None = None
        self._kernels: dict[int, Kernel] = {}
        self._lock = threading.Lock()

    @property
    def label(self) -> str:
        """Name of the text's file: the kernel's, with its parameters."""
        return "-".join([self.name, *(f"{key}_{value}" for key, value in sorted(self.parameters.items()))])

    @property
    def written(self) -> bool:
        """Whether it is AscendC by hand."""
        return self.file.endswith(".cpp")

    # ---- text -------------------------------------------------------------------------------------------------

    @property
    def committed(self) -> Path:
        """The text that is part of the package."""
        return WRITTEN / self.file if self.written else LOWERED / f"{self.label}.cpp"

    def digest(self) -> str:
        """Of the source, without comments, docstrings and layout: the function and what it uses of its file, the files
        that it needs, and its arguments."""
        texts = [(HERE / name).read_text(encoding="utf-8") for name in (self.file, *self.needs)]
        code = [_code(text, self.name if not i else None) for i, text in enumerate(texts)]
        return build.digest([self.name, repr(sorted(self.parameters.items())), *code])

    def current(self) -> bool:
        """Whether the text that is part of the package came from the source as it is now."""
        if self.written:
            return True
        try:
            with self.committed.open(encoding="utf-8") as file:
                first = file.readline()
        except OSError:
            return False
        return first.startswith(_MARK) and first.rstrip().endswith(f"source {self.digest()}.")

    def text(self) -> str:
        """The AscendC text: the package's where it is current, else lowered now, through the cache.

        Raises:
            LoweringError: it has to be lowered, and cannot be.
        """
        with self._lock:
            if self._text is None:
                self._text = self.committed.read_text(encoding="utf-8") if self.current() else self.lowered()
            return self._text

    def lowered(self) -> str:
        """The text as tilelang writes it from the source as it is now, with the line that `committed` begins with.

        Raises:
            LoweringError: tilelang is missing, or refuses the kernel.
        """
        needs = [HERE / name for name in self.needs]
        text = lower.lower(HERE / self.file, self.name, self.parameters, needs=needs)
        version = versions.package_version("tilelang")
        arguments = ", ".join(f"{key}={value!r}" for key, value in sorted(self.parameters.items()))
        return f"{_MARK}{version} from {self.file}: {self.name}({arguments}), source {self.digest()}.\n{text}"

    def signature(self) -> sim_source.Signature:
        """Name, kind and parameters of the kernel."""
        text = self.text()
        if self._signature is None:
            self._signature = sim_source.signature(text)
        return self._signature

    # ---- launch -----------------------------------------------------------------------------------------------

    def __call__(self, work: int, **arguments: Tensor | int | float) -> None:
        """Launch on the device of the tensors; they are read and written in place.

        Args:
            work: units that the cores share; with 0 nothing is launched.
            arguments: the kernel's parameters by name; `cores` is filled in, what the text does not name is left out.
        """
        if not work:
            return
        device = next(value.device for value in arguments.values() if isinstance(value, Tensor))
        if device.type == "cpu":
            self._simulate(work, arguments)
        else:
            from . import driver

            driver.launch(self, work, arguments, device)

    def _simulate(self, work: int, arguments: dict[str, Tensor | int | float]) -> None:
        signature = self.signature()
        blocks = min(SIMULATED_CORES[signature.kind], work)
        with self._lock:
            if self._text is not None and blocks not in self._kernels:
                self._kernels[blocks] = Kernel(self._text, blocks)
        names = {parameter.name for parameter in signature.parameters}
        given = {name: value for name, value in {**arguments, "cores": blocks}.items() if name in names}
        if missing := {n for n, v in arguments.items() if isinstance(v, Tensor)} - names:
            raise SourceError(f"{self.label} has no parameter {', '.join(sorted(missing))}")
        begun = perf_counter()
        fault = _watch.fault
        if fault is not None and fault.program is self:
            report = fault.kernel(blocks).run(given, _watch.schedule, **fault.options)
        else:
            report = self._kernels[blocks].run(given, _watch.schedule, seconds=600.0)
        if _watch.runs is not None:
            _watch.runs.append(Run(self, report, perf_counter() - begun))

    def __repr__(self) -> str:
        return f"Program({self.label})"


def _code(text: str, name: str | None) -> str:
    """What a function depends on of a file: all but other functions that it does not reach; all for None."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    reached, open_ = set(functions) if name is None else {name}, [] if name is None else [name]
    while open_:
        used = {n.id for n in ast.walk(functions[open_.pop()]) if isinstance(n, ast.Name)} & functions.keys()
        open_ += used - reached
        reached |= used
    tree.body = [node for node in tree.body if not isinstance(node, ast.FunctionDef) or node.name in reached]
    return ast.unparse(tree)


@dataclass(frozen=True)
class Fault:
    """Another kernel in the place of a program's, with options of its launches (see `Kernel.run`): to plant faults."""

    program: Program
    kernel: Callable[[int], Kernel]
    options: Mapping[str, Any]


class _Watch(threading.local):
    schedule = Schedule()
    runs: list[Run] | None = None
    fault: Fault | None = None


_watch = _Watch()


@contextmanager
def watched(schedule: Schedule | None = None, fault: Fault | None = None) -> Iterator[list[Run]]:
    """Run this thread's simulated launches under a schedule, with a fault or none, and list them."""
    before = _watch.schedule, _watch.runs, _watch.fault
    runs: list[Run] = []
    _watch.schedule, _watch.runs, _watch.fault = schedule or Schedule(), runs, fault
    try:
        yield runs
    finally:
        _watch.schedule, _watch.runs, _watch.fault = before


def recast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A contiguous tensor's bytes as elements of another dtype, the last dim longer or shorter.

    Copied where its first byte is no address of such an element, which TileLang's loads and torch both ask for.
    """
    wide = dtype.itemsize
    if tensor.data_ptr() % wide or tensor.storage_offset() * tensor.element_size() % wide:
        tensor = tensor.clone()
    last = tensor.shape[-1] * tensor.element_size() // wide
    row = tensor.as_strided((tensor.numel(),), (1,))  # dims of one element may have any stride
    return row.view(dtype).view(*tensor.shape[:-1], last)


def flat(tensor: Tensor) -> Tensor:
    """The memory of a tensor from its first to its last element, as one row; kernels address it by the strides.

    An empty tensor gives one element that no kernel reads.
    """
    if not tensor.numel():
        return nothing(tensor.device, tensor.dtype)
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.as_strided((span,), (1,))
