"""Whether a text is a regular expression, as `pattern` of JSON Schema asks.

The dialect is that of the codec that ours equals: ECMA-262 without octal escapes, named backreferences and braces that
are no quantifier, and with a few spellings that ECMA-262 lacks. `re` judges what is left once its spellings are put in
place; a lookbehind of variable width, which `re` does not have, is refused.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

# Nothing here is matched a second way (`(?>`, `*+`), nor searched for to the end at every place: patterns come from
# strangers.
_ESCAPE = r"\\(?>[pP](?:\{[^}]{0,200}\}|[A-Za-z])|[xu]\{[0-9A-Fa-f]+\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|c[A-Za-z]|.)"
_TOKEN = re.compile(
    rf"(?P<set>\[(?:{_ESCAPE}|[^\]\\])*+\])|(?P<escape>{_ESCAPE})|(?P<named>\(\?<(?![=!]))|\(\?[>#]|[\[{{]", re.S
)
_ESCAPES = re.compile(_ESCAPE, re.S)
_QUANTIFIER = re.compile(r"\{\d+(?:,\d*)?\}")


class _NotARegex(ValueError):
    """A spelling that the dialect does not have."""


_SHORT = 256  # characters; longer patterns are not remembered


def is_ecma_regex(pattern: str) -> bool:
    if len(pattern) <= _SHORT:
        return _is_known_regex(pattern)
    try:
        return _is_regex(pattern)
    finally:
        re.purge()  # `re` remembers hundreds of patterns, however large


def _is_regex(pattern: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(_TOKEN.sub(_rewrite, pattern))
    except (re.error, OverflowError, RecursionError, ValueError):  # ValueError: a count of thousands of digits, too
        return False
    return True


_is_known_regex = lru_cache(1024)(_is_regex)


def _rewrite(match: re.Match[str]) -> str:
    """A piece of a pattern as `re` spells it."""
    text = match[0]
    if match["set"]:
        return _ESCAPES.sub(lambda inner: _rewrite_escape(inner[0]), text)
    if match["escape"]:
        return _rewrite_escape(text)
    if match["named"]:
        return "(?P<"
    if text == "{" and _QUANTIFIER.match(match.string, match.start()):
        return text
    raise _NotARegex(text)


def _rewrite_escape(text: str) -> str:
    kind = text[1]
    if kind in "pPuxc" and len(text) > 2:
        return r"\w" if kind in "pP" else "u"
    if kind in "Az":
        return "(?:)"
    if kind in "0aZk" or not kind.isascii():
        raise _NotARegex(text)
    return text
