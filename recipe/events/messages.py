"""Messages: events and the accumulated message."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidJsonError
from ..json_text import parse_json
from ..requests.converted import ConversationRequest
from ..stream.chunks import FinishReason, ReadyChunk
from ..stream.logprobs import Logprobs
from ..stream.usage import NO_PROMPT_USAGE, PromptUsage
from .base import ChunkGenerator, End, Event, compact, quoted
from .side import EventSide

_STOP = {FinishReason.STOP: "end_turn", FinishReason.LENGTH: "max_tokens", FinishReason.CONTENT_FILTER: "refusal"}


class MessagesEvent(Event):
    """One event: a fixed one, or one of the subclasses. The constructor is for the generator."""

    __slots__ = ("_name", "_text")

    def __init__(self, name: str, text: str) -> None:
        self._is_spent = False
        self._name = name
        self._text = text

    @property
    def sse_name(self) -> str | None:
        self.check()
        return self._name

    def json(self) -> str:
        return self._text

    def apply(self, response: MessagesResponse) -> None:
        """Add the event to a message. A fixed one adds nothing."""


class _Start(MessagesEvent):
    __slots__ = ("message",)

    def __init__(self, message: dict[str, Any]) -> None:
        super().__init__("message_start", compact({"type": "message_start", "message": message}))
        self.message = message

    def apply(self, response: MessagesResponse) -> None:
        response.start(self.message)


class _BlockStart(MessagesEvent):
    __slots__ = ("block",)

    def __init__(self, index: int, block: dict[str, Any]) -> None:
        event = {"type": "content_block_start", "index": index, "content_block": block}
        super().__init__("content_block_start", compact(event))
        self.block = block

    def apply(self, response: MessagesResponse) -> None:
        response.blocks.append((dict(self.block), []))


class _BlockStop(MessagesEvent):
    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        super().__init__("content_block_stop", f'{{"type":"content_block_stop","index":{index}}}')
        self.index = index

    def apply(self, response: MessagesResponse) -> None:
        response.finish_block(self.index)


class _Delta(MessagesEvent):
    """A piece of the block at `index`: a text, a piece of reasoning, or a piece of a tool's input."""

    __slots__ = ("field", "index", "kind", "piece")

    def __init__(self, index: int, kind: str, field: str, piece: str) -> None:
        self._is_spent = False
        self._name = "content_block_delta"
        self.index = index
        self.kind = kind
        self.field = field
        self.piece = piece

    def json(self) -> str:
        return (
            f'{{"type":"content_block_delta","index":{self.index},'
            f'"delta":{{"type":"{self.kind}","{self.field}":{quoted(self.piece)}}}}}'
        )

    def apply(self, response: MessagesResponse) -> None:
        if self.index < len(response.blocks):
            block, pieces = response.blocks[self.index]
            if self.kind == "signature_delta":
                block["signature"] = self.piece
            else:
                pieces.append(self.piece)


class _MessageDelta(MessagesEvent):
    __slots__ = ("delta", "usage")

    def __init__(self, delta: dict[str, Any], usage: dict[str, Any]) -> None:
        super().__init__("message_delta", compact({"type": "message_delta", "delta": delta, "usage": usage}))
        self.delta = delta
        self.usage = usage

    def apply(self, response: MessagesResponse) -> None:
        response.message |= {**self.delta, "usage": self.usage}


def _usage(prompt: PromptUsage, output_tokens: int) -> dict[str, Any]:
    return {
        "input_tokens": prompt.prompt_cache_miss_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": prompt.prompt_cache_hit_tokens,
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }


def _empty(id: str, model: str, usage: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


class MessagesChunkGenerator(ChunkGenerator[MessagesEvent]):
    """Makes the events of one message.

    Args:
        signature: what thinking blocks are signed with; the id, if it is None.
    """

    def __init__(self, id: str, model: str, *, thinking: bool, signature: str | None = None) -> None:
        super().__init__(id, model, thinking=thinking)
        self._signature = id if signature is None else signature
        self._index = -1  # of the last block
        self._kind: str | None = None  # of the open block

    def with_signature(self, signature: str) -> MessagesChunkGenerator:
        """A generator that signs with this; consumes the one that it is made of.

        Raises:
            ConsumedError: the generator served a stream, or became another.
        """
        self.consume()
        return MessagesChunkGenerator(self.id, self.model, thinking=self.thinking, signature=signature)

    def begin(self, ready: ReadyChunk, out: list[MessagesEvent]) -> None:
        usage = _usage(ready.prompt_usage or NO_PROMPT_USAGE, 0)
        out.append(_Start(_empty(self.id, self.model, usage)))
        if self.thinking:
            self._open_thinking(out)

    def content(self, text: str, logprobs: Logprobs | None, out: list[MessagesEvent]) -> None:
        if self._kind != "text":
            self._open("text", {"type": "text", "text": ""}, out)
        out.append(_Delta(self._index, "text_delta", "text", text))

    def reasoning(self, text: str, logprobs: Logprobs | None, out: list[MessagesEvent]) -> None:
        if self._kind != "thinking":
            self._open_thinking(out)
        out.append(_Delta(self._index, "thinking_delta", "thinking", text))

    def call(self, index: int, id: str, name: str, out: list[MessagesEvent]) -> None:
        self._open("tool_use", {"type": "tool_use", "id": id, "name": name, "input": {}}, out)

    def arguments(self, text: str, out: list[MessagesEvent]) -> None:
        out.append(_Delta(self._index, "input_json_delta", "partial_json", text))

    def end(self, end: End, out: list[MessagesEvent]) -> None:
        self._close(out)
        reason = _STOP[end.reason]
        if end.stop_sequence is not None:
            reason = "stop_sequence"
        elif end.made_calls and end.reason is FinishReason.STOP:
            reason = "tool_use"
        usage = _usage(end.usage.prompt, end.usage.completion_tokens)
        out.append(_MessageDelta({"stop_reason": reason, "stop_sequence": end.stop_sequence}, usage))
        out.append(MessagesEvent("message_stop", '{"type":"message_stop"}'))

    def _open_thinking(self, out: list[MessagesEvent]) -> None:
        self._open("thinking", {"type": "thinking", "thinking": "", "signature": ""}, out)

    def _open(self, kind: str, block: dict[str, Any], out: list[MessagesEvent]) -> None:
        """Begin a block, and end the one before."""
        self._close(out)
        self._index += 1
        self._kind = kind
        out.append(_BlockStart(self._index, block))
        if self._index == 0:
            out.append(MessagesEvent("ping", '{"type":"ping"}'))

    def _close(self, out: list[MessagesEvent]) -> None:
        if self._kind is None:
            return
        if self._kind == "thinking":
            out.append(_Delta(self._index, "signature_delta", "signature", self._signature))
        out.append(_BlockStop(self._index))
        self._kind = None


class MessagesResponse:
    """A message, accumulated from its events.

    Args:
        id, model, prompt_usage: what it reports until the first event, which brings its own.
    """

    def __init__(self, id: str, model: str, prompt_usage: PromptUsage = NO_PROMPT_USAGE) -> None:
        self.message = _empty(id, model, _usage(prompt_usage, 0))
        self.blocks: list[tuple[dict[str, Any], list[str]]] = []

    def start(self, message: dict[str, Any]) -> None:
        self.message = dict(message)
        self.blocks = []

    def finish_block(self, index: int) -> None:
        """The block is complete: a tool's input becomes what its pieces say, `{}` when they are no JSON."""
        if index < len(self.blocks) and self.blocks[index][0]["type"] == "tool_use":
            block, pieces = self.blocks[index]
            try:
                block["input"] = parse_json("".join(pieces))
            except InvalidJsonError:
                pass

    def accumulate(self, event: MessagesEvent) -> None:
        """Add an event; consumes it.

        Raises:
            ConsumedError: the event was accumulated before.
        """
        event.consume()
        event.apply(self)

    def to_dict(self) -> dict[str, Any]:
        """The message so far. A tool's input is `{}` until its block is complete."""
        return {**self.message, "content": [_finished(block, "".join(pieces)) for block, pieces in self.blocks]}

    def to_json(self) -> str:
        """Compact JSON of the message so far."""
        return compact(self.to_dict())


def _finished(block: dict[str, Any], text: str) -> dict[str, Any]:
    return dict(block) if block["type"] == "tool_use" else {**block, block["type"]: text}


def _generator(request: ConversationRequest, id: str, model: str) -> MessagesChunkGenerator:
    return MessagesChunkGenerator(id, model, thinking=request.conversation.thinking_mode)


def _response(id: str, model: str, created: int, prompt_usage: PromptUsage) -> MessagesResponse:
    return MessagesResponse(id, model, prompt_usage)  # a message does not say when it was made


EVENTS = EventSide("messages", _generator, _response, None)
