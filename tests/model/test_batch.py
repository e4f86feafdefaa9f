"""Packing sequences into a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.model.batch import Batch, SequenceSlice
from released import tiny_config

TEXT = tiny_config().text
CPU = torch.device("cpu")


def piece(start: int, end: int, **fields: Any) -> SequenceSlice:
    tokens = np.arange(100, 100 + end, dtype=np.int32)
    return SequenceSlice(tokens, start, end, fields.pop("slot", 1), fields.pop("pages", [4, 9]), **fields)


def test_rows_and_sequences() -> None:
    batch = Batch.build(
        [piece(0, 3, logits=[2]), piece(130, 132, slot=3, pages=[7, 8], logits=[130, 131])], TEXT, CPU, rows=7
    )
    assert batch.rows == 7
    assert batch.tokens.tolist() == [100, 101, 102, 230, 231, -1, -1]
    assert batch.positions.tolist() == [0, 1, 2, 130, 131, 0, 0]
    assert batch.row_seq.tolist() == [0, 0, 0, 1, 1, -1, -1]
    assert (batch.seq_start.tolist(), batch.seq_end.tolist()) == ([0, 130], [3, 132])
    assert (batch.first_key.tolist(), batch.last_key.tolist()) == ([0] * 7, batch.positions.tolist())
    assert (batch.row_begin.tolist(), batch.state_slot.tolist()) == ([0, 3], [1, 3])
    assert batch.block_table.tolist() == [[4, 9], [7, 8]]
    assert batch.logit_rows.tolist() == [2, 3, 4]
    assert batch.visible[1].tolist() == [1, 2, 3, 131, 132, 0, 0]
    assert batch.visible[2].tolist() == [0, 1, 1, 65, 66, 0, 0]
    assert batch.entries == {1: 132, 2: 66}


def test_look_back_reaches_before_the_chunk_and_stops_at_the_start() -> None:
    batch = Batch.build([piece(0, 2), piece(5, 6, slot=2)], TEXT, CPU, rows=4)
    assert batch.ngrams.tolist() == [[100, -1, -1, -1], [101, 100, -1, -1], [105, 104, 103, 102], [-1] * 4]
    assert torch.equal(batch.ngrams, batch.host_ngrams)


def test_ids_at_or_above_the_vocabulary_are_image_rows() -> None:
    tokens = np.array([5, TEXT.vocab_size - 1, TEXT.vocab_size, TEXT.vocab_size + 2], np.int32)
    batch = Batch.build([SequenceSlice(tokens, 0, 4, 1, [1])], TEXT, CPU)
    assert batch.image.tolist() == [False, False, True, True]


def test_block_tables_of_different_lengths_are_padded() -> None:
    batch = Batch.build([piece(0, 1, pages=[3]), piece(0, 129, pages=[1, 2])], TEXT, CPU)
    assert batch.block_table.tolist() == [[3, -1], [1, 2]]


def test_no_sequences_is_a_step_of_padding() -> None:
    batch = Batch.build([], TEXT, CPU, rows=2)
    assert batch.row_seq.tolist() == [-1, -1] and batch.logit_rows.numel() == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"start": 3, "end": 3}, r"slices\[0\].start, end: got \(3, 3\)"),
        ({"start": 0, "end": 9}, "the tokens given"),
        ({"start": 0, "end": 5, "pages": []}, r"slices\[0\].pages: got \[\]; allowed: 1 pages"),
        (
            {"start": 1, "end": 5, "logits": [0]},
            r"slices\[0\].logits: got \[0\]; allowed: ascending positions from 1 to 4",
        ),
        ({"start": 1, "end": 5, "logits": [3, 2]}, "ascending positions"),
    ],
)
def test_bad_slices_are_refused(fields: dict[str, Any], message: str) -> None:
    part = SequenceSlice(np.arange(5, dtype=np.int32), **({"state_slot": 1, "pages": [1]} | fields))
    with pytest.raises(InvalidArgumentError, match=message):
        Batch.build([part], TEXT, CPU)


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="rows: got 2; allowed: at least the 3 rows"):
        Batch.build([piece(0, 3)], TEXT, CPU, rows=2)


def test_keys_before_a_restored_window_are_bounded_out() -> None:
    batch = Batch.build([piece(0, 2), piece(130, 132, slot=2, valid_start=128)], TEXT, CPU, rows=5)
    assert batch.first_key.tolist() == [0, 0, 128, 128, 0]
    with pytest.raises(InvalidArgumentError, match="valid_start.* 0 to start, which is 130"):
        Batch.build([piece(130, 132, valid_start=131)], TEXT, CPU)
