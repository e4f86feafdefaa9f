"""Verification of drafts on CUDA: the reference's bits, in every branch; speculation repeats its tokens."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import PLAIN, STRIDED, assert_kept, run, sample
from deepinfer.backends.cuda import sampling

OPS = ("accept_prefix", "draft_distribution", "verify_drafts")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tiles, so that small rows have several and a tail."""
    monkeypatch.setattr(sampling, "BLOCK", 512)
    monkeypatch.setattr(sampling, "WARP", 256)


@pytest.mark.parametrize("op", OPS)
def test_calls_without_rows(op: str) -> None:
    assert_kept(op, sample(op, "no").args)


@pytest.mark.parametrize(
    ("op", "label", "variant"),
    [
        ("verify_drafts", "8x37, certain drafts", PLAIN),
        ("verify_drafts", "8x37", STRIDED),
        ("verify_drafts", "5x1000, shared noise", PLAIN),
        ("verify_drafts", "5x1000, certain drafts", PLAIN),
        ("draft_distribution", "8x37", STRIDED),
        ("draft_distribution", "5x1000", PLAIN),
        ("accept_prefix", "sequences without rows", PLAIN),
        ("accept_prefix", "single rows", PLAIN),
        ("accept_prefix", "mixed lengths", PLAIN),
        ("accept_prefix", "golden tokens", STRIDED),
    ],
)
def test_samples_in_every_form(op: str, label: str, variant: str, narrow: None) -> None:
    assert_kept(op, sample(op, label).args, variant)


def test_two_segments_of_the_summation_tree_and_a_tail() -> None:
    assert_kept("verify_drafts", sample("verify_drafts", "3x17001").args)


def test_a_draft_repeats_its_tokens_alone_and_beside_others(narrow: None) -> None:
    """The same seed gives the same decisions, whatever stands beside the row and wherever it stands."""
    args = next(a for a in [sample("verify_drafts", "5x1000").args])
    rows, pool = args[:9], args[9:]
    kinds = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and i != 9]
    tokens, accepted = run("verify_drafts", *args)
    again = run("verify_drafts", *args)
    assert torch.equal(tokens, again[0]) and torch.equal(accepted, again[1])
    for r in (0, 3, 4):
        alone = [a[r : r + 1] if i in kinds else a for i, a in enumerate((*rows, *pool))]
        token, good = run("verify_drafts", *alone)
        assert (token[0], good[0]) == (tokens[r], accepted[r])
    turned = [a.flip(0) if i in kinds else a for i, a in enumerate((*rows, *pool))]
    token, good = run("verify_drafts", *turned)
    assert torch.equal(token.flip(0), tokens) and torch.equal(good.flip(0), accepted)


def test_a_replaced_draft_is_not_accepted_even_where_the_draw_gives_it_back(narrow: None) -> None:
    """A draft of probability 1 at a token that the target finds as unlikely as can be: the residual leaves it out."""
    z = torch.zeros(1, 600)
    z[0, 7] = -80.0
    kept = run("sample_filter", z, torch.ones(1), None, None, None, 0)
    edges = (kept[2], kept[3], kept[4], kept[1])
    draft = torch.tensor([7], dtype=torch.int32)
    token, accepted = run(
        "verify_drafts", z, torch.ones(1), *edges, draft, torch.tensor([3]), torch.tensor([8]), None, None, False
    )
    assert token[0] != 7 and not accepted[0]
