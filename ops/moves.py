"""Moving cache bytes: copies between pages and state slots, windows between rings, records into plain keys.

`pool` is a whole pool, one page or state slot a row, or one owner's section of it; rows may be strided and offsets
`row * stride` pass 2**31 bytes. Lists are as long as a captured graph has room for; -1 marks what is not used.
"""

from __future__ import annotations

from torch import Tensor

from . import move_samples as samples
from .layouts import LAYOUTS
from .numerics import Exact
from .spec import BF16, I32, U8, Cost, define, result, scalar, tensor

COPY_SLOTS = define(
    "copy_slots",
    version=0,
    family="moves",
    args=[tensor("pool", "P W", U8, mutable=True, layout="rows"), tensor("pairs", "N 2", I32)],
    outs=[],
    dynamic="P N",
    semantics="""For every pair (source, target): pool[target] = pool[source], byte for byte; source -1 writes zeros;
        target -1 is unused and its source is not looked at. Targets are distinct, and none is a source as well, so
        the order does not matter; sources may repeat. No other byte changes, gaps between strided rows included. N
        may be 0. Lists that break this are refused where they can be seen; elsewhere the bytes of the targets are
        unspecified.""",
    numerics=Exact(),
    cost=lambda d: Cost(flops=0, bytes=8 * d["N"] + (min(d["N"], d["P"] // 2) + min(d["N"], -(-d["P"] // 2))) * d["W"]),
    samples=samples.copy_slots,
)

RING_MOVE = define(
    "ring_move",
    version=0,
    family="moves",
    args=[
        tensor("source", "A L rec", U8, layout="rows"),
        tensor("target", "Z R rec", U8, mutable=True, layout="rows"),
        tensor("source_slot", "N", I32),
        tensor("target_slot", "N", I32),
        tensor("begin", "N", I32),
        tensor("end", "N", I32),
    ],
    outs=[],
    dynamic="A Z N",
    semantics="""Carries windows from rings of L slots to rings of R: for every item i and position p in begin[i] ..
        end[i]-1, target[target_slot[i], p % R] = source[source_slot[i], p % L], byte for byte. 0 <= begin, and end -
        begin is at most L and at most R, so that no slot stands for two positions; end <= begin moves nothing. Items
        with target_slot -1 are unused. Target slots are distinct; sources may repeat. No other byte changes: slots of
        positions outside the range keep what they held. `source` and `target` are different pools.""",
    numerics=Exact(),
    cost=lambda d: Cost(
        flops=0,
        bytes=16 * d["N"] + d["rec"] * min(d["L"], d["R"]) * (min(d["N"], d["A"]) + min(d["N"], d["Z"])),
    ),
    samples=samples.ring_move,
)

LOAD_RECORDS = define(
    "load_records",
    version=0,
    family="moves",
    args=[
        tensor("pages", "P PB", U8, layout="rows"),
        tensor("plan", "N 4", I32),
        scalar("rows", int, static=False),
        scalar("entries", int, low=1),
        scalar("channels", int, low=1),
        scalar("record", str, choices=tuple(LAYOUTS)),
    ],
    outs=[result("keys", "rows channels", BF16)],
    dynamic="P N rows",
    semantics="""Copies cache entries into one contiguous buffer, dequantised: plan row (page, begin, end, first) puts
        the records in slots begin .. end-1 of pages[page] into keys[first ..], in order. `entries` is the number of
        slots of a page (128/ratio), or of a ring whose slots are viewed as a page; PB = entries * record bytes, in
        the layout of `record` (see `ops/layouts.py`). Rows that no plan row names, and those of plan rows with page
        -1, are zero; end <= begin is unused. Ranges lie in [0, entries), their rows in [0, rows), and no two plan
        rows name the same row. Values are code times scale, exact in bf16 but for results below 2^-126, which round
        to nearest even and keep subnormals; codes and scales that stand for NaN give NaN. Other bytes are not read.
        Attention does not need this op, since it reads pages and rings as they are; it serves kernels that want plain
        keys, and tests.""",
    numerics=Exact(),
    cost=lambda d: Cost(
        flops=d["rows"] * d["channels"],
        bytes=16 * d["N"]
        + min(d["rows"], d["P"] * d["entries"]) * d["PB"] // d["entries"]
        + 2 * d["rows"] * d["channels"],
    ),
    samples=samples.load_records,
)


def copy_slots(pool: Tensor, pairs: Tensor) -> None:
    """Copy or clear pages or state slots, as forks, new sequences and snapshots need.

    Args:
        pool: uint8 [P, W], rows may be strided. pairs: i32 [N, 2], (source, target); source -1 clears, target -1 skips.
    """
    COPY_SLOTS.run(pool, pairs)


def ring_move(
    source: Tensor, target: Tensor, source_slot: Tensor, target_slot: Tensor, begin: Tensor, end: Tensor
) -> None:
    """Carry the positions [begin, end) of sequences from rings of one length to rings of another.

    Args:
        source: uint8 [A, L, rec]. target: uint8 [Z, R, rec]. Both may have strided rows; other dtypes are viewed as
            bytes.
        source_slot, target_slot, begin, end: i32 [N].
    """
    RING_MOVE.run(source, target, source_slot, target_slot, begin, end)


def load_records(
    pages: Tensor, plan: Tensor, rows: int, entries: int, channels: int, record: str, *, out: Tensor | None = None
) -> Tensor:
    """Cache entries as plain keys, in the order of a plan.

    Args:
        pages: uint8 [P, PB], rows strided. plan: i32 [N, 4] of (page or -1, first slot, end slot, first row).
        rows: rows of the result. entries: slots of a page. channels: of an entry. record: name of its layout.

    Returns:
        bf16 [rows, channels].

    Raises:
        ContractError: among others, PB is not the size of `entries` records.
    """
    if record in LAYOUTS and pages.ndim == 2:
        want = entries * LAYOUTS[record].record_bytes(channels)
        if pages.shape[1] != want:
            raise LOAD_RECORDS.error(
                f"pages hold {pages.shape[1]} bytes each; {entries} entries of {channels} channels as {record} "
                f"need {want}"
            )
    return LOAD_RECORDS.run(pages, plan, rows, entries, channels, record, out)  # type: ignore[no-any-return]
