"""Operators on what a kernel reads: wrong pages, slots, positions and lanes, forgotten arguments, wrong orders."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deepinfer.ops.required import TABLES
from deepinfer.ops.rows import POOLS
from deepinfer.ops.spec import OpSpec, ScalarArg, TensorArg

from .operator import Run, arguments_changed, as_tuple, finish, has, of, operator, stores

SCORES = ("index_score", "index_score_blocks")


def shifted(by: int) -> Any:
    """An integer tensor with every entry that is not negative moved."""
    return lambda x: torch.where(x >= 0, x + by, x)


# ---- addresses --------------------------------------------------------------------------------------------------


@operator("takes the page of the next block", fits=has("block_table"), checks=())
def wrong_page(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(block_table=lambda x: x.roll(1, 1))(spec, kernel)


@operator("takes the state of another sequence", fits=has("state_slot"), checks=())
def wrong_slot(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(state_slot=lambda x: x.roll(1, 0))(spec, kernel)


@operator("computes offsets in 32 bits", fits=lambda s: bool(pools_of(s)), suite="far", checks=("far", "error"))
def offset_of_32_bits(spec: OpSpec, kernel: Run) -> Run:
    places = {a.name: i for i, a in enumerate(spec.args)}

    def wrong(*args: Any) -> Any:
        given = list(args)
        for pool, ids in pools_of(spec):
            memory, table = args[places[pool]], args[places[ids]]
            if memory is not None and table is not None and memory.numel():
                reach = max(1, 2**31 // (memory.stride(0) * memory.element_size()))
                given[places[ids]] = torch.where(table >= 0, table % reach, table)
        return kernel(*given)

    return wrong


def pools_of(spec: OpSpec) -> list[tuple[str, str]]:
    """Tensors that may lie beyond 2^31 bytes, each with the argument that holds its ids."""
    names = {a.name for a in spec.args}
    found = [(pool, ids) for pool, ids in POOLS if {pool, ids} <= names]
    if spec.name in TABLES:
        tensors, ids = TABLES[spec.name]
        found.append((tensors[0], ids))
    return found


@operator(
    "treats padding rows as rows of the first sequence",
    fits=has("row_seq"),
    checks=(),
    blind=dict.fromkeys(SCORES, "a padding row sees no entry, so that all its lanes are unspecified"),
)
def padding_takes_part(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(row_seq=lambda x: x.clamp(min=0))(spec, kernel)


@operator(
    "takes padding ids for the first entry",
    fits=lambda s: has("indices")(s) or has("blocks")(s),
    checks=(),
    blind={"index_score_blocks": "the lanes of padding blocks are unspecified"},
)
def padding_ids_take_part(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(indices=lambda x: x.clamp(min=0), blocks=lambda x: x.clamp(min=0))(spec, kernel)


@operator("is one position late", fits=has("positions"), checks=())
def position_off_by_one(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(positions=shifted(1))(spec, kernel)


@operator(
    "reads one lane past the length",
    fits=has("visible"),
    checks=(),
    blind=dict.fromkeys(SCORES, "lanes past the visible ones are unspecified"),
)
def stale_lane_read(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(visible=lambda x: torch.where(x > 0, x + 1, x))(spec, kernel)


@operator("leaves out the last lane", fits=has("visible"), checks=())
def last_lane_left_out(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(visible=lambda x: (x - 1).clamp(min=0))(spec, kernel)


@operator("keys random numbers by the row", fits=has("seeds", "positions"), suite="invariance", checks=())
def random_keyed_by_row(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(positions=lambda x: x + torch.arange(x.shape[0], dtype=x.dtype))(spec, kernel)


# ---- arguments left out -----------------------------------------------------------------------------------------


@operator("leaves out the sink", fits=has("sink"))
def sink_dropped(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(sink=lambda x: torch.full_like(x, -torch.inf))(spec, kernel)


def _argument_operators() -> None:
    """One operator per kind of argument that can be forgotten."""

    def optional(spec: OpSpec) -> list[int]:
        return [i for i, a in enumerate(spec.args) if isinstance(a, TensorArg) and a.optional]

    def scalars(kind: type) -> Any:
        return lambda spec: [
            i for i, a in enumerate(spec.args) if isinstance(a, ScalarArg) and a.type is kind and not a.optional
        ]

    def each(places: Any, change: Any) -> Any:
        def make(spec: OpSpec, kernel: Run) -> Run:
            def wrong(*args: Any) -> Any:
                given = list(args)
                for i in places(spec):
                    given[i] = change(given[i])
                return kernel(*given)

            return wrong

        return make

    for name, about, places, change in (
        ("scalar_ignored", "takes a number of its own for a float", scalars(float), lambda v: 0.5 * v + 0.25),
        ("flag_ignored", "does the opposite of a flag", scalars(bool), lambda v: not v),
    ):
        make = each(places, change)
        make.__name__ = name
        operator(about, fits=lambda s, p=places: bool(p(s)), checks=())(make)  # type: ignore[misc]


_argument_operators()


@operator("treats text rows as image rows", fits=has("image"), checks=())
def image_flag_inverted(spec: OpSpec, kernel: Run) -> Run:
    return arguments_changed(image=lambda x: ~x)(spec, kernel)


# ---- orders -----------------------------------------------------------------------------------------------------


@operator("ties go to the higher id", fits=of("topk_select", "block_select"), checks=("bits",))
def ties_to_the_higher_id(spec: OpSpec, kernel: Run) -> Run:
    def wrong(*args: Any) -> Any:
        given = list(args[:-1])
        scores = given[0]
        # A rise too small to change the order of different values, seen in a wider float.
        bits = scores.float().view(torch.int32)
        same = (bits[:, 1:] == bits[:, :-1]).flatten()
        if not bool(same.any()):
            return kernel(*args)
        found = as_tuple(kernel(*given, None))[0].clone()
        for row in range(found.shape[0]):
            _prefer_last(found[row], scores[row].float(), int(given[1][row]), given)
        return finish((found,), args[-1])

    return wrong


def _prefer_last(ids: Tensor, scores: Tensor, visible: int, args: list[Any]) -> None:
    """Swap the last of the chosen for an equal one behind it that was not."""
    chosen = ids[ids >= 0].tolist()
    if not chosen or len(args) != 5 or args[3] is not None:
        if len(args) == 4 and chosen:
            _prefer_last_block(ids, scores, visible, args)
        return
    rest = [j for j in range(min(visible, scores.numel())) if j not in set(chosen)]
    for j in reversed(rest):
        for c in chosen:
            if j > c and scores[j] == scores[c]:
                ids[: len(chosen)] = torch.tensor(sorted({*chosen, j} - {c}), dtype=ids.dtype)
                return


def _prefer_last_block(ids: Tensor, scores: Tensor, visible: int, args: list[Any]) -> None:
    """The same for blocks; all but the last visible one count by their largest score."""
    size, chosen = args[2], ids[ids >= 0].tolist()
    count = -(-min(visible, scores.numel()) // size)
    best = [float(scores[b * size : min(visible, (b + 1) * size)].max()) for b in range(count)]
    for j in reversed(range(count - 1)):
        for c in chosen:
            if j not in chosen and j > c != count - 1 and best[j] == best[c]:
                ids[: len(chosen)] = torch.tensor(sorted({*chosen, j} - {c}), dtype=ids.dtype)
                return


# Another order of the slots is none of these: a sum in any fixed order lies within the class.
@operator("leaves out the last slot of a row", fits=has("position", "y"))
def last_slot_left_out(spec: OpSpec, kernel: Run) -> Run:
    def change(position: Tensor) -> Tensor:
        changed = position.clone()
        changed[:, -1:] = -1
        return changed

    return arguments_changed(position=change)(spec, kernel)


@operator("rounds the experts' sum to bf16 before it adds the shared expert", fits=has("y", "position", "shared"))
def sum_rounded_between(spec: OpSpec, kernel: Run) -> Run:
    def wrong(y: Tensor, position: Tensor, shared: Tensor, out: Tensor | None) -> Any:
        routed = kernel(y, position, torch.zeros_like(shared), None)
        return finish(((routed.float() + shared.float()).bfloat16(),), out)

    return wrong


@operator("touches the row of an empty group", fits=has("offsets", "source_row"), checks=())
def empty_group_touched(spec: OpSpec, kernel: Run) -> Run:
    place = next(i for i, a in enumerate(spec.args) if a.name == "offsets") if has("offsets")(spec) else 0

    def wrong(*args: Any) -> Any:
        found = tuple(t.clone() for t in as_tuple(kernel(*args[:-1], None)))
        offsets = args[place]
        for group in torch.nonzero(offsets[1:] == offsets[:-1]).flatten().tolist():
            row = int(offsets[group])
            if row < found[0].shape[0]:
                found[0][row] = 0
        return finish(found, args[-1])

    return wrong


# ---- stores -----------------------------------------------------------------------------------------------------


def _stores_rows(spec: OpSpec) -> bool:
    return stores(spec) and has("row_seq")(spec)


@operator("does not store the last row", fits=_stores_rows, checks=())
def last_row_not_stored(spec: OpSpec, kernel: Run) -> Run:
    def change(row_seq: Tensor) -> Tensor:
        live = torch.nonzero(row_seq >= 0).flatten()
        changed = row_seq.clone()
        changed[live[-1:]] = -1
        return changed

    return arguments_changed(row_seq=change)(spec, kernel)


@operator("writes one byte that is not its own", fits=stores, checks=())
def stray_write(spec: OpSpec, kernel: Run) -> Run:
    places = [i for i, a in enumerate(spec.args) if getattr(a, "mutable", False)]

    def wrong(*args: Any) -> Any:
        before = [as_bytes(args[i]).clone() for i in places]
        found = kernel(*args)
        for i, old in zip(places, before, strict=True):
            now = as_bytes(args[i])
            free = torch.nonzero(now == old)
            if len(free):
                place = tuple(free[len(free) // 2].tolist())
                now[place] ^= 0x11
        return found

    return wrong


def as_bytes(x: Tensor) -> Tensor:
    """The bytes of a tensor, a view; its last dim is contiguous."""
    return x.view(torch.uint8)
