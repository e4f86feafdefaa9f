"""The suite `determinism` sees what it is there for: planted kernels fail the right check."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

import deepinfer.ops
from deepinfer.conformance.suites import determinism
from deepinfer.ops.spec import SPECS
from planted import planted, right

assert deepinfer.ops
Right = Callable[..., Any]


def checks(op: str, fault: Callable[..., Any], workspace: Callable[..., int] | None = None) -> list[str]:
    with planted(workspace, **{op: fault}) as target:
        found = [c.run(target) for c in determinism.cases("quick", [SPECS[op]]) if not c.label.startswith("real")]
        assert found and not any(o.skipped for o in found), [o.skipped for o in found]
        return [f.check for o in found for f in o.findings]


@pytest.mark.parametrize(
    "op", ["rms_norm", "quant_fp8", "moe_pack", "window_store", "sample_filter", "sparse_attention"]
)
def test_right_kernels_pass(op: str) -> None:
    assert checks(op, right) == []


def bump(y: Tensor, by: int) -> Tensor:
    y = y.clone()
    y.view(torch.int16)[..., 0] += by
    return y


def test_another_result_per_call() -> None:
    calls = count()
    assert "repeat" in checks("rms_norm", lambda fn, *args: bump(fn(*args), next(calls) % 2))


def test_a_store_that_adds_up() -> None:
    calls = count(1)

    def fault(fn: Right, records: Tensor, ring: Tensor, *rest: Any) -> None:
        fn(records, ring, *rest)
        ring[:, :, 0] += next(calls)

    assert "repeat" in checks("window_store", fault)


def test_an_output_that_is_added_to() -> None:
    def fault(fn: Right, x: Tensor, weight: Tensor, eps: float, out: Tensor | None) -> Tensor:
        y = fn(x, weight, eps, None)
        return y if out is None else out.copy_(torch.where(out == 0, y, y + 0 * out))

    assert checks("rms_norm", fault).count("memory") >= 1


def test_scratch_memory_that_is_read_before_it_is_written() -> None:
    def fault(fn: Right, x: Tensor, weight: Tensor, eps: float, out: Any, scratch: Tensor | None = None) -> Tensor:
        y = fn(x, weight, eps, None)
        y = y if scratch is None else bump(y, int(scratch[0]) & 1)
        return y if out is None else out.copy_(y)

    assert set(checks("rms_norm", fault, lambda *args: 64)) == {"workspace"}


def test_the_last_call_shows() -> None:
    last: list[int] = [0]

    def fault(fn: Right, x: Tensor, *rest: Any) -> Tensor:
        before, last[0] = last[0], x.shape[0]
        return bump(fn(x, *rest), int(before not in (0, x.shape[0])))

    assert "after" in checks("rms_norm", fault)


def test_sums_that_are_split_over_threads() -> None:
    def fault(fn: Right, *args: Any) -> Tensor:
        return bump(fn(*args), torch.get_num_threads() - 1)

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert "threads" in checks("rms_norm", fault)
    finally:
        torch.set_num_threads(before)


def test_a_replay_that_depends_on_the_capture() -> None:
    calls = count()

    def fault(fn: Right, *args: Any) -> Tensor:
        with_out = args[-1] is not None
        y = fn(*args[:-1], None)
        y = bump(y, next(calls)) if with_out and args[-1].view(torch.uint8).flatten()[0] == 0xA5 else y
        return y if args[-1] is None else args[-1].copy_(y)

    assert "replay" in checks("rms_norm", fault)


def test_threads_are_as_they_were() -> None:
    before = torch.get_num_threads()
    checks("quant_fp8", right)
    assert torch.get_num_threads() == before
