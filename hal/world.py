"""Groups of several processes over torch.distributed, with deadlines that name who is missing.

A collective that a rank does not join must not hang the others. Every process publishes a heartbeat and the number of
collectives it has entered in the group's store, from a thread of its own; when a collective misses its deadline, a rank
reads what the others published, and the error says which of them died and which never came. Of collectives that a
device has queued, another thread keeps the deadlines (`hal.watch`); one that fails is aborted, so that nobody waits for
the device any more, and `check` raises the error.

What moves the tensors is the backend's: see `hal.transport`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from . import env, graph, heartbeat
from .comm import CommunicatorError, Group, Reduction
from .errors import InvalidArgumentError
from .transport import DeviceTransport, Transport
from .watch import Pending, Watch

# One name until torch 2.12, the other since.
_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class ProcessGroup(Group):
    """A group over torch.distributed, with what the backend's transport moves tensors by."""

    def __init__(
        self,
        name: str,
        handle: Any,
        rank: int,
        ranks: Sequence[int],
        deadline: float,
        progress: heartbeat.Heartbeat,
        transport: Transport | None = None,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(name, rank, ranks, deadline)
        self._transport = Transport() if transport is None else transport
        self.reduced = self._transport.reduced
        self._watch = watch
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
            if self._watch is not None:
                self._watch.stop()
            self._progress.stop()
            dist.destroy_process_group()

    def _check(self, tensor: torch.Tensor) -> None:
        super()._check(tensor)
        if not self._transport.takes(tensor):
            where = (
                "host memory" if self._transport.device.type == "cpu" else f"host memory or {self._transport.device}"
            )
            allowed = f"a tensor in {where} ({self._transport.backends} group)"
            raise InvalidArgumentError("tensor", f"a tensor on {tensor.device}", allowed)

    def check(self) -> None:
        if self._failed is not None:
            raise self._failed  # a member may be out of step: no later collective can be trusted

    def _finish(self, what: str, launch: Any, tensor: torch.Tensor) -> None:
        """Launch a collective; wait for it until the deadline, or have the watch do so."""
        self.check()
        if self._closed:
            raise CommunicatorError(self.name, f"{what} after close")
        number = self._progress.enter(self._key)
        started = time.monotonic()
        try:
            work = launch()
            if work is not None and self._transport.queues(tensor):
                self._queued(what, number, work)
            elif work is not None and not work.wait(timedelta(seconds=self.deadline)):
                raise RuntimeError("the wait ended without a result")
        except torch.OutOfMemoryError:
            self._failed = CommunicatorError(self.name, f"{what} (collective {number}): this rank is short of memory")
            raise
        except RuntimeError as error:
            self._failed = self._diagnose(what, number, time.monotonic() - started, _first_line(error))
            raise self._failed from error

    def _queued(self, what: str, number: int, work: Any) -> None:
        """Have the watch look after a collective that is on the device's queue."""
        transport, handle, began = self._transport, self._handle, time.monotonic()
        assert isinstance(transport, DeviceTransport) and self._watch is not None
        event = transport.queued(work)
        if event is None:
            return

        def fail(problem: str) -> None:
            self._failed = self._diagnose(what, number, time.monotonic() - began, problem)
            transport.abort(handle)

        error = partial(transport.error, handle)
        self._watch.add(self._key, Pending(event, error, fail, began, began + self.deadline))

    def _diagnose(self, what: str, number: int, waited: float, cause: str) -> CommunicatorError:
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
            holder = self._progress.holder
            message = f"{what} failed after {waited:.1f} s, and {holder}, which holds the store, is gone"
            missing = (0,) if holder == heartbeat.RANK_0 and 0 in self.ranks else ()
            return CommunicatorError(self.name, f"{message} ({_first_line(error)})", missing)
        silent = [r for r, old, new in zip(others, before, after, strict=True) if old[0] == new[0]]
        late = [r for r, old in zip(others, before, strict=True) if old[1] < number and r not in silent]
        parts = [f"{what} (collective {number}) failed after {waited:.1f} s, deadline {self.deadline:g} s"]
        if late:
            parts.append(f"rank {_list(late)} did not arrive")
        if silent:
            parts.append(f"rank {_list(silent)} gives no sign of life")
        if not late and not silent:
            parts.append(f"every member arrived; the transport says: {cause}")
        return CommunicatorError(self.name, "; ".join(parts), tuple(sorted(late + silent)))

    def _all_reduce(self, tensor: torch.Tensor, op: Reduction) -> None:
        kinds = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
        self._finish("all_reduce", lambda: dist.all_reduce(tensor, kinds[op], self._handle, async_op=True), tensor)

    def _all_gather(self, out: torch.Tensor, tensor: torch.Tensor) -> None:
        if tensor.numel() == 0:  # as on every rank
            return None if self._transport.queues(tensor) else self._barrier()
        self._finish("all_gather", lambda: _gather(out, tensor, self._handle, async_op=True), tensor)

    def _all_to_all(self, out: torch.Tensor, tensor: torch.Tensor, send: list[int], receive: list[int]) -> None:
        self._finish(
            "all_to_all",
            lambda: dist.all_to_all_single(out, tensor, receive, send, self._handle, async_op=True),
            tensor,
        )

    def _broadcast(self, tensor: torch.Tensor, source: int) -> None:
        if tensor.numel() == 0:
            return None if self._transport.queues(tensor) else self._barrier()
        root = self.ranks[source]
        self._finish("broadcast", lambda: dist.broadcast(tensor, root, self._handle, async_op=True), tensor)

    def _barrier(self) -> None:
        token = torch.zeros(1, dtype=torch.int32)
        self._finish("barrier", lambda: dist.all_reduce(token, group=self._handle, async_op=True), token)

    def _split(self, groups: Sequence[Sequence[int]], name: str) -> Group:
        index = next(i for i, members in enumerate(groups) if self.rank in members)
        members = list(groups[index])
        ranks = [self.ranks[r] for r in members]
        # Only the members of a group set it up together, so that groups of groups need nobody else.
        handle = dist.new_group(
            ranks,
            timeout=_patience(self.deadline),
            backend=self._transport.backends,
            use_local_synchronization=True,
        )
        label = name if len(groups) == 1 else f"{name}.{index}"
        rank = members.index(self.rank)
        part = ProcessGroup(label, handle, rank, ranks, self.deadline, self._progress, self._transport, self._watch)
        part.first()
        return part

    def first(self) -> None:
        """Let the device's library set up its own side of the group now: it does so in the first collective, which may
        be neither in a capture nor, if it fails, in a step."""
        if not isinstance(self._transport, DeviceTransport):
            return
        self._barrier()  # by host memory: who is missing is named at the deadline
        token = torch.zeros(1, dtype=torch.int32, device=self._transport.device.torch)
        self._all_reduce(token, "sum")
        self._transport.streams.record().synchronize()
        self.check()


def connect(
    rank: int,
    world_size: int,
    address: str,
    *,
    deadline: float | None = None,
    transport: Transport | None = None,
    served: str | None = None,
) -> Group:
    """Join the world: returns once every rank has joined.

    Args:
        rank: this process, from 0.
        world_size: number of processes. With 1 no network is used.
        address: 'tcp://HOST:PORT', the same everywhere; rank 0 listens.
        deadline: seconds for joining and for every collective; DEEPINFER_GLOO_TIMEOUT by default.
        transport: of the backend whose tensors are moved (`Backend.transport`); host memory by default.
        served: a launcher listens at the address, not rank 0; names its attempt to run these processes.

    Raises:
        BackendError: the transport cannot be used here.
        InvalidArgumentError: a rank outside the world.
        CommunicatorError: not everybody joined in time; names the missing ranks.
    """
    if world_size < 1:
        raise InvalidArgumentError("world_size", world_size, "1 or more")
    if not 0 <= rank < world_size:
        raise InvalidArgumentError("rank", rank, f"from 0 to {world_size - 1}")
    seconds = float(env.get("DEEPINFER_GLOO_TIMEOUT")) if deadline is None else deadline
    if world_size == 1:
        return Group("world", 0, (0,), seconds)
    transport = Transport() if transport is None else transport
    transport.prepare(seconds)
    store = _join(rank, world_size, address, seconds, served)
    try:
        dist.init_process_group(
            transport.backends, store=store, rank=rank, world_size=world_size, timeout=_patience(seconds)
        )
    except RuntimeError as error:
        raise CommunicatorError("world", f"cannot be formed: {_first_line(error)}") from error
    progress = heartbeat.Heartbeat(store, rank, heartbeat.RANK_0 if served is None else "the launcher")
    watch = Watch(transport.select) if isinstance(transport, DeviceTransport) else None
    world = ProcessGroup("world", dist.group.WORLD, rank, range(world_size), seconds, progress, transport, watch)
    world.first()
    return world


def _join(rank: int, world_size: int, address: str, seconds: float, served: str | None) -> Any:
    """Open the store, and wait until every rank has opened it."""
    scheme, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    if scheme != "tcp" or not host or not port.isdecimal():
        raise InvalidArgumentError("address", address, "tcp://HOST:PORT")
    timeout = timedelta(seconds=seconds)
    holder = heartbeat.RANK_0 if served is None else "the launcher"
    try:
        store: Any = dist.TCPStore(  # type: ignore[attr-defined]
            host, int(port), None, rank == 0 and served is None, timeout, wait_for_workers=False
        )
        if served is not None:  # what an earlier attempt has left there is not ours
            store = dist.PrefixStore(f"deepinfer/{served}", store)  # type: ignore[attr-defined]
        store.set(f"deepinfer/joined/{rank}", "1")
    except (RuntimeError, ValueError) as error:
        absent = (0,) if served is None else ()
        raise CommunicatorError(
            "world", f"{holder} cannot be reached at {address}: {_first_line(error)}", absent
        ) from error
    keys = [f"deepinfer/joined/{r}" for r in range(world_size)]
    end = time.monotonic() + seconds
    missing = list(range(world_size))
    while True:
        try:
            missing = [r for r in missing if not store.check([keys[r]])]
        except RuntimeError as error:  # who holds the store gave up, or ended
            message = f"{holder} left {address} before rank {_list(missing)} had joined"
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


def _list(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
