"""Every op's samples on a GPU: the reference there against the reference on the CPU, by numerics class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import deepinfer.ops
from deepinfer.backends import reference
from deepinfer.ops.numerics import Exact
from deepinfer.ops.spec import SPECS, OpSpec, WeightHandle

pytestmark = pytest.mark.gpu
assert deepinfer.ops
NAMES = sorted(SPECS)

# Outputs of the other classes are compared with room for one quantisation step, counted in values that differ at all:
# fp32 sums in another order move a bf16 result to its neighbour now and then, never most of them.
NEIGHBOURS = 0.02


def results(spec: OpSpec, device: str, label: str) -> list[torch.Tensor]:
    """Outputs and written arguments of one sample on a device, on the CPU."""
    sample = next(s for s in spec.samples(np.random.default_rng(5), torch.device(device)) if s.label == label)
    out = spec.run(*sample.args)
    outs = out if isinstance(out, tuple) else () if out is None else (out,)
    written = [v for a, v in zip(spec.args, sample.args, strict=True) if getattr(a, "mutable", False)]
    return [t.cpu() for t in (*outs, *written)]


def bits(tensor: torch.Tensor) -> Any:
    """Bytes, with every NaN spelled alike: which NaN an operation returns is nobody's promise."""
    if tensor.is_floating_point() and tensor.element_size() > 1:
        tensor = torch.where(tensor.isnan(), torch.nan, tensor)
    return tensor.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8).numpy()


@pytest.mark.parametrize("name", NAMES)
def test_samples_agree_with_the_cpu(name: str) -> None:
    reference.backend.load()
    spec = SPECS[name]
    labels = [s.label for s in spec.samples(np.random.default_rng(5), torch.device("cpu"))]
    for label in labels:
        cpu, gpu = results(spec, "cpu", label), results(spec, "cuda", label)
        assert len(cpu) == len(gpu)
        for want, got in zip(cpu, gpu, strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            differ = bits(got) != bits(want)
            if isinstance(spec.numerics, Exact):
                assert not differ.any(), f"{label}: {int(differ.sum())} bytes of an exact op differ"
            elif want.is_floating_point() and want.element_size() > 1:
                assert torch.equal(got.isnan(), want.isnan()) and torch.equal(got.isinf(), want.isinf()), label
                a, b = got.double().nan_to_num(0, 0, 0), want.double().nan_to_num(0, 0, 0)
                scale = b.abs().amax() if b.numel() else 1.0
                assert ((a - b).abs() <= 2**-7 * scale).all(), label
            elif differ.size:
                assert differ.mean() <= NEIGHBOURS, f"{label}: {differ.mean():.3f} of the bytes differ"


def test_prepared_weights_stay_where_they_are() -> None:
    reference.backend.load()
    weight = torch.zeros(32, 64, dtype=torch.bfloat16, device="cuda")
    handle = deepinfer.ops.linear_bf16_prepare(weight)
    assert isinstance(handle, WeightHandle) and handle.tensors[0].data_ptr() == weight.data_ptr()
