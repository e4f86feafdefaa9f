"""Regular expressions: what the compiler takes, and what it would pass over without a word.

In a JSON string an expression describes the characters as they are written. The compiler keeps quotes, backslashes and
control characters out of classes such as `.`, `\\S` and `[^a]`; where an expression names one itself, it would write it
without an escape, so that is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...hal.errors import NotSupportedError

_GROUPS = ("(?:", "(?P<", "(?<")
_NOT_GROUPS = {
    "(?=": "lookahead", "(?!": "lookahead", "(?<=": "lookbehind", "(?<!": "lookbehind", "(?>": "an atomic group",
    "(?P=": "a back-reference", "(?(": "a condition", "(?#": "a comment",
}  # fmt: skip
_ESCAPED_CLASSES = "dDwWsS"
_CONTROL_ESCAPES = "nrtfv"
_REFUSED_ESCAPES = {
    "b": "a word border", "B": "a word border", "A": "an anchor", "Z": "an anchor", "z": "an anchor", "G": "an anchor",
    "p": "a class of Unicode", "P": "a class of Unicode", "k": "a back-reference", "c": "a control character",
    "K": "a reset", "Q": "a quotation", "E": "a quotation", "h": "a class of spaces", "H": "a class of spaces",
    "R": "a line break", "X": "a grapheme", "N": "a named character", "a": "a bell", "e": "an escape",
    **dict.fromkeys("123456789", "a back-reference"),
}  # fmt: skip


def check_expression(text: str, where: object, in_string: bool = False) -> None:
    """Refuses what has no effect or another one in the compiler.

    Args:
        where: how errors call it; a text only then.
        in_string: whether it describes the inside of a JSON string.

    Raises:
        NotSupportedError: names the feature and its place.
    """
    before = ""
    for place, piece, in_class in _pieces(text):
        found = _refused(text, place, piece, in_class, before) or (_unwritable(piece) if in_string else None)
        if found:
            raise NotSupportedError(
                f"{where}: {found} ({piece!r} at character {place} of an expression)", "write the expression without it"
            )
        before = piece


def full_pattern(text: str, where: object) -> str:
    """The expression of a JSON Schema, which may match any part of a text, as one that matches the whole text.

    Raises:
        NotSupportedError: see `check_expression`; also anchors in only some of several alternatives.
    """
    check_expression(text, where, in_string=True)
    text = _without_optional_groups(text)
    begins, ends = text.startswith("^"), _ends(text)
    body = text[1 if begins else 0 : len(text) - 1 if ends else None]
    if _has_alternatives(body):
        if begins or ends:
            raise NotSupportedError(
                f"{where}: an anchor in one of several alternatives (of {text!r})", "write ^(?:a|b)$ instead of ^a|b$"
            )
        body = f"(?:{body})"
    return f"^{'' if begins else '.*'}{body}{'' if ends else '.*'}$"


def literal_prefix(full: str) -> str:
    """Characters with which all begins that an expression of `full_pattern` matches, as far as that is easily seen."""
    prefix = ""
    body = full[1:]
    for char in body:
        if char in ".[]()|\\$^{}*+?":
            if char in "{*?" and prefix:  # the character before it may be missing
                prefix = prefix[:-1]
            break
        prefix += char
    return "" if _has_alternatives(body) else prefix


def _without_optional_groups(text: str) -> str:
    """`(...)?` as an alternative of nothing: of a group that begins or ends with a repetition, the compiler would take
    that repetition without the rest of the group.
    """
    out: list[str] = []
    opened: list[int] = []  # places in `out` of the groups around
    closed = -1  # place in `out` of the group that ends just before
    for _, piece, in_class in _pieces(text):
        begin, closed = closed, -1
        if not in_class and piece == "?" and begin >= 0:
            out[begin] = "(?:|" + out[begin]
            out.append(")")
            continue
        if not in_class and piece == "?" and out and out[-1] == ")":
            continue  # of a lazy one, which says the same
        if not in_class and piece.startswith("("):
            opened.append(len(out))
        elif not in_class and piece == ")" and opened:
            closed = opened.pop()
        out.append(piece)
    return "".join(out)


def _ends(text: str) -> bool:
    """Whether the last character is an anchor: a dollar with an even number of backslashes before it."""
    return text.endswith("$") and (len(text) - 1 - len(text[:-1].rstrip("\\"))) % 2 == 0


def _pieces(text: str) -> Iterator[tuple[int, str, bool]]:
    """Place, characters, and whether it is in a class: escapes and beginnings of groups as one piece."""
    at, in_class = 0, False
    while at < len(text):
        size = 1
        if text[at] == "\\":
            size = 2
        elif not in_class and text.startswith("[^", at):
            size = 2
        elif not in_class and text.startswith("(?", at):
            size = 4 if text.startswith(("(?<=", "(?<!", "(?P<", "(?P="), at) else 3
        piece = text[at : at + size]
        yield at, piece, in_class
        if piece in ("[", "[^") and not in_class:
            in_class = True
        elif piece == "]" and in_class:
            in_class = False
        at += size


def _refused(text: str, place: int, piece: str, in_class: bool, before: str) -> str | None:
    if piece.startswith("\\"):
        if len(piece) == 1:
            return "a backslash at the end"
        return _REFUSED_ESCAPES.get(piece[1])
    if in_class:
        return "a class of a class" if piece == "[" and text[place + 1 : place + 2] in (":", ".", "=") else None
    if piece in _NOT_GROUPS:
        return _NOT_GROUPS[piece]
    if piece.startswith("(?") and piece not in _GROUPS and not piece.startswith("(?<"):
        return "a flag"
    if piece == "^" and place:
        return "an anchor inside"
    if piece == "$" and place + 1 != len(text):
        return "an anchor inside"
    if piece == "+" and before in ("*", "+", "?", "}"):  # not escaped: that is a piece of two
        return "a possessive quantifier"
    return None


def _unwritable(piece: str) -> str | None:
    """Why a JSON string cannot hold what a piece names."""
    if piece == '"' or piece == '\\"':
        return "a quote in a string"
    if piece == "\\\\":
        return "a backslash in a string"
    if len(piece) == 2 and piece[0] == "\\" and piece[1] in _CONTROL_ESCAPES + "0xu":
        return "a character by its number or a control character in a string"
    if len(piece) == 1 and piece < " ":
        return "a control character in a string"
    return None


def _has_alternatives(text: str) -> bool:
    depth = 0
    for _, piece, in_class in _pieces(text):
        if in_class:
            continue
        depth += piece.startswith("(")
        depth -= piece == ")"
        if piece == "|" and depth <= 0:
            return True
    return False
