"""The indexer of the reference on the samples of its specs, long contexts at the released widths among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cache_world import CPU, same_bits
from deepinfer.backends import reference
from deepinfer.conformance.oracle import attention as oracle
from deepinfer.conformance.oracle import formats
from deepinfer.ops import index as ops
from deepinfer.ops.spec import SPECS

LARGEST = torch.finfo(torch.bfloat16).max


@pytest.fixture(autouse=True)
def kernels() -> None:
    reference.backend.load()


def samples(op: str) -> list[tuple[str, tuple[Any, ...]]]:
    return [(s.label, s.args) for s in SPECS[op].samples(np.random.default_rng(7), CPU)]


def some_rows(count: int) -> list[int]:
    """The first, the last and a few between: brute force is slow."""
    return sorted({*range(0, count, max(1, count // 7)), count - 1} - {-1})


def check(label: str, got: torch.Tensor, want: list[int]) -> None:
    assert got.tolist() == want + [-1] * (len(got) - len(want)), label


def test_topk_samples_are_the_brute_force_result() -> None:
    for label, (scores, visible, k, blocks, size) in samples("topk_select"):
        chosen = ops.topk_select(scores, visible, k, blocks, size)
        for row in some_rows(len(scores)):
            seen, lanes = int(visible[row]), np.arange(scores.shape[1])
            entries = lanes if blocks is None else blocks[row].numpy()[lanes // size] * size + lanes % size
            used = lanes[(entries >= 0) & (entries < seen)]
            best = oracle.best(scores[row].double().numpy()[used], k)
            check(label, chosen[row], entries[used[best]].tolist())


def test_block_samples_are_the_brute_force_result() -> None:
    for label, (scores, visible, size, k) in samples("block_select"):
        chosen = ops.block_select(scores, visible, size, k)
        for row in some_rows(len(scores)):
            lanes = scores[row].double().numpy()[: int(visible[row])]
            blocks = [lanes[first : first + size] for first in range(0, len(lanes), size)]
            best = [min(np.nanmax(b), LARGEST) if not np.isnan(b).all() else np.nan for b in blocks]
            best[-1:] = [np.inf] if best else []
            check(label, chosen[row], oracle.best(np.array(best), k))


def keys_of(pages: torch.Tensor, table: torch.Tensor, ratio: int, count: int) -> np.ndarray:
    """float64 keys 0 .. count-1 of one sequence, from the planar layout of its pages."""
    entries, width = 128 // ratio, pages.shape[1] * ratio // 128
    data = width * 16 // 17
    found = []
    for page in table[: -(-count // entries)].tolist():
        whole = pages[page].numpy()
        codes, scales = whole[: entries * data].reshape(entries, -1), whole[entries * data :].reshape(entries, -1)
        found.append(np.concatenate((codes, scales), axis=1))
    return formats.decode(np.concatenate(found)[:count], "fp4_32_index")


@pytest.mark.parametrize("which", [-1, -2, -3])
def test_real_scores_lie_within_the_bound(which: int) -> None:
    label, (query, weight, pages, visible, row_seq, table, ratio, entries) = samples("index_score")[which]
    assert label.startswith("real")
    scores = ops.index_score(query, weight, pages, visible, row_seq, table, ratio, entries)
    for row in some_rows(len(query)):
        seen, sequence = int(visible[row]), int(row_seq[row])
        if seen == 0:
            continue
        decoded = formats.decode(query[row].numpy(), "fp4_32_index")
        keys = keys_of(pages, table[sequence], ratio, seen)
        want, bound = oracle.index_scores(decoded, weight[row].double().numpy(), keys)
        assert (np.abs(scores[row, :seen].double().numpy() - want) <= bound).all(), f"{label}, row {row}"


def test_candidate_blocks_give_the_bits_of_the_full_scan() -> None:
    for label, (query, weight, pages, blocks, visible, row_seq, table, ratio, size) in samples("index_score_blocks"):
        entries = int(visible.max()) if len(query) else 0
        full = ops.index_score(query, weight, pages, visible, row_seq, table, ratio, entries)
        compact = ops.index_score_blocks(query, weight, pages, blocks, visible, row_seq, table, ratio, size)
        for row in range(len(query)):
            lane = np.arange(compact.shape[1])
            entry = blocks[row].numpy()[lane // size] * size + lane % size
            used = (entry >= 0) & (entry < int(visible[row]))
            assert same_bits(compact[row, lane[used]], full[row, entry[used]]), label
