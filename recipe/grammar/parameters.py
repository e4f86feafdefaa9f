"""The parameters of a tool, as its markup writes them: a value is raw text or JSON, and its schema says which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import InvalidArgumentError
from ..json_text import JsonValue

ANY_OTHER: JsonValue = {"type": ["number", "boolean", "null", "object", "array"]}
"""Any JSON value but a string."""

MAX_EXPANDED = 4 << 20
"""What the references of one tool's parameters may grow to, in characters. Each parameter is a schema by itself, with a
copy of the definitions, so that a small request could otherwise make a grammar of gigabytes."""
_PART = 64  # characters that a step along a reference or an alternative counts for


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

    Raises:
        InvalidArgumentError: its references grow to more than `MAX_EXPANDED`.
    """
    fields = schema if isinstance(schema, dict) else {}
    properties = fields.get("properties")
    required = fields.get("required")
    names = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    reader = _Reader(fields)
    known = []
    for name, value in properties.items() if isinstance(properties, dict) else ():
        text, others = reader.split(value)
        known.append(Parameter(name, name in names, text, others))
    return Parameters(tuple(known), open=not known and fields.get("additionalProperties", True) is not False)


class _Reader:
    """Reads the parameters of one tool.

    Args:
        root: the whole schema, which references refer to.
    """

    def __init__(self, root: dict[str, JsonValue]) -> None:
        self.root = root
        self.definitions: dict[str, JsonValue] = {
            name: root[name] for name in ("$defs", "definitions", "properties") if name in root
        }
        self.definitions_size = len(str(self.definitions))
        self.expanded = 0

    def _count(self, size: int) -> None:
        self.expanded += size
        if self.expanded > MAX_EXPANDED:
            raise InvalidArgumentError(
                f"the references in a tool's parameters grow to more than {MAX_EXPANDED} characters"
            )

    def split(self, schema: JsonValue) -> tuple[Text | None, tuple[JsonValue, ...]]:
        """The strings that a schema allows, and schemas of all else that it allows."""
        texts: list[Text] = []
        others: list[JsonValue] = []
        for part in self._alternatives(schema):
            if isinstance(part, Text):
                texts.append(part)
            else:
                others.append(part)
        if not texts:
            return None, tuple(others)
        if any(text.choices is None for text in texts):
            return Text(), tuple(others)
        return Text(tuple(dict.fromkeys(choice for text in texts for choice in text.choices or ()))), tuple(others)

    def _alternatives(self, schema: JsonValue) -> Iterator[Text | JsonValue]:
        open, seen = [schema], set[str]()  # no recursion: chains of references may be long
        while open:
            self._count(_PART)
            part = open.pop()
            if not isinstance(part, dict):
                if part is not False:
                    yield from (Text(), ANY_OTHER)
                continue
            values = [part["const"]] if "const" in part else part.get("enum")
            members = part.get("anyOf", part.get("oneOf"))
            kind = part.get("type")
            if isinstance(values, list):
                yield from _values(values)
            elif isinstance(reference := part.get("$ref"), str):
                if reference not in seen:  # what it means is among the alternatives already
                    seen.add(reference)
                    target = _resolve(reference, self.root)
                    open.append(True if target is None else target)
            elif isinstance(members, list) and kind is None:
                open += reversed(members)
            elif kind is None:
                yield from (Text(), ANY_OTHER)
            else:
                yield from self._typed(part, kind if isinstance(kind, list) else [kind])

    def _typed(self, schema: dict[str, JsonValue], kinds: list[JsonValue]) -> Iterator[Text | JsonValue]:
        if "string" in kinds:
            yield Text()
        if rest := [item for item in kinds if item != "string"]:
            yield self._self_contained({**schema, "type": rest[0] if len(rest) == 1 else rest})

    def _self_contained(self, schema: dict[str, JsonValue]) -> JsonValue:
        """A part of the whole schema with what its references mean."""
        text = str(schema)
        self._count(len(text))
        if "$ref" not in text:
            return schema
        self._count(self.definitions_size)
        return {**self.definitions, **schema}


def _values(items: list[JsonValue]) -> Iterator[Text | JsonValue]:
    if texts := tuple(item for item in items if isinstance(item, str)):
        yield Text(texts)
    rest: list[JsonValue] = [item for item in items if not isinstance(item, str)]
    if rest:
        yield {"enum": rest}


def _resolve(reference: str, root: dict[str, JsonValue]) -> JsonValue:
    """The part of the whole schema that a reference means; None when it leads elsewhere."""
    target: JsonValue = root
    if not reference.startswith("#"):
        return None
    for step in reference[1:].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        target = target.get(step) if isinstance(target, dict) else None
    return target
