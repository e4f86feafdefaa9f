"""The codec between chat requests and prompts, token ids and responses. Imports no torch.

The public names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .conversation import (
        AssistantMessage,
        Conversation,
        ImageSource,
        LatestReminder,
        Message,
        SystemMessage,
        ToolCall,
        ToolDefinition,
        ToolMessage,
        UserMessage,
    )
    from .encoding import Encoding, StretchCache
    from .errors import ConversionError, ImageError, RecipeError
    from .options import ConversionOptions, InferenceOptions, OutputConstraint, ParsingOptions
    from .special_tokens import SpecialToken, SpecialTokens
    from .templates.base import Prompt
    from .tokenizer import Tokenizer
    from .versions import ModelVersion, model_version, model_versions

__all__ = [
    "AssistantMessage",
    "Conversation",
    "ConversionError",
    "ConversionOptions",
    "Encoding",
    "ImageError",
    "ImageSource",
    "InferenceOptions",
    "LatestReminder",
    "Message",
    "ModelVersion",
    "OutputConstraint",
    "ParsingOptions",
    "Prompt",
    "RecipeError",
    "SpecialToken",
    "SpecialTokens",
    "StretchCache",
    "SystemMessage",
    "Tokenizer",
    "ToolCall",
    "ToolDefinition",
    "ToolMessage",
    "UserMessage",
    "model_version",
    "model_versions",
]

_MODULES = {
    ".conversation": (
        "AssistantMessage Conversation ImageSource LatestReminder Message SystemMessage ToolCall ToolDefinition "
        "ToolMessage UserMessage"
    ),
    ".encoding": "Encoding StretchCache",
    ".errors": "ConversionError ImageError RecipeError",
    ".options": "ConversionOptions InferenceOptions OutputConstraint ParsingOptions",
    ".special_tokens": "SpecialToken SpecialTokens",
    ".templates.base": "Prompt",
    ".tokenizer": "Tokenizer",
    ".versions": "ModelVersion model_version model_versions",
}
_LAZY_NAMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    module = _LAZY_NAMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module, __name__), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_LAZY_NAMES))
