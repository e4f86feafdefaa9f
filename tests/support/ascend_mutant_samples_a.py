"""Samples for mutants: rows of several pieces, hashes, drafts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from deepinfer.ops import cache_samples
from deepinfer.ops.cache_steps import empty_pages, make_step, rope_table
from deepinfer.ops.layouts import FP4_16, FP8_32
from deepinfer.ops.spec import SPECS, Sample

CPU = torch.device("cpu")


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _f32(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))


def _bf16(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return _f32(rng, *shape).bfloat16()


def _bytes(rng: np.random.Generator, low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.integers(low, high, shape, dtype=np.uint8))


def _i32(values: object) -> torch.Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.int32)


def gather_rows() -> list[Sample]:
    """Rows of two pieces of 32 KiB and a tail, and a row of zeros."""
    return [Sample("pieces", (_f32(_rng(), 4, 17000), _i32([2, -1, 0])))]


def embed_streams() -> list[Sample]:
    """Rows of a piece of 32 KiB and a tail, and a row of zeros."""
    return [Sample("pieces", (_i32([1, -1, 0]), _bf16(_rng(), 2, 20000), 2))]


def compress_pool() -> list[Sample]:
    """Rows as wide as can be, one of padding."""
    rng, width = _rng(), 2048
    values = _f32(rng, 3, width), _f32(rng, 3, width), _f32(rng, 1, 3, 2, width)
    return [Sample("widest", (*values, _i32([3, 4, 0]), _i32([0, 0, -1]), _i32([3]), _i32([0])))]


def compressed_store() -> list[Sample]:
    """Chunks across a page and a row of padding; rows of more than 512 channels, and few of FP8."""
    rng, found = _rng(), []
    for padding, ratio, record, width in ((0, 1, FP8_32, 64), (1, 2, FP8_32, 576), (1, 2, FP4_16, 576)):
        step = make_step(rng, CPU, ((0, 5), (126, 131), (6, 8)), padding=padding)
        pages, table = empty_pages(step, record, width, ratio), rope_table(256, width // 4, CPU)
        latent = _bf16(rng, step.rows, width)
        latent[0, 0], latent[1] = torch.nan, 0.0
        args = (latent, pages, step.positions, step.row_seq, step.block_table, table, ratio, record.name)
        found.append(Sample(f"{record.name}, {width} channels", args))
    return found


def copy_slots() -> list[Sample]:
    """Slots of two pieces of 32 KiB and a tail, one copied, one cleared."""
    return [Sample("pieces", (_bytes(_rng(), 0, 256, 3, 70000), _i32([[0, 1], [-1, 2]])))]


def scatter_embeds() -> list[Sample]:
    """Rows of a piece of 16,384 channels and a tail, of every kind."""
    rng = _rng()
    x, values, marks = (_bf16(rng, *shape, 17000) for shape in ((4, 2), (2,), (2,)))
    return [Sample("pieces", (x, values, marks, _i32([-3, 1, -1, -2])))]


def engram_hash() -> list[Sample]:
    """Negative multipliers, so that a remainder has to be made positive."""
    rng = _rng()
    primes, multipliers = [257, 263, 269, 271, 277, 281], -rng.integers(1, 2**40, 4)
    given = _i32(rng.integers(0, 64, (9, 4))), _i32(rng.permutation(64))
    wide = (torch.tensor(np.asarray(v, np.int64)) for v in (multipliers, primes, np.cumsum((0, *primes[:-1]))))
    return [Sample("negative multipliers", (*given, *wide, 2))]


def draft_logits() -> list[Sample]:
    """A whole tile of rows with a tail of the rank; rows of a piece of 8,192 tokens and a tail."""
    rng, found = _rng(), []
    for label, rows, vocab, rank in (("whole tile, tail of the rank", 16, 140, 40), ("pieces", 3, 8192 + 300, 16)):
        embed, head = _bf16(rng, vocab, rank), SPECS["draft_logits"].prepare(_bf16(rng, vocab, rank))
        tokens = _i32(rng.integers(0, vocab, rows))
        found.append(Sample(label, (_f32(rng, rows, 2, vocab)[:, 1], tokens, embed, head)))
    return found


def grouped_linear() -> list[Sample]:
    """An odd number of groups of 32 channels, rows gathered, and many enough that a core takes their scales twice."""
    rng, rows, k = _rng(), 700, 160
    weight = SPECS["grouped_linear"].prepare(_bytes(rng, 0, 256, 2, 32, k // 2), _bytes(rng, 118, 128, 2, 32, k // 32))
    xq, xs = _bytes(rng, 0, 0x7F, 50, k).view(torch.float8_e4m3fn), _bytes(rng, 118, 128, 50, k // 32)
    return [
        Sample(
            "gathered", (xq, xs, weight, _i32([*rng.integers(0, 50, rows - 9), *[-1] * 9]), _i32([0, 300, rows - 9]))
        )
    ]


def block_select() -> list[Sample]:
    """More visible entries than there are."""
    return [Sample("more visible than lanes", (_bf16(_rng(), 4, 100), _i32([100, 130, 7, 104]), 8, 4))]


def index_score() -> list[Sample]:
    """More than 16 heads of 128 channels; a tile and a tail of lanes."""
    rng = _rng()
    step = make_step(rng, CPU, ((268, 270),))
    query, weight, pages = cache_samples.score_inputs(rng, step, 20, 128, 2)
    return [Sample("wide heads", (query, weight, pages, step.visible(2), step.row_seq, step.block_table, 2, 135))]


def index_score_blocks() -> list[Sample]:
    """As `index_score`, of blocks of one entry."""
    query, weight, pages, visible, row_seq, block_table, ratio, _ = index_score()[0].args
    step = make_step(_rng(), CPU, ((268, 270),))
    blocks = cache_samples.candidates(_rng(), step, ratio, 1, 131)
    return [Sample("blocks of one", (query, weight, pages, blocks, visible, row_seq, block_table, ratio, 1))]


def sparse_attention() -> list[Sample]:
    """As many heads as rows of a tile of the product; selected keys of a tile and one more."""
    rng = _rng()
    step = make_step(rng, CPU, ((70, 72),))
    return [cache_samples._attention(rng, step, "16 heads, 65 entries", 16, 32, window=16, ratio=1, k=65)]


def hc_collapse() -> list[Sample]:
    """Rows of a piece of 2,048 channels and a tail."""
    rng = _rng()
    return [Sample("pieces", (_bf16(rng, 3, 2, 2048 + 300), _f32(rng, 3, 2)))]


def hc_expand() -> list[Sample]:
    """As `hc_collapse`."""
    rng, width = _rng(), 2048 + 300
    return [Sample("pieces", (_bf16(rng, 3, 2, width), _bf16(rng, 3, width), _f32(rng, 3, 2), _f32(rng, 3, 2, 2)))]


def moe_return() -> list[Sample]:
    """Two chunks of 512 entries and a tail from each rank."""
    rng, ranks, capacity, k = _rng(), 2, 370, 3
    local = rng.random((ranks * capacity, k)) < 0.5
    position = np.full(local.shape, -1)
    position[local] = rng.permutation(local.sum())
    return [Sample("chunks", (_bf16(rng, int(local.sum()), 8), _i32(position), ranks, capacity * k))]


EXTRA: dict[str, Callable[[], list[Sample]]] = {
    "block_select": block_select,
    "compress_pool": compress_pool,
    "compressed_store": compressed_store,
    "copy_slots": copy_slots,
    "draft_logits": draft_logits,
    "embed_streams": embed_streams,
    "engram_hash": engram_hash,
    "gather_rows": gather_rows,
    "grouped_linear": grouped_linear,
    "hc_collapse": hc_collapse,
    "hc_expand": hc_expand,
    "index_score": index_score,
    "index_score_blocks": index_score_blocks,
    "moe_return": moe_return,
    "scatter_embeds": scatter_embeds,
    "sparse_attention": sparse_attention,
}
