"""Embedding and row selection."""

from __future__ import annotations

import numpy as np
import torch

from deepinfer import ops
from deepinfer.backends.reference import embed  # noqa: F401  (registers the kernels)


def test_every_stream_starts_as_the_embedding_and_the_mix_is_one_hot() -> None:
    weight = torch.randn(10, 6).to(torch.bfloat16)
    ids = torch.tensor([3, 9, 0], dtype=torch.int32)
    x, pending = ops.embed_streams(ids, weight, 4)
    for stream in range(4):
        assert x[:, stream].equal(weight[ids])
    assert pending.tolist() == [[1, 0, 0, 0]] * 3


def test_ids_outside_the_vocabulary_give_zeros_and_read_nothing() -> None:
    weight = torch.full((10, 6), torch.nan, dtype=torch.bfloat16)
    weight[4] = 2.0
    ids = torch.tensor([-1, 10, 4, 2**31 - 1, -(2**31)], dtype=torch.int32)
    x, pending = ops.embed_streams(ids, weight, 2)
    assert x[[0, 1, 3, 4]].eq(0).all() and x[2].eq(2).all()
    assert pending.tolist() == [[1, 0]] * 5


def test_gather_rows_pads_repeats_and_copies_bits() -> None:
    for dtype, carrier in ((torch.bfloat16, torch.int16), (torch.float32, torch.int32)):
        bits = torch.from_numpy(np.random.default_rng(0).integers(-(2**15), 2**15, (7, 5))).to(carrier)
        x = bits.view(dtype)  # arbitrary bits, NaN payloads among them
        rows = torch.tensor([6, -1, 0, 0, 7], dtype=torch.int32)
        got = ops.gather_rows(x, rows)
        assert got.dtype == dtype
        assert got.view(carrier)[[0, 2, 3]].equal(bits[[6, 0, 0]])
        assert got.view(carrier)[[1, 4]].eq(0).all()
    assert ops.gather_rows(x[:0], rows).eq(0).all()
