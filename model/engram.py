"""Engram memory: hashed n-gram rows written into the residual streams at a few layers.

A released table is 94 GiB, so it may stay in host memory, mapped from the checkpoint. Which rows a step needs follows
from its token ids alone: they are gathered by a worker thread from the start of the forward on, while layers run.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from .. import ops
from ..ops.spec import WeightHandle
from .batch import Batch

Rows = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class EngramWeights:
    """Table, hash parameters and projection of one Engram layer.

    Attributes:
        table, table_scale: e4m3 [rows, dh] and E8M0 bytes [rows, dh/32], on the device or in host memory.
        lookup: int32 [V], compressed ids; multipliers int64 [n], primes and offsets int64 [C]; with the table.
        pad: compressed id that stands for a missing token.
        wkv: [(m+1) D, C dh]. q_weight, k_weight: bf16 [m, D].
    """

    table: torch.Tensor
    table_scale: torch.Tensor
    lookup: torch.Tensor
    multipliers: torch.Tensor
    primes: torch.Tensor
    offsets: torch.Tensor
    pad: int
    wkv: WeightHandle
    q_weight: torch.Tensor
    k_weight: torch.Tensor


class Engram:
    """One Engram layer."""

    def __init__(self, weights: EngramWeights, device: torch.device, eps: float) -> None:
        self.weights = weights
        self.device = device
        self.eps = eps

    @property
    def on_host(self) -> bool:
        """Whether the table lies in host memory."""
        return self.weights.table.device.type == "cpu"

    @property
    def staged(self) -> bool:
        """Whether rows go from host memory to another device, so that the host must know the n-grams of a step."""
        return self.on_host and self.device.type != "cpu"

    @property
    def width(self) -> int:
        """Channels of a row, C dh."""
        return self.weights.offsets.shape[0] * self.weights.table.shape[1]

    def fetch(self, batch: Batch) -> Rows:
        """The step's rows: e4m3 [T, C dh] and scales [T, C dh/32], where the table is."""
        # N-grams that only the device knows yet are waited for here, which is where the worker is.
        return self.fetch_ngrams(batch.host_ngrams.to("cpu") if self.on_host else batch.ngrams)

    def fetch_ngrams(self, ngrams: torch.Tensor) -> Rows:
        """The rows of n-grams int32 [T, n], which lie where the table is."""
        weights = self.weights
        rows = ops.engram_hash(
            ngrams, weights.lookup, weights.multipliers, weights.primes, weights.offsets, weights.pad
        )
        return ops.engram_gather(weights.table, weights.table_scale, rows)

    def __call__(self, streams: torch.Tensor, rows: Rows, image: torch.Tensor) -> torch.Tensor:
        """bf16 [T, m, D] -> the same with the memory added; image rows unchanged."""
        weights = self.weights
        # Copied here and not by the worker, so that the copy is ordered with the layers' work on one stream.
        codes, scales = (part.to(self.device) for part in rows)
        kv = ops.linear_fp8(codes, scales, weights.wkv)
        return ops.engram_gate(streams, kv, weights.q_weight, weights.k_weight, image, self.eps)


class EngramFetcher:
    """Starts all Engram layers' gathers at once and hands each layer its rows when it gets there."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engram")

    def start(self, layers: dict[int, Engram], batch: Batch) -> dict[int, Future[Rows]]:
        """layer -> future of its rows, in the order the layers need them.

        Tables on a device are read by work queued here: a worker's would be in no order with that of this thread.
        """
        return {
            layer: self._pool.submit(engram.fetch, batch) if engram.on_host else _done(engram.fetch(batch))
            for layer, engram in sorted(layers.items())
        }

    def close(self) -> None:
        """Stop the worker."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def given_rows(rows: Mapping[int, Rows]) -> dict[int, Future[Rows]]:
    """Rows that are there, as `EngramFetcher.start` gives them."""
    return {layer: _done(found) for layer, found in rows.items()}


def _done(rows: Rows) -> Future[Rows]:
    future: Future[Rows] = Future()
    future.set_result(rows)
    return future
