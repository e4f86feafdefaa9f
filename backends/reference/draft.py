"""Drafting: taps, rows of the draft pass, bigram correction, confidences, and how rows are shared out."""

from __future__ import annotations

import torch
from torch import Tensor

from ...hal.registry import kernel
from ...ops.draft import CONFIDENCE_CLAMP
from ...ops.spec import WeightHandle
from .common import check_index, finish
from .embed import select_rows
from .portable import sigmoid
from .tiles import matmul


@kernel("draft_tap", version=0, backend="reference")
def draft_tap(x: Tensor, taps: Tensor, place: int, out: None) -> None:
    total = x[:, 0].to(torch.float32, copy=True)
    for stream in x.unbind(1)[1:]:
        total += stream
    taps[:, place] = (total * (1.0 / x.shape[1])).to(torch.bfloat16)


@kernel("draft_inputs", version=0, backend="reference")
def draft_inputs(
    tokens: Tensor,
    base: Tensor,
    accepted: Tensor,
    valid_start: Tensor,
    block: int,
    window: int,
    noise: int,
    out: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...]:
    sequences = tokens.shape[0]
    live = base >= 0
    last = torch.where(live, base + accepted, -1)
    place = torch.arange(block, dtype=torch.int32, device=tokens.device)
    number = torch.arange(sequences, dtype=torch.int32, device=tokens.device)

    def rows(value: Tensor, padding: int) -> Tensor:
        """[S, block] with padding where a sequence does not draft, as [S*block]."""
        return torch.where(live.unsqueeze(1), value.expand(sequences, block), padding).flatten().to(torch.int32)

    ids = torch.where(place == 0, tokens.unsqueeze(1), noise)
    start = torch.where(live, last + 1, 0)
    first = torch.maximum(last - window + 1, valid_start).clamp(min=0)
    draws = torch.where(live, start.long() + 1 + place.long().unsqueeze(1), 0)
    value = (
        rows(ids, -1),
        rows(start.unsqueeze(1) + place, 0),
        rows(number.unsqueeze(1), -1),
        rows(first.unsqueeze(1), 0),
        rows(last.unsqueeze(1) + block, 0),
        start.to(torch.int32),
        number * block,
        draws,
    )
    return finish(value, out)


@kernel("draft_logits", version=0, backend="reference")
def draft_logits(base: Tensor, tokens: Tensor, embed: Tensor, handle: WeightHandle, out: Tensor | None) -> Tensor:
    (weight,) = handle.tensors
    return finish(base + matmul(select_rows(embed, tokens), weight), out)


@kernel("draft_confidence", version=0, backend="reference")
def draft_confidence(
    hidden: Tensor, tokens: Tensor, embed: Tensor, weight: Tensor, inv_temperature: Tensor, out: Tensor | None
) -> Tensor:
    feature = torch.cat((hidden.flatten(0, 1), select_rows(embed, tokens.flatten())), dim=1)
    score = matmul(feature, weight.unsqueeze(0)).view(tokens.shape) * inv_temperature
    return finish(sigmoid(score.clamp(-CONFIDENCE_CLAMP, CONFIDENCE_CLAMP)), out)


@kernel("draft_store", version=0, backend="reference")
def draft_store(
    tokens: Tensor,
    confidence: Tensor,
    stop: Tensor | None,
    slots: Tensor,
    pool_tokens: Tensor,
    pool_confidence: Tensor,
    out: None,
) -> None:
    kept, slot = stored("draft_store", slots, pool_tokens.shape[0])
    value = confidence if stop is None else torch.where(stop.unsqueeze(1), 0.0, confidence)
    pool_tokens[slot], pool_confidence[slot] = tokens[kept], value[kept]


def stored(op: str, slots: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Numbers of the sequences that have a slot, and those slots."""
    kept = (slots != -1).nonzero().squeeze(1)
    return kept, check_index(op, "slots", slots[kept], size)


@kernel("correct_q", version=0, backend="reference")
def correct_q(confidence: Tensor, remap: Tensor, total: int, out: Tensor | None) -> Tensor:
    sequences, drafts = remap.shape[0], confidence.shape[1]
    known = remap >= 0
    check_index("correct_q", "remap", remap[remap != -1], confidence.shape[0])
    chance = confidence.new_zeros((sequences, drafts))
    chance[known] = confidence[remap[known].long()].nan_to_num(0.0).clamp(0.0, 1.0)
    survival = chance[:, :1]
    for j in range(1, drafts):
        survival = torch.cat((survival, survival[:, -1:] * chance[:, j : j + 1]), dim=1)
    order = survival.flatten().sort(descending=True, stable=True).indices
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device)
    chosen = (rank < total - sequences).view(sequences, drafts)
    return finish((1 + chosen.sum(1)).to(torch.int32), out)


@kernel("correct_k", version=0, backend="reference")
def correct_k(base: Tensor, q: Tensor, remap: Tensor, assumed: Tensor, accepted: Tensor, out: Tensor | None) -> Tensor:
    known = remap != -1
    back = torch.zeros_like(base)
    row = check_index("correct_k", "remap", remap[known], accepted.shape[0])
    back[known] = assumed[known] - accepted[row]
    return finish(base + q - back, out)
