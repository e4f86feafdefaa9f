"""Configurations and small checkpoints on disk for the tests of the checkpoint reader."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deepinfer.model.dummy import write_dummy
from released import GOLDEN_CHECKPOINT, RELEASED

GOLDEN_CONFIG = GOLDEN_CHECKPOINT / "config.json"


@pytest.fixture
def tiny_values() -> dict[str, Any]:
    """The decoded config.json of the golden checkpoint; free to change."""
    values: dict[str, Any] = json.loads(GOLDEN_CONFIG.read_text())
    return values


@pytest.fixture
def released_values() -> dict[str, Any]:
    """The released model's decoded config.json; free to change."""
    return copy.deepcopy(RELEASED)


@dataclass
class Shard:
    """One safetensors file, taken apart so that a test can spoil it."""

    path: Path
    header: dict[str, Any]
    data: bytearray

    @classmethod
    def load(cls, path: Path) -> Shard:
        raw = path.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        return cls(path, json.loads(raw[8 : 8 + length]), bytearray(raw[8 + length :]))

    def save(self) -> None:
        text = json.dumps(self.header).encode()
        self.path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(self.data))

    def bytes_of(self, name: str) -> slice:
        start, stop = self.header[name]["data_offsets"]
        return slice(start, stop)


@dataclass
class Directory:
    """A checkpoint directory whose files a test may change."""

    path: Path

    @property
    def index(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads((self.path / "model.safetensors.index.json").read_text())
        return values

    def shard_of(self, name: str) -> Shard:
        return Shard.load(self.path / self.index["weight_map"][name])

    def edit_index(self, change: Callable[[dict[str, str]], None]) -> None:
        values = self.index
        change(values["weight_map"])
        (self.path / "model.safetensors.index.json").write_text(json.dumps(values))

    def edit_config(self, change: Callable[[dict[str, Any]], None]) -> None:
        values = json.loads((self.path / "config.json").read_text())
        change(values)
        (self.path / "config.json").write_text(json.dumps(values))

    def drop(self, name: str) -> None:
        """Takes a tensor out of its shard and out of the index."""
        shard = self.shard_of(name)
        del shard.header[name]
        shard.save()
        self.edit_index(lambda weight_map: weight_map.__delitem__(name))

    def rename(self, old: str, new: str) -> None:
        shard = self.shard_of(old)
        shard.header[new] = shard.header.pop(old)
        shard.save()
        self.edit_index(lambda weight_map: weight_map.update({new: weight_map.pop(old)}))

    def add(self, name: str, dtype: str, shape: list[int], data: bytes, shard_name: str | None = None) -> None:
        """Appends a tensor to a shard (the first by default) and to the index."""
        path = self.path / (shard_name or sorted(set(self.index["weight_map"].values()))[0])
        shard = Shard.load(path)
        offsets = [len(shard.data), len(shard.data) + len(data)]
        shard.header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        shard.data += data
        shard.save()
        self.edit_index(lambda weight_map: weight_map.update({name: path.name}))


@pytest.fixture(scope="session")
def dummy_original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound two-shard checkpoint; not to be changed."""
    directory = tmp_path_factory.mktemp("dummy") / "checkpoint"
    write_dummy(directory, json.loads(GOLDEN_CONFIG.read_text()), seed=3, shards=2)
    return directory


@pytest.fixture
def directory(dummy_original: Path, tmp_path: Path) -> Directory:
    """A copy of the sound checkpoint for one test."""
    target = tmp_path / "checkpoint"
    shutil.copytree(dummy_original, target)
    return Directory(target)
