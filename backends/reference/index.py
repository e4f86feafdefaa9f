"""Index scores, exact top-k and candidate blocks.

Scores do not depend on how the work is cut: a dot over one scale group is a small integer times a power of two, so its
fp32 sum is exact in any order; groups and heads are then added elementwise in a written order. Selection compares
integers: an order-preserving image of the score above, the complement of the index below, so all keys are distinct.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import kernel
from ...ops.layouts import FP4_32_INDEX, entries_per_page
from .common import check_index, finish, tree_sum, widths
from .formats import dequantize_fp4_pow2, quantize_fp4_pow2
from .kv import index_planes
from .rope import rotate

CHUNK_ELEMENTS = 8 << 20
"""fp32 numbers of scratch at once; changes no bit."""
COLUMNS = 1024
GROUP = FP4_32_INDEX.group

# Images of special values under `_order`; every number lies between _NAN and the image of +infinity.
_ABSENT = -(2**31)
_NAN = _ABSENT + 1
_BF16_MAX = 0x7F7F0000
_INFINITY = 0x7F800000


@kernel("index_query_pack", version=0, backend="reference", supports=widths(rotary="di", di=32))
def index_query_pack(q: Tensor, positions: Tensor, table: Tensor, out: Tensor | None) -> Tensor:
    codes, scale = quantize_fp4_pow2(rotate(q, positions, table, op="index_query_pack").float())
    return finish(torch.cat((codes, scale), dim=-1), out)


@kernel("index_score", version=0, backend="reference")
def index_score(
    query: Tensor,
    head_weight: Tensor,
    pages: Tensor,
    visible: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    ratio: int,
    entries: int,
    out: Tensor | None,
) -> Tensor:
    rows, device = query.shape[0], query.device
    scores = torch.full((rows, entries), -torch.inf, dtype=torch.bfloat16, device=device)
    limit = torch.where(row_seq >= 0, visible, 0)
    reach = min(entries, int(limit.max())) if rows else 0
    sequence = check_index("index_score", "row_seq", row_seq.clamp(min=0), max(1, block_table.shape[0]))
    _check_pages("index_score", pages, block_table, sequence, limit.clamp(max=entries), ratio)
    q, weight = _unpack_query(query), head_weight.float()
    for first in range(0, reach, COLUMNS):
        entry = torch.arange(first, min(first + COLUMNS, reach), device=device)
        keys = _read_keys(pages, block_table, entry.expand(block_table.shape[0], -1), q.shape[2], ratio)
        for part in _row_chunks(rows, entry.numel(), q.shape[1], q.shape[2]):
            value = _score(q[part], weight[part], keys[sequence[part]])
            seen = entry < limit[part].unsqueeze(1)
            scores[part, first : first + entry.numel()] = torch.where(seen, value, -torch.inf)
    return finish(scores, out)


@kernel("index_score_blocks", version=0, backend="reference")
def index_score_blocks(
    query: Tensor,
    head_weight: Tensor,
    pages: Tensor,
    blocks: Tensor,
    visible: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    ratio: int,
    block_size: int,
    out: Tensor | None,
) -> Tensor:
    rows, columns = query.shape[0], blocks.shape[1] * block_size
    scores = torch.full((rows, columns), -torch.inf, dtype=torch.bfloat16, device=query.device)
    limit = torch.where(row_seq >= 0, visible, 0)
    sequence = check_index("index_score_blocks", "row_seq", row_seq.clamp(min=0), max(1, block_table.shape[0]))
    q, weight = _unpack_query(query), head_weight.float()
    chunks = _row_chunks(rows, min(columns, COLUMNS), q.shape[1], q.shape[2]) if block_table.numel() else []
    for part in chunks:
        entry = block_entries(blocks[part], block_size)
        seen = (entry >= 0) & (entry < limit[part].unsqueeze(1))
        entry = torch.where(seen, entry, 0)
        _check_entries("index_score_blocks", pages, block_table[sequence[part]], entry, seen, ratio)
        for first in range(0, columns, COLUMNS):
            place = slice(first, first + COLUMNS)
            keys = _read_keys(pages, block_table[sequence[part]], entry[:, place], q.shape[2], ratio)
            value = _score(q[part], weight[part], keys)
            scores[part, place] = torch.where(seen[:, place], value, -torch.inf)
    return finish(scores, out)


@kernel("topk_select", version=0, backend="reference")
def topk_select(
    scores: Tensor, visible: Tensor, k: int, blocks: Tensor | None, block_size: int, out: Tensor | None
) -> Tensor:
    rows, columns = scores.shape
    column = torch.arange(columns, device=scores.device)
    chosen = torch.full((rows, k), -1, dtype=torch.int32, device=scores.device)
    for part in _row_chunks(rows, columns, 1, 4):
        entry = (
            column.expand(len(range(*part.indices(rows))), -1)
            if blocks is None
            else block_entries(blocks[part], block_size)
        )
        seen = (entry >= 0) & (entry < visible[part].unsqueeze(1))
        chosen[part] = _select(torch.where(seen, _order(scores[part]), _ABSENT), entry, k)
    return finish(chosen, out)


@kernel("block_select", version=0, backend="reference")
def block_select(scores: Tensor, visible: Tensor, block_size: int, k: int, out: Tensor | None) -> Tensor:
    rows, columns = scores.shape
    count = -(-columns // block_size)
    block = torch.arange(count, device=scores.device)
    chosen = torch.full((rows, k), -1, dtype=torch.int32, device=scores.device)
    for part in _row_chunks(rows, columns, 1, 4):
        seen = torch.arange(columns, device=scores.device) < visible[part].unsqueeze(1)
        order = torch.where(seen, _order(scores[part]), _ABSENT)
        order = torch.nn.functional.pad(order, (0, count * block_size - columns), value=_ABSENT)
        best = order.unflatten(1, (count, block_size)).amax(2).clamp(max=_BF16_MAX)
        last = (visible[part].clamp(max=columns).unsqueeze(1) - 1) // block_size
        best = torch.where(block == last, _INFINITY, best)
        chosen[part] = _select(best, block.expand(best.shape), k)
    return finish(chosen, out)


def block_entries(blocks: Tensor, block_size: int) -> Tensor:
    """Entry of each compact column, int64 [T, KB * block_size]; negative where the block id is -1."""
    entry = blocks.long().unsqueeze(2) * block_size + torch.arange(block_size, device=blocks.device)
    return torch.where(blocks.unsqueeze(2) < 0, -1, entry).flatten(1)


def _unpack_query(query: Tensor) -> Tensor:
    """fp32 [T, H, di] of packed queries."""
    data = FP4_32_INDEX.data_bytes(FP4_32_INDEX.channels(query.shape[2]))
    return dequantize_fp4_pow2(query[..., :data], query[..., data:])


def _read_keys(pages: Tensor, block_table: Tensor, entry: Tensor, channels: int, ratio: int) -> Tensor:
    """fp32 keys [n, C, di] of entries [n, C] of sequences with block tables [n, B].

    Columns that nobody sees may have no page, and then read another; the caller discards their scores.
    """
    page_entries = entries_per_page(ratio)
    page = block_table.gather(1, entry // page_entries).long().clamp(0, max(0, pages.shape[0] - 1))
    data, scale = index_planes(pages, channels, ratio)
    slot = entry % page_entries
    return dequantize_fp4_pow2(data[page, slot], scale[page, slot])


def _check_pages(op: str, pages: Tensor, block_table: Tensor, sequence: Tensor, limit: Tensor, ratio: int) -> None:
    """Refuse rows [T] whose first `limit` entries do not all have pages."""
    if not limit.numel() or not block_table.shape[0]:
        return
    # Entries count up, so what the furthest row of a sequence sees holds for the others.
    furthest = torch.zeros(block_table.shape[0], dtype=torch.long, device=limit.device)
    furthest.scatter_reduce_(0, sequence, limit.long(), "amax")
    used = -(-furthest // entries_per_page(ratio))
    check_index(op, "visible (in pages)", used, block_table.shape[1] + 1)
    column = torch.arange(block_table.shape[1], device=limit.device)
    wanted = torch.where(column < used.unsqueeze(1), block_table, 0) if used.any() else used[:0]
    check_index(op, "block_table", wanted, pages.shape[0])


def _check_entries(op: str, pages: Tensor, block_table: Tensor, entry: Tensor, seen: Tensor, ratio: int) -> None:
    """Refuse entries [n, C] that are seen but have no page in the tables [n, B]."""
    column = entry // entries_per_page(ratio)
    check_index(op, "entry of a visible block, in pages,", column, max(1, block_table.shape[1]))
    page = torch.where(seen, block_table.gather(1, column), 0)
    check_index(op, "block_table", page, pages.shape[0]) if bool(seen.any()) else None


def _score(q: Tensor, weight: Tensor, keys: Tensor) -> Tensor:
    """bf16 scores [n, C] of queries [n, H, di] with head weights [n, H] and keys [n, C, di], all fp32."""
    dot: Tensor | None = None
    for g in range(0, q.shape[2], GROUP):
        part = torch.bmm(q[:, :, g : g + GROUP], keys[:, :, g : g + GROUP].transpose(1, 2))
        dot = part if dot is None else dot + part
    assert dot is not None
    weighted = weight.unsqueeze(2) * torch.relu(dot)
    return tree_sum(weighted.transpose(1, 2)).squeeze(2).to(torch.bfloat16)


def _order(scores: Tensor) -> Tensor:
    """int32 image of bf16 or fp32 values with the same order; -0.0 equals +0.0, NaN is below all numbers."""
    value = scores.float() + 0.0
    bits = value.view(torch.int32)
    return torch.where(value.isnan(), _NAN, bits ^ ((bits >> 31) & 0x7FFFFFFF))


def _select(order: Tensor, entry: Tensor, k: int) -> Tensor:
    """The k entries of largest order, ties to the lower entry; int32 [n, k], ascending, -1 after them."""
    key = (order.long() << 32) | (0xFFFFFFFF - entry)
    key = torch.where(order == _ABSENT, torch.iinfo(torch.int64).min, key)
    top = torch.topk(key, min(k, key.shape[1]), dim=1, sorted=False).values
    chosen = torch.where(top == torch.iinfo(torch.int64).min, 2**32, 0xFFFFFFFF - (top & 0xFFFFFFFF))
    chosen = chosen.sort(dim=1).values
    chosen = torch.where(chosen == 2**32, -1, chosen).int()
    return torch.nn.functional.pad(chosen, (0, k - chosen.shape[1]), value=-1)


def _row_chunks(rows: int, columns: int, heads: int, channels: int) -> list[slice]:
    """Slices of rows whose scratch stays near CHUNK_ELEMENTS."""
    step = max(1, CHUNK_ELEMENTS // max(1, columns * (2 * heads + channels)))
    return [slice(first, min(first + step, rows)) for first in range(0, rows, step)]
