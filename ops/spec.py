"""What an op of the contract is: one `OpSpec` per op, as data.

A spec names its arguments with their dims, dtypes and layout, says in words what happens at the edges, states its
numerics class and cost, and generates samples that tests, conformance and benchmarks share. Dims are names ('T'),
integers, or expressions over names ('K//32', 'ceil(N,32)', 'E+1'). A dim named in `dynamic` may vary from call to call;
every other one is static and belongs to the signature that kernels are selected by.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..hal.errors import ContractError
from ..hal.registry import CONTRACT_LAYOUT, REGISTRY, Kernel, Signature
from .dispatch import build_run, ceil
from .numerics import Accumulated, Numerics

BF16 = torch.bfloat16
F32 = torch.float32
I32 = torch.int32
I64 = torch.int64
U8 = torch.uint8
BOOL = torch.bool
E4M3 = torch.float8_e4m3fn

_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Dim:
    """One dimension: a name, an integer or an expression, and the names it depends on."""

    text: str
    names: tuple[str, ...]
    plain: bool
    """A bare name, which a call binds; integers and expressions are checked against what the names bind."""

    @classmethod
    def parse(cls, text: str) -> Dim:
        names = tuple(n for n in _NAME.findall(text) if n != "ceil")
        return cls(text, names, bool(_NAME.fullmatch(text)))

    def value(self, dims: Mapping[str, int]) -> int:
        """Evaluate over bound names; KeyError if one is missing."""
        if self.plain:
            return dims[self.text]
        return int(eval(self.text, {"__builtins__": {}, "ceil": ceil}, dict(dims)))

    def substitute(self, expressions: Mapping[str, str]) -> str:
        """The text with every name replaced by a Python expression."""
        return _NAME.sub(lambda m: expressions.get(m.group(), m.group()), self.text)


@dataclass(frozen=True)
class TensorArg:
    """A tensor argument.

    Attributes:
        name, dims, dtypes: dtypes are those allowed.
        optional: None may be passed.
        mutable: the op writes into it.
        layout: 'contiguous', or 'rows': unit stride in the last dim, any in the others.
        host: lives in host memory whatever device the op runs on.
    """

    name: str
    dims: tuple[Dim, ...]
    dtypes: tuple[torch.dtype, ...]
    optional: bool = False
    mutable: bool = False
    layout: str = "contiguous"
    host: bool = False


@dataclass(frozen=True)
class ScalarArg:
    """A Python number, string or bool. Static ones belong to the signature; floats never do.

    Attributes:
        name, type, static.
        optional: None may be passed.
        choices: the values allowed; empty for any.
        low: least value; None for a float without one. The greatest integer is 2**31 - 1, and no float may be NaN or
            infinite.
        most: a dim that an integer may not exceed.
    """

    name: str
    type: type
    static: bool
    optional: bool = False
    choices: tuple[Any, ...] = ()
    low: int | None = 0
    most: Dim | None = None


@dataclass(frozen=True)
class HandleArg:
    """A weight made by `OpSpec.prepare`; `parts` describe the contract tensors it is made from."""

    name: str
    parts: tuple[TensorArg, ...]


@dataclass(frozen=True)
class Result:
    """An output: dims and the dtypes it may have.

    Attributes:
        name, dims, dtypes.
        in_place: the argument that `out` may be itself, with the same result; see `ops/overlap.py`.
        unspecified: which elements may hold anything, in words; empty if none may.
        defined: the same for machines: from the arguments by name, a bool tensor that broadcasts to the output, False
            where the element is unspecified. Comparators look at nothing else.
    """

    name: str
    dims: tuple[Dim, ...]
    dtypes: tuple[torch.dtype, ...]
    in_place: str | None = None
    unspecified: str = ""
    defined: Callable[[Mapping[str, Any]], torch.Tensor] | None = None


Arg = TensorArg | ScalarArg | HandleArg


@dataclass(frozen=True)
class WeightHandle:
    """A weight in the layout of the kernel that will read it.

    Attributes:
        op: op it was prepared for.
        layout: 'contract' or a backend's own.
        tensors: what the kernel reads, in the kernel's order.
        dims: static dims bound by the weight.
        nbytes: bytes held.
        key: its share of a call's static signature.
    """

    op: str
    layout: str
    tensors: tuple[torch.Tensor, ...]
    dims: Mapping[str, int]
    nbytes: int
    key: tuple[Any, ...]


@dataclass(frozen=True)
class Cost:
    """Work of one call: floating-point operations, and the fewest bytes it must move.

    Every byte that is read or written counts once, however often a kernel comes back to it. Dims and dtypes decide, not
    values: every row and lane counts as used, and indices as naming different places, as far as there are any.
    """

    flops: float
    bytes: float


@dataclass(frozen=True)
class Sample:
    """One set of arguments, in spec order. Labels starting with 'real' use the released model's widths."""

    label: str
    args: tuple[Any, ...]


Samples = Callable[[np.random.Generator, torch.device], Iterator[Sample]]


@dataclass(frozen=True, eq=False)
class OpSpec:
    """One op of the contract. See the module's docstring; `run` is the call with dispatch."""

    name: str
    version: int
    family: str
    args: tuple[Arg, ...]
    outs: tuple[Result, ...]
    dynamic: tuple[str, ...]
    semantics: str
    numerics: Numerics
    cost: Callable[[Mapping[str, int]], Cost]
    samples: Samples
    run: Callable[..., Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "run", build_run(self))

    @property
    def tensors(self) -> tuple[TensorArg, ...]:
        """The tensor arguments."""
        return tuple(a for a in self.args if isinstance(a, TensorArg))

    @property
    def handle(self) -> HandleArg | None:
        """The prepared weight argument, if the op has one."""
        return next((a for a in self.args if isinstance(a, HandleArg)), None)

    def is_static(self, dim: Dim) -> bool:
        """Whether a dim belongs to the signature."""
        return not any(n in self.dynamic for n in dim.names)

    def error(self, message: str) -> ContractError:
        """A contract error that names this op and its version."""
        return ContractError(self.name, self.version, message)

    def signature(self, *args: Any) -> Signature:
        """Static signature of a call. Raises ContractError if the arguments break the spec."""
        from .check import check_call

        return check_call(self, args)

    def dims(self, *args: Any) -> dict[str, int]:
        """All named dims of a call, dynamic ones included."""
        from .check import bind_dims

        return bind_dims(self, args)

    def terms(self, *args: Any) -> int:
        """Summed terms of one call of an accumulated op; a dim that only an absent optional argument binds counts 0.

        Raises:
            ContractError: the op is of another class.
        """
        if not isinstance(self.numerics, Accumulated):
            raise self.error(f"is {self.numerics.label}; only accumulated ops count terms")
        dim, bound = Dim.parse(self.numerics.terms), self.dims(*args)
        return dim.value({name: bound.get(name, 0) for name in dim.names})

    def defined(self, *args: Any) -> tuple[torch.Tensor | None, ...]:
        """Per output, where a call defines it: a bool tensor that broadcasts to it, or None where it defines all."""
        given = {arg.name: value for arg, value in zip(self.args, args, strict=True)}
        return tuple(None if out.defined is None else out.defined(given) for out in self.outs)

    def work(self, *args: Any) -> Cost:
        """Cost of a call: `cost` of its dims, of its bools as 0 or 1, and of 'NAME.itemsize' of every tensor given."""
        given = {k.name: v for k, v in zip(self.args, args, strict=True)}
        bools = {name: int(value) for name, value in given.items() if isinstance(value, bool)}
        widths = {f"{a.name}.itemsize": given[a.name].element_size() for a in self.tensors if given[a.name] is not None}
        return self.cost(self.dims(*args) | bools | widths)

    def kernel(self, *args: Any) -> Kernel:
        """The kernel that would run a call."""
        return REGISTRY.select(self.signature(*args))

    def workspace(self, *args: Any) -> int:
        """Bytes of scratch that the selected kernel wants for a call."""
        kernel = self.kernel(*args)
        return 0 if kernel.workspace is None else kernel.workspace(*args)

    def prepare(self, *weights: torch.Tensor) -> WeightHandle:
        """Bring weights into the layout of the kernel that will read them. Run once, at load.

        Raises:
            ContractError: shapes, dtypes or the number of weights break the spec.
            KernelError: no kernel takes such weights.
        """
        from .check import check_weights

        handle = self.handle
        if handle is None:
            raise self.error("takes no prepared weight")
        dims, signature = check_weights(self, weights)
        kernel = REGISTRY.select(signature)
        tensors = weights if kernel.prepare is None else tuple(kernel.prepare(*weights))
        layout = CONTRACT_LAYOUT if kernel.prepare is None else kernel.layout
        nbytes = sum(t.numel() * t.element_size() for t in tensors)
        key = (layout, tuple(dims.values()), tuple(t.dtype for t in tensors), str(tensors[0].device))
        return WeightHandle(self.name, layout, tuple(tensors), dims, nbytes, key)


SPECS: dict[str, OpSpec] = {}


def dims(text: str) -> tuple[Dim, ...]:
    """Parse 'T D K//32' (blanks separate dims, so expressions hold none)."""
    return tuple(Dim.parse(part) for part in text.split())


def tensor(
    name: str,
    shape: str,
    *dtypes: torch.dtype,
    optional: bool = False,
    mutable: bool = False,
    layout: str = "contiguous",
    host: bool = False,
) -> TensorArg:
    """Describe a tensor argument; see `TensorArg`."""
    return TensorArg(name, dims(shape), dtypes, optional, mutable, layout, host)


def scalar(
    name: str,
    kind: type,
    *,
    static: bool | None = None,
    optional: bool = False,
    choices: Sequence[Any] = (),
    low: int | None = None,
    most: str | None = None,
) -> ScalarArg:
    """Describe a scalar argument; static unless it is a float or said otherwise; integers start at 0 by default."""
    if low is None and kind is not float:
        low = 0
    is_static = kind is not float if static is None else static
    return ScalarArg(name, kind, is_static, optional, tuple(choices), low, None if most is None else Dim.parse(most))


def handle(name: str, **parts: tuple[Any, ...]) -> HandleArg:
    """Describe a prepared weight: `part=('N K', dtype, …)` per contract tensor, in order."""
    return HandleArg(name, tuple(TensorArg(k, dims(v[0]), tuple(v[1:])) for k, v in parts.items()))


def result(
    name: str,
    shape: str,
    *dtypes: torch.dtype,
    in_place: str | None = None,
    unspecified: str = "",
    defined: Callable[[Mapping[str, Any]], torch.Tensor] | None = None,
) -> Result:
    """Describe an output; see `Result`. `unspecified` and `defined` come together."""
    assert bool(unspecified) == (defined is not None), name
    return Result(name, dims(shape), dtypes, in_place, unspecified, defined)


def define(
    name: str,
    *,
    version: int,
    family: str,
    args: Sequence[Arg],
    outs: Sequence[Result],
    dynamic: str,
    semantics: str,
    numerics: Numerics,
    cost: Callable[[Mapping[str, int]], Cost],
    samples: Samples,
) -> OpSpec:
    """Create and register a spec. Two specs of one name are a programming error."""
    if name in SPECS:
        raise ContractError(name, version, "defined twice")
    spec = OpSpec(
        name,
        version,
        family,
        tuple(args),
        tuple(outs),
        tuple(dynamic.split()),
        " ".join(semantics.split()),
        numerics,
        cost,
        samples,
    )
    SPECS[name] = spec
    return spec


def freeze() -> None:
    """Refuse a contract with a hole: every spec needs a reference implementation of its version.

    Raises:
        ContractError: names the first spec without one.
    """
    for spec in SPECS.values():
        if not any(k.backend == "reference" and k.version == spec.version for k in REGISTRY.kernels(spec.name)):
            raise spec.error("has no reference implementation")
