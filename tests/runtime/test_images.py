"""Images of prompts through the engine over the embedded model: refusals, chunks, samples, preemption."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from deepinfer.hal.catalog import load_backend
from deepinfer.hal.errors import DeepInferError, ImageError, InvalidArgumentError, NotSupportedError
from deepinfer.model.hub import resolve_model
from deepinfer.model.tokenizer import Tokenizer
from deepinfer.model.transformer import Model
from deepinfer.model.vision import ImageLimits
from deepinfer.runtime.drafting import Speculation
from deepinfer.runtime.engine import EngineConfig, LLMEngine
from deepinfer.runtime.images import FittedImages, ImageReader
from deepinfer.runtime.llm import LLM
from deepinfer.runtime.loader import build_executor
from deepinfer.runtime.outputs import InvalidRequestsError
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.plan import Limits
from deepinfer.runtime.sampler import SamplerConfig
from engines import build_engine, drain, tokens

Image = pytest.importorskip("PIL.Image", reason="needs the images extra")

LONGEST = 256
GREEDY = SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True)


def picture(width: int = 100, height: int = 80, seed: int = 0, kind: str = "PNG") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def media(*files: bytes) -> dict[str, Any]:
    return {"image_bytes": list(files), "image_sizes": None}


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    load_backend("reference")
    loaded = Model.load(resolve_model("tiny"), max_model_len=LONGEST)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(resolve_model("tiny"))


@pytest.fixture
def encoded(model: Model, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Images per call of the tower, in order."""
    counts: list[int] = []
    original = model.vision.encode

    def encode(images: Any) -> Any:
        counts.append(len(images))
        return original(images)

    monkeypatch.setattr(model.vision, "encode", encode)
    return counts


def reader(model: Model, **options: Any) -> ImageReader:
    return ImageReader(model.config, spelling="<｜image｜>", **options)


def engine(model: Model, **options: Any) -> LLMEngine:
    """A small engine over the model; caches are poisoned so that a byte nobody wrote shows."""
    rows, requests, pages = options.pop("rows", 256), options.pop("requests", 4), options.pop("pages", 8)
    drafting = Speculation(options.pop("drafts", 0))
    executor = build_executor(model, pages + 1, requests + 1, SamplerConfig(), drafting)
    executor.caches.pages.fill_(0x7F)
    executor.caches.state.fill_(0x7F)
    config = EngineConfig(
        vocab_size=model.config.text.vocab_size, eos_id=1, max_model_len=LONGEST, num_pages=pages, num_slots=requests,
        limits=Limits(max_tokens=rows, max_requests=requests, page_tokens=128, max_drafts=drafting.drafts),
        images=reader(model), **options,
    )  # fmt: skip
    return LLMEngine(config, executor)


def prompt(model: Model, *parts: Any) -> list[int]:
    """BOS, then text tokens, with the placeholder for every None."""
    return [0, *(model.config.image_token_id if part is None else part for part in parts)]


def said(engine: LLMEngine, ids: list[int], data: Any, params: SamplingParams = GREEDY) -> list[int]:
    engine.add_request(None, 0, params, ids, data)
    return tokens(drain(engine)[(0, 0)])


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ([b"x"], "multi_modal_data"),
        ({"images": []}, "multi_modal_data key"),
        ({"image_bytes": b"x"}, "multi_modal_data['image_bytes']"),
        ({"image_bytes": [picture()], "image_sizes": 5}, "multi_modal_data['image_sizes']"),
        ({"image_bytes": [picture()], "image_sizes": []}, "multi_modal_data['image_sizes']"),
        ({"image_bytes": [picture()], "image_sizes": [5]}, "multi_modal_data['image_sizes'][0]"),
        ({"image_bytes": [picture()], "image_sizes": [(100, 0)]}, "multi_modal_data['image_sizes'][0]"),
        ({"image_bytes": [picture()], "image_sizes": [(80, 100)]}, "multi_modal_data['image_sizes'][0]"),
        ({"image_bytes": [b"x"]}, "multi_modal_data['image_bytes'][0]"),
        ({"image_bytes": [None]}, "multi_modal_data['image_bytes'][0]"),
        ({"image_bytes": [picture()[:-40]]}, "multi_modal_data['image_bytes'][0]"),
    ],
)
def test_what_is_wrong_is_named(model: Model, data: Any, name: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        reader(model).read(data, 1)
    assert caught.value.parameter == name


def test_sizes_are_checked_against_the_images(model: Model) -> None:
    files = [picture(), picture(37, 140)]
    good = reader(model).read({"image_bytes": files, "image_sizes": [(100, 80), [37, 140]]}, 2)
    assert [image.plan.tokens for image in good.images] == [10, 14]
    with pytest.raises(
        ImageError, match=r"image_sizes'\]\[1\]: got \(37, 141\); allowed: the size of the image, \(37, 140\)"
    ):
        reader(model).read({"image_bytes": files, "image_sizes": [(100, 80), (37, 141)]}, 2)


def test_limits_are_those_of_the_reader(model: Model) -> None:
    with pytest.raises(ImageError, match="100 x 80 pixels"):
        reader(model, limits=ImageLimits(max_pixels=7999)).read(media(picture()), 1)


@pytest.mark.parametrize(("placeholders", "images"), [(0, 1), (1, 0), (2, 1), (1, 2)])
def test_another_number_of_placeholders_is_refused_before_anything_is_queued(
    model: Model, encoded: list[int], placeholders: int, images: int
) -> None:
    one = engine(model)
    ids = prompt(model, 5, *[None] * placeholders, 6)
    with pytest.raises(InvalidArgumentError, match=rf"{images} images for {placeholders} placeholders.*<｜image｜>"):
        one.add_request(None, 0, GREEDY, ids, media(*[picture()] * images))
    assert not one.has_unfinished_requests() and encoded == []
    fitted = one.config.images.read(media(*[picture()] * images), images)
    with pytest.raises(InvalidArgumentError, match=f"{images} images for {placeholders} placeholders"):
        one.add_request(None, 0, GREEDY, ids, fitted)


def test_one_bad_image_and_nothing_runs(model: Model, tokenizer: Tokenizer) -> None:
    llm = LLM.from_engine(engine(model), tokenizer)
    data = [media(picture()), media(b"x"), None]
    with pytest.raises(InvalidRequestsError) as caught:
        llm.generate(["<｜image｜>a", "<｜image｜>b", "c"], GREEDY, use_tqdm=False, multi_modal_data=data)
    assert list(caught.value.errors) == [1] and llm.engine.stats.steps == 0


def test_image_tokens_count_for_the_length(model: Model) -> None:
    """A span takes 10 tokens: a prompt that fits without images does not fit with them."""
    one = engine(model)
    ids = prompt(model, *[5] * (LONGEST - 11), None)
    with pytest.raises(
        InvalidArgumentError, match=f"{LONGEST} ids, 10 of them of 1 images'; allowed: 1 to {LONGEST - 1} "
    ):
        one.add_request(None, 0, GREEDY, ids, media(picture()))
    one.add_request(None, 0, GREEDY, ids[1:], media(picture()))
    assert drain(one)[(0, 0)][-1].prompt_len == LONGEST - 1


def test_an_engine_without_a_reader_refuses_images_and_takes_empty_lists() -> None:
    one = build_engine()
    one.add_request(None, 0, SamplingParams(), [1], {"image_bytes": [], "image_sizes": []})
    one.add_request(None, 1, SamplingParams(), [1], FittedImages(()))
    with pytest.raises(NotSupportedError, match="image_bytes"):
        one.add_request(None, 2, SamplingParams(), [1], media(b"x"))
    for bad in ([b"x"], {"images": []}):
        with pytest.raises(DeepInferError, match="multi_modal_data"):
            one.add_request(None, 2, SamplingParams(), [1], bad)


# ---- running --------------------------------------------------------------------------------------------------------


def test_a_picture_changes_what_is_said_and_nothing_else_does(
    model: Model, tokenizer: Tokenizer, encoded: list[int]
) -> None:
    llm = LLM.from_engine(engine(model), tokenizer, decode_sequence=False)
    text = "Once <｜image｜> upon a time"
    data = [media(picture()), media(picture(seed=1)), media(picture(kind="WEBP")), media(picture()), None]
    params = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True, logprobs=1)
    outputs = llm.generate([text] * 4 + ["Once upon a time"], params, use_tqdm=False, multi_modal_data=data)
    first, other, lossy, again, plain = ([(o.token_id, o.raw_token_logprobs) for o in one] for one in outputs)
    assert first == again and first[0] != other[0] and first[0] != lossy[0] and first[0] != plain[0]
    ids = tokenizer.encode("Once ") + [model.config.image_token_id] + tokenizer.encode(" upon a time", bos=False)
    assert outputs[0][-1].prompt_len == len(ids) + 9
    by_ids = llm.generate(None, params, [ids], use_tqdm=False, multi_modal_data=[media(picture())])
    assert [(o.token_id, o.raw_token_logprobs) for o in by_ids[0]] == first
    assert sum(encoded) == 5
    streamed = llm.stream(text, params, multi_modal_data=media(picture()))
    assert [(o.token_id, o.raw_token_logprobs) for o in streamed] == first


def test_without_images_the_spelling_is_text(model: Model, tokenizer: Tokenizer) -> None:
    llm = LLM.from_engine(engine(model), tokenizer)
    assert llm.generate("a <｜image｜> b", GREEDY, use_tqdm=False)


def test_chunks_samples_and_preemption_change_no_token(model: Model, encoded: list[int]) -> None:
    """Chunks of 7 rows cut both spans; three samples share their images; a pool of three pages preempts."""
    ids, data = prompt(model, 5, 9, None, 7, None, 8, 4), media(picture(), picture(37, 140))
    params = SamplingParams(max_tokens=6, temperature=0.9, seq_seed=4, ignore_eos=True, n=3)
    whole = engine(model)
    whole.add_request(None, 0, params, ids, data)
    want = {key: tokens(outputs) for key, outputs in drain(whole).items()}
    assert len(want) == 3 and encoded == [2]
    encoded.clear()
    small = engine(model, rows=7, requests=3)
    small.add_request(None, 0, params, ids, data)
    assert {key: tokens(outputs) for key, outputs in drain(small).items()} == want
    assert sum(encoded) == 2, "each image once, however many chunks and samples"
    short = engine(model, pages=3)
    long = prompt(model, *range(20, 20 + 98), None, 7, None, 8)  # 125 tokens: samples cross into a second page
    short.add_request(None, 0, params, long, data)
    preempted = {key: tokens(outputs) for key, outputs in drain(short).items()}
    assert short.stats.preemptions > 0
    roomy = engine(model)
    roomy.add_request(None, 0, params, long, data)
    assert {key: tokens(outputs) for key, outputs in drain(roomy).items()} == preempted


def test_drafts_behind_an_image_change_no_token(model: Model) -> None:
    """Temperature 0 says what plain decoding says, with drafts made and verified behind a span."""
    ids, data = prompt(model, 5, None, 6), media(picture())
    plain = engine(model)
    want = said(plain, ids, data)
    one = engine(model, drafts=5)
    assert said(one, ids, data) == want
    assert one.stats.verified > 0


def test_embeddings_are_let_go_once_every_sample_has_passed(model: Model) -> None:
    one = engine(model, rows=12, requests=1)
    params = SamplingParams(max_tokens=3, temperature=0.9, ignore_eos=True, n=2)
    one.add_request(None, 0, params, prompt(model, 5, None, *[6] * 8), media(picture()))
    (image,) = one._by_id[0][0].images
    assert image is one._by_id[0][1].images[0] and image.waiting == {0, 1}
    held = []
    while one.has_unfinished_requests():
        one.step()
        held.append(image.embeds is not None)
    assert held[0] and held.index(False) == held.count(True), "held from the first step on, then never again"
    assert not image.waiting


def test_two_requests_with_images_share_a_step(model: Model) -> None:
    a, b = prompt(model, 5, None, 6), prompt(model, None, 7, 8)
    alone = [said(engine(model), a, media(picture())), said(engine(model), b, media(picture(37, 140)))]
    both = engine(model)
    both.add_request(None, 0, GREEDY, a, media(picture()))
    both.add_request(None, 1, GREEDY, b, media(picture(37, 140)))
    outputs = drain(both)
    assert [tokens(outputs[(0, 0)]), tokens(outputs[(1, 0)])] == alone


def test_prompt_logprobs_and_penalties_pass_over_image_tokens(model: Model) -> None:
    params = GREEDY.copy()
    params.prompt_logprobs = True
    params.repetition_penalty, params.presence_penalty = 1.3, 0.5
    one = engine(model)
    one.add_request(None, 0, params, prompt(model, 5, None, 6, 7), media(picture()))
    first = drain(one)[(0, 0)][0]
    values = first.prompt_logprobs
    assert first.prompt_len == 14 and len(values) == 13
    assert values[1:11] == [-9999.0] * 10, "positions 2 to 11 are the image's"
    assert all(-100 < value < 0 for value in (values[0], *values[11:]))
