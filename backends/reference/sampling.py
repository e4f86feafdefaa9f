"""Reference kernels of the sampling ops. `docs/numerics.md` writes the algorithms out bit by bit.

Rows are independent everywhere. Large batches are walked in blocks of rows, which keeps intermediates in cache and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...hal.registry import kernel
from ...ops.sampling import FALLBACK_ID, LOGPROB_FLOOR, NO_TOKEN
from ...ops.spec import SPECS
from .common import check_index, finish
from .fixed_point import ONE, exponents, kept_mask, key_ids, order_keys, rate, share, vocabulary_sum, weights
from .philox import draw_words
from .portable_math import LN2, constant, exp2, integer, log2, minus_log2_one_minus

INF = float("inf")
# Tokens looked at before a filtered row is sorted whole; rows up to four times as wide are sorted at once.
CANDIDATES = 1024
_BLOCK_ELEMENTS = 1 << 17
_LARGEST_V = constant(1.0 - 2.0**-24)
_V_SCALE = constant(2.0**-33)
_NEVER, _ALWAYS, _ZERO = constant(-INF), constant(INF), constant(0.0)
_SINGLE, _ODD = integer(1), integer(1, torch.int64)
_FLOOR = constant(LOGPROB_FLOOR)
_TINY = constant(2.0**-100)


def in_blocks(
    compute: Callable[..., tuple[Tensor, ...]], logits: Tensor, *per_row: Tensor | None
) -> tuple[Tensor, ...]:
    """Run a row-wise function over blocks of rows."""
    rows, width = logits.shape
    step = max(1, _BLOCK_ELEMENTS // width)
    if rows <= step:
        return compute(logits, *per_row)
    blocks = [slice(begin, begin + step) for begin in range(0, rows, step)]
    parts = [compute(logits[b], *(None if t is None else t[b] for t in per_row)) for b in blocks]
    return tuple(map(torch.cat, zip(*parts, strict=True)))


def pick(x: Tensor, column: Tensor) -> Tensor:
    """x[r, column[r]] for every row r."""
    return x.gather(1, column.unsqueeze(1)).squeeze(1)


@kernel("adjust_logits", version=0, backend="reference")
def adjust_logits(
    logits: Tensor, penalties: Tensor | None, stat_offsets: Tensor | None, stat_ids: Tensor | None,
    stat_counts: Tensor | None, bias_offsets: Tensor | None, bias_ids: Tensor | None, bias_values: Tensor | None,
    bitmask: Tensor | None, out: Tensor | None,
) -> Tensor:  # fmt: skip
    value = logits.clone()
    if penalties is not None:
        if stat_offsets is None or stat_ids is None or stat_counts is None:
            raise SPECS["adjust_logits"].error("penalties need stat_offsets, stat_ids and stat_counts")
        rows, columns = _ragged("stat", stat_offsets, stat_ids, logits.shape[1])
        repetition, inverse, frequency, presence = penalties[rows].unbind(1)
        count = stat_counts[: len(rows)]
        z = value[rows, columns]
        z = torch.where(z > 0, z * inverse, z * repetition)
        z = z - frequency * count.to(torch.float32)
        value[rows, columns] = torch.where(count > 0, z - presence, z)
    if bias_offsets is not None:
        if bias_ids is None or bias_values is None:
            raise SPECS["adjust_logits"].error("bias_offsets need bias_ids and bias_values")
        rows, columns = _ragged("bias", bias_offsets, bias_ids, logits.shape[1])
        bias = bias_values[: len(rows)]
        # A ban is a ban even where the logit is +inf or NaN.
        value[rows, columns] = torch.where(bias == -INF, bias, value[rows, columns] + bias)
    if bitmask is not None:
        bits = (bitmask.unsqueeze(2) >> torch.arange(32, device=bitmask.device, dtype=torch.int32)) & 1
        value.masked_fill_(bits.flatten(1)[:, : logits.shape[1]] == 0, -INF)
    return finish(value, out)


def _ragged(name: str, offsets: Tensor, ids: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Row and column (int64) of every ragged entry; entries past the last offset are left out."""
    check_index("adjust_logits", f"{name}_offsets", offsets, ids.shape[0] + 1)
    lengths = (offsets[1:] - offsets[:-1]).to(torch.int64)
    if int(offsets[0]) != 0 or bool((lengths < 0).any()):
        raise SPECS["adjust_logits"].error(f"{name}_offsets must start at 0 and not descend")
    rows = torch.repeat_interleave(torch.arange(len(lengths), device=ids.device), lengths)
    return rows, check_index("adjust_logits", f"{name}_ids", ids[: len(rows)], width)


@kernel("sample_filter", version=0, backend="reference")
def sample_filter(
    logits: Tensor, inv_temperature: Tensor, top_k: Tensor | None, top_p: Tensor | None, min_p: Tensor | None,
    force_top_k: int, out: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    block = partial(_filter_block, force_top_k)
    return finish(in_blocks(block, logits, inv_temperature, top_k, top_p, min_p), out)


def _filter_block(
    force_top_k: int, z: Tensor, inv_temperature: Tensor, top_k: Tensor | None, top_p: Tensor | None,
    min_p: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    largest, first = z.max(dim=1)
    valid = largest > _NEVER  # false for NaN, which max propagates
    finite = (z > _NEVER).sum(dim=1)
    scale = rate(inv_temperature)
    greedy = scale == _ALWAYS
    some_greedy = bool(greedy.any())
    if some_greedy and bool(greedy.all()):
        count, threshold, last, mass = torch.ones_like(finite), largest, first, torch.full_like(finite, ONE)
    else:
        w = weights(z, largest, scale)
        count, threshold, last, mass = finite, largest.clone(), first.clone(), w.sum(dim=1)
        if some_greedy:
            count, mass = torch.where(greedy, 1, count), torch.where(greedy, ONE, mass)
        if top_k is not None or top_p is not None or min_p is not None or force_top_k > 0:
            limits = _limits(finite, top_k, top_p, min_p, force_top_k)
            work = (limits.active() & valid & ~greedy).nonzero().squeeze(1)
            if len(work) > 0:
                width = max(CANDIDATES, force_top_k)
                found = _prefix(z[work], w[work], limits.rows(work), mass[work], width)
                count = count.index_put((work,), found[0])
                threshold[work], last[work], mass[work] = found[1:]
    everything = count == finite
    threshold = (threshold + _ZERO).masked_fill_(everything, -INF)
    last = last.masked_fill(everything, NO_TOKEN)
    largest = largest + _ZERO
    if not bool(valid.all()):
        invalid = ~valid
        largest.masked_fill_(invalid, -INF)
        threshold.masked_fill_(invalid, INF)
        last.masked_fill_(invalid, NO_TOKEN)
        first = first.masked_fill(invalid, FALLBACK_ID)
        count, mass = count.masked_fill(invalid, 0), mass.masked_fill(invalid, 0)
    return largest, first.to(torch.int32), threshold, last.to(torch.int32), count.to(torch.int32), mass


class _Limits(NamedTuple):
    """What bounds the kept prefix of each row [R] i64, after what is off has been replaced by what never binds."""

    finite: Tensor
    pool: Tensor
    """Tokens that take part: all above -inf, or the forced top-k."""
    most: Tensor
    """Tokens kept at most: top-k within the pool."""
    top_p: Tensor | None
    min_p: Tensor | None

    def active(self) -> Tensor:
        """[R] bool: rows where something may bind."""
        active = self.most < self.finite
        if self.top_p is not None:
            active |= self.top_p < ONE
        if self.min_p is not None:
            active |= self.min_p > 0
        return active

    def rows(self, index: Tensor) -> _Limits:
        """The limits of some rows."""
        return _Limits(*(None if t is None else t[index] for t in self))


def _limits(
    finite: Tensor, top_k: Tensor | None, top_p: Tensor | None, min_p: Tensor | None, force_top_k: int
) -> _Limits:
    pool = finite.clamp(max=force_top_k) if force_top_k > 0 else finite
    most = pool if top_k is None else torch.where(top_k > 0, pool.minimum(top_k), pool)
    return _Limits(finite, pool, most, top_p, None if min_p is None else min_p.clamp(max=ONE))


def _prefix(z: Tensor, w: Tensor, limits: _Limits, total: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Kept prefix of each row in the order (logit descending, id ascending).

    Only the first `width` tokens, at least a forced pool, are sorted; rows that may keep more are sorted whole.

    Returns:
        count [R] i64, logit and id of the last kept token [R] f32 and i64, kept mass [R] i64.
    """
    whole = 4 * width >= z.shape[1]
    keys = order_keys(z)
    keys = keys.sort(dim=1, descending=True).values if whole else keys.topk(width, dim=1).values
    ids = key_ids(keys)
    weight = w.gather(1, ids)
    through = weight.cumsum(dim=1)
    keep = torch.arange(keys.shape[1], device=z.device) < limits.most.unsqueeze(1)
    if limits.top_p is not None:
        forced = limits.pool < limits.finite
        pooled = torch.where(forced, pick(through, (limits.pool - 1).clamp(max=keys.shape[1] - 1)), total)
        keep &= through - weight <= share(pooled, limits.top_p).unsqueeze(1)
    if limits.min_p is not None:
        keep &= weight >= limits.min_p.unsqueeze(1)
    count = keep.to(torch.int64).cumprod(dim=1).sum(dim=1).clamp(min=1)  # a bad top-p or min-p leaves the best token
    last = pick(ids, count - 1)
    result = (count, pick(z, last), last, pick(through, count - 1))
    if not whole and bool((redo := (count == width) & (limits.most > width)).any()):
        rows = redo.nonzero().squeeze(1)
        again = _prefix(z[rows], w[rows], limits.rows(rows), total[rows], z.shape[1])
        for value, new in zip(result, again, strict=True):
            value[rows] = new
    return result


@kernel("sample_draw", version=0, backend="reference")
def sample_draw(
    logits: Tensor, inv_temperature: Tensor, threshold: Tensor, last_id: Tensor, count: Tensor, max_id: Tensor,
    seeds: Tensor, positions: Tensor, purpose: int, out: Tensor | None,
) -> Tensor:  # fmt: skip
    block = partial(draw_block, purpose)
    rows = (inv_temperature, threshold, last_id, count, max_id, seeds, positions)
    return finish(in_blocks(block, logits, *rows)[0], out)


def draw_block(
    purpose: int, z: Tensor, inv_temperature: Tensor, threshold: Tensor, last_id: Tensor, count: Tensor,
    max_id: Tensor, seeds: Tensor, positions: Tensor,
) -> tuple[Tensor]:  # fmt: skip
    race = count > _SINGLE
    if not bool(race.any()):
        return (max_id.clone(),)
    score = z * rate(inv_temperature).unsqueeze(1)
    score.sub_(log2(exponentials(seeds, positions, purpose, z.shape[1])))
    if bool((threshold > _NEVER).any()):
        score.masked_fill_(~kept_mask(z, threshold, last_id), -INF)
    best, winner = score.max(dim=1)
    # All scores overflow to -inf only for logits near the end of the fp32 range: the first maximum then.
    race &= best > _NEVER
    return (torch.where(race, winner.to(torch.int32), max_id),)


def exponentials(seeds: Tensor, positions: Tensor, purpose: int, count: int) -> Tensor:
    """[L, count] f32 exponentials in base 2: E = -log2(1 - v), v = (x + 1/2) / 2**32 with x a random word.

    v is at least 2**-33, so E is positive and normal.
    """
    return minus_log2_one_minus(uniforms(draw_words(seeds, positions, purpose, count)))


def uniforms(words: Tensor) -> Tensor:
    """f32 numbers v = (x + 1/2) / 2**32 of 32-bit words x, at most 1 - 2**-24."""
    # 2x + 1 has 33 bits: one rounding, to nearest even, on conversion; the scale is exact.
    return torch.minimum((words + words).add_(_ODD).to(torch.float32).mul_(_V_SCALE), _LARGEST_V)


@kernel("token_logprobs", version=0, backend="reference")
def token_logprobs(
    logits: Tensor, tokens: Tensor, inv_temperature: Tensor | None, threshold: Tensor | None, last_id: Tensor | None,
    out: Tensor | None,
) -> Tensor:  # fmt: skip
    return finish(in_blocks(_token_block, logits, tokens, inv_temperature, threshold, last_id)[0], out)


def _token_block(
    z: Tensor, tokens: Tensor, inv_temperature: Tensor | None, threshold: Tensor | None, last_id: Tensor | None
) -> tuple[Tensor]:
    exponent, log_sum = log_softmax(z, inv_temperature, threshold, last_id)
    token = tokens.to(torch.int64)
    own = pick(exponent, check_index("token_logprobs", "tokens", token.clamp(min=0), z.shape[1])).masked_fill_(
        token < 0, -INF
    )
    return (_log_probability(own, log_sum),)


def log_softmax(
    z: Tensor, inv_temperature: Tensor | None, threshold: Tensor | None, last_id: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Base-2 exponents [R, V], -inf outside the kept set, and log2 of the sum of their powers [R]."""
    largest = z.max(dim=1).values
    exponent = exponents(z, largest, None if inv_temperature is None else rate(inv_temperature))
    if threshold is not None and last_id is not None and bool((threshold > _NEVER).any()):
        exponent.masked_fill_(~kept_mask(z, threshold, last_id), -INF)
    valid = largest > _NEVER  # false for NaN, which max propagates
    # A filter made of another row says nothing about this one being valid.
    if not bool(valid.all()):
        exponent.masked_fill_(~valid.unsqueeze(1), -INF)
    # A row without a kept token sums to zero; its exponents are all -inf, so any finite logarithm will do.
    return exponent, log2(torch.maximum(vocabulary_sum(exp2(exponent)), _TINY))


def _log_probability(exponent: Tensor, log_sum: Tensor) -> Tensor:
    """Natural log-probability from base-2 exponents, at least the floor."""
    return torch.maximum((exponent - log_sum).mul_(LN2), _FLOOR)


@kernel("smaller_mass", version=0, backend="reference")
def smaller_mass(
    logits: Tensor, inv_temperature: Tensor, max_logit: Tensor, threshold: Tensor, last_id: Tensor, tokens: Tensor,
    out: Tensor | None,
) -> Tensor:  # fmt: skip
    rows = (inv_temperature, max_logit, threshold, last_id, tokens)
    return finish(in_blocks(_smaller_block, logits, *rows)[0], out)


def _smaller_block(
    z: Tensor, inv_temperature: Tensor, max_logit: Tensor, threshold: Tensor, last_id: Tensor, tokens: Tensor
) -> tuple[Tensor]:
    token = tokens.to(torch.int64)
    token_or_first = check_index("smaller_mass", "tokens", token.clamp(min=0), z.shape[1])
    less = (z < pick(z, token_or_first).unsqueeze(1)) & kept_mask(z, threshold, last_id)
    mass = weights(z, max_logit, rate(inv_temperature)).masked_fill_(~less, 0).sum(dim=1)
    return (mass.masked_fill_(token < 0, 0),)


@kernel("top_logprobs", version=0, backend="reference")
def top_logprobs(
    logits: Tensor, inv_temperature: Tensor | None, threshold: Tensor | None, last_id: Tensor | None, k: int,
    out: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    ids, values = in_blocks(partial(_top_block, k), logits, inv_temperature, threshold, last_id)
    return finish((ids, values), out)


def _top_block(
    k: int, z: Tensor, inv_temperature: Tensor | None, threshold: Tensor | None, last_id: Tensor | None
) -> tuple[Tensor, Tensor]:
    exponent, log_sum = log_softmax(z, inv_temperature, threshold, last_id)
    best = key_ids(order_keys(z).topk(min(k, z.shape[1]), dim=1).values)
    # A kept token's exponent may overflow to -inf, so the filter says what is kept.
    chosen = z.gather(1, best)
    kept = z.max(dim=1, keepdim=True).values > _NEVER
    if threshold is None or last_id is None:
        kept = kept & (chosen > _NEVER)
    else:
        edge = threshold.unsqueeze(1)
        kept = kept & ((chosen > edge) | ((chosen == edge) & (best <= last_id.unsqueeze(1))))
    ids = best.to(torch.int32).masked_fill_(~kept, NO_TOKEN)
    values = _log_probability(exponent.gather(1, best), log_sum.unsqueeze(1)).masked_fill_(~kept, LOGPROB_FLOOR)
    missing = (0, k - ids.shape[1])
    return pad(ids, missing, value=NO_TOKEN), pad(values, missing, value=LOGPROB_FLOOR)
