"""Communicators: groups of processes and what they can do together.

A group of one process needs no set-up: `single_process()`. Those of several are formed in `hal.world`, over what the
backend provides (`hal.transport`); callers see no difference. Zero rows are legal in every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from . import env
from .errors import DeepInferError, InvalidArgumentError
from .transport import Transport

Reduction = Literal["sum", "max", "min"]


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

    Every member calls the same collectives in the same order, from one thread at a time. Tensors lie in host memory or
    on the device of the group. Of the latter, a collective is queued on the current stream like a kernel: the host goes
    on, and `check`, called once results are there, says whether one of them failed.

    Attributes:
        name: as errors show it.
        rank: place of this process in the group.
        world_size: number of members.
        ranks: ranks of the members in the world.
        deadline: seconds a collective may take.
    """

    # Sums of other dtypes depend on the library; the contract's own sums are gathers and an ordered addition.
    reduced = Transport.reduced

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
            tensor: any shape, the same on every rank; int32, int64, float32 or float64 (the last not over HCCL),
                contiguous.
        """
        if tensor.dtype not in self.reduced:
            allowed = ", ".join(str(d).removeprefix("torch.") for d in self.reduced)
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
        """Gather [n_r, ...] with a row count per rank, zero included; one tensor per rank, in rank order.

        The host needs the counts: it waits for them, on a device for all that is queued before.

        Raises:
            CommunicatorError: the gather of the counts failed.
        """
        self._check(tensor)
        mine = torch.tensor([len(tensor)], dtype=torch.int64, device=tensor.device)
        counts = [int(n) for n in self.all_gather(mine).flatten().tolist()]
        self.check()  # counts that did not come may be any numbers
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
        """Return once every member has called. Does not wait for what devices have queued."""
        self._barrier()

    def check(self, patience: float = 0.0) -> None:
        """Raise what a collective that a device had queued has come to. Call it once the results are there, before they
        are used. A queued collective that fails, fails all groups of the world.

        It takes some seconds to find out who is missing; until then the error does not name them. Other ranks may need
        this process to find out the same: call `close` before it ends.

        Args:
            patience: seconds to wait, after a failure, until it is known who is missing; with 0 it never waits.

        Raises:
            CommunicatorError: one failed or missed its deadline; names the missing ranks.
        """

    def abort(self, reason: str) -> None:
        """End what devices have queued for any group of the world, such as a captured graph whose replay takes too
        long; from now on all of them raise CommunicatorError. From any thread. The other ranks are not told.

        Args:
            reason: for the error.
        """

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


def single_process(name: str = "world", deadline: float | None = None) -> Group:
    """The group of one process. Needs no set-up and no network.

    Args:
        deadline: as the group shows it, seconds; DEEPINFER_GLOO_TIMEOUT by default.
    """
    return Group(name, 0, (0,), float(env.get("DEEPINFER_GLOO_TIMEOUT")) if deadline is None else deadline)


def _row_bytes(tensor: torch.Tensor) -> int:
    count = tensor.element_size()
    for size in tensor.shape[1:]:
        count *= size
    return count


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor as flat bytes: data movement works for every dtype, FP8 among them."""
    return tensor.view(-1).view(torch.uint8)
