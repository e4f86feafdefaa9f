"""Whole sequences, and any cut of them into steps: what a row's result must not depend on, varied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import deepinfer.backends.reference.attention
import deepinfer.backends.reference.index
import deepinfer.backends.reference.kv  # noqa: F401 - registers the kernels
from deepinfer.ops import attention, cache_steps, index
from deepinfer.ops.layouts import FP4_32_INDEX, FP8_32, LAYOUTS, RecordLayout, entries_per_page

CPU = torch.device("cpu")
Place = tuple["Story", int, int]
"""A sequence and the positions [start, end) of it that a step computes."""


class Story:
    """One sequence from its first token to its last: every query, record, entry and selection."""

    def __init__(
        self,
        seed: int,
        length: int,
        *,
        heads: int = 4,
        d: int = 32,
        ratio: int = 1,
        k: int = 16,
        record: str = "fp4_16",
        index_heads: int = 4,
        di: int = 32,
    ) -> None:
        rng = np.random.default_rng(seed)
        whole = cache_steps.make_step(rng, CPU, [(0, length)])
        entries = (length // ratio,)
        self.ratio, self.record, self.d, self.k, self.di = ratio, record, d, k, di
        self.q = cache_steps.normal(rng, CPU, length, heads, d)
        self.window = cache_steps.records(rng, FP8_32, (length,), d)
        self.entries = cache_steps.records(rng, LAYOUTS[record], entries, d)
        self.indices = cache_steps.selection(rng, whole, max(k, 1), ratio)
        self.queries = torch.from_numpy(cache_steps.records(rng, FP4_32_INDEX, (length, index_heads), di))
        self.head_weight = cache_steps.normal(rng, CPU, length, index_heads)
        self.keys = cache_steps.records(rng, FP4_32_INDEX, entries, di)
        self.sink = torch.linspace(-1, 1, heads)


class Stage:
    """The arguments of one step over some places, with every unasked byte set to `poison`."""

    def __init__(self, places: Sequence[Place], *, poison: int = 0xFF, padding: int = 0, seed: int = 0) -> None:
        self.places, self.poison = places, poison
        self.step = cache_steps.make_step(np.random.default_rng(seed), CPU, [p[1:] for p in places], padding)
        self.first = places[0][0]

    def rows(self, name: str, fill: Any) -> torch.Tensor:
        """A per-token attribute of the stories, gathered into the step's rows; padding rows hold `fill`."""
        parts = [torch.as_tensor(getattr(story, name)[start:end]) for story, start, end in self.places]
        joined = torch.cat(parts)
        padded = torch.full((self.step.rows, *joined.shape[1:]), fill, dtype=joined.dtype)
        padded[: len(joined)] = joined
        return padded

    def ring(self, slots: int) -> torch.Tensor:
        """Window rings as they are before the step."""
        ring = torch.full((self.step.slots, slots, FP8_32.record_bytes(self.first.d)), self.poison, dtype=torch.uint8)
        for s, (story, start, _) in enumerate(self.places):
            past = np.arange(max(0, start - slots), start)
            ring[int(self.step.state_slot[s]), past % slots] = torch.from_numpy(story.window[past])
        return ring

    def pages(self, name: str, layout: RecordLayout, channels: int, stride: int | None = None) -> torch.Tensor:
        """One owner's section of the pages, holding the entries that are complete after the step."""
        ratio = self.first.ratio
        width, per_page = layout.page_bytes(channels, ratio), entries_per_page(ratio)
        whole = torch.full((self.step.pages, stride or width + 64), self.poison, dtype=torch.uint8)
        section = whole[:, 32 : 32 + width]
        data = layout.data_bytes(channels)
        for s, (story, _, end) in enumerate(self.places):
            for j in range(end // ratio):
                page = section[int(self.step.block_table[s, j // per_page])]
                record = torch.from_numpy(getattr(story, name)[j])
                at = layout.data_offset(j % per_page, channels, ratio)
                page[at : at + data] = record[:data]
                at = layout.scale_offset(j % per_page, channels, ratio)
                page[at : at + len(record) - data] = record[data:]
        return section

    def attention(self, window: int, **changes: Any) -> torch.Tensor:
        """Run sparse_attention; `changes` replace arguments by name."""
        step, story = self.step, self.first
        names: dict[str, Any] = {
            "q": self.rows("q", torch.nan),
            "fresh": self.rows("window", self.poison),
            "ring": self.ring(window + 6),
            "sink": story.sink,
            "first_key": torch.zeros_like(step.positions),
            "last_key": step.positions,
            "row_seq": step.row_seq,
            "seq_start": step.seq_start,
            "row_begin": step.row_begin,
            "state_slot": step.state_slot,
            "pages": None,
            "block_table": None,
            "indices": None,
            "window": window,
            "ratio": story.ratio,
            "scale": story.d**-0.5,
            "record": story.record,
        }
        if story.k:
            names["pages"] = self.pages("entries", LAYOUTS[story.record], story.d)
            names |= {"block_table": step.block_table, "indices": self.rows("indices", -1)}
        return attention.sparse_attention(**(names | changes))

    def scores(self, entries: int | None = None, **changes: Any) -> torch.Tensor:
        """Run index_score; lanes that are not visible are set to -infinity."""
        step, story = self.step, self.first
        visible = step.visible(story.ratio)
        names: dict[str, Any] = {
            "query": self.rows("queries", self.poison),
            "head_weight": self.rows("head_weight", torch.nan),
            "pages": self.pages("keys", FP4_32_INDEX, story.di),
            "visible": visible,
            "row_seq": step.row_seq,
            "block_table": step.block_table,
            "ratio": story.ratio,
            "entries": int(visible.max()) if entries is None else entries,
        }
        scores = index.index_score(**(names | changes))
        lane = torch.arange(scores.shape[1])
        return torch.where(lane < visible[:, None], scores, -torch.inf)

    def by_row(self, result: torch.Tensor) -> dict[tuple[int, int], torch.Tensor]:
        """(place number, position) -> that row of a result."""
        rows = iter(result)
        return {(s, p): next(rows) for s, (_, start, end) in enumerate(self.places) for p in range(start, end)}


def bits(x: torch.Tensor) -> torch.Tensor:
    """The bit pattern of a tensor, so that NaN compares equal to itself and -0.0 differs from 0.0."""
    return x.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()])


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in dtype, shape and every bit."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))
