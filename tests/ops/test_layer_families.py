"""Every op of the dense, MoE and Engram families: what its spec and samples promise, whatever the kernel."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer.conformance.compare.exact import same_bits
from deepinfer.hal.errors import ContractError, KernelError
from deepinfer.ops.spec import SPECS, OpSpec, Sample

CPU = torch.device("cpu")
FAMILIES = ("embed", "norm", "quant", "linear", "rope", "hyper_connections", "moe", "engram")
for _family in FAMILIES:
    importlib.import_module(f"deepinfer.ops.{_family}")
    importlib.import_module(f"deepinfer.backends.reference.{_family}")

OPS = [name for name, spec in SPECS.items() if spec.family in FAMILIES]
QUICK = 1 << 22
"""Samples that move fewer bytes than this run in every test run."""


def samples(spec: OpSpec) -> list[Sample]:
    return list(spec.samples(np.random.default_rng(3), CPU))


def as_tuple(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def test_every_op_of_the_families_is_here() -> None:
    assert len(OPS) == 19


@pytest.mark.parametrize("op", OPS)
def test_outputs_have_the_stated_shapes_and_out_gets_the_same_bits(op: str) -> None:
    spec = SPECS[op]
    for sample in samples(spec):
        dims = spec.dims(*sample.args)
        if spec.cost(dims).bytes > QUICK and sample.label.startswith("real"):
            continue
        got = as_tuple(spec.run(*sample.args))
        dims.setdefault("M", dims.get("X", 0))  # grouped_linear over packed rows
        for value, described in zip(got, spec.outs, strict=True):
            assert tuple(value.shape) == tuple(d.value(dims) for d in described.dims), sample.label
            assert value.dtype in described.dtypes and value.is_contiguous()
        out = tuple(torch.zeros_like(value, memory_format=torch.contiguous_format) for value in got)
        returned = as_tuple(spec.run(*sample.args, out if len(out) > 1 else out[0]))
        assert all(a is b for a, b in zip(returned, out, strict=True))
        assert same_bits(out, got), sample.label


@pytest.mark.parametrize("op", OPS)
def test_arguments_are_left_alone_and_results_are_repeatable(op: str) -> None:
    spec = SPECS[op]
    for sample in samples(spec):
        if sample.label.startswith("real"):
            continue
        before = [x.clone() if isinstance(x, torch.Tensor) else x for x in sample.args]
        first = spec.run(*sample.args)
        assert same_bits(spec.run(*sample.args), first), sample.label
        for x, y in zip(sample.args, before, strict=True):
            assert not isinstance(x, torch.Tensor) or same_bits(x, y), sample.label


@pytest.mark.parametrize("op", OPS)
def test_semantics_say_something_about_every_output(op: str) -> None:
    assert len(SPECS[op].semantics) > 80


def test_shapes_that_do_not_fit_are_refused_by_name() -> None:
    from deepinfer import ops

    bf16 = torch.zeros(3, 64, dtype=torch.bfloat16)
    with pytest.raises(ContractError, match="rms_norm.*weight"):
        ops.rms_norm(bf16, torch.zeros(63, dtype=torch.bfloat16), 1e-6)
    with pytest.raises(ContractError, match="quant_fp8.*out scale"):
        q = torch.zeros(3, 64, dtype=torch.float8_e4m3fn)
        ops.quant_fp8(bf16, out=(q, torch.zeros(3, 3, dtype=torch.uint8)))
    with pytest.raises(ContractError, match="linear_fp8.*scale"):
        ops.linear_fp8_prepare(torch.zeros(33, 64, dtype=torch.float8_e4m3fn), torch.zeros(1, 2, dtype=torch.uint8))
    with pytest.raises(KernelError, match="multiple of 32"):
        ops.quant_fp8(bf16[:, :40])
    with pytest.raises(KernelError, match="multiple of 32"):
        ops.linear_fp8_prepare(torch.zeros(32, 40, dtype=torch.float8_e4m3fn), torch.zeros(1, 1, dtype=torch.uint8))
    logits, image = torch.zeros(2, 4), torch.zeros(2, dtype=torch.bool)
    for k in (0, 5):
        with pytest.raises(ContractError, match="moe_gate.*k is"):
            ops.moe_gate(logits, logits[0], logits[0], image, k, 1.5)
    with pytest.raises(ContractError, match="swiglu_quant.*limit"):
        ops.swiglu_quant(bf16, None, 0.0)


def test_grouped_linear_checks_out_rows_without_source_rows() -> None:
    from deepinfer import ops

    zeros = torch.zeros(2, 32, 17, dtype=torch.uint8)
    weight = ops.grouped_linear_prepare(zeros[..., :16].contiguous(), zeros[..., 16:].contiguous())
    xq, xs = torch.zeros(3, 32, dtype=torch.float8_e4m3fn), torch.zeros(3, 1, dtype=torch.uint8)
    offsets = torch.tensor([0, 1, 3], dtype=torch.int32)
    with pytest.raises(ContractError, match="out has 4 rows"):
        ops.grouped_linear(xq, xs, weight, None, offsets, out=torch.zeros(4, 32, dtype=torch.bfloat16))
