from __future__ import annotations

from pathlib import Path

import pytest
import torch

from deepinfer.hal.errors import CheckpointError, InvalidArgumentError
from deepinfer.model import dummy
from deepinfer.model.checkpoint import Checkpoint
from deepinfer.model.dummy import DummyCheckpoint
from deepinfer.model.values import value_fault
from released import GOLDEN_CHECKPOINT


def raw(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def test_generated_and_written_values_are_the_same(dummy_original: Path) -> None:
    with Checkpoint.open(dummy_original) as files, DummyCheckpoint.open(GOLDEN_CHECKPOINT, seed=3) as generated:
        generated.check()
        assert generated.config == files.config and generated.topology == files.topology
        for name in files.inventory:
            a, b = files.read(name), generated.read(name)
            assert a.dtype == b.dtype and a.shape == b.shape
            assert torch.equal(raw(a), raw(b)), name


def test_values_are_sound_and_depend_on_seed_and_name() -> None:
    with DummyCheckpoint.open(GOLDEN_CHECKPOINT) as one, DummyCheckpoint.open(GOLDEN_CHECKPOINT, seed=1) as two:
        for name, spec in one.inventory.items():
            assert value_fault(spec.dtype, raw(one.read(name)).numpy()) is None, name
        name = "layers.0.attn.wkv.weight"
        assert not torch.equal(raw(one.read(name)), raw(two.read(name)))
        assert not torch.equal(raw(one.read(name)), raw(one.read(name.replace("0", "1"))))
        assert bool((one.read("norm.weight") == 1).all())
        assert one.read(name).float().abs().max() < 2


@pytest.mark.parametrize("block", [100, 32, 1 << 20])
def test_rows_are_rows_of_the_whole(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(dummy, "_BLOCK", block)
    checkpoint = DummyCheckpoint.open(GOLDEN_CHECKPOINT)
    for name in ("layers.1.engram.embed.weight", "layers.0.hc_attn_fn"):
        whole = checkpoint.read(name).view(torch.uint8)
        for rows in ((0, 0), (0, 3), (5, 17), (23, 24)):
            assert torch.equal(checkpoint.map(name, rows).view(torch.uint8), whole[rows[0] : rows[1]])


def test_refusals() -> None:
    checkpoint = DummyCheckpoint.open(GOLDEN_CHECKPOINT)
    with pytest.raises(CheckpointError, match="no tensor x"):
        checkpoint.read("x")
    with pytest.raises(InvalidArgumentError, match="^rows: "):
        checkpoint.read("norm.weight", (0, 129))
    with pytest.raises(InvalidArgumentError, match="^out: "):
        checkpoint.read_into("norm.weight", torch.empty(128))
