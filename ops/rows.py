"""The rows of every op: what batch invariance is about, as data.

A row's bits may depend on that row alone. `ROWS` says, for every op, which dim counts its rows and how a call over
other rows is made out of a given one: some of the rows, in another order, with padding, beside neighbours that hold
anything. An op without such a form says why. The conformance suite `invariance` runs on this; tests of kernels may as
well.

A new op needs an entry here; `tests/ops/test_rows.py` fails without one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .spec import SPECS, OpSpec, TensorArg

PADDING = -1
"""Stands for a padding row in `Part.rows`."""

Named = dict[str, Any]

_PADDED: Mapping[str, int] = {"row_seq": -1, "visible": 0, "indices": -1, "blocks": -1}
"""Integers of a padding row; any other integer is that of the call's first row, which is valid everywhere."""


@dataclass(frozen=True)
class Fill:
    """What rows that nobody looks at hold: `value` in floats, the NaN codes or the largest ones in bytes."""

    name: str
    value: float

    def into(self, target: Tensor) -> None:
        """Overwrite a tensor of contents; integers wider than a byte and bools stay."""
        nan = self.value != self.value
        if target.dtype == torch.float8_e4m3fn:
            target.view(torch.uint8).fill_(0x7F if nan else 0x7E)
        elif target.dtype == torch.uint8:
            target.fill_(0xFF if nan else 0xFE)
        elif target.dtype.is_floating_point:
            target.fill_(self.value)


FILLS = (Fill("NaN", float("nan")), Fill("infinity", float("inf")), Fill("huge", 3e38))


@dataclass(frozen=True)
class Part:
    """The rows of one call.

    Attributes:
        rows: rows of the given call, PADDING among them.
        poisoned: those of `rows` whose contents are replaced by `fill`; their integers stay.
        fill: contents of poisoned and of padding rows.
    """

    rows: tuple[int, ...]
    poisoned: frozenset[int] = frozenset()
    fill: Fill = FILLS[0]


@dataclass(frozen=True)
class Built:
    """A call over a part: its arguments, and for each entry of `Part.rows` its row in the outputs."""

    args: tuple[Any, ...]
    places: tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """An op whose rows stand alone.

    Attributes:
        dim: the dim that counts them: the first one of the row arguments and of the outputs.
        build: makes the call over a part.
        keep: row arguments of floats that must be valid in every row and are never poisoned.
        usable: the rows of a call whose outputs are specified; None for all.
        carry: what a row leaves in `ring` for the rows after it, of ops that read the state before the step.
        divisible: whether the rows of a sequence may be cut into several calls; None for always.
    """

    dim: str
    build: Callable[[Rows, OpSpec, tuple[Any, ...], Part], Built] = field(default=lambda *a: build_plain(*a))
    keep: tuple[str, ...] = ()
    usable: Callable[[Named], int] | None = None
    carry: Callable[[Named, int], Tensor] | None = None
    divisible: Callable[[Named], bool] | None = None

    def count(self, spec: OpSpec, args: tuple[Any, ...]) -> int:
        """Rows 0 .. count-1 of a call may be asked for."""
        given = named(spec, args)
        if self.usable is not None:
            return self.usable(given)
        return next(int(given[a.name].shape[0]) for a in row_args(self, spec) if given[a.name] is not None)


@dataclass(frozen=True)
class NoRows:
    """An op whose rows do not stand alone, and why."""

    reason: str


def named(spec: OpSpec, args: Sequence[Any]) -> Named:
    """Arguments by name."""
    return {a.name: v for a, v in zip(spec.args, args, strict=True)}


def row_args(rows: Rows, spec: OpSpec) -> list[TensorArg]:
    """The arguments with one entry per row."""
    return [a for a in spec.tensors if a.dims and a.dims[0].text == rows.dim]


def ordered(spec: OpSpec) -> bool:
    """Whether rows belong to sequences: those of one stay consecutive and ascending."""
    return any(a.name == "row_seq" for a in spec.args)


def written(spec: OpSpec) -> list[str]:
    """Names of the arguments that the op writes."""
    return [a.name for a in spec.tensors if a.mutable]


# ---- builders -----------------------------------------------------------------------------------------------------


def build_plain(rows: Rows, spec: OpSpec, args: tuple[Any, ...], part: Part) -> Built:
    """Row arguments by row, everything else as it is; metadata of sequences follows their rows."""
    given = named(spec, args)
    picked = {a.name: _take(rows, a, given[a.name], part) for a in row_args(rows, spec) if given[a.name] is not None}
    made = given | picked
    if ordered(spec):
        made |= _sequences(rows, given, part)
    return Built(tuple(made[a.name] for a in spec.args), tuple(range(len(part.rows))))


def _take(rows: Rows, arg: TensorArg, value: Tensor, part: Part) -> Tensor:
    index = torch.tensor([max(r, 0) for r in part.rows], dtype=torch.int64, device=value.device)
    taken = _select(value, index)
    padding = [i for i, r in enumerate(part.rows) if r == PADDING]
    if arg.name not in rows.keep:
        for i in (*padding, *(i for i, r in enumerate(part.rows) if r in part.poisoned)):
            part.fill.into(taken[i])
    if arg.name in _PADDED and padding:
        taken[padding] = _PADDED[arg.name]
    return taken


def _select(value: Tensor, index: Tensor) -> Tensor:
    """Rows of a tensor of any dtype, copied. A call without rows gives zeros for its padding."""
    if value.shape[0] == 0:
        return torch.zeros((len(index), *value.shape[1:]), dtype=torch.uint8, device=value.device).to(value.dtype)
    if value.dtype == torch.float8_e4m3fn:
        return value.view(torch.uint8)[index].view(value.dtype)
    return value[index]


def _sequences(rows: Rows, given: Named, part: Part) -> Named:
    """Metadata over the sequences that have rows in the part, in order of appearance, and the ring before the part."""
    owner = given["row_seq"].tolist()
    position = positions_of(given).tolist() if "seq_start" in given or "seq_end" in given else []
    begin: dict[int, int] = {}
    spans: dict[int, list[int]] = {}
    for place, row in enumerate(part.rows):
        if row != PADDING and owner[row] >= 0:
            begin.setdefault(owner[row], place)
            spans.setdefault(owner[row], []).append(row)
    for sequence, members in spans.items():
        assert members == list(range(members[0], members[-1] + 1)), f"rows {members} of sequence {sequence}"
    numbers = {sequence: number for number, sequence in enumerate(begin)}
    device = given["row_seq"].device

    def ints(values: Sequence[int]) -> Tensor:
        return torch.tensor(list(values), dtype=torch.int32, device=device)

    made: Named = {"row_seq": ints([-1 if r == PADDING else numbers.get(owner[r], -1) for r in part.rows])}
    chosen = torch.tensor(list(begin), dtype=torch.int64, device=device)
    for name in ("state_slot", "block_table"):
        if given.get(name) is not None:
            made[name] = given[name][chosen]
    if "row_begin" in given:
        made["row_begin"] = ints(list(begin.values()))
    if "seq_start" in given:
        made["seq_start"] = ints([position[members[0]] for members in spans.values()])
    if "seq_end" in given:
        made["seq_end"] = ints([position[members[-1]] + 1 for members in spans.values()])
    if rows.carry is not None:
        made["ring"] = _carried(rows.carry, given, spans)
    return made


def positions_of(given: Named) -> Tensor:
    """int64 [T]: the position of every row; anything on padding rows."""
    if "positions" in given:
        return torch.as_tensor(given["positions"]).long()
    sequence = given["row_seq"].clamp(min=0).long()
    if given["seq_start"].numel() == 0:
        return torch.zeros_like(sequence)
    place = torch.arange(len(sequence), device=sequence.device)
    found: Tensor = given["seq_start"].long()[sequence] + place - given["row_begin"].long()[sequence]
    return found


def _carried(carry: Callable[[Named, int], Tensor], given: Named, spans: Mapping[int, Sequence[int]]) -> Tensor:
    """The ring as the rows before each sequence's first row in the part leave it."""
    ring = restride(given["ring"])
    owner, position, slot = given["row_seq"].tolist(), positions_of(given).tolist(), given["state_slot"].tolist()
    for sequence, members in spans.items():
        for row in range(owner.index(sequence), members[0]):
            ring[slot[sequence], position[row] % ring.shape[1]] = carry(given, row)
    return ring


def restride(value: Tensor) -> Tensor:
    """A copy with the same strides and the same foreign bytes between the rows."""
    if value.is_contiguous() or not value.numel():
        return value.clone()
    size = sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) + 1
    storage = value.as_strided((size,), (1,)).clone()
    return storage.as_strided(value.shape, value.stride())


def _build_grouped(rows: Rows, spec: OpSpec, args: tuple[Any, ...], part: Part) -> Built:
    """Packed rows stay with their expert, in the order asked for; padding becomes the unused tail."""
    given = named(spec, args)
    offsets, source = given["offsets"], given["source_row"]
    bounds = offsets.tolist()
    expert = [next(e for e in range(len(bounds) - 1) if bounds[e] <= r < bounds[e + 1]) if r >= 0 else len(bounds)
              for r in part.rows]  # fmt: skip
    order = sorted(range(len(part.rows)), key=lambda i: expert[i])
    counts = [expert.count(e) for e in range(len(bounds) - 1)]
    packed = Part(tuple(part.rows[i] for i in order), part.poisoned, part.fill)
    # One row of x per packed row, so that a neighbour can be poisoned even where both come from one token.
    origin = packed if source is None else Part(
        tuple(r if r == PADDING else int(source[r]) for r in packed.rows),
        frozenset(),
        part.fill,
    )  # fmt: skip
    made: Named = {}
    for arg in spec.tensors[:2]:
        made[arg.name] = _take(rows, arg, given[arg.name], origin)
        if source is not None:
            for i, row in enumerate(packed.rows):
                if row in part.poisoned:
                    part.fill.into(made[arg.name][i])
    if source is not None:
        # Reversed, so that the gather has something to do.
        made = {name: _select(x, torch.arange(len(order) - 1, -1, -1, device=x.device)) for name, x in made.items()}
        back = [-1 if r == PADDING else len(order) - 1 - i for i, r in enumerate(packed.rows)]
        made["source_row"] = torch.tensor(back, dtype=torch.int32, device=offsets.device)
    total = torch.tensor([0, *counts]).cumsum(0)
    made["offsets"] = total.to(torch.int32).to(offsets.device)
    places = [0] * len(order)
    for place, i in enumerate(order):
        places[i] = place
    return Built(tuple((given | made)[a.name] for a in spec.args), tuple(places))


def _build_combine(rows: Rows, spec: OpSpec, args: tuple[Any, ...], part: Part) -> Built:
    """As plain; rows of y that only poisoned rows name are poisoned, and those that nobody names."""
    built = build_plain(rows, spec, args, part)
    y, position, shared = built.args
    kept = [i for i, r in enumerate(part.rows) if r != PADDING and r not in part.poisoned]
    position = position.clone()
    position[[i for i, r in enumerate(part.rows) if r == PADDING]] = -1
    read = position[kept].flatten().long()
    unread = torch.ones(y.shape[0], dtype=torch.bool, device=y.device)
    unread[read[read >= 0]] = False
    y = y.clone()
    y[unread] = part.fill.value
    return Built((y, position, shared), built.places)


def _build_ragged(rows: Rows, spec: OpSpec, args: tuple[Any, ...], part: Part) -> Built:
    """As plain, with ragged lists rebuilt: `X_offsets` [L+1] and the `X_*` arguments over the entries."""
    built = build_plain(rows, spec, args, part)
    made = named(spec, built.args)
    given = named(spec, args)
    for group, lists in (("stat", ("stat_ids", "stat_counts")), ("bias", ("bias_ids", "bias_values"))):
        offsets = given[f"{group}_offsets"]
        if offsets is None:
            continue
        bounds = offsets.tolist()
        entries: list[int] = []
        total = [0]
        for row in part.rows:
            if row != PADDING:
                entries += range(bounds[row], bounds[row + 1])
            total.append(len(entries))
        made[f"{group}_offsets"] = torch.tensor(total, dtype=torch.int32, device=offsets.device)
        index = torch.tensor(entries, dtype=torch.int64, device=offsets.device)
        made |= {name: given[name][index] for name in lists}
    return Built(tuple(made[a.name] for a in spec.args), built.places)


# ---- where the same call may keep its caches elsewhere -------------------------------------------------------------


@dataclass(frozen=True)
class Moved:
    """A call whose pages or state slots lie elsewhere.

    Attributes:
        args: the arguments.
        name: the argument that holds them.
        old, new: int64, ids before and after, of those that the call may touch.
    """

    args: tuple[Any, ...]
    name: str
    old: Tensor
    new: Tensor


POOLS = (("pages", "block_table"), ("ring", "state_slot"))
"""Pools, and the argument that names entries of them."""


def move_pool(spec: OpSpec, args: tuple[Any, ...], pool: str, table: str, order: Sequence[int], fill: int) -> Moved:
    """The same call with other ids: entries of the pool at shuffled places of a larger one, every other byte `fill`.

    Args:
        pool, table: one of POOLS.
        order: a permutation of range(n), n at least the entries of the pool: entry i goes to order[i].
        fill: byte in entries that no id names, and between rows.
    """
    given = named(spec, args)
    old_pool, ids = given[pool], given[table]
    place = torch.tensor(list(order), dtype=torch.int64, device=ids.device)
    old = ids[ids >= 0].unique().long()
    row = old_pool[0].numel() if old_pool.shape[0] else 0
    unit = old_pool.element_size()
    raw = torch.full((len(order), (row + 32) * unit), fill, dtype=torch.uint8, device=old_pool.device)
    moved = raw.view(old_pool.dtype)[:, 16 : 16 + row].unflatten(1, old_pool.shape[1:])
    moved[place[old]] = old_pool[old]
    table_now = torch.where(ids >= 0, place[ids.clamp(min=0).long()], ids.long()).to(torch.int32)
    made = given | {pool: moved, table: table_now}
    return Moved(tuple(made[a.name] for a in spec.args), pool, old, place[old])


def owned(given: Named, pool: str, sequences: Sequence[int]) -> Tensor:
    """int64 ids of the pages or slots that belong to some sequences of a call."""
    ids = given[dict(POOLS)[pool]][list(sequences)]
    found: Tensor = ids[ids >= 0].unique().long()
    return found


# ---- the table ----------------------------------------------------------------------------------------------------


def _causal(given: Named) -> bool:
    """Whether no row looks past itself; the rows of a draft block see one another."""
    live = given["row_seq"] >= 0
    return bool((given["last_key"] <= positions_of(given))[live].all())


def _stacked(given: Named, row: int) -> Tensor:
    return torch.stack((given["gate"][row], given["value"][row]))


_LOGIT = Rows("L", keep=("inv_temperature", "threshold", "max_logit", "penalties"))
_TOKEN = Rows("T")

ROWS: dict[str, Rows | NoRows] = {
    "block_select": _TOKEN,
    "compress_pool": Rows("T", carry=_stacked),
    "compressed_store": _TOKEN,
    "compressor_ring_store": _TOKEN,
    "embed_streams": _TOKEN,
    "copy_slots": NoRows("pairs name rows of one pool, which may not meet; the op is exact"),
    "engram_gate": _TOKEN,
    "engram_gather": _TOKEN,
    "engram_hash": _TOKEN,
    "gather_rows": Rows("L"),
    "grouped_linear": Rows("M", build=_build_grouped, usable=lambda given: int(given["offsets"][-1])),
    "hc_coefficients": _TOKEN,
    "hc_collapse": _TOKEN,
    "hc_collapse_norm": _TOKEN,
    "hc_expand": _TOKEN,
    "index_key_store": _TOKEN,
    "index_query_pack": _TOKEN,
    "index_score": _TOKEN,
    "index_score_blocks": _TOKEN,
    "index_topk": _TOKEN,
    "linear_bf16": _TOKEN,
    "linear_fp8": _TOKEN,
    "linear_fp8_grouped": _TOKEN,
    "load_records": NoRows("a plan names stretches of the result; the op is exact"),
    "moe_combine": Rows("T", build=_build_combine),
    "mirror_rows": NoRows("rows are made from lengths, not given; the op is exact"),
    "moe_dispatch": NoRows("a row's place in a segment counts the rows before it; the op is exact"),
    "moe_gate": _TOKEN,
    "moe_pack": NoRows("a packed row's place counts the rows before it; the op is exact, so its bits are stated whole"),
    "moe_return": NoRows("a product's place counts the products before it; the op is exact"),
    "moe_route": _TOKEN,
    "quant_fp8": _TOKEN,
    "replay_rows": NoRows("rows are made from lengths, not given; the op is exact"),
    "ring_move": NoRows("items name slots of two pools; the op is exact"),
    "rms_norm": _TOKEN,
    "rms_norm_quant": _TOKEN,
    "rope": _TOKEN,
    "sparse_attention": Rows("T", carry=lambda given, row: given["fresh"][row], divisible=_causal),
    "step_metadata": NoRows("rows are made from lengths, not given; the op is exact, so its bits are stated whole"),
    "step_tokens": NoRows("a sequence's rows are cut out of lists of tokens; the op is exact"),
    "swiglu_quant": Rows("M"),
    "topk_select": _TOKEN,
    "window_pack": _TOKEN,
    "window_store": _TOKEN,
    "adjust_logits": Rows("L", build=_build_ragged, keep=("penalties",)),
    "sample_filter": _LOGIT,
    "sample_draw": _LOGIT,
    "token_logprobs": _LOGIT,
    "smaller_mass": _LOGIT,
    "top_logprobs": _LOGIT,
    "expand_params": Rows("L"),
    "lookup_candidates": Rows("L"),
    "mask_rows": NoRows("masks find their rows through lists of requests; the op is exact"),
    "draft_tap": _TOKEN,
    "draft_inputs": NoRows("a sequence gives a block of rows; the op is exact, so its bits are stated whole"),
    "draft_logits": Rows("S"),
    "draft_confidence": Rows("S"),
    "draft_store": NoRows("rows go to slots, bit for bit"),
    "correct_q": NoRows("the rows are shared out over all sequences; the op is exact"),
    "correct_k": Rows("R"),
    "draft_distribution": NoRows("rows go to slots; the op is exact, and its arithmetic is that of token_logprobs"),
    "verify_drafts": Rows("L", keep=("inv_temperature", "threshold")),
    "image_patches": _TOKEN,
    "vision_linear": _TOKEN,
    "silu_mul": _TOKEN,
    "image_rope": _TOKEN,
    "image_attention": _TOKEN,
    "merge_patches": Rows("M"),
    "scatter_embeds": _TOKEN,
    "accept_prefix": NoRows("the rows of a sequence give one result; the op is exact"),
}


def rows_of(name: str) -> Rows | NoRows:
    """The entry of an op.

    Raises:
        ContractError: there is none.
    """
    found = ROWS.get(name)
    if found is None:
        raise SPECS[name].error("has no entry in ops/rows.py: say how its rows stand alone, or why they do not")
    return found


__all__ = [
    "FILLS", "PADDING", "POOLS", "ROWS", "Built", "Fill", "Moved", "NoRows", "Part", "Rows", "move_pool", "named",
    "ordered", "owned", "positions_of", "restride", "rows_of", "written",
]  # fmt: skip
