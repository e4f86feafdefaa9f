"""What torch has of a device: streams, events, graphs, as torch.cuda and torch.npu name them."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


class FakeLibrary:
    """torch.cuda or torch.npu: what is called is in `log`; `fault` is raised where the host waits."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.fault: Exception | None = None
        self.mode = "warn"
        self.pools = 0
        self.Stream = lambda device, priority: SimpleNamespace(priority=priority, synchronize=self.wait)
        self.Event = lambda: SimpleNamespace(record=self.log.append, query=self.wait, synchronize=self.wait)
        self.NPUGraph = self.CUDAGraph = lambda: SimpleNamespace(
            replay=self.wait, reset=lambda: self.log.append("reset")
        )

    def wait(self) -> bool:
        if self.fault is not None:
            raise self.fault
        self.log.append("wait")
        return True

    def synchronize(self, device: Any) -> None:
        self.wait()

    def current_stream(self, device: Any) -> Any:
        return SimpleNamespace(wait_event=lambda event: self.log.append("ordered"))

    @contextmanager
    def stream(self, stream: Any) -> Any:
        self.log.append(("enter", stream.priority))
        yield
        self.log.append("leave")

    @contextmanager
    def device(self, device: Any) -> Any:
        yield

    @contextmanager
    def graph(self, graph: Any, pool: Any = None, capture_error_mode: str = "global") -> Any:
        self.log.append(("capture", pool, capture_error_mode))
        yield

    def graph_pool_handle(self) -> int:
        self.pools += 1
        return self.pools

    def set_sync_debug_mode(self, mode: str) -> None:
        self.mode = mode

    def get_sync_debug_mode(self) -> str:
        return self.mode
