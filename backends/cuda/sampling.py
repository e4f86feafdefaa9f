"""Launchers of the sampling ops."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from ...hal.registry import Signature
from .register import kernel
from .sampling_adjust_kernels import adjust_listed, copy_masked
from .sampling_compiles import VOCABULARY, case, filters
from .sampling_finish_kernels import row_finish
from .sampling_logprob_kernels import SEGMENT, smaller_finish, smaller_part, token_values, top_values, tree_parts
from .sampling_race_kernels import draw_finish, draw_race
from .sampling_select_kernels import HEAD, SAMPLE, STATS, SUMS, row_bracket, row_gather, row_stats

BLOCK = 2048
WARP = 512
"""Tokens of a tile where a program is one warp."""
SEARCH = 1024
"""Entries of a list that a search looks at in one go."""
CAP = 12288
"""Tokens that a row's bracket may hold; more, and the search reads the whole row."""
PROGRAMS = 4096
"""Programs that a pass over the logits is cut into at least, where the rows are few: 31 warps per multiprocessor, for
kernels whose programs are one warp, which never wait for each other."""


def parts_of(rows: int, width: int) -> tuple[int, int]:
    """Programs per row, and tiles per program."""
    tiles = -(-width // BLOCK)
    most = -(-PROGRAMS // max(rows, 1))
    per_part = -(-tiles // min(most, tiles))
    return -(-tiles // per_part), per_part


def aligned(numbers: int) -> int:
    """A number of int64 that ends on a 128-byte boundary, so that what follows is aligned whatever the rows are."""
    return -(-numbers // 16) * 16


def padded(width: int) -> int:
    """Most parts of a row, as a power of two: the same for any number of rows, so that it needs one binary."""
    return int(triton.next_power_of_2(-(-width // BLOCK)))


def scratch(size: int, like: Tensor, workspace: Tensor | None) -> Tensor:
    """Scratch memory as int64: the caller's, or new."""
    if workspace is None:
        workspace = torch.empty(size, dtype=torch.uint8, device=like.device)
    return workspace[:size].view(torch.int64)


class _Record:
    """Where the scratch of a selection lies: numbers of int64 from the start."""

    def __init__(self, rows: int, width: int) -> None:
        self.parts, self.tiles = parts_of(rows, width)
        self.padded = padded(width)
        self.cap = min(CAP, -(-width // 2) * 2)
        self.head = aligned(rows * self.parts * STATS.value)
        self.sums = self.head + aligned(rows * HEAD.value)
        self.lists = self.sums + aligned(rows * self.parts * SUMS.value)
        self.size = 8 * (self.lists + aligned(rows * self.cap // 2 * 3))


def select(
    ws: Tensor, at: _Record, logits: Tensor, inverse: Tensor | None, top_k: Tensor | None, top_p: Tensor | None,
    min_p: Tensor | None, force: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Everything up to the search: head, sums and list of every row."""
    rows, width = logits.shape
    stats, head, sums = ws, ws[at.head :], ws[at.sums :]
    lists = ws[at.lists :].view(torch.int32)
    filters = (top_k, top_p, min_p)
    row_stats[(at.parts, rows)](
        logits, inverse, stats, at.tiles, V=width, WEIGH=top_p is not None, BLOCK=BLOCK, num_warps=8,
        enable_fp_fusion=False,
    )  # fmt: skip
    row_bracket[(rows,)](
        logits, inverse, *filters, stats, head, at.parts, force, V=width, FORCED=force > 0, PARTS=at.padded,
        SMALL=width <= at.cap, SAMPLE=SAMPLE.value, num_warps=8, enable_fp_fusion=False,
    )  # fmt: skip
    row_gather[(at.parts, rows)](
        logits, inverse, *filters, head, sums, lists, at.tiles * (BLOCK // WARP), width, force, V=width,
        FORCED=force > 0, CAP=at.cap, LANES=WARP // 4, num_warps=1, enable_fp_fusion=False,
    )  # fmt: skip
    return head, sums, lists


def _filter_workspace(logits: Tensor, *_: object) -> int:
    return _Record(*logits.shape).size


@kernel("sample_filter", version=0, workspace=_filter_workspace)
def sample_filter(
    logits: Tensor, inv_temperature: Tensor, top_k: Tensor | None, top_p: Tensor | None, min_p: Tensor | None,
    force_top_k: int, out: tuple[Tensor, ...] | None, workspace: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    rows, width = logits.shape
    if out is None:
        out = tuple(logits.new_empty((rows,), dtype=kind) for kind in _FILTER_DTYPES)
    if rows == 0:
        return out
    at = _Record(rows, width)
    ws = scratch(at.size, logits, workspace)
    force = max(0, min(force_top_k, width))
    head, sums, lists = select(ws, at, logits, inv_temperature, top_k, top_p, min_p, force)
    row_finish[(rows,)](
        logits, inv_temperature, top_k, top_p, min_p, head, sums, lists, *out, at.parts, force, V=width,
        FORCED=force > 0, CAP=at.cap, PARTS=at.padded, BLOCK=SEARCH, num_warps=8, enable_fp_fusion=False,
    )  # fmt: skip
    return out


_FILTER_DTYPES = (torch.float32, torch.int32, torch.float32, torch.int32, torch.int32, torch.int64)


def empty_or(out: Tensor | None, like: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The caller's output, or a new one."""
    return torch.empty(shape, dtype=dtype, device=like.device) if out is None else out


@kernel("adjust_logits", version=0)
def adjust_logits(
    logits: Tensor, penalties: Tensor | None, stat_offsets: Tensor | None, stat_ids: Tensor | None,
    stat_counts: Tensor | None, bias_offsets: Tensor | None, bias_ids: Tensor | None, bias_values: Tensor | None,
    bitmask: Tensor | None, out: Tensor | None,
) -> Tensor:  # fmt: skip
    rows, width = logits.shape
    out = empty_or(out, logits, (rows, width), torch.float32)
    if rows == 0:
        return out
    # A token is banned while it is copied; penalties and biases then leave alone what is banned, so one pass is enough.
    copy_masked[(-(-width // BLOCK), rows)](
        logits, bitmask, out, V=width, BLOCK=BLOCK, num_warps=8, enable_fp_fusion=False
    )
    if penalties is not None or bias_offsets is not None:
        adjust_listed[(rows,)](
            penalties, stat_offsets, stat_ids, stat_counts, bias_offsets, bias_ids, bias_values, bitmask, out, V=width,
            BLOCK=256, num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
    return out


def _draw_workspace(logits: Tensor, *_: object) -> int:
    return 8 * logits.shape[0] * parts_of(*logits.shape)[0]


@kernel("sample_draw", version=0, workspace=_draw_workspace)
def sample_draw(
    logits: Tensor, inv_temperature: Tensor, threshold: Tensor, last_id: Tensor, count: Tensor, max_id: Tensor,
    seeds: Tensor, positions: Tensor, purpose: int, out: Tensor | None, workspace: Tensor | None = None,
) -> Tensor:  # fmt: skip
    rows, width = logits.shape
    out = empty_or(out, logits, (rows,), torch.int32)
    if rows == 0:
        return out
    parts, tiles = parts_of(rows, width)
    best = scratch(8 * rows * parts, logits, workspace)
    draw_race[(parts, rows)](
        logits, inv_temperature, threshold, last_id, count, seeds, positions, best, int(purpose),
        tiles * (BLOCK // WARP), V=width, BLOCK=WARP, num_warps=1, enable_fp_fusion=False,
    )  # fmt: skip
    draw_finish[(rows,)](count, max_id, best, out, parts, PARTS=padded(width), num_warps=1)
    return out


class LogSums:
    """Scratch and launches of what log-probabilities need: largest logits and sums of rows."""

    def __init__(self, rows: int, width: int) -> None:
        self.rows, self.width = rows, width
        self.parts, self.tiles = parts_of(rows, width)
        self.padded = padded(width)
        self.segments = -(-width // SEGMENT.value)
        self.sums = aligned(rows * self.parts * STATS.value)
        self.size = 8 * (self.sums + aligned(-(-rows * self.segments // 2)))

    def run(
        self, ws: Tensor, logits: Tensor, inverse: Tensor | None, threshold: Tensor | None, last_id: Tensor | None,
        count: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Statistics and sums of segments; with `count`, sums only of rows that keep more than one token."""
        sums = ws[self.sums :].view(torch.float32)
        row_stats[(self.parts, self.rows)](
            logits, inverse, ws, self.tiles, V=self.width, WEIGH=False, BLOCK=BLOCK, num_warps=8,
            enable_fp_fusion=False,
        )  # fmt: skip
        tree_parts[(self.segments, self.rows)](
            logits, inverse, threshold, last_id, ws, count, sums, self.parts, V=self.width, PARTS=self.padded,
            num_warps=8, enable_fp_fusion=False,
        )  # fmt: skip
        return ws, sums


def _logprob_workspace(logits: Tensor, *_: object) -> int:
    return LogSums(*logits.shape).size


@kernel("token_logprobs", version=0, workspace=_logprob_workspace)
def token_logprobs(
    logits: Tensor, tokens: Tensor, inv_temperature: Tensor | None, threshold: Tensor | None, last_id: Tensor | None,
    out: Tensor | None, workspace: Tensor | None = None,
) -> Tensor:  # fmt: skip
    rows, width = logits.shape
    out = empty_or(out, logits, (rows,), torch.float32)
    if rows == 0:
        return out
    sums = LogSums(rows, width)
    ws = scratch(sums.size, logits, workspace)
    stats, parts = sums.run(ws, logits, inv_temperature, threshold, last_id)
    token_values[(rows,)](
        logits, tokens, inv_temperature, threshold, last_id, stats, parts, out, sums.parts, V=width,
        PARTS=sums.padded, num_warps=1, enable_fp_fusion=False,
    )  # fmt: skip
    return out


def _smaller_workspace(logits: Tensor, *_: object) -> int:
    return 8 * logits.shape[0] * parts_of(*logits.shape)[0]


@kernel("smaller_mass", version=0, workspace=_smaller_workspace)
def smaller_mass(
    logits: Tensor, inv_temperature: Tensor, max_logit: Tensor, threshold: Tensor, last_id: Tensor, tokens: Tensor,
    out: Tensor | None, workspace: Tensor | None = None,
) -> Tensor:  # fmt: skip
    rows, width = logits.shape
    out = empty_or(out, logits, (rows,), torch.int64)
    if rows == 0:
        return out
    parts, tiles = parts_of(rows, width)
    ws = scratch(8 * rows * parts, logits, workspace)
    smaller_part[(parts, rows)](
        logits, inv_temperature, max_logit, threshold, last_id, tokens, ws, tiles, V=width, BLOCK=BLOCK, num_warps=8,
        enable_fp_fusion=False,
    )  # fmt: skip
    smaller_finish[(rows,)](ws, out, parts, PARTS=padded(width), num_warps=1)
    return out


MOST_LISTED = 1024


class _Tops:
    """Scratch of `top_logprobs`: of the sums, of the selection, and the tokens picked."""

    def __init__(self, rows: int, width: int, k: int) -> None:
        self.sums, self.record = LogSums(rows, width), _Record(rows, width)
        self.k = min(k, width)
        self.picked = triton.next_power_of_2(max(k, 16))
        self.selection = self.sums.size // 8
        self.list = self.selection + self.record.size // 8
        self.size = 8 * (self.list + rows * self.picked)


def _tops_workspace(logits: Tensor, _a: object, _b: object, _c: object, k: int) -> int:
    return _Tops(*logits.shape, k).size if k else 0


def _short(signature: Signature) -> str | None:
    k = signature.scalars["k"]
    return None if 0 <= k <= MOST_LISTED else f"k up to {MOST_LISTED}, got {k}"


@kernel("top_logprobs", version=0, workspace=_tops_workspace, supports=_short)
def top_logprobs(
    logits: Tensor, inv_temperature: Tensor | None, threshold: Tensor | None, last_id: Tensor | None, k: int,
    out: tuple[Tensor, Tensor] | None, workspace: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    rows, width = logits.shape
    if out is None:
        out = (logits.new_empty((rows, k), dtype=torch.int32), logits.new_empty((rows, k)))
    if rows == 0 or k == 0:
        return out
    at = _Tops(rows, width, k)
    ws = scratch(at.size, logits, workspace)
    stats, sums = at.sums.run(ws, logits, inv_temperature, threshold, last_id)
    head, row_sums, lists = select(ws[at.selection :], at.record, logits, None, None, None, None, at.k)
    top_values[(rows,)](
        logits, inv_temperature, threshold, last_id, stats, head, row_sums, lists, ws[at.list :], sums, *out,
        at.record.parts, at.k, K=k, V=width, CAP=at.record.cap, PARTS=at.record.padded, PICKED=at.picked,
        BLOCK=SEARCH, num_warps=8, enable_fp_fusion=False,
    )  # fmt: skip
    return out


_V = {"V": VOCABULARY}
_PARTS = {"PARTS": padded(VOCABULARY)}
_UNFILTERED = ("threshold", "last")
_RAW = ("inverse", "top_k", "top_p", "min_p")
COMPILES = [
    case(row_stats, "weighed", **_V, WEIGH=True, BLOCK=BLOCK),
    case(row_stats, "", **_V, WEIGH=False, BLOCK=BLOCK),
    case(row_stats, "raw", absent=("inverse",), **_V, WEIGH=False, BLOCK=BLOCK),
    *(
        one
        for label, absent in filters()
        for form, forced in (("", False), (", forced", True))
        for one in (
            case(
                row_bracket, label + form, absent=absent, **_V, **_PARTS, FORCED=forced, SMALL=False,
                SAMPLE=SAMPLE.value, slow=forced,
            ),
            case(
                row_gather, label + form, absent=absent, **_V, FORCED=forced, CAP=CAP, LANES=WARP // 4, num_warps=1,
                slow=forced,
            ),
            case(
                row_finish, label + form, absent=absent, types={"max_ptr": "*fp32"}, **_V, **_PARTS, FORCED=forced,
                CAP=CAP, BLOCK=SEARCH, slow=forced,
            ),
        )
    ),
    case(draw_race, num_warps=1, **_V, BLOCK=WARP),
    case(draw_finish, num_warps=1, **_PARTS),
    case(copy_masked, **_V, BLOCK=BLOCK),
    case(copy_masked, "no mask", absent=("mask",), **_V, BLOCK=BLOCK),
    case(adjust_listed, num_warps=4, **_V, BLOCK=256),
    case(tree_parts, **_V, **_PARTS),
    case(tree_parts, "no count", absent=("count",), **_V, **_PARTS),
    case(tree_parts, "raw", absent=("inverse", *_UNFILTERED, "count"), **_V, **_PARTS),
    case(token_values, num_warps=1, **_V, **_PARTS),
    case(token_values, "raw", absent=("inverse", *_UNFILTERED), num_warps=1, **_V, **_PARTS),
    case(smaller_part, types={"part_ptr": "*i64"}, **_V, BLOCK=BLOCK),
    case(smaller_finish, types={"out_ptr": "*i64"}, num_warps=1, **_PARTS),
    case(
        row_bracket, "list", absent=_RAW, **_V, **_PARTS, FORCED=True, SMALL=False, SAMPLE=SAMPLE.value,
    ),
    case(row_gather, "list", absent=_RAW, num_warps=1, **_V, FORCED=True, CAP=CAP, LANES=WARP // 4),
    *(
        case(
            top_values, f"{label} of {k}", absent=absent, **_V, **_PARTS, K=k, CAP=CAP,
            PICKED=triton.next_power_of_2(k), BLOCK=SEARCH,
        )
        for k in (20,)
        for label, absent in (("list", ()), ("raw list", ("inverse", *_UNFILTERED)))
    ),
]  # fmt: skip
