"""Calls of one op on a target: samples brought there, kernels chosen without a fallback, results compared by bits."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..hal.errors import KernelError
from ..hal.registry import REFERENCE, REGISTRY, Kernel
from ..ops.check import check_weights
from ..ops.numerics import Exact
from ..ops.rows import restride
from ..ops.spec import OpSpec, Sample, WeightHandle
from .case import UNSUPPORTED, Outcome, Target, skip

CPU = torch.device("cpu")
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Unsupported(Exception):
    """The target has no kernel of its own for a call; the message says why."""

    def outcome(self) -> Outcome:
        """The skip that this is."""
        return skip(UNSUPPORTED, str(self))


def samples(spec: OpSpec, seed: int = 0) -> Iterator[Sample]:
    """Samples of an op on the CPU, weights as the contract packs them; `to_target` brings one elsewhere."""
    made = spec.samples(np.random.default_rng((zlib.crc32(spec.name.encode()), seed)), CPU)
    while True:
        with REGISTRY.using(REFERENCE):
            sample = next(made, None)
        if sample is None:
            return
        yield sample


def to_target(spec: OpSpec, args: Sequence[Any], target: Target) -> tuple[Any, ...]:
    """Fresh copies of arguments on the target, strides kept; weights prepared by the target's kernel.

    Raises:
        Unsupported: the target has no kernel for such a weight.
    """
    return tuple(
        _bring(spec, value, target, getattr(a, "host", False)) for a, value in zip(spec.args, args, strict=True)
    )


def _bring(spec: OpSpec, value: Any, target: Target, host: bool) -> Any:
    if isinstance(value, Tensor):
        return restride(value) if host or target.device.type == "cpu" else _send(value, target.device)
    if isinstance(value, WeightHandle):
        parts = tuple(part.to(target.device, copy=True) for part in value.tensors)
        try:
            REGISTRY.select(check_weights(spec, parts)[1])
        except KernelError as error:
            raise Unsupported(str(error)) from None
        return spec.prepare(*parts)  # what a kernel's own function raises is a fault, whatever its class
    return value


def _send(value: Tensor, device: torch.device) -> Tensor:
    if value.is_contiguous() or not value.numel():
        return value.to(device)
    size = sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) + 1
    return value.as_strided((size,), (1,)).to(device).as_strided(value.shape, value.stride())


def kernel_of(spec: OpSpec, args: Sequence[Any], target: Target) -> Kernel:
    """The target's own kernel for a call.

    Raises:
        Unsupported: another backend's kernel would run; the message has each kernel's reason.
    """
    signature = spec.signature(*args)
    verdicts = REGISTRY.explain(signature)
    chosen = next((v.kernel for v in verdicts if v.chosen), None)
    if chosen is None or chosen.backend != target.backend:
        own = "; ".join(f"{v.kernel.id}: {v.reason}" for v in verdicts if v.kernel.backend == target.backend)
        raise Unsupported(f"{signature}: {own or f'backend {target.backend!r} has no kernel for {spec.name}'}")
    return chosen


def call(
    spec: OpSpec, args: Sequence[Any], target: Target, out: Any = None, workspace: Any = None
) -> tuple[Tensor, ...]:
    """Run an op with the target's own kernel; its outputs as a tuple.

    Raises:
        Unsupported: the target has none.
    """
    kernel_of(spec, args, target)
    found = spec.run(*args, out, workspace) if workspace is not None else spec.run(*args, out)
    return found if isinstance(found, tuple) else () if found is None else (found,)


def difference(spec: OpSpec, name: str, got: Tensor, want: Tensor, defined: Tensor | None = None) -> str:
    """'' if two tensors are equal in every bit that counts, else what differs first.

    Args:
        defined: bool, broadcastable; elements that are unspecified elsewhere. NaNs count as equal in ops that are not
            exact.
    """
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{name} is {got.dtype} {tuple(got.shape)}, was {want.dtype} {tuple(want.shape)}"
    if not got.numel():
        return ""
    kind = _BITS[got.element_size()]
    wrong = got.contiguous().view(kind) != want.contiguous().view(kind)
    if got.dtype.is_floating_point and not isinstance(spec.numerics, Exact):
        wrong &= ~(got.isnan() & want.isnan())
    if defined is not None:
        wrong &= defined
    count = int(wrong.sum())
    if not count:
        return ""
    place = tuple(wrong.nonzero()[0].tolist())
    values = f"{_show(got[place])} instead of {_show(want[place])}"
    return f"{name}{list(place)} is {values}; {count} of {got.numel()} elements differ"


def _show(value: Tensor) -> str:
    return f"{value.float().item():.9g}" if value.dtype.is_floating_point else str(value.item())
