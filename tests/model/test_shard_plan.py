from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.model.checkpoint import Checkpoint
from deepinfer.model.config import ModelConfig
from deepinfer.model.names import inventory
from deepinfer.model.report import CheckpointReportError
from deepinfer.model.shard_plan import ShardPlan


def read_all(checkpoint: Checkpoint, plan: ShardPlan) -> dict[str, torch.Tensor]:
    return {part.spec.name: checkpoint.read(part.spec.name, part.rows) for part in plan.parts(checkpoint.inventory)}


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_ranks_read_only_their_part_and_together_everything(dummy_original: Path, world_size: int) -> None:
    with Checkpoint.open(dummy_original) as checkpoint:
        specs = checkpoint.inventory
        split = sum(s.nbytes for s in specs.values() if s.expert is not None or s.engram is not None)
        shared = sum(s.nbytes for s in specs.values()) - split
        ranks, total = [], 0
        for rank in range(world_size):
            plan, before = ShardPlan(rank, world_size), checkpoint.bytes_read
            tensors = read_all(checkpoint, plan)
            read = checkpoint.bytes_read - before
            assert read == plan.nbytes(specs) == sum(t.nbytes for t in tensors.values())
            assert {n: tuple(t.shape) for n, t in tensors.items()} == {n: s.shape for n, s in plan.specs(specs).items()}
            ranks.append(tensors)
            total += read
        assert total == split + world_size * shared
        for name, spec in specs.items():
            whole = checkpoint.read(name).reshape(-1).view(torch.uint8)
            parts = [r[name].reshape(-1).view(torch.uint8) for r in ranks if name in r]
            if spec.engram is not None:
                assert torch.equal(torch.cat(parts), whole)
            else:
                assert len(parts) == (world_size if spec.expert is None else 1)
                assert all(torch.equal(part, whole) for part in parts)


def test_contiguous_ranges_and_their_owners() -> None:
    count, world = 1618, 4
    rows = [ShardPlan(rank, world).rows(count) for rank in range(world)]
    assert [len(r) for r in rows] == [405, 405, 405, 403]
    each = ShardPlan(0, world).rows_per_rank(count)
    for rank, part in enumerate(rows):
        assert all(row // each == rank for row in part)
    assert [len(ShardPlan(rank, 4).rows(5)) for rank in range(4)] == [2, 2, 1, 0]
    assert [list(ShardPlan(rank, 4).experts(8)) for rank in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert ShardPlan(3, 4).experts(4) == range(3, 4)


def test_released_split(released_values: dict[str, Any]) -> None:
    specs = inventory(ModelConfig.from_dict(released_values))
    mine = ShardPlan(7, 8).specs(specs)
    backbone = {s.expert for n, s in mine.items() if n.startswith("layers.") and s.expert is not None}
    draft = {s.expert for n, s in mine.items() if n.startswith("mtp.") and s.expert is not None}
    assert (backbone, draft) == (set(range(336, 384)), set(range(112, 128)))
    assert mine["layers.14.engram.embed.scale"].shape == (384_016_682 - 7 * 48_002_086, 8)


def test_refusals(dummy_original: Path) -> None:
    for rank, world, parameter in ((0, 0, "world_size"), (2, 2, "rank"), (-1, 2, "rank")):
        with pytest.raises(InvalidArgumentError, match=f"^{parameter}: "):
            ShardPlan(rank, world)
    with pytest.raises(InvalidArgumentError, match="world_size: got 3; allowed: a divisor of a layer's 8 routed"):
        ShardPlan(0, 3).experts(8)
    with Checkpoint.open(dummy_original) as checkpoint:
        with pytest.raises(InvalidArgumentError, match="divisor of a layer's 4 routed"):  # the draft layers' experts
            checkpoint.check(ShardPlan(0, 8))


def test_a_rank_is_not_stopped_by_what_it_does_not_read(directory: Any) -> None:
    directory.drop("layers.3.ffn.experts.7.w1.weight")
    with Checkpoint.open(directory.path) as checkpoint:
        checkpoint.check(ShardPlan(0, 2))
        for plan in (ShardPlan(1, 2), ShardPlan(), None):
            with pytest.raises(CheckpointReportError, match=r"experts\.7\.w1"):
                checkpoint.check(plan)


def test_a_rank_needs_only_the_shards_it_reads(directory: Any) -> None:
    alone = "layers.3.ffn.experts.7.w1.weight"
    directory.drop(alone)
    directory.edit_index(lambda weight_map: weight_map.update({alone: "model-00003.safetensors"}))
    with Checkpoint.open(directory.path) as checkpoint:
        checkpoint.check(ShardPlan(0, 2))
        with pytest.raises(CheckpointReportError, match="missing shard: 1"):
            checkpoint.check(ShardPlan(1, 2))
    (directory.path / "model-00003.safetensors").write_bytes(b"\0" * 20)
    with Checkpoint.open(directory.path) as checkpoint:
        checkpoint.check(ShardPlan(0, 2))
        with pytest.raises(CheckpointReportError, match="unreadable shard: 1"):
            checkpoint.check(ShardPlan(1, 2))
