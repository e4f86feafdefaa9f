"""Samples of every op: what tests, conformance and benchmarks may count on, whatever the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import deepinfer.ops  # noqa: F401 - defines the specs
from deepinfer.backends import reference
from deepinfer.conformance.compare.exact import same_bits
from deepinfer.ops.spec import SPECS, OpSpec, Sample, TensorArg, WeightHandle

CPU = torch.device("cpu")
OPS = sorted(SPECS)
ROW_TILE = 128
"""Rows of the largest tile a kernel is expected to use."""
ROWS = {
    "engram_gather": "T",
    "gather_rows": "L",
    "merge_patches": "M",
    "moe_combine": "T",
    "mirror_rows": "total",
    "moe_return": "N",
    "replay_rows": "rows",
    "step_metadata": "rows",
    "copy_slots": "N",
    "ring_move": "N",
    "load_records": "rows",
}
"""The dim that counts rows, where it is not the first of the first argument."""

TILED = {
    "block_select": {"N": 8192},
    "draft_logits": {"V": 128, "r": 128},
    "grouped_linear": {"N": 128, "H": 64},
    "image_attention": {"M": 64},
    "index_score": {"entries": 1024},
    "index_score_blocks": {"KB": 128},
    "index_topk": {"entries": 1024, "KB": 128},
    "linear_bf16": {"N": 128, "K": 128},
    "linear_fp8": {"N": 128, "K": 128},
    "linear_fp8_grouped": {"N": 128, "K": 128},
    "lookup_candidates": {"K": 1024, "J": 128},
    "moe_route": {"E": 128, "K": 128},
    "sparse_attention": {"window": 64, "K": 64},
    "topk_select": {"N": 8192},
    "vision_linear": {"N": 128, "K": 128},
}
"""Dims besides the rows that kernels cut into tiles, and the largest tile expected: some sample has two and a tail."""

V, D = 129280, 5120
REAL: dict[str, dict[str, int]] = {
    "accept_prefix": {"width": 6},
    "adjust_logits": {"V": V},
    "block_select": {"block_size": 8, "k": 2048},
    "compress_pool": {"d": 512},
    "compressed_store": {"d": 512, "F": 32},
    "compressor_ring_store": {"d": 512},
    "copy_slots": {"W": 134 * 528 * 4},
    "correct_k": {"R": 256},
    "correct_q": {"n": 5},
    "draft_confidence": {"D": D, "n": 5, "r": 256},
    "draft_distribution": {"V": V, "n": 3},
    "draft_inputs": {"block": 5, "window": 128},
    "draft_logits": {"V": V, "r": 256},
    "draft_store": {"n": 5},
    "draft_tap": {"D": D, "m": 4, "n": 3},
    "embed_streams": {"D": D, "streams": 4},
    "engram_gate": {"D": D, "m": 4},
    "engram_gather": {"dh": 256, "C": 24},
    "engram_hash": {"V": 129280, "n": 4, "C": 24},
    "expand_params": {"L": 258, "R": 43},
    "gather_rows": {"D": 4 * D},
    "grouped_linear": {"N": 4608, "H": D // 2},
    "hc_coefficients": {"D": D, "m": 4, "iterations": 20},
    "hc_collapse": {"D": D, "m": 4},
    "hc_collapse_norm": {"D": D, "m": 4},
    "hc_expand": {"D": D, "m": 4},
    "image_attention": {"h": 16, "d": 64},
    "image_patches": {"patch": 14},
    "image_rope": {"h": 16, "d": 64},
    "index_key_store": {"di": 128, "F": 32},
    "index_query_pack": {"H": 32, "di": 128, "F": 32},
    "index_score": {"H": 32, "qb": 68},
    "index_topk": {"H": 32, "qb": 68, "k": 512},
    "index_score_blocks": {"H": 32, "qb": 68, "block_size": 8},
    "linear_bf16": {"N": 384, "K": D},
    "linear_fp8": {"N": 1280, "K": D},
    "linear_fp8_grouped": {"G": 8, "K": 4096},
    "load_records": {"channels": 512, "entries": 134},
    "lookup_candidates": {"K": 1024, "J": 1024},
    "mask_rows": {"V": V},
    "merge_patches": {"C": 1024, "S": 9},
    "mirror_rows": {"ranks": 8, "R": 2},
    "moe_combine": {"D": D, "k": 6},
    "moe_dispatch": {"D": D, "k": 6, "ranks": 4, "per_rank": 96},
    "moe_gate": {"E": 384, "k": 6},
    "moe_pack": {"k": 6, "first": 96, "count": 48},
    "moe_return": {"D": D, "k": 6, "ranks": 4},
    "moe_route": {"E": 384, "K": D, "k": 6},
    "quant_fp8": {"K": D},
    "replay_rows": {"ranks": 8},
    "ring_move": {"L": 262, "R": 134, "rec": 528},
    "rms_norm": {"D": D},
    "rms_norm_quant": {"D": D},
    "rope": {"h": 64, "d": 512, "F": 32},
    "sample_draw": {"V": V},
    "sample_filter": {"V": V},
    "scatter_embeds": {"m": 4, "D": D},
    "silu_mul": {"N": 5632},
    "smaller_mass": {"V": V},
    "sparse_attention": {"h": 64, "d": 512, "window": 128, "K": 512},
    "step_metadata": {"R": 2},
    "step_tokens": {"vocab": V, "size": 4, "n": 5},
    "swiglu_quant": {"N": 4608},
    "token_logprobs": {"V": V},
    "verify_drafts": {"V": V},
    "top_logprobs": {"V": V, "k": 20},
    "topk_select": {"k": 512},
    "vision_linear": {"N": 3072, "K": 1024},
    "window_pack": {"d": 512, "F": 32},
    "window_store": {"rec": 528},
}
"""Widths of the released model: one sample, labelled real, has them all."""


def generate(spec: OpSpec) -> Iterator[Sample]:
    return spec.samples(np.random.default_rng(3), CPU)


@cache
def shapes(op: str) -> list[tuple[str, dict[str, int]]]:
    """Label and dims of every sample; computing the dims is what accepts its arguments."""
    reference.backend.load()
    found = []
    for sample in generate(SPECS[op]):
        SPECS[op].signature(*sample.args)
        found.append((sample.label, SPECS[op].dims(*sample.args)))
    return found


def rows(op: str) -> list[int]:
    first = SPECS[op].args[0]
    assert isinstance(first, TensorArg)
    return [dims[ROWS.get(op, first.dims[0].text)] for _, dims in shapes(op)]


def two_and_a_tail(size: int, tile: int) -> bool:
    return size > 2 * tile and size % tile != 0


@pytest.mark.parametrize("op", OPS)
def test_every_sample_is_accepted_and_has_a_label_of_its_own(op: str) -> None:
    labels = [label for label, _ in shapes(op)]
    assert labels and len(set(labels)) == len(labels)


@pytest.mark.parametrize("op", OPS)
def test_there_is_a_sample_without_rows(op: str) -> None:
    assert 0 in rows(op)


@pytest.mark.parametrize("op", OPS)
def test_rows_pass_two_tiles_and_a_tail(op: str) -> None:
    assert any(two_and_a_tail(count, ROW_TILE) and count % 16 for count in rows(op)), sorted(set(rows(op)))


@pytest.mark.parametrize("op", sorted(TILED))
def test_every_other_tiled_dim_passes_two_tiles_and_a_tail(op: str) -> None:
    for dim, tile in TILED[op].items():
        sizes = {dims[dim] for _, dims in shapes(op) if dim in dims}
        assert any(two_and_a_tail(size, tile) for size in sizes), f"{dim}: {sorted(sizes)}"


@pytest.mark.parametrize("op", OPS)
def test_a_real_sample_has_the_released_widths(op: str) -> None:
    found = [dims for label, dims in shapes(op) if label.startswith("real")]
    assert any(REAL[op].items() <= dims.items() for dims in found), found


@pytest.mark.parametrize("op", ["block_select", "index_score", "index_score_blocks", "topk_select"])
def test_long_contexts_are_sampled_at_the_released_widths(op: str) -> None:
    for dim, tile in TILED[op].items():
        found = [d for label, d in shapes(op) if label.startswith("real") and REAL[op].items() <= d.items()]
        assert any(two_and_a_tail(d[dim], tile) for d in found), found


@pytest.mark.parametrize("op", OPS)
def test_real_samples_come_last(op: str) -> None:
    real = [label.startswith("real") for label, _ in shapes(op)]
    assert real == sorted(real)


@pytest.mark.parametrize("op", OPS)
def test_samples_are_a_function_of_the_seed(op: str) -> None:
    for a, b in zip(generate(SPECS[op]), generate(SPECS[op]), strict=True):
        assert a.label == b.label and len(a.args) == len(b.args)
        for x, y in zip(flat(a.args), flat(b.args), strict=True):
            assert same_bits(x, y) if isinstance(x, torch.Tensor) else x == y, a.label


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_the_reference_takes_every_real_sample(op: str) -> None:
    reference.backend.load()
    for sample in generate(SPECS[op]):
        if sample.label.startswith("real"):
            got = SPECS[op].run(*sample.args)
            for described, value in zip(SPECS[op].outs, got if isinstance(got, tuple) else (got,), strict=False):
                assert value.dtype in described.dtypes


def flat(args: tuple[Any, ...]) -> Iterator[Any]:
    for value in args:
        yield from value.tensors if isinstance(value, WeightHandle) else (value,)
