"""How outputs are compared with what is expected of them."""

from __future__ import annotations

import pytest
import torch

from deepinfer.backends.ascend.sample import difference

NAN, INF = float("nan"), float("inf")


def compared(got: list[float], want: list[float], limit: float = 1e-3) -> str:
    return difference(torch.tensor(got), torch.tensor(want, dtype=torch.float64), limit, "y")


def test_within_a_share_of_the_largest_value() -> None:
    assert compared([1.0, 100.05], [1.04, 100.0]) == ""
    assert "1 of 2 elements wrong, the first at [0]: got 1, want 1.2" in compared([1.0, 100.0], [1.2, 100.0])
    assert compared([0.0, 0.0], [0.0, 0.0]) == "" and compared([1e-30], [0.0])


@pytest.mark.parametrize("special", [NAN, INF, -INF])
def test_what_is_not_finite_excuses_nothing(special: float) -> None:
    """One NaN or infinity in what is expected would make every limit NaN or infinite."""
    assert compared([special, 1.0], [special, 1.0]) == ""
    assert "the first at [1]" in compared([special, 2.0], [special, 1.0])
    assert "the first at [0]" in compared([3.0, 1.0], [special, 1.0])
    assert "the first at [1]" in compared([special, NAN], [special, 1.0])
    assert "the first at [0]" in compared([-special if special == special else INF, 1.0], [special, 1.0])
    assert compared([special], [special]) == ""


def test_without_a_limit_bits_count() -> None:
    assert difference(torch.tensor([0.0]), torch.tensor([-0.0]), 0.0, "y")
    assert difference(torch.tensor([NAN]), torch.tensor([NAN]), 0.0, "y") == ""
