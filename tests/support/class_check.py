"""Whether the results of an op lie in its numerics class: element by element, against the oracles of `class_oracle`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import class_oracle
from cache_oracle import E2M1, E4M3
from class_oracle import Choice, Codes, Within
from deepinfer.backends.reference.kv import index_planes
from deepinfer.ops.layouts import LAYOUTS, entries_per_page
from deepinfer.ops.numerics import Exact
from deepinfer.ops.spec import OpSpec, WeightHandle
from layer_oracle import power, same_bits

GRIDS = {8: E4M3[:127], 4: E2M1[:8]}
"""Ascending magnitudes that a code of so many bits stands for."""
SCALE_FLOOR = {"fp8_32": float(np.float32(1e-4)), "fp4_32_index": 6 * 2.0**-126, "fp4_16": 6 * 2.0**-9}


def to_cpu(value: Any) -> Any:
    """A copy of an argument or result on the CPU, weight handles included."""
    if isinstance(value, Tensor):
        return value.to("cpu", copy=True)
    if isinstance(value, WeightHandle):
        tensors = to_cpu(value.tensors)
        key = (*value.key[:-1], tensors[0].get_device())
        return WeightHandle(value.op, value.layout, tensors, value.dims, value.nbytes, key)
    return tuple(map(to_cpu, value)) if isinstance(value, tuple) else value


def results(spec: OpSpec, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Run an op: its outputs, then the arguments it wrote."""
    out = spec.run(*args)
    outs = out if isinstance(out, tuple) else () if out is None else (out,)
    return (*outs, *(v for a, v in zip(spec.args, args, strict=True) if getattr(a, "mutable", False)))


def faults(spec: OpSpec, args: tuple[Any, ...], outs: Sequence[Tensor], twin: Sequence[Tensor]) -> list[str]:
    """What is wrong with the results of one call; empty if all of it lies in the op's class.

    Args:
        args: the arguments before the call, on the CPU.
        outs: outputs, then written arguments, on the CPU.
        twin: the same of the reference on the CPU, on the same arguments: exact ops must equal it, and non-finite
            values must stand where it has them.
    """
    if [(t.dtype, t.shape) for t in outs] != [(t.dtype, t.shape) for t in twin]:
        return ["dtypes or shapes differ"]
    name = spec.name
    if isinstance(spec.numerics, Exact):
        return [f"output {i} differs" for i, (a, b) in enumerate(zip(outs, twin, strict=True)) if not same_bits(a, b)]
    if name in class_oracle.FLOATS:
        oracles = class_oracle.FLOATS[name](*args)
        found = [float_faults(w, a, b) for w, a, b in zip(oracles, outs, twin, strict=True)]
        return [f"output {i}: {text}" for i, text in enumerate(found) if text]
    if name in class_oracle.CODES:
        record = outs[0] if len(outs) == 1 else torch.cat([t.view(torch.uint8) for t in outs], dim=1)
        return code_faults(class_oracle.CODES[name](*args), record.flatten(0, -2))
    if name in ("compressed_store", "index_key_store"):
        return store_faults(name, args, outs[0])
    assert name == "moe_gate", f"{name} has no oracle"
    weights, experts = outs
    wrong = choice_faults(class_oracle.moe_gate(*args), experts, twins(args))
    text = float_faults(class_oracle.gate_weights(args[0], experts, args[5]), weights, None)
    return [*wrong, *([f"weights: {text}"] if text else [])]


def float_faults(oracle: Within, got: Tensor, twin: Tensor | None) -> str:
    """NaN and infinities where the twin has them, and every other value within the limit; what is wrong, or ''."""
    defined = torch.ones_like(oracle.want, dtype=torch.bool) if oracle.defined is None else oracle.defined
    value, want = got.double(), oracle.want
    most = torch.finfo(got.dtype).max
    if twin is not None:
        same = torch.where(twin.isfinite(), value.isfinite(), value.nan_to_num(0.5) == twin.double().nan_to_num(0.5))
        same &= value.isnan() == twin.isnan()
        if not same[defined].all():
            return f"{int((~same[defined]).sum())} values are NaN or infinite in the wrong place"
    # Near the largest number rounding decides whether a result is infinite.
    edge = want.abs() + oracle.limit >= most
    same = (value.isnan() == want.isnan()) & (edge | want.isnan() | value.isfinite())
    same &= edge | want.isfinite() | want.isnan()
    if not same[defined].all():
        return f"{int((~same[defined]).sum())} values are NaN or infinite where the oracle is not"
    excess = (value - want).abs() - oracle.limit
    over = defined & (excess > 0) & ~edge
    if not over.any():
        return ""
    worst = ((value - want).abs() / oracle.limit)[over].max()
    return f"{int(over.sum())} values beyond the limit, the worst at {float(worst):.3g} times it"


def code_faults(oracle: Codes, record: Tensor) -> list[str]:
    """Each code and scale is one that a value within the limit of the oracle's rounds to."""
    layout = LAYOUTS[oracle.kind]
    rows, channels = oracle.value.shape
    shape = (rows, channels // layout.group, layout.group)
    value, limit = oracle.value.reshape(shape), oracle.limit.reshape(shape)
    grid = torch.from_numpy(GRIDS[layout.bits])
    data, scale = record[:, : layout.data_bytes(channels)].long(), record[:, layout.data_bytes(channels) :].long()
    if layout.bits == 4:
        data = torch.stack((data & 15, data >> 4), dim=-1).flatten(1)
    sign_bit = 1 << (layout.bits - 1)
    negative, code = (data & sign_bit > 0).reshape(shape), (data & (sign_bit - 1)).reshape(shape)
    e8m0 = layout.scale == "e8m0"
    lost = value.isnan().any(-1) | (~value.isfinite().all(-1) if e8m0 else torch.tensor(False))
    wrong = []
    if not (scale == (255 if e8m0 else 0x7F)).equal(lost):
        wrong.append("scales say NaN for the wrong groups")
    fine = ~lost & (scale != (255 if e8m0 else 0x7F)) & (code < len(grid)).all(-1)
    value, limit = value.clamp(-1e38, 1e38).nan_to_num(0.0), limit.nan_to_num(0.0, 0.0)
    amax, moved = value.abs().amax(-1).clamp(min=SCALE_FLOOR[oracle.kind]), limit.amax(-1)
    if e8m0:
        factor = torch.from_numpy(power(scale)).nan_to_num(1.0)
        low, high = factor * grid[-1] / 2, factor * grid[-1]
    else:
        eighths = torch.from_numpy(GRIDS[8])
        factor = eighths[scale.clamp(max=126)]
        low, high = (6 * edge for edge in borders(eighths, scale.clamp(max=126)))
        moved = moved + 2.0**-23 * amax  # the product with 1/6 and that with the rounded reciprocal
        limit = limit + 2.0**-23 * value.abs()
    if (fine & ((amax < low - moved) | (amax > high + moved))).any():
        wrong.append("a scale is not the oracle's nor one the limit allows")
    low, high = (edge * factor.unsqueeze(-1) for edge in borders(grid, code.clamp(max=len(grid) - 1)))
    magnitude = torch.where(negative, -value, value)
    beyond = (magnitude < low - limit) | (magnitude > high + limit)
    count = int((beyond & fine.unsqueeze(-1)).sum())
    return [*wrong, f"{count} codes are not the oracle's nor ones the limit allows"] if count else wrong


def borders(grid: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
    """The ends of the interval of magnitudes that rounds to each code."""
    middle = (grid[1:] + grid[:-1]) / 2
    low = torch.cat((torch.zeros(1), middle))
    high = torch.cat((middle, torch.full((1,), torch.inf)))
    return low[code], high[code]


def store_faults(name: str, args: tuple[Any, ...], pages: Tensor) -> list[str]:
    """The entries of a store against the oracle, and every other byte as it was."""
    oracle, places = class_oracle.stored_entries(name, args)
    ratio, expected = args[6], args[1].clone()
    if name == "index_key_store":
        channels = args[0].shape[1]
        parts, targets = index_planes(pages, channels, ratio), index_planes(expected, channels, ratio)
    else:
        parts, targets = ((p.unflatten(1, (entries_per_page(ratio), -1)),) for p in (pages, expected))
    records = [torch.cat([part[place] for part in parts]) for place in places]
    for place in places:
        for part, target in zip(parts, targets, strict=True):
            target[place] = part[place]
    wrong = [] if expected.equal(pages) else ["bytes of no entry were written"]
    return [*wrong, *(code_faults(oracle, torch.stack(records)) if records else [])]


def twins(args: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """Of `moe_gate`: logits and biases per row and expert; where both are equal so are the keys, bit for bit."""
    logits, bias, bias_vl, image = args[:4]
    return logits, torch.where(image.unsqueeze(1), bias_vl, bias)


def choice_faults(oracle: Choice, ids: Tensor, inputs: tuple[Tensor, Tensor]) -> list[str]:
    """Chosen keys are at least the others' less the limit, in descending order; equal inputs in ascending ids."""
    wrong = []
    for t, row in enumerate(ids.tolist()):
        key, limit = oracle.key[t], oracle.limit[t].nan_to_num(0.0, 0.0)
        if len(set(row)) < len(row) or not all(0 <= e < len(key) for e in row):
            wrong.append(f"row {t}: ids {row} are not distinct experts")
            continue
        key = torch.where(key.isnan(), -1e300, key.double().clamp(-1e200, 1e200))  # NaN last
        rest = torch.ones(len(key), dtype=torch.bool)
        rest[row] = False
        chosen, slack = key[row], limit[row]
        if (chosen[1:] > chosen[:-1] + slack[1:] + slack[:-1]).any():
            wrong.append(f"row {t}: keys do not descend")
        if rest.any() and (chosen + slack).min() < (key - limit)[rest].max():
            wrong.append(f"row {t}: an expert with a larger key was left out")
        rank = torch.full((len(key),), len(row))
        rank[row] = torch.arange(len(row))
        equal = torch.ones((len(key), len(key)), dtype=torch.bool).triu(1)
        for x in (part[t] for part in inputs):
            equal &= x.unsqueeze(1) == x
        if (equal & (rank.unsqueeze(1) > rank)).any():
            wrong.append(f"row {t}: equal keys are not in ascending order of ids")
    return wrong
