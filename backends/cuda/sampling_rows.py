"""Parameters of logit rows, masks on some rows, values of candidate lists."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .jit import jit
from .register import kernel
from .sampling import empty_or
from .sampling_compiles import VOCABULARY, case


@jit
def spread_params(
    request_ptr, offset_ptr, inverse_ptr, top_k_ptr, top_p_ptr, min_p_ptr, seed_ptr, base_ptr,
    out_inverse_ptr, out_top_k_ptr, out_top_p_ptr, out_min_p_ptr, out_seed_ptr, out_position_ptr, rows,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Parameters of BLOCK rows from those of their requests. Grid (blocks,)."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = row < rows
    request = tl.load(request_ptr + row, mask=inside, other=-1)
    live = request >= 0
    # As integers, so that the bits of a NaN stay.
    inverse = tl.load(inverse_ptr.to(tl.pointer_type(tl.int32)) + request, mask=live, other=0x7F800000)
    tl.store(out_inverse_ptr.to(tl.pointer_type(tl.int32)) + row, inverse, mask=inside)
    tl.store(out_top_k_ptr + row, tl.load(top_k_ptr + request, mask=live, other=0), mask=inside)
    tl.store(out_top_p_ptr + row, tl.load(top_p_ptr + request, mask=live, other=2147483648), mask=inside)
    tl.store(out_min_p_ptr + row, tl.load(min_p_ptr + request, mask=live, other=0), mask=inside)
    tl.store(out_seed_ptr + row, tl.load(seed_ptr + request, mask=live, other=0), mask=inside)
    offset = tl.load(offset_ptr + row, mask=live, other=0).to(tl.int64)
    tl.store(out_position_ptr + row, tl.load(base_ptr + request, mask=live, other=0) + offset, mask=inside)


@jit
def ban(
    z_ptr, word_ptr, request_ptr, offset_ptr, first_ptr, requests, V: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One tile of one mask: -infinity into its row where bits are clear. Grid (tiles, masks)."""
    mask = tl.program_id(1).to(tl.int64)
    words: tl.constexpr = (V + 31) // 32
    request = tl.load(request_ptr + mask)
    offset = tl.load(offset_ptr + mask).to(tl.int64)
    if (request >= 0) & (request < requests) & (offset >= 0):
        row = tl.load(first_ptr + request).to(tl.int64) + offset
        if row < tl.load(first_ptr + request + 1):
            at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            inside = at < V
            word = tl.load(word_ptr + mask * words + at // 32, mask=inside, other=-1)
            clear = ((word >> (at % 32)) & 1) == 0
            tl.store(z_ptr + row * V + at, tl.full((BLOCK,), 0.0, tl.float32) - float("inf"), mask=inside & clear)


@jit
def find(
    ids_ptr, value_ptr, wanted_ptr, out_ptr, K: tl.constexpr, J: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Values of ROWS wanted ids of a row, among its K candidates. Grid (blocks of wanted ids, rows)."""
    row = tl.program_id(1).to(tl.int64)
    j = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    wanted = tl.load(wanted_ptr + row * J + j, mask=j < J, other=-1)
    place = tl.full((ROWS,), -1, tl.int32)
    for begin in range(0, K, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        ids = tl.load(ids_ptr + row * K + at, mask=at < K, other=-1)
        hit = (ids[None, :] == wanted[:, None]) & (wanted[:, None] >= 0)
        place = tl.maximum(place, tl.max(tl.where(hit, at[None, :], -1), 1))
    # As integers, so that the bits of a NaN stay.
    values = value_ptr.to(tl.pointer_type(tl.int32)) + row * K
    found = tl.load(values + place, mask=place >= 0, other=-8388608)
    tl.store(out_ptr.to(tl.pointer_type(tl.int32)) + row * J + j, found, mask=j < J)


@kernel("expand_params", version=0)
def expand_params(
    request: Tensor, offset: Tensor, inv_temperature: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor,
    seeds: Tensor, base: Tensor, out: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    rows = request.shape[0]
    given = (inv_temperature, top_k, top_p, min_p, seeds, base)
    if out is None:
        out = tuple(empty_or(None, request, (rows,), t.dtype) for t in given)
    if rows:
        spread_params[(-(-rows // 128),)](request, offset, *given, *out, rows, BLOCK=128, num_warps=4)
    return out


@kernel("mask_rows", version=0)
def mask_rows(logits: Tensor, words: Tensor, request: Tensor, offset: Tensor, first_row: Tensor, out: None) -> None:
    masks, width = words.shape[0], logits.shape[1]
    if masks and first_row.shape[0] > 1:
        ban[(-(-width // 1024), masks)](
            logits, words, request, offset, first_row, first_row.shape[0] - 1, V=width, BLOCK=1024, num_warps=4
        )


@kernel("lookup_candidates", version=0)
def lookup_candidates(ids: Tensor, values: Tensor, wanted: Tensor, out: Tensor | None) -> Tensor:
    (rows, k), j = ids.shape, wanted.shape[1]
    out = empty_or(out, values, (rows, j), torch.float32)
    if rows and j:
        some = min(16, triton.next_power_of_2(j))
        block = max(16, min(256, triton.next_power_of_2(max(k, 1))))
        find[(-(-j // some), rows)](ids, values, wanted, out, K=k, J=j, ROWS=some, BLOCK=block, num_warps=4)
    return out


COMPILES = [
    case(spread_params, num_warps=4, BLOCK=128),
    case(ban, num_warps=4, V=VOCABULARY, BLOCK=1024),
    case(find, "1 of 1024", num_warps=4, K=1024, J=1, ROWS=1, BLOCK=256),
    case(find, "lists of 1024", num_warps=4, K=1024, J=1024, ROWS=16, BLOCK=256),
]
