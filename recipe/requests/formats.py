"""Response formats, and the output constraint and parsing options that follow from a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..conversation import Message, ResponseFormat
from ..errors import ConversionError
from ..json_text import JsonValue, print_json
from ..options import ConversionOptions, OutputConstraint, ParsingOptions
from .common import initial_stage
from .schema_check import SchemaError, check_schema
from .strict_schema import strict_format
from .tools import ToolSelection, tool_constraint


@dataclass(frozen=True, slots=True)
class RequestedFormat:
    """How the answer is to look.

    Args:
        schema: of `json_schema`, as given.
        strict: whether the constraint is the strict form of the schema.
        regex: of `regex`, not checked.
    """

    kind: ResponseFormat = "text"
    schema: JsonValue = None
    strict: bool = False
    regex: str | None = None


TEXT = RequestedFormat()


def format_constraint(requested: RequestedFormat) -> OutputConstraint | None:
    """The constraint of a response format, None for free text.

    Raises:
        ConversionError: the schema is no JSON Schema, or has no strict form.
    """
    if requested.kind == "json_object":
        return OutputConstraint("json", "")
    if requested.kind == "regex":
        return OutputConstraint("regex", requested.regex or "")
    if requested.kind == "text":
        return None
    if requested.strict:
        schema = strict_format(requested.schema)
    else:
        schema = requested.schema
        try:
            check_schema(schema)
        except SchemaError as error:
            raise ConversionError(f"Invalid json schema: {error}") from None
    return OutputConstraint("json", print_json(schema, compact=True))


def output_constraint(tools: ToolSelection, of_format: OutputConstraint | None) -> OutputConstraint | None:
    """Tools in effect come before the format."""
    return tool_constraint(tools) or of_format


def parsing_options(
    messages: Sequence[Message],
    thinking: bool,
    tools: ToolSelection,
    kind: ResponseFormat,
    stop_sequences: tuple[str, ...],
    options: ConversionOptions,
) -> ParsingOptions:
    return ParsingOptions(
        parse_tool_calls=tools.in_effect,
        starts_in_tool_calls=tools.in_effect and tools.choice == "required",
        parse_json_output=kind == "json_object",
        thinking_initial_stage=initial_stage(messages, thinking),
        stop_sequences=stop_sequences,
        special_tokens=options.special_tokens,
        quirks=options.quirks,
    )
