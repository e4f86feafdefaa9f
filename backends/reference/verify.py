"""Verification of drafts, exactly as `docs/numerics.md`, section 4.8, writes it down."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ...hal.registry import kernel
from ...ops.sampling import NO_TOKEN, Purpose
from ...ops.spec import SPECS
from ...ops.verify import NO_DRAFT
from .common import check_index, finish
from .draft import stored
from .philox import draw_words
from .portable_math import constant, exp2, log2
from .sampling import draw_block, exponentials, in_blocks, log_softmax, pick, uniforms

_NEVER, _ZERO = constant(-torch.inf), constant(0.0)
_LEAST = constant(2.0**-100)
"""Residual probabilities up to this one count as none: what is left is normal, and its logarithm defined."""


@kernel("draft_distribution", version=0, backend="reference")
def draft_distribution(
    logits: Tensor,
    inv_temperature: Tensor,
    threshold: Tensor,
    last_id: Tensor,
    count: Tensor,
    tokens: Tensor,
    slots: Tensor,
    pool: Tensor,
    place: int,
    out: None,
) -> None:
    kept, slot = stored("draft_distribution", slots, pool.shape[0])
    rows = (logits, inv_temperature, threshold, last_id, count, tokens)
    (value,) = in_blocks(_distribution_block, *(t[kept] for t in rows))
    pool[slot, place] = value


def _distribution_block(
    z: Tensor, inv_temperature: Tensor, threshold: Tensor, last_id: Tensor, count: Tensor, tokens: Tensor
) -> tuple[Tensor]:
    value = log_probabilities(z, inv_temperature, threshold, last_id)
    single = count <= 1
    token = check_index("draft_distribution", "tokens", tokens, z.shape[1])
    return (torch.where(single.unsqueeze(1), certain(token, z.shape[1]), value),)


def log_probabilities(z: Tensor, inv_temperature: Tensor, threshold: Tensor, last_id: Tensor) -> Tensor:
    """[R, V] f32 base-2 log-probabilities, -inf outside the kept set."""
    exponent, log_sum = log_softmax(z, inv_temperature, threshold, last_id)
    return exponent - log_sum.unsqueeze(1)


def certain(token: Tensor, width: int) -> Tensor:
    """[R, V] f32: 0 at each row's token, -inf elsewhere."""
    value = torch.full((len(token), width), -torch.inf, device=token.device)
    return value.scatter_(1, token.unsqueeze(1), 0.0)


@kernel("verify_drafts", version=0, backend="reference")
def verify_drafts(
    logits: Tensor,
    inv_temperature: Tensor,
    threshold: Tensor,
    last_id: Tensor,
    count: Tensor,
    max_id: Tensor,
    drafts: Tensor,
    seeds: Tensor,
    positions: Tensor,
    log2q: Tensor | None,
    draft_row: Tensor | None,
    shared: bool,
    out: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    if (log2q is None) != (draft_row is None):
        raise SPECS["verify_drafts"].error("log2q and draft_row must be given together or both be None")
    drafted = drafts != NO_DRAFT
    check_index("verify_drafts", "drafts", drafts[drafted], logits.shape[1])
    rows = (inv_temperature, threshold, last_id, count, max_id, seeds, positions)
    tokens = in_blocks(partial(draw_block, int(Purpose.TARGET)), logits, *rows)[0]
    accepted = drafted & (tokens == drafts) & (count > 0)
    tested = (drafted & (count > 1)).nonzero().squeeze(1)
    if not shared and len(tested) > 0:
        found = in_blocks(partial(_test_block, log2q), *(
            None if t is None else t[tested] for t in (logits, *rows, drafts, draft_row)
        ))  # fmt: skip
        tokens = tokens.index_put((tested,), found[0])
        accepted = accepted.index_put((tested,), found[1])
    return finish((tokens, accepted), out)


def _test_block(
    log2q: Tensor | None,
    z: Tensor,
    inv_temperature: Tensor,
    threshold: Tensor,
    last_id: Tensor,
    count: Tensor,
    max_id: Tensor,
    seeds: Tensor,
    positions: Tensor,
    drafts: Tensor,
    draft_row: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Rows whose target has a choice: the test of the draft, and the residual draw where it fails."""
    width, draft = z.shape[1], drafts.long()
    target = log_probabilities(z, inv_temperature, threshold, last_id)
    proposal = certain(draft, width)
    if log2q is not None and draft_row is not None:
        known = draft_row != -1
        proposal[known] = log2q[check_index("verify_drafts", "draft_row", draft_row[known], log2q.shape[0])]
    own = pick(target, draft)
    ratio = own - pick(proposal, draft)
    uniform = uniforms(draw_words(seeds, positions, int(Purpose.ACCEPTANCE), 1)).squeeze(1)
    accepted = (own > _NEVER) & (exp2(torch.minimum(ratio, _ZERO)) > uniform)
    residual = exp2(target) - exp2(proposal)
    some = residual > _LEAST
    score = log2(torch.where(some, residual, _LEAST))
    score = score - log2(exponentials(seeds, positions, int(Purpose.RESIDUAL), width))
    best, winner = score.masked_fill_(~some, -torch.inf).max(dim=1)
    drawn = torch.where(best > _NEVER, winner.to(torch.int32), max_id)
    return torch.where(accepted, drafts, drawn), accepted


@kernel("accept_prefix", version=0, backend="reference")
def accept_prefix(
    tokens: Tensor,
    accepted: Tensor,
    drafts: Tensor | None,
    golden: Tensor | None,
    begin: Tensor,
    rows: Tensor,
    stop_ids: Tensor | None,
    width: int,
    out: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...]:
    if (drafts is None) != (golden is None):
        raise SPECS["accept_prefix"].error("drafts and golden must be given together or both be None")
    rows = check_index("accept_prefix", "rows", rows, width + 1)
    begin = torch.where(rows > 0, begin, 0).long()
    check_index("accept_prefix", "begin", begin[rows > 0], tokens.shape[0])
    check_index("accept_prefix", "begin + rows", begin + rows, tokens.shape[0] + 1)
    if golden is not None and drafts is not None:
        forced = golden >= 0
        tokens, accepted = torch.where(forced, golden, tokens), torch.where(forced, golden == drafts, accepted)
    place = torch.arange(width, device=tokens.device)
    inside = place < rows.unsqueeze(1)
    row = torch.where(inside, begin.unsqueeze(1) + place, 0)
    own = torch.where(inside, tokens[row] if len(tokens) else -1, -1)
    good = (accepted[row] if len(tokens) else inside) & (place < rows.unsqueeze(1) - 1)
    count = good.long().cumprod(1).sum(1)
    emitted = torch.where(place <= count.unsqueeze(1), own, NO_TOKEN).to(torch.int32)
    last = emitted.gather(1, count.unsqueeze(1)).squeeze(1)
    final = torch.where(rows > 0, begin + count, -1)
    stop = torch.zeros_like(rows, dtype=torch.bool)
    if stop_ids is not None:
        stop = ((emitted.unsqueeze(2) == stop_ids.unsqueeze(1)) & (emitted >= 0).unsqueeze(2)).flatten(1).any(1)
    return finish((count.to(torch.int32), emitted, last, final.to(torch.int32), stop), out)
