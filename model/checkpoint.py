"""A checkpoint directory: configuration, tensor index, checked reads.

    checkpoint = Checkpoint.open(path)
    checkpoint.check()                                  # headers only; one error lists everything that is wrong
    checkpoint.read_into("embed.weight", tensor)        # straight into a preallocated CPU tensor

Dtypes handed out: BF16 and F32 as such, F8_E4M3 as torch.float8_e4m3fn; E8M0 scales and packed FP4 as torch.uint8.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..hal.errors import CheckpointError, InvalidArgumentError
from .checkpoint_index import ShardIndex, canonical, scan
from .config import ModelConfig, load_config
from .names import TensorSpec, inventory
from .report import CheckpointReportError, Finding, compare, truncated
from .safetensors_file import DTYPE_BYTES, ByteArray, ShardReader, TensorEntry, map_bytes
from .values import value_fault

if TYPE_CHECKING:
    import torch

    from .shard_plan import ShardPlan
    from .topology import Topology

READERS = min(4, max(1, (os.cpu_count() or 1) // 2))
"""Threads that read at a time. Copies out of the page cache are bound by page faults: threads pay where cores are idle,
and cost where none is."""

_BLOCK = 1 << 20
"""Bytes read before their values are checked: small enough to be checked from the cache."""


def torch_dtype(code: str) -> torch.dtype:
    """The torch dtype in which a safetensors dtype code is handed out."""
    import torch

    dtypes = {
        "BF16": torch.bfloat16, "F32": torch.float32, "F8_E4M3": torch.float8_e4m3fn,
        "F8_E8M0": torch.uint8, "I8": torch.uint8,
    }  # fmt: skip
    try:
        return dtypes[code]
    except KeyError:
        raise CheckpointError(f"tensors of dtype {code} are not part of this format") from None


@dataclass(frozen=True)
class ReadRequest:
    """One tensor to read: arguments of `Checkpoint.read_into`."""

    name: str
    out: torch.Tensor
    rows: tuple[int, int] | None = None


class Checkpoint:
    """Reads one checkpoint directory. Reads are thread-safe; use as a context manager or `close` it.

    Attributes:
        path: the directory.
        config: parsed configuration.
        bytes_read: bytes read by `read` and `read_into` so far; mapped bytes are not counted.
    """

    def __init__(self, path: Path, config: ModelConfig, index: ShardIndex) -> None:
        self.path = path
        self.config = config
        self._index = index
        self._reader = ShardReader()

    @classmethod
    def open(cls, path: str | Path) -> Checkpoint:
        """Reads configuration and headers. Faults of single tensors or shards wait for `check`.

        Raises:
            CheckpointError: not a directory, no configuration, no shards, an unusable index file.
            ConfigError: the configuration breaks a rule.
        """
        directory = Path(path)
        if not directory.is_dir():
            raise CheckpointError(f"{directory}: not a directory; a checkpoint is a directory with a config.json")
        return cls(directory, load_config(directory), scan(directory))

    @property
    def topology(self) -> Topology:
        return self.config.topology

    @property
    def index(self) -> Mapping[str, TensorEntry]:
        """Every stored tensor under its canonical name, whether the model wants it or not."""
        return self._index.entries

    @property
    def shards(self) -> Mapping[str, int]:
        """Shard file name -> bytes, of the shards that exist."""
        return self._index.sizes

    @cached_property
    def inventory(self) -> dict[str, TensorSpec]:
        """What the configuration asks for."""
        return inventory(self.config)

    @property
    def bytes_read(self) -> int:
        return self._reader.bytes_read

    def findings(self, plan: ShardPlan | None = None) -> list[Finding]:
        """Everything that is wrong with the headers, restricted to what `plan` reads."""
        found = compare(self.inventory.values(), self._index.entries)
        found = [f for f in found if not (f.problem.startswith("missing") and self._cannot_judge(f.name))]
        found += truncated(self._index.entries.values(), self._index.sizes)
        found += self._index.findings
        if plan is not None:
            wanted = set(plan.specs(self.inventory))
            found = [f for f in found if self._concerns(f, wanted)]
        return found

    def check(self, plan: ShardPlan | None = None) -> None:
        """Refuses a checkpoint whose headers do not fit the configuration. Reads and allocates no tensor data.

        Args:
            plan: look only at what this rank reads; None = everything.

        Raises:
            CheckpointReportError: lists the first findings of every kind.
        """
        found = self.findings(plan)
        if found:
            raise CheckpointReportError(str(self.path), found)

    def entry(self, name: str) -> TensorEntry:
        """Where a tensor lies.

        Raises:
            CheckpointError: the checkpoint does not hold it.
        """
        try:
            return self._index.entries[canonical(name)]
        except KeyError:
            raise CheckpointError(f"{self.path}: no tensor {name}") from None

    def read_into(self, name: str, out: torch.Tensor, rows: tuple[int, int] | None = None) -> None:
        """Reads a tensor, or rows [start, stop) of it, into `out`. No other copy is made.

        Args:
            out: contiguous CPU tensor of the stored shape (first dimension stop - start with `rows`) and of the dtype
                that is handed out.

        Raises:
            CheckpointError: not there, the file is too short, or a value is not finite (see `values.value_fault`).
            InvalidArgumentError: `out` or `rows` do not fit.
        """
        entry = self.entry(name)
        offset, _, shape = _range(entry, rows)
        check_out(name, out, torch_dtype(entry.dtype), shape)
        self._read(entry, offset, _as_bytes(out), whole=rows is None)

    def read(self, name: str, rows: tuple[int, int] | None = None) -> torch.Tensor:
        """As `read_into`, into a new tensor."""
        import torch

        entry = self.entry(name)
        out = torch.empty(_range(entry, rows)[2], dtype=torch_dtype(entry.dtype))
        self.read_into(name, out, rows)
        return out

    def read_many(
        self,
        requests: Iterable[ReadRequest],
        *,
        workers: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Many `read_into` calls, in file order and on several threads.

        Args:
            workers: threads; None = READERS.
            progress: called with the bytes of every finished request, from this thread.

        Raises:
            CheckpointError, InvalidArgumentError: of the first request that failed; the others may or may not be done.
        """
        ordered = sorted(requests, key=lambda r: (self.entry(r.name).shard, self.entry(r.name).offset))
        workers = READERS if workers is None else workers
        with ThreadPoolExecutor(max(1, workers), thread_name_prefix="checkpoint") as pool:
            jobs = [pool.submit(self.read_into, r.name, r.out, r.rows) for r in ordered]
            try:
                for request, job in zip(ordered, jobs, strict=True):
                    job.result()
                    if progress is not None:
                        progress(request.out.nbytes)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def map(self, name: str, rows: tuple[int, int] | None = None) -> torch.Tensor:
        """A memory-mapped tensor, or rows [start, stop) of one. Read-only: writing to it ends the process.

        Nothing is read until it is touched, so values are not checked. The mapping outlives the checkpoint.

        Raises:
            CheckpointError: not there, or the file is too short.
            InvalidArgumentError: `rows` do not fit.
        """
        import torch

        entry = self.entry(name)
        offset, nbytes, shape = _range(entry, rows)
        data = map_bytes(entry.shard, offset, nbytes)
        with warnings.catch_warnings():  # torch has no read-only tensors and warns of that
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(data).view(torch_dtype(entry.dtype)).view(shape)

    def value_fault(self, name: str) -> str | None:
        """Reads a whole tensor through a small buffer and says what is wrong with its values, or None."""
        entry = self.entry(name)
        buffer = np.empty(min(_BLOCK, entry.nbytes), np.uint8)
        written = entry.dtype != "F8_E8M0" or entry.nbytes == 0
        for start in range(0, entry.nbytes, _BLOCK):
            part = buffer[: min(_BLOCK, entry.nbytes - start)]
            self._reader.pread_into(entry.shard, entry.offset + start, part)
            fault = value_fault(entry.dtype, part, start // DTYPE_BYTES[entry.dtype])
            if fault:
                return fault
            written = written or bool(part.any())
        return None if written else _NEVER_WRITTEN

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _read(self, entry: TensorEntry, offset: int, out: ByteArray, *, whole: bool) -> None:
        """Fills `out` from `offset`, checking values block by block."""
        step = out.size if entry.dtype == "I8" else _BLOCK  # every packed FP4 byte is a pair of numbers
        for start in range(0, out.size, step):
            part = out[start : start + step]
            self._reader.pread_into(entry.shard, offset + start, part)
            first = (offset + start - entry.offset) // DTYPE_BYTES[entry.dtype]
            fault = value_fault(entry.dtype, part, first)
            if fault:
                raise CheckpointError(f"{canonical(entry.name)}: {fault}, in {entry.shard.name}")
        if whole and entry.dtype == "F8_E8M0" and out.size and not out.any():
            raise CheckpointError(f"{canonical(entry.name)}: {_NEVER_WRITTEN}, in {entry.shard.name}")

    def _cannot_judge(self, name: str) -> bool:
        """The tensor may lie in a shard that could not be read, which has a finding of its own."""
        if self._index.assigned is None:
            return bool(self._index.unreadable)
        return self._index.assigned.get(name) in self._index.unreadable

    def _concerns(self, finding: Finding, wanted: set[str]) -> bool:
        if finding.problem not in ("missing shard", "unreadable shard") or self._index.assigned is None:
            # What no rank wants, and a shard whose tensors are unknown, is everybody's concern.
            return finding.name in wanted or finding.name not in self.inventory
        return any(shard == finding.name and name in wanted for name, shard in self._index.assigned.items())


_NEVER_WRITTEN = "every scale byte is 0, the scales were never written"


def row_range(name: str, shape: tuple[int, ...], rows: tuple[int, int] | None) -> tuple[int, int]:
    """Rows [start, stop) of a tensor, checked; all of them for None (a scalar counts as one row)."""
    count = shape[0] if shape else 1
    if rows is None:
        return 0, count
    if not 0 <= rows[0] <= rows[1] <= count:
        raise InvalidArgumentError("rows", rows, f"a range within the {count} rows of {name}")
    return rows


def _range(entry: TensorEntry, rows: tuple[int, int] | None) -> tuple[int, int, tuple[int, ...]]:
    """File offset, bytes and shape of rows [start, stop) of a tensor."""
    start, stop = row_range(canonical(entry.name), entry.shape, rows)
    if rows is None:
        return entry.offset, entry.nbytes, entry.shape
    size = entry.nbytes // entry.shape[0] if entry.shape and entry.shape[0] else 0
    return entry.offset + start * size, (stop - start) * size, (stop - start, *entry.shape[1:])


def check_out(name: str, out: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Refuses a destination that a read could not fill exactly."""
    if tuple(out.shape) != shape or out.dtype != dtype:
        raise InvalidArgumentError("out", f"{out.dtype} {list(out.shape)}", f"{dtype} {list(shape)} for {name}")
    if out.device.type != "cpu" or not out.is_contiguous():
        raise InvalidArgumentError("out", f"{out.device} tensor with strides {out.stride()}", "a contiguous CPU tensor")


def _as_bytes(tensor: torch.Tensor) -> ByteArray:
    import torch

    array: ByteArray = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return array
