"""Checking calls against a spec. Runs when a static signature is first seen, and to explain a refused call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..hal.errors import short
from ..hal.registry import REGISTRY, ArgInfo, Signature
from .overlap import check_mutable, check_outs
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
    device = _device(spec, args)
    infos: dict[str, ArgInfo] = {}
    scalars: dict[str, Any] = {}
    layout: str | None = None
    for arg, value in zip(spec.args, args, strict=True):
        if isinstance(arg, TensorArg):
            if value is None:
                continue
            _check_layout(spec, arg, value)
            infos[arg.name] = arg_info(value)
        elif isinstance(arg, HandleArg):
            layout = value.layout
        else:
            _check_range(spec, arg, value, bound)
            if arg.static:
                scalars[arg.name] = value
    check_mutable(spec, args)
    varying = {*spec.dynamic, *(a.name for a in spec.args if isinstance(a, ScalarArg))}
    static = {k: v for k, v in bound.items() if k not in varying}
    return Signature(
        spec.name, spec.version, "cpu" if device is None else device.type, REGISTRY.arch, infos, static, scalars, layout
    )


def _device(spec: OpSpec, args: Sequence[Any]) -> torch.device | None:
    """The one device of all arguments but host tensors, prepared weights included."""
    device: torch.device | None = None
    for arg, value in zip(spec.args, args, strict=True):
        if getattr(arg, "host", False):
            continue
        prepared = isinstance(value, WeightHandle)
        for part in value.tensors if prepared else (value,) if isinstance(value, torch.Tensor) else ():
            if device is not None and part.device != device:
                verb = "was prepared" if prepared else "is"
                raise spec.error(f"{arg.name} {verb} on {part.device}, other arguments are on {device}")
            device = part.device
    return device


class _Dims:
    """Sizes that tensors give to named dims, and the expressions to check once all names are bound."""

    def __init__(self, spec: OpSpec) -> None:
        self.spec = spec
        self.bound: dict[str, int] = {}
        self._origin: dict[str, str] = {}
        self._later: list[tuple[str, int, Dim, int]] = []

    def bind(self, name: str, size: int, arg: str) -> None:
        """Give a name its size; ContractError if it has another."""
        known = self.bound.setdefault(name, size)
        if known != size:
            raise self.spec.error(f"dim {name} is {size} in {arg} but {known} in {self._origin.get(name, name)}")
        self._origin.setdefault(name, arg)

    def add(self, arg: TensorArg, value: torch.Tensor) -> None:
        """Bind the plain dims of a tensor of the right rank and keep the others for `check`."""
        for axis, (dim, size) in enumerate(zip(arg.dims, value.shape, strict=True)):
            if dim.plain:
                self.bind(dim.text, size, arg.name)
            else:
                self._later.append((arg.name, axis, dim, size))

    def check(self) -> dict[str, int]:
        """Hold the expressions against the names; returns the names."""
        for arg, axis, dim, size in self._later:
            if any(n not in self.bound for n in dim.names):
                continue  # a name that only an absent optional argument binds
            want = dim.value(self.bound)
            if want != size:
                raise self.spec.error(f"{arg} has size {size} in dim {axis}, must be {dim.text} = {want}")
        return self.bound


def bind_dims(spec: OpSpec, args: Sequence[Any]) -> dict[str, int]:
    """Values of all named dims; checks ranks, dtypes and that every dim agrees."""
    _check_count(spec, args)
    dims = _Dims(spec)
    for arg, value in zip(spec.args, args, strict=True):
        if isinstance(arg, ScalarArg):
            _check_kind(spec, arg, value)  # before a dim is computed from it
            if arg.type is int and isinstance(value, int):
                dims.bound.setdefault(arg.name, value)
            continue
        if isinstance(arg, HandleArg):
            if not isinstance(value, WeightHandle) or value.op != spec.name:
                got = f"a handle of op {value.op}" if isinstance(value, WeightHandle) else type(value).__name__
                raise spec.error(f"{arg.name} must be a handle from {spec.name}'s prepare, got {got}")
            for name, size in value.dims.items():
                dims.bind(name, size, arg.name)
            continue
        if value is None and arg.optional:
            continue
        _check_tensor(spec, arg, value)
        dims.add(arg, value)
    return dims.check()


def check_weights(spec: OpSpec, weights: Sequence[torch.Tensor]) -> tuple[dict[str, int], Signature]:
    """Check the contract tensors of a prepared weight; returns the dims they bind and a signature to select by."""
    handle = spec.handle
    assert handle is not None
    if len(weights) != len(handle.parts):
        names = ", ".join(p.name for p in handle.parts)
        raise spec.error(f"{handle.name} is prepared from {len(handle.parts)} tensors ({names}), got {len(weights)}")
    dims = _Dims(spec)
    infos: dict[str, ArgInfo] = {}
    for part, value in zip(handle.parts, weights, strict=True):
        _check_tensor(spec, part, value)
        _check_layout(spec, part, value)
        infos[part.name] = arg_info(value)
        dims.add(part, value)
    bound = dims.check()
    if len({w.device for w in weights}) > 1:
        raise spec.error(f"{handle.name}: parts are on different devices {sorted({str(w.device) for w in weights})}")
    signature = Signature(
        spec.name, spec.version, weights[0].device.type, REGISTRY.arch, infos, bound, {}, layout=None, preparing=True
    )
    return bound, signature


def check_out(spec: OpSpec, args: Sequence[Any], out: Any) -> None:
    """Check `out` buffers: number, dtype, shape, contiguity, device, and what they overlap."""
    bound, device = bind_dims(spec, args), _device(spec, args)
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
    check_outs(spec, args, outs)


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


def scalar_range(arg: ScalarArg) -> tuple[float, float]:
    """Least and greatest value of a number, dims aside."""
    high = FLOAT_MAX if arg.type is float else INT_MAX
    return (-high if arg.low is None else arg.low), high


def _check_kind(spec: OpSpec, arg: ScalarArg, value: Any) -> None:
    """Type and choices."""
    if value is None and arg.optional:
        return
    allowed = (int, float) if arg.type is float else (arg.type,)
    if not isinstance(value, allowed) or (arg.type is not bool and isinstance(value, bool)):
        raise spec.error(f"{arg.name} must be {arg.type.__name__}, got {short(value)}")
    if arg.choices and value not in arg.choices:
        raise spec.error(f"{arg.name} must be one of {', '.join(map(repr, arg.choices))}, got {short(value)}")


def _check_range(spec: OpSpec, arg: ScalarArg, value: Any, bound: Mapping[str, int]) -> None:
    if not isinstance(value, int | float) or arg.type is bool:
        return
    low, high = scalar_range(arg)
    if arg.type is float and not low <= value <= high:
        least = "" if arg.low is None else f", at least {arg.low}"
        raise spec.error(f"{arg.name} must be a finite number of fp32{least}, got {short(value)}")
    if arg.type is int:
        most = high if arg.most is None else arg.most.value(bound)
        if not low <= value <= most:
            name = "" if arg.most is None else f" ({arg.most.text})"
            raise spec.error(f"{arg.name} must lie in {low}..{most}{name}, got {short(value)}")


def _describe(tensor: torch.Tensor) -> str:
    return f"{_dtype(tensor.dtype)} {list(tensor.shape)}"


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
