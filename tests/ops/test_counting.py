"""Op counters: every dispatched call is counted once, with its rows, and nothing else changes."""

from __future__ import annotations

import threading

import pytest
import torch

from deepinfer import ops
from deepinfer.backends import reference
from deepinfer.hal.registry import REGISTRY
from deepinfer.ops.counting import counting
from deepinfer.ops.spec import SPECS


@pytest.fixture(autouse=True)
def loaded() -> None:
    reference.backend.load()


def test_rows_and_work_of_every_call_in_order() -> None:
    x, weight = torch.ones(5, 64, dtype=torch.bfloat16), torch.ones(64, dtype=torch.bfloat16)
    with counting() as counts:
        got = ops.rms_norm(x, weight, 1e-6)
        ops.rms_norm(x[:2], weight, 1e-6)
        ops.rms_norm(x[:0], weight, 1e-6)
        ops.quant_fp8(x)
    assert counts.rows == {"rms_norm": [5, 2, 0], "quant_fp8": [5]}
    assert counts.calls == 4 and counts.total_rows() == 12 and counts.total_rows("rms_norm", "rope") == 7
    cost = SPECS["quant_fp8"].work(x)
    assert (counts.flops["quant_fp8"], counts.bytes["quant_fp8"]) == (cost.flops, cost.bytes)
    assert counts.total_flops == sum(counts.flops.values()) > cost.flops
    assert torch.equal(got, ops.rms_norm(x, weight, 1e-6))


def test_nothing_is_left_behind() -> None:
    before = REGISTRY.kernels(), REGISTRY.active
    with pytest.raises(ZeroDivisionError), counting() as counts:
        raise ZeroDivisionError
    assert (REGISTRY.kernels(), REGISTRY.active) == before
    ops.quant_fp8(torch.ones(1, 32, dtype=torch.bfloat16))
    assert counts.calls == 0


def test_optional_arguments_and_other_threads() -> None:
    with counting() as counts:
        ids = torch.tensor([1, 2, 3], dtype=torch.int32)
        table = torch.ones(4, 32, dtype=torch.bfloat16)
        thread = threading.Thread(target=ops.embed_streams, args=(ids, table, 2))
        thread.start()
        thread.join()
    assert counts.rows == {"embed_streams": [3]}


def test_a_backend_without_kernels_is_counted_through_its_fallbacks() -> None:
    with REGISTRY.using("nobody"), counting() as counts:
        ops.quant_fp8(torch.ones(2, 32, dtype=torch.bfloat16))
    assert counts.rows == {"quant_fp8": [2]} and REGISTRY.active == "reference"
