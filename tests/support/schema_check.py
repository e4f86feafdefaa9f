"""Whether a value is what a schema says: those keywords of JSON Schema that the corpus uses, written from their
definitions. An implementation that shares nothing with the compiler of grammars.
"""

from __future__ import annotations

import ipaddress
import re
import uuid
from typing import Any


def fits(value: Any, schema: Any, root: Any = None) -> bool:
    """Whether a value fits. Raises KeyError for a keyword that is not known here."""
    root = schema if root is None else root
    if isinstance(schema, bool):
        return schema
    said = {name: one for name, one in schema.items() if name not in ("$defs", "definitions")}
    return all(_CHECKS[name](value, one, schema, root) for name, one in said.items())


def same(one: Any, other: Any) -> bool:
    """Equality of JSON: 1 is 1.0 and not True."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return bool(one == other)


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, (int, float)):
        return kind == "number" or (kind == "integer" and value == int(value))
    return {str: "string", list: "array", dict: "object", type(None): "null"}[type(value)] == kind


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _resolve(path: str, root: Any) -> Any:
    for step in path.split("/")[1:]:
        root = root[step.replace("~1", "/").replace("~0", "~")]
    return root


def _properties(value: Any, asked: Any, schema: Any, root: Any) -> bool:
    return not isinstance(value, dict) or all(fits(value[k], asked[k], root) for k in asked if k in value)


def _pattern_properties(value: Any, asked: Any, schema: Any, root: Any) -> bool:
    if not isinstance(value, dict):
        return True
    return all(fits(v, one, root) for pattern, one in asked.items() for k, v in value.items() if re.search(pattern, k))


def _additional(value: Any, asked: Any, schema: Any, root: Any) -> bool:
    if not isinstance(value, dict):
        return True
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    rest = [k for k in value if k not in known and not any(re.search(p, k) for p in patterns)]
    return all(fits(value[k], asked, root) for k in rest)


def _items(value: Any, asked: Any, schema: Any, root: Any) -> bool:
    first = len(schema.get("prefixItems", ()))
    return not isinstance(value, list) or all(fits(one, asked, root) for one in value[first:])


def _prefix(value: Any, asked: Any, schema: Any, root: Any) -> bool:
    return not isinstance(value, list) or all(fits(a, b, root) for a, b in zip(value, asked, strict=False))


def _format(value: Any, asked: str, schema: Any, root: Any) -> bool:
    if not isinstance(value, str):
        return True
    try:
        return _FORMATS[asked](value)
    except ValueError:
        return False


def _date(text: str) -> bool:
    """Of the compiler's syntax, which knows no length of months."""
    year, month, day = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", text).groups()  # type: ignore[union-attr]
    return int(year) >= 0 and 1 <= int(month) <= 12 and 1 <= int(day) <= 31


_TIME = r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)"
_FORMATS: dict[str, Any] = {
    "date": lambda text: bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text)) and _date(text),
    "time": lambda text: bool(re.fullmatch(_TIME, text)),
    "date-time": lambda text: bool(re.fullmatch(rf"\d{{4}}-\d\d-\d\d[Tt ]{_TIME}", text)) and _date(text[:10]),
    "duration": lambda text: bool(
        re.fullmatch(r"P(?!$)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?!$)(\d+H)?(\d+M)?(\d+S)?)?)", text)
    ),
    "email": lambda text: bool(re.fullmatch(r'("[^"\r\n]*(\\.[^"]*)*"|[^@\s]+)@\S+', text, re.S)),
    "hostname": lambda text: all(re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)", one) for one in text.split(".")),
    "ipv4": lambda text: bool(ipaddress.IPv4Address(text)),
    "ipv6": lambda text: bool(ipaddress.IPv6Address(text)) or True,
    "uuid": lambda text: str(uuid.UUID(text)) == text.lower(),
    "uri": lambda text: bool(re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]*", text)),
    "uri-reference": lambda text: bool(re.fullmatch(r"[!-~]*", text)) and '"' not in text,
    "json-pointer": lambda text: bool(re.fullmatch(r"(/([^/~]|~[01])*)*", text, re.S)),
}

_CHECKS: dict[str, Any] = {
    "type": lambda v, a, s, r: any(_is(v, one) for one in (a if isinstance(a, list) else [a])),
    "enum": lambda v, a, s, r: any(same(v, one) for one in a),
    "const": lambda v, a, s, r: same(v, a),
    "$ref": lambda v, a, s, r: fits(v, _resolve(a, r), r),
    "anyOf": lambda v, a, s, r: any(fits(v, one, r) for one in a),
    "oneOf": lambda v, a, s, r: sum(fits(v, one, r) for one in a) == 1,
    "allOf": lambda v, a, s, r: all(fits(v, one, r) for one in a),
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "propertyNames": lambda v, a, s, r: not isinstance(v, dict) or all(fits(k, a, r) for k in v),
    "required": lambda v, a, s, r: not isinstance(v, dict) or all(k in v for k in a),
    "minProperties": lambda v, a, s, r: not isinstance(v, dict) or len(v) >= a,
    "maxProperties": lambda v, a, s, r: not isinstance(v, dict) or len(v) <= a,
    "items": _items,
    "prefixItems": _prefix,
    "minItems": lambda v, a, s, r: not isinstance(v, list) or len(v) >= a,
    "maxItems": lambda v, a, s, r: not isinstance(v, list) or len(v) <= a,
    "minLength": lambda v, a, s, r: not isinstance(v, str) or len(v) >= a,
    "maxLength": lambda v, a, s, r: not isinstance(v, str) or len(v) <= a,
    "pattern": lambda v, a, s, r: not isinstance(v, str) or bool(re.search(a, v)),
    "format": _format,
    "minimum": lambda v, a, s, r: not _number(v) or v >= a,
    "maximum": lambda v, a, s, r: not _number(v) or v <= a,
    "exclusiveMinimum": lambda v, a, s, r: not _number(v) or v > a,
    "exclusiveMaximum": lambda v, a, s, r: not _number(v) or v < a,
    "multipleOf": lambda v, a, s, r: not _number(v) or v % a == 0,
}
