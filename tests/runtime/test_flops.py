"""Work of a model: sums by hand, and held against what a forward of the embedded model asks of its ops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deepinfer.hal.catalog import load_backend
from deepinfer.hal.errors import NotSupportedError
from deepinfer.model.batch import Batch, SequenceSlice
from deepinfer.model.hub import resolve_model
from deepinfer.model.transformer import Model
from deepinfer.ops.counting import counting
from deepinfer.runtime.flops import FlopModel, floor_sums, peak_flops

ROWS = 300


def test_sums_of_quotients() -> None:
    n = np.arange(0, 60)
    for ratio in (1, 2, 5):
        for cap in (None, 1, 3, 7):
            expected = [sum(c // ratio if cap is None else min(c // ratio, cap) for c in range(1, m + 1)) for m in n]
            assert floor_sums(n, ratio, cap).tolist() == expected, (ratio, cap)


def test_peaks() -> None:
    assert peak_flops("sm_100", "x86_64") == 4.5e15 and peak_flops("sm_100", "aarch64") == 5e15
    assert peak_flops("sm_90", "aarch64") == 1.978e15 and peak_flops("ascend950") == 8.64e14
    with pytest.raises(NotSupportedError, match="MFU on x86_64"):
        peak_flops("x86_64")


def test_a_row_counts_by_the_precision_of_each_weight() -> None:
    linear = {"I8": 3.0, "F8_E4M3": 5.0, "BF16": 7.0, "F32": 11.0}
    model = FlopModel(linear, 13.0, 2, 1, {(2, 1): 3}, {(2, None): 1}, 4, 6)
    assert model.row == 3 + 2 * 5 + 4 * 7 + 8 * 11
    start, end = np.array([0, 2]), np.array([2, 5])
    # Rows see 1, 2 | 2, 2, 2 keys of the window; 0, 1 | 1, 1, 1 compressed ones, in 3 layers; 0, 1 | 1, 2, 2 scores.
    keys, scores = 4 * (9 + 3 * 4), 6 * 6
    assert model.attention(start, end) == (keys, scores)
    total, attention = model.step(start, end, logits=2)
    assert attention == 2 * (keys + scores)
    assert total == 5 * model.row + 4 * 13 * 2 + 4 * keys + scores


def test_the_model_of_a_configuration_is_what_its_forward_asks_for() -> None:
    load_backend("reference")
    model = Model.load(resolve_model("tiny"), max_model_len=512)
    try:
        tokens = np.arange(3, 3 + ROWS).astype(np.int32)
        batch = Batch.build(
            [SequenceSlice(tokens, 0, ROWS, 1, [1, 2, 3], [ROWS - 1])], model.config.text, torch.device("cpu")
        )
        caches = model.new_caches(4, 2)
        with counting() as counts:
            model.forward(batch, caches)
        found, text = FlopModel.of(model.config), model.config.text
    finally:
        model.close()
    assert counts.flops["grouped_linear"] == 2 * ROWS * found.linear["I8"]
    choices = 10 * ROWS * text.n_routed_experts * text.num_hidden_layers  # beside the router's products
    bf16 = counts.flops["linear_bf16"] + counts.flops["moe_route"] - choices
    assert bf16 == 2 * (ROWS * found.linear["BF16"] + found.head)
    # A forward also makes the window records of the draft layers, which are draft work.
    width = text.hidden_size * len(text.dspark_target_layer_ids)
    drafts = text.num_nextn_predict_layers * text.head_dim * text.hidden_size + text.hidden_size * width
    fp8 = counts.flops["linear_fp8"] + counts.flops["linear_fp8_grouped"]
    assert fp8 == 2 * ROWS * (found.linear["F8_E4M3"] + drafts)
    # The op's cost model adds the rest of the coefficients, and counts keys that the first rows do not have yet.
    assert 1 <= counts.flops["hc_coefficients"] / (2 * ROWS * found.linear["F32"]) < 1.2
    keys, _ = found.attention(np.array([0]), np.array([ROWS]))
    assert 1 <= counts.flops["sparse_attention"] / (2 * keys) < 1.05
