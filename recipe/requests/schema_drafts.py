"""The drafts of JSON Schema: which keywords each has, and what their values may be.

The meta-schemas are written down as tables, keyword by keyword, since requests bring many schemas and a general
validator takes milliseconds for each. Sources: the JSON Schema drafts 4, 6, 7, 2019-09 and 2020-12, core and
validation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..json_text import JsonValue
from .regex_check import is_ecma_regex

Finding: TypeAlias = "str | None"
Check: TypeAlias = Callable[[JsonValue, "Draft"], Finding]


class SchemaError(ValueError):
    """A value is not a JSON Schema."""


# What a keyword's value may be


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _string(value: JsonValue, draft: Draft) -> Finding:
    return None if isinstance(value, str) else "a string is expected"


def _matching(pattern: str) -> Check:
    compiled = re.compile(pattern)

    def check(value: JsonValue, draft: Draft) -> Finding:
        if not isinstance(value, str):
            return "a string is expected"
        return None if compiled.search(value) else f"{value!r} does not match {pattern}"

    return check


def _regex(value: JsonValue, draft: Draft) -> Finding:
    if not isinstance(value, str):
        return "a string is expected"
    return None if is_ecma_regex(value) else f"{value!r} is not a regular expression"


def _boolean(value: JsonValue, draft: Draft) -> Finding:
    return None if isinstance(value, bool) else "a boolean is expected"


def _anything(value: JsonValue, draft: Draft) -> Finding:
    return None


def _array(value: JsonValue, draft: Draft) -> Finding:
    return None if isinstance(value, list) else "an array is expected"


def _number(value: JsonValue, draft: Draft) -> Finding:
    return None if _is_number(value) else "a number is expected"


def _positive(value: JsonValue, draft: Draft) -> Finding:
    return None if _is_number(value) and value > 0 else "a number above 0 is expected"  # type: ignore[operator]


def _count(value: JsonValue, draft: Draft) -> Finding:
    if isinstance(value, float) and value.is_integer() and draft.whole_doubles:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return None
    return "an integer of at least 0 is expected"


def _strings(minimum: int) -> Check:
    def check(value: JsonValue, draft: Draft) -> Finding:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            return "an array of strings is expected"
        if len(set(map(str, value))) < len(value):
            return "the strings are not unique"
        return None if len(value) >= minimum else "the array is empty"

    return check


def _type(value: JsonValue, draft: Draft) -> Finding:
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and names and all(isinstance(name, str) and name in _TYPES for name in names):
        return None if len(set(map(str, names))) == len(names) else "the types are not unique"
    return f"{value!r} is no type, and no list of types"


_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


def _schema(value: JsonValue, draft: Draft) -> Finding:
    return check_keywords(value, draft)


def _schemas(value: JsonValue, draft: Draft) -> Finding:
    if not isinstance(value, list) or not value:
        return "an array with at least one schema is expected"
    return next((problem for item in value if (problem := check_keywords(item, draft))), None)


def _schema_map(value: JsonValue, draft: Draft) -> Finding:
    if not isinstance(value, dict):
        return "an object is expected"
    return next((problem for item in value.values() if (problem := check_keywords(item, draft))), None)


def _regex_map(value: JsonValue, draft: Draft) -> Finding:
    if isinstance(value, dict) and not all(map(is_ecma_regex, value)):
        return "the keys have to be regular expressions"
    return _schema_map(value, draft)


def _either(*checks: Check) -> Check:
    """A value that passes one of the checks."""

    def check(value: JsonValue, draft: Draft) -> Finding:
        findings = [check(value, draft) for check in checks]
        return None if None in findings else findings[-1]

    return check


def _map_of(item: Check) -> Check:
    def check(value: JsonValue, draft: Draft) -> Finding:
        if not isinstance(value, dict):
            return "an object is expected"
        return next((problem for element in value.values() if (problem := item(element, draft))), None)

    return check


# The drafts


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft: its keywords, and what else sets it apart.

    Args:
        boolean_schemas: true and false are schemas.
        reference_alone: siblings of `$ref` mean nothing.
        whole_doubles: 1.0 is an integer.
    """

    uri: str
    keywords: Mapping[str, Check]
    id_keyword: str = "$id"
    boolean_schemas: bool = True
    reference_alone: bool = False
    whole_doubles: bool = True


_VALIDATION: dict[str, Check] = {
    "$schema": _string,
    "$ref": _string,
    "title": _string,
    "description": _string,
    "default": _anything,
    "multipleOf": _positive,
    "maximum": _number,
    "minimum": _number,
    **dict.fromkeys(
        ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"),
        _count,
    ),
    "pattern": _regex,
    "uniqueItems": _boolean,
    "required": _strings(0),
    "type": _type,
    "format": _string,
    **dict.fromkeys(("definitions", "properties"), _schema_map),
    "patternProperties": _regex_map,
    "additionalProperties": _schema,
    "dependencies": _map_of(_either(_schema, _strings(0))),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _schemas),
    "not": _schema,
}
_SINCE_6: dict[str, Check] = {
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum"), _number),
    "$id": _string,
    "examples": _array,
    **dict.fromkeys(("contains", "propertyNames"), _schema),
    "const": _anything,
    "enum": _array,
    **dict.fromkeys(("contentMediaType", "contentEncoding"), _string),
}
_SINCE_7: dict[str, Check] = {
    "$comment": _string,
    **dict.fromkeys(("readOnly", "writeOnly"), _boolean),
    **dict.fromkeys(("if", "then", "else"), _schema),
}
_SINCE_2019: dict[str, Check] = {
    "$id": _matching(r"^[^#]*#?$"),
    "$anchor": _matching(r"^[A-Za-z_][-A-Za-z0-9._]*$"),
    "$vocabulary": _map_of(_boolean),
    **dict.fromkeys(("$defs", "dependentSchemas"), _schema_map),
    "dependentRequired": _map_of(_strings(0)),
    **dict.fromkeys(("maxContains", "minContains"), _count),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties", "contentSchema"), _schema),
    "deprecated": _boolean,
    "$recursiveRef": _string,
}
_ITEMS_OR_TUPLE: dict[str, Check] = {"items": _either(_schema, _schemas), "additionalItems": _schema}

_DRAFT_4 = Draft(
    "http://json-schema.org/draft-04/schema",
    {
        **_VALIDATION,
        **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum"), _boolean),
        "id": _string,
        "items": _either(_schema, _schemas),
        "additionalItems": _either(_boolean, _schema),
        "additionalProperties": _either(_boolean, _schema),
        "required": _strings(1),
        "dependencies": _map_of(_either(_schema, _strings(1))),
        "enum": _array,
    },
    id_keyword="id",
    boolean_schemas=False,
    reference_alone=True,
    whole_doubles=False,
)
_DRAFT_6 = Draft(
    "http://json-schema.org/draft-06/schema", {**_VALIDATION, **_SINCE_6, **_ITEMS_OR_TUPLE}, reference_alone=True
)
_DRAFT_7 = Draft(
    "http://json-schema.org/draft-07/schema",
    {**_VALIDATION, **_SINCE_6, **_SINCE_7, **_ITEMS_OR_TUPLE},
    reference_alone=True,
)
_DRAFT_2019 = Draft(
    "https://json-schema.org/draft/2019-09/schema",
    {
        **_VALIDATION,
        **_SINCE_6,
        **_SINCE_7,
        **_SINCE_2019,
        **_ITEMS_OR_TUPLE,
        "$recursiveAnchor": _boolean,
    },
)
_DRAFT_2020 = Draft(
    "https://json-schema.org/draft/2020-12/schema",
    {
        **_VALIDATION,
        **_SINCE_6,
        **_SINCE_7,
        **_SINCE_2019,
        "items": _schema,
        "prefixItems": _schemas,
        "$dynamicRef": _string,
        **dict.fromkeys(("$dynamicAnchor", "$recursiveAnchor"), _matching(r"^[A-Za-z_][-A-Za-z0-9._]*$")),
    },
)
_DRAFTS = {draft.uri: draft for draft in (_DRAFT_4, _DRAFT_6, _DRAFT_7, _DRAFT_2019, _DRAFT_2020)}


def draft_of(schema: JsonValue) -> Draft:
    if not isinstance(schema, dict) or "$schema" not in schema:
        return _DRAFT_2020
    uri = schema["$schema"]
    if not isinstance(uri, str):
        raise SchemaError("$schema: a string is expected")
    if not uri.removesuffix("#"):
        return _DRAFT_2020
    if uri.removesuffix("#") not in _DRAFTS:
        raise SchemaError(f"$schema: {uri!r} is no draft that is known; known: {', '.join(_DRAFTS)}")
    return _DRAFTS[uri.removesuffix("#")]


def check_keywords(schema: JsonValue, draft: Draft) -> Finding:
    if isinstance(schema, bool) and draft.boolean_schemas:
        return None
    if not isinstance(schema, dict):
        return f"{schema!r} is neither an object nor a boolean" if draft.boolean_schemas else f"{schema!r} is no object"
    for keyword, value in schema.items():
        check = draft.keywords.get(keyword)
        if check is not None and (problem := check(value, draft)):
            return f"{keyword}: {problem}"
    if not draft.boolean_schemas:
        for keyword, needed in (("exclusiveMaximum", "maximum"), ("exclusiveMinimum", "minimum")):
            if keyword in schema and needed not in schema:
                return f"{keyword}: {needed} is missing"
    return None
