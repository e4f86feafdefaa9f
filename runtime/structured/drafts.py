"""Rows and drafts of requests whose output is held to something; what the sampler and the engine call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...hal.errors import InvalidArgumentError
from ..request import Proposal, Request

if TYPE_CHECKING:
    from ..sampler import Row
    from .constraint import Words


def held_rows(rows: Sequence[Row], drafts: Sequence[int]) -> list[Row]:
    """The rows of a step with what may be said in them, up to the first draft that may not be: that row draws.

    So what is said does not depend on whether the drafts behind it were computed.
    """
    request = rows[0].request
    constraint = request.constraint
    if constraint is None:
        return list(rows)
    from ...ops.verify import NO_DRAFT

    masks = constraint.masks(request.output_tokens, drafts)
    kept = [replace(row, mask=mask) for row, mask in zip(rows, masks, strict=False)]
    if len(kept) <= len(drafts):
        kept[-1] = replace(kept[-1], draft=NO_DRAFT, log2q=-1)
    return kept


def why_barred(row: Row, free: Words | None) -> str | None:
    """Why no token may be drawn in a row that is held to something; None where one may.

    Args:
        free: mask of the tokens that the engine may draw; None is all.
    """
    from .constraint import NOTHING_FITS

    if row.mask is None:
        return None
    if not row.mask.any():
        return NOTHING_FITS
    left = row.mask if free is None else row.mask & free
    if not left.any():
        return "so_args['schema'] allows only tokens that DEEPINFER_DECODE_TOKEN_BLACKLIST bars"
    ban, end = row.request.params.first_n_token_no_eos, row.request.eos_id
    if row.num_output_tokens < ban and np.flatnonzero(left).tolist() == [end // 32]:
        if int(left[end // 32]) & 0xFFFFFFFF == 1 << end % 32:
            return f"so_args['schema'] allows nothing but the end, which first_n_token_no_eos = {ban} bars"
    return None


def held_proposal(request: Request) -> Proposal:
    """Drafts of a request without those that may not be said, which cost a row each; or, where all that it may say
    begins with more tokens than that, these: nobody drew them.
    """
    proposal, constraint = request.proposal, request.constraint
    if constraint is None or not request.draft_count():
        return proposal
    output = request.output_tokens
    kept = constraint.allowed(output, proposal.tokens)
    forced = constraint.forced(output, request.max_drafts)
    if len(forced) > kept:
        return Proposal(forced, [1.0] * len(forced), drawn=False)
    if kept == len(proposal.tokens):
        return proposal
    return Proposal(proposal.tokens[:kept], proposal.confidences[:kept], proposal.drawn)


def hold_forks(source: Request, samples: Sequence[Request]) -> None:
    """Samples forked from another request are held to what that is held to, from their own first token on.

    Raises:
        InvalidArgumentError: they are to be held to something else.
    """
    structure = samples[0].params.structure
    if structure is None:
        return
    if source.constraint is None or source.params.structure is None or source.params.structure.key != structure.key:
        raise InvalidArgumentError("so_args", "others than of the request that is forked", "the same, or None")
    for request in samples:
        request.constraint = source.constraint.fresh(structure, request.eos_id, request.params.ignore_eos)
