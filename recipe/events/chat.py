"""Chat Completions: chunks and the accumulated completion."""

from __future__ import annotations

from typing import Any

from ..protocols.chat import ChatAnswer
from ..requests.converted import ConversationRequest
from ..stream.chunks import FinishReason, ReadyChunk
from ..stream.logprobs import Logprobs
from ..stream.usage import PromptUsage, Usage
from .base import ChunkGenerator, End, Event, compact, logprobs_json, quoted
from .side import EventSide

_FINISH = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.CONTENT_FILTER: "content_filter"}


class _Frame:
    """What all chunks of a stream share: the JSON around their deltas."""

    __slots__ = ("begins_in_reasoning", "fingerprint", "head", "null_usage", "thinking")

    def __init__(self, generator: ChatChunkGenerator, fingerprint: str | None) -> None:
        self.fingerprint = fingerprint
        self.thinking = generator.thinking
        self.begins_in_reasoning = generator.begins_in_reasoning
        self.null_usage = ',"usage":null' if generator.include_usage else ""
        self.head = (
            f'{{"id":{quoted(generator.id)},"object":"chat.completion.chunk","created":{generator.created},'
            f'"model":{quoted(generator.model)},"system_fingerprint":{compact(fingerprint)},'
            '"choices":[{"index":0,"delta":'
        )


class ChatChunk(Event):
    """One chunk. The constructor is for the generator."""

    __slots__ = ("_frame",)

    def __init__(self, frame: _Frame) -> None:
        self._is_spent = False
        self._frame = frame

    def json(self) -> str:
        frame = self._frame
        return f'{frame.head}{self.delta()},"logprobs":null,"finish_reason":null}}]{frame.null_usage}}}'

    def delta(self) -> str:
        """JSON of the delta."""
        raise NotImplementedError

    def apply(self, response: ChatResponse) -> None:
        """Add the delta to a response."""
        raise NotImplementedError

    def accumulate(self, response: ChatResponse) -> None:
        self.consume()
        response.begin(self._frame.thinking, self._frame.fingerprint)
        self.apply(response)


class RoleChunk(ChatChunk):
    """The first one."""

    __slots__ = ()

    def delta(self) -> str:
        if self._frame.begins_in_reasoning:
            return '{"role":"assistant","content":null,"reasoning_content":""}'
        reasoning = ',"reasoning_content":null' if self._frame.thinking else ""
        return f'{{"role":"assistant","content":""{reasoning}}}'

    def apply(self, response: ChatResponse) -> None:
        (response.reasoning if self._frame.begins_in_reasoning else response.content).append("")


class TextDelta(ChatChunk):
    """A piece of the answer."""

    __slots__ = ("logprobs", "text")

    field = "content"

    def __init__(self, frame: _Frame, text: str, logprobs: list[Any] | None) -> None:
        self._is_spent = False
        self._frame = frame
        self.text = text
        self.logprobs = logprobs

    def json(self) -> str:
        if self.logprobs is None:
            return super().json()
        frame = self._frame
        logprobs = compact({self.field: self.logprobs})
        return f'{frame.head}{self.delta()},"logprobs":{logprobs},"finish_reason":null}}]{frame.null_usage}}}'

    def delta(self) -> str:
        if self._frame.thinking:
            return f'{{"content":{quoted(self.text)},"reasoning_content":null}}'
        return f'{{"content":{quoted(self.text)}}}'

    def apply(self, response: ChatResponse) -> None:
        response.content.append(self.text)
        if self.logprobs is not None:
            response.add_logprobs(self.field, self.logprobs)


class ReasoningDelta(TextDelta):
    """A piece of the reasoning."""

    __slots__ = ()

    field = "reasoning_content"

    def delta(self) -> str:
        return f'{{"content":null,"reasoning_content":{quoted(self.text)}}}'

    def apply(self, response: ChatResponse) -> None:
        response.reasoning.append(self.text)
        if self.logprobs is not None:
            response.add_logprobs(self.field, self.logprobs)


class CallChunk(ChatChunk):
    """A call begins."""

    __slots__ = ("call_id", "index", "name")

    def __init__(self, frame: _Frame, index: int, call_id: str, name: str) -> None:
        self._is_spent = False
        self._frame = frame
        self.index = index
        self.call_id = call_id
        self.name = name

    def delta(self) -> str:
        return (
            f'{{"tool_calls":[{{"index":{self.index},"id":{quoted(self.call_id)},"type":"function",'
            f'"function":{{"name":{quoted(self.name)},"arguments":""}}}}]}}'
        )

    def apply(self, response: ChatResponse) -> None:
        response.calls.append((self.index, self.call_id, self.name, []))


class ArgumentsChunk(ChatChunk):
    """A piece of a call's arguments."""

    __slots__ = ("index", "text")

    def __init__(self, frame: _Frame, index: int, text: str) -> None:
        self._is_spent = False
        self._frame = frame
        self.index = index
        self.text = text

    def delta(self) -> str:
        return f'{{"tool_calls":[{{"index":{self.index},"function":{{"arguments":{quoted(self.text)}}}}}]}}'

    def apply(self, response: ChatResponse) -> None:
        if response.calls:
            response.calls[-1][3].append(self.text)


class LastChunk(ChatChunk):
    """The last one."""

    __slots__ = ("reason", "usage")

    def __init__(self, frame: _Frame, reason: str, usage: Usage) -> None:
        self._is_spent = False
        self._frame = frame
        self.reason = reason
        self.usage = usage

    def json(self) -> str:
        return (
            f'{self._frame.head}{self.delta()},"logprobs":null,"finish_reason":{quoted(self.reason)}}}],'
            f'"usage":{compact(_usage(self.usage, self._frame.thinking))}}}'
        )

    def delta(self) -> str:
        return '{"content":"","reasoning_content":null}' if self._frame.thinking else '{"content":""}'

    def apply(self, response: ChatResponse) -> None:
        response.content.append("")
        response.finish_reason = self.reason
        response.usage = self.usage


def _usage(usage: Usage, thinking: bool) -> dict[str, Any]:
    prompt = usage.prompt
    result: dict[str, Any] = {
        "prompt_tokens": prompt.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": prompt.prompt_cache_hit_tokens},
    }
    if thinking and usage.reasoning_tokens is not None:
        result["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    result["prompt_cache_hit_tokens"] = prompt.prompt_cache_hit_tokens
    result["prompt_cache_miss_tokens"] = prompt.prompt_cache_miss_tokens
    return result


class ChatChunkGenerator(ChunkGenerator[ChatChunk]):
    """Makes the chunks of one completion.

    Args:
        include_usage: whether every chunk has a `usage`, null in all but the last.
        begins_in_reasoning: whether the first chunk says that reasoning comes; `thinking` if None. Not after a prefix
            that has content already.
    """

    def __init__(
        self,
        id: str,
        model: str,
        *,
        thinking: bool,
        include_usage: bool = False,
        begins_in_reasoning: bool | None = None,
    ) -> None:
        super().__init__(id, model, thinking=thinking)
        self.include_usage = include_usage
        self.begins_in_reasoning = thinking if begins_in_reasoning is None else begins_in_reasoning
        self._frame = _Frame(self, None)
        self._index = 0

    def begin(self, ready: ReadyChunk, out: list[ChatChunk]) -> None:
        self._frame = _Frame(self, ready.system_fingerprint)
        out.append(RoleChunk(self._frame))

    def content(self, text: str, logprobs: Logprobs | None, out: list[ChatChunk]) -> None:
        out.append(TextDelta(self._frame, text, logprobs_json(logprobs)))

    def reasoning(self, text: str, logprobs: Logprobs | None, out: list[ChatChunk]) -> None:
        out.append(ReasoningDelta(self._frame, text, logprobs_json(logprobs)))

    def call(self, index: int, id: str, name: str, out: list[ChatChunk]) -> None:
        self._index = index
        out.append(CallChunk(self._frame, index, id, name))

    def arguments(self, text: str, out: list[ChatChunk]) -> None:
        out.append(ArgumentsChunk(self._frame, self._index, text))

    def end(self, end: End, out: list[ChatChunk]) -> None:
        reason = "tool_calls" if end.made_calls and end.reason is FinishReason.STOP else _FINISH[end.reason]
        out.append(LastChunk(self._frame, reason, end.usage))


class ChatResponse:
    """A completion, accumulated from its chunks.

    Args:
        id, model, created: what the completion reports; the chunks' own do not count.
    """

    def __init__(self, id: str, model: str, created: int) -> None:
        self.id = id
        self.model = model
        self.created = created
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[tuple[int, str, str, list[str]]] = []
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self._logprobs: dict[str, list[Any]] = {}
        self._thinking = False
        self._fingerprint: str | None = None
        self._begun = False

    def begin(self, thinking: bool, fingerprint: str | None) -> None:
        """A chunk came."""
        self._begun = True
        self._thinking = thinking
        self._fingerprint = fingerprint

    def add_logprobs(self, field: str, logprobs: list[Any]) -> None:
        self._logprobs.setdefault(field, []).extend(logprobs)

    def accumulate(self, chunk: ChatChunk) -> None:
        """Add a chunk; consumes it.

        Raises:
            ConsumedError: the chunk was accumulated before.
        """
        chunk.accumulate(self)

    def to_dict(self) -> dict[str, Any]:
        """The completion so far."""
        result: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [self._choice()] if self._begun else [],
        }
        if self.usage is not None:
            result["usage"] = _usage(self.usage, self._thinking)
        result["system_fingerprint"] = self._fingerprint
        return result

    def to_json(self) -> str:
        """Compact JSON of the completion so far."""
        return compact(self.to_dict())

    def _choice(self) -> dict[str, Any]:
        content = "".join(self.content) if self.content else None  # null until a chunk says otherwise
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        if self.calls:
            message["tool_calls"] = [
                {
                    "index": index,
                    "id": call_id,
                    "type": "function",
                    "function": {"name": name, "arguments": "".join(arguments)},
                }
                for index, call_id, name, arguments in self.calls
            ]
        logprobs = {
            field: self._logprobs[field] for field in ("content", "reasoning_content") if field in self._logprobs
        }
        return {
            "index": 0,
            "message": message,
            "logprobs": logprobs or None,
            "finish_reason": self.finish_reason,
        }


def _generator(request: ConversationRequest, id: str, model: str) -> ChatChunkGenerator:
    answer = request.answer
    include_usage = not request.stream or (isinstance(answer, ChatAnswer) and answer.include_usage)
    stage = request.parsing_options.thinking_initial_stage
    return ChatChunkGenerator(
        id,
        model,
        thinking=request.conversation.thinking_mode,
        include_usage=include_usage,
        begins_in_reasoning=stage is not None and stage.starts_in_reasoning,
    )


def _response(id: str, model: str, created: int, prompt_usage: PromptUsage) -> ChatResponse:
    return ChatResponse(id, model, created)  # the usage comes with the last chunk


EVENTS = EventSide("chat", _generator, _response, "[DONE]")
