"""Refusals of the indexer's ops: widths of scores, block tables and candidate lists, checked on the host."""

from __future__ import annotations

import pytest
import torch

from cache_world import Stage, Story
from deepinfer.hal.errors import ContractError
from deepinfer.ops import index as ops


def test_score_wider_than_the_block_table() -> None:
    """Score width 4096 over a block table of 32 pages would read past the table; the message names both."""
    stage = Stage([(Story(0, 5), 0, 5)])
    with pytest.raises(ContractError, match=r"entries is 4096; a block table of width 2 with 128 .* holds 0 to 256"):
        stage.scores(4096)
    with pytest.raises(ContractError, match="entries is -1"):
        stage.scores(-1)
    assert stage.scores(256).shape == (5, 256)


def test_scores_and_blocks_of_other_widths() -> None:
    scores, visible = torch.zeros(1, 4096), torch.ones(1, dtype=torch.int32)
    blocks = torch.zeros(1, 32, dtype=torch.int32)
    with pytest.raises(ContractError, match="scores are 4096 wide; 32 blocks of 64 entries need 2048"):
        ops.topk_select(scores, visible, 8, blocks, 64)
    with pytest.raises(ContractError, match="dim T is 2 in visible but 1 in scores"):
        ops.topk_select(scores, visible.expand(2).contiguous(), 8, None, 8)


def test_counts_below_one() -> None:
    scores, visible = torch.zeros(1, 8).bfloat16(), torch.ones(1, dtype=torch.int32)
    with pytest.raises(ContractError, match="k must be at least 1, got 0"):
        ops.topk_select(scores, visible, 0, None, 8)
    with pytest.raises(ContractError, match="at least 1, got 0 and 8"):
        ops.block_select(scores, visible, 8, 0)
    with pytest.raises(ContractError, match="at least 1, got 1 and 0"):
        ops.block_select(scores, visible, 0, 1)


def test_pages_of_another_record() -> None:
    stage = Stage([(Story(0, 5), 0, 5)])
    with pytest.raises(ContractError, match=r"pages has size 2304 in dim 1, must be 128//ratio\*qb = 2176"):
        stage.scores(pages=torch.zeros(3, 2304, dtype=torch.uint8))
