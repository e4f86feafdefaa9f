"""What the command line and the page show of the codec: a request as a prompt, an output as every protocol's answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .encoding import Encoding
from .errors import InvalidArgumentError, InvalidBodyError, InvalidJsonError
from .events.side import Response, event_side, event_sides
from .json_text import JsonValue, parse_json, print_json
from .options import ConversionOptions
from .protocols import protocol, protocols
from .requests.converted import ConversationRequest
from .stream.chunks import FinishChunk, FinishReason, InferenceChunk, TextChunk, TokensChunk
from .stream.parser import StreamProcessor
from .stream.usage import NO_PROMPT_USAGE
from .templates.base import Prompt
from .tokenizer import Tokenizer
from .versions import model_version

RESPONSE_ID = "response-1"
_BLOCK_TYPES = frozenset({"tool_use", "tool_result", "thinking", "image", "document"})


def detect_protocol(body: JsonValue) -> str:
    """The protocol that a request looks like.

    `input` makes it Responses; a system prompt beside the messages, tools with `input_schema`, or content blocks that
    only Messages has make it Messages; other messages are Chat Completions.

    Raises:
        InvalidBodyError: it looks like none.
    """
    if isinstance(body, dict):
        if "input" in body:
            return "responses"
        if isinstance(body.get("messages"), list):
            return "messages" if _looks_like_messages(body) else "chat"
    raise InvalidBodyError(
        "the request looks like no protocol: it has neither messages nor input; name the protocol if it is one"
    )


def _looks_like_messages(body: dict[str, Any]) -> bool:
    if "system" in body or "stop_sequences" in body:
        return True
    tools = body.get("tools")
    if isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools):
        return True
    for message in body["messages"]:
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") in _BLOCK_TYPES:
                return True
    return False


@dataclass(frozen=True, slots=True)
class Rendered:
    """A request that became a prompt.

    Args:
        protocol: the name of the protocol it was read as.
        model: the model's name in the request.
    """

    protocol: str
    model: str
    request: ConversationRequest
    prompt: Prompt

    def pieces(self) -> Iterator[tuple[str, bool]]:
        """The prompt in pieces: the text, and whether it is a special token."""
        position = 0
        for start, end in self.prompt.special_ranges:
            if start > position:
                yield self.prompt.text[position:start], False
            yield self.prompt.text[start:end], True
            position = end
        if position < len(self.prompt.text):
            yield self.prompt.text[position:], False

    def ids(self, tokenizer: Tokenizer) -> list[int]:
        """The prompt's token ids. Raises `EncodingError` when the tokenizer lacks a special token."""
        return Encoding(self.request.model_version, tokenizer).encode_prompt(self.prompt)

    def settings(self) -> dict[str, Any]:
        """How the request asks to sample, to constrain and to answer: plain values, those not set left out."""
        options = self.request.inference_options
        names = ("max_tokens", "temperature", "top_p", "logprobs", "top_logprobs", "seed")
        found = {name: getattr(options, name) for name in names if getattr(options, name) not in (None, False)}
        constraint = options.output_constraint
        if constraint is not None:
            found["output_constraint"] = {"kind": constraint.kind, "schema": constraint.schema}
        return found | {"stream": self.request.stream, "images": len(self.prompt.image_sources)}


def render(body: str | bytes, protocol_name: str | None = None, version_name: str | None = None) -> Rendered:
    """The prompt of a request.

    Args:
        body: JSON.
        protocol_name: the request's protocol; None: the one that it looks like.
        version_name: key or name of a model version, whatever model the request names; None: the one it names.

    Raises:
        RecipeError: the request, the protocol's name or the version's name is wrong.
    """
    try:
        value = parse_json(body)
    except InvalidJsonError as error:
        raise InvalidJsonError(f"the request is not JSON: {error}") from None
    name = detect_protocol(value) if protocol_name is None else protocol_name
    known = protocol(name)
    options = ConversionOptions()
    if version_name is not None:
        version = model_version(version_name)
        if isinstance(value, dict):
            value = {"model": version.model_name, **value}
        options = options.with_model_alias(known.read_value(value).model, version)
    read = known.read_value(value)
    request = known.convert(read, options)
    prompt = Encoding(request.model_version).render(request.conversation)
    return Rendered(name, read.model, request, prompt)


class Answer:
    """One output as the answer of one protocol: its events as they come, and the response that they make.

    Args:
        protocol_name: of the answer. Another than the request's takes the request's conversation and parsing options.
    """

    def __init__(
        self, rendered: Rendered, protocol_name: str, tokenizer: Tokenizer | None = None, created: int = 0
    ) -> None:
        side = event_side(protocol_name)
        request = rendered.request
        if protocol_name != rendered.protocol:
            request = replace(request, answer=None)
        generator = side.generator(request, RESPONSE_ID, rendered.model)
        self._processor: StreamProcessor[Any] = StreamProcessor(generator, request.parsing_options, tokenizer)
        self._response: Response = side.response(RESPONSE_ID, rendered.model, created, NO_PROMPT_USAGE)
        self.sse_done = side.sse_done

    def push(self, chunk: InferenceChunk) -> list[tuple[str | None, str]]:
        """The name and JSON of each event that a chunk leads to. None after a stop sequence."""
        return [] if self._processor.finished else self._take(self._processor.push(chunk))

    def finish(self) -> list[tuple[str | None, str]]:
        """The last events."""
        return self._take(self._processor.finish())

    def response(self) -> str:
        """Compact JSON of the response so far."""
        return self._response.to_json()

    def _take(self, events: Iterable[Any]) -> list[tuple[str | None, str]]:
        shown = []
        for event in events:
            shown.append((event.sse_name, event.to_json()))
            self._response.accumulate(event)
        return shown


def answers(rendered: Rendered, tokenizer: Tokenizer | None = None, created: int = 0) -> dict[str, Answer]:
    """An answer of every protocol, by name."""
    return {name: Answer(rendered, name, tokenizer, created) for name in protocols() if name in event_sides()}


def text_chunks(text: str, size: int) -> Iterator[TextChunk]:
    """`text` in chunks of `size` characters, each counted as one token.

    Raises:
        InvalidArgumentError: `size` is less than 1, or the text holds half of a surrogate pair.
    """
    if size < 1:
        raise InvalidArgumentError(f"chunk size is {size}; it must be at least 1")
    for start in range(0, len(text), size):
        yield TextChunk(text[start : start + size], 1)


def token_chunks(ids: Sequence[int], size: int) -> Iterator[TokensChunk]:
    """`ids` in chunks of `size`. Raises `InvalidArgumentError` when `size` is less than 1."""
    if size < 1:
        raise InvalidArgumentError(f"chunk size is {size}; it must be at least 1")
    for start in range(0, len(ids), size):
        yield TokensChunk(ids[start : start + size])


FINISH_REASONS: Mapping[str, FinishReason] = {reason.value: reason for reason in FinishReason}


def finish_chunk(reason: str) -> FinishChunk:
    """The engine's last chunk. Raises `InvalidArgumentError` for an unknown reason."""
    if reason not in FINISH_REASONS:
        raise InvalidArgumentError(f"finish reason {reason!r} is not known; known: {', '.join(FINISH_REASONS)}")
    return FinishChunk(FINISH_REASONS[reason])


def plain_request(version_name: str | None, *, thinking: bool, tools: bool, stop: Sequence[str] = ()) -> Rendered:
    """What stands for a request where there is only an output: an empty conversation with these parsing options."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": ""}],
        "thinking": {"type": "enabled" if thinking else "disabled"},
    }
    if stop:
        body["stop"] = list(stop)
    if tools:
        body["tools"] = [{"type": "function", "function": {"name": "any", "description": ""}}]
    return render(print_json(body), "chat", version_name or "v4.1")
