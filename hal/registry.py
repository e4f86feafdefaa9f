"""Kernel registry: which kernel runs an op, and why.

A kernel is a plain Python callable with a record beside it. Selection is by capability, then priority; a kernel of the
active backend comes before the reference, which is the visible fallback. The rules:

1. only kernels of the active backend and of `reference` are candidates; a pin narrows an op to what it names;
2. a kernel must run on the tensors' device type and chip, take the version of the op and the layout of a prepared
   weight, be batch-invariant (unless fast kernels are allowed), and its `supports` must say yes;
3. of those, the active backend's before the reference, then the highest priority, then the name.
"""

from __future__ import annotations

import difflib
import fnmatch
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from . import env
from .errors import BackendError, InvalidArgumentError, KernelError

Source = Literal["torch", "triton", "tilelang", "cuda", "ascendc", "none"]
REFERENCE = "reference"
CONTRACT_LAYOUT = "contract"

# Only a kernel launched from one of these sources counts as a backend's own; a wrapper over torch is a fallback.
OWN_SOURCES: frozenset[str] = frozenset({"triton", "tilelang", "cuda", "ascendc"})


@dataclass(frozen=True)
class ArgInfo:
    """What a kernel may know of one tensor argument before it runs: never a row count."""

    dtype: Any
    contiguous: bool
    strides: tuple[int, ...] | None
    """Element strides when the tensor is not contiguous, else None."""
    aligned: bool
    """The first element lies on a 16-byte boundary."""


@dataclass(frozen=True)
class Signature:
    """The static part of one call of an op.

    Attributes:
        op, version: the spec.
        device_type: torch device type of the arguments ('cpu', 'cuda', 'npu', …).
        arch: chip name as the active backend reports it, '' where there is none.
        args: dtype, layout and alignment class per tensor argument; absent optional arguments are missing.
        dims: values of the static named dims.
        scalars: values of the static scalar arguments.
        layout: layout of the prepared weight, None for ops without one.
        preparing: True while a weight is prepared: dims and arguments of the activations are then missing.
    """

    op: str
    version: int
    device_type: str
    arch: str = ""
    args: Mapping[str, ArgInfo] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    scalars: Mapping[str, Any] = field(default_factory=dict)
    layout: str | None = None
    preparing: bool = False

    def __str__(self) -> str:
        parts = [f"{k}={v}" for k, v in (*self.dims.items(), *self.scalars.items())]
        kinds = [f"{k}:{str(v.dtype).removeprefix('torch.')}" for k, v in self.args.items()]
        return f"{self.op}({', '.join(kinds + parts)}) on {self.device_type}{f'/{self.arch}' if self.arch else ''}"


Supports = Callable[[Signature], "str | None"]


@dataclass(frozen=True)
class Kernel:
    """One implementation of one op.

    Attributes:
        op, version: the spec this kernel keeps.
        backend: 'reference', 'cuda', 'ascend' or an out-of-tree name.
        fn: positional arguments in spec order, then `out`, then `workspace` where `workspace` below is given.
        name: tells kernels of one backend apart.
        priority: higher wins among kernels that can run.
        source: what the kernel is written in.
        device_types: torch device types it runs on; empty = any.
        archs: chips it runs on; empty = any.
        supports: None for yes, else a reason that says what is supported.
        layout: weight layout it consumes; 'contract' is the packed weight as the spec states it.
        prepare: turns contract weights into that layout; None = takes them as they are.
        workspace: bytes of scratch for given arguments; None = no scratch.
        fast: not batch-invariant; used only when the user gives invariance up.
    """

    op: str
    version: int
    backend: str
    fn: Callable[..., Any]
    name: str = ""
    priority: int = 0
    source: Source = "torch"
    device_types: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    supports: Supports | None = None
    layout: str = CONTRACT_LAYOUT
    prepare: Callable[..., tuple[Any, ...]] | None = None
    workspace: Callable[..., int] | None = None
    fast: bool = False

    @property
    def id(self) -> str:
        """`backend` or `backend:name`, as pins and reports spell it."""
        return f"{self.backend}:{self.name}" if self.name else self.backend

    @property
    def own(self) -> bool:
        """Whether this counts as a kernel of its backend, not as a fallback over torch."""
        return self.backend == REFERENCE or self.source in OWN_SOURCES


@dataclass(frozen=True)
class Verdict:
    """Why a kernel was or was not chosen for a signature."""

    kernel: Kernel
    chosen: bool
    reason: str


class Registry:
    """All kernels, and the process-wide choices among them. Thread-safe; a change drops cached selections."""

    def __init__(self) -> None:
        self._kernels: dict[str, list[Kernel]] = {}
        self._lock = threading.RLock()
        self._listeners: list[Callable[[], None]] = []
        self._active = REFERENCE
        self._arch = ""
        self._pins: list[tuple[str, str]] | None = None
        self._strict: bool | None = None
        self._allow_fast: bool | None = None

    def add(self, kernel: Kernel) -> Kernel:
        """Register a kernel.

        Raises:
            BackendError: a kernel with the same op, version, backend and name exists.
        """
        with self._lock:
            known = self._kernels.setdefault(kernel.op, [])
            if any((k.id, k.version) == (kernel.id, kernel.version) for k in known):
                raise BackendError(
                    f"kernel {kernel.id!r} for op {kernel.op!r} version {kernel.version} registered twice; "
                    "name= tells kernels of one backend apart"
                )
            known.append(kernel)
        self._changed()
        return kernel

    def remove(self, kernel: Kernel) -> None:
        """Take a kernel out again (plug-in unloading, tests)."""
        with self._lock:
            self._kernels[kernel.op].remove(kernel)
        self._changed()

    def kernels(self, op: str | None = None) -> tuple[Kernel, ...]:
        """Registered kernels of one op, or of all."""
        with self._lock:
            if op is not None:
                return tuple(self._kernels.get(op, ()))
            return tuple(k for ks in self._kernels.values() for k in ks)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a cached selection may be stale."""
        self._listeners.append(listener)

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()

    # ---- process-wide choices -------------------------------------------------------------------------------

    @property
    def active(self) -> str:
        """Name of the active backend."""
        return self._active

    @property
    def arch(self) -> str:
        """Chip name stated by the active backend, '' where there is none."""
        return self._arch

    def activate(self, backend: str, arch: str = "") -> None:
        """Make a backend's kernels the first choice."""
        with self._lock:
            self._active, self._arch = backend, arch
        self._changed()

    @contextmanager
    def using(self, backend: str, arch: str = "") -> Iterator[None]:
        """`activate` for the duration of a with block."""
        before = (self._active, self._arch)
        self.activate(backend, arch)
        try:
            yield
        finally:
            self.activate(*before)

    @property
    def strict(self) -> bool:
        """Whether falling back to the reference is an error (DEEPINFER_STRICT_KERNELS)."""
        return bool(env.get("DEEPINFER_STRICT_KERNELS")) if self._strict is None else self._strict

    @property
    def allow_fast(self) -> bool:
        """Whether kernels that are not batch-invariant may run (DEEPINFER_BATCH_INVARIANT=0)."""
        return env.get("DEEPINFER_BATCH_INVARIANT") is False if self._allow_fast is None else self._allow_fast

    def configure(self, *, strict: bool | None = None, allow_fast: bool | None = None) -> None:
        """Override the environment's choices; None leaves one to the environment."""
        with self._lock:
            self._strict, self._allow_fast = strict, allow_fast
        self._changed()

    @contextmanager
    def configured(self, *, strict: bool | None = None, allow_fast: bool | None = None) -> Iterator[None]:
        """`configure` for the duration of a with block."""
        before = self._strict, self._allow_fast
        self.configure(strict=strict, allow_fast=allow_fast)
        try:
            yield
        finally:
            self.configure(strict=before[0], allow_fast=before[1])

    @contextmanager
    def pin(self, op: str, kernel: str) -> Iterator[None]:
        """Allow only kernels named `backend` or `backend:name` for ops matching the glob `op`, in a with block."""
        with self._lock:
            before = self._pins
            self._pins = [*self._current_pins(), (op, kernel)]
        self._changed()
        try:
            yield
        finally:
            with self._lock:
                self._pins = before
            self._changed()

    @contextmanager
    def unpinned(self, op: str, kernel: str) -> Iterator[None]:
        """Leave out pins of `op` to `kernel` in a with block: how that kernel calls the one it stands in front of."""
        with self._lock:
            before = self._pins
            self._pins = [pin for pin in self._current_pins() if pin != (op, kernel)]
        self._changed()
        try:
            yield
        finally:
            with self._lock:
                self._pins = before
            self._changed()

    def _current_pins(self) -> list[tuple[str, str]]:
        return parse_pins(str(env.get("DEEPINFER_PIN") or "")) if self._pins is None else self._pins

    def pinned(self, op: str) -> str | None:
        """The pin in force for an op: the last one that matches."""
        return next((k for pattern, k in reversed(self._current_pins()) if fnmatch.fnmatchcase(op, pattern)), None)

    def check_pins(self, ops: Iterable[str]) -> None:
        """Refuse pins that no op or no kernel can satisfy, before anything runs.

        Args:
            ops: names of all ops of the contract.

        Raises:
            InvalidArgumentError: names the pin, and the kernels or ops there are.
        """
        names = sorted(ops)
        for pattern, wanted in self._current_pins():
            pinned = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
            if not pinned:
                close = difflib.get_close_matches(pattern, names, 3) or names[:3]
                raise InvalidArgumentError(
                    "DEEPINFER_PIN", f"{pattern}={wanted}", f"an op of `deepinfer ops list`, such as {', '.join(close)}"
                )
            for name in pinned:
                known = {label for kernel in self.kernels(name) for label in (kernel.backend, kernel.id)}
                if wanted not in known:
                    raise InvalidArgumentError(
                        "DEEPINFER_PIN",
                        f"{pattern}={wanted}",
                        f"kernels of {name}: {', '.join(sorted(known)) or 'none'}",
                    )

    # ---- selection ------------------------------------------------------------------------------------------

    def _order(self, kernel: Kernel) -> tuple[bool, int, str]:
        return (kernel.backend != self._active, -kernel.priority, kernel.name)

    def _refusal(self, kernel: Kernel, signature: Signature, pin: str | None) -> str | None:
        """None if the kernel can run, else why not."""
        if pin is not None and pin not in (kernel.backend, kernel.id):
            return f"the op is pinned to {pin!r}"
        if pin is None and kernel.backend not in (self._active, REFERENCE):
            return f"backend {kernel.backend!r} is not active ({self._active!r} is)"
        if kernel.version != signature.version:
            return f"keeps version {kernel.version} of the op, wanted {signature.version}"
        if kernel.device_types and signature.device_type not in kernel.device_types:
            return f"runs on {', '.join(kernel.device_types)}, tensors are on {signature.device_type}"
        if kernel.archs and signature.arch not in kernel.archs:
            return f"built for {', '.join(kernel.archs)}, this is {signature.arch or 'no named chip'}"
        if kernel.fast and not self.allow_fast:
            return "not batch-invariant; allowed only with DEEPINFER_BATCH_INVARIANT=0"
        declined = None if kernel.supports is None else kernel.supports(signature)
        if declined is not None:  # before the layout: it is why another kernel prepared the weight
            return declined
        if signature.layout is not None and not signature.preparing and kernel.layout != signature.layout:
            return f"takes weights in layout {kernel.layout!r}, the handle holds {signature.layout!r}"
        return None

    def explain(self, signature: Signature) -> list[Verdict]:
        """Every registered kernel of the op with the reason for or against it, best first."""
        pin = self.pinned(signature.op)
        verdicts: list[Verdict] = []
        taken = False
        for kernel in sorted(self.kernels(signature.op), key=self._order):
            reason = self._refusal(kernel, signature, pin)
            if reason is None and not taken:
                taken = True
                fallback = kernel.backend != self._active and pin is None
                verdicts.append(Verdict(kernel, True, "fallback to the reference" if fallback else "chosen"))
            elif reason is None:
                verdicts.append(Verdict(kernel, False, "able, but comes later in order"))
            else:
                verdicts.append(Verdict(kernel, False, reason))
        return verdicts

    def select(self, signature: Signature) -> Kernel:
        """The kernel that runs a signature.

        Raises:
            KernelError: nothing can run it, or only the reference could and strict mode is on. The message gives
                each kernel's reason.
        """
        verdicts = self.explain(signature)
        chosen = next((v.kernel for v in verdicts if v.chosen), None)
        if chosen is None:
            reasons = "; ".join(f"{v.kernel.id}: {v.reason}" for v in verdicts) or "no kernel is registered"
            raise KernelError(f"no kernel for {signature}: {reasons}")
        host = signature.device_type == "cpu"  # work in host memory is the reference's own, not a fallback
        if chosen.backend != self._active and self.strict and not host and self.pinned(signature.op) is None:
            reasons = "; ".join(f"{v.kernel.id}: {v.reason}" for v in verdicts if not v.chosen) or "none registered"
            raise KernelError(
                f"strict mode: {signature} would fall back to the reference; kernels of {self._active!r}: {reasons}"
            )
        return chosen


def parse_pins(text: str) -> list[tuple[str, str]]:
    """Parse `op=backend[:name],…` (DEEPINFER_PIN).

    Raises:
        InvalidArgumentError: an entry is not of that form.
    """
    pins = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        op, equals, kernel = entry.partition("=")
        if not (op and equals and kernel):
            raise InvalidArgumentError(
                "DEEPINFER_PIN", entry, "comma-separated OP=BACKEND or OP=BACKEND:KERNEL, OP may be a glob"
            )
        pins.append((op.strip(), kernel.strip()))
    return pins


REGISTRY = Registry()


def kernel(
    op: str,
    *,
    version: int,
    backend: str,
    name: str = "",
    priority: int = 0,
    source: Source = "torch",
    device_types: tuple[str, ...] = (),
    archs: tuple[str, ...] = (),
    supports: Supports | None = None,
    layout: str = CONTRACT_LAYOUT,
    prepare: Callable[..., tuple[Any, ...]] | None = None,
    workspace: Callable[..., int] | None = None,
    fast: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: register a function as a kernel. The parameters are those of `Kernel`."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        REGISTRY.add(
            Kernel(
                op,
                version,
                backend,
                fn,
                name,
                priority,
                source,
                device_types,
                archs,
                supports,
                layout,
                prepare,
                workspace,
                fast,
            )
        )
        return fn

    return register
