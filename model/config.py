"""`config.json` of a `deepseek_v41` checkpoint, parsed and checked.

Field names are the keys of the file. Every value is read from the file: nothing about a released model is built in.
A broken rule raises `ConfigError` with the key, the value found and the rule. Keys that no rule knows are kept out of
the way but listed in `ModelConfig.unknown_keys`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..hal.errors import CheckpointError
from .config_reader import Section

if TYPE_CHECKING:
    from .topology import Topology

ARCHITECTURE = "DeepseekV41ForCausalLM"
MODEL_TYPE = "deepseek_v41"
SPECIAL_IDS = {"bos": 0, "eos": 1, "pad": 2}
"""Ids of the released tokenizer's begin, end and padding tokens."""

QUANT_GROUP = 32
"""Channels per scale of the FP8 and FP4 formats; every quantised input width is a multiple of it."""


@dataclass(frozen=True)
class RopeScaling:
    """YaRN parameters of the layers with a compress ratio."""

    factor: float
    beta_fast: float
    beta_slow: float
    original_max_position_embeddings: int


@dataclass(frozen=True)
class TextConfig:
    """`text_config`: backbone, Engram and draft head. Sizes count elements, ids count from 0."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    """Channels per head, rope channels included (they are the last ones)."""
    qk_rope_head_dim: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    swiglu_limit: float
    rms_norm_eps: float
    max_position_embeddings: int
    rope_theta: float
    compress_rope_theta: float
    rope_scaling: RopeScaling | None
    n_routed_experts: int
    n_shared_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    routed_scaling_factor: float
    sliding_window: int
    """Window of the attention, the query's own token included."""
    compress_ratios: tuple[int, ...]
    """One per backbone layer, then one (0) per draft layer."""
    kv_source_layer_ids: tuple[int, ...]
    index_k_source_layer_ids: tuple[int, ...]
    index_source_layer_ids: tuple[int, ...]
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    candidate_source_layer_id: int | None
    candidate_topk_blocks: int
    """0 when candidates are off; so is `candidate_block_size`."""
    candidate_block_size: int
    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float
    engram_layer_ids: tuple[int, ...]
    """Empty when Engram is off; the other engram fields are then 0 or empty."""
    engram_num_embeddings: tuple[int, ...]
    engram_max_ngram_size: int
    engram_vocab_size: int
    engram_n_heads: int
    engram_head_dim: int
    engram_pad_token_id: int
    engram_compressed_vocab_size: int
    num_nextn_predict_layers: int
    """Draft layers; 0 turns drafting off and the dspark fields are then 0 or empty."""
    dspark_block_size: int
    dspark_noise_token_id: int
    dspark_target_layer_ids: tuple[int, ...]
    dspark_markov_rank: int
    dspark_n_routed_experts: int
    dspark_num_experts_per_tok: int
    use_fp4_sparse_kv: bool


@dataclass(frozen=True)
class VisionConfig:
    """`vision_config`: the image tower."""

    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    patch_size: int
    rope_theta: float
    downsample_ratio: int
    max_image_tokens: int
    min_pixels: int
    max_wh_ratio: float | None


@dataclass(frozen=True)
class QuantizationConfig:
    """`quantization_config`. One combination exists; the fields are kept for display."""

    quant_method: str
    activation_scheme: str
    weight_block_size: tuple[int, int]
    scale_fmt: str
    expert_dtype: str


@dataclass(frozen=True)
class ModelConfig:
    """The whole file. `topology` holds the layer roles that follow from it."""

    text: TextConfig
    vision: VisionConfig
    quantization: QuantizationConfig
    architecture: str
    model_type: str
    dtype: str
    bos_token_id: int
    eos_token_id: int
    pad_token_id: int
    image_token_id: int
    tokenizer_compatibility: str
    unknown_keys: tuple[str, ...] = ()

    @cached_property
    def topology(self) -> Topology:
        from .topology import build_topology

        return build_topology(self.text)

    @classmethod
    def from_dict(cls, values: Any) -> ModelConfig:
        """Parses the decoded file.

        Raises:
            ConfigError: a key is missing, has a wrong type, or breaks a rule.
        """
        from . import config_rules as rules

        top = Section(values)
        _check_identity(top)
        text_section, vision_section = top.section("text_config"), top.section("vision_config")
        quantization_section = top.section("quantization_config")
        text = rules.text_config(text_section)
        last = text.vocab_size - 1
        compatibility = top.choice("tokenizer_compatibility", ("release", "native"), "release")
        config = cls(
            text=text,
            vision=rules.vision_config(vision_section),
            quantization=rules.quantization_config(quantization_section),
            architecture=ARCHITECTURE,
            model_type=MODEL_TYPE,
            dtype=top.exactly("dtype", "bfloat16"),
            **{f"{role}_token_id": _special(top, role, last, compatibility) for role in SPECIAL_IDS},
            image_token_id=top.integer("image_token_id", low=0, high=last),
            tokenizer_compatibility=compatibility,
            unknown_keys=top.unknown()
            + text_section.unknown()
            + vision_section.unknown()
            + quantization_section.unknown(),
        )
        _ = config.topology  # the sharing rules are part of the file's rules
        return config


def load_config(path: str | Path) -> ModelConfig:
    """Reads `config.json`, given the file or the directory that holds it.

    Raises:
        CheckpointError: no such file, or it is not JSON.
        ConfigError: see `ModelConfig.from_dict`.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "config.json"
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CheckpointError(f"{file}: no such file; a checkpoint directory holds a config.json") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file}: cannot be read: {error}") from None
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: not valid JSON: {error}") from None
    return ModelConfig.from_dict(values)


def _special(top: Section, role: str, last: int, compatibility: str) -> int:
    """An id that the release policy fixes; under the native one the tokenizer's own is compared with it later."""
    key = f"{role}_token_id"
    value = top.integer(key, low=0, high=last)
    if compatibility == "release" and value != SPECIAL_IDS[role]:
        raise top.fail(key, value, f'must be {SPECIAL_IDS[role]} unless tokenizer_compatibility is "native"')
    return value


def _check_identity(top: Section) -> None:
    names = top.raw("architectures")
    if not isinstance(names, list) or len(names) != 1 or names[0] != ARCHITECTURE:
        raise top.fail("architectures", names, f'must be ["{ARCHITECTURE}"], exactly one name')
    top.exactly("model_type", MODEL_TYPE)
    top.ignore("transformers_version")
