"""Graph capture: record the device work of a step once, and replay it.

A backend that can capture returns a `Graphs` for a device; one that cannot returns `GraphsUnavailable`, which says why.
Running without graphs is legal everywhere, so callers write

    graphs = backend.graphs(device)
    if isinstance(graphs, GraphsUnavailable): ...run eagerly, report graphs.detail...

The body of a capture reads its inputs from, and leaves its outputs in, tensors that stay where they are: a replay
repeats the launches, not the Python. The reference kernels and other fallbacks are never captured.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .device import Device
from .errors import DeepInferError

Body = Callable[[], Any]


class NoGraphReason(Enum):
    """Why a device has no graphs."""

    NO_DEVICE_QUEUE = "the device runs work as it is called; there is nothing to record"
    FALLBACK_KERNELS = "the backend runs on fallback kernels, which are never captured"
    NOT_BUILT = "the backend has no graph capture yet"
    SOFTWARE = "the installed driver or runtime cannot capture"
    TURNED_OFF = "the user turned graphs off"


@dataclass(frozen=True)
class GraphsUnavailable:
    """Says that a device has no graphs. Not an error: steps run eagerly.

    Attributes:
        device: which device.
        reason: the kind of reason.
        detail: the reason in words, with names and versions where they matter.
    """

    device: Device
    reason: NoGraphReason
    detail: str = ""

    def __str__(self) -> str:
        return f"no graphs on {self.device}: {self.detail or self.reason.value}"


class GraphError(DeepInferError):
    """A capture failed, or a graph was used after its release."""


class Graph(ABC):
    """One captured body. `result` is what the body returned: the tensors a replay fills."""

    def __init__(self, result: Any) -> None:
        self.result = result
        self._released = False
        _live.add(self)

    def replay(self) -> Any:
        """Repeat the captured work on the current stream; returns `result`. Does not wait for the device.

        Raises:
            GraphError: the graph was released.
        """
        if self._released:
            raise GraphError("a released graph cannot be replayed")
        self._replay()
        return self.result

    def release(self) -> None:
        """Free the graph. Idempotent. Must come before the communicators it uses are closed."""
        if not self._released:
            self._released = True
            _live.discard(self)
            self._release()
            self.result = None

    @abstractmethod
    def _replay(self) -> None: ...

    @abstractmethod
    def _release(self) -> None: ...


_live: weakref.WeakSet[Graph] = weakref.WeakSet()


def release_all() -> int:
    """Release every live graph; the communicators call this before they close. Returns how many there were."""
    graphs = list(_live)
    for graph in graphs:
        graph.release()
    return len(graphs)


class Graphs(ABC):
    """Captures graphs on one device. All graphs of one object share a memory pool: capture the largest first."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._capturing = False

    def capture(self, body: Body, *, warmup: int = 1) -> Graph:
        """Run `body` `warmup` times, then once more while recording.

        Args:
            body: launches work on the current stream and returns the tensors it leaves results in. It must not wait
                for the device, and must launch the same work each time.
            warmup: runs before the capture, which compile kernels and fill caches. At least 1, as a compilation
                inside a capture breaks it.

        Raises:
            GraphError: a capture is in progress, `warmup` is below 1, or the device refused to record.
        """
        if self._capturing:
            raise GraphError("captures cannot be nested")
        if warmup < 1:
            raise GraphError(f"a capture needs at least one warm-up run, not {warmup}")
        self._capturing = True
        try:
            for _ in range(warmup):
                body()
            return self._capture(body)
        finally:
            self._capturing = False

    @abstractmethod
    def _capture(self, body: Body) -> Graph: ...


class EagerGraphs(Graphs):
    """Graphs that replay by calling the body again and copying into the captured results.

    For tests of code that captures and replays, on any device. No backend offers it: it saves nothing.
    """

    def _capture(self, body: Body) -> Graph:
        return _EagerGraph(body, body())


class _EagerGraph(Graph):
    def __init__(self, body: Body, result: Any) -> None:
        super().__init__(result)
        self._body = body

    def _replay(self) -> None:
        _copy_into(self.result, self._body())

    def _release(self) -> None:
        self._body = lambda: None


def _copy_into(kept: Any, fresh: Any) -> None:
    """Copy fresh results into the tensors of the capture, as a replayed launch would have written them."""
    if isinstance(kept, (tuple, list)):
        for old, new in zip(kept, fresh, strict=True):
            _copy_into(old, new)
    elif kept is not None and kept is not fresh:
        kept.copy_(fresh)
