"""Verification of drafts, row by row with numpy and Python integers: `docs/numerics.md`, section 4.8, a second time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from . import sampling as oracle
from .expected import Bits, bits
from .sampling import F32, Array

ACCEPTANCE, RESIDUAL = 2, 3
LEAST = 2.0**-100


def kept_ids(z: Array, threshold: np.float32, last_id: int) -> list[int]:
    """Ids of a kept set given by its edge."""
    ids = np.arange(len(z))
    return [int(i) for i in ids[(z > threshold) | ((z == threshold) & (ids <= last_id))]]


def log2_probabilities(z: Array, inverse: np.float32, kept: Sequence[int]) -> Array:
    """[V] base-2 log-probabilities of a kept set, -inf outside."""
    e = np.full(len(z), F32(-np.inf))
    e[list(kept)] = oracle.exponents(z, inverse)[list(kept)]
    return np.asarray(e - oracle.log2(np.array([oracle.tree_sum(oracle.exp2(e))]))[0])


def certain(token: int, width: int) -> Array:
    """[V] base-2 log-probabilities of a distribution that gives one token."""
    value = np.full(width, F32(-np.inf))
    value[token] = 0
    return value


def uniform(seed: int, position: int) -> np.float32:
    """The number that a draft has to beat."""
    word = oracle.words(seed, position, ACCEPTANCE, 1).astype(np.float64)
    return F32(min(F32((word[0] + 0.5) * 2.0**-32), F32(1 - 2.0**-24)))


def accepts(target: Array, proposal: Array, draft: int, seed: int, position: int) -> bool:
    """Whether a draft passes the test."""
    if target[draft] == -np.inf:
        return False
    ratio = F32(min(target[draft] - proposal[draft], 0))
    return bool(oracle.exp2(np.array([ratio]))[0] > uniform(seed, position))


def residual_draw(target: Array, proposal: Array, best: int, seed: int, position: int) -> int:
    """Winner of the race among what the target has more of than the proposal."""
    residual = oracle.exp2(target) - oracle.exp2(proposal)
    some = residual > LEAST
    if not some.any():
        return best
    noise = oracle.log2(oracle.exponentials(oracle.words(seed, position, RESIDUAL, len(target))))
    score = np.where(some, oracle.log2(np.where(some, residual, F32(1))) - noise, F32(-np.inf))
    return int(score.argmax())


def verify_row(
    z: Array,
    inverse: np.float32,
    kept: Sequence[int],
    best: int,
    draft: int,
    seed: int,
    position: int,
    proposal: Array | None,
    shared: bool,
) -> tuple[int, bool]:
    """Token and decision of one row; `kept` is empty for an invalid row, `proposal` None for a certain draft."""
    count = len(kept)
    plain = best if count <= 1 else oracle.draw(z, inverse, list(kept), seed, position, 0)
    if draft < 0:
        return plain, False
    if shared or count <= 1:
        return plain, count > 0 and plain == draft
    target = log2_probabilities(z, inverse, kept)
    given = certain(draft, len(z)) if proposal is None else proposal
    if accepts(target, given, draft, seed, position):
        return draft, True
    return residual_draw(target, given, best, seed, position), False


@bits("verify_drafts")
def verify_drafts(*args: Any) -> list[Bits]:
    z, inverse, threshold, last_id, count, max_id, drafts, seeds, positions, log2q, draft_row, shared = args
    tokens, accepted = np.zeros(len(z), np.int32), np.zeros(len(z), bool)
    for i in range(len(z)):
        row = z[i].numpy()
        some = int(count[i])
        kept = kept_ids(row, threshold[i].numpy(), int(last_id[i])) if some > 1 else [int(max_id[i])] * some
        # A draw among kept tokens that are equally impossible gives the first of them in order.
        if some > 1:
            members = set(kept)
            kept = [int(token) for token in oracle.order(row) if int(token) in members]
        place = -1 if draft_row is None else int(draft_row[i])
        proposal = None if place < 0 else log2q[place].numpy()
        tokens[i], accepted[i] = verify_row(
            row,
            inverse[i].numpy(),
            kept,
            int(max_id[i]),
            int(drafts[i]),
            int(seeds[i]),
            int(positions[i]),
            proposal,
            shared,
        )
    return [Bits(torch.from_numpy(tokens)), Bits(torch.from_numpy(accepted))]


@bits("draft_distribution")
def draft_distribution(*args: Any) -> list[Bits]:
    z, inverse, threshold, last_id, count, tokens, slots, pool, place = args
    want = pool.clone()
    for s, slot in enumerate(slots.tolist()):
        if slot == -1:
            continue
        row = z[s].numpy()
        value = certain(int(tokens[s]), len(row))
        if int(count[s]) > 1:
            kept = kept_ids(row, threshold[s].numpy(), int(last_id[s]))
            value = log2_probabilities(row, inverse[s].numpy(), kept)
        want[slot, place] = torch.from_numpy(value)
    return [Bits(want)]


@bits("accept_prefix")
def accept_prefix(*args: Any) -> list[Bits]:
    tokens, accepted, drafts, golden, begin, rows, stop_ids, width = args
    found: list[tuple[int, list[int], int, int, bool]] = []
    for s, (first, count) in enumerate(zip(begin.tolist(), rows.tolist(), strict=True)):
        emitted: list[int] = []
        for row in range(first, first + count):
            token, good = int(tokens[row]), bool(accepted[row])
            if golden is not None and golden[row] >= 0:
                token, good = int(golden[row]), bool(golden[row] == drafts[row])
            emitted.append(token)
            if not good:
                break
        stops = set() if stop_ids is None else {t for t in stop_ids[s].tolist() if t >= 0}
        last = first + len(emitted) - 1 if emitted else -1
        padded = emitted + [-1] * (width - len(emitted))
        found.append((max(len(emitted) - 1, 0), padded, (emitted or [-1])[-1], last, bool(stops & set(emitted))))
    columns: Sequence[Any] = list(zip(*found, strict=True)) if found else [[], np.zeros((0, width)), [], [], []]
    *numbers, stop = (torch.from_numpy(np.array(c, np.int32)) for c in columns)
    return [*(Bits(n) for n in numbers), Bits(stop.bool())]
