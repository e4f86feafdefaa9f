"""Every op's samples on a GPU: the reference there lies in the op's numerics class, with the CPU's NaN and infinities.

Both references lie within the limit of the same float64 oracle, so they differ by at most twice the limit.
`test_numerics.py` holds the CPU to the same check and plants the faults that it must see.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import deepinfer.ops
import numerics_checks
from deepinfer.backends import reference
from deepinfer.ops.spec import SPECS, WeightHandle

pytestmark = pytest.mark.gpu
assert deepinfer.ops
NAMES = sorted(SPECS)


@pytest.mark.parametrize("name", NAMES)
def test_samples_lie_in_the_numerics_class(name: str) -> None:
    reference.backend.load()
    spec = SPECS[name]
    for sample in spec.samples(np.random.default_rng(5), torch.device("cuda")):
        args = numerics_checks.to_cpu(sample.args)
        twin = numerics_checks.results(spec, numerics_checks.to_cpu(sample.args))
        got = numerics_checks.to_cpu(numerics_checks.results(spec, sample.args))
        assert not (found := numerics_checks.faults(spec, args, got, twin)), f"{sample.label}: {found}"


def test_prepared_weights_stay_where_they_are() -> None:
    reference.backend.load()
    weight = torch.zeros(32, 64, dtype=torch.bfloat16, device="cuda")
    handle = deepinfer.ops.linear_bf16_prepare(weight)
    assert isinstance(handle, WeightHandle) and handle.tensors[0].data_ptr() == weight.data_ptr()
