"""Strict schemas: a JSON Schema is read into a small type system and written back, what it has no place for left out.

`type` comes before `anyOf`, which comes before `$ref`. Members of `anyOf` need a `type` of one word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from ..errors import ConversionError
from ..json_text import JsonValue
from .body import (
    Field,
    Reading,
    ShapeError,
    array,
    boolean,
    choice,
    mapping,
    number,
    optional,
    record,
    required,
    signed,
    string,
    tagged,
)

_Object: TypeAlias = dict[str, JsonValue]
Write: TypeAlias = Callable[[], _Object]
"""Checks the rules of a schema that was read, and writes it in its strict form."""

EMPTY_PARAMETERS: JsonValue = {"type": "object", "properties": {}, "additionalProperties": False, "required": []}
"""Strict form of parameters that a tool does not give."""


def strict_parameters(schema: JsonValue) -> JsonValue:
    """The strict form of a tool's parameters; an object without properties may be the whole.

    Raises:
        ConversionError: the schema cannot be read, or breaks a rule of strict schemas.
    """
    write = _read(schema, "Invalid tool parameters schema : ")
    strict = write(allow_empty=True) if isinstance(write, _ObjectSchema | _AnyOfSchema) else write()
    if not isinstance(write, _ObjectSchema):  # what is wrong inside comes first
        raise ConversionError("The top level of the function parameters schema must be an object.")
    return strict


def strict_format(schema: JsonValue) -> JsonValue:
    """The strict form of a response format's schema. Raises `ConversionError` as `strict_parameters` does."""
    write = _read(schema, "Invalid json schema: ")
    strict = write()
    if not isinstance(write, _ObjectSchema):
        raise ConversionError("The top level of the json schema must be an object.")
    return strict


def _read(schema: JsonValue, prefix: str) -> Write:
    try:
        return _schema(schema, Reading())
    except ShapeError as error:
        raise ConversionError(f"{prefix}{error}") from None


def _schema(value: JsonValue, reading: Reading) -> Write:
    fields = value if isinstance(value, dict) else {}
    if "type" in fields:
        return (_TYPE_LIST if isinstance(fields["type"], list) else _TYPED)(value, reading)
    if "anyOf" in fields:
        return _ANY_OF(value, reading)
    if "$ref" in fields:
        return _REFERENCE(value, reading)
    raise ShapeError("one of `type`, `anyOf`, `$ref` field is required")


# What a schema becomes


@dataclass(frozen=True, slots=True)
class _ObjectSchema:
    properties: dict[str, Write] | None
    additional: bool | None
    required: list[str] | None
    description: str | None

    def __call__(self, *, allow_empty: bool = False) -> _Object:
        if not self.properties and not allow_empty:
            raise ConversionError("An object with no properties is not allowed.")
        properties: _Object = {name: write() for name, write in (self.properties or {}).items()}
        if self.required is not None:
            _check_required(self.required, properties)
        if self.additional:
            raise ConversionError("additionalProperties should not be true")
        return _without_none(
            type="object",
            properties=properties,
            additionalProperties=False,
            required=list(properties),
            description=self.description,
        )


def _check_required(required: list[str], properties: _Object) -> None:
    seen: set[str] = set()
    for name in required:
        if name not in properties:
            raise ConversionError(f"Required property '{name}' not found in object")
        if name in seen:
            raise ConversionError(f"Duplicate required property '{name}'")
        seen.add(name)
    if len(seen) < len(properties):
        raise ConversionError("Required properties must match all properties in the object")


def _without_none(**fields: JsonValue) -> _Object:
    return {name: value for name, value in fields.items() if value is not None}


def _leaf(kind: str, **fields: JsonValue) -> Write:
    return partial(_without_none, type=kind, **fields)


def _array_schema(items: Write, description: str | None) -> Write:
    return lambda: _without_none(type="array", items=items(), description=description)


@dataclass(frozen=True, slots=True)
class _AnyOfSchema:
    choices: list[Write]
    description: str | None

    def __call__(self, *, allow_empty: bool = False) -> _Object:
        choices: list[JsonValue] = [
            write(allow_empty=allow_empty) if isinstance(write, _ObjectSchema) else write() for write in self.choices
        ]
        return _without_none(anyOf=choices, description=self.description)


def _any_of(anyOf: list[Write], description: str | None) -> Write:
    return _AnyOfSchema(anyOf, description)


def _type_list(type: list[JsonValue], description: str | None) -> Write:
    return lambda: _without_none(type=type, description=description)


def _object_schema(
    properties: dict[str, Write] | None,
    additionalProperties: bool | None,
    required: list[str] | None,
    description: str | None,
) -> Write:
    return _ObjectSchema(properties, additionalProperties, required, description)


# How a schema is read

_DESCRIPTION = optional(string)
_FORMATS = choice("email", "hostname", "ipv4", "ipv6", "uuid")


def _numeric(kind: str, read: Field) -> Callable[[JsonValue, Reading], Write]:
    names = ("const", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
    return record(partial(_leaf, kind), description=_DESCRIPTION, **dict.fromkeys(names, read))


_TYPED = tagged(
    "type",
    {
        "object": record(
            _object_schema,
            properties=optional(mapping(_schema)),
            additionalProperties=optional(boolean),
            required=optional(array(string)),
            description=_DESCRIPTION,
        ),
        "string": record(
            partial(_leaf, "string"),
            description=_DESCRIPTION,
            pattern=optional(string),
            format=optional(_FORMATS),
            enum=optional(array(string)),
        ),
        "number": _numeric("number", optional(number)),
        "integer": _numeric("integer", optional(signed(64))),
        "boolean": record(partial(_leaf, "boolean"), description=_DESCRIPTION),
        "array": record(_array_schema, items=required(_schema), description=_DESCRIPTION),
        "null": record(partial(_leaf, "null"), description=_DESCRIPTION),
    },
)
_TYPE_LIST = record(
    _type_list,
    type=required(array(choice("string", "number", "integer", "boolean", "null"))),
    description=_DESCRIPTION,
)
_ANY_OF = record(_any_of, anyOf=required(array(_TYPED)), description=_DESCRIPTION)
_REFERENCE = record(partial(partial, _without_none), **{"$ref": required(string)})
