"""Objects of the original's shape around objects of ours."""

from __future__ import annotations

import unicodedata
from typing import Any, Generic, TypeVar

PlainT = TypeVar("PlainT")
SelfT = TypeVar("SelfT", bound="Wrapped[Any]")


class Wrapped(Generic[PlainT]):
    """An object of the plain API, `_plain`, seen as the original shows it.

    Classes without a constructor cannot be called, as in the original: their objects come from elsewhere.
    """

    __slots__ = ("_plain",)

    _plain: PlainT

    def __init__(self) -> None:
        raise TypeError(f"cannot create '{type(self).__name__}' instances")

    @classmethod
    def _of(cls: type[SelfT], plain: Any) -> SelfT:
        """The object that shows `plain`."""
        made = cls.__new__(cls)
        made._plain = plain
        return made


_ESCAPES = {"\0": "\\0", "\t": "\\t", "\n": "\\n", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def debug(value: str | None) -> str:
    """How the original shows a text, or its absence."""
    return "None" if value is None else '"' + "".join(map(_shown, value)) + '"'


def debug_optional(value: str | None) -> str:
    """As `debug`, of a text that may be absent."""
    return "None" if value is None else f"Some({debug(value)})"


def _shown(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable() and unicodedata.category(character) not in ("Mn", "Me"):
        return character
    return f"\\u{{{ord(character):x}}}"
