"""The op contract: specs, record layouts, dispatch. What the model and the runtime call.

Every public op is a function of this package; its spec is in the family's module under the same name in capitals, and
in `spec.SPECS`. Sampling ops are called through `ops.sampling`.

Aliasing, for every op: `out` overlaps no argument and no other output, except that it may be an argument itself where
the spec says so (`Result.in_place`); a mutable argument overlaps no other argument. Every call with `out` checks it;
mutable arguments are checked when a signature is first seen.
"""

from . import sampling
from .attention import sparse_attention
from .draft import (
    correct_k,
    correct_q,
    draft_confidence,
    draft_inputs,
    draft_logits,
    draft_logits_prepare,
    draft_store,
    draft_tap,
)  # fmt: skip
from .embed import embed_streams, gather_rows
from .engram import engram_gate, engram_gather, engram_hash
from .exchange import moe_dispatch, moe_return
from .fused import hc_collapse_norm, index_topk, moe_route, moe_route_prepare, rms_norm_quant
from .hyper_connections import hc_coefficients, hc_collapse, hc_expand
from .index import block_select, index_query_pack, index_score, index_score_blocks, topk_select
from .kv import (
    compress_pool,
    compressed_store,
    compressor_ring_store,
    index_key_store,
    window_pack,
    window_store,
)  # fmt: skip
from .linear import (
    linear_bf16,
    linear_bf16_prepare,
    linear_fp8,
    linear_fp8_grouped,
    linear_fp8_grouped_prepare,
    linear_fp8_prepare,
)  # fmt: skip
from .mirror import mirror_rows, replay_rows
from .moe import grouped_linear, grouped_linear_prepare, moe_combine, moe_gate, moe_pack, swiglu_quant
from .moves import copy_slots, load_records, ring_move
from .norm import rms_norm
from .quant import quant_fp8
from .rope import rope
from .sampling_rows import expand_params, lookup_candidates, mask_rows
from .step import step_metadata, step_tokens
from .verify import accept_prefix, draft_distribution, verify_drafts
from .vision import (
    image_attention,
    image_patches,
    image_rope,
    merge_patches,
    scatter_embeds,
    silu_mul,
    vision_linear,
    vision_linear_prepare,
)  # fmt: skip

__all__ = [
    "accept_prefix", "block_select", "compress_pool", "compressed_store", "compressor_ring_store", "copy_slots",
    "correct_k", "correct_q", "draft_confidence", "draft_distribution", "draft_inputs", "draft_logits",
    "draft_logits_prepare", "draft_store", "draft_tap", "embed_streams", "engram_gate", "engram_gather",
    "engram_hash", "expand_params", "gather_rows", "grouped_linear", "grouped_linear_prepare", "hc_coefficients",
    "hc_collapse", "hc_collapse_norm", "hc_expand", "image_attention", "image_patches", "image_rope",
    "index_key_store", "index_query_pack", "index_score", "index_score_blocks", "index_topk", "linear_bf16",
    "linear_bf16_prepare", "linear_fp8", "linear_fp8_grouped", "linear_fp8_grouped_prepare", "linear_fp8_prepare",
    "load_records", "lookup_candidates", "mask_rows", "merge_patches", "mirror_rows", "moe_combine", "moe_dispatch",
    "moe_gate", "moe_pack", "moe_return", "moe_route", "moe_route_prepare", "quant_fp8", "replay_rows", "ring_move",
    "rms_norm", "rms_norm_quant", "rope", "sampling", "scatter_embeds", "silu_mul", "sparse_attention",
    "step_metadata", "step_tokens", "swiglu_quant", "topk_select", "verify_drafts", "vision_linear",
    "vision_linear_prepare", "window_pack", "window_store",
]  # fmt: skip
