"""Calls with NaN and infinities: in rows that count, nowhere else, and seen when they are lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import deepinfer.ops  # noqa: F401 - defines the specs
from deepinfer.conformance.calls import samples
from deepinfer.conformance.oracle.cache import stored_entries
from deepinfer.conformance.spoilt import spoil
from deepinfer.hal.catalog import CATALOG
from deepinfer.ops.spec import SPECS


def sample(op: str, label: str) -> tuple[Any, ...]:
    CATALOG.load("reference")
    return next(s.args for s in samples(SPECS[op]) if s.label == label)


def test_three_rows_get_one_number_each_and_the_call_stays() -> None:
    args = sample("rms_norm", "37 rows")
    x, weight, eps = spoil(SPECS["rms_norm"], args)
    lost = ~x.isfinite()
    assert lost.sum() == 3 and lost.any(1).sum() == 3
    assert x[lost].isnan().any() and (x[lost] == torch.inf).any() and (x[lost] == -torch.inf).any()
    assert torch.equal(x[~lost], args[0][~lost]) and args[0].isfinite().all()
    assert weight is args[1] and eps is args[2]


def test_rows_that_nobody_names_stay() -> None:
    args = sample("gather_rows", "padding, repeats, NaN rows left out")
    x, rows = spoil(SPECS["gather_rows"], args)
    changed = {i for i in range(len(x)) if not torch.equal(x[i].view(torch.int16), args[0][i].view(torch.int16))}
    assert changed and changed <= set(rows.tolist())


def test_the_oracle_of_a_store_keeps_the_sign_of_an_infinity() -> None:
    args = list(sample("compressed_store", "odd chunk, ratio 1, fp4_16"))
    args[0] = args[0].clone()
    args[0][2, 3] = -torch.inf
    value = stored_entries("compressed_store", args)[0].value
    assert float(value[2, 3]) == -np.inf and value[2, :3].isfinite().all()
