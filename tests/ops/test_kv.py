"""Refusals of the cache stores."""

from __future__ import annotations

import pytest
import torch

import cache_world  # noqa: F401 - registers the reference kernels
from deepinfer.hal.errors import ContractError
from deepinfer.ops import kv

ONE = torch.zeros(1, dtype=torch.int32)
TABLE = torch.zeros(4, 8, 2)


def test_section_of_another_record() -> None:
    latent, block_table = torch.zeros(1, 64).bfloat16(), torch.zeros(1, 1, dtype=torch.int32)
    pages = torch.zeros(2, 128 * 36, dtype=torch.uint8)
    kv.compressed_store(latent, pages, ONE, ONE, block_table, TABLE, 1, "fp4_16")
    with pytest.raises(ContractError, match="pages hold 4608 bytes each; 64 channels as fp8_32 with ratio 1 need 8448"):
        kv.compressed_store(latent, pages, ONE, ONE, block_table, TABLE, 1, "fp8_32")
    with pytest.raises(ContractError, match="record must be one of 'fp4_16', 'fp8_32'"):
        kv.compressed_store(latent, pages, ONE, ONE, block_table, TABLE, 1, "fp4_32_index")
    with pytest.raises(ContractError, match="ratio must be one of 1, 2, got 4"):
        kv.index_key_store(latent, torch.zeros(2, 32 * 34).byte(), ONE, ONE, block_table, TABLE, 4)


def test_section_must_have_unit_stride() -> None:
    latent, block_table = torch.zeros(1, 64).bfloat16(), torch.zeros(1, 1, dtype=torch.int32)
    pages = torch.zeros(128 * 36, 2, dtype=torch.uint8).t()
    with pytest.raises(ContractError, match="pages must have unit stride in its last dim"):
        kv.compressed_store(latent, pages, ONE, ONE, block_table, TABLE, 1, "fp4_16")


def test_ring_of_another_width() -> None:
    with pytest.raises(ContractError, match="dim rec is 66 in ring but 33 in records"):
        kv.window_store(torch.zeros(1, 33).byte(), torch.zeros(2, 4, 66).byte(), ONE, ONE, ONE, ONE)
