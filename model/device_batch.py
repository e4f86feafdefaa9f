"""A step's batch where the host does not know how far every sequence is.

Lengths, tokens and drafts may be results of the step before, still on their way. The host gives bounds, from which the
size of everything follows; who and where the rows are is found on the device (`ops.step_metadata`, `ops.step_tokens`).
Rows beyond what a sequence turns out to have are padding behind the last sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from .. import ops
from .batch import Batch
from .config import TextConfig
from .vision.spans import ImageRows


@dataclass(frozen=True)
class DeviceRows:
    """What a step's rows are made from, on its device; S sequences, each either fresh (of the host) or not.

    Attributes:
        query_len, key_len: int32 [S], rows of each sequence and its length with them; a sequence may have no rows.
        valid_start: int32 [S], see `SequenceSlice`.
        source: int32 [S], -1 for a sequence whose tokens are fresh, else its line in the next two.
        fresh: int32 [F], fresh tokens. fresh_begin: int32 [S], where those of a sequence begin.
        last_token: int32 [N], token of the first row. drafts: int32 [N, n], those of the rows behind it.
        history: int32 [S, H], tokens before the rows, newest first, -1 where there are none.
        state_slot: int32 [S]. block_table: int32 [S, pages], for the most that the sequence may have.
        logit_seq, logit_offset: int32 [L], sequence of each row of logits, and row within the sequence. Where the
            sequence has no such row, the logits are of any. None where `logit_rows` says which rows they are.
        rows: of the step, at least the sum of query_len. entries: ratio -> most entries that any row sees.
        images: where embeddings of images go, by row of the step.
        skip: int32 [S], see `ops.step_tokens`; None for 0.
        logit_rows: int32 [L], the rows of logits, where the host knows them.
    """

    query_len: Tensor
    key_len: Tensor
    valid_start: Tensor
    source: Tensor
    fresh: Tensor
    fresh_begin: Tensor
    last_token: Tensor
    drafts: Tensor
    history: Tensor
    state_slot: Tensor
    block_table: Tensor
    logit_seq: Tensor | None
    logit_offset: Tensor | None
    rows: int
    entries: Mapping[int, int]
    images: ImageRows | None = None
    skip: Tensor | None = None
    logit_rows: Tensor | None = None


def device_batch(given: DeviceRows, text: TextConfig) -> Batch:
    """The batch of a step; waits for nothing."""
    ratios = step_ratios(text)
    lengths = (given.query_len, given.key_len, given.valid_start)
    meta = ops.step_metadata(*lengths, on_device(ratios, given.query_len.device), given.rows)
    found = ops.step_tokens(
        meta.positions,
        meta.row_seq,
        meta.seq_start,
        given.source,
        given.fresh,
        given.fresh_begin,
        given.last_token,
        given.drafts,
        given.history,
        torch.zeros_like(given.query_len) if given.skip is None else given.skip,
        text.vocab_size,
        given.history.shape[1] + 1,
    )
    return Batch(
        tokens=found.tokens,
        positions=meta.positions,
        row_seq=meta.row_seq,
        first_key=meta.first_key,
        last_key=meta.positions,
        image=found.image,
        ngrams=found.ngrams,
        host_ngrams=found.ngrams,
        seq_start=meta.seq_start,
        seq_end=meta.seq_end,
        row_begin=meta.row_begin,
        state_slot=given.state_slot,
        block_table=given.block_table,
        visible={ratio: meta.visible[i] for i, ratio in enumerate(ratios)},
        entries=dict(given.entries),
        logit_rows=_logit_rows(given, meta.row_begin),
        images=given.images,
    )


def _logit_rows(given: DeviceRows, row_begin: Tensor) -> Tensor:
    if given.logit_rows is not None:
        return given.logit_rows
    assert given.logit_seq is not None and given.logit_offset is not None, "rows of logits, or where to find them"
    return (row_begin[given.logit_seq.long()] + given.logit_offset).clamp(max=given.rows - 1)


def step_ratios(text: TextConfig) -> tuple[int, ...]:
    """The model's ratios of compression, ascending."""
    return tuple(sorted({ratio for ratio in text.compress_ratios if ratio}))


@cache
def on_device(ratios: tuple[int, ...], device: torch.device) -> Tensor:
    """int32 [ratios]. Kept, as a copy from memory that is not pinned waits for the steps in flight. Call it once before
    a step is captured."""
    return torch.tensor(ratios, dtype=torch.int32, device=device)
