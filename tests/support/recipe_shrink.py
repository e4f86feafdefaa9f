"""Makes a failing case smaller: plain data loses parts as long as it goes on to fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

Path = tuple[Any, ...]


def shrink(value: Any, fails: Callable[[Any], bool], *, seconds: float = 20.0) -> Any:
    """The smallest value found that still fails.

    Args:
        value: plain data that fails.
        fails: whether a value fails; one that raises does not.
        seconds: when to be content.
    """
    end = time.monotonic() + seconds

    def still(candidate: Any) -> bool:
        try:
            return fails(candidate)
        except Exception:
            return False

    improved = True
    while improved and time.monotonic() < end:
        improved = False
        for path in _paths(value):
            if time.monotonic() > end:
                break
            for smaller in _smaller(_get(value, path)):
                candidate = _replaced(value, path, smaller)
                if still(candidate):
                    value, improved = candidate, True
                    break
            if improved:
                break
    return value


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Places in a value, outer ones first."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, (*path, key))


def _get(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def _replaced(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


def _smaller(value: Any) -> Iterator[Any]:
    """Values with less in them, the boldest first."""
    if isinstance(value, (list, str)):
        size = len(value)
        while size:
            for start in range(0, len(value), size):
                yield value[:start] + value[start + size :]
            size //= 2
    elif isinstance(value, dict):
        for key in value:
            yield {name: item for name, item in value.items() if name != key}
    elif isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, (int, float)) and value not in (0, 1):
        yield from (0, 1)
