"""What an environment variable is, and the parsers of its text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .errors import InvalidArgumentError

PREFIX = "DEEPINFER_"
FALSE_TEXTS = ("0", "", "false", "False")

Parse = Callable[[str], Any]


@dataclass(frozen=True)
class Kind:
    """A type of value: how its text is parsed.

    Attributes:
        name: 'bool', 'int', 'float', 'str', 'path', 'choice', 'floats' or 'token ranges'.
        allowed: what is accepted, in words; part of every error message.
        parse: text to value; raises ValueError on anything else.
    """

    name: str
    allowed: str
    parse: Parse


@dataclass(frozen=True)
class Variable:
    """One environment variable.

    Attributes:
        name: full name, with the prefix.
        kind: type and parser.
        default: value where the variable is not set. None where another part decides; `default_text` then says which.
        doc: meaning, with units.
        brought_by: None when the variable acts today; else the part of the project that will make it act.
            Setting such a variable is refused, unless to a value listed in `accepts`.
        accepts: values of a planned variable that describe what happens today anyway.
        upstream: whether the upstream package has the variable too.
        default_text: the default in words where `repr(default)` does not say it.
    """

    name: str
    kind: Kind
    default: Any
    doc: str
    brought_by: str | None = None
    accepts: tuple[Any, ...] = ()
    upstream: bool = True
    default_text: str | None = None

    @property
    def status(self) -> Literal["used", "planned"]:
        """'used' when the variable acts, 'planned' when setting it is refused."""
        return "used" if self.brought_by is None else "planned"

    def parse(self, text: str) -> Any:
        """The value of `text`.

        Raises:
            InvalidArgumentError: names the variable, the text and what is allowed.
        """
        try:
            return self.kind.parse(text)
        except ValueError as error:
            raise InvalidArgumentError(self.name, text, self.kind.allowed) from error

    def describe_default(self) -> str:
        """The default as documentation shows it."""
        if self.default_text is not None:
            return self.default_text
        if self.default is None or self.default == ():
            return "unset"
        if isinstance(self.default, bool):
            return "1" if self.default else "0"
        return str(self.default)


def boolean() -> Kind:
    """False for '0', the empty text, 'false' and 'False'; true for everything else."""
    return Kind("bool", "any text; 0, empty, false, False mean off", lambda text: text not in FALSE_TEXTS)


def integer(low: int | None = None, high: int | None = None) -> Kind:
    """Decimal digits with an optional sign, within [low, high]."""
    allowed = f"an integer{_bounds(low, high)}"

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
            raise ValueError(text)
        return int(_within(int(text), low, high))

    return Kind("int", allowed, parse)


def number(low: float | None = None, high: float | None = None, *, above: float | None = None) -> Kind:
    """A finite decimal number within [low, high], or greater than `above`."""
    allowed = f"a finite number greater than {above:g}" if above is not None else f"a finite number{_bounds(low, high)}"

    def parse(text: str) -> float:
        value = float(text)
        if not math.isfinite(value) or (above is not None and value <= above):
            raise ValueError(text)
        return _within(value, low, high)

    return Kind("float", allowed, parse)


def string() -> Kind:
    """Any text, surrounding blanks removed; empty means unset (None)."""
    return Kind("str", "any text", lambda text: text.strip() or None)


def path() -> Kind:
    """A file system path, `~` expanded; empty means unset (None)."""

    def parse(text: str) -> Path | None:
        try:
            return Path(text).expanduser() if text else None
        except RuntimeError as error:  # `~name` of nobody, or `~` of somebody without a home
            raise ValueError(text) from error

    return Kind("path", "a path; a leading ~ or ~user must have a home directory", parse)


def choice(*names: str) -> Kind:
    """One of a few words."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(text)
        return text

    return Kind("choice", f"one of {', '.join(names)}", parse)


def floats(low: float) -> Kind:
    """Comma-separated finite numbers, each at least `low`."""
    one = number(low)

    def parse(text: str) -> tuple[float, ...]:
        return tuple(one.parse(part) for part in text.split(","))

    return Kind("floats", f"one number, or one per draft position, comma-separated, each at least {low:g}", parse)


def token_ranges() -> Kind:
    """`0..3,7,10..12`: ids and inclusive ranges, strictly increasing. Parsed to a tuple of `range`; empty is none.

    Ranges stay ranges, so that a wrong bound of many digits costs no memory before it is refused.
    """

    def parse(text: str) -> tuple[range, ...]:
        found: list[range] = []
        for part in text.split(",") if text.strip() else ():
            match = re.fullmatch(r"([0-9]+)(?:\.\.([0-9]+))?", part.strip())
            if match is None:
                raise ValueError(part)
            first = int(match[1])
            last = first if match[2] is None else int(match[2])
            if last < first or (found and first < found[-1].stop):
                raise ValueError(part)
            found.append(range(first, last + 1))
        return tuple(found)

    return Kind("token ranges", "token ids and inclusive ranges such as 0..3,7,10..12, strictly increasing", parse)


def _within(value: float, low: float | None, high: float | None) -> float:
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(value)
    return value


def _bounds(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}" if isinstance(low, float) else f" from {low} to {high}"
    if low is not None:
        return f", at least {low}"
    return "" if high is None else f", at most {high}"
