"""A dispatch guard: every torch computation of a forward must happen inside an op."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

ROOT = Path(__file__).parents[2]
INSIDE = tuple(str(top / part) for top in (ROOT, ROOT / "src/deepinfer") for part in ("ops", "backends"))

# Views, allocation and copies between places compute nothing.
FREE = {
    "alias", "as_strided", "detach", "empty", "empty_like", "empty_strided", "expand", "lift_fresh", "new_empty",
    "permute", "reshape", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind",
    "unsqueeze", "view", "_unsafe_view", "zeros", "new_zeros",
}  # fmt: skip


class Inline:
    """Stands in for a model's worker threads, which a guard does not see: runs each job where it is submitted."""

    def submit(self, call: Any, *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(call(*args))
        return done


class ComputeOutsideOps(AssertionError):
    """A torch computation was called from outside ops and backends."""


class Guard(TorchDispatchMode):
    """Raises on the first torch computation whose call stack holds no frame of ops or backends."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if called_from_an_op():
            self.inside += 1
        elif not free(func, args, kwargs or {}):
            raise ComputeOutsideOps(f"{func} was called outside ops and backends")
        return func(*args, **(kwargs or {}))


def free(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call moves or names data without computing."""
    name = func.name().partition("::")[2].partition(".")[0]
    if name in ("_to_copy", "copy_"):  # a change of place, not of dtype
        source = args[1] if name == "copy_" else args[0]
        target = args[0].dtype if name == "copy_" else kwargs.get("dtype") or source.dtype
        return source.dtype == target
    return name in FREE


def called_from_an_op() -> bool:
    """Whether any caller lies in ops or backends."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith(INSIDE):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


__all__ = ["ComputeOutsideOps", "Guard", "Inline"]
