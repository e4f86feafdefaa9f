"""Parameters, masks and candidate lists on CUDA."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import PLAIN, STRIDED, assert_kept, run, sample


@pytest.mark.parametrize("variant", [PLAIN, STRIDED])
@pytest.mark.parametrize(
    ("op", "labels"),
    [
        ("expand_params", ("no rows", "no requests", "one row", "mixed", "many rows")),
        ("mask_rows", ("no rows", "no masks", "requests without rows", "one column", "draft rows")),
        ("lookup_candidates", ("no rows", "no candidates", "nothing wanted", "one token", "lists of one step")),
    ],
)
def test_samples_in_every_form(op: str, labels: tuple[str, ...], variant: str) -> None:
    for label in labels:
        assert_kept(op, sample(op, label).args, variant)


def test_lists_of_two_tiles_and_a_tail() -> None:
    ids, values, wanted = sample("lookup_candidates", "tails").args
    assert_kept("lookup_candidates", (ids[:1, :600], values[:1, :600], wanted[:1, :40]))


def test_masks_of_a_wide_row_and_of_rows_that_are_none() -> None:
    """Two tiles and a tail; an offset behind the request's rows, a request that does not exist, one mask twice."""
    width = 2 * 1024 + 77
    logits = torch.randn(4, width)
    logits[1, 3] = torch.nan
    words = torch.randint(-(2**31), 2**31 - 1, (5, -(-width // 32)), dtype=torch.int32)
    request = torch.tensor([0, 1, 1, -1, 0], dtype=torch.int32)
    offset = torch.tensor([1, 0, 2**31 - 1, 0, 1], dtype=torch.int32)
    first = torch.tensor([0, 2, 4], dtype=torch.int32)
    assert_kept("mask_rows", (logits, words, request, offset, first))


def test_parameters_do_not_depend_on_neighbours() -> None:
    args = sample("expand_params", "mixed").args
    together = run("expand_params", *args)
    for row in (0, 17, 36):
        alone = run("expand_params", args[0][row : row + 1], args[1][row : row + 1], *args[2:])
        for a, b in zip(alone, together, strict=True):
            kind = torch.int64 if a.element_size() == 8 else torch.int32
            assert torch.equal(a.view(kind), b[row : row + 1].view(kind))
