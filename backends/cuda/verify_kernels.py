"""Kernels of `verify_drafts` and `accept_prefix`."""

from __future__ import annotations

import triton.language as tl

from .jit import jit
from .portable_math import key_value
from .sampling_logprob_kernels import row_log_sum
from .sampling_race_kernels import TARGET, best_of, draft_passes, race_part, residual_part
from .sampling_select_kernels import row_rate, row_top


@jit
def _drafted(draft_row_ptr, row):
    """Row of the proposal's log-probabilities, -1 for a draft that was certain."""
    if draft_row_ptr is None:
        return tl.full((), -1, tl.int64)
    else:
        return tl.load(draft_row_ptr + row).to(tl.int64)


@jit
def verify_race(
    z_ptr, inverse_ptr, threshold_ptr, last_ptr, count_ptr, draft_ptr, seed_ptr, position_ptr, log2q_ptr, draft_row_ptr,
    stats_ptr, sum_ptr, best_ptr, parts, tiles, q_stride: tl.int64,
    SHARED: tl.constexpr, V: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One part of a row's race: plain where there is no draft or the noise is shared, else for a draft that fails the
    test. Grid (parts, rows)."""
    part = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    if tl.load(count_ptr + row) > 1:
        z_row = z_ptr + row * V
        rate = row_rate(inverse_ptr, row)
        threshold = tl.load(threshold_ptr + row)
        last = tl.load(last_ptr + row)
        seed = tl.load(seed_ptr + row)
        position = tl.load(position_ptr + row)
        draft = tl.load(draft_ptr + row)
        out = best_ptr + row * parts + part
        if SHARED or draft < 0:
            purpose = tl.full((), TARGET, tl.int32)
            best = race_part(
                z_row, rate, threshold, last, seed, position, purpose, part * tiles, tiles, V, BLOCK
            )  # fmt: skip
            tl.store(out, best)
        else:
            order, _, _ = row_top(stats_ptr, row, parts, PARTS)
            largest = key_value((order >> 32).to(tl.int32))
            log_sum = row_log_sum(sum_ptr, row, V)
            q_row = _drafted(draft_row_ptr, row)
            if not draft_passes(
                draft,
                z_ptr,
                rate,
                threshold,
                last,
                largest,
                log_sum,
                seed,
                position,
                row,
                log2q_ptr,
                q_row,
                q_stride,
                V,
            ):
                best = residual_part(
                    z_row, rate, threshold, last, largest, log_sum, draft, seed, position, log2q_ptr, q_row, q_stride,
                    part * tiles, tiles, V, BLOCK,
                )  # fmt: skip
                tl.store(out, best)


@jit
def verify_finish(
    z_ptr, inverse_ptr, threshold_ptr, last_ptr, count_ptr, max_id_ptr, draft_ptr, seed_ptr, position_ptr, log2q_ptr,
    draft_row_ptr, stats_ptr, sum_ptr, best_ptr, token_ptr, accepted_ptr, parts, q_stride: tl.int64,
    SHARED: tl.constexpr, V: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Token and decision of a row. Grid (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    count = tl.load(count_ptr + row)
    token = tl.load(max_id_ptr + row)
    draft = tl.load(draft_ptr + row)
    passed = False
    if count > 1:
        if not (SHARED or draft < 0):
            order, _, _ = row_top(stats_ptr, row, parts, PARTS)
            passed = draft_passes(
                draft, z_ptr, row_rate(inverse_ptr, row), tl.load(threshold_ptr + row), tl.load(last_ptr + row),
                key_value((order >> 32).to(tl.int32)), row_log_sum(sum_ptr, row, V), tl.load(seed_ptr + row),
                tl.load(position_ptr + row), row, log2q_ptr, _drafted(draft_row_ptr, row), q_stride, V,
            )  # fmt: skip
        if not passed:
            some, winner = best_of(best_ptr, row, parts, PARTS)
            token = tl.where(some, winner, token)
    same = (draft >= 0) & (token == draft) & (count > 0)
    if not SHARED:
        # A residual draw never gives the draft back as accepted, even where it is the token.
        same = same & ((count <= 1) | passed)
    tl.store(token_ptr + row, tl.where(passed, draft, token))
    tl.store(accepted_ptr + row, (same | passed).to(tl.int1))


@jit
def prefix(
    token_ptr, accepted_ptr, draft_ptr, golden_ptr, begin_ptr, rows_ptr, stop_ptr, count_ptr, emitted_ptr, last_ptr,
    row_ptr, stopped_ptr, WIDTH: tl.constexpr, PADDED: tl.constexpr, STOPS: tl.constexpr,
):  # fmt: skip
    """What one sequence emits. Grid (sequences,)."""
    sequence = tl.program_id(0).to(tl.int64)
    rows = tl.load(rows_ptr + sequence)
    begin = tl.load(begin_ptr + sequence, mask=rows > 0, other=0)
    place = tl.arange(0, PADDED)
    inside = place < rows
    at = begin.to(tl.int64) + place
    token = tl.load(token_ptr + at, mask=inside, other=-1)
    good = tl.load(accepted_ptr + at, mask=inside, other=0) != 0
    if golden_ptr is not None:
        golden = tl.load(golden_ptr + at, mask=inside, other=-1)
        draft = tl.load(draft_ptr + at, mask=inside, other=-1)
        good = tl.where(golden >= 0, golden == draft, good)
        token = tl.where(golden >= 0, golden, token)
    good = good & (place < rows - 1)
    count = tl.min(tl.where(good, PADDED, place), 0)  # the last row of a sequence is never good
    count = tl.where(rows > 0, count, 0)
    emitted = tl.where(inside & (place <= count), token, -1)
    tl.store(count_ptr + sequence, count)
    tl.store(emitted_ptr + sequence * WIDTH + place, emitted, mask=place < WIDTH)
    own = tl.max(tl.where(place == count, emitted, -2147483648), 0)
    tl.store(last_ptr + sequence, own)
    tl.store(row_ptr + sequence, tl.where(rows > 0, begin + count, -1))
    stop = tl.zeros((PADDED,), tl.int32)
    if stop_ptr is not None:
        for j in range(STOPS):
            stop = stop | ((emitted == tl.load(stop_ptr + sequence * STOPS + j)) & (emitted >= 0)).to(tl.int32)
    tl.store(stopped_ptr + sequence, (tl.max(stop, 0) != 0).to(tl.int1))
