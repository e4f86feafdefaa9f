"""The apply_patch tool: custom in the Responses protocol, a function with one text for the model."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from ..conversation import ToolDefinition
from ..json_text import JsonValue

NAME = "apply_patch"
_INPUT = "The entire contents of the apply_patch command (the *** Begin Patch ... *** End Patch envelope)."
_PARAMETERS: JsonValue = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"input": {"type": "string", "description": _INPUT}},
    "required": ["input"],
}


@cache
def apply_patch_tool(blank_line_before_patch: bool) -> ToolDefinition:
    """The function as the model knows it. Model versions differ in a blank line before the first patch of the text."""
    text = files(__package__).joinpath("apply_patch.txt").read_text(encoding="utf-8")
    gap = "\n" if blank_line_before_patch else ""
    return ToolDefinition(NAME, text.replace("{gap}", gap), _PARAMETERS)
