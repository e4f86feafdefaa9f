"""Typed access to one JSON object of `config.json`.

Every accessor names the key (dotted, with the section in front), the value found and the rule it breaks, and remembers
which keys were asked for, so that the rest can be listed as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..hal.errors import ConfigError

INT32_MAX = 2**31 - 1
FP32_MAX, FP32_TINY = (2 - 2**-23) * 2.0**127, 2.0**-126
"""Largest fp32 number, and smallest normal one."""


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT: Any = _Absent()


class Section:
    """One object of the file.

    Args:
        values: the decoded JSON object.
        prefix: dotted path of the object, "" for the top level; prepended to every key in errors.
    """

    def __init__(self, values: Any, prefix: str = "") -> None:
        self.prefix = prefix
        if not isinstance(values, Mapping):
            raise ConfigError(prefix or "config.json", values, "must be a JSON object")
        self._values = values
        self._seen: set[str] = set()

    def key(self, name: str) -> str:
        """Dotted name of a key."""
        return f"{self.prefix}.{name}" if self.prefix else name

    def fail(self, name: str, value: Any, rule: str) -> ConfigError:
        return ConfigError(self.key(name), value, rule)

    def has(self, name: str) -> bool:
        return name in self._values

    def ignore(self, *names: str) -> None:
        """Marks keys as known although nothing reads them."""
        self._seen.update(names)

    def unknown(self) -> tuple[str, ...]:
        """Dotted names of the keys that nothing asked for."""
        return tuple(self.key(name) for name in self._values if name not in self._seen)

    def raw(self, name: str, default: Any = ABSENT) -> Any:
        self._seen.add(name)
        value = self._values.get(name, default)
        if value is ABSENT:
            raise self.fail(name, ABSENT, "is required")
        return value

    def section(self, name: str) -> Section:
        return Section(self.raw(name), self.key(name))

    def integer(
        self,
        name: str,
        default: Any = ABSENT,
        *,
        low: int | None = None,
        high: int | None = None,
        multiple: int = 1,
    ) -> int:
        """An integer in [low, high] (both included) that is a multiple of `multiple`.

        Args:
            low: None = open.
            high: None = the largest int32, which sizes, counts and ids must fit in.
        """
        value = self.raw(name, default)
        if not _is_int(value):
            raise self.fail(name, value, "must be an integer")
        self._bounds(name, value, low, INT32_MAX if high is None else high)
        if value % multiple:
            raise self.fail(name, value, f"must be a multiple of {multiple}")
        return int(value)

    def number(
        self, name: str, default: Any = ABSENT, *, low: float | None = None, above: float | None = None
    ) -> float:
        """A number that fp32, in which it is used, can hold; >= low and > above where given."""
        value = self.raw(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= FP32_MAX:
            raise self.fail(name, value, "must be a finite number of fp32")
        if value and abs(value) < FP32_TINY:
            raise self.fail(name, value, f"must be 0 or at least {FP32_TINY:.3g} in size: fp32 holds no smaller one")
        self._bounds(name, value, low, None)
        if above is not None and not value > above:
            raise self.fail(name, value, f"must be > {above}")
        return float(value)

    def boolean(self, name: str, default: Any = ABSENT) -> bool:
        value = self.raw(name, default)
        if not isinstance(value, bool):
            raise self.fail(name, value, "must be true or false")
        return value

    def exactly(self, name: str, expected: Any, default: Any = ABSENT) -> Any:
        """A key with one legal value. `True` is not taken for 1, nor 1 for 1.0's sake refused."""
        value = self.raw(name, default)
        same_kind = isinstance(value, bool) == isinstance(expected, bool)
        if not (same_kind and value == expected):
            raise self.fail(name, value, f"must be {_json(expected)}")
        return expected

    def choice(self, name: str, allowed: Sequence[str], default: Any = ABSENT) -> str:
        value = self.raw(name, default)
        if value not in allowed:
            raise self.fail(name, value, "must be one of " + ", ".join(map(_json, allowed)))
        return str(value)

    def integers(
        self,
        name: str,
        default: Any = ABSENT,
        *,
        low: int = 0,
        high: int | None = None,
        ascending: bool = False,
        length: int | None = None,
    ) -> tuple[int, ...]:
        """A list of integers in [low, high]; strictly ascending or of a fixed length where asked."""
        value = self.raw(name, default)
        if not isinstance(value, list | tuple) or not all(_is_int(v) for v in value):
            raise self.fail(name, value, "must be a list of integers")
        if length is not None and len(value) != length:
            raise self.fail(name, value, f"must have {length} entries, has {len(value)}")
        for item in value:
            if item < low or (high is not None and item > high):
                raise self.fail(name, value, f"entry {item} must lie in {low}..{'' if high is None else high}")
        if ascending and any(b <= a for a, b in zip(value, value[1:], strict=False)):
            raise self.fail(name, value, "must be strictly ascending")
        return tuple(value)

    def _bounds(self, name: str, value: float, low: float | None, high: float | None) -> None:
        if low is not None and value < low:
            raise self.fail(name, value, f"must be >= {low}")
        if high is not None and value > high:
            raise self.fail(name, value, f"must be <= {high}")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _json(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)
