"""A new protocol is one new file: its requests, prompts, streams and responses work by its being there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepinfer import recipe
from deepinfer.recipe import (
    Encoding,
    FinishChunk,
    FinishReason,
    PromptUsage,
    StreamProcessor,
    TextChunk,
    event_side,
    protocol,
)
from deepinfer.recipe.errors import InvalidBodyError
from deepinfer.recipe.events import side
from deepinfer.recipe.protocols import base
from deepinfer.recipe.stream import sse

FILE = '''
"""Plain: a prompt in, lines out."""

from dataclasses import dataclass

from deepinfer.recipe.conversation import Conversation, UserMessage
from deepinfer.recipe.events.base import ChunkGenerator, Event, compact
from deepinfer.recipe.events.side import EventSide
from deepinfer.recipe.options import ParsingOptions
from deepinfer.recipe.protocols.base import Protocol
from deepinfer.recipe.requests import common
from deepinfer.recipe.requests.body import record, required, string
from deepinfer.recipe.requests.converted import ConversationRequest


@dataclass
class PlainBody:
    model: str
    prompt: str


def convert(body, options):
    version = common.resolve_version(body.model, options)
    conversation = Conversation((UserMessage(body.prompt),), thinking_mode=False)
    return ConversationRequest(conversation, version, parsing_options=ParsingOptions(quirks=options.quirks))


class Line(Event):
    def __init__(self, kind, text):
        self._is_spent = False
        self.kind, self.text = kind, text

    def json(self):
        return compact({self.kind: self.text})


class Lines(ChunkGenerator):
    def begin(self, ready, out): out.append(Line("begin", self.id))
    def content(self, text, logprobs, out): out.append(Line("text", text))
    def reasoning(self, text, logprobs, out): out.append(Line("thought", text))
    def call(self, index, id, name, out): out.append(Line("call", name))
    def arguments(self, text, out): out.append(Line("arguments", text))
    def end(self, end, out): out.append(Line("end", end.reason.value))


class Plain:
    def __init__(self): self.text = ""

    def accumulate(self, event):
        event.consume()
        if event.kind == "text":
            self.text += event.text

    def to_dict(self): return {"text": self.text}
    def to_json(self): return compact(self.to_dict())


PROTOCOL = Protocol("plain", "/plain", record(PlainBody, model=required(string), prompt=required(string)), convert)
EVENTS = EventSide(
    "plain",
    lambda request, id, model: Lines(id, model, thinking=request.conversation.thinking_mode),
    lambda id, model, created, usage: Plain(),
    None,
)
'''


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "plain.py").write_text(FILE, encoding="utf-8")
    package = sys.modules["deepinfer.recipe.protocols"]
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    base.protocols.cache_clear()
    side.event_sides.cache_clear()
    yield
    base.protocols.cache_clear()
    side.event_sides.cache_clear()
    sys.modules.pop("deepinfer.recipe.protocols.plain", None)


def test_one_new_file_is_one_new_protocol(plain: None) -> None:
    request = protocol("plain").convert('{"model": "DeepSeek-V4-Pro", "prompt": "q"}')
    prompt = Encoding(request.model_version).render(request.conversation)
    assert prompt.text == "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜></think>"

    answers = event_side("plain")
    response = answers.response("id", "m", 0, PromptUsage())
    processor = StreamProcessor(answers.generator(request, "id", "m"), request.parsing_options)
    frames = ""
    for chunk in (TextChunk("one "), TextChunk("two"), FinishChunk(FinishReason.LENGTH)):
        for event in processor.push(chunk):
            frames += sse.frame(event)
            response.accumulate(event)
    texts = ('{"begin":"id"}', '{"text":"one "}', '{"text":"two"}', '{"end":"length"}')
    assert frames == "".join(f"data: {text}\n\n" for text in texts)
    assert response.to_json() == '{"text":"one two"}'


def test_its_bodies_are_checked(plain: None) -> None:
    with pytest.raises(InvalidBodyError, match="prompt"):
        protocol("plain").convert({"model": "DeepSeek-V4-Pro"})


def test_the_others_are_as_before(plain: None) -> None:
    assert {"chat", "responses", "messages", "plain"} == set(base.protocols()) == set(side.event_sides())


def test_public_names() -> None:
    assert all(getattr(recipe, name) is not None for name in recipe.__all__)
    assert set(recipe.__all__) <= set(dir(recipe))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = recipe.nothing
