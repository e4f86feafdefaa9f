"""Traces see every op call through the registry, and leave it as it was."""

from __future__ import annotations

import pytest
import torch

from deepinfer import ops
from deepinfer.conformance.trace import TRACE, Trace, tracing
from deepinfer.conformance.variants import VARIANT, installed, variants
from deepinfer.hal.registry import REGISTRY
from deepinfer.ops.spec import BF16, F32, SPECS
from planted import NAME, planted, right


def norm(rows: int = 3) -> torch.Tensor:
    return ops.rms_norm(torch.ones(rows, 64, dtype=BF16), torch.full((64,), 0.5, dtype=BF16), 1e-6)


def test_calls_are_kept_in_order_with_the_kernel_that_ran() -> None:
    with planted(rms_norm=right), tracing(Trace("step 2, layer 7")) as trace:
        y = norm()
        ops.quant_fp8(y)
    assert [(str(c), c.kernel.split(":")[0]) for c in trace.calls] == [
        ("step 2, layer 7, call 0, rms_norm", NAME),
        ("step 2, layer 7, call 1, quant_fp8", "reference"),
    ]
    assert trace.calls[0].results[0] is y and trace.calls[0].step == 2 and trace.calls[0].layer == "layer 7"
    assert trace.fallbacks(NAME) == ["quant_fp8"]
    assert trace.fallbacks(NAME, "cuda") == [], "work in host memory is no fallback of a device"


def test_what_a_call_writes_is_kept_as_it_was() -> None:
    def ints(*values: int) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32)

    ring = torch.zeros(2, 4, 66, dtype=torch.uint8)
    records = torch.full((1, 66), 7, dtype=torch.uint8)
    with planted(window_store=right), tracing(Trace("step 0, layer 0")) as trace:
        for _ in range(2):
            ops.window_store(records, ring, ints(2), ints(0), ints(3), ints(1))
    first, second = trace.calls
    assert first.args[1].eq(0).all() and first.results[0][1, 2].eq(7).all() and second.args[1][1, 2].eq(7).all()
    ring.zero_()
    assert first.results[0][1, 2].eq(7).all()


def test_the_registry_is_as_before() -> None:
    with planted(rms_norm=right):
        before = REGISTRY.kernels()
        with pytest.raises(ZeroDivisionError), tracing(Trace()):
            assert REGISTRY.active == TRACE and len(REGISTRY.kernels()) > len(before)
            raise ZeroDivisionError
        assert REGISTRY.kernels() == before and REGISTRY.active == NAME


def test_pinned_functions_run_instead_and_honour_out() -> None:
    def ones(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return torch.ones_like(x)

    with planted(rms_norm=right), tracing(Trace()) as trace, installed({"rms_norm": ones}):
        out = torch.zeros(3, 64, dtype=BF16)
        assert norm().eq(1).all()
        ops.rms_norm(torch.zeros(3, 64, dtype=BF16), torch.zeros(64, dtype=BF16), 1e-6, out=out)
    assert out.eq(1).all() and not trace.calls
    assert not any(k.backend == VARIANT for k in REGISTRY.kernels())


@pytest.mark.parametrize("name", ["order", "fused", "unrounded_p", "all"])
def test_variants_keep_the_class_of_their_ops(name: str) -> None:
    from deepinfer.conformance.calls import samples
    from deepinfer.conformance.compare.classes import compare

    with planted(rms_norm=right):
        for op, fn in variants()[name].items():
            for sample in samples(SPECS[op]):
                if sample.label.startswith("real"):
                    break
                twin = SPECS[op].run(*sample.args)
                got = fn(*sample.args)
                as_tuple = [v if isinstance(v, tuple) else (v,) for v in (got, twin)]
                report = compare(SPECS[op], sample.args, *as_tuple)
                assert not report.findings, (op, sample.label, report.findings[0])


def test_variants_differ_from_the_reference() -> None:
    x = torch.randn(40, 512, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(64, 512, generator=torch.Generator().manual_seed(1))
    with planted(rms_norm=right):
        handle = ops.linear_bf16_prepare(weight.to(BF16))
        plain = ops.linear_bf16(x.to(BF16), handle, True)
        with installed(variants()["order"]):
            other = ops.linear_bf16(x.to(BF16), handle, True)
    assert plain.dtype == F32 and not plain.equal(other) and plain.allclose(other, atol=1e-3)
