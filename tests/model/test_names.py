from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from deepinfer.model.config import ModelConfig
from deepinfer.model.names import FOLDED, IGNORED, inventory
from deepinfer.model.safetensors_file import read_header
from released import GOLDEN_CHECKPOINT

Values = dict[str, Any]


def test_released_counts(released_values: Values) -> None:
    specs = inventory(ModelConfig.from_dict(released_values))
    assert len(specs) == 96_085
    assert round(sum(s.parameters for s in specs.values()) / 1e9, 1) == 763.2
    expert = [s for n, s in specs.items() if n.startswith("layers.7.ffn.experts.383.")]
    assert sum(s.nbytes for s in expert) == 18_800_640
    table = sum(s.nbytes for s in specs.values() if s.engram == 0)
    assert table == 384_006_168 * (256 + 8)


def test_golden_checkpoint_holds_exactly_the_inventory() -> None:
    config = ModelConfig.from_dict(json.loads((GOLDEN_CHECKPOINT / "config.json").read_text()))
    specs = inventory(config)
    assert (len(specs), sum(s.parameters for s in specs.values())) == (962, 4_273_128)
    stored = {}
    for path in sorted(GOLDEN_CHECKPOINT.glob("*.safetensors")):
        stored |= {e.name: (e.dtype, e.shape, e.nbytes) for e in read_header(path)}
    assert stored == {s.name: (s.dtype, s.shape, s.nbytes) for s in specs.values()}


def test_who_has_what(released_values: Values) -> None:
    specs = inventory(ModelConfig.from_dict(released_values))

    def layers_with(suffix: str) -> list[str]:
        return [name.removesuffix(suffix) for name in specs if name.endswith(suffix)]

    assert layers_with(".attn.compressor.wkv.weight") == [f"layers.{i}" for i in (2, 8, 14, 20)]
    assert layers_with(".attn.compressor.wgate.weight") == [f"layers.{i}" for i in (2, 8, 14)]
    assert layers_with(".attn.indexer.wk.weight") == [f"layers.{i}" for i in (2, 8, 14, 20)]
    assert layers_with(".attn.indexer.weights_proj.weight") == [f"layers.{i}" for i in (2, 8, 14, 20, 24, 28, 32, 36)]
    assert layers_with(".engram.embed.scale") == ["layers.1", "layers.14"]
    assert layers_with(".main_proj.scale") == ["mtp.0"]
    assert layers_with(".markov_head.head.weight") == ["mtp.2"]
    assert specs["mtp.0.main_proj.weight"].shape == (5120, 3 * 5120)
    assert specs["mtp.2.confidence_head.proj.weight"].shape == (1, 5376)
    assert specs["layers.1.engram.wkv.weight"].shape == (5 * 5120, 6144)
    assert specs["layers.0.attn.wo_a.weight"].shape == (8 * 1024, 8 * 512)
    assert specs["layers.0.ffn.experts.0.w2.weight"].shape == (5120, 1152)
    assert specs["layers.0.ffn.experts.0.w2.scale"].shape == (5120, 72)
    counts = Counter(s.expert for n, s in specs.items() if n.startswith("mtp.0.") and s.expert is not None)
    assert set(counts) == set(range(128)) and set(counts.values()) == {6}


def test_block_scales_round_up(tiny_values: Values) -> None:
    tiny_values["text_config"] |= {"index_n_heads": 3, "num_attention_heads": 6, "o_groups": 1}
    specs = inventory(ModelConfig.from_dict(tiny_values))
    assert specs["layers.2.attn.indexer.wq_b.scale"].shape == (3, 2)
    tiny_values["vision_config"]["num_hidden_layers"] = 1
    for name, spec in inventory(ModelConfig.from_dict(tiny_values)).items():
        if spec.dtype == "F8_E4M3" and spec.engram is None:
            n, k = spec.shape
            scale = specs[name.removesuffix("weight") + "scale"].shape
            assert scale == (-(-n // 32), -(-k // 32))


def test_shared_experts_widen(tiny_values: Values) -> None:
    tiny_values["text_config"]["n_shared_experts"] = 3
    specs = inventory(ModelConfig.from_dict(tiny_values))
    assert specs["layers.0.ffn.shared_experts.w1.weight"].shape == (192, 128)
    assert specs["layers.0.ffn.shared_experts.w2.scale"].shape == (4, 6)


@pytest.mark.parametrize("name", ["mtp.0.embed.weight", "mtp.12.head.weight"])
def test_names_passed_over(name: str) -> None:
    assert IGNORED.fullmatch(name)


@pytest.mark.parametrize("name", ["layers.3.hc_attn_norm.weight", "mtp.0.hc_ffn_norm.weight", "hc_head_norm.weight"])
def test_folded_norms_are_known(name: str) -> None:
    assert FOLDED.fullmatch(name)


@pytest.mark.parametrize("name", ["mtp.0.markov_head.embed.weight", "embed.weight", "layers.0.embed.weight"])
def test_wanted_names_are_never_passed_over(name: str) -> None:
    assert not IGNORED.fullmatch(name) and not FOLDED.fullmatch(name)
