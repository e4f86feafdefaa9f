"""The prefix cache over the embedded model: later turns of a chat are spared most of their prompt, bit for bit."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from deepinfer import LLM, SamplingParams
from deepinfer.hal.catalog import load_backend
from deepinfer.model.hub import resolve_model
from deepinfer.model.transformer import Model
from deepinfer.runtime.images import ImageReader
from deepinfer.runtime.prefix import PrefixSettings
from engines import drain
from model_engines import model_engine, say

DRAFTS = 3


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    load_backend("reference")
    loaded = Model.load(resolve_model("tiny"), max_model_len=1024, max_draft=DRAFTS, backtrack=128 + DRAFTS + 1)
    yield loaded
    loaded.close()


def build(model: Model, cached: bool, drafts: int, **options: Any) -> Any:
    layout = model.cache_layout
    slack = layout.ring_slots - model.config.text.sliding_window
    assert slack == 128 + DRAFTS + 1
    prefix = PrefixSettings(slack, repr(layout).encode()) if cached else None
    return model_engine(model, drafts, requests=8, pages=40, rows=400, longest=700, prefix=prefix, **options)


def text(seed: int, count: int) -> list[int]:
    return [0, *np.random.default_rng(seed).integers(3, 400, size=count - 1).tolist()]


def told(outputs: list[Any]) -> list[Any]:
    return [(o.token_id, o.token_logprobs, o.confidence_score, o.accepted) for o in outputs]


@pytest.mark.parametrize(("temperature", "drafts"), [pytest.param(0, 0, marks=pytest.mark.whole), (0.8, DRAFTS)])
def test_turns_of_a_chat_give_the_bits_of_the_whole_prompt(model: Model, drafts: int, temperature: float) -> None:
    cached, plain = build(model, True, drafts), build(model, False, drafts)
    chat, spared = text(0, 121), []
    for turn in range(2):
        params = SamplingParams(max_tokens=8, ignore_eos=True, temperature=temperature, seq_seed=turn)
        (got,), (want,) = (say(made, [(chat, params)]) for made in (cached, plain))
        assert told(got) == told(want)
        spared.append(got[0].cached_tokens)
        chat = chat + [o.token_id for o in got] + text(10 + turn, 110)[1:]
    assert spared == [0, 128]
    assert cached.stats.prompt_tokens == plain.stats.prompt_tokens - sum(spared)


def test_a_shared_beginning_serves_requests_that_turn_off_behind_it(model: Model) -> None:
    system = text(1, 128)
    params = SamplingParams(max_tokens=4, ignore_eos=True, temperature=0)
    asked = [(system + text(20 + key, 130 + 9 * key), params) for key in range(4)]
    cached, plain = build(model, True, DRAFTS), build(model, False, DRAFTS)
    want = say(plain, asked)
    got = [say(cached, [one])[0] for one in asked[:2]] + say(cached, asked[2:])
    assert [told(one) for one in got] == [told(one) for one in want]
    assert [one[0].cached_tokens for one in got] == [0, 0, 128, 128]


def picture(seed: int) -> bytes:
    """A PNG that takes ten tokens."""
    image = pytest.importorskip("PIL.Image", reason="needs the images extra")
    pixels = np.random.default_rng(seed).integers(0, 256, (80, 100, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def test_images_are_part_of_what_is_shared(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """One image lies in the first page, one across its end, one behind: what goes on inside one encodes it again."""
    encoded: list[int] = []
    encode = model.vision.encode
    monkeypatch.setattr(model.vision, "encode", lambda images: encoded.append(len(images)) or encode(images))
    slot = model.config.image_token_id
    ids = [*text(3, 60), slot, *text(4, 53)[1:], slot, *text(5, 20)[1:], slot, 7, 8]  # the second: tokens 122 to 131
    params = SamplingParams(max_tokens=2, ignore_eos=True, temperature=0.8, seq_seed=5)
    images = ImageReader(model.config, spelling="image")
    cached, plain = (build(model, on, DRAFTS, images=images) for on in (True, False))

    def ask(made: Any, *seeds: int) -> list[Any]:
        made.add_request(None, 0, params, ids, {"image_bytes": [picture(seed) for seed in seeds]})
        outputs: list[Any] = drain(made)[(0, 0)]
        return outputs

    found: dict[Any, Any] = {}
    for seeds, spared, towers in (
        ((0, 1, 2), 0, 3),
        ((0, 1, 2), 128, 2),
        ((0, 1, 9), 128, 2),
        ((0, 9, 2), 0, 3),
        ((9, 1, 2), 0, 3),
        ((0, 1, 2), 128, 2),
    ):
        encoded.clear()
        got = ask(cached, *seeds)
        assert (got[0].cached_tokens, sum(encoded)) == (spared, towers), seeds
        if seeds not in found:
            found[seeds] = told(ask(plain, *seeds))
        assert told(got) == found[seeds], seeds
    assert len({str(outputs) for outputs in found.values()}) == 4, "another picture says something else"


def test_later_turns_are_spared_and_say_the_same() -> None:
    """Through the public interface: the argument lengthens the rings and turns the cache on."""
    chat = text(2, 140)
    params = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
    said = {}
    for on in (False, True):
        with LLM("tiny", decode_sequence=False, max_model_len=300, enable_prefix_caching=on, max_num_seqs=4) as llm:
            first = llm.generate(prompt_token_ids=[chat], sampling_params=params, use_tqdm=False)[0]
            longer = chat + [output.token_id for output in first] + chat[1:20]
            second = llm.generate(prompt_token_ids=[longer], sampling_params=params, use_tqdm=False)[0]
            said[on] = [told(first), told(second)]
            assert second[0].cached_tokens == (128 if on else 0)
            assert llm.engine.executor.caches.layout.ring_slots == 16 + 6 + (128 if on else 0)
    assert said[True] == said[False]
