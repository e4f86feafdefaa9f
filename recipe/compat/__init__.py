"""The API of `deepseek-recipe` 0.2.0: a program written for it runs with this package in its place.

Same names, same arguments, same exceptions, and the same mistakes where the plain API of `deepinfer.recipe` does
better (`deepinfer.recipe.quirks`). New programs have no reason to come here.
"""

from __future__ import annotations

from .conversation import (
    AssistantMessage,
    BytesImageSource,
    Conversation,
    DataUrlImageSource,
    ImageSource,
    LatestReminderMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UrlImageSource,
    UserMessage,
)
from .errors import CalcResizeError, ConversionError, ImageError
from .generators import ChatCompletionChunkGenerator, MessagesChunkGenerator, ResponsesChunkGenerator, ResponsesEcho
from .images import (
    ImageInfo,
    ImageQuota,
    ImageResolver,
    MultiModalData,
    OpenCvImagePreprocessor,
    PreprocessOptions,
    ReqwestImageFetcher,
)
from .options import ConversionOptions, InferenceOptions, OutputConstraint, ParsingOptions
from .prompts import (
    IMAGE_SPECIAL_TOKEN_ID,
    DeepseekV4Encoding,
    DeepseekV41Encoding,
    RenderedPrompt,
    SpecialTokens,
    Tokenizer,
)
from .requests import ChatCompletionRequest, ConversationRequest, MessagesRequest, ResponsesRequest
from .responses import (
    ChatCompletionChunk,
    ChatCompletionResponse,
    MessagesResponse,
    MessagesStreamEvent,
    ResponsesResponse,
    ResponsesStreamEvent,
)
from .streams import InferenceChunk, PromptUsage, StreamProcessor
from .words import (
    InferenceFinishReason,
    ModelVersion,
    ReasoningContentBehavior,
    SpecialToken,
    ThinkingInitialStage,
    WebSearchBehavior,
)

__version__ = "0.2.0"
"""The version whose API this is."""

__all__ = [
    "IMAGE_SPECIAL_TOKEN_ID",
    "AssistantMessage",
    "BytesImageSource",
    "CalcResizeError",
    "ChatCompletionChunk",
    "ChatCompletionChunkGenerator",
    "ChatCompletionRequest",
    "ChatCompletionResponse",
    "Conversation",
    "ConversationRequest",
    "ConversionError",
    "ConversionOptions",
    "DataUrlImageSource",
    "DeepseekV4Encoding",
    "DeepseekV41Encoding",
    "ImageError",
    "ImageInfo",
    "ImageQuota",
    "ImageResolver",
    "ImageSource",
    "InferenceChunk",
    "InferenceFinishReason",
    "InferenceOptions",
    "LatestReminderMessage",
    "Message",
    "MessagesChunkGenerator",
    "MessagesRequest",
    "MessagesResponse",
    "MessagesStreamEvent",
    "ModelVersion",
    "MultiModalData",
    "OpenCvImagePreprocessor",
    "OutputConstraint",
    "ParsingOptions",
    "PreprocessOptions",
    "PromptUsage",
    "ReasoningContentBehavior",
    "RenderedPrompt",
    "ReqwestImageFetcher",
    "ResponsesChunkGenerator",
    "ResponsesEcho",
    "ResponsesRequest",
    "ResponsesResponse",
    "ResponsesStreamEvent",
    "SpecialToken",
    "SpecialTokens",
    "StreamProcessor",
    "SystemMessage",
    "ThinkingInitialStage",
    "Tokenizer",
    "ToolCall",
    "ToolDefinition",
    "ToolMessage",
    "UrlImageSource",
    "UserMessage",
    "WebSearchBehavior",
    "__version__",
]
