"""A pattern as the original's engine reads it: what is repeated, what a lookbehind may hold, and how large it grows.

The engine takes what the strict reading (`regex_check`) leaves to it, and refuses some of what that takes. What needs
no backtracking it compiles, and refuses what takes more than 10 MiB (`regex_parts`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from .regex_calls import Node, TreeKind, called, made, settle, with_tree
from .regex_escapes import Dialect, NotARegex, character_size, read_escape, read_set
from .regex_parts import (
    HARD_PLACE,
    MARK,
    NOTHING,
    OPEN,
    PLACE,
    absent,
    captured,
    chosen,
    chosen_or_not,
    concatenation,
    looked_ahead,
    looked_behind,
    one_of,
    repeated,
)

MAX_DEPTH = 63
_PLAIN = re.compile(r"[^\\\[(){*+?|.^$\s#]+")
_BLANK = re.compile(r"(?:\(\?#[^)]*+\))+")
_BLANK_VERBOSE = re.compile(r"(?:\s|#[^\n]*\n?|\(\?#[^)]*+\))+")
_COUNT = re.compile(r"\{\s*+([0-9]*+)\s*+(?:(,)\s*+([0-9]*+)\s*+)?\}")
_FLAGS = re.compile(r"\?([imsUuxR]*)(-[imsUxR]*)?([:)])")
_NAME = re.compile(r"\?(?:P?<([^>]+)>|'([^']+)')")
_BACK_BY_NAME = re.compile(r"\?P([=>])([^)]+)\)")
_REFERENCE = re.compile(r"(?:<([^>]+)>|'([^']+)')")
_CONDITION = re.compile(r"\?\((?:([+-]?[0-9]+)|<([^>]+)>|'([^']+)')\)")
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


_NO_GROUP = 1 << 62


@dataclass(slots=True)
class _Group:
    """A group that is being read: its alternatives, and the parts of the last one."""

    kind: GroupKind
    number: int = 0
    verbose: bool | None = None
    alternatives: list[Node] = field(default_factory=list)
    parts: list[Node] = field(default_factory=list)


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
        self.captures: list[Node] = []
        """Every capture, `OPEN` while it has not ended."""
        self.names: dict[str, int] = {}
        self.referred: list[int] = []
        self.named: list[str] = []
        self.settled_names: set[str] = set()
        """Names that a reference stands for, and that no later group may have."""

    def read(self) -> None:
        pattern = self.pattern
        while True:
            self._blank()
            if self.place >= len(pattern):
                break
            here = pattern[self.place]
            if here == "|":
                self.groups[-1].alternatives.append(concatenation(self.groups[-1].parts))
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
        root = _end(self.groups[0])
        for number in self.referred:
            if not 1 <= number <= len(self.captures):
                raise NotARegex(f"there is no group {number}")
        for name in self.named:
            if name not in self.names:
                raise NotARegex(f"there is no group {name[:80]!r}")
        settle(root, self.captures, self.names)

    def _blank(self) -> None:
        if blank := (_BLANK_VERBOSE if self.verbose else _BLANK).match(self.pattern, self.place):
            self.place = blank.end()

    def _atom(self, here: str) -> Node:
        pattern, place = self.pattern, self.place
        if here == "\\":
            return self._escape()
        if here == "[":
            self.place, size = read_set(pattern, place, self.dialect)
            return Node(size=size)
        if here in "*+?":
            raise NotARegex("nothing to repeat")
        self.place += 1
        if here == ".":
            return Node(size=1000)
        if here in "^$":
            return PLACE
        if plain := _PLAIN.match(pattern, place):  # all but the last, which a quantifier may be for
            whole = plain.end() - (plain.end() - place > 1)
            self.place = whole
            return Node(length=whole - place, size=32 * len(pattern[place:whole].encode("utf-8", "surrogatepass")))
        return Node(size=character_size(ord(here)))

    # Escapes and references

    def _escape(self) -> Node:
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
            return Node(size=escape.size)
        if escape.letter == "R":
            return Node(length=None, is_hard=True, fits_behind=False, size=0)
        if escape.letter in "Az":
            return PLACE
        if escape.letter in "GK":
            return MARK
        return HARD_PLACE

    def _reference(self, name: str, calls: bool = False) -> Node:
        number = self._group_number(name)
        if calls:
            return called(name if name in self.names or number is None else number)  # a later group may have the name
        if number is None:
            raise NotARegex(f"there is no group {name[:80]!r} yet")
        if name in self.names:
            self.settled_names.add(name)
        self.referred.append(number)
        group = self.captures[number - 1] if 0 < number <= len(self.captures) else OPEN
        return Node(True, group.length, True, group.length is not None, 0, group.may_be_empty)

    def _group_number(self, name: str) -> int | None:
        """The number that a reference means, counted from here if it has a sign; None: a name that is not known yet."""
        sign = name[0] if name[0] in "+-" else ""
        if not _DIGITS.fullmatch(name, len(sign)):
            return self.names.get(name)
        count = int(name[len(sign) :]) if len(name) < 10 else _NO_GROUP
        if sign:
            return len(self.captures) + (count if sign == "+" else 1 - count)
        return count

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
            self._quantified(MARK)
        elif mark != "?":
            self._begin(_Group("capture", self._capture()), begin)
        elif kind := _KINDS.match(pattern, begin):
            self._begin(_Group(_KIND_OF_MARK[kind[0]]), kind.end())
        elif name := _NAME.match(pattern, begin):
            number = self._capture()
            if (name[1] or name[2]) in self.settled_names:
                raise NotARegex("a name of a group that is referred to already")
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
        self.captures.append(OPEN)
        return len(self.captures)

    def _condition(self, begin: int) -> None:
        condition = _CONDITION.match(self.pattern, begin)
        self._begin(_Group("choice" if condition is None else "condition"), begin + 2)
        if condition is not None:
            if (name := condition[2] or condition[3]) and name not in self.names:
                self.named.append(name)
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
            self._quantified(NOTHING)
        else:
            self._begin(_Group("plain", verbose=before), flags.end())

    def _close(self) -> Node:
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
            node = made("all", [inside], captured, group.number)
            self.captures[group.number - 1] = node
            return node
        if group.kind == "ahead":
            return made("all", [inside], looked_ahead)
        if group.kind == "behind":  # judged when it is known what is called
            if inside.tree is None:
                return looked_behind([inside])
            return with_tree(looked_ahead([inside]), "all", [inside], looked_behind)
        if group.kind in ("condition", "choice"):
            has_else = bool(group.alternatives)
            if group.kind == "choice" and not has_else and len(group.parts) < 2:
                raise NotARegex("a condition that decides nothing")
            return made("all", [inside], chosen) if has_else else made("maybe", [inside], chosen_or_not)
        if group.kind == "absent" and inside.has_absent:
            raise NotARegex("an absent expression within another")
        return made("all", [inside], absent if group.kind == "absent" else chosen)

    # Quantifiers

    def _quantified(self, node: Node) -> None:
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
        kind: TreeKind = "never" if most == 0 else "maybe" if least == 0 else "all"
        node = made(kind, [node], lambda parts: repeated(parts[0], least, most))
        if pattern[self.place : self.place + 1] == "+":
            self.place += 1
            node = made("all", [node], chosen)
        self.groups[-1].parts.append(node)


def _number(digits: str) -> int:
    digits = digits.lstrip("0")
    if len(digits) > 10:
        raise NotARegex("a count that is too large")
    return int(digits or "0")


def _end(group: _Group) -> Node:
    """The inside of a group that has ended."""
    last = concatenation(group.parts)
    return made("any", [*group.alternatives, last], one_of) if group.alternatives else last
