"""JSON Schemas: which of their features output can be held to, and a walk that refuses the others by name.

The compiler passes over what it does not know, and takes some keywords for something else (unanchored patterns for
anchored ones, several branches of `allOf` for nothing at all). A request would then end with text that its schema does
not allow. So whatever is not known to hold is an error before anything is generated.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import unquote

from ...hal.errors import InvalidArgumentError, NotSupportedError
from .expression import full_pattern, literal_prefix

MAX_DEPTH = 64
MAX_BRANCHES = 128  # of oneOf
MAX_COMPARED = 1 << 21
"""Values that are looked at, at most, to tell the branches of all `oneOf` of a schema apart: since one part may be
referred to from many places, that can be more than the schema has."""
NAME = "so_args['schema']"
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")

ANNOTATIONS = frozenset(
    "title description default examples example deprecated readOnly writeOnly $comment $schema $id $defs definitions"
    .split()
)  # fmt: skip
"""They say nothing of a value. Definitions count where something refers to them."""

KEYWORDS: Mapping[str, tuple[str, ...]] = {
    "properties": ("object",), "required": ("object",), "additionalProperties": ("object",),
    "unevaluatedProperties": ("object",), "patternProperties": ("object",), "propertyNames": ("object",),
    "minProperties": ("object",), "maxProperties": ("object",),
    "items": ("array",), "prefixItems": ("array",), "unevaluatedItems": ("array",), "minItems": ("array",),
    "maxItems": ("array",),
    "minLength": ("string",), "maxLength": ("string",), "pattern": ("string",), "format": ("string",),
    "minimum": ("integer", "number"), "maximum": ("integer", "number"), "exclusiveMinimum": ("integer", "number"),
    "exclusiveMaximum": ("integer", "number"), "multipleOf": ("integer", "number"),
}  # fmt: skip
"""Keywords that are held to, and the types of the values that they speak of."""
COMBINED = ("$ref", "enum", "const", "anyOf", "oneOf", "allOf", "type")

FORMATS = frozenset(
    "date time date-time duration email hostname ipv4 ipv6 uuid uri uri-reference uri-template json-pointer "
    "relative-json-pointer".split()
)
"""Held to by their syntax: `date` allows 30 February."""

_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
WRITTEN_FORMATS: Mapping[str, str] = {"ipv4": f"^{_BYTE}\\.{_BYTE}\\.{_BYTE}\\.{_BYTE}$"}
"""Those that the compiler takes for more than they are: it allows leading zeros."""

REFUSED: Mapping[str, str] = {
    "uniqueItems": "enum, or leave it out and check the result",
    "contains": "prefixItems and items",
    "minContains": "prefixItems and items",
    "maxContains": "prefixItems and items",
    "additionalItems": "items, beside prefixItems",
    "not": "enum, anyOf or pattern, for what is allowed",
    "if": "anyOf, one branch per case", "then": "anyOf, one branch per case", "else": "anyOf, one branch per case",
    "dependencies": "anyOf, one branch per case", "dependentRequired": "anyOf, one branch per case",
    "dependentSchemas": "anyOf, one branch per case",
    "nullable": 'type: [..., "null"]',
    "$anchor": "$ref with a path: #/$defs/name", "$dynamicRef": "$ref with a path: #/$defs/name",
    "$dynamicAnchor": "$ref with a path: #/$defs/name", "$recursiveRef": "$ref with a path: #/$defs/name",
    "$recursiveAnchor": "$ref with a path: #/$defs/name",
    "contentEncoding": "pattern", "contentMediaType": "pattern", "contentSchema": "pattern",
    "discriminator": "const in every branch", "$vocabulary": "$schema",
}  # fmt: skip

_INT64 = range(-(1 << 63), 1 << 63)
_LARGEST_FACTOR = 1024  # of multipleOf
_NAMES = {bool: ("boolean",), str: ("string",), list: ("array",), dict: ("object",), type(None): ("null",)}


def check_schema(schema: Any) -> Any:
    """Walks a schema, as far as anything refers to it.

    Args:
        schema: as it was parsed; its patterns are brought to the form that the compiler takes as it is meant.

    Returns:
        The same schema.

    Raises:
        NotSupportedError: names a feature that cannot be held to, and where it stands.
        InvalidArgumentError: it is no JSON Schema, or no value fits.
    """
    _Walk(schema).run()
    return schema


class _Path(NamedTuple):
    """Where a part stands. It becomes a text for an error only: names may be long, and parts many."""

    above: _Path | None = None
    step: str | int = ""

    def __truediv__(self, step: str | int) -> _Path:
        return _Path(self, step)

    def __str__(self) -> str:
        steps: list[str] = []
        at: _Path = self
        while at.above is not None:
            steps.append("/" + str(at.step).replace("~", "~0").replace("/", "~1"))
            at = at.above
        return str(at.step) + "".join(reversed(steps))


class _Place(NamedTuple):
    """A path, as errors name it."""

    path: _Path

    def __str__(self) -> str:
        return f"{NAME} at {str(self.path) or '/'}"


@dataclass(frozen=True, eq=False)
class _Kind:
    """What a branch is, for telling it from others.

    Attributes:
        types: of its values.
        values: if it lists them, all of them.
        constants: of an object: what its required properties may be, where it says that.
    """

    types: frozenset[str]
    values: frozenset[str] | None
    constants: Mapping[str, frozenset[str]]


class _Walk:
    """One walk. Parts are looked at once, however many references lead to them."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.open: list[tuple[Any, _Path, int]] = [(root, _Path(), 0)]
        self.seen: set[int] = set()
        self.ends: set[str] = set()  # references that lead to something else than a reference
        self.kinds: dict[int, _Kind | None] = {}
        self.compared = 0

    def run(self) -> None:
        while self.open:
            part, path, depth = self.open.pop()
            if id(part) in self.seen:
                continue
            if depth > MAX_DEPTH:
                raise InvalidArgumentError(
                    NAME, f"more than {MAX_DEPTH} levels at {str(path)[:100]}", f"at most {MAX_DEPTH}"
                )
            if part is True:
                continue
            if part is False:
                raise self.unfit(path, "false", "a schema that some value fits")
            if not isinstance(part, dict):
                raise self.unfit(path, part, "an object or true")
            self.seen.add(id(part))
            self._part(part, path, depth + 1)

    def unfit(self, path: _Path, got: Any, allowed: str) -> InvalidArgumentError:
        return InvalidArgumentError(str(_Place(path)), got, allowed)

    def refused(self, path: _Path, feature: str, instead: str) -> NotSupportedError:
        return NotSupportedError(f"{_Place(path)}: {feature}", instead)

    def push(self, part: Any, path: _Path, depth: int) -> None:
        self.open.append((part, path, depth))

    def _part(self, part: dict[str, Any], path: _Path, depth: int) -> None:
        for name in part:
            if name in REFUSED:
                raise self.refused(path, name, f"use {REFUSED[name]}")
            if name not in KEYWORDS and name not in COMBINED and name not in ANNOTATIONS and not name.startswith("x-"):
                raise self.refused(path, f"the keyword {name!r}", "it would have no effect; leave it out")
        said = [name for name in part if name in KEYWORDS or name in COMBINED]
        types = self._types(part, path)
        whole = [name for name in said if name in COMBINED and name != "type"]
        if not whole:
            self._plain(part, path, depth, types)
            return
        first = whole[0]
        others = [name for name in said if name != first]
        if "type" in others and (first in ("enum", "const") or self._agrees(part, first, types)):
            others.remove("type")
        if others:
            raise self.refused(
                path, f"{first} beside {', '.join(others)}", f"put {', '.join(others)} into what {first} names"
            )
        if first == "$ref":
            self._reference(part["$ref"], path, depth)
        elif first in ("enum", "const"):
            self._values(part, path, first, types)
        else:
            self._branches(part[first], path, depth, first)

    def _types(self, part: dict[str, Any], path: _Path) -> list[str] | None:
        if "type" not in part:
            return None
        found = part["type"]
        types = found if isinstance(found, list) else [found]
        known = all(isinstance(one, str) and one in TYPES for one in types)
        if not types or not known or len(set(types)) < len(types):
            raise self.unfit(path / "type", found, f"one or several of {', '.join(TYPES)}, each once")
        return types

    def _agrees(self, part: dict[str, Any], first: str, types: list[str] | None) -> bool:
        """Whether a type beside branches says nothing that each of them does not say."""
        branches = part[first]
        if first == "$ref" or not isinstance(branches, list):
            return False
        return all(isinstance(one, dict) and "type" in one and [one["type"]] == types for one in branches)

    # ---- what takes the place of a type

    def _reference(self, reference: Any, path: _Path, depth: int) -> None:
        if not isinstance(reference, str):
            raise self.unfit(path / "$ref", reference, "a text")
        if reference != "#" and not reference.startswith("#/"):
            raise self.refused(path, f"$ref {reference!r}", "refer to this schema alone, by a path: #/$defs/name")
        target, seen = self._resolve(reference, path), {reference}
        while isinstance(target, dict) and "$ref" in target and isinstance(target["$ref"], str):
            if target["$ref"] in self.ends:
                break
            if target["$ref"] in seen:
                raise self.unfit(path / "$ref", reference, "a reference that does not lead back to itself")
            if not target["$ref"].startswith("#"):
                break
            seen.add(target["$ref"])
            target = self._resolve(target["$ref"], path)
        self.ends |= seen
        self.push(self._resolve(reference, path), _Path(step=reference[1:]), reference.count("/"))

    def _resolve(self, reference: str, path: _Path) -> Any:
        found = self.root
        for step in reference.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and len(name) < 10 and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                raise self.unfit(path / "$ref", reference, "a path to a part of this schema")
        return found

    def _values(self, part: dict[str, Any], path: _Path, first: str, types: list[str] | None) -> None:
        values = part[first] if first == "enum" else [part[first]]
        if not isinstance(values, list) or not values:
            raise self.unfit(path / first, values, "a list of values, not empty")
        self._shallow(values, path / first)
        for value in values:
            if types is not None and not any(_is_of(value, one) for one in types):
                raise self.unfit(path / first, value, f"values of the type beside it, {', '.join(types)}")
            for number in _integers(value):
                if number not in _INT64:
                    raise self.refused(path, f"the integer {number} in {first}", "integers of 64 bits are written")

    def _branches(self, branches: Any, path: _Path, depth: int, first: str) -> None:
        if not isinstance(branches, list) or not branches:
            raise self.unfit(path / first, branches, "a list of schemas, not empty")
        if first == "allOf" and len(branches) > 1:
            raise self.refused(
                path, f"allOf of {len(branches)} schemas", "write the one schema that they make together"
            )
        if first == "oneOf":
            if len(branches) > MAX_BRANCHES:
                raise self.refused(path, f"oneOf of {len(branches)} schemas", f"at most {MAX_BRANCHES} are compared")
            self._exclusive([self._kind(one, path / first / i) for i, one in enumerate(branches)], path)
        for i, one in enumerate(branches):
            self.push(one, path / first / i, depth)

    def _exclusive(self, kinds: list[_Kind | None], path: _Path) -> None:
        """Refuses branches of which two may hold."""

        def refused(one: int, other: int) -> NotSupportedError:
            return self.refused(
                path, f"oneOf whose branches {one} and {other} may both hold", "use anyOf, or a const in each"
            )

        # Listed values may be many: not by pairs of branches, and the most of them only looked up.
        lists = [(i, kind.values) for i, kind in enumerate(kinds) if kind is not None and kind.values is not None]
        lists.sort(key=lambda one: len(one[1]))
        found: set[str] = set()
        for place, (i, values) in enumerate(lists):
            if not found.isdisjoint(values):
                j = next(j for j, others in lists[:place] if not values.isdisjoint(others))
                raise refused(min(i, j), max(i, j))
            if place + 1 < len(lists):
                self._compare(len(values), path)
                found |= values
        for i, kind in enumerate(kinds):
            for j in range(i):
                if not self._are_apart(kind, kinds[j], path):
                    raise refused(j, i)

    def _kind(self, branch: Any, path: _Path) -> _Kind | None:
        """What a branch is; None where that is not easily seen. Of each part it is found once."""
        trail: list[int] = []
        kind: _Kind | None = None
        while isinstance(branch, dict):
            if id(branch) in self.kinds:
                kind = self.kinds[id(branch)]
                break
            self.kinds[id(branch)] = None  # of a reference that leads back to itself
            trail.append(id(branch))
            reference = branch.get("$ref")
            if not isinstance(reference, str) or not reference.startswith("#"):
                kind = self._kind_of(branch, path)
                break
            branch, path = self._resolve(reference, path), _Path(step=reference[1:])
        self.kinds.update(dict.fromkeys(trail, kind))
        return kind

    def _kind_of(self, branch: dict[str, Any], path: _Path) -> _Kind | None:
        values = _listed(branch)
        if values is not None:
            types = frozenset(kind for value in values for kind in _types_of(value))
            return _Kind(types, self._names_of(values, path), {})
        found = self._types(branch, path)
        if found is None:
            return None
        constants = {}
        properties, required = branch.get("properties"), branch.get("required")
        if found == ["object"] and isinstance(properties, dict) and isinstance(required, list):
            names = {name for name in required if isinstance(name, str)}
            for name, one in properties.items():
                values = _listed(one) if name in names else None
                if values is not None:
                    constants[name] = self._names_of(values, path / "properties" / name)
        return _Kind(frozenset(found), None, constants)

    def _are_apart(self, one: _Kind | None, other: _Kind | None, path: _Path) -> bool:
        """Whether no value is of both kinds."""
        if one is None or other is None:
            return False
        if one.values is not None and other.values is not None:
            return True  # or they were refused
        if one.values is not None or other.values is not None:
            return one.types.isdisjoint(other.types)
        shared = one.types & other.types
        if {"integer", "number"} <= one.types | other.types:
            shared |= {"integer"}
        if not shared:
            return True
        if shared != {"object"}:
            return False
        few, more = sorted((one.constants, other.constants), key=len)
        self._compare(len(few), path)
        return any(name in more and self._disjoint(few[name], more[name], path) for name in few)

    def _disjoint(self, one: frozenset[str], other: frozenset[str], path: _Path) -> bool:
        self._compare(min(len(one), len(other)), path)
        return one.isdisjoint(other)

    def _compare(self, values: int, path: _Path) -> None:
        self.compared += values
        if self.compared > MAX_COMPARED:
            raise self.refused(
                path,
                f"oneOf whose branches are told apart by more than {MAX_COMPARED} values, in all of the schema",
                "use anyOf, or fewer values",
            )

    def _names_of(self, values: list[Any], path: _Path) -> frozenset[str]:
        """Values as text, the same for equal ones."""
        self._shallow(values, path)
        return frozenset(json.dumps(_plain(value), sort_keys=True) for value in values)

    def _shallow(self, values: list[Any], path: _Path) -> None:
        """Refuses values that are nested too deeply."""
        level: list[Any] = values
        for _ in range(MAX_DEPTH + 1):
            level = [
                inner
                for one in level
                if isinstance(one, (list, dict))
                for inner in (one.values() if isinstance(one, dict) else one)
            ]
            if not level:
                return
        raise InvalidArgumentError(
            NAME, f"a value of more than {MAX_DEPTH} levels at {str(path)[:100]}", f"at most {MAX_DEPTH}"
        )

    # ---- a type and what is said of its values

    def _plain(self, part: dict[str, Any], path: _Path, depth: int, types: list[str] | None) -> None:
        if types is None:
            types = [kind for kind, name in (("object", "properties"), ("array", "items")) if name in part]
            types += ["array"] if "prefixItems" in part and "array" not in types else []
            stray = [name for name in part if name in KEYWORDS and not set(KEYWORDS[name]) & set(types)]
            if stray or len(types) > 1:
                names = stray or [name for name in part if name in KEYWORDS]
                raise self.refused(path, f"{', '.join(names)} without a type", "say the type beside it")
        checks: dict[str, Callable[[dict[str, Any], _Path, int], None]] = {
            "object": self._object, "array": self._array, "string": self._string,
            "integer": self._integer, "number": self._number,
        }  # fmt: skip
        for one in types:
            if one in checks:
                checks[one](part, path, depth)

    def _count(self, part: dict[str, Any], path: _Path, name: str) -> int | None:
        if name not in part:
            return None
        value = part[name]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
            raise self.unfit(path / name, value, "an integer from 0")
        return value

    def _counts(self, part: dict[str, Any], path: _Path, what: str) -> tuple[int | None, int | None]:
        least, most = self._count(part, path, f"min{what}"), self._count(part, path, f"max{what}")
        if least is not None and most is not None and least > most:
            raise self.unfit(path / f"min{what}", least, f"at most max{what}, {most}")
        return least, most

    def _object(self, part: dict[str, Any], path: _Path, depth: int) -> None:
        properties = self._dict(part, path, "properties")
        for name, one in properties.items():
            self.push(one, path / "properties" / name, depth)
        required = part.get("required", [])
        if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
            raise self.unfit(path / "required", required, "a list of names")
        missing = [name for name in required if name not in properties]
        if missing:
            raise self.refused(path, f"required {missing[0]!r}, which properties do not name", "name it in properties")
        if "additionalProperties" in part and "unevaluatedProperties" in part:
            raise self.refused(path, "unevaluatedProperties beside additionalProperties", "leave one of them out")
        rest = next((name for name in ("additionalProperties", "unevaluatedProperties") if name in part), None)
        if rest is not None and part[rest] is not False:
            self.push(part[rest], path / rest, depth)
        is_open = rest is not None and part[rest] is not False
        self._patterns(part, path, depth, properties, is_open)
        if "propertyNames" in part:
            self._names(part, path, properties)
        least, _ = self._counts(part, path, "Properties")
        named = bool(properties) and not is_open and "patternProperties" not in part and "propertyNames" not in part
        if least is not None and least > max(1, len(set(required))) and not named:
            raise self.refused(
                path, f"minProperties {least} where names are free", "they may repeat: name and require some"
            )

    def _dict(self, part: dict[str, Any], path: _Path, name: str) -> dict[str, Any]:
        found = part.get(name, {})
        if not isinstance(found, dict):
            raise self.unfit(path / name, found, "an object")
        return found

    def _patterns(
        self, part: dict[str, Any], path: _Path, depth: int, properties: dict[str, Any], is_open: bool
    ) -> None:
        patterns = self._dict(part, path, "patternProperties")
        if not patterns:
            return
        if is_open:
            raise self.refused(path, "patternProperties beside other additional properties", "leave one of them out")
        written: dict[str, Any] = {}
        begins: dict[str, str] = {}
        for pattern, one in patterns.items():
            full = self._pattern(pattern, path / "patternProperties")
            prefix = literal_prefix(full)  # to run it could take for ever
            if prefix in begins:
                raise self._overlap(path, begins[prefix], pattern)
            begins[prefix] = pattern
            written[full] = one
            self.push(one, path / "patternProperties" / pattern, depth)
        # In order, a text stands right before the first of those that begin with it.
        ordered = sorted(begins)
        for one, other in pairwise(ordered):
            if other.startswith(one):
                raise self._overlap(path, begins[one], begins[other])
        for name in properties:
            before = bisect_right(ordered, name)
            if before and name.startswith(ordered[before - 1]):
                pattern = begins[ordered[before - 1]]
                raise self.refused(path, f"the property {name!r}, which {pattern!r} may match as well", "rename it")
        part["patternProperties"] = written

    def _overlap(self, path: _Path, one: str, other: str) -> NotSupportedError:
        return self.refused(
            path, f"the patterns {one!r} and {other!r}, which may match one name", "begin each otherwise"
        )

    def _names(self, part: dict[str, Any], path: _Path, properties: dict[str, Any]) -> None:
        if properties or "patternProperties" in part:
            raise self.refused(path, "propertyNames beside properties", "leave one of them out")
        names = self._dict(part, path, "propertyNames")
        allowed = {"type", "enum", "pattern", "minLength", "maxLength", "format"}
        stray = [name for name in names if name not in allowed and name not in ANNOTATIONS]
        if stray or names.get("type", "string") != "string":
            raise self.refused(
                path, f"propertyNames with {', '.join(stray) or 'type'}", f"use {', '.join(sorted(allowed))}"
            )
        if "enum" in names:
            if len(names.keys() & allowed - {"type"}) > 1:
                raise self.refused(path, "propertyNames with enum and more", "leave the enum alone")
            self._values(names, path / "propertyNames", "enum", ["string"])
        else:
            self._string(names, path / "propertyNames", 0)

    def _array(self, part: dict[str, Any], path: _Path, depth: int) -> None:
        items, first = part.get("items", True), part.get("prefixItems", [])
        if isinstance(items, list):
            raise self.refused(path, "items as a list", "use prefixItems")
        if not isinstance(first, list):
            raise self.unfit(path / "prefixItems", first, "a list of schemas")
        for i, one in enumerate(first):
            self.push(one, path / "prefixItems" / i, depth)
        if items is not False:
            self.push(items, path / "items", depth)
        if "unevaluatedItems" in part:
            if "items" in part:
                raise self.refused(path, "unevaluatedItems beside items", "leave it out")
            if part["unevaluatedItems"] is not False:
                self.push(part["unevaluatedItems"], path / "unevaluatedItems", depth)
        elif "items" not in part and "prefixItems" not in part:
            part["items"] = True  # or a count of items finds none that would be allowed
        self._counts(part, path, "Items")

    def _string(self, part: dict[str, Any], path: _Path, depth: int) -> None:
        least, most = self._counts(part, path, "Length")
        said: list[str] = [name for name in ("pattern", "format") if name in part]
        if least is not None or most is not None:
            said.append("minLength or maxLength")
        if len(said) > 1:
            raise self.refused(path, f"{said[0]} beside {said[1]}", "put a count into the pattern: ^.{2,5}$")
        if "pattern" in part:
            part["pattern"] = self._pattern(part["pattern"], path / "pattern")
        if "format" in part and (not isinstance(part["format"], str) or part["format"] not in FORMATS):
            raise self.refused(
                path, f"the format {part['format']!r}", f"use a pattern, or {', '.join(sorted(FORMATS))}"
            )
        if part.get("format") in WRITTEN_FORMATS:
            part["pattern"] = WRITTEN_FORMATS[part.pop("format")]

    def _pattern(self, pattern: Any, path: _Path) -> str:
        if not isinstance(pattern, str):
            raise self.unfit(path, pattern, "a text")
        return full_pattern(pattern, _Place(path))

    def _bounds(self, part: dict[str, Any], path: _Path) -> Iterator[tuple[str, Any]]:
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if name in part:
                value = part[name]
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    raise self.unfit(path / name, value, "a number")
                yield name, value

    def _integer(self, part: dict[str, Any], path: _Path, depth: int) -> None:
        for name, value in self._bounds(part, path):
            if value != int(value):
                raise self.refused(path, f"{name} {value} of integers", "use a whole number")
            if int(value) not in _INT64:
                raise self.refused(path, f"{name} {value}", "use integers of 64 bits")
        factor = part.get("multipleOf", 1)
        if isinstance(factor, bool) or not isinstance(factor, int) or not 1 <= factor <= _LARGEST_FACTOR:
            raise self.refused(
                path, f"multipleOf {factor!r}", f"use an integer from 1 to {_LARGEST_FACTOR}, or leave it out"
            )

    def _number(self, part: dict[str, Any], path: _Path, depth: int) -> None:
        for name, value in self._bounds(part, path):
            if abs(value) > 1e15:
                raise self.refused(path, f"{name} {value} of numbers", "use a bound of at most 1e15, or none")
        if "multipleOf" in part:
            raise self.refused(path, "multipleOf of numbers", "use integers, or leave it out")


def _is_of(value: Any, kind: str) -> bool:
    """Whether a value is of a type of JSON Schema: 1.0 is an integer."""
    return kind in _types_of(value)


def _types_of(value: Any) -> tuple[str, ...]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return ("number", "integer") if value == int(value) else ("number",)
    return _NAMES[type(value)]


def _integers(value: Any) -> Iterator[int]:
    open = [value]
    while open:
        one = open.pop()
        if isinstance(one, int) and not isinstance(one, bool):
            yield one
        elif isinstance(one, (list, dict)):
            open += one.values() if isinstance(one, dict) else one


def _listed(part: Any) -> list[Any] | None:
    """The values that a part allows, where it lists them."""
    if not isinstance(part, dict):
        return None
    if "const" in part:
        return [part["const"]]
    return part["enum"] if isinstance(part.get("enum"), list) else None


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value == int(value):
        return int(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return {name: _plain(one) for name, one in value.items()} if isinstance(value, dict) else value
