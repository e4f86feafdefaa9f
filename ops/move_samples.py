"""Samples of the family moves. Unused list entries point nowhere valid; foreign bytes lie between strided rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from .cache_steps import POISON, records
from .layer_samples import ints
from .layouts import FP4_16, FP4_32_INDEX, FP8_32, RecordLayout
from .spec import Sample

Rng = np.random.Generator
NOWHERE = 2**31 - 1


def strided_bytes(rng: Rng, device: torch.device, *shape: int) -> Tensor:
    """Random bytes [rows, ...] with 8 foreign bytes before and 24 behind each row."""
    row = int(np.prod(shape[1:], dtype=np.int64))
    whole = np.full((shape[0], row + 32), POISON, np.uint8)
    whole[:, 8 : 8 + row] = rng.integers(0, 256, (shape[0], row), dtype=np.uint8)
    view: Tensor = torch.from_numpy(whole).to(device)[:, 8 : 8 + row].unflatten(1, shape[1:])
    return view


def copy_slots(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """pool, pairs."""

    def pairs(count: int, slots: int) -> list[list[int]]:
        order = rng.permutation(slots)
        target, rest = order[:count], order[count:]
        source = rng.choice(np.append(rest, -1), count)
        return [[NOWHERE if rng.random() < 0.1 else int(s), int(t)] if s < 0 else [int(s), int(t)]
                for s, t in zip(np.where(source < 0, -1, source), target, strict=True)]  # fmt: skip

    def used(rows: list[list[int]]) -> list[list[int]]:
        """Clear instead of pointing nowhere, and a few unused pairs."""
        rows = [[-1 if s == NOWHERE else s, t] for s, t in rows]
        return [*rows, [NOWHERE, -1], [-1, -1], [0, -1]]

    yield Sample("no pairs", (strided_bytes(rng, device, 4, 40), ints(np.zeros((0, 2)), device)))
    yield Sample("unused pairs only", (strided_bytes(rng, device, 4, 40), ints([[NOWHERE, -1], [-5, -1]], device)))
    yield Sample("cleared only", (strided_bytes(rng, device, 5, 33), ints([[-1, 3], [-1, 0]], device)))
    yield Sample("one source for all", (strided_bytes(rng, device, 5, 64), ints([[2, 0], [2, 1], [2, 4]], device)))
    yield Sample("odd width", (strided_bytes(rng, device, 9, 4099), ints(used(pairs(4, 9)), device)))
    yield Sample("many pairs", (strided_bytes(rng, device, 700, 48), ints(used(pairs(262, 700)), device)))
    yield Sample("real state slots", (strided_bytes(rng, device, 5, 134 * 528 * 4), ints(used(pairs(2, 5)), device)))


def ring_move(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """source, target, source_slot, target_slot, begin, end."""

    def case(label: str, items: int, long: int, short: int, rec: int, slots: int) -> Sample:
        source, target = strided_bytes(rng, device, slots, long, rec), strided_bytes(rng, device, slots + 1, short, rec)
        end = rng.integers(0, 5 * long, items)
        begin = np.maximum(0, end - rng.integers(0, min(long, short) + 1, items))
        into = rng.permutation(slots + 1)[:items]
        unused = rng.random(items) < (0.2 if items > 3 else 0)
        wrong = np.where(unused, NOWHERE, 0)
        return Sample(
            label,
            (
                source,
                target,
                ints(rng.integers(0, slots, items) + wrong, device),
                ints(np.where(unused, -1, into), device),
                ints(begin, device),
                ints(end, device),
            ),
        )

    yield case("no items", 0, 7, 5, 33, 2)
    yield case("long to short", 3, 9, 5, 33, 4)
    yield case("short to long", 3, 5, 9, 33, 4)
    yield case("equal lengths", 5, 6, 6, 16, 6)
    yield case("one slot", 2, 1, 3, 16, 3)
    yield case("many items", 261, 7, 4, 8, 300)
    edges = (strided_bytes(rng, device, 3, 6, 16), strided_bytes(rng, device, 6, 4, 16))
    lists = ([0, 1, 2, 0, 1, 2], [5, 0, 3, 1, 4, 2], [0, 4, 7, 2**31 - 3, 9, 0], [0, 0, 11, 2**31 - 1, 10, 1])
    yield Sample("empty, reversed, whole and last ranges", (*edges, *(ints(x, device) for x in lists)))
    yield case("real rings", 4, 262, 134, 528, 6)


def load_records(rng: Rng, device: torch.device) -> Iterator[Sample]:
    """pages, plan, rows, entries, channels, record."""

    def plan(pages: int, entries: int, count: int, longest: int) -> tuple[list[list[int]], int]:
        """Ranges of random pages, shuffled; some rows are left out, some pieces have no page."""
        rows, pieces = int(rng.integers(0, 3)), []
        for number in range(count):
            begin = int(rng.integers(0, entries))
            end = min(entries, begin + int(rng.integers(0, longest + 1)))
            page = -1 if rng.random() < 0.2 else int(rng.integers(0, pages))
            pieces.append([page, begin, end, rows if end > begin else NOWHERE])
            rows += end - begin + (number % 3 == 0)
        return [pieces[i] for i in rng.permutation(count)], rows

    def case(
        label: str, layout: RecordLayout, entries: int, channels: int, pages: int, count: int, longest: int
    ) -> Sample:
        content = page_bytes(rng, layout, pages, entries, channels)
        view = strided_bytes(rng, device, pages, content.shape[1])
        view.copy_(torch.from_numpy(content))
        rows, total = plan(pages, entries, count, longest)
        return Sample(label, (view, ints(np.array(rows).reshape(-1, 4), device), total, entries, channels, layout.name))

    empty = torch.zeros((2, 4 * 66), dtype=torch.uint8, device=device)
    yield Sample("no rows", (empty, ints(np.zeros((0, 4)), device), 0, 4, 64, "fp8_32"))
    yield Sample("rows of no plan", (empty + POISON, ints([[-1, 0, 2, 1], [0, 3, 3, 9]], device), 5, 4, 64, "fp8_32"))
    for layout in (FP8_32, FP4_16, FP4_32_INDEX):
        yield case(f"ranges, {layout.name}", layout, 64, 96, 5, 7, 20)
    special = np.arange(256, dtype=np.uint8).repeat(33).reshape(256, 33)
    special[:, 32] = np.arange(256)[::-1]
    codes = torch.from_numpy(special.reshape(1, -1)).to(device)
    yield Sample("every code and scale, fp8_32", (codes, ints([[0, 0, 256, 0]], device), 256, 256, 32, "fp8_32"))
    nine = np.arange(256, dtype=np.uint8).repeat(9).reshape(256, 9)
    nine[:, 8] = rng.permutation(256)
    codes = torch.from_numpy(nine.reshape(1, -1)).to(device)
    yield Sample("every code and scale, fp4_16", (codes, ints([[0, 0, 256, 0]], device), 256, 256, 16, "fp4_16"))
    yield case("many rows", FP4_16, 64, 32, 9, 23, 40)
    yield case("real entries", FP4_16, 64, 512, 4, 5, 64)
    yield case("real ring", FP8_32, 134, 512, 3, 4, 128)


def page_bytes(rng: Rng, layout: RecordLayout, pages: int, entries: int, channels: int) -> np.ndarray:
    """Pages full of random records, uint8 [pages, entries * record bytes]."""
    made = records(rng, layout, (pages, entries), channels)
    if layout.interleaved:
        return made.reshape(pages, -1)
    data = layout.data_bytes(channels)
    return np.concatenate((made[..., :data].reshape(pages, -1), made[..., data:].reshape(pages, -1)), axis=1)
