"""Tools: names, schemas, the choice among them, strictness, and the output constraint that follows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..conversation import ToolChoice, ToolDefinition
from ..errors import ConversionError
from ..json_text import JsonValue, print_json
from ..options import OutputConstraint
from .common import empty_string
from .schema_check import SchemaError, check_schema
from .strict_schema import EMPTY_PARAMETERS, strict_parameters

MAX_NAME_BYTES = 128
_NAME = re.compile(r"[a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True)
class RequestedChoice:
    """A tool choice as requests make it: one of the words, or with `name` a certain tool."""

    word: ToolChoice = "auto"
    name: str | None = None


AUTO = RequestedChoice()


def check_tool_name(name: str, path: str) -> None:
    """Refuse a name that is empty, longer than 128 bytes, or has other characters than `[a-zA-Z0-9_-]`."""
    if not name:
        raise empty_string(path)
    length = len(name.encode())
    if length > MAX_NAME_BYTES:
        raise ConversionError(
            f"Invalid '{path}': string too long. "
            f"Expected a string with maximum length {MAX_NAME_BYTES}, but got a string with length {length} instead."
        )
    if not _NAME.fullmatch(name):
        raise ConversionError(
            f"Invalid '{path}': string does not match pattern. "
            f"Expected a string that matches the pattern '^{_NAME.pattern}$'."
        )


def check_parameters(tool: ToolDefinition) -> None:
    """Refuse parameters that are no JSON Schema, or not one of an object. The caller replaces those that are absent."""
    parameters = tool.parameters
    try:
        check_schema(parameters)
    except SchemaError as error:
        raise ConversionError(f"Invalid schema for function '{tool.name}': {error}") from None
    kind = parameters.get("type") if isinstance(parameters, dict) else None
    if kind != "object":
        raise ConversionError(
            f"Invalid schema for function '{tool.name}': schema must be a JSON Schema of 'type: \"object\"', "
            f"got 'type: {print_json(kind, compact=True)}'."
        )


@dataclass(frozen=True, slots=True)
class ToolSelection:
    """The tools that the model is told of, and whether it has to call one."""

    tools: tuple[ToolDefinition, ...]
    choice: ToolChoice

    @property
    def in_effect(self) -> bool:
        return bool(self.tools) and self.choice != "none"


def unknown_tool(name: str) -> ConversionError:
    """The error for a choice of a tool that is not there."""
    return ConversionError(
        f"Invalid value for 'tool_call': no function named '{name}' was specified in the 'tools' parameter."
    )


def select_tools(
    tools: Sequence[ToolDefinition], choice: RequestedChoice, thinking: bool, *, parameters_required: bool = False
) -> ToolSelection:
    """Cut the tools to those that the choice leaves, parameters settled.

    A choice of none drops all of them, unseen. Without tools a choice that needs one is none at all.

    Raises:
        ConversionError: a tool breaks a rule, a certain tool is not there, or thinking excludes the choice.
    """
    if choice.word == "none":
        return ToolSelection((), "none")
    settled = _settle(tools, parameters_required)
    if not settled:
        return ToolSelection((), "auto")
    if choice.name is not None:
        settled = [tool for tool in settled if tool.name == choice.name]
        if not settled:
            raise unknown_tool(choice.name)
        choice = RequestedChoice("required")
    if choice.word == "required" and thinking:
        raise ConversionError("Thinking mode does not support this tool_choice")
    return ToolSelection(tuple(settled), choice.word)


def _settle(tools: Sequence[ToolDefinition], parameters_required: bool) -> list[ToolDefinition]:
    """The tools with parameters as prompts and grammars need them: in strict form for strict tools, `{}` when absent.

    A strict form is not checked against the meta-schema: what it keeps is checked while it is read.
    """
    settled: list[ToolDefinition] = []
    names: set[str] = set()
    for tool in tools:
        if tool.name in names:
            raise ConversionError("Tool names must be unique.")
        names.add(tool.name)
        parameters = tool.parameters
        if tool.strict:
            parameters = EMPTY_PARAMETERS if parameters is None else strict_parameters(parameters)
        elif parameters is None and not parameters_required:
            parameters = {}
        else:
            check_parameters(tool)
        settled.append(tool if parameters is tool.parameters else replace(tool, parameters=parameters))
    return settled


def check_strict(selection: ToolSelection, has_format: bool) -> None:
    """Refuse strict tools beside others, and beside a response format."""
    strict = {bool(tool.strict) for tool in selection.tools}
    if len(strict) > 1:
        raise ConversionError("Cannot use strict tool with non-strict tool in the same request")
    if has_format and True in strict:
        raise ConversionError("response_format should not be used with tools")


def tool_constraint(selection: ToolSelection) -> OutputConstraint | None:
    """The constraint of tools that are in effect, None when none are."""
    if not selection.in_effect:
        return None
    listed: list[JsonValue] = []
    for tool in selection.tools:
        function: dict[str, JsonValue] = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "strict": tool.strict,
        }
        entry: dict[str, JsonValue] = {"type": "function", "function": function}
        if tool.defer_loading:
            entry["defer_loading"] = True
        listed.append(entry)
    schema = print_json(listed, compact=True)
    return OutputConstraint("tool_call_required" if selection.choice == "required" else "tool_call", schema)
