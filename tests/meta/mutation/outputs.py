"""Operators on what a kernel returns or writes: whole outputs, tails, single bits, memory around them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deepinfer.ops.rows import ROWS, Rows
from deepinfer.ops.spec import BF16, E4M3, F32, I32, I64, U8, OpSpec, TensorArg

from .operator import (
    VALUES,
    Run,
    as_tuple,
    finish,
    gives,
    next_up,
    operator,
    outputs_changed,
    raw,
    stores,
    written_args,
)

FLOATS = gives(BF16, F32)
NO_NAN = "no result is ever NaN: invalid rows have numbers of their own, pixels are bytes"
ALL_USED = "no place is ever unused: "


def by_rows(spec: OpSpec) -> bool:
    """Ops whose outputs have one entry per row."""
    rows = ROWS.get(spec.name)
    return isinstance(rows, Rows) and any(o.dims[0].text == rows.dim for o in spec.outs)


def wide(spec: OpSpec) -> bool:
    """Ops with an output of more than one dim."""
    return any(len(o.dims) > 1 for o in spec.outs)


def inexact_rows(spec: OpSpec) -> bool:
    """Float rows that are not exact: a last bit is within the class, so that only other suites see it."""
    return by_rows(spec) and FLOATS(spec) and spec.numerics.label in ("accumulated", "rounded")


# ---- kernels that do not do their work --------------------------------------------------------------------------


@operator("returns its first argument", fits=gives(), checks=())
def returns_input(spec: OpSpec, kernel: Run) -> Run:
    def wrong(*args: Any) -> Any:
        source = next(v for v in args if isinstance(v, Tensor))
        right = as_tuple(kernel(*args[:-1], None))
        return finish(tuple(_resized(source, like) for like in right), args[-1])

    return wrong


@operator("returns zeros", fits=gives(), checks=())
def returns_zeros(spec: OpSpec, kernel: Run) -> Run:
    return outputs_changed(lambda value: raw(value).zero_().view(value.dtype))(spec, kernel)


@operator("returns what the call before it returned", fits=gives(), checks=())
def returns_last_output(spec: OpSpec, kernel: Run) -> Run:
    before: list[tuple[Tensor, ...]] = []

    def wrong(*args: Any) -> Any:
        right = as_tuple(kernel(*args[:-1], None))
        last = before[-1] if before else right
        before.append(tuple(t.clone() for t in right))
        return finish(tuple(_resized(a, like) for a, like in zip(last, right, strict=True)), args[-1])

    return wrong


@operator("writes nothing", fits=stores, checks=())
def writes_nothing(spec: OpSpec, kernel: Run) -> Run:
    def wrong(*args: Any) -> Any:
        given = list(args)
        for i in written_args(spec):
            given[i] = _copied(args[i])
        return kernel(*given)

    return wrong


def _resized(source: Tensor, like: Tensor) -> Tensor:
    """The elements of a tensor, cast and repeated into another's form."""
    flat = source.to(torch.float32).flatten()
    if not like.numel() or not flat.numel():
        return torch.zeros_like(raw(like)).view(like.dtype)
    times = -(-like.numel() // flat.numel())
    filled = flat.nan_to_num(0.0, 0.0, 0.0).clamp(-100, 100).repeat(times)[: like.numel()].view(like.shape)
    return filled.to(like.dtype)


def _copied(value: Tensor) -> Tensor:
    copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return raw(copy).copy_(raw(value)).view(value.dtype)


# ---- tails and neighbours ---------------------------------------------------------------------------------------


@operator("leaves out the last row where rows fill no whole tile", fits=by_rows, checks=())
def off_by_one_rows(spec: OpSpec, kernel: Run) -> Run:
    def change(value: Tensor) -> None:
        if value.ndim and value.shape[0] % 16:
            raw(value)[-1] = 0

    return outputs_changed(change)(spec, kernel)


@operator("leaves out the last lane of a row", fits=wide, checks=())
def off_by_one_lanes(spec: OpSpec, kernel: Run) -> Run:
    def change(value: Tensor) -> None:
        if value.ndim > 1 and value.shape[-1]:
            raw(value)[..., -1] = 0

    return outputs_changed(change)(spec, kernel)


@operator(
    "a row takes NaN over from the row above",
    fits=lambda s: by_rows(s) and FLOATS(s),
    suite=("invariance", "ops"),
    checks=(),
    blind=dict.fromkeys(("sample_filter", "token_logprobs", "top_logprobs", "image_patches"), NO_NAN),
)
def neighbour_leaks(spec: OpSpec, kernel: Run) -> Run:
    def change(value: Tensor) -> None:
        if value.is_floating_point() and value.dtype != E4M3 and value.ndim and value.shape[0] > 1:
            lost = value.isnan().flatten(1).any(1) if value.ndim > 1 else value.isnan()
            value[1:][lost[:-1]] = torch.nan

    return outputs_changed(change)(spec, kernel)


# ---- bits that the class allows, and invariance does not ---------------------------------------------------------


def _bumped(value: Tensor, which: Any) -> None:
    if value.dtype in (BF16, F32) and value.ndim and value.numel():
        value[which] = next_up(value[which])


@operator("the order of a sum depends on the number of rows", fits=inexact_rows, suite="invariance", checks=())
def split_looks_at_rows(spec: OpSpec, kernel: Run) -> Run:
    return outputs_changed(lambda v: _bumped(v, slice(None)) if v.ndim and v.shape[0] > 2 else None)(spec, kernel)


@operator("the order of a sum depends on the place of the row", fits=inexact_rows, suite="invariance", checks=())
def order_looks_at_place(spec: OpSpec, kernel: Run) -> Run:
    return outputs_changed(lambda v: _bumped(v, slice(1, None, 2)))(spec, kernel)


@operator(
    "the order of a sum changes from call to call",
    fits=lambda s: FLOATS(s) and s.numerics.label in ("accumulated", "rounded"),
    suite="determinism",
    checks=("repeat", "memory", "after", "threads"),
)
def unordered_reduction(spec: OpSpec, kernel: Run) -> Run:
    calls: list[int] = []

    def change(value: Tensor) -> None:
        calls.append(0)
        if len(calls) // len(spec.outs) % 2:
            _bumped(value, slice(None))

    return outputs_changed(change)(spec, kernel)


# ---- values -----------------------------------------------------------------------------------------------------


@operator(
    "NaN becomes zero",
    fits=FLOATS,
    blind=dict.fromkeys(("sample_filter", "token_logprobs", "top_logprobs", "image_patches"), NO_NAN),
)
def nan_swallowed(spec: OpSpec, kernel: Run) -> Run:
    def change(value: Tensor) -> Tensor | None:
        return value.nan_to_num(0.0, torch.inf, -torch.inf) if value.dtype in (BF16, F32) else None

    return outputs_changed(change)(spec, kernel)


@operator("NaN codes become zero", fits=lambda s: gives(E4M3)(s) or s.name in ("window_pack", "index_query_pack"))
def nan_code_swallowed(spec: OpSpec, kernel: Run) -> Run:
    def change(value: Tensor) -> Tensor | None:
        codes = raw(value)
        if codes.dtype == U8:
            codes[(codes == 0xFF) | (codes == 0x7F)] = 0
        return None

    return outputs_changed(change)(spec, kernel)


@operator("block scales are one power of two too small", fits=lambda s: gives(U8)(s) and s.family in ("quant", "moe"))
def scale_rounded_down(spec: OpSpec, kernel: Run) -> Run:
    def change(value: Tensor) -> None:
        if value.dtype == U8:
            value[value > 0] -= 1

    return outputs_changed(change)(spec, kernel)


@operator("codes are rounded towards zero", fits=gives(E4M3))
def codes_truncated(spec: OpSpec, kernel: Run) -> Run:
    def change(value: Tensor) -> None:
        if value.dtype == E4M3:
            codes = raw(value)
            low = codes & 0x7F
            codes[(low > 0) & (low < 0x7F)] -= 1

    return outputs_changed(change)(spec, kernel)


@operator(
    "unused places hold 0 instead of -1",
    fits=gives(I32, I64),
    blind={
        "sample_draw": ALL_USED + "every row gets a token",
        "verify_drafts": ALL_USED + "every row gets a token",
        "smaller_mass": ALL_USED + "a mass is at least 0",
        "correct_q": ALL_USED + "every sequence gets a row",
        "correct_k": ALL_USED + "a length is at least 0",
        "engram_hash": ALL_USED + "every n-gram has a row of the table",
        "moe_gate": ALL_USED + "k experts are chosen whatever the row holds",
        "moe_route": ALL_USED + "k experts are chosen whatever the row holds",
    },
)
def unused_is_zero(spec: OpSpec, kernel: Run) -> Run:
    return outputs_changed(lambda v: v.masked_fill_(v == -1, 0) if v.dtype in (I32, I64) and v.ndim else None)(
        spec, kernel
    )


@operator("ids of a row come in descending order", fits=lambda s: gives(I32)(s) and wide(s) and s.family == "index")
def ids_in_other_order(spec: OpSpec, kernel: Run) -> Run:
    return outputs_changed(lambda v: v.flip(-1).contiguous())(spec, kernel)


# ---- memory -----------------------------------------------------------------------------------------------------


@operator("ignores `out`", fits=gives(), checks=("out",))
def ignores_out(spec: OpSpec, kernel: Run) -> Run:
    return lambda *args: kernel(*args[:-1], None)


@operator("writes behind its output", fits=gives(), checks=("guard",))
def writes_behind(spec: OpSpec, kernel: Run) -> Run:
    return _writing(kernel, lambda t: t.as_strided((1,), (1,), t.storage_offset() + t.numel()))


@operator("writes before its output", fits=gives(), checks=("guard",))
def writes_before(spec: OpSpec, kernel: Run) -> Run:
    return _writing(kernel, lambda t: t.as_strided((1,), (1,), t.storage_offset() - 1))


def _writing(kernel: Run, place: Any) -> Run:
    def wrong(*args: Any) -> Any:
        found = kernel(*args)
        for out in as_tuple(args[-1]):
            place(raw(out)).zero_()
        return found

    return wrong


@operator(
    "writes an argument that is only read", fits=lambda s: any(_read(a) for a in s.args), checks=("input", "guard")
)
def writes_its_input(spec: OpSpec, kernel: Run) -> Run:
    places = [i for i, a in enumerate(spec.args) if _read(a)]

    def wrong(*args: Any) -> Any:
        found = kernel(*args)
        for i in places:
            if args[i] is not None and args[i].numel() and not any(args[i] is o for o in as_tuple(args[-1])):
                first = raw(args[i])[(0,) * args[i].ndim]
                first.fill_(0 if first.item() else 1)
        return found

    return wrong


def _read(arg: Any) -> bool:
    return isinstance(arg, TensorArg) and not arg.mutable


@operator("takes rows that are strided for contiguous ones", fits=lambda s: any(_strided(a) for a in s.args), checks=())
def ignores_strides(spec: OpSpec, kernel: Run) -> Run:
    places = [i for i, a in enumerate(spec.args) if _strided(a)]

    def wrong(*args: Any) -> Any:
        given = list(args)
        for i in places:
            if args[i] is not None:
                packed = torch.empty(args[i].shape, device="meta").stride()
                given[i] = args[i].as_strided(args[i].shape, packed)
        return kernel(*given)

    return wrong


def _strided(arg: Any) -> bool:
    return isinstance(arg, TensorArg) and arg.layout == "rows" and len(arg.dims) > 1


@operator(
    "writes its output before it has read all of the argument that it may be",
    fits=lambda s: any(o.in_place for o in s.outs),
    checks=("alias", *VALUES),
)
def overwrites_what_it_reads(spec: OpSpec, kernel: Run) -> Run:
    def wrong(*args: Any) -> Any:
        for out in as_tuple(args[-1]):
            raw(out).zero_()
        return kernel(*args)

    return wrong


@operator("returns another dtype", fits=gives(BF16), checks=("dtype", "error"))
def other_dtype(spec: OpSpec, kernel: Run) -> Run:
    def wrong(*args: Any) -> Any:
        found = as_tuple(kernel(*args))
        if args[-1] is not None:
            return args[-1]
        return finish(tuple(t.to(torch.float16) if t.dtype == BF16 else t for t in found), None)

    return wrong


@operator(
    "reads scratch memory that it has not written", fits=inexact_rows, suite="determinism", checks=("memory", "repeat")
)
def reads_old_output(spec: OpSpec, kernel: Run) -> Run:
    def wrong(*args: Any) -> Any:
        stale = [bool(raw(o).flatten()[:1].any()) if o.numel() else False for o in as_tuple(args[-1])]
        found = as_tuple(kernel(*args))
        for value, used in zip(found, stale, strict=False):
            if used:
                _bumped(value, slice(None))
        return finish(found, None) if args[-1] is None else args[-1]

    return wrong
