from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from deepinfer.hal.errors import CheckpointError
from deepinfer.model import safetensors_file
from deepinfer.model.safetensors_file import HeaderError, ShardReader, map_bytes, read_header


def write(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def tensor(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def test_reads_what_the_safetensors_library_writes(tmp_path: Path) -> None:
    tensors = {
        "a": torch.arange(6, dtype=torch.float32).view(2, 3),
        "b": torch.arange(5, dtype=torch.uint8).view(torch.float8_e8m0fnu),
        "c": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "d": torch.arange(4, dtype=torch.int8),
        "e": torch.empty(0, 7, dtype=torch.bfloat16),
        "f": torch.tensor(3.0),
    }
    save_file(tensors, tmp_path / "x.safetensors", metadata={"format": "pt"})
    entries = {e.name: e for e in read_header(tmp_path / "x.safetensors")}
    assert {n: (e.dtype, e.shape) for n, e in entries.items()} == {
        "a": ("F32", (2, 3)), "b": ("F8_E8M0", (5,)), "c": ("BF16", (2,)), "d": ("I8", (4,)), "e": ("BF16", (0, 7)),
        "f": ("F32", ()),
    }  # fmt: skip
    with ShardReader() as reader:
        for name, entry in entries.items():
            out = np.full(entry.nbytes, 0xAA, np.uint8)
            reader.pread_into(entry.shard, entry.offset, out)
            assert out.tobytes() == tensors[name].reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize(
    ("header", "rule"),
    [
        (b"not json", "not valid JSON"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b"[" * 50_000, "not valid JSON"),
        ([1], "not a JSON object"),
        ({"a": 3}, "a: not a JSON object"),
        ({"a": tensor("F7", [1], 0, 1)}, "unknown dtype 'F7'"),
        ({"a": {"shape": [1], "data_offsets": [0, 1]}}, "unknown dtype None"),
        ({"a": tensor("I8", [-1], 0, 1)}, "shape [-1]"),
        ({"a": tensor("I8", [True], 0, 1)}, "shape [True]"),
        ({"a": tensor("I8", [1.0], 0, 1)}, "shape [1.0]"),  # type: ignore[list-item]
        ({"a": tensor("I8", [1], 1, 0)}, "not a byte range"),
        ({"a": {"dtype": "I8", "shape": [1], "data_offsets": [0]}}, "not a byte range"),
        ({"a": tensor("BF16", [2, 3], 0, 11)}, "does not take the 11 bytes"),
        ({"a": tensor("I8", [4], 0, 4), "b": tensor("I8", [4], 3, 7)}, "b overlaps a"),
        (b'{"a":{"dtype":"I8","shape":[0],"data_offsets":[0,0]},"a":3}', "a is listed twice"),
    ],
)
def test_corrupt_headers(tmp_path: Path, header: Any, rule: str) -> None:
    path = write(tmp_path / "bad.safetensors", header, bytes(16))
    with pytest.raises(HeaderError) as caught:
        read_header(path)
    assert str(caught.value).startswith("bad.safetensors: corrupt header")
    assert rule in str(caught.value)


@pytest.mark.parametrize("length", [0, 1, 30, 2**40, 2**64 - 1])
def test_header_length_out_of_range(tmp_path: Path, length: int) -> None:
    path = write(tmp_path / "bad.safetensors", {}, bytes(20), length=length)
    with pytest.raises(HeaderError, match=f"length {length} does not fit a file of 30 bytes"):
        read_header(path)


def test_short_and_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "s.safetensors").write_bytes(b"1234567")
    with pytest.raises(HeaderError, match="7 bytes, too short"):
        read_header(tmp_path / "s.safetensors")
    with pytest.raises(HeaderError, match="cannot be read: No such file"):
        read_header(tmp_path / "none.safetensors")
    with ShardReader() as reader, pytest.raises(CheckpointError, match="cannot be read: No such file"):
        reader.pread_into(tmp_path / "none.safetensors", 0, np.empty(1, np.uint8))


def test_ranges_beyond_the_file_are_kept_for_the_report(tmp_path: Path) -> None:
    path = write(tmp_path / "t.safetensors", {"a": tensor("I8", [64], 0, 64)}, bytes(10))
    (entry,) = read_header(path)
    assert entry.offset + entry.nbytes > path.stat().st_size
    with ShardReader() as reader, pytest.raises(CheckpointError, match="54 bytes before the end .* truncated"):
        reader.pread_into(path, entry.offset, np.empty(64, np.uint8))
    with pytest.raises(CheckpointError, match="truncated"):
        map_bytes(path, entry.offset, entry.nbytes)


def test_reads_larger_than_one_system_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safetensors_file, "_MAX_READ", 7)
    data = bytes(range(100))
    (tmp_path / "d").write_bytes(data)
    out = np.zeros(90, np.uint8)
    with ShardReader() as reader:
        reader.pread_into(tmp_path / "d", 5, out)
        assert reader.bytes_read == 90
    assert out.tobytes() == data[5:95]


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d").write_bytes(bytes(range(50)))
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: real(fd, [views[0][:3]], at))
    out = np.zeros(50, np.uint8)
    with ShardReader() as reader:
        reader.pread_into(tmp_path / "d", 0, out)
    assert out.tobytes() == bytes(range(50))


def test_threads_share_a_reader(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 256, 1 << 18, dtype=np.uint8)
    (tmp_path / "d").write_bytes(data.tobytes())
    out = np.zeros_like(data)
    with ShardReader() as reader, ThreadPoolExecutor(8) as pool:
        step = 4093
        jobs = [
            pool.submit(reader.pread_into, tmp_path / "d", at, out[at : at + step]) for at in range(0, data.size, step)
        ]
        for job in jobs:
            job.result()
        assert reader.bytes_read == data.size
    assert np.array_equal(out, data)


def test_map_is_read_only_and_exact(tmp_path: Path) -> None:
    data = np.arange(9000, dtype=np.uint8)
    (tmp_path / "d").write_bytes(data.tobytes())
    mapped = map_bytes(tmp_path / "d", 4097, 100)  # no page border
    assert np.array_equal(mapped, data[4097:4197])
    assert not mapped.flags.writeable
    assert map_bytes(tmp_path / "d", 9000, 0).size == 0


def test_close_releases_descriptors(tmp_path: Path) -> None:
    (tmp_path / "d").write_bytes(b"abc")
    before = len(os.listdir("/proc/self/fd"))
    with ShardReader() as reader:
        reader.pread_into(tmp_path / "d", 0, np.empty(3, np.uint8))
        assert len(os.listdir("/proc/self/fd")) == before + 1
    assert len(os.listdir("/proc/self/fd")) == before
