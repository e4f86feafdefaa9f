"""Parts of a pattern as the engine sees them: how long, how large and how hard what is made of others is.

The size is that of the engine's compiled form of what needs no backtracking: exact for characters, sets of characters
and ranges, and what repeats them; estimated for classes of Unicode among others, and alternatives.
"""

from __future__ import annotations

from dataclasses import replace

from .regex_calls import Node, made
from .regex_escapes import NotARegex

MAX_SIZE = 10 << 20
"""Bytes of the compiled form of one part."""
_FRAME = 200  # bytes around a part: its capture, its end, and the search for its beginning

NOTHING = Node(repeats=False, length=0, size=0, may_be_empty=True)
PLACE = Node(length=0, size=32, may_be_empty=True)
HARD_PLACE = Node(length=0, is_hard=True, size=0, may_be_empty=True)
OPEN = Node(length=None, may_be_empty=True)
MARK = Node(repeats=False, length=0, is_hard=True, size=0, may_be_empty=True)


def _checked(node: Node) -> Node:
    if node.size + _FRAME > MAX_SIZE:
        raise NotARegex(f"a part takes more than {MAX_SIZE >> 20} MiB")
    return node


def repeated(node: Node, least: int, most: int | None) -> Node:
    """A part so many times; most None is without end."""
    is_fixed = least == most
    length = node.length * least if is_fixed and node.length is not None else None
    if most is None:
        size = node.size * max(least, 1) + 40
    else:
        ends = 0 if is_fixed else 32 if least or most == 1 else 64
        size = node.size * max(least, most) + 40 * max(most - least, 0) + ends
    fits = node.fits_behind and (is_fixed or not node.is_hard)
    empty = node.may_be_empty or not least
    return _checked(Node(True, length, node.is_hard, fits, 0 if node.is_hard else size, empty, None, node.has_absent))


def captured(parts: list[Node]) -> Node:
    """The inside of a capture."""
    (inside,) = parts
    size = inside.size and inside.size + 64
    return replace(inside, repeats=True, fits_behind=inside.is_certain, size=size, tree=None)


def looked_ahead(parts: list[Node]) -> Node:
    """A lookahead."""
    return replace(MARK, has_absent=parts[0].has_absent)


def looked_behind(parts: list[Node]) -> Node:
    """A lookbehind, whose inside must have a certain length."""
    if not parts[0].fits_behind:
        raise NotARegex("a lookbehind that has no certain length")
    return looked_ahead(parts)


def chosen(parts: list[Node]) -> Node:
    """What the engine does not look back into, or has to decide on: it is hard."""
    (inside,) = parts
    length = inside.length
    return Node(True, length, True, length is not None, 0, inside.may_be_empty, None, inside.has_absent)


def chosen_or_not(parts: list[Node]) -> Node:
    """The same where there may be nothing instead."""
    (inside,) = parts
    length = None if inside.length else inside.length
    return Node(True, length, True, length is not None, 0, True, None, inside.has_absent)


def absent(parts: list[Node]) -> Node:
    """An absent expression."""
    return Node(True, None, True, False, 0, True, None, True)


def concatenation(parts: list[Node]) -> Node:
    """Parts in a row."""
    parts = [part for part in parts if part is not NOTHING]
    if not parts:
        return NOTHING
    if len(parts) == 1:
        return parts[0]
    return made("all", parts, _in_a_row)


def _in_a_row(parts: list[Node]) -> Node:
    lengths = [part.length for part in parts]
    length = None if None in lengths else sum(length or 0 for length in lengths)
    is_hard = any(part.is_hard for part in parts)
    fits = all(part.is_certain for part in parts)
    size = 0 if is_hard else sum(part.size for part in parts)
    empty, has_absent = all(part.may_be_empty for part in parts), any(part.has_absent for part in parts)
    return _checked(Node(True, length, is_hard, fits, size, empty, None, has_absent))


def one_of(choices: list[Node]) -> Node:
    """Alternatives."""
    lengths = {choice.length for choice in choices}
    length = lengths.pop() if len(lengths) == 1 else None
    is_hard = any(choice.is_hard for choice in choices)
    size = 0 if is_hard else 64 + sum(choice.size + 4 for choice in choices)
    fits = all(choice.fits_behind for choice in choices)
    empty, has_absent = any(choice.may_be_empty for choice in choices), any(choice.has_absent for choice in choices)
    return _checked(Node(True, length, is_hard, fits, size, empty, None, has_absent))
