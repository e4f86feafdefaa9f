"""Bad calls, generated from a spec: what is wrong with each, and what the error must say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..hal.errors import ContractError, DeepInferError, KernelError
from ..ops.check import scalar_range
from ..ops.rows import named, written
from ..ops.spec import Dim, HandleArg, OpSpec, ScalarArg, TensorArg, WeightHandle

FOREIGN = torch.float64
"""A dtype that no argument of the contract has."""
META, CPU = torch.device("meta"), torch.device("cpu")


@dataclass(frozen=True)
class Refusal:
    """A call that must be refused.

    Attributes:
        about: what is wrong, in words.
        args, out: the call.
        says: what the message must hold: the argument, what came and what is allowed.
        error: the exact class of the error.
        cold: refused where a signature is first seen, not after it was checked once.
    """

    about: str
    args: tuple[Any, ...]
    says: tuple[str, ...]
    out: Any = None
    error: type[DeepInferError] = ContractError
    cold: bool = False


def kinds() -> dict[str, Any]:
    """Name of each kind of fault -> its generator over (spec, valid arguments, valid outputs)."""
    return {
        "dtype": dtypes,
        "rank": ranks,
        "dims": sizes,
        "layout": layouts,
        "device": devices,
        "missing": missing,
        "scalar": scalars,
        "handle": handles,
        "out": outs,
        "alias": aliases,
    }


Outs = Sequence[Tensor]


def dtypes(spec: OpSpec, args: tuple[Any, ...], results: Outs) -> Iterator[Refusal]:
    """A dtype the spec does not allow."""
    for i, arg, value in _tensors(spec, args):
        wrong = torch.zeros(value.shape, dtype=FOREIGN, device=value.device)
        says = (arg.name, "float64", _text(arg.dtypes[0]))
        yield Refusal(f"{arg.name} as float64", _swap(args, i, wrong), says)


def ranks(spec: OpSpec, args: tuple[Any, ...], results: Outs) -> Iterator[Refusal]:
    """A dim too many, and no tensor at all."""
    for i, arg, value in _tensors(spec, args):
        says = (arg.name, f"rank {len(arg.dims)}", str([1, *value.shape]))
        yield Refusal(f"{arg.name} with a dim more", _swap(args, i, value.unsqueeze(0)), says)
        yield Refusal(f"{arg.name} as a list", _swap(args, i, [1, 2]), (arg.name, "list", "tensor"))


def sizes(spec: OpSpec, args: tuple[Any, ...], results: Outs) -> Iterator[Refusal]:
    """A size that disagrees with another argument, or with the expression that the spec states."""
    given, bound = named(spec, args), spec.dims(*args)
    for i, arg, value in _tensors(spec, args):
        for axis, dim in enumerate(arg.dims):
            step = 1 if any(n in spec.dynamic for n in dim.names) or not dim.plain else 64
            if not _tied(spec, given, arg, axis, dim):
                continue
            shape = list(value.shape)
            shape[axis] += step
            wrong = torch.zeros(shape, dtype=value.dtype, device=value.device)
            plain = dim.plain and _peers(spec, given, arg, axis, dim.text)
            says = (dim.text, str(shape[axis]), str(bound[dim.text])) if plain else ("must be", " = ")
            if not dim.plain:
                says = (arg.name, str(shape[axis]), str(dim.value(bound)))
            yield Refusal(f"{arg.name} {step} wider in dim {axis} ({dim.text})", _swap(args, i, wrong), says)


def _peers(spec: OpSpec, given: dict[str, Any], arg: TensorArg, axis: int, name: str) -> bool:
    """Whether another given argument, or another dim, binds the same name."""
    places = [(a.name, n) for a in spec.tensors if given[a.name] is not None for n, d in enumerate(a.dims)
              if d.text == name]  # fmt: skip
    handle = spec.handle
    if handle is not None and any(name in d.names for part in handle.parts for d in part.dims if d.plain):
        return True
    return len([p for p in places if p != (arg.name, axis)]) > 0


def _tied(spec: OpSpec, given: dict[str, Any], arg: TensorArg, axis: int, dim: Dim) -> bool:
    """Whether a size is held against anything: a peer, or an expression, its own or another argument's."""
    if not dim.plain:
        return all(n in spec.dims(*given.values()) for n in dim.names)
    if _peers(spec, given, arg, axis, dim.text):
        return True
    others = [d for a in spec.tensors if given[a.name] is not None for d in a.dims if not d.plain]
    return any(dim.text in d.names for d in others)


def layouts(spec: OpSpec, args: tuple[Any, ...], results: Outs) -> Iterator[Refusal]:
    """Strides that the layout does not allow."""
    for i, arg, value in _tensors(spec, args):
        if value.numel() < 2 or value.shape[-1] < 2:
            continue
        wide = torch.zeros((*value.shape[:-1], 2 * value.shape[-1]), dtype=value.dtype, device=value.device)
        wrong = wide[..., ::2]
        word = "unit stride" if arg.layout == "rows" else "contiguous"
        yield Refusal(f"{arg.name} with gaps", _swap(args, i, wrong), (arg.name, word, str(wrong.stride())))


def devices(spec: OpSpec, args: tuple[Any, ...], results: Outs) -> Iterator[Refusal]:
    """One tensor on another device than the rest."""
    found = [(i, a, v) for i, a, v in _tensors(spec, args) if not a.host]
    if len(found) + (spec.handle is not None) < 2:
        return
    for i, arg, value in found:
        host = value.device.type == "cpu"
        away = value.to(META if host else CPU)
        says = (str(away.device), str(value.device), " on ", "are on")
        # Where a signature is known, a call tells the CPU from every device with memory, but not from meta.
        yield Refusal(f"{arg.name} on {away.device}", _swap(args, i, away), says, cold=host)


def missing(spec: OpSpec, args: tuple[Any, ...], results: Outs) -> Iterator[Refusal]:
    """None for an argument that is not optional."""
    for i, arg in enumerate(spec.args):
        if not getattr(arg, "optional", False):
            came = "None" if isinstance(arg, ScalarArg) else "NoneType"
            yield Refusal(f"no {arg.name}", _swap(args, i, None), (arg.name, came))


def scalars(spec: OpSpec, args: tuple[Any, ...], results: Outs) -> Iterator[Refusal]:
    """Another type, a value outside the range or not among the choices, NaN and infinity."""
    bound = spec.dims(*args)
    for i, arg in enumerate(spec.args):
        if not isinstance(arg, ScalarArg):
            continue
        wrong = "7" if arg.type is not str else 7
        yield Refusal(f"{arg.name} = {wrong!r}", _swap(args, i, wrong), (arg.name, repr(wrong), arg.type.__name__))
        if arg.type in (int, float):
            yield Refusal(f"{arg.name} = True", _swap(args, i, True), (arg.name, "True", arg.type.__name__))
        for value, allowed in _outside(arg, bound):
            yield Refusal(f"{arg.name} = {value!r}", _swap(args, i, value), (arg.name, repr(value), allowed))


def _outside(arg: ScalarArg, bound: dict[str, int]) -> Iterator[tuple[Any, str]]:
    """Values that are not allowed, each with what its message says of those that are."""
    if arg.choices:
        value: Any = "fp3" if arg.type is str else max(arg.choices) + 1
        yield value, repr(arg.choices[0])
        return
    low, high = scalar_range(arg)
    if arg.type is float:
        for value in (float("nan"), float("inf"), *([low - 1.0] if arg.low is not None else [])):
            yield value, "finite"
    elif arg.type is int:
        most = high if arg.most is None else arg.most.value(bound)
        yield int(low) - 1, f"{low}..{most}"
        yield int(most) + 1, f"{low}..{most}"


def handles(spec: OpSpec, args: tuple[Any, ...], results: Outs) -> Iterator[Refusal]:
    """A tensor, another op's handle, and one in a layout that no kernel here takes."""
    for i, arg in enumerate(spec.args):
        if not isinstance(arg, HandleArg):
            continue
        good: WeightHandle = args[i]
        yield Refusal("a bare tensor", _swap(args, i, good.tensors[0]), (arg.name, "handle", spec.name))
        other = WeightHandle("rms_norm", good.layout, good.tensors, good.dims, good.nbytes, ("rms_norm", good.key))
        yield Refusal("another op's handle", _swap(args, i, other), (arg.name, "rms_norm", spec.name), cold=True)
        layout = "planes_of_nobody"
        foreign = WeightHandle(spec.name, layout, good.tensors, good.dims, good.nbytes, (layout, good.key))
        says = (layout, good.layout)
        yield Refusal("a handle in an unknown layout", _swap(args, i, foreign), says, error=KernelError)


def outs(spec: OpSpec, args: tuple[Any, ...], results: Outs) -> Iterator[Refusal]:
    """Outputs of another number, dtype, shape, layout or device."""
    if not spec.outs:
        return
    fresh = [torch.empty_like(r) for r in results]
    yield Refusal("one output too many", args, (f"{len(fresh)} tensors", str(len(fresh) + 1)), (*fresh, fresh[0]))
    bound = spec.dims(*args)
    for n, (described, good) in enumerate(zip(spec.outs, fresh, strict=True)):
        name = f"out {described.name}"

        def case(about: str, wrong: Any, *says: str, n: int = n, name: str = name) -> Refusal:
            out = [*fresh[:n], wrong, *fresh[n + 1 :]]
            return Refusal(f"{name} {about}", args, (name, *says), tuple(out) if len(out) > 1 else out[0])

        text = _text(good.dtype)
        yield case("as float64", torch.empty(good.shape, dtype=FOREIGN, device=good.device), "float64", text)
        if good.numel():
            yield case("on meta", good.to(META), "meta", str(good.device))
        if good.numel() > 1 and good.shape[-1] > 1:
            wide = torch.empty((*good.shape[:-1], 2 * good.shape[-1]), dtype=good.dtype, device=good.device)
            yield case("with gaps", wide[..., ::2], "contiguous")
        for axis, dim in enumerate(described.dims):
            if all(name in bound for name in dim.names):
                shape = list(good.shape)
                shape[axis] += 1
                wrong = torch.empty(shape, dtype=good.dtype, device=good.device)
                yield case(f"1 wider in dim {axis}", wrong, str(shape), str(list(good.shape)))


def aliases(spec: OpSpec, args: tuple[Any, ...], results: Outs) -> Iterator[Refusal]:
    """Outputs over an argument or each other, and a written argument over another one."""
    for n, described in enumerate(spec.outs):
        fresh = [torch.empty_like(r) for r in results]
        for i, arg, value in _tensors(spec, args):
            if arg.name == described.in_place or not value.numel() or not results[n].numel():
                continue
            over, under = _over(results[n], value)
            out = (*fresh[:n], over, *fresh[n + 1 :]) if len(fresh) > 1 else over
            about = f"out {described.name} over {arg.name}"
            yield Refusal(about, _swap(args, i, under), (f"out {described.name}", "overlaps", arg.name), out)
        for m in range(n):
            if results[m].numel() and results[n].numel():
                over, under = _over(results[n], results[m])
                out = (*fresh[:m], under, *fresh[m + 1 : n], over, *fresh[n + 1 :])
                about = f"out {described.name} over out {spec.outs[m].name}"
                yield Refusal(about, args, (f"out {described.name}", "overlaps", f"out {spec.outs[m].name}"), out)
    for j, arg, value in _tensors(spec, args):
        for i, other, read in _tensors(spec, args):
            if arg.name in written(spec) and i != j and value.numel() and read.numel():
                over, under = _over(value, read)
                wrong = _swap(_swap(args, j, over), i, under)
                says = (arg.name, "overlaps", other.name)
                yield Refusal(f"{arg.name} over {other.name}", wrong, says, cold=True)


def _over(above: Tensor, below: Tensor) -> tuple[Tensor, Tensor]:
    """Copies of two tensors, strides kept, that begin at one address."""

    def span(x: Tensor) -> int:
        return sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1

    raw = torch.zeros(
        max(span(x) * x.element_size() for x in (above, below)) + 16, dtype=torch.uint8, device=above.device
    )
    raw = raw[: raw.numel() // 8 * 8]
    first, second = (raw.view(x.dtype).as_strided(x.shape, x.stride()) for x in (above, below))
    second.copy_(below)
    return first, second


def _tensors(spec: OpSpec, args: Sequence[Any]) -> Iterator[tuple[int, TensorArg, Tensor]]:
    for i, (arg, value) in enumerate(zip(spec.args, args, strict=True)):
        if isinstance(arg, TensorArg) and value is not None:
            yield i, arg, value


def _swap(args: tuple[Any, ...], i: int, value: Any) -> tuple[Any, ...]:
    return (*args[:i], value, *args[i + 1 :])


def _text(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
