"""Launching a step whose beginning only the device knows, and fetching what it gives behind the host's back.

Forward, sampling, verification and drafting of a step are queued without a result of the step before on the host. What
they give is copied to pinned memory, and an event behind the copies says when it is there. The arithmetic is that of
`sampler.Sampler`, row by row, so the bits are the same.

Some requests ask for what only the host can list (`needs_host`): the forward of their step is queued all the same, then
the step before is waited for, and the sampling is the host's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..hal.stream import Event, Streams
from ..model.batch import SequenceSlice
from ..model.device_batch import DeviceRows, device_batch
from ..model.draft import DraftRequest, DraftSampling
from ..model.vision.spans import image_rows
from ..ops import sampling as ops
from ..ops import verify
from ..ops.embed import gather_rows
from ..ops.sampling_rows import expand_params
from .execute import Drawn, Result, Work, spans_of, wants_drafts
from .flight import Done, Ticket
from .pool import PoolError
from .request import Proposal
from .slots import ENDED, HISTORY, LAST, LENGTH, OWNER, Asks, Params, SlotState, Upload, slot_of

if TYPE_CHECKING:
    from .drafting import ModelDrafter
    from .sampler import Sampler

Array = np.ndarray[Any, np.dtype[Any]]
Filters = tuple[Tensor | None, Tensor | None, Tensor | None]


def needs_host(item: Work) -> bool:
    """Whether what its rows draw from depends on its tokens in a way that only the host can list."""
    p = item.request.params
    if item.request.constraint is not None:  # also one that only drafts: its drafts are the host's to look at
        return item.draws
    penalised = p.repetition_penalty != 1.0 or p.frequency_penalty != 0.0 or p.presence_penalty != 0.0
    banned = item.request.num_output_tokens < p.first_n_token_no_eos
    return item.sample and bool(penalised or banned or p.golden_token_ids)


@dataclass(frozen=True)
class Layout:
    """Where the rows of a step's items lie: those whose tokens the host knows come first, then those it does not.

    Attributes:
        items: in this order. order: place in the step's work of each.
        ahead: number of the first item that the host does not know.
        start, end, drafts: [S], of the items.
        rows: of the step. first_logit: [S], first row of logits of each item; prompt rows come before those that draw.
        logit_seq, logit_offset: see `DeviceRows`.
        draws: numbers of the items that draw, N. redrafts: of those that only propose drafts.
        prompts: whether there are prompt rows.
        begin, count: [N], rows of logits that draw, R in all, one item after the other.
        line, offset: [R], which of the N each belongs to, and which row of that it is. picked: [R], its row of logits.
    """

    items: list[Work]
    order: Sequence[int]
    ahead: int
    start: Array
    end: Array
    drafts: Array
    rows: int
    first_logit: Array
    logit_seq: Array
    logit_offset: Array
    draws: Array
    redrafts: Array
    prompts: bool
    begin: Array
    count: Array
    line: Array
    offset: Array
    picked: Array

    @classmethod
    def of(cls, work: Sequence[Work]) -> Layout:
        known = [place for place, item in enumerate(work) if not item.ahead]
        order = [*known, *(place for place, item in enumerate(work) if item.ahead)] if known else range(len(work))
        items = [work[place] for place in order]
        numbers = np.array(
            [
                (i.start, i.end, len(i.drafts), i.sample, i.redraft, i.prompt_rows.start, i.prompt_rows.stop)
                for i in items
            ]
        )
        start, end, drafts, sample, redraft, prompt, prompt_end = numbers.T
        asked = prompt_end - prompt
        drawn = np.where(sample, 1 + drafts, 0)
        seq, place = _spread(asked + drawn)
        behind = place - asked[seq]  # rows that draw come behind those of the prompt
        offset = np.where(behind < 0, prompt[seq] + place, (end - drafts - 1)[seq] + behind) - start[seq]
        first = np.cumsum(asked + drawn) - (asked + drawn)
        draws = np.flatnonzero(sample)
        count = drawn[draws]
        line, row = _spread(count)
        return cls(
            items=items,
            order=order,
            ahead=len(known),
            start=start,
            end=end,
            drafts=drafts,
            rows=int((end - start).sum()),
            first_logit=first,
            logit_seq=seq,
            logit_offset=offset,
            draws=draws,
            redrafts=np.flatnonzero(redraft),
            prompts=bool(asked.any()),
            begin=np.cumsum(count) - count,
            count=count,
            line=line,
            offset=row,
            picked=(first + asked)[draws][line] + row,
        )


def _spread(counts: Array) -> tuple[Array, Array]:
    """For counts[i] entries of each i in order: i, and the entry's number among them."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]


class Fetch:
    """Copies of results to the host, and the event behind them."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._host: dict[str, Tensor] = {}
        self._event: Event | None = None
        self.kept: list[Any] = []
        """What must outlive the step: host memory that is copied from."""

    def add(self, name: str, value: Tensor) -> None:
        """Queue the copy of a result."""
        memory = self._streams.pinned(tuple(value.shape), value.dtype)
        memory.copy_(value, non_blocking=True)
        self._host[name] = memory

    def seal(self) -> None:
        """All has been added."""
        self._event = self._streams.record()

    def wait(self) -> dict[str, list[Any]]:
        """The results as lists."""
        assert self._event is not None
        self._event.synchronize()
        return self.read()

    def read(self) -> dict[str, list[Any]]:
        """The results as lists, when an event behind them is done."""
        self.kept.clear()
        return {name: memory.tolist() for name, memory in self._host.items()}


@dataclass
class Behind:
    """A launched step, and how its results are read. See `flight.Ticket`."""

    work: Sequence[Work]
    layout: Layout
    fetch: Fetch
    reports: Reports
    drafted: list[int] = field(default_factory=list)
    immediate: bool = False

    def results(self) -> list[Result]:
        """See `Ticket.results`."""
        found = self.fetch.wait()
        if any(found["stale"]):
            raise PoolError("a step read a state slot that belongs to another request by now")
        results = [Result() for _ in self.work]
        by_number = [results[place] for place in self.layout.order]
        self.reports.fill(found, by_number)
        for line, number in enumerate(self.drafted):
            item, result = self.layout.items[number], by_number[number]
            if not item.request.finished and wants_drafts(item, result):
                result.proposal = Proposal(found["drafts"][line], found["confidence"][line])
        return results


class LaunchesSteps:
    """See above.

    Args:
        model, caches, sampler, drafter: those of the executor. slots: state slots, number 0 included.
        streams: of the model's device.
    """

    def __init__(
        self, model: Any, caches: Any, sampler: Sampler, drafter: ModelDrafter | None, slots: int, streams: Streams
    ) -> None:
        self.model, self.caches, self.sampler, self.drafter, self.streams = model, caches, sampler, drafter, streams
        text = model.config.text
        self._history = text.engram_max_ngram_size - 1 if text.engram_layer_ids else 0
        self._ratios = sorted({ratio for ratio in text.compress_ratios if ratio})
        self.state = SlotState(slots, self._history, model.device, streams)

    def launch(self, work: Sequence[Work], land: Callable[[], None]) -> Ticket:
        """See `execute.LaunchingExecutor`. The images that the step needs are encoded."""
        layout = Layout.of(work)
        fetch = Fetch(self.streams)
        items = layout.items
        host = any(needs_host(item) for item in items)
        fresh = [item.request for item in items if not item.ahead and (item.sample or item.redraft)]
        fetch.kept += self.state.begin(fresh)
        step = _Step(self, layout, fetch)
        logits = step.forward()
        if host:
            land()
            return Done(self._on_host(work, layout, logits))
        reports = step.sample(logits)
        drafted = step.draft() if self.drafter is not None else []
        fetch.seal()
        return Behind(work, layout, fetch, reports, drafted)

    def _on_host(self, work: Sequence[Work], layout: Layout, logits: Tensor) -> list[Result]:
        """Results of a step whose logits are queued, when everything before is known."""
        results = [Result() for _ in work]
        live: list[tuple[int, Work]] = []
        rows: list[int] = []
        for number, place in enumerate(layout.order):
            item = layout.items[number]
            if item.ahead:
                continue  # its request has ended, so nobody settled it
            live.append((place, item))
            first = int(layout.first_logit[number])
            rows += range(first, first + len(item.prompt_rows) + len(item.sampled_rows))
        picked = gather_rows(logits, torch.tensor(rows, dtype=torch.int32, device=logits.device))
        found = self.sampler.sample(picked, [item for _, item in live])
        if self.drafter is not None:
            self.drafter.propose([item for _, item in live], found)
        for (place, _), result in zip(live, found, strict=True):
            results[place] = result
        return results


class _Step:
    """One step while it is launched."""

    def __init__(self, owner: LaunchesSteps, layout: Layout, fetch: Fetch) -> None:
        self.owner, self.layout, self.fetch, self.state = owner, layout, fetch, owner.state
        self.items = layout.items
        self.requests = [item.request for item in layout.items]
        self.host_slots = np.array([slot_of(request) for request in self.requests])
        self.asked = int(np.bitwise_or.reduce(self.state.asks[self.host_slots[layout.draws]], initial=0))
        self.upload = Upload(self._arrays(), owner.model.device, owner.streams)
        fetch.kept.append(self.upload)
        self.slots = self.upload["slots"].long()
        self.lines = self.state.moving[self.slots]
        self._after: Tensor | None = None  # the lines of those that draw, behind the step

    # ---- forward

    def _arrays(self) -> dict[str, Array]:
        """What the host knows of the step."""
        layout, state, requests = self.layout, self.state, self.requests
        past, known, count = self.owner._history, layout.ahead, len(self.items)
        history = np.full((count, past), -1, np.int32)
        fresh = [np.zeros(0, np.int32)]
        for number, item in enumerate(self.items[:known]):
            fresh.append(item.tokens()[item.start : item.end])
            before = item.request.tokens[max(0, item.start - past) : item.start][::-1]
            history[number, : len(before)] = before
        lengths = layout.end - layout.start
        begin = np.where(np.arange(count) < known, np.cumsum(lengths) - lengths, 0)
        owned = np.zeros(count, np.int32)
        drawing = np.concatenate([layout.draws, layout.redrafts])
        owned[drawing] = state.owners([requests[number] for number in drawing.tolist()], self.host_slots[drawing])
        found = {
            "slots": self.host_slots,
            "query_len": lengths,
            "valid_start": np.array([request.valid_start for request in requests]),
            "key_len": layout.end,
            "source": np.where(np.arange(count) < known, -1, np.arange(count)),
            "owner": owned,
            "fresh": np.concatenate(fresh),
            "fresh_begin": begin,
            "history": history,
            "table": state.block_table(requests, self.host_slots),
            "logit_seq": layout.logit_seq,
            "logit_offset": layout.logit_offset,
            "drafting": drawing,
        } | self._sampled_arrays()
        return {name: value.astype(np.int32, copy=False) for name, value in found.items()}

    def forward(self) -> Tensor:
        """Logits fp32 [L, V], in the order of the layout."""
        given, lines, drafter = self.upload, self.lines, self.owner.drafter
        ahead = given["source"] >= 0
        stale = (lines[:, OWNER] != given["owner"]) & (given["owner"] > 0)
        self.fetch.add("stale", stale)
        # Of a request that goes on, the rows are its last token and the drafts that could still be said.
        left = self.state.fixed[self.slots, 0].to(torch.int32) - lines[:, LENGTH] - 1
        known = 1 + torch.minimum(given["query_len"] - 1, left.clamp(min=0))
        rows = torch.where((lines[:, ENDED] != 0) | stale, 0, known)
        self.query_len = torch.where(ahead, rows, given["query_len"])
        key_len = torch.where(ahead, lines[:, LENGTH] - 1 + rows, given["key_len"]).clamp(min=0)
        key_len = torch.maximum(key_len, self.query_len)
        text = self.owner.model.config.text
        drafts = lines[:, :0] if drafter is None else drafter.pool.tokens[self.slots]
        batch = device_batch(
            DeviceRows(
                self.query_len,
                key_len,
                given["valid_start"],
                given["source"],
                given["fresh"],
                given["fresh_begin"],
                lines[:, LAST].contiguous(),
                drafts.contiguous(),
                torch.where(ahead.unsqueeze(1), lines[:, HISTORY:], given["history"]),
                given["slots"],
                given["table"],
                given["logit_seq"],
                given["logit_offset"],
                self.layout.rows,
                {ratio: max(item.end // ratio for item in self.items) for ratio in self.owner._ratios},
                self._images(),
            ),
            text,
        )
        return self.owner.model.forward(batch, self.owner.caches)  # type: ignore[no-any-return]

    def _images(self) -> Any:
        slices = []
        for item in self.items[: self.layout.ahead]:
            slices.append(SequenceSlice(item.tokens(), item.start, item.end, 0, (), images=spans_of(item)))
        if not any(part.images for part in slices):
            return None
        text = self.owner.model.config.text
        return image_rows(slices, text.vocab_size, self.layout.rows, self.owner.model.device)

    # ---- sampling

    def _sampled_arrays(self) -> dict[str, Array]:
        """Rows that draw, one sequence after the other: R of them, of N sequences."""
        layout = self.layout
        line, offset = layout.line, layout.offset
        log2q = self.owner.sampler.log2q
        places = 0 if log2q is None else log2q.shape[1]
        draft = np.full(len(line), -1)
        for n in np.flatnonzero((layout.drafts[layout.draws] > 0) & (layout.draws < layout.ahead)).tolist():
            item = self.items[layout.draws[n]]
            draft[layout.begin[n] : layout.begin[n] + len(item.drafts)] = item.drafts
        slots = self.host_slots[layout.draws]
        sampled = (self.state.asks[slots] & Asks.SAMPLED) != 0
        own = places > 0 and sampled[line] & (offset < layout.count[line] - 1)
        first = layout.end - layout.drafts - 1 - layout.start
        return {
            "draws": layout.draws,
            "picked": layout.picked,
            "line": line,
            "offset": offset,
            "draft": draft,
            "log2q": np.where(own, slots[line] * places + offset, -1),
            "begin": layout.begin,
            "before": np.where(layout.draws < layout.ahead, first[layout.draws], 0),
        }

    def sample(self, logits: Tensor) -> Reports:
        """Draws, verifies, and keeps the device's tables up."""
        reports = Reports(self.layout)
        layout = self.layout
        if layout.prompts:
            self._prompt(logits)
        if not len(layout.draws):
            return reports
        given, sampler = self.upload, self.owner.sampler
        raw = gather_rows(logits, given["picked"]) if layout.prompts else logits
        draws = given["draws"].long()
        slots, old = self.slots[draws], self.lines[draws]
        params = self.state.params(slots)
        base = old[:, LENGTH].long()
        arrays = (params.inverse, params.top_k, params.top_p, params.min_p, params.seeds, base)
        rows = expand_params(given["line"], given["offset"], *arrays)
        adjusted = raw
        if self.asked & Asks.BIAS or sampler.config.blacklist:
            adjusted = self._adjusted(raw)
        filters = self._filters(rows.top_k, rows.top_p, rows.min_p)
        kept = ops.sample_filter(adjusted, rows.inv_temperature, *filters, force_top_k=sampler.config.force_top_k)
        count = self.query_len[draws] - given["before"]
        width = int(layout.count.max())
        drafts = log2q_row = None
        if width == 1:
            tokens = ops.sample_draw(adjusted, rows.inv_temperature, kept, rows.seeds, rows.positions)
            accepted = torch.zeros_like(tokens, dtype=torch.bool)
        else:
            drafts = self._drafts(slots, count)
            log2q = None
            if sampler.log2q is not None and not sampler.shared:
                log2q, log2q_row = sampler.log2q.flatten(0, 1), torch.where(drafts >= 0, given["log2q"], -1)
            tokens, accepted = verify.verify_drafts(
                adjusted, rows.inv_temperature, kept, drafts, rows.seeds, rows.positions, log2q, log2q_row,
                sampler.shared,
            )  # fmt: skip
        emitted = verify.accept_prefix(tokens, accepted, given["begin"], count, width, stop_ids=params.stop_ids)
        last_row = emitted.row.clamp(min=0).long()
        gained = torch.where(count > 0, emitted.accepted + 1, 0)
        ended = emitted.stop | (kept.count[last_row] == 0) | (old[:, LENGTH] + gained >= params.limit)
        self._after = self.state.advance(slots, old, gained, emitted.tokens, emitted.last, ended)
        said = emitted.tokens[given["line"].long(), given["offset"].long()].contiguous()
        self._report(reports, raw, adjusted, rows.inv_temperature, kept, said)
        if log2q_row is not None:
            assert sampler.log2q is not None
            flat = sampler.log2q.flatten(0, 1)
            self.fetch.add("draft_log2q", flat[log2q_row.clamp(min=0).long(), said.clamp(min=0).long()])
            reports.log2q = True
        self.fetch.add("gained", gained)
        return reports

    def _adjusted(self, raw: Tensor) -> Tensor:
        """With biases and the blacklist."""
        layout = self.layout
        tables = self.owner.sampler.static_tables([self.requests[number] for number in layout.draws[layout.line]])
        moved = Upload({name: table.view(np.int32) for name, table in tables.items()}, raw.device, self.owner.streams)
        self.fetch.kept.append(moved)
        found = {name: moved[name] for name in tables}
        if "bias_values" in found:
            found["bias_values"] = found["bias_values"].view(torch.float32)
        return ops.adjust_logits(raw, **found)

    def _drafts(self, slots: Tensor, count: Tensor) -> Tensor:
        """int32 [R]: the draft that each row decides, -1 for none."""
        given, drafter = self.upload, self.owner.drafter
        line, offset = given["line"].long(), given["offset"].long()
        if drafter is None:
            return given["draft"]
        pool = drafter.pool.tokens
        own = pool[slots][line, offset.clamp(max=pool.shape[1] - 1)]
        ahead = (given["source"] >= 0)[given["draws"].long()][line]
        return torch.where(ahead, torch.where(offset < count[line] - 1, own, verify.NO_DRAFT), given["draft"])

    def _prompt(self, logits: Tensor) -> None:
        """Log-probabilities of prompt tokens."""
        rows: list[int] = []
        targets = [np.zeros(0, np.int32)]
        for item, first in zip(self.items, self.layout.first_logit.tolist(), strict=True):
            rows += range(first, first + len(item.prompt_rows))
            ids = item.request.tokens[item.prompt_rows.start + 1 : item.prompt_rows.stop + 1]
            targets.append(np.where(ids < logits.shape[1], ids, -1).astype(np.int32))  # tokens of images have none
        if rows:
            moved = Upload(
                {"rows": np.array(rows, np.int32), "targets": np.concatenate(targets)},
                logits.device,
                self.owner.streams,
            )
            self.fetch.kept.append(moved)
            self.fetch.add("prompt", ops.token_logprobs(gather_rows(logits, moved["rows"]), moved["targets"]))

    def _report(
        self,
        reports: Reports,
        raw: Tensor,
        logits: Tensor,
        inverse: Tensor,
        kept: ops.Filter,
        said: Tensor,
    ) -> None:
        """What is told of the tokens; of rows that say nothing, anything."""
        fetch = self.fetch
        fetch.add("tokens", said)
        fetch.add("logprobs", ops.token_logprobs(logits, said, inverse, kept))
        fetch.add("count", kept.count)
        if self.owner.sampler.config.sum_smaller:
            fetch.add("smaller", ops.smaller_mass(logits, inverse, kept, said))
            fetch.add("mass", kept.mass)
        if self.asked & (Asks.TOP_LOGPROBS | Asks.LOGPROBS):
            self._report_lists(reports, raw, logits, inverse, kept, said)

    def _report_lists(
        self, reports: Reports, raw: Tensor, logits: Tensor, inverse: Tensor, kept: ops.Filter, said: Tensor
    ) -> None:
        fetch, layout = self.fetch, self.layout
        asks = self.state.asks[self.host_slots[layout.draws]][layout.line]
        requests = [self.requests[number] for number in layout.draws[layout.line]]
        wanted = np.flatnonzero(asks & Asks.TOP_LOGPROBS).tolist()
        if wanted:
            pick = self._pick(wanted, raw)
            most = max(requests[row].params.top_logprobs for row in wanted)
            chosen = ops.Filter(*(value[pick] for value in kept))
            reports.top = {row: place for place, row in enumerate(wanted)}
            ids, values = ops.top_logprobs(_take(logits, pick), most, inverse[pick], chosen)
            fetch.add("top_ids", ids)
            fetch.add("top_values", values)
        wanted = np.flatnonzero(asks & Asks.LOGPROBS).tolist()
        if wanted:
            pick = self._pick(wanted, raw)
            part = _take(raw, pick)
            most = max(requests[row].params.logprobs or 0 for row in wanted)
            reports.raw = {row: place for place, row in enumerate(wanted)}
            fetch.add("raw", ops.token_logprobs(part, said[pick]))
            if most:
                ids, values = ops.top_logprobs(part, most)
                fetch.add("raw_ids", ids)
                fetch.add("raw_values", values)

    def _pick(self, rows: list[int], like: Tensor) -> Tensor:
        moved = Upload({"rows": np.array(rows, np.int32)}, like.device, self.owner.streams)
        self.fetch.kept.append(moved)
        return moved["rows"].long()

    # ---- drafting

    def draft(self) -> list[int]:
        """Drafts for the next step. Returns the numbers of the items that got a line of them."""
        drafter = self.owner.drafter
        assert drafter is not None
        numbers = [*self.layout.draws.tolist(), *self.layout.redrafts.tolist()]
        if not numbers:
            return []
        drafting = self.upload["drafting"].long()
        slots = self.slots[drafting]
        lines = self.lines[drafting]
        if self._after is not None:
            lines = torch.cat((self._after, lines[len(self.layout.draws) :]))
        params = self.state.params(slots)
        goes_on = (lines[:, ENDED] == 0) & (params.limit - lines[:, LENGTH] >= 2)
        base = torch.where(goes_on, lines[:, LENGTH] - 2, -1)
        short = slots.to(torch.int32)
        request = DraftRequest(
            tokens=lines[:, LAST].contiguous(),
            base=base,
            accepted=torch.zeros_like(base),
            valid_start=self.upload["valid_start"][drafting],
            state_slot=short,
            pool_slot=torch.where(goes_on, short, -1),
        )
        # Who only drafts again asks for what it asked for when it drew.
        self.asked |= int(np.bitwise_or.reduce(self.state.asks[self.host_slots[numbers]], initial=0))
        how = self._how(drafter, params)
        pool = drafter.pool
        if not self.asked & Asks.SAMPLED:
            pool = replace(pool, log2q=None)  # nobody will ask
        drafts = self.owner.model.draft(request, how, self.owner.caches, drafter.settings.drafts, pool)
        self.fetch.add("drafts", drafts.tokens)
        self.fetch.add("confidence", drafts.confidence)
        return numbers

    def _filters(self, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Filters:
        """None for a filter that nobody uses, so that the op takes its short path."""
        asked = self.asked
        return (
            top_k if asked & Asks.TOP_K else None,
            top_p if asked & Asks.TOP_P else None,
            min_p if asked & Asks.MIN_P else None,
        )

    def _how(self, drafter: ModelDrafter, params: Params) -> DraftSampling:
        top_k, top_p, min_p = self._filters(params.top_k, params.top_p, params.min_p)
        return DraftSampling(
            params.inverse,
            params.seeds,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            force_top_k=drafter.force_top_k,
            shared=drafter.settings.shared,
            inv_confidence=drafter.inv_confidence,
        )


@dataclass
class Reports:
    """How the fetched lists become results.

    Attributes:
        top, raw: rows that ask for top lists, and for raw log-probabilities -> line of theirs.
        log2q: whether drafts came from distributions.
    """

    layout: Layout
    top: dict[int, int] = field(default_factory=dict)
    raw: dict[int, int] = field(default_factory=dict)
    log2q: bool = False

    def fill(self, found: dict[str, list[Any]], results: Sequence[Result]) -> None:
        """Fills the results of the items, in the layout's order."""
        layout = self.layout
        done = 0
        for item, result in zip(layout.items, results, strict=True) if layout.prompts else ():
            result.prompt_logprobs = found["prompt"][done : done + len(item.prompt_rows)]
            done += len(item.prompt_rows)
        # Where bounds were too large, rows are left over.
        rows = zip(layout.draws.tolist(), layout.begin.tolist(), found.get("gained", ()), strict=True)
        plain = not (self.top or self.raw or self.log2q or "smaller" in found)
        tokens, logprobs, kept = (found.get(name, ()) for name in ("tokens", "logprobs", "count"))
        for number, begin, gained in rows:
            if plain:
                said = range(begin, begin + gained)
                results[number].tokens = [Drawn(tokens[row], logprobs[row], valid=kept[row] > 0) for row in said]
                continue
            item = layout.items[number]
            results[number].tokens = [self._drawn(found, item, begin + place, place) for place in range(gained)]

    def _drawn(self, found: dict[str, list[Any]], item: Work, row: int, place: int) -> Drawn:
        p = item.request.params
        drawn = Drawn(found["tokens"][row], found["logprobs"][row], valid=found["count"][row] > 0)
        if p.top_logprobs:
            at = self.top[row]
            drawn.top_ids = found["top_ids"][at][: p.top_logprobs]
            drawn.top_logprobs = found["top_values"][at][: p.top_logprobs]
        if p.logprobs is not None:
            at = self.raw[row]
            drawn.raw_logprob = found["raw"][at]
            if p.logprobs:
                drawn.raw_top_ids = found["raw_ids"][at][: p.logprobs]
                drawn.raw_top_logprobs = found["raw_values"][at][: p.logprobs]
        if "smaller" in found:
            total = found["mass"][row]
            drawn.sum_smaller = found["smaller"][row] / total if total else -1.0
        sampled = self.log2q and p.temperature > 0 and place < len(item.drafts)
        if sampled and drawn.token == item.drafts[place]:
            drawn.draft_logprob = max(found["draft_log2q"][row] * math.log(2), ops.LOGPROB_FLOOR)
        return drawn


def _take(logits: Tensor, rows: Tensor) -> Tensor:
    return gather_rows(logits, rows.to(torch.int32))
