"""Communicators: groups of processes over torch.distributed, with deadlines that name who is missing.

A collective that a rank does not join must not hang the others. Every process publishes a heartbeat and the number of
collectives it has entered in the group's store, from a thread of its own; when a collective misses its deadline, a rank
reads what the others published, and the error says which of them died and which never came.

A group of one process needs no set-up: `single_process()`. Zero rows are legal in every call.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist

from . import env, graph, heartbeat
from .errors import DeepInferError, InvalidArgumentError, NotSupportedError

Reduction = Literal["sum", "max", "min"]

# Sums of other dtypes depend on the backend; the contract's own sums are gathers and an ordered addition.
REDUCED_DTYPES = (torch.int32, torch.int64, torch.float32, torch.float64)


class CommunicatorError(DeepInferError):
    """A collective failed or missed its deadline. The group cannot be used afterwards.

    Attributes:
        group: name of the group.
        missing: ranks of the group that did not arrive.
    """

    def __init__(self, group: str, message: str, missing: tuple[int, ...] = ()) -> None:
        self.group = group
        self.message = message
        self.missing = missing
        super().__init__(f"group {group!r}: {message}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.group, self.message, self.missing))


class Group:
    """A group of one process, and the interface of all groups.

    Every member calls the same collectives in the same order, from one thread at a time.

    Attributes:
        name: as errors show it.
        rank: place of this process in the group.
        world_size: number of members.
        ranks: ranks of the members in the world.
        deadline: seconds a collective may take.
    """

    def __init__(self, name: str, rank: int, ranks: Sequence[int], deadline: float) -> None:
        if deadline <= 0:
            raise InvalidArgumentError("deadline", deadline, "seconds greater than 0")
        self.name = name
        self.rank = rank
        self.ranks = tuple(ranks)
        self.world_size = len(self.ranks)
        self.deadline = deadline

    def all_reduce(self, tensor: torch.Tensor, op: Reduction = "sum") -> torch.Tensor:
        """Reduce over the members, in place. The order of a floating-point sum is not fixed: where bits matter, gather
        and add in rank order.

        Args:
            tensor: any shape, the same on every rank; int32, int64, float32 or float64, contiguous.
        """
        if tensor.dtype not in REDUCED_DTYPES:
            allowed = ", ".join(str(d).removeprefix("torch.") for d in REDUCED_DTYPES)
            raise InvalidArgumentError("tensor.dtype", tensor.dtype, allowed)
        if op not in ("sum", "max", "min"):
            raise InvalidArgumentError("op", op, "sum, max, min")
        self._check(tensor)
        self._all_reduce(tensor, op)
        return tensor

    def all_gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Gather equal shapes: [...] on each rank becomes [world_size, ...], in rank order."""
        self._check(tensor)
        out = tensor.new_empty((self.world_size, *tensor.shape))
        self._all_gather(_bytes(out), _bytes(tensor))
        return out

    def all_gather_v(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Gather [n_r, ...] with a row count per rank, zero included; one tensor per rank, in rank order."""
        self._check(tensor)
        mine = torch.tensor([len(tensor)], dtype=torch.int64, device=tensor.device)
        counts = [int(n) for n in self.all_gather(mine).flatten().tolist()]
        padded = tensor.new_empty((max(counts), *tensor.shape[1:]))
        padded[: len(tensor)].copy_(tensor)
        gathered = self.all_gather(padded)
        return [gathered[r, :n] for r, n in enumerate(counts)]

    def all_to_all(self, tensor: torch.Tensor) -> torch.Tensor:
        """Exchange equal shares: row block r of [world_size * n, ...] goes to rank r; the result holds, in rank order,
        what came."""
        if len(tensor) % self.world_size:
            raise InvalidArgumentError("tensor", tuple(tensor.shape), f"a multiple of {self.world_size} rows")
        share = [len(tensor) // self.world_size] * self.world_size
        return self.all_to_all_v(tensor, share, share)

    def all_to_all_v(self, tensor: torch.Tensor, send: Sequence[int], receive: Sequence[int]) -> torch.Tensor:
        """Exchange rows: the first `send[0]` rows of `tensor` go to rank 0, the next `send[1]` to rank 1, and so on.

        Args:
            tensor: [sum(send), ...].
            send, receive: rows per rank; zeros are legal. `receive[r]` here equals `send[here]` on rank r.

        Returns:
            [sum(receive), ...], in rank order.
        """
        self._check(tensor)
        for name, counts in (("send", send), ("receive", receive)):
            if len(counts) != self.world_size or any(n < 0 for n in counts):
                raise InvalidArgumentError(name, list(counts), f"{self.world_size} row counts, none negative")
        if sum(send) != len(tensor):
            raise InvalidArgumentError("send", list(send), f"counts that sum to the {len(tensor)} rows of the tensor")
        out = tensor.new_empty((sum(receive), *tensor.shape[1:]))
        row = _row_bytes(tensor)
        self._all_to_all(_bytes(out), _bytes(tensor), [n * row for n in send], [n * row for n in receive])
        return out

    def exchange_counts(self, send: Sequence[int]) -> list[int]:
        """Tell every rank how many rows it will get from here; returns how many come from each: `receive` above."""
        return [int(n) for n in self.all_to_all(torch.tensor(send, dtype=torch.int64)).tolist()]

    def broadcast(self, tensor: torch.Tensor, source: int) -> torch.Tensor:
        """Copy the tensor of rank `source` of the group into everybody's, in place; returns it."""
        if not 0 <= source < self.world_size:
            raise InvalidArgumentError("source", source, f"a rank from 0 to {self.world_size - 1}")
        self._check(tensor)
        self._broadcast(_bytes(tensor), source)
        return tensor

    def barrier(self) -> None:
        """Return once every member has called."""
        self._barrier()

    def split(self, groups: Sequence[Sequence[int]], name: str) -> Group:
        """Part the members into disjoint groups; returns the one of this process. Every member calls, with the same
        arguments.

        Args:
            groups: ranks of this group, each exactly once and ascending within its group.
        """
        flat = sorted(r for group in groups for r in group)
        if flat != list(range(self.world_size)) or any(list(group) != sorted(group) for group in groups):
            allowed = "each rank of the group exactly once, ascending within its part"
            raise InvalidArgumentError("groups", [list(g) for g in groups], allowed)
        return self._split(groups, name)

    def close(self) -> None:
        """Leave the group; graphs that may use it are released first. Idempotent."""

    # ---- what kinds of groups differ in -----------------------------------------------------------------------

    def _check(self, tensor: torch.Tensor) -> None:
        if not tensor.is_contiguous():
            raise InvalidArgumentError("tensor", f"strides {tensor.stride()}", "a contiguous tensor")

    def _all_reduce(self, tensor: torch.Tensor, op: Reduction) -> None:
        return

    def _all_gather(self, out: torch.Tensor, tensor: torch.Tensor) -> None:
        out.copy_(tensor)

    def _all_to_all(self, out: torch.Tensor, tensor: torch.Tensor, send: list[int], receive: list[int]) -> None:
        if send != receive:
            raise InvalidArgumentError("receive", receive, f"what is sent here: {send}")
        out.copy_(tensor)

    def _broadcast(self, tensor: torch.Tensor, source: int) -> None:
        return

    def _barrier(self) -> None:
        return

    def _split(self, groups: Sequence[Sequence[int]], name: str) -> Group:
        return Group(name, 0, self.ranks, self.deadline)


def single_process(name: str = "world") -> Group:
    """The group of one process. Needs no set-up and no network."""
    return Group(name, 0, (0,), float(env.get("DEEPINFER_GLOO_TIMEOUT")))


class ProcessGroup(Group):
    """A group over torch.distributed with gloo, for tensors in host memory."""

    def __init__(
        self, name: str, handle: Any, rank: int, ranks: Sequence[int], deadline: float, progress: heartbeat.Heartbeat
    ) -> None:
        super().__init__(name, rank, ranks, deadline)
        self._handle = handle
        # Unlike our name, torch's tells two groups with the same members apart.
        self._key = str(getattr(handle, "group_name", name))
        self._progress = progress
        self._failed: CommunicatorError | None = None
        self._closed = False

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        graph.release_all()
        if self._handle is dist.group.WORLD:
            self._progress.stop()
            dist.destroy_process_group()

    def _check(self, tensor: torch.Tensor) -> None:
        super()._check(tensor)
        if tensor.device.type != "cpu":
            raise InvalidArgumentError("tensor", f"a tensor on {tensor.device}", "a tensor in host memory (gloo group)")

    def _finish(self, what: str, launch: Any) -> None:
        """Launch a collective and wait for it until the deadline."""
        if self._failed is not None:
            raise self._failed  # a member may be out of step: no later collective can be trusted
        if self._closed:
            raise CommunicatorError(self.name, f"{what} after close")
        number = self._progress.enter(self._key)
        started = time.monotonic()
        try:
            work = launch()
            if work is not None and not work.wait(timedelta(seconds=self.deadline)):
                raise RuntimeError("the wait ended without a result")
        except RuntimeError as error:
            self._failed = self._diagnose(what, number, time.monotonic() - started, error)
            raise self._failed from error

    def _diagnose(self, what: str, number: int, waited: float, cause: RuntimeError) -> CommunicatorError:
        """Name the members that never came to collective `number`, and those that show no life."""
        others = [r for r in range(self.world_size) if r != self.rank]
        try:
            self._progress.publish()
            time.sleep(2 * heartbeat.INTERVAL_SECONDS)  # who entered just now has published it by then
            before = [self._progress.read(self.ranks[r], self._key) for r in others]
            time.sleep(heartbeat.WATCH_SECONDS)
            after = [self._progress.read(self.ranks[r], self._key) for r in others]
            came = [self.ranks[r] for r, old, new in zip(others, before, after, strict=True)
                    if old[0] != new[0] and new[1] >= number]  # fmt: skip
            self._progress.leave(self._key, came)
        except RuntimeError as error:
            message = f"{what} failed after {waited:.1f} s, and rank 0 of the world, which holds the store, is gone"
            return CommunicatorError(self.name, f"{message} ({_first_line(error)})", (0,) if 0 in self.ranks else ())
        silent = [r for r, old, new in zip(others, before, after, strict=True) if old[0] == new[0]]
        late = [r for r, old in zip(others, before, strict=True) if old[1] < number and r not in silent]
        parts = [f"{what} (collective {number}) failed after {waited:.1f} s, deadline {self.deadline:g} s"]
        if late:
            parts.append(f"rank {_list(late)} did not arrive")
        if silent:
            parts.append(f"rank {_list(silent)} gives no sign of life")
        if not late and not silent:
            parts.append(f"every member arrived; the transport says: {_first_line(cause)}")
        return CommunicatorError(self.name, "; ".join(parts), tuple(sorted(late + silent)))

    def _all_reduce(self, tensor: torch.Tensor, op: Reduction) -> None:
        kinds = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
        self._finish("all_reduce", lambda: dist.all_reduce(tensor, kinds[op], self._handle, async_op=True))

    def _all_gather(self, out: torch.Tensor, tensor: torch.Tensor) -> None:
        if tensor.numel() == 0:
            return self._barrier()
        parts = list(out.view(self.world_size, -1).unbind(0))
        self._finish("all_gather", lambda: dist.all_gather(parts, tensor, self._handle, async_op=True))

    def _all_to_all(self, out: torch.Tensor, tensor: torch.Tensor, send: list[int], receive: list[int]) -> None:
        self._finish(
            "all_to_all",
            lambda: dist.all_to_all_single(out, tensor, receive, send, self._handle, async_op=True),
        )

    def _broadcast(self, tensor: torch.Tensor, source: int) -> None:
        if tensor.numel() == 0:
            return self._barrier()
        root = self.ranks[source]
        self._finish("broadcast", lambda: dist.broadcast(tensor, root, self._handle, async_op=True))

    def _barrier(self) -> None:
        token = torch.zeros(1, dtype=torch.int32)
        self._finish("barrier", lambda: dist.all_reduce(token, group=self._handle, async_op=True))

    def _split(self, groups: Sequence[Sequence[int]], name: str) -> Group:
        index = next(i for i, members in enumerate(groups) if self.rank in members)
        members = list(groups[index])
        ranks = [self.ranks[r] for r in members]
        # Only the members of a group set it up together, so that groups of groups need nobody else.
        handle = dist.new_group(ranks, timeout=_patience(self.deadline), backend="gloo", use_local_synchronization=True)
        label = name if len(groups) == 1 else f"{name}.{index}"
        return ProcessGroup(label, handle, members.index(self.rank), ranks, self.deadline, self._progress)


def connect(rank: int, world_size: int, address: str, *, deadline: float | None = None, backend: str = "gloo") -> Group:
    """Join the world: returns once every rank has joined.

    Args:
        rank: this process, from 0.
        world_size: number of processes. With 1 no network is used.
        address: 'tcp://HOST:PORT', the same everywhere; rank 0 listens.
        deadline: seconds for joining and for every collective; DEEPINFER_GLOO_TIMEOUT by default.
        backend: 'gloo'.

    Raises:
        InvalidArgumentError: a rank outside the world.
        NotSupportedError: another backend.
        CommunicatorError: not everybody joined in time; names the missing ranks.
    """
    if world_size < 1:
        raise InvalidArgumentError("world_size", world_size, "1 or more")
    if not 0 <= rank < world_size:
        raise InvalidArgumentError("rank", rank, f"from 0 to {world_size - 1}")
    if backend != "gloo":
        raise NotSupportedError(f"communicator {backend!r}", "device groups come with expert parallelism; gloo is here")
    seconds = float(env.get("DEEPINFER_GLOO_TIMEOUT")) if deadline is None else deadline
    if world_size == 1:
        return Group("world", 0, (0,), seconds)
    store = _join(rank, world_size, address, seconds)
    try:
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=_patience(seconds))
    except RuntimeError as error:
        raise CommunicatorError("world", f"cannot be formed: {_first_line(error)}") from error
    progress = heartbeat.Heartbeat(store, rank)
    world = dist.group.WORLD
    return ProcessGroup("world", world, rank, range(world_size), seconds, progress)


def _join(rank: int, world_size: int, address: str, seconds: float) -> Any:
    """Open the store, and wait until every rank has opened it."""
    scheme, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    if scheme != "tcp" or not host or not port.isdigit():
        raise InvalidArgumentError("address", address, "tcp://HOST:PORT")
    timeout = timedelta(seconds=seconds)
    try:
        store: Any = dist.TCPStore(  # type: ignore[attr-defined]
            host, int(port), None, rank == 0, timeout, wait_for_workers=False
        )
        store.set(f"deepinfer/joined/{rank}", "1")
    except (RuntimeError, ValueError) as error:
        raise CommunicatorError(
            "world", f"rank 0 cannot be reached at {address}: {_first_line(error)}", (0,)
        ) from error
    keys = [f"deepinfer/joined/{r}" for r in range(world_size)]
    end = time.monotonic() + seconds
    missing = list(range(world_size))
    while True:
        try:
            missing = [r for r in missing if not store.check([keys[r]])]
        except RuntimeError as error:  # rank 0 gave up, and its store went with it
            message = f"rank 0 left {address} before rank {_list(missing)} had joined"
            raise CommunicatorError("world", message, tuple(missing)) from error
        if not missing:
            return store
        if time.monotonic() >= end:
            message = f"rank {_list(missing)} did not join at {address} within {seconds:g} s"
            raise CommunicatorError("world", message, tuple(missing))
        time.sleep(0.02)


def _patience(seconds: float) -> timedelta:
    """Time-out of the transport: longer than the deadline, so that our own message comes first."""
    return timedelta(seconds=2 * seconds + 10)


def _row_bytes(tensor: torch.Tensor) -> int:
    count = tensor.element_size()
    for size in tensor.shape[1:]:
        count *= size
    return count


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor as flat bytes: data movement works for every dtype, FP8 among them."""
    return tensor.view(-1).view(torch.uint8)


def _list(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
