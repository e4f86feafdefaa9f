"""What the page asks the server: each function takes the request's JSON object and the tokenizer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from .. import workbench
from ..protocols import protocols
from ..stream.chunks import InferenceChunk
from ..tokenizer import Tokenizer
from ..versions import model_versions
from .examples import OUTPUTS, REQUESTS

MAX_CHUNKS = 20_000
MAX_DELAY_MS = 1000
MAX_SECONDS = 120


class InvalidInputError(Exception):
    """The page sent what it never sends."""


def info(body: dict[str, Any], tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Protocols, versions and examples to choose from."""
    return {
        "protocols": list(protocols()),
        "versions": [{"key": version.key, "model": version.model_name} for version in model_versions()],
        "tokenizer": tokenizer is not None,
        "requests": REQUESTS,
        "outputs": OUTPUTS,
    }


def render(body: dict[str, Any], tokenizer: Tokenizer | None) -> dict[str, Any]:
    """The prompt of a request in pieces, its token ids, and the request's settings."""
    rendered = _rendered(body)
    found: dict[str, Any] = {
        "protocol": rendered.protocol,
        "version": rendered.request.model_version.key,
        "pieces": list(rendered.pieces()),
        "settings": rendered.settings(),
    }
    if tokenizer is not None:
        ids = rendered.ids(tokenizer)
        found["ids"] = [[number, _piece(tokenizer, number), tokenizer.is_added(number)] for number in ids]
    return found


def parse(body: dict[str, Any], tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Events and response of every protocol for a whole output."""
    events: dict[str, list[Any]] = {}
    responses: dict[str, str] = {}
    for line in _parsed(body, tokenizer, delay=0):
        for name, new in line["events"].items():
            events.setdefault(name, []).extend(new)
        responses = line.get("responses", responses)
    return {"events": events, "responses": responses}


def stream(body: dict[str, Any], tokenizer: Tokenizer | None) -> Iterator[dict[str, Any]]:
    """The same piece by piece: after each the text so far, the new events and the responses so far."""
    delay = _number(body, "delay_ms", 0, MAX_DELAY_MS)
    yield from _parsed(body, tokenizer, delay=delay / 1000)


def _parsed(body: dict[str, Any], tokenizer: Tokenizer | None, *, delay: float) -> Iterator[dict[str, Any]]:
    rendered = _rendered(body)
    output, size = _text(body, "output"), _number(body, "chunk_size", 1, 1 << 20)
    last = workbench.finish_chunk(_text(body, "finish_reason"))
    if len(output) > MAX_CHUNKS * size:
        raise InvalidInputError(f"the output makes more than {MAX_CHUNKS} pieces; make them larger")
    if delay * len(output) / size > MAX_SECONDS:
        raise InvalidInputError(f"streaming would take more than {MAX_SECONDS} seconds; use larger pieces or no pause")
    answers = workbench.answers(rendered, tokenizer, created=int(time.time()))
    done = 0
    chunks: list[InferenceChunk] = [*workbench.text_chunks(output, size), last]
    for chunk in chunks:
        events = {name: answer.push(chunk) for name, answer in answers.items()}
        done = min(len(output), done + size)
        line: dict[str, Any] = {"done": done, "events": events}
        if delay or chunk is last:
            line["responses"] = {name: _indented(answer.response()) for name, answer in answers.items()}
        yield line
        if delay and chunk is not last:
            time.sleep(delay)


def _indented(text: str) -> str:
    """JSON for people; numbers as they were printed."""
    return json.dumps(json.loads(text), ensure_ascii=False, indent=2)


def _rendered(body: dict[str, Any]) -> workbench.Rendered:
    return workbench.render(_text(body, "request"), _choice(body, "protocol"), _choice(body, "version"))


def _choice(body: dict[str, Any], name: str) -> str | None:
    """A name; None when it is left open."""
    return _text(body, name) or None if body.get(name) is not None else None


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise InvalidInputError(f"{name} is missing, or no text")
    return value


def _number(body: dict[str, Any], name: str, low: int, high: int) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidInputError(f"{name} is {value!r}; allowed are whole numbers from {low} to {high}")
    return value


def _piece(tokenizer: Tokenizer, number: int) -> str:
    return (tokenizer.token_bytes(number) or b"").decode("utf-8", "backslashreplace")


API: dict[str, Callable[[dict[str, Any], Tokenizer | None], dict[str, Any]]] = {
    "/api/info": info,
    "/api/render": render,
    "/api/parse": parse,
}
STREAMS: dict[str, Callable[[dict[str, Any], Tokenizer | None], Iterator[dict[str, Any]]]] = {"/api/stream": stream}
