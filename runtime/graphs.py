"""Decode steps as captured graphs: which steps they take, their inputs, and results from their outputs.

A step whose rows all decode is packed into the buffers of a fixed shape and replayed: backbone, sampling, draft pass.
Shapes are captured when they are first needed, one per number of sequences and length of the block tables, both rounded
up; all share one pool of memory. Whatever a step holds beside (prompts, images), and sampling that needs the host
(penalties, biases, lists of log-probabilities), runs as without graphs, to the same bits.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..hal import env
from ..hal.backend import Backend
from ..hal.device import Device
from ..hal.graph import Graph, Graphs, GraphsUnavailable
from ..hal.stream import Streams
from ..model.caches import Caches
from ..model.decode import DecodeSettings, DecodeShape, DecodeStep
from ..model.transformer import Model
from ..ops import sampling
from .drafting import ModelDrafter
from .execute import Drawn, Result, Work, wants_drafts
from .pool import Lease
from .request import Proposal, Request
from .sampler import Sampler

log = logging.getLogger(__name__)

MAIN, DRAFT = "DEEPINFER_ENFORCE_EAGER", "DEEPINFER_DFLASH_ENFORCE_EAGER"
INTERVAL = "DEEPINFER_CUDAGRAPH_BATCH_SIZE_INTERVAL"
LEAST_PAGES = 32


@dataclass(frozen=True)
class GraphSettings:
    """Settings of an engine.

    Attributes:
        main: capture backbone and sampling. draft: capture the draft pass too.
        interval: step between captured numbers of sequences; below it they are powers of two.
    """

    main: bool = True
    draft: bool = True
    interval: int = 8

    @classmethod
    def from_environment(cls) -> GraphSettings:
        return cls(not env.get(MAIN), not env.get(DRAFT), env.get(INTERVAL))

    def sequences(self, count: int) -> int:
        """Sequences of the captured step that holds `count`."""
        power = 1 << (count - 1).bit_length()
        return power if power < self.interval else -(-count // self.interval) * self.interval

    def pages(self, count: int, most: int) -> int:
        """Columns of the block table of the captured step that holds `count` pages per sequence, `most` at most."""
        return min(max(LEAST_PAGES, 1 << (count - 1).bit_length()), max(most, count))


@dataclass(frozen=True)
class Where:
    """What graphs need of a device: how to capture, how to copy, and how much memory is free (None: nobody knows)."""

    graphs: Graphs
    streams: Streams
    memory_free: Callable[[], int | None] = lambda: None

    @classmethod
    def of(cls, backend: Backend, device: Device) -> Where | GraphsUnavailable:
        """Of a backend's device, or why it has no graphs."""
        graphs = backend.graphs(device)
        if isinstance(graphs, GraphsUnavailable):
            return graphs
        return cls(graphs, backend.streams(device), lambda: backend.capability(device).memory_free)


@dataclass
class Captured:
    """A step of one shape and its graphs, by part and by whether all sequences are greedy."""

    step: DecodeStep
    graphs: dict[tuple[str, bool], Graph] = field(default_factory=dict)
    tables: list[tuple[Lease | None, int]] = field(default_factory=list)
    """By sequence: what its line of the block table holds: pages of which lease, and how many."""


@dataclass(frozen=True)
class GraphStats:
    """What has been captured: graphs, seconds it took, bytes of device memory it took; and steps that were replayed."""

    graphs: int = 0
    seconds: float = 0.0
    nbytes: int = 0
    steps: int = 0


class DecodeGraphs:
    """Runs decode steps of one model on captured graphs.

    Args:
        where: of the device.
        model, caches, sampler, drafter: of the executor.
        settings: as they are.
        max_pages: most pages of a sequence.
    """

    def __init__(
        self,
        where: Where,
        model: Model,
        caches: Caches,
        sampler: Sampler,
        drafter: ModelDrafter | None,
        settings: GraphSettings,
        max_pages: int,
    ) -> None:
        self.where, self.model, self.caches, self.sampler, self.drafter = where, model, caches, sampler, drafter
        self.settings = settings
        self.max_pages = max_pages
        self._decode = DecodeSettings(force_top_k=sampler.config.force_top_k)
        if drafter is not None:
            self._decode = DecodeSettings(
                drafter.settings.drafts,
                drafter.pool,
                drafter.settings.shared,
                sampler.config.force_top_k,
                drafter.inv_confidence,
            )
        self.width = 1 + self._decode.drafts
        self.stats = GraphStats()
        self._captured: dict[DecodeShape, Captured] = {}
        self._logits = torch.empty((0, model.config.text.vocab_size), device=model.device)
        self._last: tuple[Captured, list[tuple[str, bool]]]
        self._params: dict[int, tuple[float, int, int, int, int]] = {}

    # ---- which steps

    def takes(self, work: Sequence[Work]) -> bool:
        """Whether all rows of a step decode."""
        return bool(work) and all(
            item.sample
            and not item.prompt_rows
            and item.start == item.known_end - 1
            and item.end - item.start <= self.width
            and not any(image.lies_in(item.start, item.end) for image in item.request.images)
            for item in work
        )

    def _samples(self, work: Sequence[Work]) -> bool:
        """Whether sampling of a step needs nothing of the host."""
        return self.sampler.device_only and all(is_device_only(item.request) for item in work)

    # ---- running one

    def run(self, work: Sequence[Work]) -> list[Result]:
        """Run a step that `takes` said yes to. Waits for the device once, for the results."""
        most = max(len(item.request.pages.ids) for item in work if item.request.pages is not None)
        sequences = self.settings.sequences(len(work))
        captured = self._shape(DecodeShape(sequences, self.width, self.settings.pages(most, self.max_pages)))
        plain = all(item.request.params.temperature == 0 for item in work)
        on_device = self._samples(work)
        parts = [("backbone", False)]
        if on_device:
            parts.append(("sample", plain))
            if self._decode.drafts:
                parts.append(("draft", plain))
        for part, greedy in parts:
            self._prepare(captured, part, greedy)
        self._fill(captured, work)
        for part, greedy in parts:
            self._launch(captured, part, greedy)
        self._last = captured, parts
        self.stats = GraphStats(**{**self.stats.__dict__, "steps": self.stats.steps + 1})
        if not on_device:
            return self._sample_on_host(captured, work)
        outputs = captured.step.outputs
        outputs.download()
        self.where.streams.record().synchronize()
        return _results(outputs.host, captured.step.inputs.host["draft_row"], work, self._decode.drafts)

    def replay_last(self) -> None:
        """Launch the last step once more, with the same inputs: what a step takes on the device, for benchmarks."""
        captured, parts = self._last
        for part, greedy in parts:
            self._launch(captured, part, greedy)

    def _sample_on_host(self, captured: Captured, work: Sequence[Work]) -> list[Result]:
        rows = sum(item.end - item.start for item in work)
        results = self.sampler.sample(captured.step.logits[:rows], work)
        if self.drafter is not None:
            self.drafter.propose(work, results)
        return results

    def _launch(self, captured: Captured, part: str, plain: bool) -> None:
        graph = captured.graphs.get((part, plain))
        if graph is not None:
            graph.replay()
        else:  # the draft pass, where that is not captured
            self._body(captured.step, part, plain)()

    # ---- capturing

    def _shape(self, shape: DecodeShape) -> Captured:
        found = self._captured.get(shape)
        if found is None:
            if shape.rows > self._logits.shape[0]:
                self._grow(shape.rows)
            step = DecodeStep(self.model, self.caches, shape, self._decode, self.where.streams, self._logits)
            found = self._captured[shape] = Captured(step, tables=[(None, 0)] * shape.sequences)
        return found

    def _grow(self, rows: int) -> None:
        """More room for logits; what was captured writes to the old, so it goes."""
        self.release()
        self._logits = torch.empty((rows, self._logits.shape[1]), device=self.model.device)

    def _prepare(self, captured: Captured, part: str, plain: bool) -> None:
        """Capture a part of a step, unless it is or is not to be."""
        if (part, plain) in captured.graphs or (part == "draft" and not self.settings.draft):
            return
        step, began, free = captured.step, time.monotonic(), self.where.memory_free()
        # Runs with nothing but padding: a run before the capture must write nothing that a step would read.
        step.inputs.clear()
        captured.tables[:] = [(None, 0)] * len(captured.tables)
        step.inputs.upload()
        self.where.streams.record().synchronize()
        captured.graphs[part, plain] = self.where.graphs.capture(self._body(step, part, plain))
        left = self.where.memory_free()
        seconds, nbytes = time.monotonic() - began, 0 if free is None or left is None else max(0, free - left)
        old = self.stats
        self.stats = GraphStats(old.graphs + 1, old.seconds + seconds, old.nbytes + nbytes, old.steps)
        log.info("captured %s of %s in %.2f s, %d bytes", part, step.shape, seconds, nbytes)

    def _body(self, step: DecodeStep, part: str, plain: bool) -> Callable[[], Any]:
        def body() -> None:
            with self.where.streams.no_host_sync():
                if part == "backbone":
                    step.backbone()
                elif part == "sample":
                    step.sample(plain=plain)
                else:
                    step.draft(plain=plain)

        return body

    def release(self) -> None:
        """Free all graphs and their buffers; the next step captures anew."""
        for captured in self._captured.values():
            for graph in captured.graphs.values():
                graph.release()
        self._captured.clear()

    # ---- inputs

    def _fill(self, captured: Captured, work: Sequence[Work]) -> None:
        """Write a step's numbers to the host's buffer and queue its copy. The device is done with the step before."""
        step = captured.step
        host: dict[str, Any] = step.inputs.host
        count = len(work)
        requests = [item.request for item in work]
        lengths = [item.end - item.start for item in work]
        begin = np.zeros(len(host["query_len"]), np.int32)
        np.cumsum(lengths[:-1], out=begin[1:count])
        slots = [_slot(request) for request in requests]
        host["query_len"][:count], host["query_len"][count:] = lengths, 0
        host["key_len"][:count], host["key_len"][count:] = [item.end for item in work], 0
        host["state_slot"][:count], host["state_slot"][count:] = slots, 0
        host["fresh_begin"][:] = begin
        host["valid_start"][:count] = [request.valid_start for request in requests]
        if self._decode.drafts:
            host["draft_slot"][:count] = [
                slot if request.draft_count(1) > 0 else -1 for slot, request in zip(slots, requests, strict=True)
            ]
            host["draft_slot"][count:] = -1
        params = [self._params_of(request) for request in requests]
        for place, name in enumerate(("inv_temperature", "top_k", "top_p", "min_p", "seeds")):
            host[name][:count] = [one[place] for one in params]
        self._fill_tables(captured, host["block_table"], requests)
        ngrams = self._fill_rows(host, work, begin, step.ngram)
        if step.reads_host:
            step.gather(ngrams)
        step.inputs.upload()

    def _params_of(self, request: Request) -> tuple[float, int, int, int, int]:
        found = self._params.get(request.key)
        if found is None:
            if len(self._params) > 1 << 14:
                self._params.clear()
            p = request.params
            found = self._params[request.key] = (
                sampling.inverse_temperature(p.temperature),
                max(p.top_k, 0),
                sampling.fixed31(p.top_p),
                sampling.fixed31(p.min_p),
                int(np.uint64(request.seed).view(np.int64)),
            )
        return found

    def _fill_tables(self, captured: Captured, table: npt.NDArray[np.int32], requests: Sequence[Request]) -> None:
        """Lines of the block table that are not what they were in the last step of this shape."""
        for line, request in enumerate(requests):
            lease = request.pages
            assert lease is not None
            ids = lease.ids
            known, count = captured.tables[line]
            if known is not lease or count != len(ids):
                table[line, : len(ids)] = ids
                table[line, len(ids) :] = -1
                captured.tables[line] = lease, len(ids)

    def _fill_rows(
        self, host: dict[str, Any], work: Sequence[Work], begin: npt.NDArray[np.int32], ngram: int
    ) -> npt.NDArray[np.int32]:
        """Tokens, forced tokens and rows of distributions; returns the rows' n-grams where they are needed."""
        past = ngram - 1
        host["golden"].fill(-1)
        host["draft_row"].fill(-1)
        found = []
        for line, item in enumerate(work):
            request, first = item.request, int(begin[line])
            rows = slice(first, first + item.end - item.start)
            known = request.tokens[item.start : item.known_end]
            host["fresh"][rows] = [*known, *item.drafts]
            if past:
                before = request.tokens[max(0, item.start - past) : item.start][::-1]
                host["history"][line, : len(before)] = before
                host["history"][line, len(before) :] = -1
            if request.params.golden_token_ids:
                host["golden"][rows] = [row.golden for row in self.sampler.rows_of(item)]
            if item.drafts:
                host["draft_row"][rows] = [row.log2q for row in self.sampler.rows_of(item)]
            found.append((line, rows))
        ngrams = np.full((max((rows.stop for _, rows in found), default=0), ngram), -1, np.int32)
        if any(engram.on_host for engram in self.model.engrams.values()):
            for line, rows in found:
                around = np.concatenate([host["history"][line][::-1], host["fresh"][rows]])
                view = np.lib.stride_tricks.sliding_window_view(around, ngram)
                ngrams[rows] = view[:, ::-1]
        return ngrams


def is_device_only(request: Request) -> bool:
    """Whether sampling of a request is a matter of numbers per row: nothing that the host lists token by token."""
    p = request.params
    return not (
        p.top_logprobs
        or p.logprobs is not None
        or p.logit_bias
        or request.num_output_tokens < p.first_n_token_no_eos
        or p.repetition_penalty != 1.0
        or p.frequency_penalty != 0.0
        or p.presence_penalty != 0.0
    )


def _slot(request: Request) -> int:
    assert request.slot is not None
    return int(request.slot.ids[0])


def _results(host: dict[str, Any], draft_row: Any, work: Sequence[Work], drafts: int) -> list[Result]:
    """What the outputs of a step say, as plain values."""
    from_pool = draft_row.tolist()
    counts, emitted = host["count"].tolist(), host["emitted"].tolist()
    logprobs, valid, log2q = host["logprob"].tolist(), host["valid"].tolist(), host["draft_log2q"].tolist()
    proposed, confidence = host["drafts"].tolist(), host["confidence"].tolist()
    results = []
    row = 0
    for line, item in enumerate(work):
        result = Result()
        for place in range(counts[line] + 1):
            at, token = row + place, emitted[line][place]
            drawn = Drawn(token, logprobs[at], valid=valid[at] > 0)
            if from_pool[at] >= 0 and token == item.drafts[place]:
                drawn.draft_logprob = max(log2q[at] * math.log(2), sampling.LOGPROB_FLOOR)
            result.tokens.append(drawn)
        row += item.end - item.start
        if drafts and wants_drafts(item, result):
            result.proposal = Proposal(proposed[line], confidence[line])
        results.append(result)
    return results


__all__ = ["DecodeGraphs", "GraphSettings", "GraphStats", "Where", "is_device_only"]
