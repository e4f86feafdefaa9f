"""Drafting ops: their meaning by small examples, refusals, independent definitions, and rows that stand alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import numerics_document as document
from deepinfer import ops
from deepinfer.backends import reference
from deepinfer.conformance.oracle import expected
from deepinfer.hal.errors import ContractError
from deepinfer.ops.spec import SPECS
from row_parts import assert_rows_stand_alone, results

CPU = torch.device("cpu")
EXACT = ("draft_inputs", "draft_store", "correct_q", "correct_k")
expected.load_oracles()


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    reference.backend.load()


def i32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("op", EXACT)
def test_exact_ops_equal_their_definition(op: str) -> None:
    for sample in SPECS[op].samples(np.random.default_rng(11), CPU):
        args = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in sample.args)
        wanted = expected.BITS[op](*args)
        for want, got in zip(wanted, results(op, sample.args), strict=True):
            assert want is not None and want.want.dtype == got.dtype
            assert want.want.nan_to_num(7.5).equal(got.nan_to_num(7.5)), sample.label


@pytest.mark.parametrize("op", ["draft_tap", "draft_logits", "draft_confidence", "correct_k"])
def test_rows_stand_alone(op: str) -> None:
    for sample in SPECS[op].samples(np.random.default_rng(5), CPU):
        label = sample.label
        if label.startswith(("37", "contiguous", "banned", "clamped")):
            assert_rows_stand_alone(op, sample.args)


# ---- rows of a draft pass -------------------------------------------------------------------------------------------


def test_a_block_follows_the_last_accepted_position() -> None:
    """Three rows were computed from position 40 on, two drafts accepted: position 42 is the last, 7 stands at 43."""
    rows = ops.draft_inputs(i32(7), i32(40), i32(2), i32(0), 3, 16, 99)
    assert rows.ids.tolist() == [7, 99, 99]
    assert rows.positions.tolist() == [43, 44, 45]
    assert rows.seq_start.tolist() == [43] and rows.row_begin.tolist() == [0]
    assert rows.first_key.tolist() == [27] * 3, "16 keys up to position 42"
    assert rows.last_key.tolist() == [45] * 3
    assert rows.draws.tolist() == [[44], [45], [46]], "the row at 43 draws the token at 44"


def test_sequences_that_do_not_draft_are_padding() -> None:
    rows = ops.draft_inputs(i32(5, 6, 7), i32(-1, 3, -1), i32(4, 0, 0), i32(0, 2, 0), 2, 16, 99)
    assert rows.row_seq.tolist() == [-1, -1, 1, 1, -1, -1]
    assert rows.ids.tolist() == [-1, -1, 6, 99, -1, -1]
    assert rows.positions.tolist() == [0, 0, 4, 5, 0, 0]
    assert rows.first_key.tolist() == [0, 0, 2, 2, 0, 0], "nothing before the first valid position"
    assert rows.row_begin.tolist() == [0, 2, 4] and rows.seq_start.tolist() == [0, 4, 0]


# ---- taps, logits, confidences --------------------------------------------------------------------------------------


def test_a_tap_is_the_mean_and_leaves_the_other_places() -> None:
    x = torch.tensor([[[1.0], [2.0], [4.0], [9.0]]], dtype=torch.bfloat16).expand(1, 4, 32).contiguous()
    taps = torch.full((1, 3, 32), torch.nan, dtype=torch.bfloat16)
    ops.draft_tap(x, taps, 1)
    assert taps[0, 1].eq(4.0).all() and taps[0, [0, 2]].isnan().all()
    for place in (-1, 3):
        with pytest.raises(ContractError, match=f"place is {place}, taps have 3 places"):
            ops.draft_tap(x, taps, place)


def test_the_mean_is_rounded_once() -> None:
    """1 + three times 2^-8: each sum would round to 1 or 1 + 2^-7 in bf16, the mean of four does not."""
    x = torch.full((1, 4, 32), 2.0**-8, dtype=torch.bfloat16)
    x[0, 0] = 1.0
    taps = torch.zeros((1, 1, 32), dtype=torch.bfloat16)
    ops.draft_tap(x, taps, 0)
    want = torch.tensor((1 + 3 * 2.0**-8) / 4).bfloat16()
    assert taps.eq(want).all()


def test_bigram_logits_add_to_the_base() -> None:
    embed = torch.zeros((4, 2), dtype=torch.bfloat16)
    embed[3] = torch.tensor([1.0, -2.0])
    head = ops.draft_logits_prepare(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]).bfloat16())
    base = torch.tensor([[10.0, 20.0, 30.0]] * 3)
    got = ops.draft_logits(base, i32(3, -1, 4), embed, head)
    assert got.tolist() == [[11.0, 18.0, 29.5], [10.0, 20.0, 30.0], [10.0, 20.0, 30.0]]


def test_bigram_logits_keep_small_corrections() -> None:
    """A correction far below the base's bf16 step arrives: the sum is in fp32."""
    embed = torch.full((1, 1), 2.0**-10, dtype=torch.bfloat16)
    head = ops.draft_logits_prepare(torch.ones((1, 1), dtype=torch.bfloat16))
    assert ops.draft_logits(torch.tensor([[8.0]]), i32(0), embed, head).item() == 8.0 + 2.0**-10


def test_confidence_reads_the_hidden_state_first_and_takes_a_temperature_per_place() -> None:
    hidden = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]], dtype=torch.bfloat16)
    embed = torch.tensor([[0.0], [3.0]], dtype=torch.bfloat16)
    weight = torch.tensor([2.0, 9.0, -1.0], dtype=torch.bfloat16)
    inverse = torch.tensor([1.0, 0.5])
    got = ops.draft_confidence(hidden, i32(0, 1).view(1, 2), embed, weight, inverse)
    want = 1 / (1 + np.exp(-np.array([2.0, (2.0 - 3.0) * 0.5])))
    assert np.allclose(got.numpy(), want, atol=1e-6)


def test_confidence_is_clamped() -> None:
    hidden = torch.tensor([[[100.0]], [[-100.0]]], dtype=torch.bfloat16)
    embed, weight = torch.zeros((1, 1), dtype=torch.bfloat16), torch.tensor([1.0, 1.0], dtype=torch.bfloat16)
    got = ops.draft_confidence(hidden, i32(0, 0).view(2, 1), embed, weight, torch.ones(1))
    assert got[0].item() == 1.0
    assert got[1].item() == pytest.approx(np.exp(-60.0), rel=1e-5), "exp(-60), not exp(-100)"


# ---- state ---------------------------------------------------------------------------------------------------------


def test_stored_drafts_of_a_stopped_sequence_have_no_confidence() -> None:
    tokens, sure = torch.arange(6, dtype=torch.int32).view(3, 2), torch.full((3, 2), 0.5)
    pool, confidence = torch.full((4, 2), -1, dtype=torch.int32), torch.full((4, 2), 0.25)
    ops.draft_store(tokens, sure, torch.tensor([False, True, False]), i32(3, 1, -1), pool, confidence)
    assert pool.tolist() == [[-1, -1], [2, 3], [-1, -1], [0, 1]]
    assert confidence.tolist() == [[0.25, 0.25], [0.0, 0.0], [0.25, 0.25], [0.5, 0.5]]
    with pytest.raises(ContractError, match="slots holds 4"):
        ops.draft_store(tokens, sure, None, i32(4, -1, -1), pool, confidence)


@pytest.mark.parametrize("row", document.blocks()["vectors-rows"])
def test_row_vectors_of_the_document(row: list[str]) -> None:
    arrow = row.index("->")
    text = " ".join(row[1:arrow]).split("/")
    confidence = torch.tensor([[float(document.number(word)) for word in part.split()] for part in text])
    got = ops.correct_q(confidence, torch.arange(len(text), dtype=torch.int32), int(row[0]))
    assert got.tolist() == [int(word) for word in row[arrow + 1 :]]


def test_rows_go_to_the_likeliest_prefixes() -> None:
    confidence = torch.tensor([[0.9, 0.1, 1.0], [0.5, 0.9, 0.9]])
    # survivals 0.9 0.09 0.09 and 0.5 0.45 0.405
    wanted = {2: [1, 1], 3: [2, 1], 4: [2, 2], 5: [2, 3], 6: [2, 4], 7: [3, 4], 8: [4, 4]}
    for total, rows in wanted.items():
        assert ops.correct_q(confidence, i32(0, 1), total).tolist() == rows
    assert ops.correct_q(confidence, i32(-1, 0, 1), 6).tolist() == [1, 2, 3], "a fresh sequence comes last"


def test_a_total_that_cannot_be_split_is_refused() -> None:
    for total in (1, 9):
        with pytest.raises(ContractError, match=rf"total is {total}, must lie in 2\.\.8"):
            ops.correct_q(torch.zeros(2, 3), i32(0, 1), total)


def test_lengths_take_back_what_was_not_accepted() -> None:
    """Planned as if all 5 drafts were accepted (length 20): 2 were, so the length before this step is 17."""
    got = ops.correct_k(i32(20, 8), i32(6, 1), i32(1, -1), i32(5, 99), i32(0, 2))
    assert got.tolist() == [20 - 3 + 6, 9]
