"""Launchers of the verification ops."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from . import sampling
from .register import kernel
from .sampling import LogSums, empty_or, scratch
from .sampling_compiles import VOCABULARY, case
from .sampling_logprob_kernels import distribution_part
from .verify_kernels import prefix, verify_finish, verify_race


def _distribution_workspace(logits: Tensor, *_: object) -> int:
    return LogSums(*logits.shape).size


@kernel("draft_distribution", version=0, workspace=_distribution_workspace)
def draft_distribution(
    logits: Tensor, inv_temperature: Tensor, threshold: Tensor, last_id: Tensor, count: Tensor, tokens: Tensor,
    slots: Tensor, pool: Tensor, place: int, out: None, workspace: Tensor | None = None,
) -> None:  # fmt: skip
    rows, width = logits.shape
    if rows == 0:
        return
    sums = LogSums(rows, width)
    ws = scratch(sums.size, logits, workspace)
    stats, parts = sums.run(ws, logits, inv_temperature, threshold, last_id, count)
    distribution_part[(sums.parts, rows)](
        logits, inv_temperature, threshold, last_id, count, tokens, slots, stats, parts, pool, sums.parts,
        pool.stride(0), place * pool.stride(1), sums.tiles, V=width, PARTS=sums.padded, BLOCK=sampling.BLOCK,
        num_warps=8, enable_fp_fusion=False,
    )  # fmt: skip


class _Verify:
    """Scratch of `verify_drafts`: the sums of the rows, and the best of every part."""

    def __init__(self, rows: int, width: int) -> None:
        self.sums = LogSums(rows, width)
        self.best = self.sums.size // 8
        self.size = 8 * (self.best + rows * self.sums.parts)


def _verify_workspace(logits: Tensor, *_: object) -> int:
    return _Verify(*logits.shape).size


@kernel("verify_drafts", version=0, workspace=_verify_workspace)
def verify_drafts(
    logits: Tensor, inv_temperature: Tensor, threshold: Tensor, last_id: Tensor, count: Tensor, max_id: Tensor,
    drafts: Tensor, seeds: Tensor, positions: Tensor, log2q: Tensor | None, draft_row: Tensor | None, shared: bool,
    out: tuple[Tensor, Tensor] | None, workspace: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    rows, width = logits.shape
    if out is None:
        out = (logits.new_empty((rows,), dtype=torch.int32), logits.new_empty((rows,), dtype=torch.bool))
    if rows == 0:
        return out
    at = _Verify(rows, width)
    ws = scratch(at.size, logits, workspace)
    stats, sums = ws, ws
    if not shared:
        stats, sums = at.sums.run(ws, logits, inv_temperature, threshold, last_id, count)
    q_stride = 0 if log2q is None else log2q.stride(0)
    given = (log2q, draft_row, stats, sums, ws[at.best :])
    constants = {"SHARED": shared, "V": width, "PARTS": at.sums.padded, "enable_fp_fusion": False}
    verify_race[(at.sums.parts, rows)](
        logits, inv_temperature, threshold, last_id, count, drafts, seeds, positions, *given, at.sums.parts,
        at.sums.tiles * (sampling.BLOCK // sampling.WARP), q_stride, BLOCK=sampling.WARP, num_warps=1, **constants,
    )  # fmt: skip
    verify_finish[(rows,)](
        logits, inv_temperature, threshold, last_id, count, max_id, drafts, seeds, positions, *given, *out,
        at.sums.parts, q_stride, num_warps=1, **constants,
    )  # fmt: skip
    return out


@kernel("accept_prefix", version=0)
def accept_prefix(
    tokens: Tensor, accepted: Tensor, drafts: Tensor | None, golden: Tensor | None, begin: Tensor, rows: Tensor,
    stop_ids: Tensor | None, width: int, out: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    sequences = begin.shape[0]
    if out is None:
        made = [empty_or(None, begin, (sequences,), torch.int32) for _ in range(3)]
        emitted = empty_or(None, begin, (sequences, width), torch.int32)
        out = (made[0], emitted, made[1], made[2], empty_or(None, begin, (sequences,), torch.bool))
    if sequences:
        prefix[(sequences,)](
            tokens, accepted, drafts, golden, begin, rows, stop_ids, *out, WIDTH=width,
            PADDED=triton.next_power_of_2(width), STOPS=0 if stop_ids is None else stop_ids.shape[1], num_warps=1,
        )  # fmt: skip
    return out


_CONSTANTS = {"V": VOCABULARY, "PARTS": sampling.padded(VOCABULARY)}
COMPILES = [
    case(distribution_part, **_CONSTANTS, BLOCK=sampling.BLOCK),
    *(
        one
        for label, absent, shared in (("", (), False), ("shared", ("log2q", "draft_row"), True),
                                      ("certain", ("log2q", "draft_row"), False))
        for one in (
            case(verify_race, label, absent=absent, **_CONSTANTS, SHARED=shared, BLOCK=sampling.WARP, num_warps=1,
                 types={"sum_ptr": "*i64" if shared else "*fp32"}),
            case(verify_finish, label, absent=absent, num_warps=1, **_CONSTANTS, SHARED=shared,
                 types={"sum_ptr": "*i64" if shared else "*fp32"}),
        )
    ),
    *(
        case(prefix, f"{width} rows", num_warps=1, WIDTH=width, PADDED=triton.next_power_of_2(width), STOPS=4)
        for width in (1, 6)
    ),
]  # fmt: skip
