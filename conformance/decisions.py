"""Discrete decisions of a forward: routing and selections. Recorded, replayed, and how clear they were.

Where a key lies near a border, two right implementations decide differently, and everything after differs. A replay
takes another run's decisions, so that what is left are errors of values.

`index_topk` gives no scores but those it chose by. Where all of them are needed it runs as the two ops it stands for
(`in_parts`), whose decision is that of `topk_select`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .. import ops
from ..hal.registry import REGISTRY
from ..ops.rows import named
from ..ops.spec import SPECS
from .oracle.moe import gate_scores
from .trace import OpCall
from .variants import installed

DECIDING = ("moe_route", "topk_select", "block_select")
SELECTING = ("topk_select", "index_topk")
"""Ops whose first result is a selection of entries."""
REPLAY = "conformance replay"
WEIGHT_FLOOR = 1e-20


@dataclass
class Replay:
    """Decisions to take, in order, and the values that they would have been taken by.

    Attributes:
        wanted: op -> results of the recorded calls, in order.
        seen: op -> keys or scores of the calls of this run, in order, on the CPU.
    """

    wanted: dict[str, list[tuple[Tensor, ...]]]
    seen: dict[str, list[Tensor]] = field(default_factory=dict)

    @classmethod
    def of(cls, calls: Sequence[OpCall]) -> Replay:
        """The decisions of a recorded run, or of a part of it."""
        found = {op: [c.results for c in calls if c.op == op] for op in DECIDING}
        found["topk_select"] = [c.results[:1] for c in calls if c.op in SELECTING]
        return cls(found)

    def complete(self) -> Replay:
        """Itself, of a run of a whole model."""
        wanted = self.wanted.values()
        assert all(wanted), f"the model decides by other ops than {', '.join(DECIDING)}: replay those as well"
        return self

    def again(self) -> Replay:
        """The same decisions for another run."""
        return Replay(self.wanted)

    def take(self, op: str, values: Tensor) -> tuple[Tensor, ...]:
        """Note the values of a call; its recorded results, on their device."""
        seen = self.seen.setdefault(op, [])
        assert len(seen) < len(self.wanted[op]), f"more calls of {op} than were recorded"
        found = self.wanted[op][len(seen)]
        seen.append(values.to("cpu", copy=True))
        return tuple(t.to(values.device) for t in found)


@contextmanager
def replaying(replay: Replay) -> Iterator[Replay]:
    """Take recorded decisions in a with block. Logits of routers are those of the kernel that is pinned, or chosen,
    before it; so variants go around a replay."""

    def route(
        x: Tensor, gate: Any, bias: Tensor, bias_vl: Tensor, image: Tensor, k: int, scaling: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        with REGISTRY.unpinned("moe_route", REPLAY):
            logits = ops.moe_route(x, gate, bias, bias_vl, image, k, scaling)[2]
        experts = replay.take("moe_route", gate_keys(logits, bias, bias_vl, image))[1]
        score = gate_scores(logits.cpu()).float().to(logits.device).gather(1, experts.long())
        total = score[:, 0]
        for slot in range(1, k):
            total = total + score[:, slot]
        return score / (total + WEIGHT_FLOOR).unsqueeze(1) * scaling, experts, logits

    def topk(scores: Tensor, visible: Tensor, k: int, blocks: Tensor | None, size: int) -> Any:
        return replay.take("topk_select", scores)[0]

    def block(scores: Tensor, visible: Tensor, size: int, k: int) -> Any:
        return replay.take("block_select", scores)[0]

    functions: dict[str, Callable[..., Any]] = {
        "moe_route": route,
        "topk_select": topk,
        "block_select": block,
        "index_topk": in_parts,
    }
    with installed(functions, REPLAY):
        yield replay


def in_parts(
    query: Tensor,
    head_weight: Tensor,
    pages: Tensor,
    visible: Tensor,
    row_seq: Tensor,
    block_table: Tensor,
    blocks: Tensor | None,
    ratio: int,
    entries: int,
    size: int,
    k: int,
) -> tuple[Tensor, Tensor]:
    """`index_topk` as the ops it stands for. The scores of what was chosen, which no model reads, are NaN."""
    where = (visible, row_seq, block_table, ratio)
    if blocks is None:
        scores = ops.index_score(query, head_weight, pages, *where, entries)
    else:
        scores = ops.index_score_blocks(query, head_weight, pages, blocks, *where, size)
    chosen = ops.topk_select(scores, torch.where(row_seq >= 0, visible, 0), k, blocks, size)
    return chosen, torch.full(chosen.shape, torch.nan, dtype=scores.dtype, device=scores.device)


def gate_keys(logits: Tensor, bias: Tensor, bias_vl: Tensor, image: Tensor) -> Tensor:
    """fp32 [T, E]: what the router chooses by."""
    score = gate_scores(logits.cpu()).float().to(logits.device)
    return score + torch.where(image.unsqueeze(1), bias_vl, bias)


# ---- margins --------------------------------------------------------------------------------------------------------


def margins(call: OpCall) -> Tensor:
    """fp32 [T]: how far each row's decision was from another one; infinite where there was nothing to decide."""
    if call.op == "moe_route":
        return _gap(_route_keys(call), named(SPECS[call.op], call.args)["k"]).cpu()
    given = named(SPECS[call.op], call.args)
    return _MARGINS[call.op](given).cpu()


def _route_keys(call: OpCall) -> Tensor:
    """Keys of a recorded call, whose logits are its last result."""
    given = named(SPECS[call.op], call.args)
    return gate_keys(call.results[2], given["bias"], given["bias_vl"], given["image"])


def _topk_margin(given: dict[str, Any]) -> Tensor:
    return _gap(visible_scores(given), given["k"])


def visible_scores(given: dict[str, Any]) -> Tensor:
    """fp32 [T, N]: the scores that take part in a selection, -infinity elsewhere."""
    scores, visible, blocks = given["scores"].float(), given["visible"], given.get("blocks")
    entry = torch.arange(scores.shape[1], device=scores.device).expand(scores.shape)
    if blocks is not None:
        size = given["block_size"]
        entry = (blocks.unsqueeze(2) * size + torch.arange(size, device=scores.device)).flatten(1)
        entry = torch.where(blocks.repeat_interleave(size, 1) >= 0, entry, 2**31 - 1)
    return torch.where(entry < visible.unsqueeze(1), scores, -torch.inf)


def _block_margin(given: dict[str, Any]) -> Tensor:
    scores, size = visible_scores(given), given["block_size"]
    rows, lanes = scores.shape
    padded = torch.full((rows, -(-lanes // size) * size), -torch.inf, device=scores.device)
    padded[:, :lanes] = scores
    best = padded.unflatten(1, (-1, size)).amax(2)
    last = (given["visible"].clamp(max=lanes) - 1).clamp(min=0).long() // size
    if best.shape[1]:
        best.scatter_(1, last.unsqueeze(1), torch.inf)
    return _gap(best, given["k"])


def _gap(values: Tensor, k: int) -> Tensor:
    """Distance of the k-th largest from the next; infinite where there is no next one."""
    rows, lanes = values.shape
    if lanes <= k:
        return torch.full((rows,), torch.inf)
    top = values.topk(k + 1, dim=1).values
    gap = top[:, k - 1] - top[:, k]
    return torch.where(top[:, k] == -torch.inf, torch.inf, gap)


_MARGINS: dict[str, Callable[[dict[str, Any]], Tensor]] = {
    "topk_select": _topk_margin,
    "block_select": _block_margin,
}


Place = tuple[str, str, int]
"""Op, layer, position of the row in its sequence."""


def changes(
    calls: Sequence[OpCall], seen: dict[str, list[Tensor]], positions: Sequence[Sequence[int]]
) -> dict[Place, float]:
    """rms change of the keys or scores of each decision in a replayed run from the recorded ones.

    Args:
        calls: the recorded run's. seen: what the replay saw, per op and in the same order.
        positions: of the rows of every step.
    """
    squares: dict[Place, list[float]] = {}
    for op in DECIDING:
        recorded = [c for c in calls if c.op == op]
        for call, values in zip(recorded, seen.get(op, []), strict=True):
            given = named(SPECS[op], call.args)
            if op == "moe_route":
                want, got = _route_keys(call), values
            else:
                want, got = visible_scores(given), visible_scores(given | {"scores": values})
            for position, a, b in zip(positions[call.step], want, got, strict=False):
                both = a.isfinite() & b.isfinite()
                squares.setdefault((op, call.layer, position), []).extend((a - b)[both].double().square().tolist())
    return {place: math.sqrt(sum(found) / max(1, len(found))) for place, found in squares.items()}
