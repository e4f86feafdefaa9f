"""Mixture of experts but its products: the classes, ties and NaN keys, lists of many blocks, rows that nobody names."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import assert_kept, run, sample
from cuda_family import family_tests
from deepinfer.backends.cuda.jit import INTERPRETED
from deepinfer.ops.spec import SPECS

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


test_samples, test_no_rows, test_every_required_call = family_tests(OPS, EMPTY)


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


@pytest.mark.parametrize("slots", [pytest.param(4096, marks=pytest.mark.whole if INTERPRETED else ()), 4098])
def test_lists_on_both_sides_of_one_launch(slots: int) -> None:
    """The most slots that one launch packs, and more; several experts beyond those that have slots."""
    torch.manual_seed(slots)
    chosen = torch.randint(-1, 90, (slots // 2, 2), dtype=torch.int32)
    assert_kept("moe_pack", (chosen, torch.randn(slots // 2, 2), 3, 40))


@pytest.mark.gpu
@pytest.mark.parametrize("experts", [384, 128])
def test_routing_bits_at_the_released_width_over_the_tiles(experts: int) -> None:
    """Rows have the bits that they have alone, whatever tile the number of rows asks for."""
    torch.manual_seed(experts)
    x, bias = torch.randn(1100, 5120).bfloat16(), torch.randn(2, experts) * 0.1
    weight = SPECS["moe_route"].prepare((torch.randn(experts, 5120) / 72).bfloat16())
    image = torch.rand(1100) < 0.3
    whole = run("moe_route", x, weight, bias[0], bias[1], image, 6, 1.5)
    for first, last in ((0, 1), (3, 67), (40, 640), (70, 1093), (1, 1025)):
        part = run("moe_route", x[first:last], weight, bias[0], bias[1], image[first:last], 6, 1.5)
        assert all(torch.equal(a[first:last], b) for a, b in zip(whole, part, strict=True)), (first, last)


def test_choice_and_weights_depend_on_the_row_alone() -> None:
    torch.manual_seed(2)
    logits, bias = torch.randn(9, 12) * 4, torch.randn(12)
    rest = bias, -bias, torch.arange(9) % 2 == 0, 3, 1.5
    whole = run("moe_gate", logits, *rest)
    alone = run("moe_gate", logits[8:], *rest[:2], rest[2][8:], 3, 1.5)
    assert all(torch.equal(a[8:], b) for a, b in zip(whole, alone, strict=True))
