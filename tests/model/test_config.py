from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepinfer.hal.errors import CheckpointError, ConfigError
from deepinfer.model.config import ModelConfig, RopeScaling, load_config

Values = dict[str, Any]
ABSENT = object()


def change(values: Values, key: str, value: Any) -> None:
    """Sets or removes a dotted key; a bare key lives in text_config."""
    *path, last = key.split(".") if "." in key else ("text_config", key)
    target = values
    for part in path:
        target = target[part] if part else target  # ".key" is a top-level key
    if value is ABSENT:
        target.pop(last, None)
    else:
        target[last] = value


def test_released_values_are_read_from_the_file(released_values: Values) -> None:
    config = ModelConfig.from_dict(released_values)
    text = config.text
    assert (text.num_hidden_layers, text.num_attention_heads, text.head_dim, text.q_lora_rank) == (40, 64, 512, 1280)
    assert text.rope_scaling == RopeScaling(16.0, 32.0, 1.0, 65536)
    assert text.index_k_source_layer_ids == text.kv_source_layer_ids == (2, 8, 14, 20)
    assert text.engram_num_embeddings == (384006168, 384016682)
    assert (text.rms_norm_eps, text.hc_eps, text.use_fp4_sparse_kv) == (1e-20, 1e-6, True)
    assert (config.image_token_id, config.tokenizer_compatibility) == (129264, "release")
    assert (config.vision.hidden_size, config.vision.max_wh_ratio) == (1024, None)
    assert config.unknown_keys == ()


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        (".architectures", ["DeepseekV4ForCausalLM"], "exactly one name"),
        (".architectures", ["DeepseekV41ForCausalLM", "Other"], "exactly one name"),
        (".architectures", "DeepseekV41ForCausalLM", "exactly one name"),
        (".architectures", ABSENT, "is required"),
        (".model_type", "deepseek_v4", 'must be "deepseek_v41"'),
        (".dtype", "float16", 'must be "bfloat16"'),
        (".bos_token_id", -1, "must be >= 0"),
        (".bos_token_id", 5, 'must be 0 unless tokenizer_compatibility is "native"'),
        (".eos_token_id", 7, "must be 1 unless"),
        (".pad_token_id", 9, "must be 2 unless"),
        (".eos_token_id", [1], "must be an integer"),
        (".image_token_id", 512, "must be <= 511"),
        (".tokenizer_compatibility", "old", "must be one of"),
        (".text_config", None, "must be a JSON object"),
        (".vision_config", ABSENT, "is required"),
        ("model_type", "deepseek_v4_text", 'must be "deepseek_v41_text"'),
        ("vocab_size", 0, "must be >= 1"),
        ("vocab_size", 512.0, "must be an integer"),
        ("hidden_size", 130, "must be a multiple of 32"),
        ("hidden_size", True, "must be an integer"),
        ("num_attention_heads", 5, "divisible by o_groups"),
        ("num_key_value_heads", 2, "must be 1"),
        ("num_key_value_heads", True, "must be 1"),
        ("head_dim", 48, "multiple of 32"),
        ("qk_rope_head_dim", 15, "multiple of 2"),
        ("qk_rope_head_dim", 66, "must be <= 64"),
        ("q_lora_rank", None, "must not be null"),
        ("o_lora_rank", 16, "multiple of 32"),
        ("o_groups", 0, "must be >= 1"),
        ("hidden_act", "gelu", 'must be "silu"'),
        ("swiglu_limit", float("inf"), "finite number"),
        ("rms_norm_eps", 0, "must be > 0"),
        ("attention_bias", True, "must be false"),
        ("attention_bias", 0, "must be false"),
        ("attention_dropout", 0.1, "must be 0.0"),
        ("tie_word_embeddings", True, "must be false"),
        ("max_position_embeddings", -1, "must be >= 1"),
        ("rope_theta", "10000", "finite number"),
        ("rope_theta", 10**100, "finite number"),
        ("swiglu_limit", 1e308, "finite number of fp32"),
        ("hc_eps", 5e-324, "fp32 holds no smaller one"),
        ("vocab_size", 10**27, "must be <= 2147483647"),
        ("n_routed_experts", 10**9, "must be <= 8192"),
        ("dspark_n_routed_experts", 10**9, "must be <= 8192"),
        ("num_hidden_layers", 10**9, "must be <= 1024"),
        ("hc_sinkhorn_iters", 10**9, "must be <= 1000"),
        ("vision_config.num_hidden_layers", 10**9, "must be <= 1024"),
        ("rope_scaling", [], "JSON object"),
        ("text_config.rope_scaling.rope_type", "linear", 'must be "yarn"'),
        ("text_config.rope_scaling.factor", ABSENT, "is required"),
        ("text_config.rope_scaling.beta_fast", 0.5, "must be >= beta_slow"),
        ("text_config.rope_scaling.mscale", 1.0, "not a known YaRN parameter"),
        ("num_experts_per_tok", 9, "must be <= 8"),
        ("n_shared_experts", 0, "must be >= 1"),
        ("moe_intermediate_size", 65, "multiple of 32"),
        ("scoring_func", "softmax", 'must be "sqrtsoftplus"'),
        ("topk_method", "greedy", 'must be "noaux_tc"'),
        ("norm_topk_prob", False, "must be true"),
        ("norm_topk_prob", 1, "must be true"),
        ("gate_temp", 2.0, "must be 1.0"),
        ("routed_scaling_factor", 0, "must be > 0"),
        ("sliding_window", 18, "multiple of 4"),
        ("compress_ratios", [0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 0], "must have 12 entries"),
        ("compress_ratios", [0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 0, 1], "(draft layers) must be 0"),
        ("compress_ratios", [0, 0, 4, 4, 2, 2, 1, 1, 1, 1, 0, 0], "must lie in 0..2"),
        ("kv_source_layer_ids", [4, 2, 6], "strictly ascending"),
        ("kv_source_layer_ids", [2, 2, 6], "strictly ascending"),
        ("kv_source_layer_ids", [2, 4, 10], "must lie in 0..9"),
        ("kv_source_layer_ids", 2, "list of integers"),
        ("index_head_dim", 48, "multiple of 32"),
        ("index_topk", 0, "must be >= 1"),
        ("index_topk", 65, "must be >= index_topk (65)"),
        ("candidate_source_layer_id", 10, "must be <= 9"),
        ("candidate_topk_blocks", 12, "multiple of 8"),
        ("candidate_topk_blocks", 0, "must be >= 8"),
        ("candidate_topk_blocks", 4104, "must be <= 4096"),
        ("candidate_block_size", 4, "must be 8 or 16"),
        ("index_n_heads", 33, "must be <= 32"),
        ("hc_mult", 1, "must be > 1"),
        ("hc_sinkhorn_iters", 0, "must be >= 1"),
        ("hc_shifted", False, "must be true"),
        ("engram_layer_ids", [4, 1], "strictly ascending"),
        ("engram_num_embeddings", [1618, 1825], "sums of the hash primes, [1618, 1824]"),
        ("engram_num_embeddings", [1618], "must have 2 entries"),
        ("engram_max_ngram_size", 1, "must be >= 2"),
        ("engram_head_dim", 40, "multiple of 32"),
        ("engram_pad_token_id", 512, "must be <= 511"),
        ("engram_pad_token_id", ABSENT, "is required"),
        ("engram_pad_id", 3, "must equal engram_pad_id (3)"),
        ("engram_compressed_vocab_size", 0, "must be set"),
        ("engram_compressed_vocab_size", None, "must be set"),
        ("engram_compressed_vocab_size", 513, "must be <= 512"),
        ("num_nextn_predict_layers", -1, "must be >= 0"),
        ("dspark_noise_token_id", 512, "must be <= 511"),
        ("dspark_target_layer_ids", [], "at least one layer"),
        ("dspark_target_layer_ids", [7, 7], "each once"),
        ("dspark_target_layer_ids", [7, 10], "must lie in 0..9"),
        ("dspark_target_attn_input", False, "must be true"),
        ("dspark_markov_rank", 0, "must be >= 1"),
        ("dspark_num_experts_per_tok", 5, "must be <= 4"),
        ("use_fp4_sparse_kv", 1, "true or false"),
        ("vision_config.model_type", "siglip", 'must be "deepseek_v41_vision"'),
        ("vision_config.hidden_size", 66, "must be a multiple of 8"),
        ("vision_config.max_wh_ratio", 0.5, "must be >= 1"),
        ("vision_config.max_image_tokens", 3, "must be >= 4"),
        ("quantization_config.quant_method", "awq", 'must be "fp8"'),
        ("quantization_config.activation_scheme", "static", 'must be "dynamic"'),
        ("quantization_config.weight_block_size", [128, 128], "must be [32, 32]"),
        ("quantization_config.scale_fmt", ABSENT, "is required"),
        ("quantization_config.expert_dtype", "fp8", 'must be "fp4"'),
    ],
)
def test_a_broken_rule_names_key_value_and_rule(tiny_values: Values, key: str, value: Any, rule: str) -> None:
    change(tiny_values, key, value)
    with pytest.raises(ConfigError) as caught:
        ModelConfig.from_dict(tiny_values)
    # Rules that tie two keys together may report the other one.
    ties = {"engram_pad_id": "engram_pad_token_id", "index_topk": "candidate_topk_blocks"}
    last = key.rpartition(".")[2]
    assert caught.value.key.rpartition(".")[2] in (last, ties.get(last))
    assert rule in caught.value.rule
    shown = caught.value.value
    assert str(shown) in str(caught.value)
    if value is not ABSENT and last not in ties:
        assert shown == value


@pytest.mark.parametrize("value", [None, -1, -7])
def test_null_and_negative_turn_candidates_off(tiny_values: Values, value: int | None) -> None:
    tiny_values["text_config"]["candidate_source_layer_id"] = value
    tiny_values["text_config"]["candidate_topk_blocks"] = 3  # not looked at
    config = ModelConfig.from_dict(tiny_values)
    assert config.text.candidate_source_layer_id is None
    assert config.text.candidate_topk_blocks == config.text.candidate_block_size == 0
    assert {role.candidate for role in config.topology.layers} == {"none"}
    assert config.unknown_keys == ()


def test_both_spellings_of_the_engram_pad(tiny_values: Values) -> None:
    text = tiny_values["text_config"]
    text["engram_pad_id"] = text.pop("engram_pad_token_id") + 5
    assert ModelConfig.from_dict(tiny_values).text.engram_pad_token_id == 7
    text["engram_pad_token_id"] = 7
    assert ModelConfig.from_dict(tiny_values).text.engram_pad_token_id == 7


def test_engram_and_drafts_can_be_off(tiny_values: Values) -> None:
    text = tiny_values["text_config"]
    text["engram_layer_ids"] = []
    text["hc_mult"] = 1  # allowed without Engram
    text["num_nextn_predict_layers"] = 0
    text["compress_ratios"] = text["compress_ratios"][:10]
    config = ModelConfig.from_dict(tiny_values)
    assert (config.text.engram_num_embeddings, config.text.engram_head_dim) == ((), 0)
    assert (config.text.dspark_target_layer_ids, config.topology.drafts) == ((), ())
    assert config.unknown_keys == ()
    for key in [k for k in text if k.startswith(("engram_", "dspark_"))]:
        del text[key]
    assert ModelConfig.from_dict(tiny_values) == config


def test_optional_keys_have_stated_defaults(tiny_values: Values) -> None:
    text = tiny_values["text_config"]
    for key in ("rope_scaling", "engram_num_embeddings", "initializer_range", "use_cache"):
        text.pop(key, None)
    del tiny_values["vision_config"]["max_wh_ratio"]
    config = ModelConfig.from_dict(tiny_values)
    assert config.text.rope_scaling is None
    assert config.text.engram_num_embeddings == (1618, 1824)
    assert config.vision.max_wh_ratio is None
    explicit = ["hc_shifted", "dspark_target_attn_input", "use_fp4_sparse_kv"]
    text |= dict.fromkeys(explicit, True) | {"gate_temp": 1, "index_k_source_layer_ids": [2, 4, 6]}
    assert ModelConfig.from_dict(tiny_values) == config


def test_unknown_keys_are_listed_and_ignored_ones_are_not(tiny_values: Values) -> None:
    tiny_values |= {"transformers_version": "5.6.0", "surprise": 1}
    tiny_values["text_config"] |= {"initializer_range": 0.02, "use_cache": True, "novel": {}}
    tiny_values["vision_config"]["extra"] = None
    tiny_values["quantization_config"]["ignored_layers"] = []
    config = ModelConfig.from_dict(tiny_values)
    assert config.unknown_keys == (
        "surprise",
        "text_config.novel",
        "vision_config.extra",
        "quantization_config.ignored_layers",
    )


def test_config_is_immutable(tiny_values: Values) -> None:
    config = ModelConfig.from_dict(tiny_values)
    with pytest.raises(AttributeError):
        config.text.vocab_size = 1  # type: ignore[misc]


@pytest.mark.parametrize("content", ["", "{", "[1", "\xff", "[]" * 3])
def test_a_file_that_is_not_json(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_config(tmp_path)


def test_deeply_nested_json_is_an_error_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 200_000)
    with pytest.raises(CheckpointError, match="not valid JSON"):
        load_config(tmp_path)


def test_missing_file_and_wrong_top_level(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        load_config(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps([1]))
    with pytest.raises(ConfigError, match="JSON object"):
        load_config(tmp_path)


def test_an_integer_beyond_every_float_is_refused(tiny_values: Values) -> None:
    change(tiny_values, "rope_theta", 10**400)
    with pytest.raises(ConfigError, match="text_config.rope_theta.*finite number of fp32"):
        ModelConfig.from_dict(tiny_values)
