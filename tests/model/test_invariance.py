"""One sequence, many schedules: the same bits in every cache byte and every logit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from deepinfer.backends import reference
from deepinfer.model.loading import load_model
from deepinfer.model.transformer import Model
from schedules import Driver, Track, assert_same_caches, assert_same_logits, cuts

CHECKPOINT = Path(__file__).parent / "golden" / "checkpoint"
# Past the page border (128), past the window ring (22), candidate blocks bite (65), odd: an open ratio-2 group.
LENGTH = 141


@pytest.fixture(scope="module")
def model() -> Model:
    reference.backend.load()
    return load_model(CHECKPOINT, identity_vocabulary=True)


@pytest.fixture(scope="module")
def tokens() -> list[int]:
    return np.random.default_rng(7).integers(3, 490, LENGTH).tolist()


@pytest.fixture(scope="module")
def alone(model: Model, tokens: list[int]) -> tuple[Track, tuple[torch.Tensor, torch.Tensor]]:
    driver = Driver(model)
    track = driver.run(tokens)
    return track, driver.state(track)


SCHEDULES = {
    # From the first token, and again over the page border; one chunk between saves time.
    "token by token": [1] * 40 + [82] + [1] * (LENGTH - 122),
    "odd chunks": cuts(LENGTH, 7, 13, 1, 30),
    "page border": cuts(LENGTH, 127, 1, 2),
    "tile multiples": cuts(LENGTH, 16),
    "two tiles and a row": cuts(LENGTH, 33),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_chunking_changes_nothing(model: Model, tokens: list[int], alone: tuple, name: str) -> None:
    driver = Driver(model)
    track = driver.run(tokens, SCHEDULES[name])
    assert_same_logits(track, alone[0])
    assert_same_caches(driver.state(track), alone[1])


def test_neighbours_order_and_padding_change_nothing(model: Model, tokens: list[int], alone: tuple) -> None:
    rng = np.random.default_rng(8)
    others = [rng.integers(3, 490, n).tolist() for n in (1, 18, 140)]
    for place in range(4):
        driver = Driver(model)
        mine = driver.add(tokens)
        rest = [driver.add(t) for t in others]
        # A prompt chunk beside prompts and single tokens, at every place of the batch, then odd decode steps.
        for mine_n, rest_n, rows in (
            (40, (1, 9, 100), None),
            (1, (0, 1, 1), 7),
            (99, (0, 8, 2), 128),
            (1, (0, 0, 37), 64),
        ):
            work = [(track, n) for track, n in zip(rest, rest_n, strict=True) if n]
            work.insert(place, (mine, mine_n))
            driver.step(work, rows=rows)
        assert_same_logits(mine, alone[0])
        assert_same_caches(driver.state(mine), alone[1])


@pytest.mark.parametrize("poison", [0x7F, 0xFF, 0x7E])
def test_stale_bytes_are_never_read(model: Model, tokens: list[int], alone: tuple, poison: int) -> None:
    driver = Driver(model, poison=poison)
    track = driver.run(tokens, cuts(LENGTH, 50, 1, 1))
    assert_same_logits(track, alone[0])


def test_a_reused_slot_and_reused_pages_forget_their_past(model: Model, tokens: list[int], alone: tuple) -> None:
    driver = Driver(model)
    first = driver.run(np.random.default_rng(9).integers(3, 490, LENGTH).tolist())
    second = Track(np.array(tokens, np.int32), first.slot, first.pages[::-1])
    for n in cuts(LENGTH, 64, 3):
        driver.step([(second, n)])
    assert_same_logits(second, alone[0])


@pytest.mark.parametrize("accepted", range(6))
def test_rejected_rows_leave_no_trace(model: Model, tokens: list[int], alone: tuple, accepted: int) -> None:
    """Six rows per step of which the last ones are wrong guesses; taking them back only moves the length."""
    driver = Driver(model)
    track = driver.add(tokens)
    driver.step([(track, 109)])
    right = track.tokens.copy()
    while track.done < LENGTH - 6:
        start = track.done
        track.tokens[start + 1 + accepted : start + 6] = (right[start + 1 + accepted : start + 6] + 77) % 480 + 3
        driver.step([(track, 6)])
        track.tokens[:] = right
        track.done = start + 1 + accepted
    driver.step([(track, LENGTH - track.done)])
    assert_same_logits(track, alone[0])
    assert_same_caches(driver.state(track), alone[1])


def test_prompt_threads_do_not_matter(model: Model, tokens: list[int], alone: tuple) -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert_same_logits(Driver(model).run(tokens), alone[0])
    finally:
        torch.set_num_threads(before)
