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
    from .errors import ConversionError, ImageError, InvalidBodyError, InvalidJsonError, RecipeError, StreamError
    from .events.side import EventSide, event_side
    from .grammar import structural_tag
    from .images import ImageFetcher, ImageQuota, ImageResolver, MultiModalData
    from .options import (
        ConversionOptions,
        InferenceOptions,
        OutputConstraint,
        ParsingOptions,
        ReasoningContentBehavior,
        ThinkingInitialStage,
        WebSearchBehavior,
    )
    from .protocols import Protocol, protocol
    from .quirks import Quirks
    from .requests.converted import ConversationRequest
    from .special_tokens import SpecialToken, SpecialTokens
    from .stream.chunks import FinishChunk, FinishReason, InferenceChunk, ReadyChunk, TextChunk, TokensChunk
    from .stream.parser import StreamProcessor
    from .stream.usage import PromptUsage
    from .templates.base import Prompt
    from .tokenizer import Tokenizer
    from .versions import ModelVersion, model_version, model_versions

__all__ = [
    "AssistantMessage",
    "Conversation",
    "ConversationRequest",
    "ConversionError",
    "ConversionOptions",
    "Encoding",
    "EventSide",
    "FinishChunk",
    "FinishReason",
    "ImageError",
    "ImageFetcher",
    "ImageQuota",
    "ImageResolver",
    "ImageSource",
    "InferenceChunk",
    "InferenceOptions",
    "InvalidBodyError",
    "InvalidJsonError",
    "LatestReminder",
    "Message",
    "ModelVersion",
    "MultiModalData",
    "OutputConstraint",
    "ParsingOptions",
    "Prompt",
    "PromptUsage",
    "Protocol",
    "Quirks",
    "ReadyChunk",
    "ReasoningContentBehavior",
    "RecipeError",
    "SpecialToken",
    "SpecialTokens",
    "StreamError",
    "StreamProcessor",
    "StretchCache",
    "SystemMessage",
    "TextChunk",
    "ThinkingInitialStage",
    "Tokenizer",
    "TokensChunk",
    "ToolCall",
    "ToolDefinition",
    "ToolMessage",
    "UserMessage",
    "WebSearchBehavior",
    "event_side",
    "model_version",
    "model_versions",
    "protocol",
    "structural_tag",
]

_MODULES = {
    ".conversation": (
        "AssistantMessage Conversation ImageSource LatestReminder Message "
        "SystemMessage ToolCall ToolDefinition ToolMessage UserMessage"
    ),
    ".encoding": "Encoding StretchCache",
    ".errors": "ConversionError ImageError InvalidBodyError InvalidJsonError RecipeError StreamError",
    ".events.side": "EventSide event_side",
    ".grammar": "structural_tag",
    ".images": "ImageFetcher ImageQuota ImageResolver MultiModalData",
    ".options": (
        "ConversionOptions InferenceOptions OutputConstraint "
        "ParsingOptions ReasoningContentBehavior ThinkingInitialStage WebSearchBehavior"
    ),
    ".protocols": "Protocol protocol",
    ".quirks": "Quirks",
    ".requests.converted": "ConversationRequest",
    ".special_tokens": "SpecialToken SpecialTokens",
    ".stream.chunks": "FinishChunk FinishReason InferenceChunk ReadyChunk TextChunk TokensChunk",
    ".stream.parser": "StreamProcessor",
    ".stream.usage": "PromptUsage",
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
