"""Schemas by what they use, sixteen and more of each class, made by rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Schema = Any
INT: Schema = {"type": "integer", "minimum": 0, "maximum": 99}
WORD: Schema = {"type": "string", "maxLength": 6}
LEAVES: list[Schema] = [INT, WORD, {"type": "boolean"}, {"type": "null"}]


def whole(**properties: Schema) -> Schema:
    """An object with all of these."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def some(**properties: Schema) -> Schema:
    """An object with any of these."""
    return {"type": "object", "properties": properties}


def few(items: Schema, least: int = 0, most: int = 3) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def recursion() -> Iterator[Schema]:
    for leaf in LEAVES:
        node = {"$ref": "#/$defs/node"}
        yield {"$ref": "#/$defs/node", "$defs": {"node": whole(value=leaf) | some(value=leaf, next=node)}}
        tree = some(value=leaf, children=few(node, 0, 2)) | {"required": ["value"]}
        yield {"type": "array", "items": node, "maxItems": 2, "$defs": {"node": tree}}
        yield {"anyOf": [leaf, few({"$ref": "#"}, 0, 2)]}
        even, odd = {"$ref": "#/$defs/even"}, {"$ref": "#/$defs/odd"}
        yield whole(root=even) | {"$defs": {"even": some(leaf=leaf, odd=odd), "odd": some(leaf=leaf, even=even)}}


def enums() -> Iterator[Schema]:
    values: list[list[Any]] = [
        ["a", "b"], ["a", "ab", "abc"], [1, 2, 30], [0, -1, 1.5], [True, None], ["", " ", "  x"], [[1, 2], []],
        [{"a": 1}, {"b": [None]}], ['say "no"', "back\\slash", "line\nend"],
    ]  # fmt: skip
    for one in values:
        yield {"enum": one}
        yield whole(kind={"enum": one}, fixed={"const": one[-1]})
    yield few({"type": "string", "enum": ["x", "y"]}, 1)


def unicode() -> Iterator[Schema]:
    for text in ("ß", "é́", "日本語", "😀", "\u2028", "À la carte", "\u200b", "ﬁ"):
        yield {"const": text}
        yield whole(**{text: INT, "plain": {"enum": [text, text * 2]}})
    yield {"type": "string", "pattern": "^[à-ü]{1,3}$"}
    yield {"type": "string", "minLength": 2, "maxLength": 4}


def big_numbers() -> Iterator[Schema]:
    for power in (15, 31, 32, 53, 62):
        yield {"const": 2**power + 1}
        yield {"type": "integer", "minimum": 2**power - 3, "maximum": 2**power + 3}
        yield {"enum": [-(2**power), 2**power - 1]}
    yield {"const": 2**63 - 1}
    yield {"const": -(2**63)}
    yield {"type": "integer", "exclusiveMinimum": 10**12, "exclusiveMaximum": 10**12 + 10}


def nested_arrays() -> Iterator[Schema]:
    for leaf in LEAVES:
        yield few(few(leaf, 1, 2), 1, 2)
        yield few(few(few(leaf, 0, 1), 0, 2), 0, 2)
        yield {"type": "array", "prefixItems": [leaf, few(leaf, 2, 2)], "items": False, "minItems": 2}
        yield {"type": "array", "prefixItems": [leaf], "items": few(INT, 1, 1), "minItems": 1, "maxItems": 3}


def pattern_properties() -> Iterator[Schema]:
    for leaf in LEAVES:
        yield {"type": "object", "patternProperties": {"^x_[a-z]{1,3}$": leaf}, "maxProperties": 2}
        yield {"type": "object", "patternProperties": {"^a[0-9]$": leaf, "^b[0-9]$": INT}, "maxProperties": 3}
        yield whole(name=leaf) | {"patternProperties": {"^k[0-9]$": leaf}}
        names = {"pattern": "^[a-f]{2}$"}
        yield {"type": "object", "propertyNames": names, "additionalProperties": leaf, "maxProperties": 2}


def references() -> Iterator[Schema]:
    for leaf in LEAVES:
        yield {"$ref": "#/$defs/a", "$defs": {"a": leaf}}
        yield whole(x={"$ref": "#/definitions/one~1two"}, y=leaf) | {"definitions": {"one/two": few(leaf)}}
        yield whole(first=leaf, again={"$ref": "#/properties/first"})
        chain = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}, "c": whole(v=leaf)}
        yield few({"$ref": "#/$defs/a"}, 1, 2) | {"$defs": chain}


def any_of() -> Iterator[Schema]:
    for i, leaf in enumerate(LEAVES):
        other = LEAVES[(i + 1) % len(LEAVES)]
        yield {"anyOf": [leaf, other]}
        yield {"oneOf": [few(leaf, 1, 2), whole(v=other)]}
        yield {"oneOf": [whole(k={"const": "a"}, v=leaf), whole(k={"const": "b"}, v=other)]}
        yield few({"anyOf": [whole(a=leaf), whole(b=other), {"allOf": [leaf]}]}, 1, 2)


FORMATS = (
    "date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "uri-reference",
    "json-pointer",
)  # fmt: skip


def formats() -> Iterator[Schema]:
    for name in FORMATS:
        yield {"type": "string", "format": name}
    for name in ("date", "uuid", "ipv4", "time"):
        yield whole(at={"type": "string", "format": name}, n=INT)


def bounds() -> Iterator[Schema]:
    for low, high in ((0, 9), (-5, 5), (17, 1234), (-1000, -999), (99, 100)):
        yield {"type": "integer", "minimum": low, "maximum": high}
        yield {"type": "integer", "exclusiveMinimum": low - 1, "exclusiveMaximum": high + 1}
        yield {"type": "number", "minimum": low, "maximum": high}
    yield {"type": "integer", "minimum": 7, "maximum": 90, "multipleOf": 7}
    yield few(INT, 2, 2)
    yield {"type": "string", "minLength": 3, "maxLength": 3}
    yield whole(a=INT) | {"minProperties": 1, "maxProperties": 1}


def patterns() -> Iterator[Schema]:
    for text in (
        "^[a-c]{2,4}$", r"^\d{3}-\d{2}$", "^(?:red|green)$", "^x?y+z{1,2}$", r"^\w{1,5}$", "[0-9]", "^ab", "^[a-z]?z$",
        "a|b", r"^[^a-z]{2}$", r"^.{3}$", r"^[+-]?[0-9]{1,3}(?:\.[0-9]{1,2})?$", r"^\S{2}$", "^$", r"^[A-Z][a-z]{0,3}$",
        "^é{1,2}$",
    ):  # fmt: skip
        yield {"type": "string", "pattern": text}


def objects() -> Iterator[Schema]:
    for leaf in LEAVES:
        yield some(a=leaf, b=INT, c=leaf)
        yield some(a=leaf, b=INT, c=leaf) | {"required": ["b"]}
        yield some(a=INT) | {"additionalProperties": leaf, "maxProperties": 2}
        yield some(a=leaf, b=leaf, c=leaf) | {"minProperties": 2, "maxProperties": 2}
        yield whole(a=whole(b=whole(c=leaf)))


CLASSES = {
    one.__name__: list(one())
    for one in (
        recursion, enums, unicode, big_numbers, nested_arrays, pattern_properties, references, any_of, formats, bounds,
        patterns, objects,
    )
}  # fmt: skip
