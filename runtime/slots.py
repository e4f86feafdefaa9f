"""What the device knows of the requests that run, by state slot: a step uploads what is new, and no more.

Two tables, a line per state slot. One holds what a request brings (parameters, seed, limit, stop ids), uploaded once;
the other what changes with every step (last token, length, whether it has ended), which the device keeps up itself. A
line carries the serial number of its owner. A step says which owner it expects, and a line of another one gives no row
and is reported: a slot that is read by mistake is an error, not a leak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..hal.stream import Streams
from ..ops import sampling
from .pool import Lease, PoolError
from .request import Request

Array = np.ndarray[Any, np.dtype[Any]]

LAST, LENGTH, ENDED, OWNER, HISTORY = range(5)
"""Columns of the table that changes, int32: last token, tokens known with it, whether the request has ended, serial
number of the owner; from HISTORY on the tokens before the last one, newest first, -1 where there are none."""

LIMIT, INVERSE, TOP_K, TOP_P, MIN_P, SEED = range(6)
"""Columns of the other one, int64: length at which the request ends, bits of the fp32 inverse temperature, filters as
the sampling ops take them, bits of the seed."""


class Asks(IntFlag):
    """What requests ask for, so that a step need not look at each."""

    TOP_K = 1
    TOP_P = 2
    MIN_P = 4
    SAMPLED = 8
    TOP_LOGPROBS = 16
    LOGPROBS = 32
    BIAS = 64


ALIGNMENT = 64
"""Numbers of 4 bytes: where arrays of one upload begin, so that kernels find them aligned."""


@dataclass(frozen=True)
class Params:
    """Sampling parameters of some requests, a line each; see `ops.expand_params`."""

    limit: Tensor
    inverse: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seeds: Tensor
    stop_ids: Tensor


class Upload:
    """int32 arrays that go to the device in one copy. `memory` must outlive the copy."""

    def __init__(self, arrays: dict[str, Array], device: torch.device, streams: Streams) -> None:
        places, size = {}, 0
        for name, array in arrays.items():
            places[name] = size
            size += -(-array.size // ALIGNMENT) * ALIGNMENT
        self.memory = streams.pinned((max(size, 1),), torch.int32)
        raw = self.memory.numpy()
        for name, array in arrays.items():
            raw[places[name] : places[name] + array.size] = array.ravel()
        moved = self.memory.to(device, non_blocking=True)
        self._views = {
            name: moved[places[name] : places[name] + array.size].view(array.shape) for name, array in arrays.items()
        }

    def __getitem__(self, name: str) -> Tensor:
        return self._views[name]


class SlotState:
    """The two tables.

    Args:
        slots: state slots, number 0 included. history: tokens before the last one that n-grams need.
        device, streams: where they lie.

    Attributes:
        asks: int32 [slots], `Asks` of each line's owner, in host memory.
    """

    def __init__(self, slots: int, history: int, device: torch.device, streams: Streams) -> None:
        self.device, self.streams, self.history = device, streams, history
        self.moving = torch.zeros((slots, HISTORY + history), dtype=torch.int32, device=device)
        self.fixed = torch.zeros((slots, SEED + 1), dtype=torch.int64, device=device)
        self.stop_ids = torch.full((slots, 4), -1, dtype=torch.int32, device=device)
        self._owners: list[tuple[int, int]] = [(-1, -1)] * slots  # key and generation of the request
        self._serials = count(1)
        self._serial = np.zeros(slots, np.int32)
        self.asks = np.zeros(slots, np.int32)
        self._tables = np.full((slots, 4), -1, np.int32)
        self._held: list[tuple[Lease | None, int]] = [(None, 0)] * slots  # whose pages a line of that holds

    def owner(self, request: Request) -> int:
        """Serial number of a request whose line is there."""
        return int(self.owners([request], np.array([slot_of(request)]))[0])

    def owners(self, requests: Sequence[Request], slots: Array) -> Array:
        """Serial numbers of requests whose lines are there, int32 [N]."""
        for request, slot in zip(requests, slots.tolist(), strict=True):
            if self._owners[slot] != (request.key, request.generation):
                raise PoolError(f"the line of slot {slot} is not that of request {request.key}")
        found: Array = self._serial[slots]
        return found

    def block_table(self, requests: Sequence[Request], slots: Array) -> Array:
        """Pages of requests, int32 [N, most that one has], -1 where there is none. Only lines that changed are read."""
        held, width = self._held, 1
        for request, slot in zip(requests, slots.tolist(), strict=True):
            lease = request.pages
            assert lease is not None
            pages = len(lease)
            if pages > width:
                width = pages
            known, number = held[slot]
            if known is not lease or number != pages:
                self._list(slot, lease, pages)
        found: Array = self._tables[slots, :width]
        return found

    def _list(self, slot: int, lease: Lease, pages: int) -> None:
        if pages > self._tables.shape[1]:
            wider = np.full((len(self._tables), 2 * pages), -1, np.int32)
            wider[:, : self._tables.shape[1]] = self._tables
            self._tables = wider
        self._tables[slot, :pages], self._tables[slot, pages:] = lease.ids, -1
        self._held[slot] = lease, pages

    def begin(self, requests: Sequence[Request]) -> list[Any]:
        """Uploads the lines of requests whose tokens the host knows; those of others are on the device.

        Returns:
            Host memory that must outlive the copies.
        """
        if not requests:
            return []
        slots = [slot_of(request) for request in requests]
        new = [request for request in requests if not self._is_known(request)]
        for request in new:
            slot = slot_of(request)
            self._owners[slot] = request.key, request.generation
            self._serial[slot] = next(self._serials) & 0x7FFFFFFF
            self.asks[slot] = _asks(request)
        moving = np.full((len(requests), HISTORY + self.history), -1, np.int32)
        for line, request in zip(moving, requests, strict=True):
            length = request.length
            line[LAST], line[LENGTH], line[ENDED] = request.tokens[length - 1], length, 0
            line[OWNER] = self._serial[slot_of(request)]
            before = request.tokens[max(0, length - 1 - self.history) : length - 1][::-1]
            line[HISTORY : HISTORY + len(before)] = before
        arrays = {"slots": np.array(slots, np.int32), "moving": moving}
        if new:
            arrays |= self._lines_of(new)
        moved = Upload(arrays, self.device, self.streams)
        self.moving.index_copy_(0, moved["slots"].long(), moved["moving"])
        if new:
            places = moved["new"].long()
            self.fixed.index_copy_(0, places, moved["fixed"].view(torch.int64))
            self.stop_ids.index_copy_(0, places, moved["stop_ids"])
        return [moved]

    def _is_known(self, request: Request) -> bool:
        return self._owners[slot_of(request)] == (request.key, request.generation)

    def _lines_of(self, requests: Sequence[Request]) -> dict[str, Array]:
        stops = [stop_ids(request) for request in requests]
        width = max(len(ids) for ids in stops)
        if width > self.stop_ids.shape[1]:
            wider = self.stop_ids.new_full((len(self.stop_ids), 1 << (width - 1).bit_length()), -1)
            wider[:, : self.stop_ids.shape[1]] = self.stop_ids
            self.stop_ids = wider
        padded = np.full((len(requests), self.stop_ids.shape[1]), -1, np.int32)
        fixed = np.empty((len(requests), SEED + 1), np.int64)
        for line, ids, request, own in zip(padded, stops, requests, fixed, strict=True):
            line[: len(ids)] = ids
            p = request.params
            inverse = np.float32(sampling.inverse_temperature(p.temperature)).view(np.int32)
            limit, seed = request.prompt_len + request.max_output_tokens, np.uint64(request.seed).view(np.int64)
            own[:] = limit, inverse, max(p.top_k, 0), sampling.fixed31(p.top_p), sampling.fixed31(p.min_p), seed
        new = np.array([slot_of(request) for request in requests], np.int32)
        return {"new": new, "fixed": fixed.view(np.int32), "stop_ids": padded}

    def params(self, slots: Tensor) -> Params:
        """Lines of some slots, int64 [N]."""
        lines = self.fixed[slots]
        inverse = lines[:, INVERSE].to(torch.int32).view(torch.float32)
        top_k, top_p, min_p = lines[:, TOP_K].to(torch.int32), lines[:, TOP_P].clone(), lines[:, MIN_P].clone()
        limit, seeds = lines[:, LIMIT].to(torch.int32), lines[:, SEED].clone()
        return Params(limit, inverse, top_k, top_p, min_p, seeds, self.stop_ids[slots])

    def advance(
        self, slots: Tensor, old: Tensor, gained: Tensor, emitted: Tensor, last: Tensor, ended: Tensor
    ) -> Tensor:
        """The lines behind a step, which are written.

        Args:
            slots: int64 [N], distinct. old: int32 [N, columns], their lines before.
            gained: int32 [N], tokens of the step; 0 leaves a line as it is.
            emitted: int32 [N, width], these tokens. last: int32 [N], the last of them. ended: bool [N].
        """
        new = old.clone()
        new[:, LAST], new[:, LENGTH], new[:, ENDED] = last, old[:, LENGTH] + gained, ended.to(torch.int32)
        if self.history:
            past = torch.cat((old[:, HISTORY:].flip(1), old[:, LAST : LAST + 1], emitted), dim=1)
            distance = torch.arange(self.history, device=old.device)
            place = (self.history - 1 + gained.long()).unsqueeze(1) - distance
            new[:, HISTORY:] = past.gather(1, place.clamp(min=0))
        kept = torch.where((gained > 0).unsqueeze(1), new, old)
        self.moving.index_copy_(0, slots, kept)
        return kept


def slot_of(request: Request) -> int:
    """Number of the state slot that a running request holds."""
    assert request.slot is not None
    return request.slot.first


def _asks(request: Request) -> int:
    p = request.params
    found = (
        p.top_k > 0, p.top_p < 1, p.min_p > 0, p.temperature > 0, p.top_logprobs > 0, p.logprobs is not None,
        bool(p.logit_bias),
    )  # fmt: skip
    return sum(Asks(1 << place) for place, asked in enumerate(found) if asked)


def stop_ids(request: Request) -> list[int]:
    """Tokens that end a request, whatever its text."""
    ids = list(request.params.stop_token_ids or ())
    return ids if request.params.ignore_eos or request.eos_id in ids else [*ids, request.eos_id]
