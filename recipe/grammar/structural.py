"""Output constraints as structural tags: JSON that names the fixed and the free parts of an output.

The form is xgrammar's (`StructuralTag`, version 0.2). Text between tags excludes what would end or begin a tag, so that
what a constrained engine writes parses back to what was asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..conversation import ToolDefinition
from ..errors import InvalidArgumentError
from ..json_text import JsonValue, parse_json, print_json
from ..options import OutputConstraint
from ..special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialTokens
from ..versions import ModelVersion
from .parameters import ANY_OTHER, MAX_EXPANDED, Parameter, Parameters, Text, read_parameters

Format = dict[str, JsonValue]

ANY_CONTAINER: JsonValue = {"anyOf": [{"type": "object"}, {"type": "array"}]}
"""Any JSON that the JSON mode of the parser recognises by its first character."""


def structural_tag(
    constraint: OutputConstraint,
    version: ModelVersion,
    *,
    reasoning: bool = False,
    special_tokens: SpecialTokens = DEFAULT_SPECIAL_TOKENS,
    max_expanded: int = MAX_EXPANDED,
) -> str:
    """A constraint as the JSON of a structural tag.

    Args:
        constraint: `tool_call`: free text, and then, or not, a block of calls. `tool_call_required`: calls, in the
            block that the prompt has opened. `json`, `regex`: nothing but the value.
        max_expanded: characters that the references of one tool's parameters may grow to.
        reasoning: whether the output begins inside the reasoning, which is then free up to its end tag.

    Raises:
        InvalidArgumentError: the kind is not known, the tools are none, their references grow too large, or the
            markup cannot write a name or a value of theirs.
        InvalidJsonError: the schema is not JSON.
    """
    tags = _Tags(version, special_tokens, max_expanded)
    formats = {"tool_call": tags.optional_calls, "tool_call_required": tags.open_calls, "json": _json, "regex": _regex}
    if constraint.kind not in formats:
        raise InvalidArgumentError(f"kind of the constraint is {constraint.kind!r}; known: {', '.join(formats)}")
    body = formats[constraint.kind](constraint.schema)
    if reasoning:
        end = special_tokens.thinking_end
        body = _sequence(_text_without(end), _constant(end), body)
    return print_json({"type": "structural_tag", "format": body}, compact=True)


def read_tools(schema: str) -> list[ToolDefinition]:
    """The loaded tools of a constraint of tool calls.

    Raises:
        InvalidArgumentError: it is no list of functions with names.
        InvalidJsonError: it is not JSON.
    """
    listed = parse_json(schema)
    tools: list[ToolDefinition] = []
    for entry in listed if isinstance(listed, list) else [None]:
        function = entry.get("function") if isinstance(entry, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not (isinstance(entry, dict) and isinstance(function, dict) and isinstance(name, str)):
            raise InvalidArgumentError("schema of the constraint is no list of functions with names")
        tools.append(ToolDefinition(name, None, function.get("parameters"), None, bool(entry.get("defer_loading"))))
    return tools


def _json(schema: str) -> Format:
    return {"type": "json_schema", "json_schema": parse_json(schema) if schema else ANY_CONTAINER}


def _regex(pattern: str) -> Format:
    return {"type": "regex", "pattern": pattern}


def _constant(text: str) -> Format:
    return {"type": "const_string", "value": text}


def _text_without(end: str) -> Format:
    return {"type": "any_text", "excludes": [end]}


def _sequence(*formats: Format) -> Format:
    return {"type": "sequence", "elements": list(formats)}


def _either(formats: list[Format]) -> Format:
    return formats[0] if len(formats) == 1 else {"type": "or", "elements": list(formats)}


def _written(parameters: Parameters) -> Iterator[tuple[str, bool, str]]:
    """Of every parameter the names and the fixed values that the markup writes: the parameter, whether it is a value,
    the text."""
    for parameter in parameters.known:
        yield parameter.name, False, parameter.name
        for choice in (parameter.text.choices or ()) if parameter.text is not None else ():
            yield parameter.name, True, choice
        open: list[JsonValue] = list(parameter.others)
        while open:
            part = open.pop()
            if isinstance(part, list):
                open += part
            elif isinstance(part, dict):
                for key, value in part.items():
                    if key in ("enum", "const"):
                        yield parameter.name, True, print_json(value, compact=True)
                    else:
                        open.append(value)


class _Tags:
    """The tags of a version as formats."""

    def __init__(self, version: ModelVersion, special_tokens: SpecialTokens, max_expanded: int) -> None:
        self.max_expanded = max_expanded
        self.markup = version.template.markup
        self.dsml = special_tokens.dsml

    def optional_calls(self, schema: str) -> Format:
        block = _sequence(_constant(f"<{self.dsml}{self.markup.calls}>\n"), self.open_calls(schema))
        return _sequence(_text_without(f"<{self.dsml}"), {"type": "optional", "content": block})

    def open_calls(self, schema: str) -> Format:
        calls = _either([self._call(tool) for tool in read_tools(schema)])
        return _sequence({"type": "plus", "content": calls}, _constant(f"</{self.dsml}{self.markup.calls}>"))

    def _call(self, tool: ToolDefinition) -> Format:
        markup, parameters = self.markup, read_parameters(tool.parameters, self.max_expanded)
        self._check_names(tool.name, parameters)
        begin = f'<{self.dsml}{markup.invoke} name="{tool.name}">\n'
        end = f"</{self.dsml}{markup.invoke}>\n"
        none = _constant("\n" if markup.empty_line_for_none else "")
        if parameters.open:
            content: Format = {"type": "star", "content": self._free_parameter()}
            return _sequence(_constant(begin), content, _constant(end))
        if not parameters.known:
            return _constant(begin + ("\n" if markup.empty_line_for_none else "") + end)
        parts: list[Format] = []
        for parameter in parameters.known:
            one = self._parameter(parameter)
            parts.append(one if parameter.required else {"type": "optional", "content": one})
        if markup.empty_line_for_none and not any(parameter.required for parameter in parameters.known):
            parts.append({"type": "optional", "content": none})
        return _sequence(_constant(begin), *parts, _constant(end))

    def _check_names(self, tool: str, parameters: Parameters) -> None:
        """Refuse what would end its place in the markup, which has no escapes."""
        end = f"</{self.dsml}"
        for name, is_value, text in ((tool, False, tool), *_written(parameters)):
            found = end if end in text else f"<{self.dsml}" if f"<{self.dsml}" in text else ""
            if not found and not is_value and ('"' in text or "\n" in text):
                found = '"' if '"' in text else "\n"
            if found and (not is_value or found == end):
                kind = "the value" if is_value else "the name"
                raise InvalidArgumentError(
                    f"tool {tool!r}: {kind} {text!r} of {name!r} holds {found!r}, which the markup cannot write there"
                )

    def _parameter(self, parameter: Parameter) -> Format:
        kinds: list[Format] = []
        if parameter.text is not None:
            kinds.append(self._value(parameter.name, "true", self._raw(parameter.text)))
        for schema in parameter.others:
            kinds.append(self._value(parameter.name, "false", self._json(schema)))
        return _either(kinds)

    def _value(self, name: str, is_string: str, content: Format) -> Format:
        head = f'<{self.dsml}{self.markup.parameter} name="{name}" string="{is_string}">'
        return _sequence(_constant(head), content, _constant(f"</{self.dsml}{self.markup.parameter}>\n"))

    def _raw(self, text: Text) -> Format:
        if text.choices is None:
            return _text_without(f"</{self.dsml}")
        return _either([_constant(choice) for choice in text.choices])

    def _json(self, schema: JsonValue) -> Format:
        return {"type": "json_schema", "json_schema": schema, "excludes": [f"</{self.dsml}"]}

    def _free_parameter(self) -> Format:
        """A parameter of any name and value."""
        name: Format = {"type": "regex", "pattern": r"[A-Za-z0-9_.-]+"}
        head, end = f'<{self.dsml}{self.markup.parameter} name="', f"</{self.dsml}{self.markup.parameter}>\n"
        kinds = [
            _sequence(_constant('" string="true">'), _text_without(f"</{self.dsml}"), _constant(end)),
            _sequence(_constant('" string="false">'), self._json(ANY_OTHER), _constant(end)),
        ]
        return _sequence(_constant(head), name, _either(kinds))
