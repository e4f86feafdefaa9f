"""Requests of the three protocols, and what becomes of them."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

from ..errors import InvalidJsonError
from ..events.side import event_side
from ..protocols.base import protocol
from ..protocols.responses import echo_of, namespace_tool_map
from ..requests import converted
from . import arguments as check
from .conversation import Conversation
from .errors import translated
from .generators import ChatCompletionChunkGenerator, MessagesChunkGenerator, ResponsesChunkGenerator, ResponsesEcho
from .options import QUIRKS, ConversionOptions, InferenceOptions, ParsingOptions
from .words import ModelVersion
from .wrapped import Wrapped

RequestBody: TypeAlias = "bytes | str | dict[str, Any]"


class ConversationRequest(Wrapped[converted.ConversationRequest]):
    """A conversation, and how to sample, constrain and parse."""

    __slots__ = ()

    def __init__(self, conversation: Conversation, model_version: ModelVersion) -> None:
        given = check.instance("conversation", conversation, Conversation)
        version = check.instance("model_version", model_version, ModelVersion)
        self._plain = converted.ConversationRequest(given._plain, version.plain)

    @property
    def conversation(self) -> Conversation:
        return Conversation._of(self._plain.conversation)

    @property
    def inference_options(self) -> InferenceOptions:
        return InferenceOptions._of(self._plain.inference_options)

    @property
    def parsing_options(self) -> ParsingOptions:
        """A copy: setting its attributes leaves the request as it is."""
        return ParsingOptions._of(self._plain.parsing_options)

    @property
    def model_version(self) -> ModelVersion:
        version = self._plain.model_version
        return next(word for word in ModelVersion if word.plain is version)

    @property
    def stream(self) -> bool:
        """Whether the request asks for a streamed response."""
        return self._plain.stream

    def resolve_max_tokens(self, prompt_tokens: int, context_limit: int) -> int:
        """The largest number of output tokens to ask the engine for. Raises `ConversionError` if it does not fit."""
        length = check.unsigned("prompt_tokens", prompt_tokens, check.U32)
        limit = check.unsigned("context_limit", context_limit, check.U32)
        with translated():
            return self._plain.resolve_max_tokens(length, limit)


class _Request:
    """A request body. Converting it, even in vain, consumes it."""

    __slots__ = ("_body",)

    _protocol: ClassVar[str]
    _body: Any

    def __init__(self, body: RequestBody) -> None:
        if isinstance(body, str):
            check.text("body", body)
        with translated():
            try:
                self._body = protocol(self._protocol).read(body, quirks=QUIRKS)
            except InvalidJsonError as error:
                raise ValueError(f"invalid JSON request: {error}") from None

    def _unspent(self) -> Any:
        if self._body is None:
            raise RuntimeError("protocol request has been consumed")
        return self._body

    @property
    def model(self) -> str:
        """The requested model name."""
        name: str = self._unspent().model
        return name

    def convert(self, options: ConversionOptions) -> ConversationRequest:
        """The conversation, and how to sample, constrain and parse. Raises `ConversionError`."""
        given = check.instance("options", options, ConversionOptions)
        body, self._body = self._unspent(), None
        with translated():
            return ConversationRequest._of(protocol(self._protocol).convert(body, given._plain))


def _generator(name: str, request: object, id: object, model: object) -> Any:
    given = check.instance("request", request, ConversationRequest)
    return event_side(name).generator(given._plain, check.text("id", id), check.text("model", model))


class ChatCompletionRequest(_Request):
    """A Chat Completions request."""

    __slots__ = ()

    _protocol = "chat"

    @staticmethod
    def chunk_generator(request: ConversationRequest, id: str, model: str) -> ChatCompletionChunkGenerator:
        return ChatCompletionChunkGenerator._of(_generator("chat", request, id, model))


class ResponsesRequest(_Request):
    """A Responses request."""

    __slots__ = ()

    _protocol = "responses"

    def namespace_tool_map(self, options: ConversionOptions) -> dict[str, tuple[str, str]]:
        """Namespace and local name of the declared functions that have one, by the name that the model knows."""
        given = check.instance("options", options, ConversionOptions)
        with translated():
            return namespace_tool_map(self._unspent(), given._plain)

    def echo(self) -> ResponsesEcho:
        """The settings that responses repeat."""
        return ResponsesEcho._of(echo_of(self._unspent()))

    @staticmethod
    def chunk_generator(request: ConversationRequest, id: str, model: str) -> ResponsesChunkGenerator:
        return ResponsesChunkGenerator._of(_generator("responses", request, id, model))


class MessagesRequest(_Request):
    """A Messages request."""

    __slots__ = ()

    _protocol = "messages"

    @staticmethod
    def chunk_generator(request: ConversationRequest, id: str, model: str) -> MessagesChunkGenerator:
        return MessagesChunkGenerator._of(_generator("messages", request, id, model))
