"""Structural tags: free text with fixed and constrained parts, as `xgrammar.StructuralTag` writes them."""

from __future__ import annotations

from typing import Any

from ...hal.errors import InvalidArgumentError, NotSupportedError
from .expression import check_expression
from .schema import MAX_DEPTH, NAME, check_schema

FORMATS = frozenset(
    "const_string json_schema any_text regex grammar sequence or tag triggered_tags tags_with_separator optional plus "
    "star repeat".split()
)
_PARTS = ("content", "elements", "tags")
WHITESPACE = 16


def check_tag(tag: Any) -> Any:
    """Walks a tag: its schemas are checked as any schema, and get a bound of white space where they have none.

    Returns:
        The same tag.

    Raises:
        NotSupportedError, InvalidArgumentError: as `schema.check_schema`; also a kind of format that is not known.
    """
    if not isinstance(tag, dict) or tag.get("type") != "structural_tag" or "format" not in tag:
        raise InvalidArgumentError(NAME, tag, 'an object with type "structural_tag" and format')
    open = [(tag["format"], "/format", 0)]
    while open:
        part, path, depth = open.pop()
        if not isinstance(part, dict) or depth > MAX_DEPTH:
            raise InvalidArgumentError(f"{NAME} at {path[:200]}", part, f"an object, at most {MAX_DEPTH} levels deep")
        kind = part.get("type", "tag" if path.rstrip("0123456789").endswith("/tags/") else None)
        if kind not in FORMATS:
            raise NotSupportedError(f"{NAME} at {path}: the format {kind!r}", f"use {', '.join(sorted(FORMATS))}")
        if kind == "json_schema":
            if part.get("style", "json") != "json" or part.get("any_order"):
                raise NotSupportedError(f"{NAME} at {path}: style or any_order", "use plain JSON")
            part["json_schema"] = check_schema(part.get("json_schema"))
            if part.get("max_whitespace_cnt") is None:
                part["max_whitespace_cnt"] = WHITESPACE
        elif kind == "regex":
            if not isinstance(part.get("pattern"), str):
                raise InvalidArgumentError(f"{NAME} at {path}/pattern", part.get("pattern"), "a text")
            check_expression(part["pattern"], f"{NAME} at {path}/pattern")
        for name in _PARTS:
            found = part.get(name, [])
            for i, one in enumerate(found if isinstance(found, list) else [found]):
                open.append((one, f"{path}/{name}/{i}", depth + 1))
    return tag
