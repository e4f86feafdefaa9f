"""Escapes and sets of regular expressions, as the two readers of a pattern have them.

The original reads a pattern twice: strictly up to its first lookaround or backreference, and then as its engine does,
which knows more escapes. `Dialect` is what sets the two apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .regex_names import property_size
from .regex_sizes import ranges_size


class NotARegex(ValueError):
    """A spelling that the dialect does not have."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What may follow a backslash.

    Args:
        outside, inside: letters, outside of a set and in one.
        only_outside: other characters that are escapes only outside.
        controls: `\\c` and a letter is a control character.
        beyond_ascii: any character beyond ASCII may be escaped.
        class_sizes: bytes that the engine keeps for each class.
    """

    outside: frozenset[str]
    inside: frozenset[str]
    only_outside: frozenset[str]
    controls: bool
    beyond_ascii: bool
    class_sizes: dict[str, int]


_OTHER_SIZES = {"s": 744, "S": 2048}
STRICT = Dialect(
    frozenset("ABDSWbdfnrstvwz"),
    frozenset("DSWadfnrstvw"),
    frozenset("<>"),
    True,
    False,
    {"d": 72, "D": 960, "w": 96, "W": 1108, **_OTHER_SIZES},
)
ENGINE = Dialect(
    frozenset("ABDGHKNORSWZabdefhnrstvwz"),
    frozenset("ABDGHKRSWabdefhknrstvwz"),
    frozenset(),
    False,
    True,
    {"d": 5152, "D": 12672, "w": 49856, "W": 46528, "R": 1000, **_OTHER_SIZES},
)
_CLASSES = frozenset("dDsSwW")
_CONTROLS = {"a": 7, "b": 8, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_HEX = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,8})\})|u(?:([0-9A-Fa-f]{4})|\{([0-9A-Fa-f]{1,8})\})"
                  r"|U(?:([0-9A-Fa-f]{8})|\{([0-9A-Fa-f]{1,8})\})")  # fmt: skip
_BOUNDARY = re.compile(r"\{(?:start|end|start-half|end-half)\}")
MAX_CODE = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Escape:
    """An escape that was read.

    Args:
        end: where it ends in the pattern.
        code: the character that it stands for; None: a class of characters, or a place.
        size: bytes that the engine keeps for it.
        letter: the character behind the backslash.
    """

    end: int
    code: int | None
    size: int
    letter: str


def character_size(code: int) -> int:
    """Bytes that the engine keeps for a character: 32 for each byte of UTF-8."""
    return 32 if code < 0x80 else 64 if code < 0x800 else 96 if code < 0x10000 else 128


def read_escape(pattern: str, start: int, dialect: Dialect, in_set: bool) -> Escape:
    """The escape at `start`, where the backslash stands; digits, and names of groups, are the caller's.

    Raises:
        NotARegex: the dialect has no such escape.
    """
    place = start + 1
    if place >= len(pattern):
        raise NotARegex("ends in a backslash")
    letter = pattern[place]
    if letter in "xuU":
        return _hexadecimal(pattern, place)
    if letter in "pP":
        return _property(pattern, place)
    if letter == "c" and dialect.controls:
        control = pattern[place + 1 : place + 2]
        if not (control.isascii() and control.isalpha()):
            raise NotARegex("\\c without its letter")
        return Escape(place + 2, ord(control) % 32, 32, letter)
    letters = dialect.inside if in_set else dialect.outside
    if letter.isascii() and letter.isalnum() and letter not in letters:
        raise NotARegex(f"\\{letter}")
    if not letter.isascii() and not dialect.beyond_ascii:
        raise NotARegex(f"\\{letter}")
    if in_set and letter in dialect.only_outside:
        raise NotARegex(f"\\{letter} in a set")
    end = place + 1
    if letter in _CLASSES or (letter == "R" and not in_set):
        return Escape(end, None, dialect.class_sizes[letter], letter)
    if letter in "bB" and not in_set:
        return Escape(_boundary_end(pattern, end, letter == "b"), None, 0, letter)
    if letter in _CONTROLS:
        return Escape(end, _CONTROLS[letter], 32, letter)
    if not in_set and (letter in dialect.only_outside or letter in "ABGKNORZhHz<>"):
        return Escape(end, None, 64, letter)
    return Escape(end, ord(letter), character_size(ord(letter)), letter)


def _hexadecimal(pattern: str, place: int) -> Escape:
    match = _HEX.match(pattern, place)
    if match is None:
        raise NotARegex(f"\\{pattern[place]} without its digits")
    code = int(match[match.lastindex or 0], 16)
    if code > MAX_CODE or 0xD800 <= code < 0xE000:
        raise NotARegex(f"no character has the number {code:#x}")
    return Escape(match.end(), code, character_size(code), pattern[place])


def _property(pattern: str, place: int) -> Escape:
    """`\\pL`, `\\p{…}`: a name may be of any length, and a pattern ends with the first that does not end."""
    begin = place + 1
    if pattern[begin : begin + 1] != "{":
        name, end = pattern[begin : begin + 1], begin + 1
    else:
        close = pattern.find("}", begin)
        if close < 0:
            raise NotARegex("the name of a property has no end")
        name, end = pattern[begin + 1 : close], close + 1
    size = property_size(name)
    if size is None:
        raise NotARegex(f"no property has the name {name[:80]!r}")
    return Escape(end, None, size, pattern[place])


def _boundary_end(pattern: str, end: int, has_words: bool) -> int:
    """Where `\\b{start}` and the like end; other braces behind `\\b` are a count."""
    if pattern[end : end + 1] != "{":
        return end
    if pattern[end + 1 : end + 2] in tuple("0123456789,"):
        return end
    match = _BOUNDARY.match(pattern, end) if has_words else None
    if match is None:
        raise NotARegex("braces behind a boundary that are none of its words")
    return match.end()


@dataclass(slots=True)
class _Set:
    """What a set holds, as far as its size goes."""

    ranges: list[tuple[int, int]] = field(default_factory=list)
    classes: int = 0

    def add(self, first: int, last: int) -> None:
        self.ranges.append((first, last))

    def size(self, is_negated: bool) -> int:
        """Bytes that the engine keeps: exact for a set of characters and ranges, about right with classes in it."""
        if not self.classes or is_negated:
            return ranges_size(self.ranges, is_negated) + self.classes
        return self.classes + (ranges_size(self.ranges, False) if self.ranges else 0)


def read_set(pattern: str, start: int, dialect: Dialect, skip: re.Pattern[str] | None = None) -> tuple[int, int]:
    """Where the set at `start` ends, and the bytes that the engine keeps for it, about.

    Args:
        skip: what means nothing between the items.

    Raises:
        NotARegex: it has no end, or an item that no set has.
    """
    found = _Set()
    place = start + 1
    is_negated = pattern[place : place + 1] == "^"
    place += is_negated
    while pattern[place : place + 1] == "-":
        found.add(45, 45)
        place += 1
    is_first = not found.ranges
    while True:
        if skip is not None and (blank := skip.match(pattern, place)):
            place = blank.end()
        character = pattern[place : place + 1]
        if not character:
            raise NotARegex("a set without end")
        if character == "]" and not is_first:
            return place + 1, found.size(is_negated)
        is_first = False
        if pattern[place : place + 2] in ("&&", "~~", "--"):
            place += 2
            continue
        place, first, size = _item(pattern, place, dialect)
        if first is None:
            found.classes += size
        is_range = pattern[place : place + 1] == "-" and pattern[place + 1 : place + 2] not in ("]", "")
        if first is None and is_range:
            if pattern[place + 1] != "-":
                raise NotARegex("a range from a class")
            continue
        last = first
        if is_range:
            place, last, _ = _item(pattern, place + 1, dialect)
            if last is None or first is None or last < first:
                raise NotARegex("a range that ends before it begins")
        if first is not None and last is not None:
            found.add(first, last)


def _item(pattern: str, place: int, dialect: Dialect) -> tuple[int, int | None, int]:
    if pattern[place] != "\\":
        return place + 1, ord(pattern[place]), 0
    escape = read_escape(pattern, place, dialect, True)
    return escape.end, escape.code, escape.size
