"""A batch made on the device holds what one made by the host does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer import ops
from deepinfer.hal.catalog import load_backend
from deepinfer.model.batch import Batch, SequenceSlice
from deepinfer.model.device_batch import DeviceRows, device_batch

TEXT: Any = SimpleNamespace(
    vocab_size=100, engram_layer_ids=(1,), engram_max_ngram_size=3, compress_ratios=(0, 1, 2), sliding_window=8
)


def ints(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("spare", [0, 3])
def test_it_equals_the_batch_of_the_host(spare: int) -> None:
    """A chunk whose tokens come from the host, and two decoding sequences, one of them with drafts, that do not."""
    load_backend("reference")
    chunk, drafting, plain = (np.arange(n, dtype=np.int32) + base for n, base in ((9, 10), (6, 40), (2, 70)))
    slices = [
        SequenceSlice(chunk, 3, 8, 4, [5], logits=[6, 7]),
        SequenceSlice(drafting, 3, 6, 2, [6], logits=[3, 4, 5]),
        SequenceSlice(plain, 1, 2, 7, [9], logits=[1]),
    ]
    wanted = Batch.build(slices, TEXT, torch.device("cpu"), rows=9 + spare)
    given = DeviceRows(
        query_len=ints([5, 3, 1]),
        key_len=ints([8, 6, 2]),
        valid_start=ints([0, 0, 0]),
        source=ints([-1, 0, 1]),
        fresh=ints(chunk[3:8].tolist()),
        fresh_begin=ints([0, 0, 0]),
        last_token=ints([43, 71]),
        drafts=ints([[44, 45], [-5, -5]]),
        history=ints([[12, 11], [42, 41], [70, -1]]),
        state_slot=ints([4, 2, 7]),
        block_table=ints([[5], [6], [9]]),
        logit_seq=ints([0, 0, 1, 1, 1, 2]),
        logit_offset=ints([3, 4, 0, 1, 2, 0]),
        rows=9 + spare,
        entries=wanted.entries,
    )
    found = device_batch(given, TEXT)
    for name in (
        "tokens", "positions", "row_seq", "first_key", "image", "ngrams", "seq_start", "seq_end", "row_begin",
        "state_slot", "block_table", "logit_rows",
    ):  # fmt: skip
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name
    live = found.row_seq >= 0
    assert torch.equal(found.last_key[live], wanted.last_key[live])
    assert all(torch.equal(found.visible[ratio], wanted.visible[ratio]) for ratio in (1, 2))
    assert found.entries == wanted.entries


def test_a_sequence_without_rows_names_no_row_beyond_the_step() -> None:
    """Its logits are those of any row, so that lists made beforehand stay as they are."""
    load_backend("reference")
    none = ints([[-1, -1]])
    given = DeviceRows(
        query_len=ints([0]), key_len=ints([4]), valid_start=ints([0]), source=ints([0]), fresh=ints([]),
        fresh_begin=ints([0]), last_token=ints([9]), drafts=none[:, :0], history=none, state_slot=ints([1]),
        block_table=ints([[3]]), logit_seq=ints([0, 0]), logit_offset=ints([0, 5]), rows=2, entries={1: 4, 2: 2},
    )  # fmt: skip
    found = device_batch(given, TEXT)
    assert found.row_seq.tolist() == [-1, -1] and found.tokens.tolist() == [-1, -1]
    assert found.logit_rows.tolist() == [0, 1]


def test_a_later_step_copies_nothing_from_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor that is made of a list is a copy from memory that is not pinned, for which the host waits."""
    load_backend("reference")
    none, one = ints([[-1, -1]]), ints([1])
    given = DeviceRows(
        query_len=one, key_len=one, valid_start=ints([0]), source=ints([0]), fresh=ints([]), fresh_begin=ints([0]),
        last_token=ints([9]), drafts=none[:, :0], history=none, state_slot=one, block_table=ints([[3]]),
        logit_seq=ints([0]), logit_offset=ints([0]), rows=1, entries={1: 4, 2: 2},
    )  # fmt: skip
    made = []
    monkeypatch.setattr(
        ops, "step_metadata", lambda *args, wrapped=ops.step_metadata: made.append(args) or wrapped(*args)
    )
    first, second = device_batch(given, TEXT), device_batch(given, TEXT)
    assert made[0][3] is made[1][3] and made[0][3].tolist() == [1, 2]
    assert all(torch.equal(first.visible[ratio], second.visible[ratio]) for ratio in (1, 2))
