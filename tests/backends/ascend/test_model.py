"""The preset `kernel` on the simulator, as the suite `model` judges it: some layers and few rows; with --whole, all."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ascend import needs_tilelang
from ascend_ops import TARGET, on_ascend, ops
from deepinfer.conformance.brief import judge_some_calls, judge_some_layers
from deepinfer.conformance.levels import target_model
from deepinfer.conformance.suites.model import cases
from deepinfer.conformance.walk import Track, Walker
from deepinfer.hal.registry import REGISTRY
from deepinfer.model.transformer import Model
from deepinfer.ops.spec import SPECS
from schedules import assert_same_caches

pytestmark = needs_tilelang
PRESET = "kernel"
LAYERS = {
    1: "window keys, and Engram memory",
    4: "keys and index of pairs of tokens, and Engram memory",
    6: "keys and index of single tokens, and candidate blocks chosen",
    8: "an index inside the candidate blocks",
}
"""The layers of every run. The others have a part of what these do."""
WHOLE = [case for case in cases("full", tuple(SPECS.values())) if case.op == PRESET]


@pytest.fixture(autouse=True)
def _kernels() -> Iterator[None]:
    ops()
    with on_ascend():
        yield


def test_layers_that_start_from_recorded_states() -> None:
    """A prompt, and a row of it beside another prompt and padding."""
    outcome = judge_some_layers(PRESET, tuple(LAYERS), TARGET)
    assert outcome.passed and outcome.worst, outcome


def test_calls_of_a_draft_pass() -> None:
    outcome = judge_some_calls(
        PRESET, lambda call: call.step == 1 and call.layer in ("draft layer 1", "drafts"), TARGET
    )
    assert outcome.passed and outcome.notes == ("42 calls",), outcome


def test_the_layer_whose_kernel_errs_is_named() -> None:
    with erring("moe_combine", 1):
        outcome = judge_some_layers(PRESET, (1, 6), TARGET)
    assert [f.message.partition(":")[0] for f in outcome.findings] == ["layer 6"], outcome
    with erring("moe_combine", 13):
        outcome = judge_some_calls(PRESET, lambda call: call.op == "moe_combine", TARGET)
    assert [f.message.partition(", call")[0] for f in outcome.findings] == ["step 1, layer 3"], outcome


@contextmanager
def erring(op: str, which: int) -> Iterator[None]:
    """The backend's kernel of an op, a call of which gives 1.25 times the result."""
    own = next(k for k in REGISTRY.kernels(op) if k.backend == "ascend" and k.version == SPECS[op].version)
    calls = count()

    def run(*args: Any) -> Tensor:
        found = own.fn(*args)
        return found * 1.25 if next(calls) == which else found  # type: ignore[no-any-return]

    planted = REGISTRY.add(replace(own, name="erring", priority=own.priority + 1, fn=run))
    try:
        yield
    finally:
        REGISTRY.remove(planted)


# ---- the same bits --------------------------------------------------------------------------------------------------


def test_chunks_neighbours_order_and_padding_change_no_bit() -> None:
    """Of five tokens' logits and caches, through one layer of each kind."""
    model = cut(0, 1, 2, 6, 8)
    text, other = tokens(5, 1), tokens(4, 2)
    whole = Walker(model, pages=4, slots=4)
    mine = whole.add(text)
    want = whole.step([(mine, 5)])
    parts = Walker(model, pages=4, slots=4)
    neighbour, again = parts.add(other), parts.add(text)
    first = parts.step([(neighbour, 2), (again, 3)], padding=2)[2:5]
    second = parts.step([(again, 2), (neighbour, 1)])[:2]
    assert torch.equal(torch.cat([first, second]), want)
    assert_same_caches(held(parts, again), held(whole, mine))


@pytest.mark.whole
def test_chunks_of_all_layers_change_no_bit() -> None:
    model, text = target_model(PRESET, TARGET), tokens(131, 3)
    whole, parts = Walker(model, pages=4, slots=4), Walker(model, pages=4, slots=4)
    mine, again = whole.add(text), parts.add(text)
    want = whole.step([(mine, 131)])
    got = [parts.step([(again, n)]) for n in (127, 1, 3)]
    assert torch.equal(torch.cat(got), want)
    assert_same_caches(held(parts, again), held(whole, mine))


def cut(*layers: int) -> Model:
    """A model of some of the preset's layers."""
    model = copy.copy(target_model(PRESET, TARGET))
    model.layers = [model.layers[layer] for layer in layers]
    return model


def tokens(n: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, 490, n).tolist()  # type: ignore[no-any-return]


def held(walker: Walker, track: Track) -> tuple[Tensor, Tensor]:
    """A sequence's state slot, and its pages in its own order."""
    return walker.caches.state[track.slot], walker.caches.pages[track.pages]


# ---- all of it ------------------------------------------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.label)
def test_the_whole_preset(case: Any) -> None:
    outcome = case.run(TARGET)
    assert outcome.passed, outcome
