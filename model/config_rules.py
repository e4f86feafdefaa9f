"""The rules of the sections of `config.json`: each function reads one section, or the keys of one subject.

Keys are read in an order in which every rule finds what it compares with already checked.
"""

from __future__ import annotations

from typing import Any

from ..hal.errors import ConfigError
from .config import QUANT_GROUP, QuantizationConfig, RopeScaling, TextConfig, VisionConfig
from .config_reader import Section
from .engram_tables import table_primes

MAX_LAYERS, MAX_EXPERTS, MAX_ITERATIONS = 1024, 1 << 13, 1000
"""No model comes near these. They bound what is listed, built or repeated per unit before a tensor could disagree."""


def quantization_config(s: Section) -> QuantizationConfig:
    block = s.integers("weight_block_size", low=1, length=2)
    if block != (QUANT_GROUP, QUANT_GROUP):
        raise s.fail("weight_block_size", list(block), f"must be [{QUANT_GROUP}, {QUANT_GROUP}]")
    return QuantizationConfig(
        quant_method=s.exactly("quant_method", "fp8"),
        activation_scheme=s.exactly("activation_scheme", "dynamic"),
        weight_block_size=(block[0], block[1]),
        scale_fmt=s.exactly("scale_fmt", "ue8m0"),
        expert_dtype=s.exactly("expert_dtype", "fp4"),
    )


def vision_config(s: Section) -> VisionConfig:
    s.exactly("model_type", "deepseek_v41_vision")
    heads = s.integer("num_attention_heads", low=1)
    # The 2-D rotation splits a head into row and column halves of channel pairs.
    hidden = s.integer("hidden_size", low=1, multiple=4 * heads)
    ratio = s.raw("max_wh_ratio", None)
    return VisionConfig(
        num_hidden_layers=s.integer("num_hidden_layers", low=1, high=MAX_LAYERS),
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=s.integer("intermediate_size", low=1),
        patch_size=s.integer("patch_size", low=1),
        rope_theta=s.number("rope_theta", above=0),
        downsample_ratio=s.integer("downsample_ratio", low=1),
        max_image_tokens=s.integer("max_image_tokens", low=4),  # start, one patch, its line end, end
        min_pixels=s.integer("min_pixels", low=0),
        max_wh_ratio=None if ratio is None else s.number("max_wh_ratio", low=1),
    )


def text_config(s: Section) -> TextConfig:
    s.ignore("initializer_range", "use_cache")
    _check_fixed(s)
    layers = s.integer("num_hidden_layers", low=1, high=MAX_LAYERS)
    vocab = s.integer("vocab_size", low=1)
    fields: dict[str, Any] = {"num_hidden_layers": layers, "vocab_size": vocab}
    fields |= _attention_sizes(s)
    fields |= _rope(s, fields["head_dim"])
    fields |= _experts(s)
    fields |= _draft(s, layers, vocab)
    fields |= _sharing(s, layers, fields["num_nextn_predict_layers"])
    fields |= _indexer(s, fields["qk_rope_head_dim"])
    fields |= _candidates(s, fields)
    fields |= _engram(s, layers, vocab)
    fields |= _hyper_connections(s, engram=bool(fields["engram_layer_ids"]))
    return TextConfig(**fields)


def _check_fixed(s: Section) -> None:
    """Keys with one supported value."""
    s.exactly("model_type", "deepseek_v41_text")
    s.exactly("num_key_value_heads", 1)
    s.exactly("hidden_act", "silu")
    s.exactly("attention_bias", False)
    s.exactly("attention_dropout", 0.0)
    s.exactly("tie_word_embeddings", False)
    s.exactly("scoring_func", "sqrtsoftplus")
    s.exactly("topk_method", "noaux_tc")
    s.exactly("norm_topk_prob", True)
    s.exactly("gate_temp", 1.0, 1.0)
    s.exactly("hc_shifted", True, True)
    s.exactly("dspark_target_attn_input", True, True)


def _attention_sizes(s: Section) -> dict[str, Any]:
    heads = s.integer("num_attention_heads", low=1)
    groups = s.integer("o_groups", low=1)
    if heads % groups:
        raise s.fail("num_attention_heads", heads, f"must be divisible by o_groups ({groups})")
    if s.raw("q_lora_rank") is None:
        raise s.fail("q_lora_rank", None, "must not be null")
    return {
        "hidden_size": s.integer("hidden_size", low=1, multiple=QUANT_GROUP),
        "num_attention_heads": heads,
        "num_key_value_heads": 1,
        "head_dim": s.integer("head_dim", low=1, multiple=QUANT_GROUP),
        "q_lora_rank": s.integer("q_lora_rank", low=1, multiple=QUANT_GROUP),
        "o_lora_rank": s.integer("o_lora_rank", low=1, multiple=QUANT_GROUP),
        "o_groups": groups,
        "rms_norm_eps": s.number("rms_norm_eps", above=0),
        "sliding_window": s.integer("sliding_window", low=4, multiple=4),
        "max_position_embeddings": s.integer("max_position_embeddings", low=1),
        "use_fp4_sparse_kv": s.boolean("use_fp4_sparse_kv", True),
    }


def _rope(s: Section, head_dim: int) -> dict[str, Any]:
    scaling = None
    if s.raw("rope_scaling", None) is not None:
        r = s.section("rope_scaling")
        r.exactly("rope_type", "yarn")
        scaling = RopeScaling(
            factor=r.number("factor", low=1),
            beta_fast=r.number("beta_fast", above=0),
            beta_slow=r.number("beta_slow", above=0),
            original_max_position_embeddings=r.integer("original_max_position_embeddings", low=1),
        )
        if scaling.beta_fast < scaling.beta_slow:
            raise r.fail("beta_fast", scaling.beta_fast, f"must be >= beta_slow ({scaling.beta_slow})")
        if r.unknown():  # another key would change the frequencies, so it cannot be passed over
            raise ConfigError(r.unknown()[0], r.raw(r.unknown()[0].rpartition(".")[2]), "is not a known YaRN parameter")
    return {
        "qk_rope_head_dim": s.integer("qk_rope_head_dim", low=2, high=head_dim, multiple=2),
        "rope_theta": s.number("rope_theta", above=1),
        "compress_rope_theta": s.number("compress_rope_theta", above=1),
        "rope_scaling": scaling,
    }


def _experts(s: Section) -> dict[str, Any]:
    experts = s.integer("n_routed_experts", low=1, high=MAX_EXPERTS)
    return {
        "n_routed_experts": experts,
        "n_shared_experts": s.integer("n_shared_experts", low=1),
        "num_experts_per_tok": s.integer("num_experts_per_tok", low=1, high=experts),
        "moe_intermediate_size": s.integer("moe_intermediate_size", low=1, multiple=QUANT_GROUP),
        "routed_scaling_factor": s.number("routed_scaling_factor", above=0),
        "swiglu_limit": s.number("swiglu_limit", above=0),
    }


def _sharing(s: Section, layers: int, drafts: int) -> dict[str, Any]:
    ratios = s.integers("compress_ratios", low=0, high=2, length=layers + drafts)
    if any(ratios[layers:]):
        raise s.fail("compress_ratios", list(ratios), f"the last {drafts} entries (draft layers) must be 0")
    ids: dict[str, Any] = {"low": 0, "high": layers - 1, "ascending": True}
    kv = s.integers("kv_source_layer_ids", **ids)
    return {
        "compress_ratios": ratios,
        "kv_source_layer_ids": kv,
        "index_k_source_layer_ids": s.integers("index_k_source_layer_ids", kv, **ids)
        if s.raw("index_k_source_layer_ids", None) is not None
        else kv,
        "index_source_layer_ids": s.integers("index_source_layer_ids", **ids),
    }


def _indexer(s: Section, rope_dim: int) -> dict[str, Any]:
    return {
        "index_n_heads": s.integer("index_n_heads", low=1),
        "index_head_dim": s.integer("index_head_dim", low=rope_dim, multiple=QUANT_GROUP),
        "index_topk": s.integer("index_topk", low=1),
    }


def _candidates(s: Section, fields: dict[str, Any]) -> dict[str, Any]:
    source = s.raw("candidate_source_layer_id")
    if source is not None:
        source = s.integer("candidate_source_layer_id", high=fields["num_hidden_layers"] - 1)
    if source is None or source < 0:
        s.ignore("candidate_topk_blocks", "candidate_block_size")
        return {"candidate_source_layer_id": None, "candidate_topk_blocks": 0, "candidate_block_size": 0}
    blocks = s.integer("candidate_topk_blocks", low=8, high=4096, multiple=8)
    size = s.integer("candidate_block_size")
    if size not in (8, 16):
        raise s.fail("candidate_block_size", size, "must be 8 or 16")
    topk, heads = fields["index_topk"], fields["index_n_heads"]
    if blocks * size < topk:
        raise s.fail(
            "candidate_topk_blocks", blocks, f"times candidate_block_size ({size}) must be >= index_topk ({topk})"
        )
    if heads > 32:
        raise s.fail("index_n_heads", heads, "must be <= 32 when candidate_source_layer_id is set")
    return {"candidate_source_layer_id": source, "candidate_topk_blocks": blocks, "candidate_block_size": size}


_ENGRAM_KEYS = ("max_ngram_size", "vocab_size", "n_heads", "head_dim", "pad_token_id", "compressed_vocab_size")


def _engram(s: Section, layers: int, vocab: int) -> dict[str, Any]:
    ids: tuple[int, ...] = ()
    if s.raw("engram_layer_ids", None) is not None:
        ids = s.integers("engram_layer_ids", high=layers - 1, ascending=True)
    if not ids:
        s.ignore("engram_num_embeddings", "engram_pad_id", *(f"engram_{key}" for key in _ENGRAM_KEYS))
        off: dict[str, Any] = {f"engram_{key}": 0 for key in _ENGRAM_KEYS}
        return off | {"engram_layer_ids": (), "engram_num_embeddings": ()}
    compressed = s.raw("engram_compressed_vocab_size")
    if not compressed:
        raise s.fail("engram_compressed_vocab_size", compressed, "must be set when engram_layer_ids is not empty")
    fields: dict[str, Any] = {
        "engram_layer_ids": ids,
        "engram_max_ngram_size": s.integer("engram_max_ngram_size", low=2, high=64),
        "engram_vocab_size": s.integer("engram_vocab_size", low=2, high=2**40),
        "engram_n_heads": s.integer("engram_n_heads", low=1, high=1024),
        "engram_head_dim": s.integer("engram_head_dim", low=1, multiple=QUANT_GROUP),
        "engram_pad_token_id": _engram_pad(s, vocab),
        "engram_compressed_vocab_size": s.integer("engram_compressed_vocab_size", low=1, high=vocab),
    }
    primes = table_primes(ids, fields["engram_vocab_size"], fields["engram_max_ngram_size"], fields["engram_n_heads"])
    rows = tuple(int(primes[layer].sum()) for layer in ids)
    given = s.integers("engram_num_embeddings", rows, length=len(ids))
    if given != rows:
        raise s.fail("engram_num_embeddings", list(given), f"must be the sums of the hash primes, {list(rows)}")
    return fields | {"engram_num_embeddings": rows}


def _engram_pad(s: Section, vocab: int) -> int:
    """The two spellings `engram_pad_token_id` and `engram_pad_id`; both may stand if they agree."""
    if not s.has("engram_pad_id"):
        return s.integer("engram_pad_token_id", low=0, high=vocab - 1)
    pad = s.integer("engram_pad_id", low=0, high=vocab - 1)
    if s.integer("engram_pad_token_id", pad) != pad:
        raise s.fail("engram_pad_token_id", s.raw("engram_pad_token_id"), f"must equal engram_pad_id ({pad})")
    return pad


def _hyper_connections(s: Section, *, engram: bool) -> dict[str, Any]:
    streams = s.integer("hc_mult", low=1)
    if engram and streams < 2:
        raise s.fail("hc_mult", streams, "must be > 1 when engram_layer_ids is not empty")
    return {
        "hc_mult": streams,
        "hc_sinkhorn_iters": s.integer("hc_sinkhorn_iters", low=1, high=MAX_ITERATIONS),
        "hc_eps": s.number("hc_eps", above=0),
    }


_DRAFT_INTEGERS = ("block_size", "noise_token_id", "markov_rank", "n_routed_experts", "num_experts_per_tok")


def _draft(s: Section, layers: int, vocab: int) -> dict[str, Any]:
    drafts = s.integer("num_nextn_predict_layers", low=0, high=MAX_LAYERS)
    if drafts == 0:
        s.ignore("dspark_target_layer_ids", *(f"dspark_{key}" for key in _DRAFT_INTEGERS))
        off: dict[str, Any] = {f"dspark_{key}": 0 for key in _DRAFT_INTEGERS}
        return off | {"num_nextn_predict_layers": 0, "dspark_target_layer_ids": ()}
    targets = s.integers("dspark_target_layer_ids", high=layers - 1)
    if not targets or len(set(targets)) != len(targets):
        raise s.fail("dspark_target_layer_ids", list(targets), "must name at least one layer, each once")
    experts = s.integer("dspark_n_routed_experts", low=1, high=MAX_EXPERTS)
    return {
        "num_nextn_predict_layers": drafts,
        "dspark_block_size": s.integer("dspark_block_size", low=1),
        "dspark_noise_token_id": s.integer("dspark_noise_token_id", low=0, high=vocab - 1),
        "dspark_target_layer_ids": targets,
        "dspark_markov_rank": s.integer("dspark_markov_rank", low=1),
        "dspark_n_routed_experts": experts,
        "dspark_num_experts_per_tok": s.integer("dspark_num_experts_per_tok", low=1, high=experts),
    }
