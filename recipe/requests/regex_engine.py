"""A pattern as the original's engine reads it: what is repeated, what a lookbehind may hold, and how large it grows.

The engine takes what the strict reading (`regex_check`) leaves to it, and refuses some of what that takes. What needs
no backtracking it compiles, and refuses what takes more than 10 MiB; that size is estimated here, within some percent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from .regex_escapes import Dialect, NotARegex, character_size, read_escape, read_set

MAX_SIZE = 10 << 20
"""Bytes of the compiled form of one part."""
MAX_DEPTH = 63
_PLAIN = re.compile(r"[^\\\[(){*+?|.^$\s#]+")
_BLANK = re.compile(r"(?:\(\?#[^)]*+\))+")
_BLANK_VERBOSE = re.compile(r"(?:\s|#[^\n]*\n?|\(\?#[^)]*+\))+")
_COUNT = re.compile(r"\{\s*+([0-9]*+)\s*+(?:(,)\s*+([0-9]*+)\s*+)?\}")
_FLAGS = re.compile(r"\?([imsUuxR]*)(-[imsUxR]*)?([:)])")
_NAME = re.compile(r"\?(?:P?<([^>]+)>|'([^']+)')")
_BACK_BY_NAME = re.compile(r"\?P([=>])([^)]+)\)")
_REFERENCE = re.compile(r"(?:<([^>]+)>|'([^']+)')")
_CONDITION = re.compile(r"\?\((?:([0-9]+)|<([^>]+)>|'([^']+)')\)")
_KINDS = re.compile(r"\?(?:<?[=!]|>|~(?!\|))")
_FAIL = re.compile(r"\*F(?:AIL)?\)")
_SPACES = re.compile(r"\s+")
_DIGITS = re.compile(r"[0-9]+")

GroupKind = Literal["capture", "plain", "ahead", "behind", "atomic", "absent", "condition", "choice"]

_KIND_OF_MARK: dict[str, GroupKind] = {
    **dict.fromkeys(("?=", "?!"), "ahead"),
    **dict.fromkeys(("?<=", "?<!"), "behind"),
    "?>": "atomic",
    "?~": "absent",
}


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of a pattern.

    Args:
        repeats: a quantifier may follow.
        length: characters that it matches; None: not always as many.
        is_hard: the engine has to backtrack.
        fits_behind: a lookbehind may hold it.
        size: bytes of the compiled form, 0 when it is hard.
    """

    repeats: bool = True
    length: int | None = 1
    is_hard: bool = False
    fits_behind: bool = True
    size: int = 32

    @property
    def is_certain(self) -> bool:
        """Among other parts, too, a lookbehind may hold it."""
        return self.length is not None or not self.is_hard


_NOTHING = _Node(repeats=False, length=0, size=0)
_PLACE = _Node(length=0, size=32)
_HARD_PLACE = _Node(length=0, is_hard=True, size=0)
_MARK = _Node(repeats=False, length=0, is_hard=True, size=0)


@dataclass(slots=True)
class _Group:
    """A group that is being read: its alternatives, and the parts of the last one."""

    kind: GroupKind
    number: int = 0
    verbose: bool | None = None
    alternatives: list[_Node] = field(default_factory=list)
    parts: list[_Node] = field(default_factory=list)


def check_for_engine(pattern: str, dialect: Dialect) -> None:
    """Refuse what the engine refuses.

    Args:
        dialect: `STRICT` when the strict reading went through all of the pattern, else `ENGINE`.

    Raises:
        NotARegex: it does.
    """
    _Engine(pattern, dialect).read()


class _Engine:
    def __init__(self, pattern: str, dialect: Dialect) -> None:
        self.pattern = pattern
        self.dialect = dialect
        self.place = 0
        self.verbose = False
        self.groups = [_Group("plain")]
        self.captures: list[int | None] = []
        """Length of every capture that has ended; None while it is open, and when it has no certain length."""
        self.names: dict[str, int] = {}
        self.referred: list[int] = []
        self.named: list[str] = []

    def read(self) -> None:
        pattern = self.pattern
        while True:
            self._blank()
            if self.place >= len(pattern):
                break
            here = pattern[self.place]
            if here == "|":
                self.groups[-1].alternatives.append(_concatenation(self.groups[-1].parts))
                self.groups[-1].parts = []
                self.place += 1
            elif here == ")":
                self._quantified(self._close())
            elif here == "(":
                self._open()
            else:
                self._quantified(self._atom(here))
        if len(self.groups) > 1:
            raise NotARegex("a group without end")
        _end(self.groups[0])
        for number in self.referred:
            if not 1 <= number <= len(self.captures):
                raise NotARegex(f"there is no group {number}")
        for name in self.named:
            if name not in self.names:
                raise NotARegex(f"there is no group {name[:80]!r}")

    def _blank(self) -> None:
        if blank := (_BLANK_VERBOSE if self.verbose else _BLANK).match(self.pattern, self.place):
            self.place = blank.end()

    def _atom(self, here: str) -> _Node:
        pattern, place = self.pattern, self.place
        if here == "\\":
            return self._escape()
        if here == "[":
            self.place, size = read_set(pattern, place, self.dialect)
            return _Node(size=size)
        if here in "*+?":
            raise NotARegex("nothing to repeat")
        self.place += 1
        if here == ".":
            return _Node(size=1000)
        if here in "^$":
            return _PLACE
        if plain := _PLAIN.match(pattern, place):  # all but the last, which a quantifier may be for
            whole = plain.end() - (plain.end() - place > 1)
            self.place = whole
            return _Node(length=whole - place, size=32 * len(pattern[place:whole].encode("utf-8", "surrogatepass")))
        return _Node(size=character_size(ord(here)))

    # Escapes and references

    def _escape(self) -> _Node:
        pattern, place = self.pattern, self.place
        following = pattern[place + 1 : place + 2]
        if digits := _DIGITS.match(pattern, place + 1):
            self.place = digits.end()
            return self._reference(digits[0])
        if following and following in "kg":
            if name := _REFERENCE.match(pattern, place + 2):
                self.place = name.end()
                return self._reference(name[1] or name[2], calls=following == "g")
            if following == "g" and (digits := _DIGITS.match(pattern, place + 2)):
                self.place = digits.end()
                return self._reference(digits[0], calls=True)
            raise NotARegex(f"\\{following} without a name")
        escape = read_escape(pattern, place, self.dialect, False)
        self.place = escape.end
        if escape.code is not None or escape.letter in "dDsSwWpPNOh":
            return _Node(size=escape.size)
        if escape.letter == "R":
            return _Node(length=None, is_hard=True, fits_behind=False, size=0)
        if escape.letter in "Az":
            return _PLACE
        if escape.letter in "GK":
            return _MARK
        return _HARD_PLACE

    def _reference(self, name: str, calls: bool = False) -> _Node:
        number: int | None
        if _DIGITS.fullmatch(name):
            number = int(name) if len(name) < 10 else 0
        elif name[0] == "-" and _DIGITS.fullmatch(name, 1):
            number = len(self.captures) + 1 - int(name[1:]) if len(name) < 10 else 0
        else:
            number = self.names.get(name)
        if number is None and calls:
            self.named.append(name)
        elif number is None:
            raise NotARegex(f"there is no group {name[:80]!r} yet")
        else:
            self.referred.append(number)
        length = self.captures[number - 1] if number and number <= len(self.captures) else None
        return _Node(length=length, is_hard=True, fits_behind=length is not None, size=0)

    # Groups

    def _open(self) -> None:
        """Begin a group, or read one that has no inside."""
        pattern, begin = self.pattern, self.place + 1
        if self.verbose and (blank := _SPACES.match(pattern, begin)):
            begin = blank.end()
        if len(self.groups) > MAX_DEPTH:
            raise NotARegex(f"more than {MAX_DEPTH} groups within each other")
        mark = pattern[begin : begin + 1]
        if mark == "*":
            fail = _FAIL.match(pattern, begin)
            if fail is None:
                raise NotARegex("an unknown verb")
            self.place = fail.end()
            self._quantified(_MARK)
        elif mark != "?":
            self._begin(_Group("capture", self._capture()), begin)
        elif kind := _KINDS.match(pattern, begin):
            self._begin(_Group(_KIND_OF_MARK[kind[0]]), kind.end())
        elif name := _NAME.match(pattern, begin):
            number = self._capture()
            self.names[name[1] or name[2]] = number
            self._begin(_Group("capture", number), name.end())
        elif back := _BACK_BY_NAME.match(pattern, begin):
            self.place = back.end()
            self._quantified(self._reference(back[2], calls=back[1] == ">"))
        elif pattern.startswith("?(", begin):
            self._condition(begin)
        else:
            self._flags(begin)

    def _begin(self, group: _Group, inside: int) -> None:
        self.groups.append(group)
        self.place = inside

    def _capture(self) -> int:
        self.captures.append(None)
        return len(self.captures)

    def _condition(self, begin: int) -> None:
        condition = _CONDITION.match(self.pattern, begin)
        self._begin(_Group("choice" if condition is None else "condition"), begin + 2)
        if condition is not None:
            if (name := condition[2] or condition[3]) and name not in self.names:
                raise NotARegex(f"there is no group {name[:80]!r} yet")
            self.place = condition.end()
        elif self.pattern[begin + 2 : begin + 3] in ("?", "<", "'"):
            raise NotARegex("an unknown kind of condition")
        else:
            self._begin(_Group("plain"), begin + 2)

    def _flags(self, begin: int) -> None:
        flags = _FLAGS.match(self.pattern, begin)
        if flags is None or (not flags[1] and flags[2] == "-") or (flags[3] == ")" and not flags[1] and not flags[2]):
            raise NotARegex("an unknown kind of group")
        before = self.verbose
        self.verbose = True if "x" in flags[1] else False if "x" in (flags[2] or "") else before
        self.place = flags.end()
        if flags[3] == ")":
            self._quantified(_NOTHING)
        else:
            self._begin(_Group("plain", verbose=before), flags.end())

    def _close(self) -> _Node:
        if len(self.groups) == 1:
            raise NotARegex("a group ends that was not begun")
        group = self.groups.pop()
        self.place += 1
        if group.verbose is not None:
            self.verbose = group.verbose
        inside = _end(group)
        if group.kind == "plain":
            return inside
        if group.kind == "capture":
            self.captures[group.number - 1] = inside.length
            size = inside.size and inside.size + 64
            return _Node(True, inside.length, inside.is_hard, inside.is_certain, size)
        if group.kind in ("ahead", "behind"):
            if group.kind == "behind" and not inside.fits_behind:
                raise NotARegex("a lookbehind that has no certain length")
            return _MARK
        is_condition, has_else = group.kind in ("condition", "choice"), bool(group.alternatives)
        if group.kind == "choice" and not has_else and len(group.parts) < 2:
            raise NotARegex("a condition that decides nothing")
        is_open = group.kind == "absent" or (is_condition and not has_else and inside.length)
        length = None if is_open else inside.length
        return _Node(True, length, True, length is not None, 0)

    # Quantifiers

    def _quantified(self, node: _Node) -> None:
        """Put a part where it belongs, with the quantifier behind it."""
        pattern = self.pattern
        begin = self.place
        self._blank()
        here = pattern[self.place : self.place + 1]
        least, most = {"?": (0, 1), "*": (0, None), "+": (1, None)}.get(here, (-1, None))
        end = self.place + 1
        if here == "{" and (count := _COUNT.match(pattern, self.place)) and (count[1] or count[2]):
            least = _number(count[1])
            most = least if not count[2] else _number(count[3]) if count[3] else None
            end = count.end()
        if least < 0:
            self.place = begin
            self.groups[-1].parts.append(node)
            return
        if not node.repeats:
            raise NotARegex("nothing to repeat")
        self.place = end
        self._blank()
        self.place += pattern[self.place : self.place + 1] == "?"
        node = _repeated(node, least, most)
        if pattern[self.place : self.place + 1] == "+":
            self.place += 1
            node = _Node(True, node.length, True, node.length is not None, 0)
        self.groups[-1].parts.append(node)


def _number(digits: str) -> int:
    digits = digits.lstrip("0")
    if len(digits) > 10:
        raise NotARegex("a count that is too large")
    return int(digits or "0")


def _checked(node: _Node) -> _Node:
    if node.size > MAX_SIZE:
        raise NotARegex(f"a part takes more than {MAX_SIZE >> 20} MiB")
    return node


def _repeated(node: _Node, least: int, most: int | None) -> _Node:
    is_fixed = least == most
    length = node.length * least if is_fixed and node.length is not None else None
    if most is None:
        size = node.size * max(least, 1) + 40
    else:
        size = node.size * max(least, most) + 72 * max(most - least, 0)
    fits = node.fits_behind and (is_fixed or not node.is_hard)
    return _checked(_Node(True, length, node.is_hard, fits, 0 if node.is_hard else size))


def _concatenation(parts: list[_Node]) -> _Node:
    parts = [part for part in parts if part is not _NOTHING]
    if not parts:
        return _NOTHING
    if len(parts) == 1:
        return parts[0]
    lengths = [part.length for part in parts]
    length = None if None in lengths else sum(length or 0 for length in lengths)
    is_hard = any(part.is_hard for part in parts)
    fits = all(part.is_certain for part in parts)
    size = sum(part.size for part in parts)
    return _checked(_Node(True, length, is_hard, fits, 0 if is_hard else size))


def _end(group: _Group) -> _Node:
    """The inside of a group that has ended."""
    last = _concatenation(group.parts)
    if not group.alternatives:
        return last
    choices = [*group.alternatives, last]
    lengths = {choice.length for choice in choices}
    is_hard = any(choice.is_hard for choice in choices)
    size = sum(choice.size + 40 for choice in choices)
    fits = all(choice.fits_behind for choice in choices)
    return _checked(_Node(True, lengths.pop() if len(lengths) == 1 else None, is_hard, fits, 0 if is_hard else size))
