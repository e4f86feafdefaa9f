"""Calls of any shape for the drafting and verification ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .draft_samples import _bf16, _f32, _ints
from .sampling_samples import _kept, _logits, _send, _temperatures
from .shapes import Pick, Range, shape
from .spec import SPECS
from .verify_samples import _drafts, _proposal

Rng = np.random.Generator
Args = tuple[Any, ...]

SEQUENCES = Range(0, 60)
ROWS = Range(0, 20)
WIDTH = Range(1, 600)
BLOCK = Range(1, 7)


@shape("draft_tap", rows=Range(0, 150), streams=Range(1, 5), width=Range(1, 200), places=Range(1, 4))
def draft_tap(rng: Rng, device: torch.device, *, rows: int, streams: int, width: int, places: int) -> Args:
    taps = torch.full((rows, places, width), torch.nan, dtype=torch.bfloat16, device=device)
    return _bf16(rng, device, rows, streams, width), taps, int(rng.integers(places))


@shape("draft_inputs", sequences=SEQUENCES, block=BLOCK, window=Range(1, 130), far=Range(0, 2000, 50))
def draft_inputs(rng: Rng, device: torch.device, *, sequences: int, block: int, window: int, far: int) -> Args:
    base = rng.integers(-3, far + 1, sequences)
    valid = rng.integers(0, np.maximum(base, 0) + 1)
    arrays = (rng.integers(-1, 500, sequences), base, rng.integers(0, block + 1, sequences), valid)
    return (*(_ints(device, a) for a in arrays), block, window, 511)


@shape("draft_logits", rows=ROWS, vocab=Range(1, 300), rank=Range(1, 150), apart=Pick((False, True)))
def draft_logits(rng: Rng, device: torch.device, *, rows: int, vocab: int, rank: int, apart: bool) -> Args:
    base = _f32(rng, device, rows, 3, vocab)[:, 1] if apart else _f32(rng, device, rows, vocab)
    tokens = _ints(device, rng.integers(-1, vocab + 1, rows))
    head = SPECS["draft_logits"].prepare(_bf16(rng, device, vocab, rank))
    return base, tokens, _bf16(rng, device, vocab, rank), head


@shape("draft_confidence", rows=Range(0, 40), block=BLOCK, width=Range(1, 200), rank=Range(1, 70))
def draft_confidence(rng: Rng, device: torch.device, *, rows: int, block: int, width: int, rank: int) -> Args:
    tokens = _ints(device, rng.integers(-1, 41, (rows, block)))
    temperature = torch.from_numpy((1 / rng.uniform(0.5, 2, block)).astype(np.float32)).to(device)
    weight = _bf16(rng, device, width + rank) / 8
    return _bf16(rng, device, rows, block, width), tokens, _bf16(rng, device, 40, rank), weight, temperature


@shape("draft_store", rows=SEQUENCES, block=BLOCK, spare=Range(0, 5), stops=Pick((True, False)))
def draft_store(rng: Rng, device: torch.device, *, rows: int, block: int, spare: int, stops: bool) -> Args:
    slots = rng.permutation(rows + spare)[:rows]
    slots[rng.random(rows) < 0.2] = -1
    pool = torch.full((rows + spare, block), -7, dtype=torch.int32, device=device)
    sure = torch.full((rows + spare, block), torch.nan, device=device)
    confidence = torch.from_numpy(rng.random((rows, block), dtype=np.float32)).to(device)
    stop = torch.from_numpy(rng.random(rows) < 0.3).to(device) if stops else None
    return _ints(device, rng.integers(0, 500, (rows, block))), confidence, stop, _ints(device, slots), pool, sure


@shape("correct_q", sequences=SEQUENCES, block=BLOCK, spare=Range(0, 5), coarse=Pick((False, True)))
def correct_q(rng: Rng, device: torch.device, *, sequences: int, block: int, spare: int, coarse: bool) -> Args:
    """`coarse` confidences tie; some are no probabilities."""
    drawn = rng.random((sequences + spare, block)).astype(np.float32)
    drawn = drawn.round(1) if coarse else drawn
    drawn[rng.random(drawn.shape) < 0.03] = rng.choice([np.nan, -1.0, np.inf])
    remap = rng.permutation(sequences + spare)[:sequences]
    remap[rng.random(sequences) < 0.2] = -1
    total = int(rng.integers(sequences, sequences * (block + 1) + 1))
    return torch.from_numpy(drawn).to(device), _ints(device, remap), total


@shape("correct_k", sequences=SEQUENCES, spare=Range(0, 5))
def correct_k(rng: Rng, device: torch.device, *, sequences: int, spare: int) -> Args:
    remap = rng.permutation(sequences + spare)[:sequences]
    remap[rng.random(sequences) < 0.2] = -1
    arrays = (rng.integers(8, 1 << 20, sequences), rng.integers(1, 8, sequences), remap)
    assumed, accepted = rng.integers(0, 8, sequences), rng.integers(0, 8, sequences + spare)
    return tuple(_ints(device, a) for a in (*arrays, assumed, accepted))


@shape("draft_distribution", rows=ROWS, width=WIDTH, places=Range(1, 4), spare=Range(0, 3))
def draft_distribution(rng: Rng, device: torch.device, *, rows: int, width: int, places: int, spare: int) -> Args:
    z, inverse = _logits(rng, rows, width), _temperatures(rng, rows)
    _, max_id, threshold, last_id, count = _kept(rng, z, inverse)
    slots = rng.permutation(rows + spare)[:rows].astype(np.int32)
    slots[rng.random(rows) < 0.2] = -1
    pool = np.full((rows + spare, places, width), np.nan, np.float32)
    place = int(rng.integers(places))
    return _send(device, z, inverse, threshold, last_id, count, max_id, slots, pool, place)


@shape("verify_drafts", rows=ROWS, width=WIDTH, form=Pick(("shared", "certain", "drawn")), spare=Range(0, 3))
def verify_drafts(rng: Rng, device: torch.device, *, rows: int, width: int, form: str, spare: int) -> Args:
    z, inverse = _logits(rng, rows, width), _temperatures(rng, rows)
    kept = _kept(rng, z, inverse)
    _, max_id, threshold, last_id, count = kept
    proposal = _proposal(rng, z, inverse)
    seeds = rng.integers(-(2**63), 2**63, rows, dtype=np.int64)
    positions = rng.integers(0, 2**40, rows, dtype=np.int64)
    common = (z, inverse, threshold, last_id, count, max_id, _drafts(rng, z, kept, proposal), seeds, positions)
    if form != "drawn":
        return _send(device, *common, None, None, form == "shared")
    place = rng.permutation(rows + spare)[:rows].astype(np.int32)
    pool = np.full((rows + spare, width), np.nan, np.float32)
    pool[place] = proposal
    place[rng.random(rows) < 0.2] = -1
    return _send(device, *common, pool, place, False)


@shape(
    "accept_prefix", sequences=SEQUENCES, width=BLOCK, spare=Range(0, 3), forced=Pick((False, True)),
    stops=Range(0, 3),
)  # fmt: skip
def accept_prefix(
    rng: Rng, device: torch.device, *, sequences: int, width: int, spare: int, forced: bool, stops: int
) -> Args:
    lengths = rng.integers(0, width + 1, sequences)
    offsets = np.cumsum([0, *lengths]).astype(np.int32)
    begin = np.where(lengths > 0, offsets[:-1], -9).astype(np.int32)
    rows = int(offsets[-1]) + spare
    tokens, drafts = rng.integers(0, 12, (2, rows)).astype(np.int32)
    golden = np.where(rng.random(rows) < 0.5, rng.integers(0, 12, rows), -1).astype(np.int32)
    given = (drafts, golden) if forced else (None, None)
    ids = rng.integers(-1, 12, (sequences, stops)).astype(np.int32) if stops else None
    return _send(device, tokens, rng.random(rows) < 0.7, *given, begin, lengths.astype(np.int32), ids, width)
