"""Mixture of experts but its products: the classes, ties and NaN keys, lists of many blocks, rows that nobody names."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import PLAIN, SPOILT, STRIDED, assert_kept, every_call, run, sample

OPS = {
    "moe_gate": "ties, one expert",
    "moe_pack": "padding ids",
    "moe_route": "zero, NaN, infinite",
    "swiglu_quant": "zero, clamped",
    "moe_combine": "two tiles",
}
"""Ops, and the sample of each that has its edges."""
EMPTY = {
    **dict.fromkeys(("moe_gate", "moe_route", "swiglu_quant"), "0 rows"),
    "moe_pack": "no rows",
    "moe_combine": "no rows",
}


@pytest.mark.parametrize("variant", [PLAIN, STRIDED, SPOILT])
@pytest.mark.parametrize("op", OPS)
def test_samples(op: str, variant: str) -> None:
    assert_kept(op, sample(op, OPS[op]).args, variant)


@pytest.mark.parametrize("op", EMPTY)
def test_no_rows(op: str) -> None:
    assert_kept(op, sample(op, EMPTY[op]).args)


def test_all_experts_are_chosen_in_order() -> None:
    assert_kept("moe_gate", sample("moe_gate", "all experts").args)


@pytest.mark.parametrize("channels", [96, 544])
def test_activations_in_tiles_and_tails(channels: int) -> None:
    torch.manual_seed(channels)
    assert_kept("swiglu_quant", (torch.randn(5, 2 * channels).bfloat16() * 5, torch.rand(5), 10.0))


@pytest.mark.parametrize(
    ("tokens", "k", "experts", "first", "count"), [(401, 3, 40, 7, 20), (350, 3, 5, 0, 5), (1, 1, 2, 0, 0)]
)
def test_lists_by_blocks_of_slots(tokens: int, k: int, experts: int, first: int, count: int) -> None:
    """More slots than one program packs, with a short last block; no local expert at all."""
    torch.manual_seed(tokens)
    chosen = torch.rand(tokens, experts).topk(k).indices.int()
    chosen[::9, 0] = -1
    assert_kept("moe_pack", (chosen, torch.randn(tokens, k), first, count))


def test_choice_and_weights_depend_on_the_row_alone() -> None:
    torch.manual_seed(2)
    logits, bias = torch.randn(9, 12) * 4, torch.randn(12)
    rest = bias, -bias, torch.arange(9) % 2 == 0, 3, 1.5
    whole = run("moe_gate", logits, *rest)
    alone = run("moe_gate", logits[8:], *rest[:2], rest[2][8:], 3, 1.5)
    assert all(torch.equal(a[8:], b) for a, b in zip(whole, alone, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("op", OPS)
def test_every_required_call(op: str) -> None:
    for label, args, variant in every_call(op):
        try:
            assert_kept(op, args, variant)
        except AssertionError as error:
            raise AssertionError(f"{label}: {error}") from None
