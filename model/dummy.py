"""Weights without files (`load_format=dummy`): every tensor filled from a seed and its own name.

Values are finite and of ordinary size, nothing more: good for memory and speed, not for text. A tensor's values do
not depend on which others are read, nor on the row range asked for.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..hal.errors import CheckpointError
from .config import ModelConfig, load_config
from .names import ITEM_BYTES, TensorSpec, inventory

if TYPE_CHECKING:
    import torch

    from .shard_plan import ShardPlan
    from .topology import Topology

_BLOCK = 1 << 20  # elements drawn at a time


def dummy_blocks(spec: TensorSpec, seed: int, start: int = 0, stop: int | None = None) -> Iterator[npt.NDArray[Any]]:
    """The stored values of flat elements [start, stop), as raw little-endian integers, in blocks.

    Norm weights are 1; other bf16 and fp32 values uniform in +-0.05; FP8 codes of magnitude below 2; any FP4 codes;
    scales 2^-7 .. 2^-4.
    """
    count = int(np.prod(spec.shape, dtype=np.int64))
    stop = count if stop is None else stop
    for block in range(start // _BLOCK, -(-stop // _BLOCK)):
        size = min(_BLOCK, count - block * _BLOCK)
        rng = np.random.default_rng([seed, zlib.crc32(spec.name.encode()), block])
        values = _draw(spec, rng, size)
        yield values[max(start - block * _BLOCK, 0) : min(stop - block * _BLOCK, size)]


def _draw(spec: TensorSpec, rng: np.random.Generator, size: int) -> npt.NDArray[Any]:
    if spec.dtype == "F8_E8M0":
        return rng.integers(120, 124, size, dtype=np.uint8)
    if spec.dtype == "F8_E4M3":
        codes = rng.integers(0, 256, size, dtype=np.uint8)
        return codes & np.uint8(0xBF)  # drops the top exponent bit: magnitude below 2, never NaN
    if spec.dtype == "I8":
        return rng.integers(0, 256, size, dtype=np.uint8)
    values = np.ones(size, np.float32)
    if spec.kind != "norm":
        values = (rng.random(size, np.float32) - np.float32(0.5)) * np.float32(0.1)
    return (values.view(np.uint32) >> 16).astype(np.uint16) if spec.dtype == "BF16" else values.view(np.uint32)


class DummyCheckpoint(AbstractContextManager["DummyCheckpoint"]):
    """Stands in for `Checkpoint`: same reads, generated values.

    Args:
        path: a directory with a config.json; shards in it are not looked at.
        seed: equal seeds give equal values.
    """

    def __init__(self, path: Path, config: ModelConfig, seed: int = 0) -> None:
        self.path = path
        self.config = config
        self.seed = seed
        self.inventory = inventory(config)

    @classmethod
    def open(cls, path: str | Path, seed: int = 0) -> DummyCheckpoint:
        """Raises: CheckpointError, ConfigError as `Checkpoint.open`."""
        return cls(Path(path), load_config(path), seed)

    @property
    def topology(self) -> Topology:
        return self.config.topology

    def check(self, plan: ShardPlan | None = None) -> None:
        """Nothing can be wrong."""

    def read_into(self, name: str, out: torch.Tensor, rows: tuple[int, int] | None = None) -> None:
        """As `Checkpoint.read_into`."""
        import torch

        from .checkpoint import check_out, row_range, torch_dtype

        spec = self._spec(name)
        first, stop = row_range(name, spec.shape, rows)
        check_out(name, out, torch_dtype(spec.dtype), (stop - first, *spec.shape[1:]) if rows else spec.shape)
        width = int(np.prod(spec.shape[1:], dtype=np.int64))
        raw = out.detach().reshape(-1).view(torch.uint8).numpy()
        done = 0
        for block in dummy_blocks(spec, self.seed, first * width, stop * width):
            part = block.view(np.uint8)
            raw[done : done + part.size] = part
            done += part.size

    def read(self, name: str, rows: tuple[int, int] | None = None) -> torch.Tensor:
        """As `Checkpoint.read`."""
        import torch

        from .checkpoint import row_range, torch_dtype

        spec = self._spec(name)
        first, stop = row_range(name, spec.shape, rows)
        out = torch.empty((stop - first, *spec.shape[1:]), dtype=torch_dtype(spec.dtype))
        self.read_into(name, out, rows)
        return out

    def map(self, name: str, rows: tuple[int, int] | None = None) -> torch.Tensor:
        """As `read`: there is no file to map."""
        return self.read(name, rows)

    def close(self) -> None:
        """Nothing is open."""

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _spec(self, name: str) -> TensorSpec:
        try:
            return self.inventory[name]
        except KeyError:
            raise CheckpointError(f"{self.path}: no tensor {name}") from None


class DeviceDummyCheckpoint(DummyCheckpoint):
    """The same, with values drawn where the weights will lie: other ones, and in seconds for what fills a device.

    Args:
        path, config: as `DummyCheckpoint`.
        device: where `read_into` wants its tensors.
    """

    def __init__(self, path: Path, config: ModelConfig, device: torch.device, seed: int = 0) -> None:
        super().__init__(path, config, seed)
        self.device = device

    @classmethod
    def on(cls, device: torch.device, path: str | Path, seed: int = 0) -> DeviceDummyCheckpoint:
        """Raises: CheckpointError, ConfigError as `Checkpoint.open`."""
        return cls(Path(path), load_config(path), device, seed)

    def read_into(self, name: str, out: torch.Tensor, rows: tuple[int, int] | None = None) -> None:
        """Fill `out`, which lies on the device."""
        import torch

        spec = self._spec(name)
        draw = torch.Generator(self.device).manual_seed(zlib.crc32(f"{self.seed} {name} {rows}".encode()))
        if spec.dtype in ("BF16", "F32"):
            if spec.kind == "norm":
                out.fill_(1)
            else:
                out.uniform_(-0.05, 0.05, generator=draw)
            return
        codes = out.view(torch.uint8)
        low, high = (120, 124) if spec.dtype == "F8_E8M0" else (0, 256)
        codes.random_(low, high, generator=draw)
        if spec.dtype == "F8_E4M3":
            codes.bitwise_and_(0xBF)  # see `_draw`


def write_dummy(directory: Path, config_values: dict[str, Any], *, seed: int = 0, shards: int = 1) -> None:
    """Writes a checkpoint of dummy values in the released format (no tokenizer), for tests and benchmarks.

    Args:
        directory: made if absent.
        config_values: the decoded config.json.
        shards: files; with one there is no index file.
    """
    import json

    config = ModelConfig.from_dict(config_values)
    specs = list(inventory(config).values())
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config_values, indent=1), encoding="utf-8")
    weight_map: dict[str, str] = {}
    for i in range(shards):
        name = "model.safetensors" if shards == 1 else f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        mine = specs[i * len(specs) // shards : (i + 1) * len(specs) // shards]
        _write_shard(directory / name, mine, seed)
        weight_map |= {spec.name: name for spec in mine}
    if shards > 1:
        values = {"metadata": {"total_size": sum(s.nbytes for s in specs)}, "weight_map": weight_map}
        (directory / "model.safetensors.index.json").write_text(json.dumps(values), encoding="utf-8")


def _write_shard(path: Path, specs: list[TensorSpec], seed: int) -> None:
    import json

    ordered = sorted(specs, key=lambda s: -ITEM_BYTES[s.dtype])  # widest first keeps every tensor aligned
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for spec in ordered:
        header[spec.name] = {"dtype": spec.dtype, "shape": spec.shape, "data_offsets": [offset, offset + spec.nbytes]}
        offset += spec.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for spec in ordered:
            for block in dummy_blocks(spec, seed):
                file.write(block.tobytes())
