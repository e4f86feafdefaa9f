"""Checking calls against a spec. Runs when a static signature is first seen, and to explain a refused call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..hal.errors import short
from ..hal.registry import REGISTRY, ArgInfo, Signature
from .spec import Dim, HandleArg, OpSpec, ScalarArg, TensorArg, WeightHandle

if TYPE_CHECKING:
    from collections.abc import Mapping


INT_MAX = 2**31 - 1
FLOAT_MAX = (2 - 2**-23) * 2.0**127


def arg_info(tensor: torch.Tensor) -> ArgInfo:
    """Layout and alignment class of a tensor."""
    contiguous = tensor.is_contiguous()
    return ArgInfo(tensor.dtype, contiguous, None if contiguous else tensor.stride(), tensor.data_ptr() % 16 == 0)


def check_call(spec: OpSpec, args: Sequence[Any]) -> Signature:
    """Check every argument against the spec and return the static signature.

    Raises:
        ContractError: names the argument, what came and what the spec allows.
    """
    _check_count(spec, args)
    bound = bind_dims(spec, args)
    device: torch.device | None = None
    infos: dict[str, ArgInfo] = {}
    scalars: dict[str, Any] = {}
    layout: str | None = None
    for arg, value in zip(spec.args, args, strict=True):
        if isinstance(arg, TensorArg):
            if value is None:
                continue
            if not arg.host:
                if device is not None and value.device != device:
                    raise spec.error(f"{arg.name} is on {value.device}, other arguments are on {device}")
                device = value.device
            _check_layout(spec, arg, value)
            infos[arg.name] = arg_info(value)
        elif isinstance(arg, HandleArg):
            layout = value.layout
        else:
            _check_scalar(spec, arg, value, bound)
            if arg.static:
                scalars[arg.name] = value
    varying = {*spec.dynamic, *(a.name for a in spec.args if isinstance(a, ScalarArg))}
    static = {k: v for k, v in bound.items() if k not in varying}
    return Signature(
        spec.name, spec.version, "cpu" if device is None else device.type, REGISTRY.arch, infos, static, scalars, layout
    )


def bind_dims(spec: OpSpec, args: Sequence[Any]) -> dict[str, int]:
    """Values of all named dims; checks ranks, dtypes and that every dim agrees."""
    _check_count(spec, args)
    bound: dict[str, int] = {}
    origin: dict[str, str] = {}
    later: list[tuple[str, int, Dim, int]] = []
    for arg, value in zip(spec.args, args, strict=True):
        if isinstance(arg, ScalarArg):
            if arg.type is int and isinstance(value, int):
                bound.setdefault(arg.name, value)
            continue
        if isinstance(arg, HandleArg):
            if not isinstance(value, WeightHandle) or value.op != spec.name:
                got = f"a handle of op {value.op}" if isinstance(value, WeightHandle) else type(value).__name__
                raise spec.error(f"{arg.name} must be a handle from {spec.name}'s prepare, got {got}")
            for name, size in value.dims.items():
                _bind(spec, bound, origin, name, size, arg.name)
            continue
        if value is None and arg.optional:
            continue
        _check_tensor(spec, arg, value)
        for axis, (dim, size) in enumerate(zip(arg.dims, value.shape, strict=True)):
            if dim.plain:
                _bind(spec, bound, origin, dim.text, size, arg.name)
            else:
                later.append((arg.name, axis, dim, size))
    _check_expressions(spec, bound, later)
    return bound


def check_weights(spec: OpSpec, weights: Sequence[torch.Tensor]) -> tuple[dict[str, int], Signature]:
    """Check the contract tensors of a prepared weight; returns the dims they bind and a signature to select by."""
    handle = spec.handle
    assert handle is not None
    if len(weights) != len(handle.parts):
        names = ", ".join(p.name for p in handle.parts)
        raise spec.error(f"{handle.name} is prepared from {len(handle.parts)} tensors ({names}), got {len(weights)}")
    bound: dict[str, int] = {}
    origin: dict[str, str] = {}
    later: list[tuple[str, int, Dim, int]] = []
    infos: dict[str, ArgInfo] = {}
    for part, value in zip(handle.parts, weights, strict=True):
        _check_tensor(spec, part, value)
        _check_layout(spec, part, value)
        infos[part.name] = arg_info(value)
        for axis, (dim, size) in enumerate(zip(part.dims, value.shape, strict=True)):
            if dim.plain:
                _bind(spec, bound, origin, dim.text, size, part.name)
            else:
                later.append((part.name, axis, dim, size))
    _check_expressions(spec, bound, later)
    if len({w.device for w in weights}) > 1:
        raise spec.error(f"{handle.name}: parts are on different devices {sorted({str(w.device) for w in weights})}")
    signature = Signature(
        spec.name, spec.version, weights[0].device.type, REGISTRY.arch, infos, bound, {}, layout=None, preparing=True
    )
    return bound, signature


def check_out(spec: OpSpec, out: Any, bound: Mapping[str, int], device: torch.device) -> None:
    """Check `out` buffers: number, dtype, shape, contiguity, device."""
    outs = out if isinstance(out, tuple) else (out,)
    if len(outs) != len(spec.outs):
        raise spec.error(f"out must hold {len(spec.outs)} tensors, got {len(outs)}")
    for described, value in zip(spec.outs, outs, strict=True):
        if not isinstance(value, torch.Tensor):
            raise spec.error(f"out {described.name} must be a tensor, got {type(value).__name__}")
        # A dim that only an absent optional argument binds is left to the op.
        sizes = (*value.shape, *(-1 for _ in described.dims))
        want = tuple(
            d.value(bound) if all(n in bound for n in d.names) else size
            for d, size in zip(described.dims, sizes, strict=False)
        )
        if value.dtype not in described.dtypes or tuple(value.shape) != want or not value.is_contiguous():
            raise spec.error(
                f"out {described.name}: got {_describe(value)}{'' if value.is_contiguous() else ', not contiguous'}; "
                f"must be contiguous {'/'.join(map(_dtype, described.dtypes))} {list(want)}"
            )
        if value.device != device:
            raise spec.error(f"out {described.name} is on {value.device}, arguments are on {device}")


def _check_count(spec: OpSpec, args: Sequence[Any]) -> None:
    if len(args) != len(spec.args):
        raise spec.error(f"takes {len(spec.args)} arguments ({', '.join(a.name for a in spec.args)}), got {len(args)}")


def _check_tensor(spec: OpSpec, arg: TensorArg, value: Any) -> None:
    shape = " ".join(d.text for d in arg.dims)
    if not isinstance(value, torch.Tensor):
        raise spec.error(f"{arg.name} must be a tensor [{shape}], got {type(value).__name__}")
    if value.ndim != len(arg.dims):
        raise spec.error(f"{arg.name} must have rank {len(arg.dims)} [{shape}], got {_describe(value)}")
    if value.dtype not in arg.dtypes:
        raise spec.error(f"{arg.name} must be {' or '.join(map(_dtype, arg.dtypes))}, got {_describe(value)}")


def _check_layout(spec: OpSpec, arg: TensorArg, value: torch.Tensor) -> None:
    if arg.layout == "contiguous" and not value.is_contiguous():
        raise spec.error(f"{arg.name} must be contiguous, got strides {value.stride()} for shape {tuple(value.shape)}")
    if arg.layout == "rows" and value.numel() and value.shape[-1] > 1 and value.stride(-1) != 1:
        raise spec.error(f"{arg.name} must have unit stride in its last dim, got strides {value.stride()}")


def _check_scalar(spec: OpSpec, arg: ScalarArg, value: Any, bound: Mapping[str, int]) -> None:
    if value is None and arg.optional:
        return
    allowed = (int, float) if arg.type is float else (arg.type,)
    if not isinstance(value, allowed) or (arg.type is not bool and isinstance(value, bool)):
        raise spec.error(f"{arg.name} must be {arg.type.__name__}, got {short(value)}")
    if arg.choices and value not in arg.choices:
        raise spec.error(f"{arg.name} must be one of {', '.join(map(repr, arg.choices))}, got {short(value)}")
    if isinstance(value, float | int) and arg.type is float and not abs(value) <= FLOAT_MAX:
        raise spec.error(f"{arg.name} must be a finite number of fp32, got {short(value)}")
    if isinstance(value, int) and arg.type is int:
        most = INT_MAX if arg.most is None else arg.most.value(bound)
        if not arg.low <= value <= most:
            name = "" if arg.most is None else f" ({arg.most.text})"
            raise spec.error(f"{arg.name} must lie in {arg.low}..{most}{name}, got {short(value)}")


def _bind(spec: OpSpec, bound: dict[str, int], origin: dict[str, str], name: str, size: int, arg: str) -> None:
    known = bound.setdefault(name, size)
    if known != size:
        raise spec.error(f"dim {name} is {size} in {arg} but {known} in {origin.get(name, name)}")
    origin.setdefault(name, arg)


def _check_expressions(spec: OpSpec, bound: Mapping[str, int], later: Sequence[tuple[str, int, Dim, int]]) -> None:
    for arg, axis, dim, size in later:
        if any(n not in bound for n in dim.names):
            continue  # a name that only an absent optional argument binds
        want = dim.value(bound)
        if want != size:
            raise spec.error(f"{arg} has size {size} in dim {axis}, must be {dim.text} = {want}")


def _describe(tensor: torch.Tensor) -> str:
    return f"{_dtype(tensor.dtype)} {list(tensor.shape)}"


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
