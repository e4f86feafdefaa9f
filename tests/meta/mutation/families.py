"""Operators on single families: dispatch, rings, masks, drafts, step metadata, images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deepinfer.ops.spec import OpSpec

from .operator import Run, arguments_changed, as_tuple, finish, has, of, operator, outputs_changed


def _place(spec: OpSpec, name: str) -> int:
    return next(i for i, a in enumerate(spec.args) if a.name == name)


@operator("sends to the next rank", fits=of("moe_dispatch"), checks=())
def wrong_rank(spec: OpSpec, kernel: Run) -> Run:
    def wrong(*args: Any) -> Any:
        found = as_tuple(kernel(*args[:-1], None))
        count = len(spec.outs) - 2  # position and load have no segments
        moved = [t.view(torch.uint8) if t.dtype == torch.float8_e4m3fn else t for t in found[:count]]
        rolled = [t.roll(1, 0).view(like.dtype) for t, like in zip(moved, found, strict=False)]
        return finish((*rolled, *found[count:]), args[-1])

    return wrong


@operator("counts what it sent, not what overflowed", fits=of("moe_dispatch"), checks=())
def overflow_not_reported(spec: OpSpec, kernel: Run) -> Run:
    capacity, returns = _place(spec, "capacity"), _place(spec, "returns")

    def wrong(*args: Any) -> Any:
        found = [t.clone() for t in as_tuple(kernel(*args[:-1], None))]
        most = torch.tensor([args[capacity], args[returns]], dtype=torch.int32)
        found[4] = torch.minimum(found[4], most)
        return finish(tuple(found), args[-1])

    return wrong


@operator("takes the token's own number for the replica", fits=has("replicas"), checks=())
def replicas_ignored(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(replicas=lambda x: x[:, :1].contiguous())(spec, kernel)


@operator("gives a row one ring slot more than there is room for", fits=has("ring", "seq_end"), checks=())
def ring_keeps_too_much(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(seq_end=lambda x: x + 1)(spec, kernel)


@operator("takes ring slots modulo one less", fits=of("ring_move"), checks=())
def wrong_ring_modulo(spec: OpSpec, kernel: Run) -> Run:
    def wrong(source: Tensor, target: Tensor, *rest: Any) -> Any:
        return kernel(source, target[:, : max(1, target.shape[1] - 1)], *rest)

    return wrong


def _reversed_bits(words: Tensor) -> Tensor:
    """The bits of each 32-bit word in the other order."""
    value, turned = words.long() & 0xFFFFFFFF, torch.zeros_like(words, dtype=torch.int64)
    for bit in range(32):
        turned |= ((value >> bit) & 1) << (31 - bit)
    return torch.where(turned >= 1 << 31, turned - (1 << 32), turned).to(torch.int32)


@operator(
    "reads mask words from the most significant bit on", fits=lambda s: has("words")(s) or has("bitmask")(s), checks=()
)
def mask_bits_reversed(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(words=_reversed_bits, bitmask=_reversed_bits)(spec, kernel)


@operator("takes state by row where a map names it", fits=has("remap"), checks=())
def remap_ignored(spec: OpSpec, kernel: Run) -> Run:
    pool = "accepted" if has("accepted")(spec) else "confidence"
    place = _place(spec, pool)

    def wrong(*args: Any) -> Any:
        given = list(args)
        remap = _place(spec, "remap")
        order = torch.arange(args[remap].shape[0], dtype=torch.int32) % max(1, args[place].shape[0])
        given[remap] = torch.where(args[remap] >= 0, order, args[remap])
        return kernel(*given)

    return wrong


@operator("takes the parameters of the request before", fits=of("expand_params", "mask_rows"), checks=())
def wrong_request(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(request=lambda x: (x - 1).clamp(min=0).where(x >= 0, x))(spec, kernel)


@operator("accepts one draft more than it may", fits=of("accept_prefix"), checks=())
def prefix_one_longer(spec: OpSpec, kernel: Run) -> Run:
    return outputs_changed(lambda v: v + 1 if v.dtype == torch.int32 and v.ndim == 1 else None)(spec, kernel)


@operator("goes on behind the first draft that is refused", fits=of("accept_prefix"), checks=())
def refusal_overlooked(spec: OpSpec, kernel: Run) -> Run:
    def change(accepted: Tensor) -> Tensor:
        changed = accepted.clone()
        refused = torch.nonzero(~accepted).flatten()
        changed[refused[::2]] = True
        return changed

    return arguments_changed(accepted=change)(spec, kernel)


@operator("accepts whatever the draft is", fits=of("verify_drafts"), checks=())
def every_draft_accepted(spec: OpSpec, kernel: Run) -> Run:
    def change(value: Tensor) -> Tensor | None:
        return torch.ones_like(value) if value.dtype == torch.bool else None

    return outputs_changed(change)(spec, kernel)


@operator("starts the keys at 0, whatever the window holds", fits=has("valid_start"), checks=())
def valid_start_ignored(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(valid_start=torch.zeros_like)(spec, kernel)


@operator("does not pass over refused drafts in the history", fits=has("skip", "history"), checks=())
def skip_ignored(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(skip=torch.zeros_like)(spec, kernel)


@operator("sees one key more of an image", fits=of("image_attention"), checks=())
def image_reaches_into_the_next(spec: OpSpec, kernel: Run) -> Run:
    keys = _place(spec, "k")

    def wrong(*args: Any) -> Any:
        given = list(args)
        end = _place(spec, "end")
        given[end] = (args[end] + 1).clamp(max=args[keys].shape[0]).to(args[end].dtype)
        return kernel(*given)

    return wrong


@operator("swaps the channels of a pixel", fits=of("image_patches"), checks=())
def channels_in_other_order(spec: OpSpec, kernel: Run) -> Run:
    return outputs_changed(lambda v: v.unflatten(1, (3, -1)).flip(1).flatten(1))(spec, kernel)


@operator("leaves the mark of an image's end as it was", fits=of("scatter_embeds"), checks=())
def marks_forgotten(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(source=lambda x: x.clamp(min=-1))(spec, kernel)
