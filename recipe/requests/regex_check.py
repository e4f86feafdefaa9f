"""Whether a text is a regular expression, as `pattern` of JSON Schema asks.

The dialect is that of the codec that ours equals: ECMA-262 as its engine has it. It reads a pattern strictly, without
octal escapes, named backreferences and braces that are no quantifier, up to the first lookaround or backreference; from
there on only the engine judges (`regex_engine`), which takes more. Nothing is compiled or matched, and the time is
linear in the pattern's length.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .regex_engine import check_for_engine
from .regex_escapes import ENGINE, STRICT, Dialect, NotARegex, read_escape, read_set

_SHORT = 256  # characters; longer patterns are not remembered
WHITESPACE = r"[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
_PLAIN = re.compile(r"[^\\\[(){*+?|]+")
_PLAIN_VERBOSE = re.compile(rf"(?:(?!{WHITESPACE})[^\\\[(){{*+?|#])+")
_BLANK = re.compile(rf"(?:{WHITESPACE}|#[^\n]*\n?)+")
_COUNT = re.compile(
    rf"\{{{WHITESPACE}*+([0-9]++){WHITESPACE}*+(,(?:(?=\}})|{WHITESPACE}*+([0-9]++){WHITESPACE}*+))?\}}"
)  # fmt: skip
_LOOKAROUND = re.compile(r"\(\?<?[=!]")
_NAMED = re.compile(r"\?P?<([^>]*)>")
_FLAGS = re.compile(r"\?([imsUuxR]*)(?:-([imsUuxR]+))?([:)])")
_ESCAPED = re.compile(r"\\(?:c([A-Za-z])|.)", re.S)
_MAX_COUNT = 2**32


def is_ecma_regex(pattern: str) -> bool:
    return _is_known_regex(pattern) if len(pattern) <= _SHORT else _is_regex(pattern)


def _is_regex(pattern: str) -> bool:
    try:
        check_for_engine(*_Strict(pattern).read())
    except NotARegex:
        return False
    return True


_is_known_regex = lru_cache(1024)(_is_regex)


class _Strict:
    """The strict reading, up to what it leaves to the engine."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.place = 0
        self.has_item = False
        """Whether a quantifier here has something to repeat."""
        self.verbose = False
        self.outer: list[bool] = []
        """Of every open group, whether the text around it is verbose."""
        self.names: set[str] = set()

    def read(self) -> tuple[str, Dialect]:
        """The pattern as the engine gets it, and the dialect that is left for it to judge by.

        Raises:
            NotARegex: it is none.
        """
        while self.place < len(self.pattern):
            if self._is_left_to_the_engine():
                return _ESCAPED.sub(_without_control, self.pattern[: self.place]) + self.pattern[self.place :], ENGINE
            self._piece()
        if self.outer:
            raise NotARegex("a group without end")
        return self.pattern, STRICT

    def _is_left_to_the_engine(self) -> bool:
        here = self.pattern[self.place]
        if here == "(":
            return _LOOKAROUND.match(self.pattern, self.place) is not None
        return here == "\\" and self.pattern[self.place + 1 : self.place + 2] in tuple("0123456789")

    def _piece(self) -> None:
        pattern, place = self.pattern, self.place
        if self.verbose and (blank := _BLANK.match(pattern, place)):
            self.place = blank.end()
            return
        if plain := (_PLAIN_VERBOSE if self.verbose else _PLAIN).match(pattern, place):
            self.place, self.has_item = plain.end(), True
            return
        here = pattern[place]
        if here == "\\":
            self._escape()
        elif here == "[":
            self.place, _ = read_set(pattern, place, STRICT, _BLANK if self.verbose else None)
            self.has_item = True
        elif here == "(":
            self._group()
        elif here == ")":
            if not self.outer:
                raise NotARegex("a group ends that was not begun")
            self.verbose = self.outer.pop()
            self.place, self.has_item = place + 1, True
        elif here == "|":
            self.place, self.has_item = place + 1, False
        else:
            self._quantifier(here)

    def _escape(self) -> None:
        self.place = read_escape(self.pattern, self.place, STRICT, False).end
        self.has_item = True

    def _group(self) -> None:
        pattern, place = self.pattern, self.place
        if self.verbose and (blank := _BLANK.match(pattern, place + 1)):
            place = blank.end() - 1  # the mark may stand apart
        has_mark = pattern[place + 1 : place + 2] == "?"
        self.has_item = False
        if not has_mark:
            self.outer.append(self.verbose)
            self.place += 1
        elif named := _NAMED.match(pattern, place + 1):
            self._name(named[1])
            self.outer.append(self.verbose)
            self.place = named.end()
        elif flags := _FLAGS.match(pattern, place + 1):
            self._flags(flags)
            self.place = flags.end()
        else:
            raise NotARegex("an unknown kind of group")

    def _name(self, name: str) -> None:
        is_name = name[:1] == "_" or name[:1].isalpha()
        if not is_name or not all(letter in "_.[]" or letter.isalnum() for letter in name) or name in self.names:
            raise NotARegex(f"{name[:80]!r} is no name of a group, or is one already")
        self.names.add(name)

    def _flags(self, flags: re.Match[str]) -> None:
        on, off = flags[1], flags[2] or ""
        if len(set(on + off)) < len(on + off) or (flags[3] == ")" and not on + off):
            raise NotARegex("flags that are there twice, or none")
        verbose = True if "x" in on else False if "x" in off else self.verbose
        if flags[3] == ":":
            self.outer.append(self.verbose)
        self.verbose = verbose

    def _quantifier(self, here: str) -> None:
        if not self.has_item:
            raise NotARegex("nothing to repeat")
        end = self.place + 1
        if here == "{":
            count = _COUNT.match(self.pattern, self.place)
            if count is None:
                raise NotARegex("a brace that is no quantifier")
            least, most = _number(count[1]), _number(count[3] or count[1])
            if most < least:
                raise NotARegex("a quantifier whose most is less than its least")
            end = count.end()
        self.place = end + (self.pattern[end : end + 1] == "?")


def _without_control(escape: re.Match[str]) -> str:
    """An escape as the engine knows it: it has none for control characters."""
    return chr(ord(escape[1]) % 32) if escape[1] else escape[0]


def _number(digits: str) -> int:
    """A count; Python converts no endless row of digits."""
    digits = digits.lstrip("0")
    if len(digits) > 10 or int(digits or "0") >= _MAX_COUNT:
        raise NotARegex("a count of 2^32 and more")
    return int(digits or "0")
