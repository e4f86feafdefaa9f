"""Exact top-k and candidate blocks: a radix select in Triton, and the launches of `source/topk.cu`, which is faster.

The Triton kernel works on order-preserving 32-bit images of the values: NaN is below every number, -0 and +0 are one.
It counts eight bits of them at a time, from the top, until the k-th largest is known, and then goes over the row once
more, in order, to write what is larger and as many of its equals as are left, lowest first. Counts are integers, so
nothing depends on the order in which they are made.
"""

from __future__ import annotations

import functools

import torch
import triton.language as tl
from torch import Tensor

from ...hal.registry import Signature
from .compile_list import CompileCase
from .jit import jit
from .register import kernel
from .source import SourceKernel
from .strides import power_of_two

IMAGE_NAN: tl.constexpr = tl.constexpr(0x00010000)
IMAGE_BF16_MAX: tl.constexpr = tl.constexpr(0xFF7F0000)
IMAGE_INFINITY: tl.constexpr = tl.constexpr(0xFF800000)


@jit
def image(bits):
    """uint32 images of the bits of fp32 values, in the order of the values."""
    bits = tl.where(bits == 0x80000000, 0, bits)
    ordered = tl.where(bits >> 31 != 0, ~bits, bits | 0x80000000)
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, IMAGE_NAN, ordered)


@jit
def read_images(scores_ptr, row, lane, seen, lanes, FORMAT: tl.constexpr):
    """Images of lanes of a row. FORMAT: 0 fp32 bits, 1 bf16 bits, 2 the upper half of images."""
    words = tl.load(scores_ptr + row.to(tl.int64) * lanes + lane, mask=seen, other=0)
    if FORMAT == 0:
        return image(words.to(tl.uint32, bitcast=True))
    elif FORMAT == 1:
        return image(words.to(tl.uint16, bitcast=True).to(tl.uint32) << 16) & 0xFFFF0000
    else:
        return words.to(tl.uint16, bitcast=True).to(tl.uint32) << 16


@jit
def lanes_of(blocks_ptr, row, lane, lanes, visible, block_size, block_count, HAS_BLOCKS: tl.constexpr):
    """Entries of lanes, and which of them are visible."""
    inside = lane < lanes
    if HAS_BLOCKS:
        block = tl.load(blocks_ptr + row.to(tl.int64) * block_count + lane // block_size, mask=inside, other=-1).to(
            tl.int64
        )
        entry = block * block_size + lane % block_size
        return entry, inside & (block >= 0) & (entry < visible)
    else:
        return lane, inside & (lane < visible)


@jit
def select_kernel(
    scores_ptr,
    visible_ptr,
    blocks_ptr,
    row_seq_ptr,
    out_ptr,
    chosen_ptr,
    lanes: tl.int64,
    k,
    block_size,
    block_count: tl.int64,
    FORMAT: tl.constexpr,
    HAS_BLOCKS: tl.constexpr,
    PASSES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row: the k best of its visible lanes. With FORMAT 2, lanes are blocks of `block_size` entries.

    Args:
        row_seq_ptr: rows of sequence -1 see nothing; or None. chosen_ptr: for the scores of what is chosen; or None.
    """
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK).to(tl.int64)
    digit = tl.arange(0, 256)
    visible = tl.maximum(tl.load(visible_ptr + row), 0).to(tl.int64)
    if row_seq_ptr is not None:
        visible = tl.where(tl.load(row_seq_ptr + row) < 0, 0, visible)
    if FORMAT == 2:
        visible = (visible + block_size - 1) // block_size
    if HAS_BLOCKS:
        steps = ((lanes + BLOCK - 1) // BLOCK).to(tl.int32)
    else:
        steps = ((tl.minimum(visible, lanes) + BLOCK - 1) // BLOCK).to(tl.int32)
    border = tl.zeros((), tl.uint32)  # bits of the k-th largest image that are known
    left = k + 0
    for step in tl.static_range(PASSES):
        shift = 24 - 8 * step
        counts = tl.zeros((256,), tl.int32)
        lane = place
        for _ in range(steps):
            entry, seen = lanes_of(blocks_ptr, row, lane, lanes, visible, block_size, block_count, HAS_BLOCKS)
            value = read_images(scores_ptr, row, lane, seen, lanes, FORMAT)
            if step > 0:
                seen = seen & ((value >> (shift + 8)) == (border >> (shift + 8)))
            # The histogram's own mask is new; what does not count goes to bin 0 and is taken off again.
            bins = tl.where(seen, ((value >> shift) & 255).to(tl.int32), 0)
            counts += tl.histogram(bins, 256) - tl.where(digit == 0, BLOCK - tl.sum(seen.to(tl.int32)), 0)
            lane += BLOCK
        upto = tl.cumsum(counts, 0)
        reach = tl.sum(counts) - upto + counts  # elements of this digit and above
        found = tl.maximum(tl.sum((reach >= left).to(tl.int32)) - 1, 0)  # fewer than k: all digits 0, all taken
        left -= tl.sum(tl.where(digit > found, counts, 0))
        border |= found.to(tl.uint32) << shift
    taken = tl.zeros((), tl.int32)
    lane = place
    for _ in range(steps):
        entry, seen = lanes_of(blocks_ptr, row, lane, lanes, visible, block_size, block_count, HAS_BLOCKS)
        value = read_images(scores_ptr, row, lane, seen, lanes, FORMAT)
        tie = seen & (value == border)
        rank = tl.cumsum(tie.to(tl.int32), 0)
        take = (seen & (value > border)) | (tie & (rank <= left))
        at = taken + tl.cumsum(take.to(tl.int32), 0) - 1
        tl.store(out_ptr + row * k + at, entry.to(tl.int32), mask=take)
        if chosen_ptr is not None:
            tl.store(chosen_ptr + row * k + at, tl.load(scores_ptr + row * lanes + lane, mask=take, other=0), mask=take)
        left -= tl.minimum(tl.sum(tie.to(tl.int32)), left)
        taken += tl.sum(take.to(tl.int32))
        lane += BLOCK
    at = taken + tl.arange(0, BLOCK)
    for _ in range((k - taken + BLOCK - 1) // BLOCK):
        tl.store(out_ptr + row * k + at, tl.zeros((BLOCK,), tl.int32) - 1, mask=at < k)
        at += BLOCK


@jit
def block_image_kernel(
    scores_ptr,
    visible_ptr,
    out_ptr,
    lanes: tl.int64,
    count: tl.int64,
    block_size,
    LINES: tl.constexpr,
    SIZE: tl.constexpr,
):
    """The upper halves of the images of blocks' scores; the last visible block is infinite."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1).to(tl.int64) * LINES + tl.arange(0, LINES)
    visible = tl.minimum(tl.maximum(tl.load(visible_ptr + row), 0).to(tl.int64), lanes)
    best = tl.zeros((LINES,), tl.uint32)
    for first in range(0, block_size, SIZE):
        within = first + tl.arange(0, SIZE)
        lane = block[:, None] * block_size + within[None, :]
        seen = (within < block_size)[None, :] & (lane < visible)
        words = tl.load(scores_ptr + row.to(tl.int64) * lanes + lane, mask=seen, other=0)
        value = image(words.to(tl.uint16, bitcast=True).to(tl.uint32) << 16)
        best = tl.maximum(best, tl.max(tl.where(seen, value, 0), axis=1))
    best = tl.minimum(best, IMAGE_BF16_MAX)
    best = tl.where(block == (visible - 1) // block_size, IMAGE_INFINITY, best)
    tl.store(out_ptr + row * count + block, (best >> 16).to(tl.uint16).to(tl.int16, bitcast=True), mask=block < count)


def _tile(lanes: int) -> int:
    return power_of_two(min(lanes, 4096), least=128)


def _output(rows: int, k: int, like: Tensor, out: Tensor | None) -> Tensor:
    return torch.empty((rows, k), dtype=torch.int32, device=like.device) if out is None else out


def select(
    scores: Tensor, visible: Tensor, k: int, blocks: Tensor | None, block_size: int, out: Tensor,
    row_seq: Tensor | None = None, chosen: Tensor | None = None,
) -> None:  # fmt: skip
    """`topk_select` in Triton into `out`.

    Args:
        row_seq: i32 [T]; rows of sequence -1 see nothing. chosen: [T, k] of the scores' dtype, for what is chosen.
    """
    rows, lanes = scores.shape
    if not rows:
        return
    wide = scores.dtype == torch.float32
    words = torch.int32 if wide else torch.int16
    select_kernel[(rows,)](
        scores.view(words), visible, blocks, row_seq, out, None if chosen is None else chosen.view(words), lanes, k,
        block_size, 0 if blocks is None else blocks.shape[1], FORMAT=0 if wide else 1, HAS_BLOCKS=blocks is not None,
        PASSES=4 if wide else 2, BLOCK=_tile(lanes), num_warps=8,
    )  # fmt: skip


@kernel("topk_select", version=0)
def topk_select(
    scores: Tensor, visible: Tensor, k: int, blocks: Tensor | None, block_size: int, out: Tensor | None
) -> Tensor:
    out = _output(scores.shape[0], k, scores, out)
    select(scores, visible, k, blocks, block_size, out)
    return out


def block_bytes(scores: Tensor, visible: Tensor, block_size: int, k: int) -> int:
    """Scratch: half an image for each block."""
    return 2 * scores.shape[0] * -(-scores.shape[1] // block_size)


@kernel("block_select", version=0, workspace=block_bytes)
def block_select(
    scores: Tensor, visible: Tensor, block_size: int, k: int, out: Tensor | None, workspace: Tensor | None = None
) -> Tensor:
    rows, lanes = scores.shape
    out = _output(rows, k, scores, out)
    count = -(-lanes // block_size)
    if workspace is None:
        workspace = torch.empty(block_bytes(scores, visible, block_size, k), dtype=torch.uint8, device=scores.device)
    images = workspace[: 2 * rows * count].view(torch.int16)
    if rows and count:
        size = power_of_two(min(block_size, 64))
        lines = max(1, 1024 // size)
        block_image_kernel[(rows, -(-count // lines))](
            scores.view(torch.int16), visible, images, lanes, count, block_size, LINES=lines, SIZE=size, num_warps=4
        )
    if rows:
        select_kernel[(rows,)](
            images, visible, None, None, out, None, count, k, block_size, 0, FORMAT=2, HAS_BLOCKS=False, PASSES=2,
            BLOCK=_tile(count), num_warps=8,
        )  # fmt: skip
    return out


# ---- CUDA C++ --------------------------------------------------------------------------------------------------------

_PART = 4096
_MOST_SHARED = 200 << 10
_THREADS = {"small": 256, "stream": 512, "long": 1024}


def _items(k: int, ctas: int) -> int:
    """Elements that the list of `source/topk.cu` holds."""
    return -(-max(k + _PART, ctas * k) // 2) * 2


@functools.cache
def source_kernel(shape: str, form: str, ctas: int, k: int) -> SourceKernel:
    """A kernel of `source/topk.cu` with room for k in its list."""
    return SourceKernel(
        "topk.cu", f"{shape}_{form}_{ctas}", "PPPPPPiiiii", threads=_THREADS[shape], shared=8 * _items(k, ctas)
    )


def list_fits(signature: Signature) -> str | None:
    """The k best of a row, and what comes to them, fit shared memory."""
    most = _MOST_SHARED // 8 - _PART
    k = signature.scalars["k"]
    return None if k <= most else f"k must be at most {most}, got {k}"


def shape_of(rows: int, lanes: int, form: str, k: int) -> tuple[str, int]:
    """Which kernel, and how many CTAs for a row, as measured on an H200. The result is the same with any."""
    if form == "blocks":
        split = lanes >= 8192 and 32 * k <= _MOST_SHARED
        return "stream", (4 if rows <= 33 else 2 if rows <= 66 else 1) if split else 1
    if lanes >= 131072 and rows <= 66 and 32 * k <= _MOST_SHARED:
        return ("stream", 2) if form == "f32" else ("long", 4 if rows <= 33 else 2)
    if rows > 264 and (form == "bf16" or lanes <= 8192):
        return "small", 1
    return ("long" if form == "bf16" and rows <= 132 and lanes > 16384 else "stream"), 1


def launch_source(
    form: str, scores: Tensor, visible: Tensor, k: int, blocks: Tensor | None, size: int, out: Tensor,
    row_seq: Tensor | None = None, chosen: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`topk_select` ('f32', 'bf16') or `block_select` ('blocks') by `source/topk.cu`; arguments as of `select`."""
    rows, lanes = scores.shape
    if rows:
        shape, ctas = shape_of(rows, lanes // size if form == "blocks" else lanes, form, k)
        count = 0 if blocks is None else blocks.shape[1]
        pointers = [0 if t is None else t.data_ptr() for t in (scores, visible, blocks, row_seq, out, chosen)]
        source_kernel(shape, form, ctas, k).launch(
            (rows * ctas, 1, 1), scores.device.index, *pointers, lanes, k, size, count, _items(k, ctas)
        )
    return out


@kernel("topk_select", version=0, name="source", source="cuda", priority=10, supports=list_fits)
def topk_select_source(
    scores: Tensor, visible: Tensor, k: int, blocks: Tensor | None, block_size: int, out: Tensor | None
) -> Tensor:
    form = "f32" if scores.dtype == torch.float32 else "bf16"
    return launch_source(form, scores, visible, k, blocks, block_size, _output(scores.shape[0], k, scores, out))


@kernel("block_select", version=0, name="source", source="cuda", priority=10, supports=list_fits)
def block_select_source(scores: Tensor, visible: Tensor, block_size: int, k: int, out: Tensor | None) -> Tensor:
    return launch_source("blocks", scores, visible, k, None, block_size, _output(scores.shape[0], k, scores, out))


_NUMBERS = {"lanes": "i64", "k": "i32", "block_size": "i32", "block_count": "i64"}
COMPILES = [
    *(
        CompileCase(
            select_kernel,
            {
                "scores_ptr": words, "visible_ptr": "*i32", "blocks_ptr": blocks, "row_seq_ptr": row_seq,
                "out_ptr": "*i32", "chosen_ptr": words if row_seq else None, **_NUMBERS,
            },
            {"FORMAT": form, "HAS_BLOCKS": blocks is not None, "PASSES": passes, "BLOCK": 4096},
            num_warps=8,
            label=label,
        )
        for label, words, blocks, row_seq, form, passes in (
            ("fp32", "*i32", None, None, 0, 4),
            ("bf16", "*i16", None, None, 1, 2),
            ("bf16, candidate blocks", "*i16", "*i32", None, 1, 2),
            ("blocks", "*i16", None, None, 2, 2),
            ("bf16, with scores", "*i16", None, "*i32", 1, 2),
            ("bf16, candidate blocks, with scores", "*i16", "*i32", "*i32", 1, 2),
        )
    ),
    CompileCase(
        block_image_kernel,
        {
            "scores_ptr": "*i16", "visible_ptr": "*i32", "out_ptr": "*i16", "lanes": "i64", "count": "i64",
            "block_size": "i32",
        },
        {"LINES": 128, "SIZE": 8},
    ),
]  # fmt: skip
SOURCES = [
    source_kernel(shape, form, ctas, k)
    for shape, form, ctas, k in (
        ("small", "f32", 1, 512), ("stream", "f32", 1, 512), ("stream", "f32", 2, 512), ("small", "bf16", 1, 512),
        ("stream", "bf16", 1, 512), ("long", "bf16", 1, 512), ("long", "bf16", 2, 512), ("long", "bf16", 4, 512),
        ("stream", "blocks", 1, 2048), ("stream", "blocks", 2, 2048), ("stream", "blocks", 4, 2048),
    )
]  # fmt: skip
