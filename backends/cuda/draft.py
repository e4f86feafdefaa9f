"""Drafting: taps, rows of the draft pass, bigram correction, confidences, and how rows are shared out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...hal.registry import Signature
from ...ops.draft import CONFIDENCE_CLAMP
from ...ops.spec import WeightHandle
from . import draft_kernels as device
from .compile_list import CompileCase
from .register import kernel
from .strides import alignment, power_of_two
from .wide_rows import row_sizes, whole_rows

BLOCK = 128
PAIRS = 32
"""Sequences whose drafts a program ranks."""


def tap_sizes(streams: int, width: int) -> dict[str, int]:
    """Constants of `tap_kernel`."""
    return {"M": streams, "D": width, "BLOCK": min(1024, power_of_two(width, least=32))}


@kernel("draft_tap", version=0)
def draft_tap(x: Tensor, taps: Tensor, place: int, out: None) -> None:
    rows, streams, width = x.shape
    if rows and streams and width:
        sizes = tap_sizes(streams, width)
        grid = (rows * -(-width // sizes["BLOCK"]),)
        device.tap_kernel[grid](x, taps, place, taps.shape[1], **sizes, num_warps=4)


@kernel("draft_inputs", version=0)
def draft_inputs(
    tokens: Tensor,
    base: Tensor,
    accepted: Tensor,
    valid_start: Tensor,
    block: int,
    window: int,
    noise: int,
    out: tuple[Tensor, ...] | None,
) -> tuple[Tensor, ...]:
    sequences = tokens.shape[0]
    if out is None:
        counts = [sequences * block] * 5 + [sequences] * 2
        numbers = (torch.empty(count, dtype=torch.int32, device=tokens.device) for count in counts)
        out = *numbers, torch.empty((block, sequences), dtype=torch.int64, device=tokens.device)
    if sequences:
        device.inputs_kernel[(-(-sequences // BLOCK),)](
            tokens, base, accepted, valid_start, *out, sequences, window, noise, DRAFTS=block, BLOCK=BLOCK, num_warps=4
        )
    return out


def logits_sizes(vocabulary: int, rank: int) -> dict[str, int]:
    """Constants of `logits_kernel`."""
    return {"V": vocabulary, "R": rank, "ROWS": 64, "TOKENS": 128, "BLOCK": 64}


@kernel("draft_logits", version=0)
def draft_logits(base: Tensor, tokens: Tensor, embed: Tensor, handle: WeightHandle, out: Tensor | None) -> Tensor:
    (head,), (rows, vocabulary) = handle.tensors, base.shape
    if out is None:
        out = torch.empty((rows, vocabulary), dtype=torch.float32, device=base.device)
    if rows and vocabulary:
        sizes, align = logits_sizes(*head.shape), alignment(base) // 4
        grid = (-(-rows // sizes["ROWS"]) * -(-vocabulary // sizes["TOKENS"]),)
        device.logits_kernel[grid](
            base, tokens, embed, head, out, rows, embed.shape[0], base.stride(0) // align, ALIGN=align, **sizes,
            num_warps=4, num_stages=3,
        )  # fmt: skip
    return out


def narrow_features(signature: Signature) -> str | None:
    """A program takes a row of hidden channels whole, and one of the embedding."""
    wide = whole_rows("D")(signature)
    return wide or whole_rows("r")(signature)


def confidence_sizes(width: int, rank: int) -> dict[str, Any]:
    """Constants of `confidence_kernel`, and num_warps."""
    sizes: dict[str, Any] = row_sizes(width)
    del sizes["ROWS"]
    return {**sizes, "R": rank, "R_PADDED": power_of_two(rank)}


@kernel("draft_confidence", version=0, supports=narrow_features)
def draft_confidence(
    hidden: Tensor, tokens: Tensor, embed: Tensor, weight: Tensor, inv_temperature: Tensor, out: Tensor | None
) -> Tensor:
    sequences, drafts, width = hidden.shape
    if out is None:
        out = torch.empty((sequences, drafts), dtype=torch.float32, device=hidden.device)
    if sequences and drafts:
        device.confidence_kernel[(sequences * drafts,)](
            hidden, tokens, embed, weight, inv_temperature, out, embed.shape[0], DRAFTS=drafts, CLAMP=CONFIDENCE_CLAMP,
            **confidence_sizes(width, embed.shape[1]),
        )  # fmt: skip
    return out


@kernel("draft_store", version=0)
def draft_store(
    tokens: Tensor,
    confidence: Tensor,
    stop: Tensor | None,
    slots: Tensor,
    pool_tokens: Tensor,
    pool_confidence: Tensor,
    out: None,
) -> None:
    sequences, drafts = tokens.shape
    if sequences and drafts:
        device.store_kernel[(-(-sequences // BLOCK),)](
            tokens, confidence.view(torch.int32), stop, slots, pool_tokens, pool_confidence.view(torch.int32),
            sequences, pool_tokens.shape[0], DRAFTS=drafts, BLOCK=BLOCK, num_warps=4,
        )  # fmt: skip


@kernel("correct_q", version=0)
def correct_q(confidence: Tensor, remap: Tensor, total: int, out: Tensor | None) -> Tensor:
    sequences, drafts = remap.shape[0], confidence.shape[1]
    if out is None:
        out = torch.empty(sequences, dtype=torch.int32, device=remap.device)
    if sequences:
        device.share_rows[(-(-sequences // PAIRS),)](
            confidence, remap, out, sequences, confidence.shape[0], total, DRAFTS=drafts, BLOCK=PAIRS, STEP=128,
            num_warps=4,
        )  # fmt: skip
    return out


@kernel("correct_k", version=0)
def correct_k(base: Tensor, q: Tensor, remap: Tensor, assumed: Tensor, accepted: Tensor, out: Tensor | None) -> Tensor:
    sequences = base.shape[0]
    if out is None:
        out = torch.empty_like(base)
    if sequences:
        device.lengths_kernel[(-(-sequences // BLOCK),)](
            base, q, remap, assumed, accepted, out, sequences, accepted.shape[0], BLOCK=BLOCK, num_warps=4
        )
    return out


_BF16 = ("x_ptr", "taps_ptr", "embed_ptr", "head_ptr", "hidden_ptr", "weight_ptr")
_F32 = ("logits_ptr", "rate_ptr", "out_ptr", "confidence_ptr")


def _case(kernel: Any, label: str = "", types: dict[str, str | None] | None = None, **constants: Any) -> CompileCase:
    warps = constants.pop("num_warps", 4)
    known = {**dict.fromkeys(_BF16, "*bf16"), **dict.fromkeys(_F32, "*fp32"), "stop_ptr": "*i1", "draw_ptr": "*i64"}
    signature: dict[str, str | None] = {}
    for name, kind in kernel.kinds.items():
        if kind != "constexpr":
            signature[name] = known.get(name) or ("*i32" if name.endswith("_ptr") else kind or "i32")
    return CompileCase(kernel, {**signature, **(types or {})}, constants, num_warps=warps, label=label)


COMPILES = [
    _case(device.tap_kernel, **tap_sizes(4, 5120)),
    _case(device.inputs_kernel, DRAFTS=5, BLOCK=BLOCK),
    _case(device.logits_kernel, ALIGN=4, **logits_sizes(129280, 256)),
    _case(device.confidence_kernel, DRAFTS=5, CLAMP=CONFIDENCE_CLAMP, **confidence_sizes(5120, 256)),
    _case(device.store_kernel, "", {"confidence_ptr": "*i32"}, DRAFTS=5, BLOCK=BLOCK),
    _case(device.store_kernel, "no stop", {"confidence_ptr": "*i32", "stop_ptr": None}, DRAFTS=5, BLOCK=BLOCK),
    _case(device.share_rows, "", {"out_ptr": "*i32"}, DRAFTS=5, BLOCK=PAIRS, STEP=128),
    _case(device.lengths_kernel, "", {"out_ptr": "*i32"}, BLOCK=BLOCK),
]
