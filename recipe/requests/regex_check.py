"""Whether a text is a regular expression of ECMA-262, as `pattern` of JSON Schema asks, without backreferences."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

# What ECMA-262 has and `re` spells otherwise, and what `re` has and ECMA-262 does not.
_REWRITE = re.compile(
    r"\\(?:[pP]\{[^}]*\}|[dDwWsSbBfnrtv0]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|c[A-Za-z]|.)|\(\?<(?![=!])", re.S
)
_MAX_REPEAT = 1000


@lru_cache(1024)
def is_ecma_regex(pattern: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(_REWRITE.sub(_rewrite, pattern))
    except (re.error, OverflowError, RecursionError, _NotEcma):
        return False
    return True


class _NotEcma(ValueError):
    """An escape that ECMA-262 does not have."""


def _rewrite(match: re.Match[str]) -> str:
    text = match[0]
    if text == "(?<":
        return "(?P<"
    if text[1] in "pPuxc":
        return r"\w" if len(text) > 2 else text
    if text[1] in "AZ" or text[1] in "123456789k":
        raise _NotEcma(text)
    return text
