"""Groups of several processes over torch.distributed, with deadlines that name who is missing.

A collective that a rank does not join must not hang the others. Every process publishes a heartbeat and the number of
collectives it has entered in the group's store, from a thread of its own; when a collective misses its deadline, a rank
reads what the others published, and the error says which of them died and which never came (`hal.diagnosis`).

Of collectives that a device has queued, another thread keeps the deadlines (`hal.watch`). One that fails takes all
groups of the world with it, as what they have queued lies behind it: first they all refuse, then what is queued is
ended, so that nobody waits for the device any more, and only then it is found out who is missing.

What moves the tensors is the backend's: see `hal.transport`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from . import diagnosis, env, graph, heartbeat
from .comm import CommunicatorError, Group, Reduction
from .diagnosis import Failure, first_line
from .errors import InvalidArgumentError
from .joining import join_store
from .stream import InlineStreams
from .transport import CPU, DeviceTransport, Transport
from .watch import Pending, Watch

# One name until torch 2.12, the other since.
_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

log = logging.getLogger(__name__)


class ProcessGroup(Group):
    """A group over torch.distributed, with what the backend's transport moves tensors by.

    Args:
        handle: torch's group.
        progress, transport, watch: of the world.
        world: the group that this one is a part of, with all others; None for the world itself.
    """

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
        world: ProcessGroup | None = None,
    ) -> None:
        super().__init__(name, rank, ranks, deadline)
        self._transport = Transport() if transport is None else transport
        self.reduced = self._transport.reduced
        self._watch = watch
        self._handle = handle
        # Unlike our name, torch's tells two groups with the same members apart.
        self._key = str(getattr(handle, "group_name", name))
        self._progress = progress
        self._last = ("a collective", 0, time.monotonic())
        self._failed: CommunicatorError | None = None
        self._explained = threading.Event()  # `_failed` says all that could be found out
        self._closed = False
        # Of the world, for all of its groups: its lock guards `_failed` and `_closed` of each.
        self._world = self if world is None else world
        self._groups: list[ProcessGroup] = []
        self._lock = threading.Lock()
        self._failing = False
        root = self._world
        with root._lock:
            root._groups.append(self)
            if root._failing:
                self._failed, self._explained = root._failed, root._explained
            self._closed = root._closed

    def close(self) -> None:
        whole = self._world is self
        with self._world._lock:
            if self._closed:
                return
            for group in self._groups if whole else [self]:
                group._closed = True
        try:
            graph.release_all()
        finally:
            if whole:
                if self._watch is not None:
                    self._watch.stop(diagnosis.longest())  # others may need the store to find out what we know
                self._progress.stop()
                if self._handle is not None and self._handle is dist.group.WORLD:
                    dist.destroy_process_group()

    def check(self, patience: float = 0.0) -> None:
        if self._failed is None and not self._closed and (problem := self._noticed()):
            self._report(problem)
        if self._failed is not None:  # a member may be out of step: no later collective can be trusted
            self._explained.wait(patience)
            raise self._failed

    def abort(self, reason: str) -> None:
        text = f"ended by this rank: {reason}"
        if self._refuse(text):
            self._explain(CommunicatorError(self.name, text + self._end_queues()))

    def _check(self, tensor: torch.Tensor) -> None:
        super()._check(tensor)
        if not self._transport.takes(tensor):
            where = (
                "host memory" if self._transport.device.type == "cpu" else f"host memory or {self._transport.device}"
            )
            allowed = f"a tensor in {where} ({self._transport.backends} group)"
            raise InvalidArgumentError("tensor", f"a tensor on {tensor.device}", allowed)

    def _ready(self, what: str) -> None:
        """Refuse what is called after a failure or after close."""
        self.check()
        if self._closed:
            raise CommunicatorError(self.name, f"{what} after close")

    def _finish(self, what: str, launch: Any, tensor: torch.Tensor) -> None:
        """Launch a collective; wait for it until the deadline, or have the watch do so."""
        self._ready(what)
        number = self._progress.enter(self._key)
        began = time.monotonic()
        self._last = (what, number, began)
        queues = self._transport.queues(tensor)
        try:
            work = launch()
            if work is not None and queues:
                self._queued(work)
            elif work is not None and not work.wait(timedelta(seconds=self.deadline)):
                raise RuntimeError("the wait ended without a result")
        except torch.OutOfMemoryError:
            self._fail_alone(
                CommunicatorError(self.name, f"{what} (collective {number}): this rank is short of memory")
            )
            raise
        except RuntimeError as error:
            if queues:
                self._fail(what, number, began, first_line(error))
            elif self._failed is None:
                failure = Failure(what, number, time.monotonic() - began, first_line(error))
                found, others = self._diagnose(failure)
                self._fail_alone(found)
                self._leave(others)
            raise (self._failed or CommunicatorError(self.name, f"{what} while it was closed")) from error

    def _queued(self, work: Any) -> None:
        """Have the watch look after a collective that is on the device's queue."""
        assert isinstance(self._transport, DeviceTransport) and self._watch is not None
        event = self._transport.queued(work)
        if event is None:
            return
        fail = partial(self._fail, *self._last)
        self._watch.add(self._key, Pending(event, self._noticed, fail, time.monotonic() + self.deadline))
        if self._failed is not None:  # since it was launched
            raise self._failed

    # ---- failures ---------------------------------------------------------------------------------------------

    def _noticed(self) -> str:
        """What the device's library says of the group by itself; "" for nothing. Does not wait."""
        if not isinstance(self._transport, DeviceTransport):
            return ""
        try:
            return self._transport.error(self._handle)
        except Exception as error:  # a library that cannot say is broken as well
            return first_line(error)

    def _report(self, problem: str) -> None:
        """Refuse at once, and leave the rest to the watch: nothing here may wait."""
        what, number, began = self._last
        with self._world._lock:
            if self._world._closed:
                return
            self._mark(f"{what} (collective {number}), or one before it, failed: {problem}")
        if self._watch is not None:
            done = InlineStreams(CPU).record()
            fail = partial(self._fail, what, number, began)
            self._watch.add(self._key, Pending(done, lambda: problem, fail, time.monotonic()))

    def _fail(self, what: str, number: int, began: float, problem: str) -> None:
        """A queued collective failed, and all groups of the world with it."""
        failure = Failure(what, number, time.monotonic() - began, problem)
        if not self._refuse(f"{failure}: {problem}"):
            return
        trouble = self._end_queues()
        found, others = self._diagnose(failure)
        self._explain(CommunicatorError(self.name, found.message + trouble, found.missing))
        self._leave(others)

    def _refuse(self, text: str) -> bool:
        """Let all groups of the world refuse from now on; False where they do, or are closed, already."""
        root = self._world
        with root._lock:
            if root._failing or root._closed:
                return False
            root._failing = True
            self._mark(text)
        return True

    def _mark(self, text: str) -> None:
        """A failure that is still to be explained, in all groups of the world. The lock is held."""
        error = CommunicatorError(self.name, f"{text}; who is missing is not known yet")
        for group in self._world._groups:
            if group._failed is None:
                group._failed = error if group is self else group._behind(self, error)

    def _explain(self, error: CommunicatorError) -> None:
        """The last word, in all groups of the world that failed together."""
        with self._world._lock:
            for group in [group for group in self._world._groups if not group._explained.is_set()]:
                group._failed = error if group is self else group._behind(self, error)
                group._explained.set()

    def _behind(self, other: ProcessGroup, error: CommunicatorError) -> CommunicatorError:
        """The error of this group where another one has failed: its missing ranks as they are numbered here."""
        gone = [other.ranks[rank] for rank in error.missing]
        missing = tuple(rank for rank, number in enumerate(self.ranks) if number in gone)
        return CommunicatorError(self.name, f"group {other.name!r} of the same world failed: {error.message}", missing)

    def _end_queues(self) -> str:
        """Abort what all groups of the world have queued, this one's first; returns what went wrong, for the error."""
        transport, trouble = self._transport, ""
        if not isinstance(transport, DeviceTransport):
            return trouble
        with self._world._lock:
            groups = [self, *(group for group in self._world._groups if group is not self)]
        for group in groups:
            try:
                transport.abort(group._handle)
            except Exception as error:
                trouble += f"; what group {group.name!r} has queued could not be ended: {first_line(error)}"
        return trouble

    def _fail_alone(self, error: CommunicatorError) -> None:
        """This group fails for good: what others have queued does not wait for it."""
        with self._world._lock:
            if self._failed is None:
                self._failed = error
                self._explained.set()

    def _leave(self, others: list[int] | None) -> None:
        """Let the store's holder outlive its own failure, until others have found out the same."""
        if others is None:
            return
        try:
            self._progress.leave(self._key, others)
        except RuntimeError as error:
            log.debug("the store went before the diagnosis ended: %s", error)

    def _diagnose(self, failure: Failure) -> tuple[CommunicatorError, list[int] | None]:
        members = diagnosis.Members(self.name, self._key, self.rank, self.ranks, self.deadline)
        try:
            return diagnosis.diagnose(members, self._progress, failure)
        except Exception as error:  # whatever the store holds: the failure stands
            message = f"{failure}: {failure.cause}; who is missing cannot be found out ({first_line(error)})"
            return CommunicatorError(self.name, message), None

    # ---- collectives ------------------------------------------------------------------------------------------

    def _all_reduce(self, tensor: torch.Tensor, op: Reduction) -> None:
        kinds = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
        self._finish("all_reduce", lambda: dist.all_reduce(tensor, kinds[op], self._handle, async_op=True), tensor)

    def _all_gather(self, out: torch.Tensor, tensor: torch.Tensor) -> None:
        if tensor.numel() == 0:  # as on every rank
            return self._nothing("all_gather", tensor)
        self._finish("all_gather", lambda: _gather(out, tensor, self._handle, async_op=True), tensor)

    def _all_to_all(self, out: torch.Tensor, tensor: torch.Tensor, send: list[int], receive: list[int]) -> None:
        self._finish(
            "all_to_all",
            lambda: dist.all_to_all_single(out, tensor, receive, send, self._handle, async_op=True),
            tensor,
        )

    def _broadcast(self, tensor: torch.Tensor, source: int) -> None:
        if tensor.numel() == 0:
            return self._nothing("broadcast", tensor)
        root = self.ranks[source]
        self._finish("broadcast", lambda: dist.broadcast(tensor, root, self._handle, async_op=True), tensor)

    def _nothing(self, what: str, tensor: torch.Tensor) -> None:
        """A collective that moves nothing."""
        return self._ready(what) if self._transport.queues(tensor) else self._barrier()

    def _barrier(self) -> None:
        token = torch.zeros(1, dtype=torch.int32)
        self._finish("barrier", lambda: dist.all_reduce(token, group=self._handle, async_op=True), token)

    def _split(self, groups: Sequence[Sequence[int]], name: str) -> Group:
        self._ready("split")
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
        part = ProcessGroup(
            label, handle, rank, ranks, self.deadline, self._progress, self._transport, self._watch, self._world
        )
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
        try:
            self._transport.streams.record().synchronize()
        finally:  # what the device says of a queue that was ended is not the reason
            self.check(diagnosis.longest())


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
    store = join_store(rank, world_size, address, seconds, served)
    with ExitStack() as undo:  # what was begun, if the world is not formed in the end
        if not dist.is_initialized():
            undo.callback(_forget)
        try:
            dist.init_process_group(
                transport.backends, store=store, rank=rank, world_size=world_size, timeout=_patience(seconds)
            )
        except RuntimeError as error:
            raise CommunicatorError("world", f"cannot be formed: {first_line(error)}") from error
        progress = heartbeat.Heartbeat(store, rank, heartbeat.RANK_0 if served is None else "the launcher")
        undo.callback(progress.stop)
        watch = Watch(transport.select) if isinstance(transport, DeviceTransport) else None
        world = ProcessGroup("world", dist.group.WORLD, rank, range(world_size), seconds, progress, transport, watch)
        undo.callback(world.close)
        world.first()
        undo.pop_all()
    return world


def _forget() -> None:
    """Let torch have no default group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _patience(seconds: float) -> timedelta:
    """Time-out of the transport: longer than the deadline, so that our own message comes first."""
    return timedelta(seconds=2 * seconds + 10)
