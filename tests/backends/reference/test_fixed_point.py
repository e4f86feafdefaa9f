"""Fixed-point weights, the order of tokens, shares without overflow, and the tree for sums over the vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepinfer.backends.reference import fixed_point as fp
from deepinfer.conformance.oracle import sampling as oracle


@given(st.integers(0, 2**62 - 1), st.integers(0, 2**31))
def test_share_is_the_exact_floor_without_overflow(total: int, fraction: int) -> None:
    assert fp.share(torch.tensor([total]), torch.tensor([fraction])).item() == total * fraction >> 31


@given(st.lists(st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 2.0**-149, 1.0, 3e38, np.inf]), min_size=1, max_size=40))
def test_order_keys_sort_by_logit_then_lower_id(values: list[float]) -> None:
    z = np.array(values, np.float32)
    keys = fp.order_keys(torch.from_numpy(z)[None])
    ids = fp.key_ids(keys.sort(dim=1, descending=True).values)[0]
    assert ids.tolist() == np.lexsort((np.arange(len(z)), -z)).tolist()


@pytest.mark.parametrize("width", [1, 2, 3, 512, 1000, 1024, 1025, 8192, 8193, 17001, 129280])
def test_vocabulary_sum_is_the_written_tree_whatever_shortcut_it_takes(width: int) -> None:
    x = np.random.default_rng(width).random((3, width), np.float32) * np.float32(10)
    x[1] *= np.random.default_rng(1).random(width) < 0.1
    got = fp.vocabulary_sum(torch.from_numpy(x))
    assert got.tolist() == [oracle.tree_sum(row) for row in x]
    assert np.allclose(got.numpy(), x.sum(1, dtype=np.float64), rtol=33 * 2.0**-24)


def test_vocabulary_sum_of_no_rows() -> None:
    assert fp.vocabulary_sum(torch.zeros(0, 5000)).shape == (0,)


def test_weights_are_truncated_and_the_most_likely_token_weighs_exactly_one() -> None:
    z = torch.tensor([[5.0, 5.0 - 31 * np.log(2), -60.0, -np.inf, 4.0]])
    w = fp.weights(z, torch.tensor([5.0]), fp.rate(torch.ones(1)))[0].tolist()
    assert w[0] == 2**31 and w[2:4] == [0, 0] and w[1] in (0, 1)
    assert abs(w[4] - np.exp(-1) * 2**31) < 2**31 * 2e-7
    assert w == oracle.weights(z.numpy()[0], np.float32(1))
