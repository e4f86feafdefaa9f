"""Rows of a rank in the mirror layout, and rows that go on behind a truncation."""

from __future__ import annotations

import torch
from torch import Tensor

from . import mirror_kernels as device
from .compile_list import CompileCase
from .register import kernel

BLOCK = 64


def _blocks(rows: int) -> int:
    return -(-rows // BLOCK)


@kernel("mirror_rows", version=0)
def mirror_rows(
    query_len: Tensor,
    key_len: Tensor,
    valid_start: Tensor,
    ratios: Tensor,
    ranks: int,
    own: int,
    rows: int,
    total: int,
    out: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...]:
    sequences, kinds = query_len.shape[0], ratios.shape[0]
    if out is None:
        shapes = (rows,), (total,), (rows,), (rows,), (rows,), (kinds, rows)
        out = tuple(torch.empty(shape, dtype=torch.int32, device=query_len.device) for shape in shapes)
    grid = _blocks(rows) + _blocks(total)
    if grid:
        device.mirror_kernel[(grid,)](
            query_len, key_len, valid_start, ratios, *out, sequences, own, rows, total,
            RATIOS=kinds, RANKS=ranks, BLOCK=BLOCK, num_warps=4,
        )  # fmt: skip
    return out


@kernel("replay_rows", version=0)
def replay_rows(
    query_len: Tensor, keep_len: Tensor, ranks: int, own: int, kept: int, rows: int, out: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    if out is None:
        contribution, inverse = (torch.empty(n, dtype=torch.int32, device=query_len.device) for n in (kept, rows))
        out = contribution, inverse
    grid = _blocks(kept) + _blocks(rows)
    if grid:
        device.replay_kernel[(grid,)](
            query_len, keep_len, *out, query_len.shape[0], own, kept, rows, RANKS=ranks, BLOCK=BLOCK, num_warps=4
        )
    return out


def _cases() -> list[CompileCase]:
    found = []
    for ranks in (1, 2, 4, 8):
        for compiled, constants in (
            (device.mirror_kernel, {"RATIOS": 2, "RANKS": ranks, "BLOCK": BLOCK}),
            (device.replay_kernel, {"RANKS": ranks, "BLOCK": BLOCK}),
        ):
            names = [name for name, kind in compiled.kinds.items() if kind != "constexpr"]
            types = {name: "*i32" if name.endswith("_ptr") else "i32" for name in names}
            found.append(CompileCase(compiled, types, constants, label=f"{ranks} ranks"))
    return found


COMPILES = _cases()
