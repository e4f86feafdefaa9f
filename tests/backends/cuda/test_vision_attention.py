"""Attention within an image: the class, and an image's bits wherever it lies."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import numpy as np

from cuda_calls import DEVICE, PLAIN, SPOILT, STRIDED, assert_kept, every_call, on_cuda, run, sample
from deepinfer.ops.layer_samples import ints, normal
from deepinfer.ops.spec import SPECS

CPU = torch.device("cpu")
OP = "image_attention"


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int16)


def images(rng: np.random.Generator, *lengths: int, heads: int = 2, d: int = 24) -> list[Any]:
    """q, k, v, begin, end, scale of images side by side."""
    ends = np.cumsum(lengths)
    qkv = normal(rng, CPU, int(ends[-1]), 3, heads, d)
    begin, end = (ints(np.repeat(x, lengths), CPU) for x in (ends - np.array(lengths), ends))
    return [*qkv.unbind(1), begin, end, d**-0.5]


@pytest.mark.parametrize("variant", [PLAIN, STRIDED, SPOILT])
def test_small_calls_in_every_form(variant: str) -> None:
    assert_kept(OP, sample(OP, "images of several sizes, padding").args, variant)


@pytest.mark.parametrize("label", ["no rows", "one key", "three images", "ranges that overlap", "steep", "many rows"])
def test_samples(label: str) -> None:
    assert_kept(OP, sample(OP, label).args)


def test_an_image_has_its_bits_wherever_it_lies() -> None:
    """Alone, behind others across a border of tiles, among rows whose values are not numbers, and in pieces."""
    rng = np.random.default_rng(1)
    q, k, v, begin, end, scale = images(rng, 70, 141, 5)
    (all_,) = run(OP, q, k, v, begin, end, scale)
    mine = slice(70, 211)
    (alone,) = run(OP, *(x[mine] for x in (q, k, v)), begin[mine] - 70, end[mine] - 70, scale)
    assert torch.equal(bits(alone), bits(all_[mine]))
    (piece,) = run(OP, q[150:160], k, v, begin[150:160], end[150:160], scale)
    assert torch.equal(bits(piece), bits(all_[150:160]))
    for x in (q, k, v):
        x[:70], x[211:] = torch.nan, torch.nan
    (again,) = run(OP, q, k, v, begin, end, scale)
    assert torch.equal(bits(again[mine]), bits(all_[mine]))


@pytest.mark.gpu
def test_every_required_call() -> None:
    for label, args, variant in every_call(OP):
        try:
            assert_kept(OP, args, variant)
        except AssertionError as error:
            raise AssertionError(f"{label}: {error}") from None


@pytest.mark.gpu
def test_bits_at_released_sizes() -> None:
    rng = np.random.default_rng(2)
    given = images(rng, 300, 1700, 37, 650, heads=16, d=64)
    *tensors, scale = (x.to(DEVICE) if isinstance(x, torch.Tensor) else x for x in given)
    with on_cuda():
        call = SPECS[OP].run
        many = call(*tensors, scale)
        for first, count in ((0, 300), (300, 1700), (2000, 37), (2037, 650)):
            part = slice(first, first + count)
            q, k, v = (x[part].contiguous() for x in tensors[:3])
            begin, end = (x[part] - first for x in tensors[3:])
            assert torch.equal(bits(call(q, k, v, begin, end, scale)), bits(many[part])), first
