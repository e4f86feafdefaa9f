"""Configurations of the presets.
 `tiny` has every feature of the model at the smallest sizes and runs in milliseconds; `kernel` is the same
network with the head, rope, index and record widths of the released model, for kernels that support only
those.
"""

from __future__ import annotations

from typing import Any

from ...hal import errors

_TEXT: dict[str, Any] = {
    "model_type": "deepseek_v41_text",
    "vocab_size": 512,
    "hidden_size": 128,
    "num_hidden_layers": 10,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "qk_rope_head_dim": 16,
    "q_lora_rank": 64,
    "o_lora_rank": 32,
    "o_groups": 2,
    "hidden_act": "silu",
    "swiglu_limit": 10.0,
    "rms_norm_eps": 1e-20,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
    "rope_theta": 10000,
    "compress_rope_theta": 160000,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 16,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 256,
    },
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "sliding_window": 16,
    "compress_ratios": [0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0],
    "kv_source_layer_ids": [2, 4, 6],
    "index_source_layer_ids": [2, 4, 6, 8],
    "index_n_heads": 4,
    "index_head_dim": 32,
    "index_topk": 16,
    "candidate_source_layer_id": 6,
    "candidate_topk_blocks": 8,
    "candidate_block_size": 8,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "engram_layer_ids": [1, 4],
    "engram_max_ngram_size": 4,
    "engram_vocab_size": 256,
    "engram_n_heads": 2,
    "engram_head_dim": 32,
    "engram_pad_token_id": 2,
    "num_nextn_predict_layers": 2,
    "dspark_block_size": 5,
    "dspark_target_layer_ids": [7, 8, 9],
    "dspark_markov_rank": 32,
    "dspark_n_routed_experts": 4,
    "dspark_num_experts_per_tok": 2,
}

_KERNEL: dict[str, Any] = {
    "vocab_size": 1024,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "q_lora_rank": 128,
    "o_lora_rank": 128,
    "moe_intermediate_size": 128,
    "index_head_dim": 128,
    "engram_head_dim": 128,
    "dspark_markov_rank": 64,
    "sliding_window": 128,
}

_VISION: dict[str, Any] = {
    "model_type": "deepseek_v41_vision",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "intermediate_size": 256,
    "patch_size": 14,
    "rope_theta": 10000,
    "downsample_ratio": 3,
    "max_image_tokens": 64,
    "min_pixels": 7056,
    "max_wh_ratio": None,
}

PRESETS: dict[str, dict[str, Any]] = {"tiny": {}, "kernel": _KERNEL}
"""Name -> text settings that differ from `tiny`."""


def wanted_vocab_size(preset: str) -> int:
    """Vocabulary size to train the preset's tokenizer for.

    Raises:
        InvalidArgumentError: unknown preset.
    """
    return int((_TEXT | _overrides(preset))["vocab_size"])


def preset_config(
    preset: str,
    *,
    vocab_size: int,
    image_token_id: int,
    noise_token_id: int,
    compressed_size: int,
    engram_rows: list[int],
) -> dict[str, Any]:
    """config.json of a preset, completed by what its tokenizer determines."""
    derived = {
        "vocab_size": vocab_size,
        "engram_num_embeddings": engram_rows,
        "engram_compressed_vocab_size": compressed_size,
        "dspark_noise_token_id": noise_token_id,
    }
    return {
        "architectures": ["DeepseekV41ForCausalLM"],
        "model_type": "deepseek_v41",
        "dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        "image_token_id": image_token_id,
        "quantization_config": {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [32, 32],
            "scale_fmt": "ue8m0",
            "expert_dtype": "fp4",
        },
        "text_config": _TEXT | _overrides(preset) | derived,
        "vision_config": dict(_VISION),
    }


def engram_settings(preset: str) -> dict[str, Any]:
    """`engram_*` settings that the hash tables are computed from."""
    text = _TEXT | _overrides(preset)
    return {
        "layer_ids": text["engram_layer_ids"],
        "vocab_size": text["engram_vocab_size"],
        "max_ngram": text["engram_max_ngram_size"],
        "heads": text["engram_n_heads"],
    }


def _overrides(preset: str) -> dict[str, Any]:
    if preset not in PRESETS:
        raise errors.InvalidArgumentError("preset", preset, f"one of {', '.join(PRESETS)}")
    return PRESETS[preset]
