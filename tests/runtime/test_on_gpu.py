"""Engines on a GPU: captured steps and steps that overlap give the bits of eager ones. Skipped without the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from deepinfer import ops
from deepinfer.hal.catalog import CATALOG, load_backend
from deepinfer.hal.registry import REFERENCE, REGISTRY
from deepinfer.hal.stream import HostSyncError
from deepinfer.model.hub import resolve_model
from deepinfer.model.transformer import Model
from deepinfer.runtime.graphs import GraphSettings, Where
from deepinfer.runtime.params import SamplingParams
from model_engines import model_engine, say

pytestmark = pytest.mark.gpu
KINDS = ({"temperature": 0}, {"temperature": 0.7, "top_p": 0.9}, {"top_k": 20, "min_p": 0.01})


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    backend = load_backend("cuda")
    REGISTRY.configure(strict=True)
    loaded = Model.load(
        resolve_model("kernel"), device=backend.devices()[0].torch, max_model_len=512, engram_storage="device"
    )
    yield loaded
    loaded.close()
    REGISTRY.configure()


def where() -> Where:
    backend = load_backend("cuda")
    found = Where.of(backend, backend.devices()[0])
    assert isinstance(found, Where)
    return found


def requests() -> list[tuple[list[int], SamplingParams]]:
    rng = np.random.default_rng(5)
    made = []
    for j, n in enumerate((150, 1, 33, 70, 5)):
        params = SamplingParams(seq_seed=j, max_tokens=8 + j, ignore_eos=True, **KINDS[j % 3])
        made.append(([0, *rng.integers(3, 400, n - 1).tolist()], params))
    return made


def told(found: list[list[Any]]) -> list[Any]:
    keys = ("token_id", "token_logprobs", "nextn_logprobs", "verified", "accepted", "confidence_score")
    return [[[getattr(o, key) for key in keys] for o in outputs] for outputs in found]


@pytest.mark.parametrize("n", [5, 0])
def test_captured_and_overlapping_steps_give_the_bits_of_eager_ones(model: Model, n: int) -> None:
    want = told(say(model_engine(model, n), requests()))
    for interval, overlap in ((1, False), (8, False), (8, True)):
        graphs = (where(), GraphSettings(interval=interval))
        made = model_engine(model, n, graphs=graphs, async_scheduling=overlap)
        assert told(say(made, requests())) == want, (interval, overlap)
        stats = made.executor.graphs.stats
        assert stats.steps > 3 and stats.graphs > 0
        made.executor.graphs.release()


def test_a_wait_of_the_host_is_an_error_that_names_the_op() -> None:
    CATALOG.load(REFERENCE)
    rows = torch.tensor([0, 1], dtype=torch.int32, device="cuda")
    words, row = torch.zeros((1, 1), dtype=torch.int32, device="cuda"), rows[:1].clone()
    streams = where().streams
    with REGISTRY.using(REFERENCE), pytest.raises(HostSyncError, match="the op mask_rows"):
        with streams.no_host_sync():
            ops.mask_rows(torch.zeros((2, 32), device="cuda"), words, row, row, rows)
