"""Copies within the pools: the right lines, and without a wait of the host."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from deepinfer.hal.catalog import load_backend
from deepinfer.hal.device import Device
from deepinfer.hal.stream import Event, InlineStreams
from deepinfer.model.cache_layout import build_cache_layout
from deepinfer.model.caches import Caches
from released import released_config


class Flag(Event):
    """An event that is done when the test says so."""

    over = False

    def done(self) -> bool:
        return self.over

    def synchronize(self) -> None:
        raise AssertionError("nobody may wait")


class Noting(InlineStreams):
    """Notes which pinned memory there is, and the events."""

    def __init__(self) -> None:
        super().__init__(Device("cpu"))
        self.memory: list[weakref.ref[Any]] = []
        self.events: list[Flag] = []

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        made = super().pinned(shape, dtype)
        self.memory.append(weakref.ref(made))
        return made

    def record(self) -> Event:
        self.events.append(Flag())
        return self.events[-1]


@pytest.fixture
def caches() -> Caches:
    load_backend("reference")
    config = released_config()
    layout = build_cache_layout(config.text, config.topology)
    made = Caches(layout, 4, 5, torch.device("cpu"), config.text.head_dim)
    for pool in (made.pages, made.state):
        pool += torch.arange(len(pool), dtype=torch.uint8).unsqueeze(1)
    return made


@pytest.mark.parametrize("pinned", [False, True])
def test_lines_are_copied(caches: Caches, pinned: bool) -> None:
    caches.streams = Noting() if pinned else None
    caches.copy_pages([(1, 3)])
    caches.copy_pages([])
    caches.copy_states([(1, 2), (3, 4)])
    assert caches.pages[:, -1].tolist() == [0, 1, 2, 1]
    assert caches.state[:, -1].tolist() == [0, 1, 1, 3, 3]


def test_numbers_go_through_pinned_memory_that_lives_until_the_copy_is_done(caches: Caches) -> None:
    streams = caches.streams = Noting()
    caches.copy_pages([(1, 3)])
    caches.copy_states([(1, 2)])
    gc.collect()
    assert [ref() is not None for ref in streams.memory] == [True, True]
    streams.events[0].over = True
    caches.copy_states([(3, 4)])
    gc.collect()
    assert [ref() is not None for ref in streams.memory] == [False, True, True]
