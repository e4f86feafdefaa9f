"""Refusals of sparse_attention: sizes that do not go together, named before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cache_world import Stage, Story
from deepinfer.hal.errors import ContractError


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pages": None}, "pages, block_table and indices must be given together"),
        ({"indices": None}, "pages, block_table and indices must be given together"),
        ({"record": "fp8_32"}, "pages hold 2304 bytes each; 32 channels as fp8_32 with ratio 1 need 4224"),
        ({"ratio": 2}, "pages hold 2304 bytes each; 32 channels as fp4_16 with ratio 2 need 1152"),
        ({"ratio": 3}, "ratio must be 1 or 2"),
        ({"record": "fp4"}, "record must be one of 'fp4_16', 'fp8_32', got 'fp4'"),
        ({"window": 24}, "window is 24 and the ring has 22 slots"),
        ({"window": 0}, "window is 0"),
        ({"sink": torch.zeros(5)}, "dim h is 5 in sink but 4"),
        ({"first_key": torch.zeros(6, dtype=torch.int32)}, "dim T is 6 in first_key but 5"),
        ({"last_key": torch.zeros(5, dtype=torch.int64)}, "last_key must be int32"),
        ({"fresh": torch.zeros(5, 32, dtype=torch.uint8)}, r"fresh has size 32 in dim 1, must be d\+d//32 = 33"),
    ],
)
def test_refusals(changes: dict[str, Any], words: str) -> None:
    arguments = {"window": 16} | changes
    with pytest.raises(ContractError, match=words):
        Stage([(Story(0, 5), 0, 5)]).attention(**arguments, ring=Stage([(Story(0, 5), 0, 5)]).ring(22))
