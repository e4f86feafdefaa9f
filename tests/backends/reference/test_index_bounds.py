"""Indices outside what they point into: a typed refusal, never another sequence's memory.

Every integer argument of the samples is made wrong in one place at a time. What the contract gives a meaning (-1 for
padding rows, ids outside the embedding, entries past a limit) goes through; all else is a `ContractError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer.backends import reference
from deepinfer.hal.errors import ContractError
from deepinfer.ops.spec import SPECS, OpSpec, Sample, TensorArg

reference.backend.load()
WRONG = (-1, -2, -(2**31), 10**6, 2**31 - 1)
# What some argument of a sample's values must refuse, wherever an entry is live.
REFUSED = {
    "accept_prefix": {"begin", "rows"},
    "adjust_logits": {"stat_offsets", "stat_ids", "bias_offsets", "bias_ids"},
    "compress_pool": {"row_seq", "state_slot"},
    "compressed_store": {"row_seq", "block_table", "positions"},
    "compressor_ring_store": {"row_seq", "state_slot"},
    "correct_k": {"remap"},
    "correct_q": {"remap"},
    "draft_distribution": {"slots", "tokens"},
    "draft_store": {"slots"},
    "engram_gather": {"rows"},
    "grouped_linear": {"source_row", "offsets"},
    "index_key_store": {"row_seq", "block_table", "positions"},
    "index_query_pack": {"positions"},
    "index_score": {"row_seq", "block_table"},
    "index_score_blocks": {"row_seq", "block_table"},
    "moe_combine": {"position"},
    "rope": {"positions"},
    "smaller_mass": {"tokens"},
    "sparse_attention": {"row_seq", "state_slot", "block_table", "indices", "row_begin"},
    "token_logprobs": {"tokens"},
    "verify_drafts": {"drafts", "draft_row"},
    "window_pack": {"positions"},
    "window_store": {"row_seq", "state_slot"},
}


def small(spec: OpSpec) -> Iterator[Sample]:
    for sample in spec.samples(np.random.default_rng(0), torch.device("cpu")):
        if not sample.label.startswith("real") and "many rows" not in sample.label:
            yield sample


def copies(args: tuple[Any, ...]) -> list[Any]:
    return [a.clone() if isinstance(a, torch.Tensor) else a for a in args]


@pytest.mark.parametrize("name", sorted(SPECS))
def test_a_wrong_index_never_escapes_as_anything_but_a_contract_error(name: str) -> None:
    spec, refused = SPECS[name], set()
    for sample in small(spec):
        for i, arg in enumerate(spec.args):
            value = sample.args[i]
            if not isinstance(arg, TensorArg) or value is None or value.dtype not in (torch.int32, torch.int64):
                continue
            for place in {0, value.numel() // 2, value.numel() - 1} if value.numel() else ():
                for wrong in WRONG:
                    args = copies(sample.args)
                    args[i].view(-1)[place] = wrong
                    try:
                        spec.run(*args)
                    except ContractError as error:
                        refused.add(arg.name)
                        assert name in str(error)
    missing = REFUSED.get(name, set()) - refused
    assert not missing, f"no wrong value of {sorted(missing)} was refused"
