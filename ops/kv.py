"""Cache records: what is written for each token, and where.

Common arguments. Rows of one sequence are consecutive and ascending in position. `positions` [T] i32; `row_seq` [T] i32
is the row's sequence in this step, -1 for a padding row, which reads and writes nothing (its position is 0 or any other
in the rope table); `seq_start`, `seq_end` [S] i32 are the first position of a sequence in this step and one past its
last; `state_slot` [S] i32 is its slot in a ring; `block_table` [S, B] i32 its page ids, -1 where none is assigned.
`table` [M, dr/2, 2] f32 holds cos and sin of every position. Records and pages are described in `ops/layouts.py`; rows
of rings and pages may be strided, and offsets can pass 2**31 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from . import cache_samples as samples
from .layouts import COMPRESSED_RECORDS, compressed_record
from .numerics import Accumulated, Decided, Exact
from .spec import BF16, F32, I32, U8, Cost, OpSpec, define, result, scalar, tensor

POSITIONS = tensor("positions", "T", I32)
ROW_SEQ = tensor("row_seq", "T", I32)
SEQ_START = tensor("seq_start", "S", I32)
SEQ_END = tensor("seq_end", "S", I32)
STATE_SLOT = tensor("state_slot", "S", I32)
BLOCK_TABLE = tensor("block_table", "S B", I32)
ROPE_TABLE = tensor("table", "M F 2", F32)
_RING_ROWS = (POSITIONS, ROW_SEQ, SEQ_END, STATE_SLOT)
_ENTRY_ROWS = (POSITIONS, ROW_SEQ, BLOCK_TABLE, ROPE_TABLE, scalar("ratio", int, choices=(1, 2)))


def _store_cost(d: Mapping[str, int], channels: int, record: int) -> Cost:
    """Cost of a store of compressed entries: one row in `ratio` is read, rotated and written as a record."""
    entries = d["T"] // d["ratio"]
    metadata = 8 * d["T"] + 4 * min(entries, d["S"] * d["B"]) + 8 * min(entries, d["M"]) * d["F"]
    return Cost(flops=8 * entries * channels, bytes=entries * (2 * channels + record) + metadata)


WINDOW_PACK = define(
    "window_pack",
    version=0,
    family="kv",
    args=[tensor("kv", "T d", BF16), POSITIONS, ROPE_TABLE],
    outs=[result("records", "T d+d//32", U8)],
    dynamic="T M",
    semantics="""Rotary embedding of the last 2F channels at the row's position (interleaved pairs, fp32, rounded to
        bf16), then Q8 over all d channels in groups of 32, then one FP8-32 record: d codes, d/32 scale bytes. A group
        with NaN or infinity gets scale byte 255. Zero rows give an empty result. Positions must lie in [0, M).""",
    numerics=Decided(1, "bf16", of="rotated channel; channels that are copied are exact"),
    cost=lambda d: Cost(
        flops=8 * d["T"] * d["d"],
        bytes=d["T"] * (3 * d["d"] + d["d"] // 32 + 4) + 8 * min(d["T"], d["M"]) * d["F"],
    ),
    samples=samples.window_pack,
)

WINDOW_STORE = define(
    "window_store",
    version=0,
    family="kv",
    args=[
        tensor("records", "T rec", U8),
        tensor("ring", "Z R rec", U8, mutable=True, layout="rows"),
        *_RING_ROWS,
    ],
    outs=[],
    dynamic="T S Z",
    semantics="""Row at position p of sequence s goes to ring[state_slot[s], p % R] if p >= seq_end[s] - R, byte for
        byte; earlier rows and padding rows are not written, no other byte of the ring changes. Sequences have distinct
        slots.""",
    numerics=Exact(),
    cost=lambda d: Cost(flops=0, bytes=2 * min(d["T"], d["S"] * d["R"]) * d["rec"] + 8 * (d["T"] + d["S"])),
    samples=samples.window_store,
)

COMPRESS_POOL = define(
    "compress_pool",
    version=0,
    family="kv",
    args=[
        tensor("value", "T d", F32),
        tensor("gate", "T d", F32),
        tensor("ring", "Z L 2 d", F32, layout="rows"),
        POSITIONS,
        ROW_SEQ,
        SEQ_START,
        STATE_SLOT,
    ],
    outs=[result("pooled", "T d", BF16)],
    dynamic="T S Z",
    semantics="""Ratio 2. A row at an odd position p pools the pair (p-1, p) per channel: a = softmax(gate[p-1],
        gate[p]) by subtracting the maximum, result bf16(a0*value[p-1] + a1*value[p]) in fp32. Row p-1 is the row before
        in this step if p-1 >= seq_start, else ring[state_slot, (p-1) % L] (index 0 gate, 1 value), which holds the
        state before this step. Rows at even positions and padding rows give zeros, whatever their inputs hold.""",
    numerics=Accumulated("2"),
    cost=lambda d: Cost(flops=10 * d["T"] * d["d"], bytes=d["T"] * (10 * d["d"] + 8) + 8 * d["S"]),
    samples=samples.compress_pool,
)

COMPRESSOR_RING_STORE = define(
    "compressor_ring_store",
    version=0,
    family="kv",
    args=[
        tensor("value", "T d", F32),
        tensor("gate", "T d", F32),
        tensor("ring", "Z L 2 d", F32, mutable=True, layout="rows"),
        *_RING_ROWS,
    ],
    outs=[],
    dynamic="T S Z",
    semantics="""Row at position p of sequence s goes to ring[state_slot[s], p % L] (index 0 gate, 1 value) if
        p >= seq_end[s] - L; earlier rows and padding rows are not written. Runs after compress_pool, which reads the
        state before the step.""",
    numerics=Exact(),
    cost=lambda d: Cost(flops=0, bytes=16 * min(d["T"], d["S"] * d["L"]) * d["d"] + 8 * (d["T"] + d["S"])),
    samples=samples.compressor_ring_store,
)

COMPRESSED_STORE = define(
    "compressed_store",
    version=0,
    family="kv",
    args=[
        tensor("latent", "T d", BF16),
        tensor("pages", "P PB", U8, mutable=True, layout="rows"),
        *_ENTRY_ROWS,
        scalar("record", str, choices=COMPRESSED_RECORDS),
    ],
    outs=[],
    dynamic="T S P B M",
    semantics="""A row whose position p satisfies (p+1) % ratio == 0 completes entry j = (p+1)/ratio - 1: rotary
        embedding at position j*ratio (the first token of the group), rounded to bf16, quantised (fp4_16: groups of 16,
        E4M3 scale; fp8_32: groups of 32, power-of-two scale), written to page block_table[s, j // E] at slot j % E,
        E = 128/ratio. Other rows and padding rows write nothing and may hold anything; no other byte changes.""",
    numerics=Decided(1, "bf16", of="rotated channel; channels that are copied are exact"),
    cost=lambda d: _store_cost(d, d["d"], d["PB"] * d["ratio"] // 128),
    samples=samples.compressed_store,
)

INDEX_KEY_STORE = define(
    "index_key_store",
    version=0,
    family="kv",
    args=[
        tensor("key", "T di", BF16),
        tensor("pages", "P 128//ratio*(di//2+di//32)", U8, mutable=True, layout="rows"),
        *_ENTRY_ROWS,
    ],
    outs=[],
    dynamic="T S P B M",
    semantics="""As compressed_store, with Q4p (groups of 32, power-of-two scale) into the planar index layout: the
        codes of all E entries of the page first, then their scales.""",
    numerics=Decided(1, "bf16", of="rotated channel; channels that are copied are exact"),
    cost=lambda d: _store_cost(d, d["di"], d["di"] // 2 + d["di"] // 32),
    samples=samples.index_key_store,
)


def window_pack(kv: Tensor, positions: Tensor, table: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Rotate and quantise window keys into FP8-32 records.

    Args:
        kv: bf16 [T, d], normed, before the rotary embedding. positions: i32 [T]. table: f32 [M, dr/2, 2].

    Returns:
        uint8 [T, d + d/32].
    """
    return WINDOW_PACK.run(kv, positions, table, out)  # type: ignore[no-any-return]


def window_store(
    records: Tensor, ring: Tensor, positions: Tensor, row_seq: Tensor, seq_end: Tensor, state_slot: Tensor
) -> None:
    """Write the last R rows of each sequence into its ring [Z, R, record bytes], slot `position % R`.

    Call it after the attention of the step, which reads the ring as it was before.
    """
    WINDOW_STORE.run(records, ring, positions, row_seq, seq_end, state_slot)


def compress_pool(
    value: Tensor,
    gate: Tensor,
    ring: Tensor,
    positions: Tensor,
    row_seq: Tensor,
    seq_start: Tensor,
    state_slot: Tensor,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Pool the tokens 2j and 2j+1 into one latent, gated per channel.

    Args:
        value, gate: f32 [T, d]. ring: f32 [Z, L, 2, d], the state before this step.

    Returns:
        bf16 [T, d]; rows at even positions and padding rows are zero.
    """
    return COMPRESS_POOL.run(value, gate, ring, positions, row_seq, seq_start, state_slot, out)  # type: ignore[no-any-return]


def compressor_ring_store(
    value: Tensor, gate: Tensor, ring: Tensor, positions: Tensor, row_seq: Tensor, seq_end: Tensor, state_slot: Tensor
) -> None:
    """Write the last L rows of each sequence into its compressor ring f32 [Z, L, 2, d], slot `position % L`."""
    COMPRESSOR_RING_STORE.run(value, gate, ring, positions, row_seq, seq_end, state_slot)


def compressed_store(
    latent: Tensor,
    pages: Tensor,
    positions: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    table: Tensor,
    ratio: int,
    record: str,
) -> None:
    """Rotate, quantise and write the compressed entries that the rows of this step complete.

    Args:
        latent: bf16 [T, d], pre-rotary; read at rows with `(position + 1) % ratio == 0` only.
        pages: uint8 [P, page bytes of the section], rows strided.
        record: 'fp4_16' or 'fp8_32'.

    Raises:
        ContractError: among others, the section's size does not fit d, ratio and record.
    """
    check_section(COMPRESSED_STORE, pages, latent.shape[-1], ratio, record)
    COMPRESSED_STORE.run(latent, pages, positions, row_seq, block_table, table, ratio, record)


def index_key_store(
    key: Tensor, pages: Tensor, positions: Tensor, row_seq: Tensor, block_table: Tensor, table: Tensor, ratio: int
) -> None:
    """Rotate, quantise and write the index keys of the entries that the rows of this step complete.

    Args:
        key: bf16 [T, di], normed, pre-rotary. pages: uint8 [P, E * (di/2 + di/32)], rows strided, planar.
    """
    INDEX_KEY_STORE.run(key, pages, positions, row_seq, block_table, table, ratio)


def check_section(spec: OpSpec, pages: Tensor, channels: int, ratio: int, record: str) -> None:
    """Refuse a page section whose width does not fit the record.

    Raises:
        ContractError: names both sizes.
    """
    if record not in COMPRESSED_RECORDS or pages.ndim != 2:
        return  # the spec's own check words this better
    want = compressed_record(record).page_bytes(channels, ratio)
    if pages.shape[1] != want:
        raise spec.error(
            f"pages hold {pages.shape[1]} bytes each; {channels} channels as {record} with ratio {ratio} need {want}"
        )
