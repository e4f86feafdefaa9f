"""Fused ops: the reference is the composition, and the comparators see decisions that are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer import ops
from deepinfer.backends import reference
from deepinfer.conformance.compare.classes import compare
from deepinfer.conformance.compare.exact import same_bits
from deepinfer.conformance.oracle.formats import decode
from deepinfer.conformance.oracle.fused import collapsed_norm
from deepinfer.hal.errors import ContractError, KernelError
from deepinfer.ops import layer_samples as make
from deepinfer.ops.spec import SPECS

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def kernels() -> None:
    reference.backend.load()


def samples(name: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for sample in SPECS[name].samples(np.random.default_rng(2), CPU):
        if not sample.label.startswith("real"):
            yield sample.label, sample.args


def checks(name: str, args: tuple[Any, ...], got: tuple[torch.Tensor, ...], twin: tuple[torch.Tensor, ...]) -> set[str]:
    return {finding.check for finding in compare(SPECS[name], args, got, twin).findings}


def test_norm_and_quantise_are_the_two_ops() -> None:
    for label, (x, weight, eps) in samples("rms_norm_quant"):
        y = ops.rms_norm(x, weight, eps)
        assert same_bits(tuple(ops.rms_norm_quant(x, weight, eps)), (y, *ops.quant_fp8(y))), label


def test_collapse_and_norm_are_the_three_ops() -> None:
    for label, (x, pending, weight, eps) in samples("hc_collapse_norm"):
        y = ops.rms_norm(ops.hc_collapse(x, pending), weight, eps)
        assert same_bits(tuple(ops.hc_collapse_norm(x, pending, weight, eps)), (y, *ops.quant_fp8(y))), label


def test_router_and_gate_are_the_two_ops() -> None:
    for label, (x, gate, bias, bias_vl, image, k, scaling) in samples("moe_route"):
        logits = ops.linear_bf16(x, ops.linear_bf16_prepare(gate.tensors[0]), True)
        want = (*ops.moe_gate(logits, bias, bias_vl, image, k, scaling), logits)
        assert same_bits(ops.moe_route(x, gate, bias, bias_vl, image, k, scaling), want), label


def test_scores_and_selection_are_the_two_ops() -> None:
    for label, args in samples("index_topk"):
        query, head_weight, pages, visible, row_seq, table, blocks, ratio, entries, size, k = args
        visible = torch.where(row_seq >= 0, visible, 0)
        where = (visible, row_seq, table, ratio)
        if blocks is None:
            scores = ops.index_score(query, head_weight, pages, *where, entries)
        else:
            scores = ops.index_score_blocks(query, head_weight, pages, blocks, *where, size)
        indices, chosen = ops.index_topk(*args)
        assert indices.equal(ops.topk_select(scores, visible, k, blocks, size)), label
        (mask,) = SPECS["index_topk"].defined(*args)[1:]
        assert mask is not None and mask.equal(indices >= 0), label
        for t, i in np.ndindex(*indices.shape):
            entry = int(indices[t, i])
            if entry >= 0:
                lane = entry if blocks is None else blocks[t].tolist().index(entry // size) * size + entry % size
                assert same_bits(chosen[t, i], scores[t, lane]), (label, t, i)


def test_padding_rows_choose_nothing_whatever_they_are_said_to_see() -> None:
    for label, args in samples("index_topk"):
        if "mixed" in label:
            args = (*args[:3], torch.where(args[4] < 0, 9, args[3]), *args[4:])
            indices, _ = ops.index_topk(*args)
            assert (args[4] < 0).any() and (indices[args[4] < 0] == -1).all()


def test_collapsed_norm_bound_holds_without_the_rounding_in_between_and_is_tight() -> None:
    """fp32 collapse without a bf16 rounding is within the bound; a few bf16 roundings more are not."""
    rng = np.random.default_rng(3)
    x, pending = make.normal(rng, CPU, 40, 4, 96), make.normal(rng, CPU, 40, 4, dtype=torch.float32)
    weight = make.normal(rng, CPU, 96)
    oracle = collapsed_norm(x, pending, weight, 1e-20)
    u = (x.float() * pending.unsqueeze(2)).sum(1)
    y = (u * torch.rsqrt((u * u).mean(1, keepdim=True) + 1e-20) * weight.float()).bfloat16()
    share = (y.double() - oracle.want).abs() / oracle.limit
    assert 0.2 < share.max() < 1
    coarse = (y.double() * (1 + 4 * 2.0**-8) - oracle.want).abs() / oracle.limit
    assert (coarse > 1).any()
    cancelling = torch.stack((x[:, 0], x[:, 0]), dim=1)
    vanish = collapsed_norm(cancelling, torch.tensor([[1.0, -1.0]]).expand(40, 2), weight, 1e-20)
    assert not vanish.want.any() and (vanish.limit >= 96**0.5 * weight.abs().double() * 1.9).all()


@pytest.mark.parametrize("name", ["rms_norm_quant", "hc_collapse_norm"])
def test_wrong_rows_and_codes_are_seen(name: str) -> None:
    args = next(a for label, a in samples(name) if label == "37 rows")
    right = tuple(SPECS[name].run(*args))
    assert not checks(name, args, right, right)
    y, q, scale = (part.clone() for part in right)
    y[5, 7] *= 1.05
    assert "limit" in checks(name, args, (y, q, scale), right)
    q.view(torch.uint8)[3, 64] ^= 1
    assert checks(name, args, (right[0], q, scale), right) == {"bits"}
    scale[9, 2] += 1
    assert checks(name, args, (right[0], right[1], scale), right) == {"bits"}
    # Codes of the rows before they were rounded to bf16 are not codes of y.
    fp32 = args[0].float() if name == "rms_norm_quant" else (args[0].float() * args[1].unsqueeze(2)).sum(1)
    exact = fp32 * torch.rsqrt((fp32 * fp32).mean(1, keepdim=True)) * args[-2].float()
    assert "bits" in checks(name, args, (right[0], *ops.quant_fp8(exact)), right)


def test_wrong_routes_are_seen() -> None:
    args = next(a for label, a in samples("moe_route") if label == "equal experts")
    right = ops.moe_route(*args)
    assert not checks("moe_route", args, right, right)
    weights, experts, logits = (part.clone() for part in right)
    logits[3] *= 1 + 1e-4
    assert "limit" in checks("moe_route", args, (weights, experts, logits), right)
    swapped = tuple(part.flip(1) for part in right[:2])
    assert "decision" in checks("moe_route", args, (*swapped, right[2]), right)
    tied = right[1].clone()
    row = int((right[1] == 0).any(1).nonzero()[0])  # expert 0 of five equal ones gives way to expert 4
    if 4 not in tied[row].tolist():
        tied[row][tied[row] == 0] = 4
        assert "decision" in checks("moe_route", args, (right[0], tied, right[2]), right)


def test_wrong_selections_are_seen() -> None:
    args = next(a for label, a in samples("index_topk") if label == "mixed batch, ratio 1")
    right = ops.index_topk(*args)
    assert not checks("index_topk", args, right, right)
    row = int((args[3] > 2 * 16).nonzero()[0])
    missing = sorted(set(range(int(args[3][row]))) - set(right[0][row].tolist()))

    def changed(edit: Any) -> set[str]:
        indices, scores = right[0].clone(), right[1].clone()
        edit(indices[row], scores[row])
        return checks("index_topk", args, (indices, scores), right)

    def worst_for_best(indices: torch.Tensor, scores: torch.Tensor) -> None:
        """The entry of least score instead of the one of the largest."""
        whole = ops.index_score(*args[:3], *args[3:6], args[7], args[8])[row].float()
        kept = indices.clone()
        kept[scores.float().argmax()] = min(missing, key=lambda e: float(whole[e]))
        indices[:] = kept.sort().values
        scores[:] = whole[indices.long()].bfloat16()

    assert changed(lambda i, s: i.copy_(i.flip(0))) == {"decision"}
    assert changed(lambda i, s: i[1:2].copy_(i[:1])) == {"decision"}
    assert changed(lambda i, s: i[-1:].fill_(-1)) == {"decision"}
    assert changed(lambda i, s: i[-1:].fill_(int(args[3][row]))) == {"decision"}
    assert changed(worst_for_best) == {"decision"}
    assert changed(lambda i, s: s[2:3].mul_(1.1)) == {"limit"}
    assert changed(lambda i, s: s[2:3].fill_(torch.nan)) == {"nonfinite"}


def test_equal_keys_go_to_the_lower_entry() -> None:
    args = list(next(a for label, a in samples("index_topk") if label == "mixed batch, ratio 1"))
    pages = args[2].clone()
    pages[:] = torch.from_numpy(np.concatenate((np.full(128 * 16, 0x33, np.uint8), np.full(128, 127, np.uint8))))
    assert np.isfinite(decode(pages[:1, :17].numpy(), "fp4_32_index")).all()
    args[2] = pages
    right = ops.index_topk(*args)
    row = int((args[3] > 40).nonzero()[0])
    assert right[0][row].tolist() == list(range(16))
    late = right[0].clone()
    late[row] += 1
    assert checks("index_topk", tuple(args), (late, right[1]), right) == {"decision"}


def test_what_does_not_fit_is_refused() -> None:
    x, weight = torch.zeros(2, 40).bfloat16(), torch.zeros(40).bfloat16()
    with pytest.raises(KernelError, match="D must be a positive multiple of 32"):
        ops.rms_norm_quant(x, weight, 1e-6)
    with pytest.raises(KernelError, match="D must be a positive multiple of 32"):
        ops.hc_collapse_norm(x.view(1, 2, 40), torch.zeros(1, 2), weight, 1e-6)
    args = list(next(a for label, a in samples("index_topk") if label == "mixed batch, ratio 1"))
    args[8] = args[5].shape[1] * 128 + 1
    with pytest.raises(ContractError, match="entries is .* holds 0 to"):
        ops.index_topk(*args)
