"""Which arguments of a call may share memory: `out` overlaps none, a mutable argument overlaps no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deepinfer import ops
from deepinfer.backends import reference
from deepinfer.conformance.compare.exact import same_bits
from deepinfer.hal.errors import ContractError
from deepinfer.ops.spec import BF16, E4M3, I32, SPECS, U8

EPS = 1e-6


@pytest.fixture(autouse=True)
def kernels() -> None:
    reference.backend.load()


def buffer(rows: int) -> Tensor:
    return torch.arange(rows * 64, dtype=torch.float32).remainder(7).to(BF16).view(rows, 64)


def test_out_may_not_overlap_an_argument_in_any_byte() -> None:
    whole, weight = buffer(9), torch.ones(64, dtype=BF16)
    x = whole[2:6]
    for first in (1, 2, 5):
        with pytest.raises(ContractError, match=r"op rms_norm \(version 0\): out y overlaps x"):
            ops.rms_norm(x, weight, EPS, out=whole[first : first + 4])
    row = torch.zeros(64, dtype=BF16)
    with pytest.raises(ContractError, match="out y overlaps weight"):
        ops.rms_norm(buffer(1), row, EPS, out=row.view(1, 64))


def test_out_may_lie_beside_an_argument_in_one_buffer() -> None:
    whole, weight = buffer(9), torch.ones(64, dtype=BF16)
    want = ops.rms_norm(whole[:4].clone(), weight, EPS)
    assert same_bits(ops.rms_norm(whole[:4], weight, EPS, out=whole[4:8]), want)
    assert ops.rms_norm(whole[:0], weight, EPS, out=whole[:0]).shape == (0, 64)


def test_out_may_not_lie_between_strided_rows() -> None:
    whole = torch.zeros(4 * 128, dtype=BF16)
    x = whole.view(2, 256)[:, :64]
    with pytest.raises(ContractError, match="out y overlaps x"):
        ops.rms_norm(x, torch.ones(64, dtype=BF16), EPS, out=whole[64:192].view(2, 64))


def test_out_may_not_overlap_a_prepared_weight() -> None:
    weight = torch.zeros(64, 64, dtype=BF16)
    handle = ops.linear_bf16_prepare(weight)
    with pytest.raises(ContractError, match="out y overlaps weight"):
        ops.linear_bf16(torch.zeros(2, 64, dtype=BF16), handle, False, out=weight[3:5])


def test_outs_may_not_overlap_each_other() -> None:
    memory = torch.zeros(4 * 66, dtype=U8)
    q, scale = memory[: 4 * 64].view(E4M3).view(4, 64), memory[4 * 64 - 8 : 4 * 64].view(4, 2)
    with pytest.raises(ContractError, match="out scale overlaps out q"):
        ops.quant_fp8(buffer(4), out=(q, scale))


def ring_store(records: Tensor, ring: Tensor) -> None:
    def ints(*values: int) -> Tensor:
        return torch.tensor(values, dtype=I32)

    ops.window_store(records, ring, ints(0, 1), ints(0, 0), ints(2), ints(0))


def test_a_mutable_argument_may_not_overlap_another() -> None:
    memory = torch.zeros(1, 4, 66, dtype=U8)
    with pytest.raises(ContractError, match=r"op window_store \(version 0\): ring, which is written, overlaps records"):
        ring_store(memory[0, :2], memory)
    ring_store(torch.zeros(2, 66, dtype=U8), memory)


IN_PLACE = {
    "adjust_logits": ("adjusted", "logits"),
    "engram_gate": ("x_new", "x"),
    "hc_expand": ("x_new", "x"),
    "image_rope": ("y", "qkv"),
    "scatter_embeds": ("y", "x"),
}


def test_ops_that_work_in_place_say_so() -> None:
    found = {name: (out.name, out.in_place) for name, spec in SPECS.items() for out in spec.outs if out.in_place}
    assert found == IN_PLACE


@pytest.mark.parametrize("op", sorted(IN_PLACE))
def test_in_place_gives_the_same_bits(op: str) -> None:
    spec = SPECS[op]
    for sample in spec.samples(np.random.default_rng(0), torch.device("cpu")):
        if sample.label.startswith("real"):
            continue
        want = spec.run(*sample.args)
        args = in_place(op, sample.args)
        assert same_bits(spec.run(*args, args[0]), want), sample.label


@pytest.mark.parametrize("op", sorted(IN_PLACE))
def test_in_place_means_the_very_same_memory(op: str) -> None:
    spec = SPECS[op]
    sample = next(s for s in spec.samples(np.random.default_rng(0), torch.device("cpu")) if s.args[0].shape[0] > 1)
    size = sample.args[0].numel()
    memory = torch.zeros(size + 1, dtype=sample.args[0].dtype)
    shifted = memory[1:].view(sample.args[0].shape)
    args = (memory[:size].view(sample.args[0].shape).copy_(sample.args[0]), *sample.args[1:])
    out, source = IN_PLACE[op]
    with pytest.raises(ContractError, match=f"out {out} overlaps {source}; it may only be {source} itself"):
        spec.run(*args, shifted)


def in_place(op: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    assert SPECS[op].args[0].name == IN_PLACE[op][1]
    return (args[0].clone(), *args[1:])


def test_the_rule_is_stated_where_ops_are_described() -> None:
    from deepinfer.ops import describe

    assert "overlaps no argument" in " ".join((ops.__doc__ or "").split())
    page = " ".join(describe.markdown().split())
    assert "overlaps no argument" in page and "may be logits itself" in page
