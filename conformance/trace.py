"""Op calls of a forward, seen through the kernel registry.

While a trace runs, every kernel of the active backend and of the reference is registered a second time, under a
backend of its own that is active then: the same function, with an observer in front. Selection, weight layouts and
fallbacks stay what they are; nothing is patched, and a pinned op goes past the observer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor

from ..hal.registry import REFERENCE, REGISTRY, Kernel
from ..ops.rows import restride
from ..ops.spec import SPECS, OpSpec, TensorArg

TRACE = "conformance trace"
OWN_FIRST = 1 << 20
"""Added to the priority of the active backend's kernels, so that they still come before the reference's."""


@dataclass(frozen=True)
class OpCall:
    """One call of an op.

    Attributes:
        place: where in the forward ('step 0, layer 3').
        index: number of the call in the trace.
        op: name of the op.
        kernel: id of the kernel that ran.
        args: the arguments as they were before the call.
        results: outputs, then the written arguments as they were after it.
        device: torch's type of the device that it ran on.
    """

    place: str
    index: int
    op: str
    kernel: str
    args: tuple[Any, ...] = ()
    results: tuple[Tensor, ...] = ()
    device: str = "cpu"

    @property
    def step(self) -> int:
        """Number of the step."""
        return int(self.place.partition(",")[0].removeprefix("step "))

    @property
    def layer(self) -> str:
        """The place without its step: 'layer 3'."""
        return self.place.partition(", ")[2]

    def __str__(self) -> str:
        return f"{self.place}, call {self.index}, {self.op}"


@dataclass
class Trace:
    """Calls in order.

    Attributes:
        place: where the forward is; whoever drives it says so.
        keep: whether arguments and results are kept, for an op.
        calls: what was seen.
    """

    place: str = ""
    keep: Callable[[str], bool] = lambda op: True
    calls: list[OpCall] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def fallbacks(self, backend: str, device: str = "cpu") -> list[str]:
        """Ops that ran on kernels of another backend than this one, on a device of that type: work in host memory is
        the reference's own."""
        return sorted({c.op for c in self.calls if c.kernel.split(":")[0] != backend and c.device == device})

    def watch(self, spec: OpSpec, kernel: Kernel, *args: Any) -> Any:
        """Run a kernel and note the call."""
        given = args[: len(spec.args)]
        keep = self.keep(spec.name)
        before = tuple(_kept(a, v) for a, v in zip(spec.args, given, strict=True)) if keep else ()
        result = kernel.fn(*args)
        results: tuple[Tensor, ...] = ()
        if keep:
            outs = result if isinstance(result, tuple) else () if result is None else (result,)
            written = (v for a, v in zip(spec.args, given, strict=True) if getattr(a, "mutable", False))
            results = (*outs, *(restride(v) for v in written if v is not None))
        device = next((v.device.type for v in given if isinstance(v, Tensor)), "cpu")
        with self._lock:
            self.calls.append(OpCall(self.place, len(self.calls), spec.name, kernel.id, before, results, device))
        return result


def _kept(arg: Any, value: Any) -> Any:
    """Pools and what an op writes change after the call; everything else stays as it is."""
    if isinstance(arg, TensorArg) and value is not None and (arg.mutable or arg.layout == "rows"):
        return restride(value)
    return value


@contextmanager
def tracing(trace: Trace) -> Iterator[Trace]:
    """Note every op call of a with block."""
    active, arch = REGISTRY.active, REGISTRY.arch
    added: list[Kernel] = []
    try:
        for kernel in REGISTRY.kernels():
            spec = SPECS.get(kernel.op)
            if spec is None or kernel.backend not in (active, REFERENCE):
                continue
            first = OWN_FIRST if kernel.backend == active else 0
            watched = partial(trace.watch, spec, kernel)
            twin = replace(kernel, backend=TRACE, name=kernel.id, priority=kernel.priority + first, fn=watched)
            added.append(REGISTRY.add(twin))
        with REGISTRY.using(TRACE, arch):
            yield trace
    finally:
        for kernel in added:
            REGISTRY.remove(kernel)
