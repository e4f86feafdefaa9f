"""Checks of arguments, with the built-in exceptions that the original raises for them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import TypeVar

_T = TypeVar("_T")

U32 = 1 << 32
U64 = 1 << 64


def refused(name: str, value: object, kind: str) -> TypeError:
    return TypeError(f"argument '{name}': '{type(value).__name__}' object cannot be cast as '{kind}'")


def text(name: str, value: object) -> str:
    """A text.

    Raises:
        TypeError: it is none.
        UnicodeEncodeError: it has a lone surrogate.
    """
    if not isinstance(value, str):
        raise refused(name, value, "str")
    if not value.isascii():
        value.encode()
    return value


def optional_text(name: str, value: object) -> str | None:
    return None if value is None else text(name, value)


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise refused(name, value, "bool")
    return value


def instance(name: str, value: object, kind: type[_T]) -> _T:
    if not isinstance(value, kind):
        raise refused(name, value, kind.__name__)
    return value


def optional(name: str, value: object, kind: type[_T]) -> _T | None:
    return None if value is None else instance(name, value, kind)


def unsigned(name: str, value: object, bound: int) -> int:
    """An integer in [0, bound).

    Raises:
        TypeError: no integer.
        OverflowError: out of range.
    """
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        message = f"argument '{name}': '{type(value).__name__}' object cannot be interpreted as an integer"
        raise TypeError(message) from None
    if number < 0:
        raise OverflowError("can't convert negative int to unsigned")
    if number >= bound:
        raise OverflowError("out of range integral type conversion attempted")
    return number


def sequence(name: str, value: object) -> Sequence[object]:
    """A sequence that is no text."""
    if isinstance(value, str):
        raise TypeError(f"argument '{name}': Can't extract `str` to `Vec`")
    if not isinstance(value, Sequence):
        raise refused(name, value, "Sequence")
    return value


def instances(name: str, value: object, kind: type[_T]) -> list[_T]:
    return [instance(name, item, kind) for item in sequence(name, value)]


def octets(name: str, value: object) -> bytes:
    """Bytes, or a sequence of their numbers."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    return bytes(unsigned(name, item, 256) for item in sequence(name, value))
