"""`SamplingParams.so_args`: what came, checked and brought to one form."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...hal.errors import InvalidArgumentError
from ..checks import INT32_MAX, check_choice, check_ids, check_in_vocabulary, check_int
from .expression import check_expression
from .schema import check_schema
from .tags import check_tag

SCHEMA_TYPES = ("json", "regex", "ebnf", "structural_tag")
MAX_SCHEMA_BYTES = 1 << 20
MAX_TRIGGER = 64
MAX_WHITESPACE = 16
"""White space in a row between the tokens of JSON, unless said otherwise. Without a bound a model can go on with spaces
for ever; sixteen hold a line's end and the indentation of seven levels."""
_KEYS = ("schema_type", "schema", "trigger_token_ids", "bound_token_id", "max_whitespace")
_OLD = {"serialized": "no such key: grammars come as text", "bound_token_ids": "bound_token_id, a single id"}


@dataclass(frozen=True)
class Structure:
    """What the output of a request has to be.

    Attributes:
        kind: one of `SCHEMA_TYPES`.
        text: schema, expression, grammar or tag, as it is compiled.
        trigger: tokens behind which the structure begins; empty: at once.
        bound: token behind which the trigger is forced; -1 for none.
        whitespace: most white space in a row between the tokens of JSON.
        source: the schema as it came, so that the same one need not be read again. Says nothing of what it is.
    """

    kind: str
    text: str
    trigger: tuple[int, ...] = ()
    bound: int = -1
    whitespace: int = MAX_WHITESPACE
    source: str = field(default="", compare=False, repr=False)

    @cached_property
    def key(self) -> bytes:
        """Name of what is compiled: trigger and bound are no part of that."""
        return hashlib.blake2b(f"{self.kind} {self.whitespace} {self.text}".encode(), digest_size=16).digest()

    def validate_for_model(self, vocab_size: int) -> None:
        """Raises InvalidArgumentError for tokens outside the vocabulary."""
        check_in_vocabulary("so_args['trigger_token_ids']", self.trigger, vocab_size)
        if self.bound >= vocab_size:
            raise InvalidArgumentError(
                "so_args['bound_token_id']", self.bound, f"a token id from 0 to {vocab_size - 1}"
            )


def parse_so_args(so_args: Any, before: Structure | None = None) -> Structure:
    """The structure that `so_args` name.

    Args:
        so_args: a dict of
            schema_type: "json", "regex", "ebnf" or "structural_tag".
            schema: a text of at most 1 MiB: JSON Schema, expression (for the whole output), grammar with the rule
                `root`, or structural tag. Of JSON, features that cannot be held to are refused by name.
            trigger_token_ids: 1 to 64 tokens; the output is free until they have been said one after the other.
            bound_token_id: with a trigger: behind this token the trigger is forced.
            max_whitespace: 0 to 128, white space in a row between the tokens of "json"; 16 unless said.
        before: what was read last in this place. A schema that it was made of is not read again, which may take long;
            the other keys are.

    Raises:
        InvalidArgumentError: names the key, what came and what is allowed.
        NotSupportedError: a feature of the schema.
    """
    if not isinstance(so_args, dict):
        raise InvalidArgumentError("so_args", so_args, f"a dict of {', '.join(_KEYS)}, or None")
    for name in so_args:
        if name not in _KEYS:
            raise InvalidArgumentError("so_args", name, _OLD.get(name) or f"the keys {', '.join(_KEYS)}")
    for name in _KEYS[:2]:
        if name not in so_args:
            raise InvalidArgumentError("so_args", f"no key {name!r}", f"both of {', '.join(_KEYS[:2])}")
    kinds = ", ".join(map(repr, SCHEMA_TYPES))
    kind = check_choice("so_args['schema_type']", so_args["schema_type"], SCHEMA_TYPES, kinds)
    trigger, bound = _borders(so_args)
    whitespace = so_args.get("max_whitespace")
    if whitespace is None:
        whitespace = MAX_WHITESPACE
    elif kind != "json":
        raise InvalidArgumentError("so_args['max_whitespace']", whitespace, "None unless schema_type is 'json'")
    else:
        whitespace = check_int("so_args['max_whitespace']", whitespace, 0, 128)
    schema = so_args["schema"]
    # A text never changes, and the same one is found the same at once.
    if before is not None and before.kind == kind and type(schema) is str and before.source == schema:
        text = before.text
    else:
        text = _text(kind, schema)
    return Structure(kind, text, trigger, bound, whitespace, schema)


def _borders(so_args: dict[str, Any]) -> tuple[tuple[int, ...], int]:
    trigger: tuple[int, ...] = ()
    if so_args.get("trigger_token_ids") is not None:
        name = "so_args['trigger_token_ids']"
        trigger = tuple(check_ids(name, so_args["trigger_token_ids"]))
        if not 1 <= len(trigger) <= MAX_TRIGGER:
            raise InvalidArgumentError(name, f"{len(trigger)} ids", f"1 to {MAX_TRIGGER} ids, or None")
    bound = so_args.get("bound_token_id")
    if bound is None:
        return trigger, -1
    if not trigger:
        raise InvalidArgumentError("so_args['bound_token_id']", bound, "None without trigger_token_ids")
    return trigger, check_int("so_args['bound_token_id']", bound, 0, INT32_MAX, also="None")


def _text(kind: str, schema: Any) -> str:
    name = "so_args['schema']"
    if not isinstance(schema, str) or not schema:
        raise InvalidArgumentError(name, schema, f"a text, not empty, for schema_type {kind!r}")
    # Before anything looks at it: what follows takes time that grows with it.
    if len(schema) > MAX_SCHEMA_BYTES or len(schema.encode("utf-8", "replace")) > MAX_SCHEMA_BYTES:
        raise InvalidArgumentError(name, f"{len(schema)} characters", f"at most {MAX_SCHEMA_BYTES} bytes of UTF-8")
    if any("\ud800" <= c <= "\udfff" for c in schema):
        raise InvalidArgumentError(name, schema, "text without lone surrogates (U+D800 to U+DFFF)")
    if "\0" in schema:
        raise InvalidArgumentError(name, schema, "text without NUL characters")
    if kind == "json":
        return json.dumps(check_schema(_parse(schema)), ensure_ascii=False)
    if kind == "structural_tag":
        return json.dumps(check_tag(_parse(schema)), ensure_ascii=False)
    if kind == "regex":
        check_expression(schema, name)
    return schema


def _parse(text: str) -> Any:
    """JSON as values; escapes become the characters that they stand for."""
    name = "so_args['schema']"

    def refuse(constant: str) -> Any:
        raise InvalidArgumentError(name, constant, "JSON, which has no such number")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
            raise InvalidArgumentError(name, f"the key {twice!r} twice in an object", "each key once")
        return found

    try:
        value = json.loads(text, parse_constant=refuse, object_pairs_hook=once)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except InvalidArgumentError:
        raise
    except RecursionError:
        raise InvalidArgumentError(name, "JSON that is nested too deeply", "at most 64 levels of schemas") from None
    except ValueError as error:  # no JSON, an infinite number, a lone surrogate
        raise InvalidArgumentError(name, text, f"JSON ({error})") from None
    return value
