"""Whether a value is a JSON Schema: its keywords against the meta-schema of its draft, its local references resolved.

Nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from ..json_text import JsonValue
from .schema_drafts import Draft, SchemaError, check_keywords, draft_of
from .schema_uris import NO_URI, Uri, Uris

__all__ = ["SchemaError", "check_schema"]

_OWN_URI = "json-schema:///"  # of a schema that does not say another
_MAX_INDEX_DIGITS = 10


def check_schema(schema: JsonValue) -> None:
    """Refuse what is not a JSON Schema of its draft (`$schema`, 2020-12 when absent), or refers to what is not there.

    Raises:
        SchemaError: says what is wrong.
    """
    draft = draft_of(schema)
    if problem := check_keywords(schema, draft):
        raise SchemaError(problem)
    _References(schema, draft).check()


class _References:
    """The references in a schema, and what they can refer to: the schema and its parts, by URI, pointer and anchor.

    A reference out of the schema is wrong wherever it stands; one within it only where validating can come by.
    """

    def __init__(self, schema: JsonValue, draft: Draft) -> None:
        self.schema = schema
        self.draft = draft
        self.uris = Uris()
        self.draft_uri, _ = self._join(NO_URI, draft.uri)
        base, _ = self._join(NO_URI, _OWN_URI)
        self.resources: dict[Uri, JsonValue] = {self.draft_uri: True}
        self.anchors: dict[tuple[Uri, str], JsonValue] = {}
        self.bases: dict[int, Uri] = {}
        """Base URI of every part that was collected, by identity."""
        self.first_uri, _ = self._base_of(schema, base)
        self.resources[self.first_uri] = schema
        self._collect(schema, self.first_uri)  # resolves the identifier again: what is below `a/b` is below `a/a/b`
        self.root_uri = self.bases.get(id(schema), self.first_uri)
        self.resources[self.root_uri] = schema

    def _join(self, base: Uri, reference: str) -> tuple[Uri, str]:
        try:
            return self.uris.resolve(base, reference)
        except ValueError as error:
            raise SchemaError(f"{reference!r} is no URI reference: {error}") from None

    def _base_of(self, schema: JsonValue, base: Uri) -> tuple[Uri, bool]:
        """The base URI of a schema that stands where `base` is the one, and whether it has it by itself."""
        own_id = schema.get(self.draft.id_keyword) if isinstance(schema, dict) else None
        if not isinstance(schema, dict) or not isinstance(own_id, str):
            return base, False
        if own_id.startswith("#"):
            self.anchors[base, own_id[1:]] = schema
            return base, False
        if self.draft.reference_alone and "$ref" in schema:
            return base, False
        return self._join(base, own_id.removesuffix("#"))[0], True

    def _collect(self, schema: JsonValue, base: Uri) -> None:
        if not isinstance(schema, dict) or id(schema) in self.bases:
            return
        base, is_resource = self._base_of(schema, base)
        self.bases[id(schema)] = base
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := schema.get(keyword), str):
                self.anchors[base, name] = schema
        for part in self._parts(schema, definitions=True):
            self._collect(part, base)
        if is_resource:  # behind its parts: of two with the same URI the outer one counts, and then the later one
            self.resources[base] = schema

    def _parts(self, schema: dict[str, JsonValue], definitions: bool) -> Iterator[JsonValue]:
        if not definitions and self.draft.reference_alone and isinstance(schema.get("$ref"), str):
            return iter(())
        return _subschemas(schema, self.draft, definitions)

    def _references(self, schema: dict[str, JsonValue]) -> Iterator[str]:
        for keyword in ("$ref", "$dynamicRef"):
            if keyword in self.draft.keywords and isinstance(reference := schema.get(keyword), str):
                yield reference

    def check(self) -> None:
        self._check_outward(self.schema, set())
        self._check_inward()

    def _check_outward(self, schema: JsonValue, seen: set[int]) -> None:
        if not isinstance(schema, dict) or id(schema) in seen:
            return
        seen.add(id(schema))
        for reference in self._references(schema):
            if self._join(self.bases[id(schema)], reference)[0] not in self.resources:
                raise _nowhere(reference)
        for part in self._parts(schema, definitions=True):
            self._check_outward(part, seen)

    def _check_inward(self) -> None:
        open = [(self.schema, False)]  # no recursion: chains of references may be long
        seen: set[tuple[int, bool]] = set()
        while open:
            schema, by_first_uri = open.pop()
            if not isinstance(schema, dict) or (id(schema), by_first_uri) in seen:
                continue
            seen.add((id(schema), by_first_uri))
            base = self.bases[id(schema)]
            # Who comes by the root's first URI resolves by that one, until a part has its own.
            by_first_uri = by_first_uri and base == self.root_uri
            for reference in self._references(schema):
                uri, target = self._target(self.first_uri if by_first_uri else base, reference)
                if target is not schema:
                    open.append((target, uri == self.first_uri))
            open += [(part, by_first_uri) for part in self._parts(schema, definitions=False)]

    def _target(self, base: Uri, reference: str) -> tuple[Uri, JsonValue]:
        """What a reference refers to, and by which URI."""
        uri, fragment = self._join(base, reference)
        fragment = unquote(fragment)
        if uri not in self.resources:
            raise _nowhere(reference)
        if uri == self.draft_uri:
            return uri, True
        if fragment and not fragment.startswith("/"):
            if (uri, fragment) not in self.anchors:
                raise SchemaError(f"reference {reference!r}: there is no such anchor")
            return uri, self.anchors[uri, fragment]
        target = _resolve_pointer(self.resources[uri], fragment, reference)
        if isinstance(target, dict) and id(target) not in self.bases:  # lies where no keyword puts a schema
            if problem := check_keywords(target, self.draft):
                raise SchemaError(f"reference {reference!r}: {problem}")
            self._collect(target, uri)
            self._check_outward(target, set())
        return uri, target


def _nowhere(reference: str) -> SchemaError:
    return SchemaError(f"reference {reference!r} does not lead to a part of the schema; none is fetched")


def _resolve_pointer(schema: JsonValue, pointer: str, reference: str) -> JsonValue:
    """What a JSON Pointer (RFC 6901) leads to."""
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict) and step in schema:
            schema = schema[step]
        elif isinstance(schema, list) and _is_index(step) and int(step) < len(schema):
            schema = schema[int(step)]
        else:
            raise SchemaError(f"reference {reference!r} does not lead to a part of the schema")
    return schema


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdigit() and len(step) <= _MAX_INDEX_DIGITS


_MAPS_OF_SCHEMAS = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)
_SCHEMAS = frozenset(
    {"additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "else", "if", "items"}
    | {"not", "oneOf", "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"}
)


def _subschemas(schema: Mapping[str, JsonValue], draft: Draft, definitions: bool) -> Iterator[JsonValue]:
    """The schemas right below a schema, among other values, with or without mere definitions."""
    for keyword, value in schema.items():
        if keyword not in draft.keywords or (keyword in ("$defs", "definitions") and not definitions):
            continue
        if keyword in _MAPS_OF_SCHEMAS and isinstance(value, dict):
            yield from value.values()
        elif keyword in _SCHEMAS:
            yield from value if isinstance(value, list) else [value]
