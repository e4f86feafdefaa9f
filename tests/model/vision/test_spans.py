"""Spans of images in sequences, and the model's forward over them: chunks, positions, what an image token is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import golden_adapter
from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.model.batch import Batch, SequenceSlice
from deepinfer.model.vision import ImageSpan, expand_prompt, image_tokens, plan_resize
from deepinfer.model.vision.resize import ResizePlan
from deepinfer.model.vision.spans import image_rows
from released import GOLDEN_CHECKPOINT

pytest.importorskip("PIL", reason="needs the images extra")
GOLDEN = GOLDEN_CHECKPOINT.parent
VOCAB, PLACEHOLDER = 512, 500
TYPES = {-2: 3, -3: 5, -4: 4}
"""Mark -> type in the golden file: start, newline, end."""


@pytest.fixture(scope="module")
def adapter() -> golden_adapter.Adapter:
    return golden_adapter.factory(str(GOLDEN_CHECKPOINT))


@pytest.fixture(scope="module")
def sequences() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((GOLDEN / "golden.json").read_text())["sequences"]
    return [s for s in found if s["images"]]


def plan(across: int, down: int) -> ResizePlan:
    return ResizePlan(across * 42, down * 42, across * 3, down * 3, across, down, False)


def test_a_span_is_start_rows_with_their_ends_and_end() -> None:
    assert image_tokens(plan(3, 2)).tolist() == [-2, 0, 1, 2, -3, 3, 4, 5, -3, -4]
    assert image_tokens(plan(1, 1)).tolist() == [-2, 0, -3, -4]


def test_placeholders_become_spans_in_order() -> None:
    ids = np.array([7, PLACEHOLDER, 8, 9, PLACEHOLDER, PLACEHOLDER], np.int32)
    got, starts = expand_prompt(ids, [plan(1, 1), plan(2, 1), plan(1, 2)], PLACEHOLDER, VOCAB)
    first = [VOCAB + 2, *[VOCAB + 1] * 3]
    assert got.tolist() == [7, *first, 8, 9, *first, VOCAB + 1, *first, VOCAB + 1, VOCAB + 1]
    assert starts == [1, 7, 12] and got.dtype == np.int32
    same, none = expand_prompt(np.array([3, 4], np.int32), [], PLACEHOLDER, VOCAB)
    assert same.tolist() == [3, 4] and none == []


@pytest.mark.parametrize(("placeholders", "images"), [(0, 1), (2, 1), (1, 2), (3, 0)])
def test_both_counts_are_named_when_they_differ(placeholders: int, images: int) -> None:
    ids = np.array([5, *[PLACEHOLDER] * placeholders], np.int32)
    with pytest.raises(InvalidArgumentError, match=f"{images} images for {placeholders} placeholders"):
        expand_prompt(ids, [plan(1, 1)] * images, PLACEHOLDER, VOCAB)


def test_the_golden_layout(adapter: Any, sequences: Sequence[dict[str, Any]]) -> None:
    for sequence in sequences:
        ids, spans = adapter.expand(sequence["ids"], [str(GOLDEN / f) for f in sequence["images"]])
        types = np.ones(len(ids), int)
        for span in spans:
            types[span.start : span.end] = [TYPES.get(s, 2) for s in image_tokens(span.plan).tolist()]
        assert ids == sequence["expanded_ids"] and types.tolist() == sequence["types"]


# ---- rows of a step -------------------------------------------------------------------------------------------------


def sliced(start: int, end: int, *, before: int = 2, shift: float = 0.0) -> SequenceSlice:
    """Rows of a sequence of 2 text tokens, an image of 2 x 2 tokens (8 in all) and 3 text tokens."""
    ids = np.array([5] * before + [VOCAB + 2] + [VOCAB + 1] * 7 + [6] * 3, np.int32)
    embeds = (torch.arange(4).view(4, 1).expand(4, 3) + shift).to(torch.bfloat16)
    return SequenceSlice(ids, start, end, 1, [1], images=[ImageSpan(before, plan(2, 2), embeds)])


CPU = torch.device("cpu")


def taken(slices: Sequence[SequenceSlice], rows: int) -> list[float | None]:
    """What each row takes: the value of its embedding, the mark's name, or None."""
    found = image_rows(slices, VOCAB, rows, CPU)
    assert found is not None
    return [found.values[s, 0].item() if s >= 0 else None if s == -1 else s for s in found.source.tolist()]


def test_rows_take_their_part_of_an_image() -> None:
    whole = [None, None, -2, 0.0, 1.0, -3, 2.0, 3.0, -3, -4, None, None, None]
    assert taken([sliced(0, 13)], 13) == whole
    assert taken([sliced(0, 13)], 15) == [*whole, None, None], "padding"
    for cut in range(1, 13):
        parts = [taken([sliced(*ends)], ends[1] - ends[0]) for ends in ((0, cut), (cut, 13)) if has_image(*ends)]
        joined = [row for part in parts for row in part]
        assert [r for r in joined if r is not None] == [r for r in whole if r is not None], cut
    assert image_rows([sliced(0, 2), sliced(10, 13)], VOCAB, 5, CPU) is None, "no image in these rows"
    assert taken([sliced(4, 6), sliced(1, 4, shift=10)], 5) == [1.0, -3, None, -2, 10.0], "two sequences"
    (marks,) = [image_rows([sliced(8, 11)], VOCAB, 3, CPU)]
    assert marks is not None and marks.values.shape == (0, 3) and marks.source.tolist() == [-3, -4, -1]


def has_image(start: int, end: int) -> bool:
    return max(start, 2) < min(end, 10)


def test_a_span_over_other_ids_is_refused() -> None:
    good = sliced(0, 13)
    for bad in (
        [ImageSpan(1, plan(2, 2), good.images[0].embeds)],
        [ImageSpan(3, plan(2, 2), good.images[0].embeds)],
        [ImageSpan(2, plan(3, 3), torch.zeros((9, 3), dtype=torch.bfloat16))],
        [ImageSpan(2, plan(2, 2), torch.zeros((3, 3), dtype=torch.bfloat16))],
    ):
        with pytest.raises(InvalidArgumentError, match=r"slices\[0\].images"):
            image_rows([replace(good, images=bad)], VOCAB, 13, CPU)


# ---- the model ------------------------------------------------------------------------------------------------------


def forward(adapter: Any, ids: list[int], spans: Any, cuts: Sequence[int]) -> tuple[np.ndarray, Any]:
    """Logits of every position, computed in chunks that end at `cuts`, and the caches behind them."""
    caches, found, start = adapter.caches(), [], 0
    for end in (*cuts, len(ids)):
        batch = adapter.batch(ids, start, end, list(range(start, end)), images=spans)
        found.append(adapter.model.forward(batch, caches).numpy())
        start = end
    return np.concatenate(found), caches


def test_chunk_borders_inside_an_image_change_no_bit(adapter: Any, sequences: Sequence[dict[str, Any]]) -> None:
    sequence = sequences[1]
    ids, spans = adapter.expand(sequence["ids"], [str(GOLDEN / f) for f in sequence["images"]])
    whole, caches = forward(adapter, ids, spans, [])
    first, second = spans
    inside = [first.start + 1, first.start + 4, *range(second.start + 1, second.end)]
    for cuts in (inside, [first.start, first.end, second.start, second.end]):
        logits, others = forward(adapter, ids, spans, cuts)
        assert np.array_equal(logits, whole), list(cuts)
        assert torch.equal(others.pages, caches.pages) and torch.equal(others.state, caches.state)


def test_the_picture_reaches_the_text_behind_it(adapter: Any, sequences: Sequence[dict[str, Any]]) -> None:
    ids, spans = adapter.expand(sequences[0]["ids"], [str(GOLDEN / f) for f in sequences[0]["images"]])
    (span,) = spans
    base, _ = forward(adapter, ids, spans, [])
    other, _ = forward(adapter, ids, [replace(span, embeds=span.embeds.flip(0))], [])
    assert np.array_equal(base[: span.start + 1], other[: span.start + 1]), "nothing looks ahead"
    assert not np.array_equal(base[-1], other[-1])


def test_learned_vectors_stand_at_separators(adapter: Any, sequences: Sequence[dict[str, Any]]) -> None:
    ids, spans = adapter.expand(sequences[0]["ids"], [str(GOLDEN / f) for f in sequences[0]["images"]])
    batch = adapter.batch(ids, 0, len(ids), [], images=spans)
    streams, pending = adapter.model.enter(batch)
    (span,) = spans
    start, newline, end = adapter.model.vision.marks
    for stream in streams.unbind(1):
        own = stream[span.start : span.end]
        assert torch.equal(own[0], start) and torch.equal(own[-1], end)
        across = span.plan.token_columns
        grid = own[1:-1].view(span.plan.token_rows, across + 1, -1)
        assert torch.equal(grid[:, :-1].flatten(0, 1), span.embeds)
        assert all(torch.equal(row, newline) for row in grid[:, -1])
        assert torch.equal(stream[0], adapter.model.embed[ids[0]])
    assert pending[:, 0].eq(1).all()
    assert batch.image.tolist() == [t >= VOCAB for t in ids], "separators route as image tokens as well"


def test_images_of_several_sequences_of_a_step(adapter: Any, sequences: Sequence[dict[str, Any]]) -> None:
    """Two sequences side by side, each with the bits that it has alone."""
    parts, alone = [], []
    for slot, sequence in enumerate(sequences, 1):
        ids, spans = adapter.expand(sequence["ids"], [str(GOLDEN / f) for f in sequence["images"]])
        alone.append(forward(adapter, ids, spans, [])[0][-1])
        pages = [1] if slot == 1 else [2, 3]
        tokens = np.array(ids, np.int32)
        parts.append(SequenceSlice(tokens, 0, len(ids), slot, pages, [len(ids) - 1], images=spans))
    model = adapter.model
    caches = model.new_caches(8, 4)
    together = model.forward(Batch.build(parts, adapter.text, model.device, rows=200), caches).numpy()
    assert np.array_equal(together, np.stack(alone))


def test_plans_of_a_configuration_fit_its_limits(adapter: Any) -> None:
    vision = adapter.model.config.vision
    assert len(image_tokens(plan_resize(3000, 2000, vision))) <= vision.max_image_tokens
