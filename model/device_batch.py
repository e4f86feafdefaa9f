"""A step's batch where the host does not know how far every sequence is.

Lengths, tokens and drafts may be results of the step before, still on their way. The host gives bounds, from which the
size of everything follows; who and where the rows are is found on the device (`ops.step_metadata`, `ops.step_tokens`).
Rows beyond what a sequence turns out to have are padding behind the last sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

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
            sequence has no such row, the logits are of any.
        rows: of the step, at least the sum of query_len. entries: ratio -> most entries that any row sees.
        images: where embeddings of images go, by row of the step.
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
    logit_seq: Tensor
    logit_offset: Tensor
    rows: int
    entries: Mapping[int, int]
    images: ImageRows | None = None


def device_batch(given: DeviceRows, text: TextConfig) -> Batch:
    """The batch of a step; waits for nothing."""
    device = given.query_len.device
    ratios = tuple(sorted({ratio for ratio in text.compress_ratios if ratio}))
    none = torch.zeros_like(given.query_len)
    lengths = (given.query_len, given.key_len, given.valid_start)
    meta = ops.step_metadata(*lengths, _on_device(ratios, device), given.rows)
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
        none,
        text.vocab_size,
        given.history.shape[1] + 1,
    )
    logit_rows = meta.row_begin[given.logit_seq.long()] + given.logit_offset
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
        logit_rows=logit_rows.clamp(max=given.rows - 1),
        images=given.images,
    )


@lru_cache(maxsize=16)
def _on_device(ratios: tuple[int, ...], device: torch.device) -> Tensor:
    """int32 [ratios]. Kept, as a copy from memory that is not pinned waits for the steps in flight."""
    return torch.tensor(ratios, dtype=torch.int32, device=device)
