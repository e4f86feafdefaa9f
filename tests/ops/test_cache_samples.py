"""Samples of the cache families: they keep their specs, and the reference takes and repeats them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import cache_world
from deepinfer.ops import attention, index, kv  # noqa: F401 - defines the specs
from deepinfer.ops.spec import SPECS, OpSpec, Sample

CPU = torch.device("cpu")
OPS = [spec for spec in SPECS.values() if spec.family in ("kv", "index", "attention")]


def samples(spec: OpSpec) -> list[Sample]:
    return list(spec.samples(np.random.default_rng(0), CPU))


def copy(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with their own storage; strides and surroundings kept."""

    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        whole = value.untyped_storage().clone()
        return torch.empty(0, dtype=value.dtype).set_(whole, value.storage_offset(), value.shape, value.stride())

    return tuple(map(one, args))


def test_every_op_is_here() -> None:
    assert len(OPS) == 12


@pytest.mark.parametrize("spec", OPS, ids=lambda s: s.name)
def test_samples_keep_the_spec(spec: OpSpec) -> None:
    seen = samples(spec)
    for sample in seen:
        dims = spec.dims(*sample.args)
        args = copy(sample.args)
        got = spec.run(*args)
        assert (got is None) == (not spec.outs)
        for described, value in zip(spec.outs, (got,), strict=False):
            assert tuple(value.shape) == tuple(d.value(dims) for d in described.dims), sample.label
            assert value.dtype in described.dtypes
        again = copy(sample.args)
        assert same(spec.run(*again), got) and all(same(a, b) for a, b in zip(args, again, strict=True))
        for described, before, after in zip(spec.args, sample.args, args, strict=True):
            if not getattr(described, "mutable", False):
                assert same(before, after), f"{sample.label}: {described.name} was written"


def same(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor):
        return bool(a == b)
    return cache_world.same_bits(a, b)
