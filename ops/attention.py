"""Sparse attention: one op for prefill, decode and draft rows.

The order of the arithmetic is part of the contract (`_ORDER` below), because a row must give the same bits alone, in
any batch, under any padding and at any chunk border. It leaves a backend the order inside a dot and inside a tile. The
reference works in two passes: the exact maximum over all keys first, so nothing is ever rescaled; within a tile it adds
P by halving (column i + column i+32, then 16, …).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from . import cache_samples as samples
from .kv import ROW_SEQ, SEQ_START, STATE_SLOT, check_section
from .layouts import COMPRESSED_RECORDS
from .numerics import Accumulated
from .spec import BF16, F32, I32, U8, Cost, define, result, scalar, tensor

KEY_TILE = 64
"""Keys per tile of the fixed reduction order."""

_ORDER = """Order of the arithmetic: the keys of a row sit in fixed slots. Slot i of the window section, i < window, is
    position last_key-window+1+i; the selected section starts at the next multiple of 64 and has one slot per column of
    `indices`. A key that does not exist (position below first_key or 0, index -1) leaves its slot empty, nothing moves
    up. Slots form tiles of 64. score = (q . k) * scale with the dot accumulated in fp32. The denominator adds the sums
    of fp32 P of tiles 0, 1, 2, …, then exp(sink - M) once; the numerator adds the fp32 products bf16(P) . V of tiles 0,
    1, 2, …; the quotient is rounded once to bf16. A tile without a key adds exactly nothing and may be skipped, so
    trailing columns of -1 change no bit. M is the maximum over the keys of the row and head; a running maximum with
    rescaling in tile order is allowed. The order inside a dot and inside a tile is a backend's choice, once per static
    signature."""


def _cost(d: Mapping[str, int]) -> Cost:
    keys = d["window"] + d.get("K", 0)
    # Rows of a sequence share their window but for its last key; no more entries are read than the pages hold.
    window = min(d["T"] * d["window"], d["T"] + d["S"] * (d["window"] - 1)) * (d["d"] + d["d"] // 32)
    selected = d["T"] * d.get("K", 0)
    entries = min(selected * d.get("PB", 0) * d["ratio"] // 128, d.get("P", 0) * d.get("PB", 0))
    metadata = 4 * d["h"] + 12 * d["T"] + 12 * d["S"] + 4 * selected + 4 * min(selected, d["S"] * d.get("B", 0))
    return Cost(
        flops=4.0 * d["T"] * d["h"] * d["d"] * keys,
        bytes=4 * d["T"] * d["h"] * d["d"] + window + entries + metadata,
    )


SPARSE_ATTENTION = define(
    "sparse_attention",
    version=1,
    family="attention",
    args=[
        tensor("q", "T h d", BF16),
        tensor("fresh", "T d+d//32", U8),
        tensor("ring", "Z R d+d//32", U8, layout="rows"),
        tensor("sink", "h", F32),
        tensor("first_key", "T", I32),
        tensor("last_key", "T", I32),
        ROW_SEQ,
        SEQ_START,
        tensor("row_begin", "S", I32),
        STATE_SLOT,
        tensor("pages", "P PB", U8, optional=True, layout="rows"),
        tensor("block_table", "S B", I32, optional=True),
        tensor("indices", "T K", I32, optional=True),
        scalar("window", int, low=1),
        scalar("ratio", int),
        scalar("scale", float),
        scalar("record", str, choices=COMPRESSED_RECORDS),
    ],
    outs=[result("o", "T h d", BF16)],
    dynamic="T S Z P B",
    semantics="""A row attends the window keys at positions max(first_key, last_key-window+1, 0) .. last_key of its
        sequence, none where that range is empty, then the compressed entries in its row of `indices` (ascending, -1 =
        none, at most its visible ones). Window keys are FP8-32 records: positions >= seq_start from row row_begin +
        (position - seq_start) of `fresh`, older ones from ring[state_slot, position % R], which holds the state before
        this step; last_key is older than seq_start or a row of the sequence in this step. A causal row has its own
        position as last_key, and 0 as first_key unless older keys are not valid or not wanted. The rows of a draft
        block have the block's last position as last_key and so see one another; their `window` is longer by the block.
        Compressed entries are found through block_table: entry j in page block_table[s, j // E] at slot j % E, E =
        128/ratio. Each record is key and value. One softmax over all of them; a key present in both sections counts
        twice. The sink adds exp(sink - M) to the denominator only. P is rounded to bf16 for P.V, the denominator sums
        fp32 P. Rows without a key (padding) give zeros. Bytes that are not asked for (unread ring slots, entries and
        pages, other rows) may hold anything, NaN codes included. A NaN among a row's own keys, a score of +infinity, or
        scores of -infinity alone make the output of that row and head NaN. R >= window - 1; the three optional
        arguments go together, and K counts 0 without them. """
    + _ORDER,
    numerics=Accumulated("window+K"),
    cost=_cost,
    samples=samples.sparse_attention,
)


def sparse_attention(
    q: Tensor,
    fresh: Tensor,
    ring: Tensor,
    sink: Tensor,
    first_key: Tensor,
    last_key: Tensor,
    row_seq: Tensor,
    seq_start: Tensor,
    row_begin: Tensor,
    state_slot: Tensor,
    pages: Tensor | None,
    block_table: Tensor | None,
    indices: Tensor | None,
    window: int,
    ratio: int,
    scale: float,
    record: str,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Attention over window keys and selected compressed entries, with a sink per head.

    Args:
        q: bf16 [T, h, d], rotated. fresh: uint8 [T, d + d/32], records of this step's rows.
        ring: uint8 [Z, R, d + d/32], before this step's rows are stored. sink: f32 [h].
        first_key, last_key, row_seq: i32 [T]. seq_start, row_begin, state_slot: i32 [S].
        pages: uint8 [P, section bytes], rows strided. block_table: i32 [S, B].
        indices: i32 [T, K], ascending, -1 padded.
        window: most keys of the window, counted back from last_key, that one included.
        ratio: tokens per compressed entry (0 without pages).
        scale: factor of q.k. record: 'fp4_16' or 'fp8_32', the records in `pages`.

    Returns:
        bf16 [T, h, d]. A row's bits depend on its own query and keys alone.

    Raises:
        ContractError: shapes, dtypes or sizes that do not go together.
    """
    absent = [pages is None, block_table is None, indices is None]
    if any(absent) and not all(absent):
        raise SPARSE_ATTENTION.error("pages, block_table and indices must be given together or all be None")
    if window < 1 or ring.ndim == 3 and ring.shape[1] < window - 1:
        raise SPARSE_ATTENTION.error(
            f"window is {window} and the ring has {ring.shape[1]} slots; at least window - 1 and window >= 1"
        )
    if pages is not None:
        if ratio not in (1, 2):
            raise SPARSE_ATTENTION.error(f"ratio must be 1 or 2 with pages, got {ratio}")
        check_section(SPARSE_ATTENTION, pages, q.shape[-1], ratio, record)
    return SPARSE_ATTENTION.run(  # type: ignore[no-any-return]
        q,
        fresh,
        ring,
        sink,
        first_key,
        last_key,
        row_seq,
        seq_start,
        row_begin,
        state_slot,
        pages,
        block_table,
        indices,
        window,
        ratio,
        scale,
        record,
        out,
    )
