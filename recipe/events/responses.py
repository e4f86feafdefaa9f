"""Responses: events and the accumulated response."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..protocols.responses import ResponsesAnswer
from ..protocols.responses.echo import ResponsesEcho
from ..requests.common import shortest_single
from ..requests.converted import ConversationRequest
from ..stream.chunks import FinishReason, ReadyChunk
from ..stream.logprobs import Logprobs
from ..stream.usage import PromptUsage, Usage
from .base import ChunkGenerator, End, Event, compact, logprobs_json, quoted
from .responses_items import Call, CustomCall, Item, Message, Reasoning, ToolSearch
from .side import EventSide

_INCOMPLETE = {FinishReason.LENGTH: "max_output_tokens", FinishReason.CONTENT_FILTER: "content_filter"}


class ResponsesEvent(Event):
    """One event. The constructor is for the generator.

    Args:
        name: its type.
        body: its other fields. They are written in order of their names, `sequence_number` among them.
    """

    __slots__ = ("_name", "_number", "body")

    def __init__(self, name: str, number: int, body: dict[str, Any]) -> None:
        self._is_spent = False
        self._name = name
        self._number = number
        self.body = body

    @property
    def sse_name(self) -> str | None:
        self.check()
        return self._name

    def json(self) -> str:
        fields = sorted({**self.body, "sequence_number": self._number}.items())
        return compact({"type": self._name, **dict(fields)})

    def apply(self, response: ResponsesResponse) -> None:
        """Add the event to a response."""
        body = self.body
        if "response" in body:
            response.replace(body["response"])
        elif self._name == "response.output_item.added":
            response.add_item(body["item"])
        elif self._name == "response.output_item.done":
            response.finish_item(body["output_index"], body["item"])
        elif self._name == "response.content_part.added":
            response.add_part(body["output_index"], body["part"])


class _Delta(ResponsesEvent):
    """A piece of an item."""

    __slots__ = ("_item", "_logprobs", "_piece")

    def __init__(self, item: Item, number: int, piece: str, logprobs: list[Any] | None) -> None:
        self._is_spent = False
        self._name = item.delta_name
        self._number = number
        self._item = item
        self._piece = piece
        self._logprobs = logprobs

    def json(self) -> str:
        item = self._item
        logprobs = ""
        if item.has_logprobs:
            logprobs = f'"logprobs":{compact(self._logprobs or [])},'
        content_index = '"content_index":0,' if item.has_parts else ""
        return (
            f'{{"type":"{self._name}",{content_index}"delta":{quoted(self._piece)},"item_id":{quoted(item.id)},'
            f'{logprobs}"output_index":{item.index},"sequence_number":{self._number}}}'
        )

    def apply(self, response: ResponsesResponse) -> None:
        response.add_text(self._item.index, self._piece, self._logprobs)


def _base(id: str, model: str, created_at: int, echo: ResponsesEcho) -> dict[str, Any]:
    """A response in progress without output."""
    return {
        "id": id,
        "object": "response",
        "created_at": created_at,
        "status": "in_progress",
        "background": False,
        "completed_at": None,
        "content_filters": None,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": None,
        "instructions": echo.instructions,
        "max_output_tokens": echo.max_output_tokens,
        "max_tool_calls": None,
        "model": model,
        "moderation": None,
        "output": [],
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "prompt_cache_retention": None,
        "reasoning": echo.reasoning,
        "safety_identifier": None,
        "service_tier": "default",
        "store": False,
        "temperature": shortest_single(echo.temperature),
        "text": echo.text,
        "tool_choice": echo.tool_choice,
        "tools": list(echo.tools),
        "top_logprobs": echo.top_logprobs,
        "top_p": shortest_single(echo.top_p),
        "truncation": "disabled",
        "usage": None,
        "user": echo.user,
        "metadata": {},
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.prompt.prompt_cache_hit_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": usage.total_tokens,
    }


class ResponsesChunkGenerator(ChunkGenerator[ResponsesEvent]):
    """Makes the events of one response. It keeps the output: the last event repeats it whole.

    Args:
        answer: what the events need of the request.
    """

    def __init__(self, id: str, model: str, *, thinking: bool, answer: ResponsesAnswer | None = None) -> None:
        super().__init__(id, model, thinking=thinking)
        self._answer = answer or ResponsesAnswer()
        self._number = 0
        self._items: list[Item] = []
        self._output: list[dict[str, Any]] = []  # of the items that are done
        self._open: Item | None = None

    def _with(self, **changes: Any) -> ResponsesChunkGenerator:
        self.consume()
        answer = replace(self._answer, **changes)
        return ResponsesChunkGenerator(self.id, self.model, thinking=self.thinking, answer=answer)

    def with_echo(self, echo: ResponsesEcho) -> ResponsesChunkGenerator:
        """A generator whose responses repeat these settings; consumes the one that it is made of.

        Raises:
            ConsumedError: the generator served a stream, or became another.
        """
        return self._with(echo=echo)

    def with_namespace_tool_map(self, names: Mapping[str, tuple[str, str]]) -> ResponsesChunkGenerator:
        """A generator that splits these names; consumes the one that it is made of.

        Args:
            names: namespace and local name by the name that the model knows.

        Raises:
            ConsumedError: the generator served a stream, or became another.
        """
        return self._with(namespace_tool_map=dict(names))

    def _response(self, **changes: Any) -> dict[str, Any]:
        return _base(self.id, self.model, self.created, self._answer.echo) | changes

    def _emit(self, name: str, body: dict[str, Any], out: list[ResponsesEvent]) -> None:
        out.append(ResponsesEvent(name, self._number, body))
        self._number += 1

    def begin(self, ready: ReadyChunk, out: list[ResponsesEvent]) -> None:
        response = self._response()
        self._emit("response.created", {"response": response}, out)
        self._emit("response.in_progress", {"response": response}, out)

    def content(self, text: str, logprobs: Logprobs | None, out: list[ResponsesEvent]) -> None:
        if not isinstance(self._open, Message):
            self._begin_item(Message(f"msg_{self.id}", len(self._output) + (self._open is not None)), out)
        self._delta(text, logprobs_json(logprobs), out)

    def reasoning(self, text: str, logprobs: Logprobs | None, out: list[ResponsesEvent]) -> None:
        logprobs_json(logprobs)  # they have no place in the events of reasoning
        if not isinstance(self._open, Reasoning):
            index = len(self._output) + (self._open is not None)
            self._begin_item(Reasoning(f"rs_{self.id}", index, f"{self.id}-{index}"), out)
        self._delta(text, None, out)

    def call(self, index: int, id: str, name: str, out: list[ResponsesEvent]) -> None:
        if isinstance(self._open, Message):
            self._open.phase = "commentary"
        number = len(self._output) + (self._open is not None)
        answer = self._answer
        item: Item
        if name in answer.custom_tools:
            item = CustomCall(f"ctc_{self.id}", number, id, name)
        elif answer.tool_search and name == "tool_search":
            item = ToolSearch(f"tsc_{self.id}", number, id)
        else:
            item = Call(f"fc_{self.id}", number, id, name, answer.namespace_tool_map.get(name))
        self._begin_item(item, out)

    def arguments(self, text: str, out: list[ResponsesEvent]) -> None:
        if self._open is not None:
            for piece in self._open.read_arguments(text):
                self._delta(piece, None, out)

    def end(self, end: End, out: list[ResponsesEvent]) -> None:
        reason = _INCOMPLETE.get(end.reason)
        status = "completed" if reason is None else "incomplete"
        self._end_item(status, out)
        response = self._response(
            status=status,
            completed_at=int(time.time()),
            incomplete_details=None if reason is None else {"reason": reason},
            output=self._output,
            usage=_usage(end.usage),
        )
        self._emit(f"response.{status}", {"response": response}, out)

    def _delta(self, piece: str, logprobs: list[Any] | None, out: list[ResponsesEvent]) -> None:
        item = self._open
        if item is not None:
            item.add(piece, logprobs)
            if item.delta_name:
                out.append(_Delta(item, self._number, piece, logprobs))
                self._number += 1

    def _begin_item(self, item: Item, out: list[ResponsesEvent]) -> None:
        """Begin an item, and end the one before."""
        self._end_item("completed", out)
        self._open = item
        self._emit("response.output_item.added", {"item": item.begun(), "output_index": item.index}, out)
        part = item.part()
        if part is not None:
            self._emit("response.content_part.added", self._of_item(item, part=part), out)

    def _end_item(self, status: str, out: list[ResponsesEvent]) -> None:
        item, self._open = self._open, None
        if item is None:
            return
        for piece in item.last_pieces():
            item.add(piece, None)
            out.append(_Delta(item, self._number, piece, None))
            self._number += 1
        for name, body in item.done():
            self._emit(name, self._of_item(item, **body), out)
        result = item.ended(status)
        self._output.append(result)
        self._emit("response.output_item.done", {"item": result, "output_index": item.index}, out)

    @staticmethod
    def _of_item(item: Item, **body: Any) -> dict[str, Any]:
        """The body of an event of an item's text."""
        if item.has_parts:
            body["content_index"] = 0
        return {"item_id": item.id, "output_index": item.index, **body}


class ResponsesResponse:
    """A response, accumulated from its events.

    Args:
        id, model, created_at: what it reports until the first event, which brings its own.
    """

    def __init__(self, id: str, model: str, created_at: int) -> None:
        self._response: Mapping[str, Any] = _base(id, model, created_at, ResponsesEcho())
        self._items: list[dict[str, Any]] = []
        self._texts: dict[int, list[str]] = {}  # of the items that are not done
        self._logprobs: dict[int, list[Any]] = {}

    def replace(self, response: Mapping[str, Any]) -> None:
        """The response itself, as the first and last events have it."""
        self._response = response
        self._items = list(response["output"])
        self._texts.clear()
        self._logprobs.clear()

    def add_item(self, item: dict[str, Any]) -> None:
        self._texts[len(self._items)] = []
        self._items.append(item)

    def add_part(self, index: int, part: dict[str, Any]) -> None:
        if index < len(self._items):
            self._items[index] = {**self._items[index], "content": [part]}

    def add_text(self, index: int, text: str, logprobs: list[Any] | None) -> None:
        if index in self._texts:
            self._texts[index].append(text)
            self._logprobs.setdefault(index, []).extend(logprobs or ())

    def finish_item(self, index: int, item: dict[str, Any]) -> None:
        if index < len(self._items):
            self._items[index] = item
            self._texts.pop(index, None)
            self._logprobs.pop(index, None)

    def accumulate(self, event: ResponsesEvent) -> None:
        """Add an event; consumes it.

        Raises:
            ConsumedError: the event was accumulated before.
        """
        event.consume()
        event.apply(self)

    def to_dict(self) -> dict[str, Any]:
        """The response so far."""
        output = [self._so_far(index, item) for index, item in enumerate(self._items)]
        return {**self._response, "output": output}

    def to_json(self) -> str:
        """Compact JSON of the response so far."""
        return compact(self.to_dict())

    def _so_far(self, index: int, item: dict[str, Any]) -> dict[str, Any]:
        """An item with the pieces that came."""
        if index not in self._texts:
            return item
        text = "".join(self._texts[index])
        if item.get("content"):
            part = {**item["content"][0], "text": text}
            if "logprobs" in part:
                part["logprobs"] = self._logprobs.get(index, [])
            return {**item, "content": [part]}
        for field in ("arguments", "input"):
            if isinstance(item.get(field), str):
                return {**item, field: text}
        return item


def _generator(request: ConversationRequest, id: str, model: str) -> ResponsesChunkGenerator:
    answer = request.answer if isinstance(request.answer, ResponsesAnswer) else None
    return ResponsesChunkGenerator(id, model, thinking=request.conversation.thinking_mode, answer=answer)


def _response(id: str, model: str, created: int, prompt_usage: PromptUsage) -> ResponsesResponse:
    return ResponsesResponse(id, model, created)  # the usage comes with the last event


EVENTS = EventSide("responses", _generator, _response, None)
