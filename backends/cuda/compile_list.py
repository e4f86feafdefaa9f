"""Which kernels exist in which shapes: what `deepinfer build` compiles ahead of time, and CI on every change.

A module with kernels says so in a list:

    COMPILES = [
        CompileCase(scale, {"x_ptr": "*bf16", "out_ptr": "*bf16", "n": "i32", "stride": "i64"}, {"BLOCK": 128}),
    ]

A case must say exactly what a launch gives, or the binary made ahead is not the one that is looked for.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ...hal.errors import InvalidArgumentError
from ...hal.registry import REGISTRY
from . import backend, cache, nvrtc, source
from .jit import DEFAULTS, INTEGERS, integer_type
from .register import ARCHS

SELF_TEST = "self_test_kernels"


@dataclass(frozen=True)
class CompileCase:
    """One binary for each chip.

    Attributes:
        kernel: made by `jit`, not under the interpreter.
        signature: Triton's type of every argument that is no `tl.constexpr`, such as '*bf16', 'i32', 'i64', 'fp32'.
            Pointers are taken as aligned to 16 bytes; '*bf16:1' is one that is not; None is an absent tensor.
        constexprs: values of the `tl.constexpr` arguments; defaults of the function fill in.
        num_warps, num_stages: launch options.
        label: tells the cases of one kernel apart.
        options: other launch options, such as {"enable_fp_fusion": True}.
        archs: chips that it is compiled for.
        slow: takes more than about ten seconds to compile; the check of every run takes another case of the kernel.
    """

    kernel: Any
    signature: Mapping[str, str | None]
    constexprs: Mapping[str, Any]
    num_warps: int = 4
    num_stages: int = 3
    label: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    archs: tuple[str, ...] = ARCHS
    slow: bool = False

    @property
    def name(self) -> str:
        """'kernel' or 'kernel[label]'."""
        return f"{self.kernel.__name__}[{self.label}]" if self.label else str(self.kernel.__name__)

    def arguments(self) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
        """Types, constants and options, as `jit.binary_of` takes them.

        Raises:
            InvalidArgumentError: an argument is missing, unknown, in the wrong place, or of a type that no launch has.
        """
        types: dict[str, str] = {}
        constants: dict[str, Any] = {}
        kinds: Mapping[str, str] = self.kernel.kinds
        parameters = inspect.signature(self.kernel.fn).parameters
        for name, kind in kinds.items():
            if kind == "constexpr":
                default = parameters[name].default
                if name not in self.constexprs and default is inspect.Parameter.empty:
                    raise InvalidArgumentError(f"{self.name}: {name}", "nothing", "a value in constexprs")
                constants[name] = self.constexprs.get(name, default)
                continue
            if name not in self.signature:
                raise InvalidArgumentError(f"{self.name}: {name}", "nothing", "a type in signature, None if absent")
            given = self.signature[name]
            if given is None:
                constants[name] = None
            elif given in INTEGERS and given != integer_type(kind):
                raise InvalidArgumentError(f"{self.name}: {name}", given, f"{integer_type(kind)}, as it is annotated")
            else:
                types[name] = given
        constexprs = {name for name, kind in kinds.items() if kind == "constexpr"}
        misplaced = (set(self.signature) - (set(kinds) - constexprs)) | (set(self.constexprs) - constexprs)
        if misplaced:
            raise InvalidArgumentError(f"{self.name}: {min(misplaced)}", "an argument there", f"of {', '.join(kinds)}")
        return types, constants, {"num_warps": self.num_warps, "num_stages": self.num_stages, **self.options}


@dataclass(frozen=True)
class Listed:
    """A case or a CUDA source, with the module that lists it."""

    module: str
    name: str
    case: Any

    @property
    def kernel(self) -> str:
        """The name without the label: the same for all cases of one kernel."""
        return re.split(r"[\[(]", self.name)[0]

    def key(self, arch: str) -> str:
        """Digest of all that the binary for a chip is made from, the compiler's version included."""
        if isinstance(self.case, CompileCase):
            types, constants, options = self.case.arguments()
            number = int(arch.removeprefix("sm_"))
            return cache.key(self.case.kernel, types, constants, {**DEFAULTS, **options}, number)[:16]
        text = source.text_of(self.case.file)
        parts = (text, self.case.entry, str(self.case.shared), arch, nvrtc.version(), *self.case.options)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def modules() -> list[ModuleType]:
    """The modules of this package that list kernels: families, `…_kernels` and `…_compiles`."""
    here = Path(__file__).parent
    families = [name.removeprefix(".") for name in backend.kernel_modules]
    others = sorted(path.stem for kind in ("kernels", "compiles") for path in here.glob(f"*_{kind}.py"))
    return [importlib.import_module(f".{name}", __package__) for name in (*families, *others)]


def listed() -> list[Listed]:
    """Everything there is to compile: `COMPILES` (Triton) and `SOURCES` (CUDA C++) of each module, each once.

    Raises:
        InvalidArgumentError: two cases have one name.
    """
    found: dict[str, Listed] = {}
    for module in modules():
        short = module.__name__.rpartition(".")[2]
        for case in (*getattr(module, "COMPILES", ()), *getattr(module, "SOURCES", ())):
            entry = Listed(short, case.name if isinstance(case, CompileCase) else str(case), case)
            known = found.setdefault(entry.name, entry)
            if known.case is not case:
                raise InvalidArgumentError("COMPILES", entry.name, f"a label of its own ({known.module}, {short})")
    return list(found.values())


def for_ops(entries: Sequence[Listed], ops: Iterable[str]) -> list[Listed]:
    """What a process needs that calls some ops: their families, and the self-test that it begins with.

    Raises:
        InvalidArgumentError: see `of_op`.
    """
    chosen = {entry.name for op in ops for entry in of_op(entries, op)}
    return [entry for entry in entries if entry.name in chosen or entry.module == SELF_TEST]


def of_op(entries: Iterable[Listed], op: str) -> list[Listed]:
    """The entries of one op's family.

    Raises:
        InvalidArgumentError: no kernel of this backend is registered for the op; names those there are.
    """
    ops: dict[str, set[str]] = {}
    for kernel in REGISTRY.kernels():
        if kernel.backend == backend.name:
            ops.setdefault(kernel.op, set()).add(_module_of(kernel.fn))
    if op not in ops:
        raise InvalidArgumentError("op", op, ", ".join(sorted(ops)) or "none: no kernel is registered")
    return [entry for entry in entries if any(_same_family(entry.module, family) for family in ops[op])]


def _module_of(fn: Callable[..., Any]) -> str:
    return str(inspect.unwrap(fn).__module__).rpartition(".")[2]


def _same_family(module: str, family: str) -> bool:
    return module == family or (module.startswith(f"{family}_") and module.endswith(("_kernels", "_compiles")))
