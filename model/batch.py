"""One step's input: rows of several sequences side by side, built on the host with numpy.

Rows of one sequence are consecutive and ascending. Prompt chunks, single decode tokens and rows whose logits nobody
wants differ in nothing but their numbers; a row's result depends on that row's sequence alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from ..hal import errors
from ..ops import layouts
from .config import TextConfig
from .vision.spans import ImageRows, ImageSpan, image_rows

IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class SequenceSlice:
    """The rows that one sequence contributes to a step.

    Attributes:
        tokens: int32, the sequence's token ids, at least [0, end).
        start, end: positions computed in this step; everything before `start` is in the caches.
        state_slot: the sequence's state slot.
        pages: page ids in order; they cover positions [0, end).
        logits: positions in [start, end) whose logits are wanted, ascending.
        valid_start: first position whose window keys may be seen: above 0 after a restore without older ones.
        keep_from: first position that the consumer layers keep (see `truncation`): none of their rows sees an older
            window key. 0, or anything out of reach of the slice's windows, changes nothing.
        images: images of the sequence whose tokens may lie in [start, end); others are passed over.
    """

    tokens: IntArray
    start: int
    end: int
    state_slot: int
    pages: Sequence[int]
    logits: Sequence[int] = ()
    valid_start: int = 0
    keep_from: int = 0
    images: Sequence[ImageSpan] = ()


@dataclass(frozen=True)
class Batch:
    """Tensors of one step; see `ops` for their meaning. T rows (padding last), S sequences, L logit rows.

    Attributes:
        tokens: int32 [T], -1 on padding rows.
        positions: int32 [T].
        row_seq: int32 [T], -1 on padding rows.
        first_key, last_key: int32 [T], the window keys that a row may see, further limited by the window's length.
        image: bool [T], rows of an image span (ids at or above the vocabulary).
        ngrams: int32 [T, n], raw ids of the token and its predecessors, newest first, -1 where there is none.
        host_ngrams: the same in host memory, for tables that live there.
        seq_start, seq_end, row_begin, state_slot: int32 [S].
        block_table: int32 [S, pages], -1 unused.
        visible: ratio -> int32 [T], compressed entries a row may see.
        entries: ratio -> most entries any row sees.
        logit_rows: int32 [L].
        boundary: what changes at the entry of the first consumer layer; None for nothing.
        images: where embeddings of images go; None where the step has none.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    row_seq: torch.Tensor
    first_key: torch.Tensor
    last_key: torch.Tensor
    image: torch.Tensor
    ngrams: torch.Tensor
    host_ngrams: torch.Tensor
    seq_start: torch.Tensor
    seq_end: torch.Tensor
    row_begin: torch.Tensor
    state_slot: torch.Tensor
    block_table: torch.Tensor
    visible: dict[int, torch.Tensor]
    entries: dict[int, int]
    logit_rows: torch.Tensor
    boundary: Boundary | None = None
    images: ImageRows | None = None

    @property
    def rows(self) -> int:
        """Rows of the step, padding included."""
        return self.tokens.shape[0]

    @classmethod
    def build(
        cls,
        slices: Sequence[SequenceSlice],
        text: TextConfig,
        device: torch.device,
        *,
        rows: int | None = None,
        compact: bool = False,
    ) -> Batch:
        """Pack sequences into one step.

        Args:
            slices: at least one row each.
            text: the model.
            device: where the tensors go.
            rows: pad to this many rows. Behind a boundary that drops rows there is no padding.
            compact: drop rows before `keep_from` at the boundary instead of hiding window keys from them only.

        Raises:
            InvalidArgumentError: a slice is empty, lacks tokens or pages, or asks for logits outside itself or of rows
                that are dropped; or `rows` is smaller than what the slices hold.
        """
        for number, part in enumerate(slices):
            _check(number, part, compact)
        lengths = np.array([part.end - part.start for part in slices], np.int32)
        total = int(lengths.sum())
        padded = total if rows is None else rows
        if padded < total:
            raise errors.InvalidArgumentError("rows", rows, f"at least the {total} rows of the sequences")
        begin = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])[:-1]
        n = text.engram_max_ngram_size if text.engram_layer_ids else 1
        ngrams = np.full((padded, n), -1, np.int32)
        positions = np.zeros(padded, np.int32)
        row_seq = np.full(padded, -1, np.int32)
        first_key = np.zeros(padded, np.int32)
        logit_rows: list[npt.NDArray[np.int32]] = [np.zeros(0, np.int32)]
        for number, (part, first) in enumerate(zip(slices, begin, strict=True)):
            own = slice(int(first), int(first) + part.end - part.start)
            ngrams[own] = _look_back(part, n)
            positions[own] = np.arange(part.start, part.end, dtype=np.int32)
            row_seq[own] = number
            first_key[own] = part.valid_start
            logit_rows.append(np.asarray(part.logits, np.int32) - np.int32(part.start) + first)
        tokens = np.ascontiguousarray(ngrams[:, 0])
        ratios = sorted({ratio for ratio in text.compress_ratios if ratio})
        visible = {r: np.where(row_seq >= 0, (positions + 1) // r, 0).astype(np.int32) for r in ratios}

        def put(array: npt.NDArray[np.generic]) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        host_ngrams = torch.from_numpy(ngrams)
        batch = cls(
            tokens=put(tokens),
            positions=put(positions),
            row_seq=put(row_seq),
            first_key=put(first_key),
            last_key=put(positions),
            image=put(tokens >= text.vocab_size),
            ngrams=host_ngrams.to(device),
            host_ngrams=host_ngrams,
            seq_start=put(np.array([part.start for part in slices], np.int32)),
            seq_end=put(np.array([part.end for part in slices], np.int32)),
            row_begin=put(begin),
            state_slot=put(np.array([part.state_slot for part in slices], np.int32)),
            block_table=put(_block_table(slices)),
            visible={r: put(v) for r, v in visible.items()},
            entries={r: max((part.end // r for part in slices), default=0) for r in ratios},
            logit_rows=put(np.concatenate(logit_rows)),
            images=image_rows(slices, text.vocab_size, padded, device),
        )
        window = text.sliding_window
        if any(part.keep_from > max(part.valid_start, part.start - window + 1) for part in slices):
            return replace(batch, boundary=_drop(batch, slices) if compact else _hide(batch, slices))
        return batch


@dataclass(frozen=True)
class Boundary:
    """The step as consumer layers see it, where prompts are truncated.

    Attributes:
        batch: the rows that go on. Where some are dropped it has no n-grams, which no consumer layer then reads.
        rows: int32, their places among the rows of the whole step, ascending; None where all go on.
    """

    batch: Batch
    rows: torch.Tensor | None


def _hide(batch: Batch, slices: Sequence[SequenceSlice]) -> Boundary:
    """All rows go on and see no window key before `keep_from`; those before it see none at all."""
    first_key = np.zeros(batch.rows, np.int32)
    done = 0
    for part in slices:
        count = part.end - part.start
        first_key[done : done + count] = max(part.valid_start, part.keep_from)
        done += count
    moved = torch.from_numpy(first_key).to(batch.first_key.device)
    return Boundary(replace(batch, first_key=moved), None)


def _drop(batch: Batch, slices: Sequence[SequenceSlice]) -> Boundary:
    """Rows from `keep_from` on go on. They see window keys from there on, all of which lie behind the boundary."""
    device = batch.positions.device
    starts = np.array([min(max(part.start, part.keep_from), part.end) for part in slices], np.int32)
    counts = np.array([part.end for part in slices], np.int32) - starts
    begin = np.cumsum(counts, dtype=np.int32) - counts
    kept: list[IntArray] = [np.zeros(0, np.int32)]
    first_key = np.zeros(int(counts.sum()), np.int32)
    logit_rows: list[IntArray] = [np.zeros(0, np.int32)]
    done = 0
    for part, start, count, first in zip(slices, starts, counts, begin, strict=True):
        done += part.end - part.start
        kept.append(np.arange(done - count, done, dtype=np.int32))
        first_key[first : first + count] = max(part.valid_start, part.keep_from)
        logit_rows.append((np.asarray(part.logits, np.int32) - start + first).astype(np.int32))

    def put(array: npt.NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    rows = put(np.concatenate(kept))
    here = replace(
        batch,
        tokens=batch.tokens[rows],
        positions=batch.positions[rows],
        row_seq=batch.row_seq[rows],
        first_key=put(first_key),
        last_key=batch.last_key[rows],
        image=batch.image[rows],
        ngrams=batch.ngrams[:0],
        host_ngrams=batch.host_ngrams[:0],
        seq_start=put(starts),
        row_begin=put(begin),
        visible={ratio: visible[rows] for ratio, visible in batch.visible.items()},
        logit_rows=put(np.concatenate(logit_rows)),
    )
    return Boundary(here, rows)


def _check(number: int, part: SequenceSlice, compact: bool) -> None:
    name = f"slices[{number}]"
    if not 0 <= part.start < part.end <= len(part.tokens):
        raise errors.InvalidArgumentError(
            f"{name}.start, end", (part.start, part.end), f"0 <= start < end <= {len(part.tokens)}, the tokens given"
        )
    if not 0 <= part.valid_start <= part.start:
        raise errors.InvalidArgumentError(f"{name}.valid_start", part.valid_start, f"0 to start, which is {part.start}")
    if part.keep_from < 0:
        raise errors.InvalidArgumentError(f"{name}.keep_from", part.keep_from, "a position, at least 0")
    need = -(-part.end // layouts.PAGE_TOKENS)
    if len(part.pages) < need:
        raise errors.InvalidArgumentError(f"{name}.pages", list(part.pages), f"{need} pages for {part.end} tokens")
    wanted = list(part.logits)
    if wanted != sorted(set(wanted)) or (wanted and not part.start <= wanted[0] <= wanted[-1] < part.end):
        raise errors.InvalidArgumentError(
            f"{name}.logits", wanted, f"ascending positions from {part.start} to {part.end - 1}"
        )
    if compact and wanted and wanted[0] < part.keep_from:
        raise errors.InvalidArgumentError(
            f"{name}.logits", wanted, f"positions from keep_from = {part.keep_from} on; rows before it are dropped"
        )


def _look_back(part: SequenceSlice, n: int) -> IntArray:
    """[rows, n]: the token of each row and the n - 1 before it, newest first, -1 before the sequence's start."""
    first = part.start - (n - 1)
    window = np.full(n - 1 + part.end - part.start, -1, np.int32)
    window[max(0, -first) :] = part.tokens[max(0, first) : part.end]
    view: IntArray = np.lib.stride_tricks.sliding_window_view(window, n)[:, ::-1]
    return view


def _block_table(slices: Sequence[SequenceSlice]) -> IntArray:
    width = max((len(part.pages) for part in slices), default=0)
    table = np.full((len(slices), max(width, 1)), -1, np.int32)
    for row, part in zip(table, slices, strict=True):
        row[: len(part.pages)] = part.pages
    return table
