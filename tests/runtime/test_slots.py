"""The device's tables of running requests: lines, owners, and how a step moves them on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deepinfer.hal.device import Device
from deepinfer.hal.stream import InlineStreams
from deepinfer.ops import sampling
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.pool import Pool, PoolError
from deepinfer.runtime.request import Request
from deepinfer.runtime.slots import ENDED, HISTORY, LAST, LENGTH, LIMIT, OWNER, Asks, SlotState, Upload, stop_ids

SLOTS = Pool("slots", 40)
PAGES = Pool("pages", 100)


def request(key: int, tokens: list[int], **params: Any) -> Request:
    made = Request(
        key=key, request_id=key, user_id=None, sample_index=0, params=SamplingParams(**params), seed=2**64 - 1 - key,
        eos_id=1, prompt_len=len(tokens), max_output_tokens=10, tokens=np.array(tokens, np.int32), arrival_time=0.0,
    )  # fmt: skip
    made.slot, made.pages = SLOTS.lease(1), PAGES.lease(1)
    return made


@pytest.fixture
def state() -> SlotState:
    return SlotState(41, 3, torch.device("cpu"), InlineStreams(Device("cpu")))


def line(state: SlotState, one: Request) -> list[int]:
    assert one.slot is not None
    found: list[int] = state.moving[one.slot.first].tolist()
    return found


def test_a_line_holds_the_request_and_its_last_tokens_newest_first(state: SlotState) -> None:
    short, long = request(0, [7]), request(1, [2, 3, 4, 5, 6], temperature=0.5, top_k=4, stop_token_ids=[8, 9])
    state.begin([short, long])
    assert line(state, short)[HISTORY:] == [-1, -1, -1] and line(state, long)[HISTORY:] == [5, 4, 3]
    assert [line(state, long)[at] for at in (LAST, LENGTH, ENDED)] == [6, 5, 0]
    assert line(state, short)[OWNER] != line(state, long)[OWNER] > 0
    assert short.slot is not None and long.slot is not None
    params = state.params(torch.tensor([long.slot.first, short.slot.first]))
    assert params.limit.tolist() == [15, 11] and params.inverse.tolist() == [2.0, 1.0]
    assert params.top_k.tolist() == [4, 0] and params.top_p.tolist() == [sampling.FIXED_ONE] * 2
    assert params.seeds.tolist() == [-2, -1] and params.stop_ids.tolist() == [[8, 9, 1, -1], [1, -1, -1, -1]]
    assert state.asks[long.slot.first] == Asks.TOP_K | Asks.SAMPLED
    assert state.fixed.shape[1] == 6 and state.fixed[short.slot.first, LIMIT] == 11


def test_more_stop_ids_than_there_is_room_for(state: SlotState) -> None:
    few, many = request(0, [7]), request(1, [7], stop_token_ids=list(range(20, 31)))
    state.begin([few])
    state.begin([many])
    assert few.slot is not None and many.slot is not None
    wide = state.params(torch.tensor([few.slot.first, many.slot.first])).stop_ids.tolist()
    assert wide[0] == [1] + [-1] * 15 and wide[1] == [*range(20, 31), 1] + [-1] * 4
    assert stop_ids(request(2, [7], ignore_eos=True)) == [] and stop_ids(request(3, [7], stop_token_ids=[1])) == [1]


@pytest.mark.parametrize("gained", [0, 1, 2, 5])
def test_advancing_moves_history_over_what_was_gained(state: SlotState, gained: int) -> None:
    one = request(0, [2, 3, 4, 5, 6])
    state.begin([one])
    assert one.slot is not None
    said = [11, 12, 13, 14, 15][:gained]
    emitted = torch.tensor([said + [-1] * (5 - gained)], dtype=torch.int32)
    slots = torch.tensor([one.slot.first])
    last = torch.tensor([said[-1] if said else -1], dtype=torch.int32)
    old = state.moving[slots]
    new = state.advance(slots, old, torch.tensor([gained], dtype=torch.int32), emitted, last, torch.tensor([True]))
    text = [2, 3, 4, 5, 6, *said]
    found = line(state, one)
    assert new.tolist() == [found] and found[LAST] == text[-1] and found[LENGTH] == len(text)
    assert found[HISTORY:] == text[-2:-5:-1] and found[ENDED] == (gained > 0)
    assert found[OWNER] == old[0, OWNER]


def test_a_line_of_another_generation_is_refused_and_written_anew(state: SlotState) -> None:
    one = request(0, [2, 3])
    state.begin([one])
    first = state.owner(one)
    state.begin([one])
    assert state.owner(one) == first, "parameters go there once"
    one.generation += 1
    with pytest.raises(PoolError, match="not that of request 0"):
        state.owner(one)
    state.begin([one])
    assert state.owner(one) != first


def test_the_block_table_follows_the_leases(state: SlotState) -> None:
    one, two = request(0, [2]), request(1, [2])
    assert one.slot is not None and two.slot is not None and one.pages is not None and two.pages is not None
    slots = np.array([one.slot.first, two.slot.first])

    def table() -> Any:
        return state.block_table([one, two], slots).tolist()

    assert table() == [one.pages.ids, two.pages.ids]
    two.pages.extend(8)
    assert table() == [one.pages.ids + [-1] * 8, two.pages.ids]
    before = one.pages
    one.pages = PAGES.lease(1)
    before.release()
    two.pages.release()
    two.pages = PAGES.lease(2)
    assert table() == [[*one.pages.ids, -1], two.pages.ids]


def test_an_upload_is_one_copy_of_aligned_arrays() -> None:
    streams = InlineStreams(Device("cpu"))
    arrays = {"a": np.arange(3, dtype=np.int32), "empty": np.zeros((0, 4), np.int32), "b": np.eye(3, dtype=np.int32)}
    moved = Upload(arrays, torch.device("cpu"), streams)
    assert moved["a"].tolist() == [0, 1, 2] and moved["b"].tolist() == np.eye(3).tolist()
    assert moved["empty"].shape == (0, 4)
    assert (moved["b"].data_ptr() - moved["a"].data_ptr()) % 256 == 0
    assert moved.memory.numel() == 128
