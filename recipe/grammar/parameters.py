"""The parameters of a tool, as its markup writes them: a value is raw text or JSON, and its schema says which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import InvalidArgumentError
from ..json_text import JsonValue

ANY_OTHER: JsonValue = {"type": ["number", "boolean", "null", "object", "array"]}
"""Any JSON value but a string."""

MAX_EXPANDED = 16 << 20
"""What the references of one tool's parameters may grow to, in characters, unless the caller says otherwise. Each
parameter is a schema by itself, with a copy of the definitions that it needs: a request of a megabyte could ask for a
grammar of gigabytes. Parameters that need one another's definitions take about the square of the tool's size, 14 MB for
a tool of 35 KB with 400 of them."""
_HOLDERS = ("$defs", "definitions", "properties")
_Place: TypeAlias = tuple[str, str]  # one of `_HOLDERS`, and a name in it
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


def read_parameters(schema: JsonValue, max_expanded: int = MAX_EXPANDED) -> Parameters:
    """What a tool's JSON Schema says of its parameters.

    A tool that declares none takes any, unless its schema excludes additional properties; beside declared ones
    nothing else is offered.

    Args:
        max_expanded: characters that references may grow to.

    Raises:
        InvalidArgumentError: they grow to more.
    """
    fields = schema if isinstance(schema, dict) else {}
    properties = fields.get("properties")
    required = fields.get("required")
    names = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    reader = _Reader(fields, max_expanded)
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

    def __init__(self, root: dict[str, JsonValue], max_expanded: int) -> None:
        self.root = root
        self.max_expanded = max_expanded
        self.needs: dict[_Place, tuple[int, frozenset[_Place] | None]] = {}
        """Of definitions that were needed: their size, and what they refer to themselves."""
        self.expanded = 0

    def _count(self, size: int) -> None:
        self.expanded += size
        if self.expanded > self.max_expanded:
            raise InvalidArgumentError(
                f"the references in a tool's parameters grow to more than {self.max_expanded} characters"
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
        size, open = _needs(schema)
        self._count(size)
        needed: dict[_Place, JsonValue] = {}
        pending = self._all() if open is None else list(open)
        while pending:
            place = pending.pop()
            holder, name = place
            held = self.root.get(holder)
            if place in needed or not isinstance(held, dict) or name not in held:
                continue
            needed[place] = held[name]
            if place not in self.needs:
                self.needs[place] = _needs(held[name])
            size, more = self.needs[place]
            self._count(size + len(name))
            pending += self._all() if more is None else more
        definitions: dict[str, JsonValue] = {}
        for holder in _HOLDERS:
            chosen = self.root.get(holder)
            if isinstance(chosen, dict) and any(place[0] == holder for place in needed):
                definitions[holder] = {name: value for name, value in chosen.items() if (holder, name) in needed}
        return {**definitions, **schema}

    def _all(self) -> list[_Place]:
        """Every definition: a reference may lead to the whole."""
        found: list[_Place] = []
        for holder in _HOLDERS:
            held = self.root.get(holder)
            found += [(holder, name) for name in held] if isinstance(held, dict) else []
        return found


def _needs(schema: JsonValue) -> tuple[int, frozenset[_Place] | None]:
    """About the characters of a part, and the definitions that it refers to; None: possibly all."""
    size = 0
    found: set[_Place] = set()
    takes_all = False
    open = [schema]
    while open:
        part = open.pop()
        if isinstance(part, dict):
            size += sum(len(name) + 4 for name in part) + 2
            reference = part.get("$ref")
            if isinstance(reference, str):
                _, holder, name = (*_steps(reference)[:3], "", "", "")[:3]
                takes_all |= not (holder in _HOLDERS and name)
                found.add((holder, name))
            open += part.values()
        elif isinstance(part, list):
            size += len(part) + 2
            open += part
        else:
            size += len(part) + 2 if isinstance(part, str) else 6
    return size, None if takes_all else frozenset(found)


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
    for step in _steps(reference)[1:]:
        target = target.get(step) if isinstance(target, dict) else None
    return target


def _steps(reference: str) -> list[str]:
    """What a reference begins with, and the steps of the pointer in it."""
    return [step.replace("~1", "/").replace("~0", "~") for step in reference.split("/")]
