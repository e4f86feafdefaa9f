"""Typed reading of JSON bodies.

A reader is a function `(value, reading) -> T` that returns what a JSON value stands for, or raises `InvalidBodyError`.
Readers of objects are put together from readers of their fields, so that a protocol declares the shape of its body
once:

    USER = record(UserBody, content=required(text_or(CONTENT_PARTS)), name=optional(string))
    MESSAGE = tagged("role", {"user": USER, "system": SYSTEM})

Fields that are not declared are ignored. Words and types are taken as they are: `1.0` is no integer, `"1"` no number.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from ..errors import RecipeError
from ..json_text import JsonValue

T = TypeVar("T")
Reader: TypeAlias = Callable[[JsonValue, "Reading"], T]


@dataclass(frozen=True, slots=True)
class Reading:
    """How bodies are read. `positional`: `Quirks.positional_bodies`."""

    positional: bool = False


class ShapeError(RecipeError, ValueError):
    """A value of the wrong shape, on its way up; `read_body` turns it into an `InvalidBodyError` with the path."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.path: list[str | int] = []

    def at(self, step: str | int) -> ShapeError:
        """The same error, seen from one level further out."""
        self.path.append(step)
        return self

    def __str__(self) -> str:
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in reversed(self.path))
        return f"{path.removeprefix('.')}: {self.message}" if path else self.message


def _unexpected(value: JsonValue, expected: str) -> ShapeError:
    kinds: dict[type, str] = {list: "an array", dict: "an object", type(None): "null"}
    got = kinds.get(type(value))
    if got is None:
        text = repr(value) if not isinstance(value, bool) else str(value).lower()
        got = text if len(text) <= 60 else text[:57] + "..."
    return ShapeError(f"expected {expected}, got {got}")


# Values


def string(value: JsonValue, reading: Reading) -> str:
    if isinstance(value, str):
        return value
    raise _unexpected(value, "a string")


def boolean(value: JsonValue, reading: Reading) -> bool:
    if isinstance(value, bool):
        return value
    raise _unexpected(value, "a boolean")


def anything(value: JsonValue, reading: Reading) -> JsonValue:
    return value


def unsigned(bits: int) -> Reader[int]:
    """Integers of [0, 2^bits)."""

    def read(value: JsonValue, reading: Reading) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << bits:
            return value
        raise _unexpected(value, f"an integer in [0, 2^{bits})")

    return read


def signed(bits: int) -> Reader[int]:
    """Integers of [-2^(bits-1), 2^(bits-1))."""
    bound = 1 << bits - 1

    def read(value: JsonValue, reading: Reading) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and -bound <= value < bound:
            return value
        raise _unexpected(value, f"an integer in [-2^{bits - 1}, 2^{bits - 1})")

    return read


def number(value: JsonValue, reading: Reading) -> int | float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise _unexpected(value, "a number")


def single(value: JsonValue, reading: Reading) -> float:
    """A number, rounded to 32 bits; infinity when it is too large for them."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            rounded: float = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            rounded = math.copysign(math.inf, value)
        return rounded
    raise _unexpected(value, "a number")


def word(words: Mapping[str, T]) -> Reader[T]:
    """One of some words, each standing for a value."""

    def read(value: JsonValue, reading: Reading) -> T:
        if reading.positional and isinstance(value, dict) and len(value) == 1 and None in value.values():
            value = next(iter(value))
        if isinstance(value, str) and value in words:
            return words[value]
        raise _unexpected(value, "one of " + ", ".join(f'"{name}"' for name in words))

    return read


def choice(*names: str) -> Reader[str]:
    """One of some words, as it is."""
    return word({name: name for name in names})


# Containers


def array(item: Reader[T]) -> Reader[list[T]]:
    def read(value: JsonValue, reading: Reading) -> list[T]:
        if not isinstance(value, list):
            raise _unexpected(value, "an array")
        result: list[T] = []
        try:
            for element in value:
                result.append(item(element, reading))
        except ShapeError as error:
            raise error.at(len(result)) from None
        return result

    return read


def mapping(item: Reader[T]) -> Reader[dict[str, T]]:
    """An object whose keys are free."""

    def read(value: JsonValue, reading: Reading) -> dict[str, T]:
        if not isinstance(value, dict):
            raise _unexpected(value, "an object")
        result: dict[str, T] = {}
        for name, element in value.items():
            try:
                result[name] = item(element, reading)
            except ShapeError as error:
                raise error.at(name) from None
        return result

    return read


def nullable(inner: Reader[T]) -> Reader[T | None]:
    def read(value: JsonValue, reading: Reading) -> T | None:
        return None if value is None else inner(value, reading)

    return read


def string_or(other: Reader[T], kind: type[list[Any]] | type[dict[str, Any]] = list) -> Reader[str | T]:
    """A string, or, when the value is of `kind`, what `other` reads."""
    expected = "a string or " + ("an array" if kind is list else "an object")

    def read(value: JsonValue, reading: Reading) -> str | T:
        if isinstance(value, str):
            return value
        if isinstance(value, kind):
            return other(value, reading)
        raise _unexpected(value, expected)

    return read


def word_or(words: Mapping[str, T], other: Reader[T]) -> Reader[T]:
    """One of some words, each standing for a value, or an object that `other` reads."""
    read_word = word(words)

    def read(value: JsonValue, reading: Reading) -> T:
        return other(value, reading) if isinstance(value, dict) else read_word(value, reading)

    return read


class _Missing:
    """Stands for no default."""


_MISSING: Final = _Missing()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object: how its value is read, and what it is when absent."""

    read: Reader[Any]
    default: Any = _MISSING
    null_is_default: bool = False


def required(read: Reader[Any]) -> Field:
    return Field(read)


def optional(read: Reader[Any], default: Any = None) -> Field:
    """Absent and null both mean `default`."""
    return Field(read, default, null_is_default=True)


def record(make: Callable[..., T], /, **fields: Field) -> Reader[T]:
    """An object, given to `make` by keyword."""
    table = [(name, field.read, field.default, field.null_is_default) for name, field in fields.items()]

    def read(value: JsonValue, reading: Reading) -> T:
        if not isinstance(value, dict):
            value = _from_array(value, reading, list(fields))
        given: dict[str, Any] = value
        values: dict[str, Any] = {}
        name = ""
        try:
            for name, read_field, default, null_is_default in table:
                found = given.get(name, _MISSING)
                if found is _MISSING:
                    if default is _MISSING:
                        raise ShapeError("required field is missing")
                    values[name] = default
                elif found is None and null_is_default:
                    values[name] = default
                else:
                    values[name] = read_field(found, reading)
        except ShapeError as error:
            raise error.at(name) from None
        return make(**values)

    return read


def _from_array(value: JsonValue, reading: Reading, names: list[str]) -> dict[str, JsonValue]:
    if not isinstance(value, list) or not reading.positional:
        raise _unexpected(value, "an object")
    if len(value) != len(names):
        raise ShapeError(f"expected an object or an array of {len(names)} items, got one of {len(value)}")
    return dict(zip(names, value))


def tagged(
    tag: str, readers: Mapping[str, Reader[T]], other: Reader[T] | None = None, numbered: Sequence[str] = ()
) -> Reader[T]:
    """An object whose field `tag` says which of some kinds it is; `other` reads the kinds that are not listed.

    Args:
        numbered: kinds that a number may stand for where positions do; further numbers are kinds that are not listed.
    """

    def read(value: JsonValue, reading: Reading) -> T:
        if isinstance(value, dict):
            if tag not in value:
                raise ShapeError(f'required field "{tag}" is missing')
            kind = value[tag]
        elif reading.positional and isinstance(value, list) and value:
            kind, value = value[0], value[1:]
        else:
            raise _unexpected(value, "an object")
        if reading.positional and numbered and type(kind) is int and 0 <= kind < 1 << 64:
            kind = numbered[kind] if kind < len(numbered) else ""
        reader = readers.get(kind, other) if isinstance(kind, str) else None
        if reader is None:
            raise _unexpected(kind, "one of " + ", ".join(f'"{name}"' for name in readers)).at(tag)
        return reader(value, reading)

    return read
