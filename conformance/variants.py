"""Legitimate variants of reference kernels: what right implementations may do differently, and by how much that shows.

* `order`: products of the linear layers in fp32, odd channels before even ones;
* `fused`: element-wise ops and small sums without intermediate roundings, as fused multiply-adds and wider registers
  give;
* `unrounded_p`: attention whose probabilities are not rounded to bf16 before the second product;
* `all`: the three together.

They are small implementations of their own, from the contract's formats and the float64 oracles; they run on the CPU,
on weights in the contract's layout. Quantisers flip codes where a value lies near a border, so two right
implementations of a model differ by more than their roundings; the spread of these variants says how much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import ops
from ..hal.registry import REGISTRY, Kernel
from ..ops.spec import SPECS, OpSpec, WeightHandle
from .oracle import expected
from .oracle.formats import fp4, fp8, fp8_blocks

VARIANT = "conformance variant"

ROUNDED_ONCE = ("rms_norm", "hc_collapse", "hc_expand", "engram_gate", "moe_combine", "compress_pool")


def _wide(values: Any) -> Tensor:
    return torch.from_numpy(values).to(torch.float32)


def _product(x: Tensor, w: Tensor) -> Tensor:
    """fp32 [M, K] @ [N, K].T, the odd channels first."""
    return x[..., 1::2] @ w[..., 1::2].transpose(-1, -2) + x[..., ::2] @ w[..., ::2].transpose(-1, -2)


def _linear_fp8(xq: Tensor, xs: Tensor, weight: WeightHandle) -> Tensor:
    return _product(_wide(fp8(xq, xs)), _wide(fp8_blocks(*weight.tensors))).bfloat16()


def _linear_fp8_grouped(xq: Tensor, xs: Tensor, weight: WeightHandle) -> Tensor:
    x, w = _wide(fp8(xq, xs)), _wide(fp8_blocks(*weight.tensors))
    return _product(x.transpose(0, 1), w).transpose(0, 1).bfloat16().contiguous()


def _linear_bf16(x: Tensor, weight: WeightHandle, fp32_out: bool) -> Tensor:
    y = _product(x.float(), weight.tensors[0].float())
    return y if fp32_out else y.bfloat16()


def _moe_route(
    x: Tensor, gate: WeightHandle, bias: Tensor, bias_vl: Tensor, image: Tensor, k: int, scaling: float
) -> tuple[Tensor, ...]:
    logits = _linear_bf16(x, gate, True)
    return *ops.moe_gate(logits, bias, bias_vl, image, k, scaling), logits


def _grouped_linear(xq: Tensor, xs: Tensor, weight: WeightHandle, source: Tensor | None, offsets: Tensor) -> Tensor:
    x, bounds = _wide(fp8(xq, xs)), offsets.tolist()
    rows = x.shape[0] if source is None else source.shape[0]
    y = torch.zeros((rows, weight.tensors[0].shape[1]), dtype=torch.bfloat16)
    for e, (begin, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
        if begin < end:
            part = x[begin:end] if source is None else x[source[begin:end].long()]
            y[begin:end] = _product(part, _wide(fp4(weight.tensors[0][e], weight.tensors[1][e]))).bfloat16()
    return y


def _rounded_once(spec: OpSpec, *args: Any) -> Any:
    """The float64 value, rounded to the output's dtype."""
    found = expected.FLOATS[spec.name](*args)
    outs = tuple(f.want.to(out.dtypes[0]) for f, out in zip(found, spec.outs, strict=True))
    return outs[0] if len(outs) == 1 else outs


def _rms_norm_quant(*args: Any) -> tuple[Tensor, ...]:
    y = _rounded_once(SPECS["rms_norm"], *args)
    return y, *ops.quant_fp8(y)


def _hc_collapse_norm(*args: Any) -> tuple[Tensor, ...]:
    x, pending, weight, eps = args
    y = _rounded_once(SPECS["rms_norm"], _rounded_once(SPECS["hc_collapse"], x, pending), weight, eps)
    return y, *ops.quant_fp8(y)


Fn = Callable[..., Any]
ORDER: dict[str, Fn] = {
    "linear_fp8": _linear_fp8,
    "linear_fp8_grouped": _linear_fp8_grouped,
    "linear_bf16": _linear_bf16,
    "grouped_linear": _grouped_linear,
    "moe_route": _moe_route,
}
NORMS: dict[str, Fn] = {"rms_norm_quant": _rms_norm_quant, "hc_collapse_norm": _hc_collapse_norm}


def variants() -> dict[str, dict[str, Fn]]:
    """Name of each variant -> its functions by op; arguments are those of the op, in spec order."""
    expected.load_oracles()
    fused: dict[str, Fn] = {name: partial(_rounded_once, SPECS[name]) for name in ROUNDED_ONCE} | NORMS
    attention: dict[str, Fn] = {"sparse_attention": partial(_rounded_once, SPECS["sparse_attention"])}
    return {"order": ORDER, "fused": fused, "unrounded_p": attention, "all": {**ORDER, **fused, **attention}}


@contextmanager
def installed(functions: dict[str, Fn], backend: str = VARIANT) -> Iterator[None]:
    """Run some ops through other functions in a with block: registered as kernels of their own, and pinned."""
    added: list[Kernel] = []
    with ExitStack() as stack:
        for name, fn in functions.items():
            kernel = Kernel(name, SPECS[name].version, backend, partial(_as_kernel, SPECS[name], fn))
            added.append(REGISTRY.add(kernel))
            stack.callback(REGISTRY.remove, kernel)
            stack.enter_context(REGISTRY.pin(name, backend))
        yield


def _as_kernel(spec: OpSpec, fn: Fn, *args: Any) -> Any:
    """`fn` under a kernel's calling convention: an `out` argument behind the op's own."""
    given, out = args[: len(spec.args)], args[len(spec.args)]
    result = fn(*given)
    if out is None:
        return result
    for kept, fresh in zip(*(v if isinstance(v, tuple) else (v,) for v in (out, result)), strict=True):
        kept.copy_(fresh)
    return out
