"""Batch invariance of every row-wise op: a row alone, in any batch, permuted, or beside NaN rows has the same bits."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer.conformance.compare.exact import same_bits
from deepinfer.ops.spec import SPECS, OpSpec, TensorArg

CPU = torch.device("cpu")
FAMILIES = ("embed", "norm", "quant", "linear", "rope", "hyper_connections", "moe", "engram")
for _family in FAMILIES:
    importlib.import_module(f"deepinfer.ops.{_family}")
    importlib.import_module(f"deepinfer.backends.reference.{_family}")

# Ops whose outputs have one row per row of the first dynamic dim. Packing and grouped products have tests of their own.
ROW_OPS = (
    "embed_streams",
    "rms_norm",
    "quant_fp8",
    "linear_fp8",
    "linear_fp8_grouped",
    "linear_bf16",
    "rope",
    "hc_coefficients",
    "hc_collapse",
    "hc_expand",
    "moe_gate",
    "swiglu_quant",
    "engram_hash",
    "engram_gather",
    "engram_gate",
)


def samples(op: str, real: bool = False) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for sample in SPECS[op].samples(np.random.default_rng(5), CPU):
        if sample.label.startswith("real") == real:
            yield sample.label, sample.args


def take(spec: OpSpec, args: tuple[Any, ...], rows: torch.Tensor) -> tuple[Any, ...]:
    """The arguments of a call over some of the rows."""
    dynamic = spec.dynamic[0]
    return tuple(
        value[rows] if isinstance(arg, TensorArg) and value is not None and arg.dims[0].text == dynamic else value
        for arg, value in zip(spec.args, args, strict=True)
    )


def pick(result: Any, rows: torch.Tensor) -> Any:
    return tuple(r[rows] for r in result) if isinstance(result, tuple) else result[rows]


@pytest.mark.parametrize("op", ROW_OPS)
@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_row_result_depends_on_the_row_alone(op: str, real: bool) -> None:
    spec = SPECS[op]
    for label, args in samples(op, real):
        whole = spec.run(*args)
        count = (whole[0] if isinstance(whole, tuple) else whole).shape[0]
        if count == 0:
            continue
        rng = np.random.default_rng(count)
        singles = [torch.tensor([r]) for r in {0, count // 2, count - 1}]
        order = torch.from_numpy(rng.permutation(count))
        repeated = torch.from_numpy(rng.integers(0, count, 53))
        for rows in (*singles, order, order[: count // 2 + 1], repeated):
            got = spec.run(*take(spec, args, rows))
            assert same_bits(got, pick(whole, rows)), label


@pytest.mark.parametrize(
    "op", ["rms_norm", "linear_bf16", "hc_coefficients", "hc_collapse", "engram_gate", "swiglu_quant"]
)
def test_neighbours_of_nan_do_not_matter(op: str) -> None:
    spec = SPECS[op]
    for label, args in samples(op):
        whole = spec.run(*args)
        count = (whole[0] if isinstance(whole, tuple) else whole).shape[0]
        if count < 2:
            continue
        kept = torch.arange(0, count, 2)
        poisoned = (args[0].clone(), *args[1:])
        poisoned[0][1::2] = torch.nan
        assert same_bits(pick(spec.run(*poisoned), kept), pick(whole, kept)), label
