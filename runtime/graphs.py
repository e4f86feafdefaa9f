"""Decode steps as captured graphs: which steps they take, their inputs, and results from their outputs.

A step whose rows all decode is packed into the buffers of a fixed shape and replayed: backbone, sampling, draft pass.
Shapes are captured when they are first needed, one per number of sequences and length of the block tables, both rounded
up; all share one pool of memory. Whatever a step holds beside (prompts, images), and sampling that needs the host
(penalties, bans of the first tokens), runs as without graphs, to the same bits. Biases and lists of log-probabilities
are looked at between the graphs (`graphs_lists.py`).
"""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..hal import env
from ..hal.backend import Backend
from ..hal.device import Device
from ..hal.graph import Graph, GraphError, Graphs, GraphsUnavailable
from ..hal.stream import Event, Streams
from ..model.caches import Caches
from ..model.decode import STAGES, DecodeSettings, DecodeShape, DecodeStep
from ..model.transformer import Model
from ..ops import sampling
from .drafting import ModelDrafter
from .execute import Drawn, Result, Work, wants_drafts
from .graphs_ahead import AheadStep
from .graphs_lists import SPARE, Lists
from .pool import Lease, PoolError
from .request import Proposal, Request
from .sampler import Sampler
from .slots import SlotState

log = logging.getLogger(__name__)

MAIN, DRAFT = "DEEPINFER_ENFORCE_EAGER", "DEEPINFER_DFLASH_ENFORCE_EAGER"
INTERVAL = "DEEPINFER_CUDAGRAPH_BATCH_SIZE_INTERVAL"
LEAST_PAGES = 32
NOT_CAPTURED = (GraphError, MemoryError, torch.OutOfMemoryError)
"""Errors of a capture behind which the step runs as it is called."""


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
    tables: list[list[tuple[Lease | None, int]]] = field(default_factory=list)
    """By host memory and sequence: what its line of the block table holds: pages of which lease, and how many."""
    eager: bool = False
    """Whether a capture failed, so that the step runs as it is called."""

    def release(self) -> None:
        """Free the graphs. The step must not be in flight."""
        for graph in self.graphs.values():
            graph.release()
        self.graphs.clear()

    def forget(self) -> None:
        """The host's memory holds nothing any more."""
        self.tables = [[(None, 0)] * self.step.shape.sequences for _ in range(STAGES)]


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
        self._captured: dict[tuple[DecodeShape, bool], Captured] = {}
        self._stop_ids: torch.Tensor | None = None
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
        return all(is_device_only(item.request) for item in work)

    def takes_ahead(self, work: Sequence[Work]) -> bool:
        """Whether a step can be launched although only the device knows where its requests stand."""
        staged = any(engram.staged for engram in self.model.engrams.values())
        forced = any(item.request.params.golden_token_ids for item in work)
        return not staged and not forced and self.takes(work) and self._samples(work)

    # ---- running one

    def run(self, work: Sequence[Work]) -> list[Result]:
        """Run a step that `takes` said yes to. Waits for the device once, for the results."""
        parts = self._parts(work) if self._samples(work) else [("backbone", False)]
        captured = self._ready(work, parts, None)
        self._fill(captured, work)
        captured.step.inputs.upload()
        if len(parts) == 1:
            self._replay(captured, parts)
            return self._sample_on_host(captured, work)
        lists = self._lists(captured, work)
        self._replay(captured, parts, lists)
        return self._ticket(captured, work, lists).results()

    def launch(self, work: Sequence[Work], state: SlotState) -> GraphTicket:
        """Queue a step that `takes_ahead` said yes to; waits for nothing but captures.

        Args:
            work: as it is known; see `Work.ahead`.
            state: what the device knows of the requests. The step keeps it up.
        """
        parts = self._parts(work)
        captured = self._ready(work, parts, state)
        kept = state.begin([item.request for item in work if not item.ahead])
        if self._stop_ids is not None and self._stop_ids is not state.stop_ids:  # there is a wider one now
            captured = self._ready(work, parts, state)
        self._fill(captured, work)
        host: dict[str, Any] = captured.step.inputs.host
        host["slot"][: len(work)] = [line if item.ahead else -1 for line, item in enumerate(work)]
        host["slot"][len(work) :] = -1
        host["owner"][: len(work)] = [state.owner(item.request) for item in work]
        host["owner"][len(work) :] = 0
        captured.step.inputs.upload()
        lists = self._lists(captured, work)
        self._replay(captured, parts, lists)
        return self._ticket(captured, work, lists, kept)

    def _lists(self, captured: Captured, work: Sequence[Work]) -> Lists | None:
        """What requests of a step ask for beside their tokens."""
        lists = Lists(self.sampler, work, self.where.streams)
        if not lists:
            return None
        lists.begin(captured.step)
        return lists

    def _parts(self, work: Sequence[Work]) -> list[tuple[str, bool]]:
        """The graphs of a step, and whether all of its sequences are greedy."""
        plain = all(item.request.params.temperature == 0 for item in work)
        parts = [("backbone", False), ("sample", plain)]
        return [*parts, ("draft", plain)] if self._decode.drafts else parts

    def _ready(self, work: Sequence[Work], parts: Sequence[tuple[str, bool]], state: SlotState | None) -> Captured:
        """A captured step that holds the work."""
        most = max(len(item.request.pages.ids) for item in work if item.request.pages is not None)
        sequences = self.settings.sequences(len(work))
        captured = self._shape(DecodeShape(sequences, self.width, self.settings.pages(most, self.max_pages)), state)
        for number in range(len(parts)):
            self._prepare(captured, parts[: number + 1])
        captured.step.turn()
        return captured

    def _replay(self, captured: Captured, parts: Sequence[tuple[str, bool]], lists: Lists | None = None) -> None:
        for part, plain in parts:
            self._launch(captured, part, plain)
            if lists is not None:
                lists.behind(part, captured.step, self._logits)
        self._last = captured, list(parts)
        self.stats = replace(self.stats, steps=self.stats.steps + 1)

    def _ticket(
        self, captured: Captured, work: Sequence[Work], lists: Lists | None, kept: Sequence[Any] = ()
    ) -> GraphTicket:
        """Queue the copy of the outputs."""
        step = captured.step
        step.outputs.download()
        drawn = step.inputs.host["drawn"].tolist()
        event = self.where.streams.record()
        return GraphTicket(work, step.outputs.host, drawn, self._decode.drafts, event, list(kept), lists)

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
        else:  # this part is not to be captured, or none can be
            sampled = captured.graphs.get(("sample", plain))
            if part == "draft" and sampled is not None:  # the step holds what was captured last, maybe the other one's
                captured.step.drawn = sampled.result
            _run_part(captured.step, part, plain)

    # ---- capturing

    def _shape(self, shape: DecodeShape, state: SlotState | None) -> Captured:
        if state is not None and self._stop_ids is not state.stop_ids:
            self._release(lambda ahead: ahead)
            self._stop_ids = state.stop_ids
        found = self._captured.get((shape, state is not None))
        if found is None:
            if shape.rows + SPARE > self._logits.shape[0]:
                self.release()  # what was captured writes to the memory that is too small now
                self._logits = torch.zeros((shape.rows + SPARE, self._logits.shape[1]), device=self.model.device)
            args = (self.model, self.caches, shape, self._decode, self.where.streams, self._logits)
            step = DecodeStep(*args) if state is None else AheadStep(*args, state)
            found = self._captured[shape, state is not None] = Captured(step)
            found.forget()
        return found

    def _prepare(self, captured: Captured, parts: Sequence[tuple[str, bool]]) -> None:
        """Capture the last of some parts of a step, unless it is or is not to be. Those before it are captured."""
        part, plain = parts[-1]
        if captured.eager or (part, plain) in captured.graphs or (part == "draft" and not self.settings.draft):
            return
        step, began, free = captured.step, time.monotonic(), self.where.memory_free()
        # Runs with nothing but padding: a run before the capture must write nothing that a step would read.
        self.where.streams.record().synchronize()  # a step before may still read the inputs
        step.inputs.clear()
        captured.forget()
        step.inputs.upload()
        # A part goes on with what those before it left: rows of the last step, or nothing yet where these are new.
        for before in parts[:-1]:
            captured.graphs[before].replay()
        self.where.streams.record().synchronize()
        try:
            captured.graphs[part, plain] = self.where.graphs.capture(self._body(step, part, plain))
        except NOT_CAPTURED as error:
            self._give_up(captured, part, error)
            return
        left = self.where.memory_free()
        seconds, nbytes = time.monotonic() - began, 0 if free is None or left is None else max(0, free - left)
        old = self.stats
        self.stats = GraphStats(old.graphs + 1, old.seconds + seconds, old.nbytes + nbytes, old.steps)
        log.info("captured %s of %s in %.2f s, %d bytes", part, step.shape, seconds, nbytes)

    def _body(self, step: DecodeStep, part: str, plain: bool) -> Callable[[], Any]:
        def body() -> Any:
            with self.where.streams.no_host_sync():
                _run_part(step, part, plain)
            return step.drawn if part == "sample" else None

        return body

    def _give_up(self, captured: Captured, part: str, error: BaseException) -> None:
        """Let a shape run as it is called from now on; trying again would fail step after step."""
        traceback.clear_frames(error.__traceback__)  # they hold memory that the step may need
        log.warning("%s runs without graphs, its %s cannot be captured: %s", captured.step.shape, part, error)
        captured.eager = True
        for one in self._captured.values():  # memory may be what was missing; other shapes are captured anew
            one.release()

    def release(self) -> None:
        """Free all graphs and their buffers; the next step captures anew."""
        self._release(lambda ahead: True)

    def _release(self, chosen: Callable[[bool], bool]) -> None:
        gone = [key for key in self._captured if chosen(key[1])]
        if gone:
            self.where.streams.record().synchronize()  # a step in flight still runs on them
        for key in gone:
            self._captured.pop(key).release()

    # ---- inputs

    def _fill(self, captured: Captured, work: Sequence[Work]) -> None:
        """Write a step's numbers to the host memory that no step in flight reads."""
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
            places = self._decode.pool is not None and self._decode.pool.log2q is not None
            host["drawn"][:count] = [
                places and len(item.drafts) > 0 and item.request.params.temperature > 0 and (
                    item.ahead or item.request.proposal.drawn
                )
                for item in work
            ]  # fmt: skip
            host["drawn"][count:] = 0
        params = [self._params_of(request) for request in requests]
        for place, name in enumerate(("inv_temperature", "top_k", "top_p", "min_p", "seeds")):
            host[name][:count] = [one[place] for one in params]
        self._fill_tables(captured, host["block_table"], requests)
        ngrams = self._fill_rows(host, work, begin, step.ngram)
        if step.reads_host:
            step.gather(ngrams)

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
        lines = captured.tables[captured.step.inputs.stage]
        for line, request in enumerate(requests):
            lease = request.pages
            assert lease is not None
            ids = lease.ids
            known, count = lines[line]
            if known is not lease or count != len(ids):
                table[line, : len(ids)] = ids
                table[line, len(ids) :] = -1
                lines[line] = lease, len(ids)

    def _fill_rows(
        self, host: dict[str, Any], work: Sequence[Work], begin: npt.NDArray[np.int32], ngram: int
    ) -> npt.NDArray[np.int32]:
        """Tokens, forced tokens and rows of distributions; returns the rows' n-grams where they are needed."""
        past = ngram - 1
        host["golden"].fill(-1)
        found = []
        for line, item in enumerate(work):
            request, first = item.request, int(begin[line])
            rows = slice(first, first + item.end - item.start)
            if item.ahead:
                continue
            known = request.tokens[item.start : item.known_end]
            host["fresh"][rows] = [*known, *item.drafts]
            if past:
                before = request.tokens[max(0, item.start - past) : item.start][::-1]
                host["history"][line, : len(before)] = before
                host["history"][line, len(before) :] = -1
            if request.params.golden_token_ids:
                host["golden"][rows] = [row.golden for row in self.sampler.rows_of(item)]
            found.append((line, rows))
        ngrams = np.full((max((rows.stop for _, rows in found), default=0), ngram), -1, np.int32)
        if any(engram.staged for engram in self.model.engrams.values()):
            for line, rows in found:
                around = np.concatenate([host["history"][line][::-1], host["fresh"][rows]])
                view = np.lib.stride_tricks.sliding_window_view(around, ngram)
                ngrams[rows] = view[:, ::-1]
        return ngrams


def _run_part(step: DecodeStep, part: str, plain: bool) -> None:
    if part == "backbone":
        step.backbone()
    elif part == "sample":
        step.sample(plain=plain)
    else:
        step.draft(plain=plain)


def is_device_only(request: Request) -> bool:
    """Whether what a request draws from is known without its tokens: there is nothing that the host lists by them."""
    p = request.params
    return request.constraint is None and not (
        request.num_output_tokens < p.first_n_token_no_eos
        or p.repetition_penalty != 1.0
        or p.frequency_penalty != 0.0
        or p.presence_penalty != 0.0
    )


def _slot(request: Request) -> int:
    assert request.slot is not None
    return int(request.slot.ids[0])


@dataclass
class GraphTicket:
    """A step on its way; see `flight.Ticket`.

    Attributes:
        work: its rows. host: its outputs, once the event is done.
        drawn: by sequence, whether its drafts were drawn from distributions that are kept. drafts: most per sequence.
        kept: host memory that the step is copied from.
        lists: what requests ask for beside their tokens.
    """

    work: Sequence[Work]
    host: dict[str, Any]
    drawn: list[int]
    drafts: int
    event: Event
    kept: list[Any]
    lists: Lists | None = None
    immediate: bool = False

    def results(self) -> list[Result]:
        """See `flight.Ticket.results`."""
        self.event.synchronize()
        self.kept.clear()
        found = {name: array.tolist() for name, array in self.host.items()}
        lists = {} if self.lists is None else self.lists.read()
        if any(found.get("stale", ())):
            raise PoolError("a step read a state slot that belongs to another request by now")
        results = []
        for line, item in enumerate(self.work):
            result = Result()
            for place in range(found["count"][line] + 1 if found["rows"][line] else 0):
                drawn = self._drawn(found, line, item, place)
                if self.lists is not None:
                    self.lists.fill(lists, line, place, drawn)
                result.tokens.append(drawn)
            wanted = self.drafts and not item.request.finished and wants_drafts(item, result)
            if wanted:
                result.proposal = Proposal(found["drafts"][line], found["confidence"][line])
            results.append(result)
        return results

    def _drawn(self, found: dict[str, Any], line: int, item: Work, place: int) -> Drawn:
        at, token = found["begin"][line] + place, found["emitted"][line][place]
        drawn = Drawn(token, found["logprob"][at], valid=found["valid"][at] > 0)
        if self.drawn[line] and place < len(item.drafts) and token == item.drafts[place]:
            drawn.draft_logprob = max(found["draft_log2q"][at] * math.log(2), sampling.LOGPROB_FLOOR)
        return drawn


__all__ = ["DecodeGraphs", "GraphSettings", "GraphStats", "GraphTicket", "Where", "is_device_only"]
