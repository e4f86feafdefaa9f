"""Safetensors files: headers, and reads that go straight to where the bytes are wanted.

A file is an 8-byte little-endian header length, a JSON header (name -> dtype, shape, data_offsets), and data. Headers
are read and checked without touching the data. `ShardReader` reads byte ranges with `preadv` into a caller's buffer:
no mapping, no intermediate copy, and safe from several threads. `map_bytes` is for tables too large for memory.
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..hal.errors import CheckpointError

DTYPE_BYTES: dict[str, int] = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
MAX_HEADER = 1 << 29
"""Bytes; a longer header is taken for garbage. A header needs about 150 bytes per tensor."""
_AHEAD = 64 << 20
"""Bytes that the kernel is asked to read ahead of us."""
_MAX_READ = 1 << 30  # one system call moves at most 2^31 - 4096 bytes

ByteArray = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where one tensor lies.

    Fields:
        name: as stored in the file.
        dtype: safetensors dtype code.
        offset: of its first byte, from the start of the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: Path
    offset: int
    nbytes: int


class HeaderError(CheckpointError):
    """The header of a file cannot be used."""


def read_header(path: Path) -> list[TensorEntry]:
    """Entries of one file, in header order. Names are unique and byte ranges are disjoint.

    Ranges may end beyond the file: that is a truncated file, which the caller reports per tensor (`TensorEntry.offset
    + nbytes` against the file size).

    Raises:
        HeaderError: names the file and what is wrong.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(8)
            if len(start) < 8:
                raise HeaderError(f"{path.name}: {size} bytes, too short for a safetensors file")
            (length,) = struct.unpack("<Q", start)
            if not 2 <= length <= min(size - 8, MAX_HEADER):
                raise HeaderError(f"{path.name}: corrupt header: length {length} does not fit a file of {size} bytes")
            text = file.read(length)
    except OSError as error:
        raise HeaderError(f"{path.name}: cannot be read: {error.strerror or error}") from None
    try:
        header = json.loads(text, object_pairs_hook=lambda pairs: _unique(path, pairs))
    except (ValueError, RecursionError) as error:
        raise HeaderError(f"{path.name}: corrupt header: not valid JSON: {error}") from None
    if not isinstance(header, dict):
        raise HeaderError(f"{path.name}: corrupt header: not a JSON object")
    entries = [_entry(path, name, value, 8 + length) for name, value in header.items() if name != "__metadata__"]
    _check_disjoint(path, entries)
    end = max((entry.offset + entry.nbytes for entry in entries), default=8 + length)
    if size > end:
        raise HeaderError(f"{path.name}: corrupt: {size - end} bytes behind the last tensor, which the header ignores")
    return entries


def _unique(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise HeaderError(f"{path.name}: corrupt header: {twice} is listed twice")
    return result


def _entry(path: Path, name: str, value: Any, data_start: int) -> TensorEntry:
    where = f"{path.name}: corrupt header: {name}"
    if not isinstance(value, dict):
        raise HeaderError(f"{where}: not a JSON object")
    dtype, shape, offsets = value.get("dtype"), value.get("shape"), value.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise HeaderError(f"{where}: unknown dtype {dtype!r}")
    if not _is_sizes(shape):
        raise HeaderError(f"{where}: shape {shape!r} is not a list of sizes")
    if not _is_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise HeaderError(f"{where}: data_offsets {offsets!r} is not a byte range")
    nbytes = offsets[1] - offsets[0]
    if nbytes != prod(shape) * DTYPE_BYTES[dtype]:
        raise HeaderError(f"{where}: {dtype} {list(shape)} does not take the {nbytes} bytes of its data_offsets")
    return TensorEntry(name, dtype, tuple(shape), path, data_start + offsets[0], nbytes)


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int and v >= 0 for v in value)


def _check_disjoint(path: Path, entries: Sequence[TensorEntry]) -> None:
    end, last = 0, ""
    for entry in sorted(entries, key=lambda e: (e.offset, e.nbytes)):
        if entry.offset < end and entry.nbytes:
            raise HeaderError(f"{path.name}: corrupt header: {entry.name} overlaps {last}")
        end, last = max(end, entry.offset + entry.nbytes), entry.name


def map_bytes(path: Path, offset: int, nbytes: int) -> ByteArray:
    """A read-only memory map of a byte range, uint8 [nbytes]. Pages are read when touched.

    Raises:
        CheckpointError: the range lies beyond the file (touching such a page would end the process).
    """
    size = path.stat().st_size
    if offset + nbytes > size:
        raise CheckpointError(f"{path.name}: {offset + nbytes} bytes wanted, {size} there: the file is truncated")
    if nbytes == 0:
        return np.empty(0, np.uint8)
    return np.memmap(path, dtype=np.uint8, mode="r", offset=offset, shape=(nbytes,))


class ShardReader:
    """Positioned reads from several files; keeps one descriptor per file. Thread-safe.

    `bytes_read` counts what was read since the reader was made.
    """

    def __init__(self) -> None:
        self._files: dict[Path, int] = {}
        self._ahead: dict[Path, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self.bytes_read = 0

    def pread_into(self, path: Path, offset: int, out: ByteArray) -> None:
        """Fills `out` (uint8, contiguous, writable) with the bytes from `offset` on.

        Raises:
            CheckpointError: the file ends before `out` is full, or cannot be read.
        """
        view = memoryview(out).cast("B")
        done = 0
        try:
            descriptor = self._descriptor(path)
            self._read_ahead(path, descriptor, offset, offset + len(view))
            while done < len(view):
                count = os.preadv(descriptor, [view[done : done + _MAX_READ]], offset + done)
                if count == 0:
                    raise CheckpointError(
                        f"{path.name}: ends {len(view) - done} bytes before the end of the tensor at {offset}:"
                        " the file is truncated"
                    )
                done += count
        except OSError as error:
            raise CheckpointError(f"{path.name}: cannot be read: {error.strerror or error}") from None
        finally:
            with self._lock:
                self.bytes_read += done

    def _read_ahead(self, path: Path, descriptor: int, start: int, end: int) -> None:
        """Ask the kernel for what follows, so that a cold disk works while values are copied and checked.

        Steps back and small steps ahead stay inside the range that was asked for; a jump out of it starts a new one.
        """
        if not hasattr(os, "posix_fadvise"):
            return
        with self._lock:
            first, ahead = self._ahead.get(path, (0, 0))
            if first <= start and end + _AHEAD // 2 <= ahead:
                return
            inside = first <= start <= ahead
            begin = ahead if inside else start
            self._ahead[path] = (first if inside else start, end + _AHEAD)
        os.posix_fadvise(descriptor, begin, end + _AHEAD - begin, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        with self._lock:
            self._ahead.clear()
            for descriptor in self._files.values():
                os.close(descriptor)
            self._files.clear()

    def __enter__(self) -> ShardReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _descriptor(self, path: Path) -> int:
        with self._lock:
            if path not in self._files:
                self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return self._files[path]
