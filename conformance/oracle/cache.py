"""Oracles of records, their stores, pooling, index scores and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...ops.layouts import FP4_32_INDEX, FP8_32, PAGE_TOKENS, entries_per_page
from ...ops.numerics import Accumulated
from ...ops.spec import SPECS
from ..compare.decided_codes import compare_codes
from ..compare.exact import compare_bits
from ..compare.report import Report
from .attention import attention
from .expected import (
    BF16,
    U16,
    Args,
    Codes,
    Within,
    accumulated,
    codes,
    decided,
    floats,
    judged,
    terms_of,
    torched,
)
from .formats import Bytes, decode, f64
from .layers import turned

Ints = npt.NDArray[np.integer[Any]]


@floats("compress_pool")
def compress_pool(*args: Any) -> list[Within]:
    value, gate, ring, positions, row_seq, seq_start, state_slot = args
    want, magnitude = np.zeros((2, *value.shape))
    for t, (p, s) in enumerate(zip(positions.tolist(), row_seq.tolist(), strict=True)):
        if s < 0 or p % 2 == 0:
            continue
        stored = f64(ring[int(state_slot[s]), (p - 1) % ring.shape[1]])
        before = (f64(gate[t - 1]), f64(value[t - 1])) if p - 1 >= int(seq_start[s]) else (stored[0], stored[1])
        gates, values = (np.stack((a, f64(b[t]))) for a, b in zip(before, (gate, value), strict=True))
        with np.errstate(all="ignore"):
            weight = np.exp(gates - gates.max(0))
            weight = weight / weight.sum(0)
            want[t] = (weight * values).sum(0)
            # A weight: the difference of the gates (a rounding of it) and the exponential (4), in it and in the sum it
            # is divided by; sum and quotient 2: at most 4 + |difference| times the class's 4 = 2 terms + 2.
            magnitude[t] = (weight * np.abs(values)).sum(0) * (4 + np.abs(gates[0] - gates[1]))
    return [accumulated(terms_of("compress_pool", args), magnitude, want)]


@floats("sparse_attention")
def sparse_attention(*args: Any) -> list[Within]:
    q, fresh, ring, sink, first_key, last_key, row_seq, start, begin, state, pages, table, indices = args[:13]
    window, ratio, scale, kind = args[13:]
    want, limit = torch.zeros((2, *q.shape), dtype=torch.float64)
    for t, s in enumerate(row_seq.tolist()):
        if s < 0:
            continue
        first, last = int(start[s]), int(last_key[t])
        key = np.arange(max(0, int(first_key[t]), last - window + 1), last + 1)
        old, new = key[key < first], key[key >= first]
        records = [ring[int(state[s])].numpy()[old % ring.shape[1]], fresh.numpy()[int(begin[s]) + new - first]]
        rows = [decode(np.concatenate(records), FP8_32.name)]
        if indices is not None:
            entry = indices[t].numpy()
            rows.append(decode(_entries(pages, table[s].numpy(), entry[entry >= 0], ratio), kind))
        if sum(map(len, rows)):
            value, bound = attention(f64(q[t]), np.concatenate(rows), f64(sink), scale)
            want[t], limit[t] = torched(value), torched(bound)
    return [Within(want, limit)]


def _entries(pages: Tensor, columns: Ints, entry: Ints, ratio: int) -> Bytes:
    """Interleaved records [n, bytes] of entries of one sequence, whose pages are `columns`."""
    per_page = PAGE_TOKENS // ratio
    record = pages.shape[1] // per_page
    found = [pages[int(columns[j // per_page]), j % per_page * record :][:record].numpy() for j in entry.tolist()]
    return np.stack(found) if found else np.zeros((0, record), np.uint8)


def index_planes(pages: Tensor, channels: int, ratio: int) -> tuple[Tensor, Tensor]:
    """Views [P, entries, bytes] of the codes and of the scales of index pages."""
    per_page = PAGE_TOKENS // ratio
    border = per_page * channels // 2
    planes = pages[:, :border], pages[:, border : border + per_page * channels // 32]
    data, scale = (plane.unflatten(1, (per_page, -1)) for plane in planes)
    return data, scale


def _index_scores(name: str, args: Args, entry: Tensor) -> list[Within]:
    """`entry` [T, lanes]: the entry of a lane, -1 where it is unspecified."""
    where = tuple(args[SPECS_ARGS[name][n]] for n in _INDEX_ARGS)
    return [index_scores(terms_of(name, args), where, args[SPECS_ARGS[name]["ratio"]], entry)]


def index_scores(terms: int, where: tuple[Tensor, ...], ratio: int, entry: Tensor) -> Within:
    """Scores bf16 of entries [T, lanes], -1 where there is none; `where` as in `_INDEX_ARGS`."""
    query, head_weight, pages, row_seq, table = where
    want, magnitude = torch.zeros((2, *entry.shape), dtype=torch.float64)
    per_page, channels = entries_per_page(ratio), FP4_32_INDEX.channels(query.shape[2])
    for t in range(len(entry)):
        lanes = torch.nonzero(entry[t] >= 0).squeeze(1)
        if not len(lanes):
            continue
        j = entry[t, lanes]
        page = table[int(row_seq[t])].long()[j // per_page]
        data, scale = (plane[page, j % per_page] for plane in index_planes(pages, channels, ratio))
        keys = decode(torch.cat((data, scale), 1).numpy(), FP4_32_INDEX.name)
        q, w = decode(query[t].numpy(), FP4_32_INDEX.name), f64(head_weight[t])
        want[t, lanes] = torched((w[:, None] * np.maximum(q @ keys.T, 0)).sum(0))
        magnitude[t, lanes] = torched((np.abs(w)[:, None] * (np.abs(q) @ np.abs(keys).T)).sum(0))
    return Within(want, Accumulated.limit(terms, magnitude, want, BF16), entry >= 0)


_INDEX_ARGS = ("query", "head_weight", "pages", "row_seq", "block_table")
SPECS_ARGS = {n: {a.name: i for i, a in enumerate(SPECS[n].args)} for n in ("index_score", "index_score_blocks")}


@floats("index_score")
def index_score(*args: Any) -> list[Within]:
    visible, row_seq, entries = args[3], args[4], args[7]
    lane = torch.arange(entries).expand(len(visible), -1)
    seen = (lane < visible.unsqueeze(1)) & (row_seq >= 0).unsqueeze(1)
    return _index_scores("index_score", args, torch.where(seen, lane, -1))


@floats("index_score_blocks")
def index_score_blocks(*args: Any) -> list[Within]:
    blocks, visible, row_seq, size = args[3], args[4], args[5], args[8]
    entry = (blocks.long().unsqueeze(2) * size + torch.arange(size)).flatten(1)
    seen = (blocks >= 0).repeat_interleave(size, 1) & (entry < visible.unsqueeze(1)) & (row_seq >= 0).unsqueeze(1)
    return _index_scores("index_score_blocks", args, torch.where(seen, entry, -1))


def _rotated(name: str, x: Tensor, positions: Any, table: Tensor, kind: str) -> Codes:
    """Rows of bf16 [T, h, d] as they are before quantisation: rotated, then rounded to bf16 by the implementation."""
    want, magnitude = (torched(v).flatten(0, 1) for v in turned(f64(x), positions, f64(table)))
    want = torch.where(want.abs() >= (2 - U16) * 2.0**127, want.sign() * torch.inf, want)  # infinite in bf16
    limit = decided(name).limit(want.abs() + Accumulated.error(2, magnitude) / U16)
    return Codes(want, torch.where(magnitude == 0, 0.0, limit), kind)


@codes("window_pack")
def window_pack(kv: Tensor, positions: Tensor, table: Tensor) -> Codes:
    return _rotated("window_pack", kv.unsqueeze(1), positions.tolist(), table, FP8_32.name)


@codes("index_query_pack")
def index_query_pack(q: Tensor, positions: Tensor, table: Tensor) -> Codes:
    return _rotated("index_query_pack", q, positions.tolist(), table, FP4_32_INDEX.name)


def stored_entries(name: str, args: Args) -> tuple[Codes, list[tuple[int, int]]]:
    """What `compressed_store` or `index_key_store` is to write, and the page and slot of each entry."""
    latent, pages, positions, row_seq, block_table, table, ratio = args[:7]
    rows, places = [], []
    for t, (p, s) in enumerate(zip(positions.tolist(), row_seq.tolist(), strict=True)):
        if s >= 0 and (p + 1) % ratio == 0:
            column, slot = divmod((p + 1) // ratio - 1, entries_per_page(ratio))
            rows.append(t)
            places.append((int(block_table[s, column]), slot))
    kind = FP4_32_INDEX.name if name == "index_key_store" else args[7]
    starts = [int(positions[t]) + 1 - ratio for t in rows]
    return _rotated(name, latent[rows].unsqueeze(1), starts, table, kind), places


def _store(name: str, args: Args, pages: Tensor) -> Report:
    """The entries of a store, and every other byte as it was."""
    oracle, places = stored_entries(name, args)
    ratio, expected = args[6], args[1].clone()
    if name == "index_key_store":
        channels = args[0].shape[1]
        parts, targets = index_planes(pages, channels, ratio), index_planes(expected, channels, ratio)
    else:
        whole = [p.unflatten(1, (PAGE_TOKENS // ratio, -1)) for p in (pages, expected)]
        parts, targets = (whole[0],), (whole[1],)  # type: ignore[assignment]
    records = [torch.cat([part[place] for part in parts]) for place in places]
    for place in places:
        for part, target in zip(parts, targets, strict=True):
            target[place] = part[place]
    stray = compare_bits("pages", pages, expected, check="stray_write", than="no entry lies there, it was")
    return Report.of(stray) + (compare_codes("pages", oracle, torch.stack(records)) if records else Report())


@judged("compressed_store")
def compressed_store(args: Args, got: Sequence[Tensor], twin: Sequence[Tensor]) -> Report:
    return _store("compressed_store", args, got[0])


@judged("index_key_store")
def index_key_store(args: Args, got: Sequence[Tensor], twin: Sequence[Tensor]) -> Report:
    return _store("index_key_store", args, got[0])
