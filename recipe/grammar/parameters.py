"""The parameters of a tool, as its markup writes them: a value is raw text or JSON, and its schema says which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..json_text import JsonValue

ANY_OTHER: JsonValue = {"type": ["number", "boolean", "null", "object", "array"]}
"""Any JSON value but a string."""


@dataclass(frozen=True, slots=True)
class Text:
    """Values that are strings, written raw: any text when `choices` is None."""

    choices: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a tool.

    Args:
        text: what strings it takes; None: none.
        others: JSON Schemas of what else it takes, written as JSON.
    """

    name: str
    required: bool
    text: Text | None
    others: tuple[JsonValue, ...]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters in the order of the schema. `open`: others, of any name and value, may follow."""

    known: tuple[Parameter, ...]
    open: bool


def read_parameters(schema: JsonValue) -> Parameters:
    """What a tool's JSON Schema says of its parameters.

    A tool that declares none takes any, unless its schema excludes additional properties; beside declared ones
    nothing else is offered.
    """
    fields = schema if isinstance(schema, dict) else {}
    properties = fields.get("properties")
    required = fields.get("required")
    names = required if isinstance(required, list) else []
    known = []
    for name, value in properties.items() if isinstance(properties, dict) else ():
        text, others = _split(value, fields)
        known.append(Parameter(name, name in names, text, others))
    return Parameters(tuple(known), open=not known and fields.get("additionalProperties", True) is not False)


def _split(schema: JsonValue, root: Mapping[str, JsonValue]) -> tuple[Text | None, tuple[JsonValue, ...]]:
    """The strings that a schema allows, and schemas of all else that it allows."""
    texts: list[Text] = []
    others: list[JsonValue] = []
    for part in _alternatives(schema, root, set()):
        if isinstance(part, Text):
            texts.append(part)
        else:
            others.append(part)
    if not texts:
        return None, tuple(others)
    if any(text.choices is None for text in texts):
        return Text(), tuple(others)
    return Text(tuple(dict.fromkeys(choice for text in texts for choice in text.choices or ()))), tuple(others)


def _alternatives(schema: JsonValue, root: Mapping[str, JsonValue], seen: set[str]) -> Iterator[Text | JsonValue]:
    if not isinstance(schema, dict):
        if schema is not False:
            yield from (Text(), ANY_OTHER)
        return
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    members = schema.get("anyOf", schema.get("oneOf"))
    kind = schema.get("type")
    if isinstance(values, list):
        yield from _values(values)
    elif isinstance(reference := schema.get("$ref"), str):
        if reference not in seen:  # what it means is among the alternatives already
            seen.add(reference)
            target = _resolve(reference, root)
            yield from _alternatives(True if target is None else target, root, seen)
    elif isinstance(members, list) and kind is None:
        for member in members:
            yield from _alternatives(member, root, seen)
    elif kind is None:
        yield from (Text(), ANY_OTHER)
    else:
        kinds = kind if isinstance(kind, list) else [kind]
        if "string" in kinds:
            yield Text()
        if rest := [item for item in kinds if item != "string"]:
            yield _self_contained({**schema, "type": rest[0] if len(rest) == 1 else rest}, root)


def _values(items: list[JsonValue]) -> Iterator[Text | JsonValue]:
    if texts := tuple(item for item in items if isinstance(item, str)):
        yield Text(texts)
    rest: list[JsonValue] = [item for item in items if not isinstance(item, str)]
    if rest:
        yield {"enum": rest}


def _resolve(reference: str, root: Mapping[str, JsonValue]) -> JsonValue:
    """The part of the whole schema that a reference means; None when it leads elsewhere."""
    target: JsonValue = dict(root)
    if not reference.startswith("#"):
        return None
    for step in reference[1:].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        target = target.get(step) if isinstance(target, dict) else None
    return target


def _self_contained(schema: dict[str, JsonValue], root: Mapping[str, JsonValue]) -> JsonValue:
    """A part of the whole schema with what its references mean."""
    if "$ref" not in str(schema):
        return schema
    definitions = {name: root[name] for name in ("$defs", "definitions", "properties") if name in root}
    return {**definitions, **schema}
