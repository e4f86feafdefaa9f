"""Carrying a planned step out on the model: batch, forward, sampling, drafts for the next step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..model.truncation import EXACT, Truncation
from .moves import Moves, Pairs
from .request import Proposal, Request

if TYPE_CHECKING:
    from ..hal.stream import Streams
    from .ahead import LaunchesSteps
    from .flight import Ticket
    from .offload import HostMemory
    from .slots import SlotState


@dataclass(slots=True)
class Work:
    """Rows start..end-1 of one request in one step.

    Attributes:
        sample: whether the rows from the last known token on draw what follows.
        prompt_rows: positions whose logits give the log-probability of the prompt token that follows.
        drafts: tokens of the last rows, which the rows before them confirm or replace.
        redraft: whether drafts are to be proposed although nothing is drawn: behind the last known token, which is not
            among the rows.
        ahead: the step before has not landed, and only the device knows the last token, the drafts and how many of
            those before held. `start` and `end` are those of the most that may hold, `drafts` holds places only (-1).
    """

    request: Request
    start: int
    end: int
    sample: bool
    prompt_rows: range = range(0)
    drafts: Sequence[int] = ()
    redraft: bool = False
    ahead: bool = False

    @property
    def known_end(self) -> int:
        """End of the rows whose tokens are known: those before the drafts."""
        return self.end - len(self.drafts)

    @property
    def draws(self) -> bool:
        """Whether it leaves a token, or drafts, that the next step of the request begins with."""
        return self.sample or self.redraft

    @property
    def sampled_rows(self) -> range:
        """Positions whose logits draw or confirm tokens."""
        return range(self.known_end - 1, self.end) if self.sample else range(0)

    def tokens(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """The request's tokens up to `end`, drafts included."""
        known = self.request.tokens[: self.request.length]
        return np.concatenate([known, np.array(self.drafts, np.int32)]) if self.drafts else known


@dataclass(slots=True)
class Drawn:
    """The token drawn for one row, with what was asked about it.

    `valid` is False when the logits were not numbers, or where `barred` says why no token was left. `draft_logprob`:
    log-probability with which the drafter drew an accepted draft; 1.0 for other tokens and where verification did not
    need it.
    """

    token: int
    logprob: float = 0.0
    top_ids: Sequence[int] = ()
    top_logprobs: Sequence[float] = ()
    raw_logprob: float | None = None
    raw_top_ids: Sequence[int] = ()
    raw_top_logprobs: Sequence[float] = ()
    sum_smaller: float = -1.0
    valid: bool = True
    draft_logprob: float = 1.0
    barred: str | None = None


@dataclass(slots=True)
class Result:
    """What one `Work` gave: the drafts that were accepted and the token behind them; then drafts for the next step."""

    tokens: list[Drawn] = field(default_factory=list)
    prompt_logprobs: list[float] = field(default_factory=list)
    proposal: Proposal | None = None

    @property
    def drawn(self) -> Drawn | None:
        """The last token."""
        return self.tokens[-1] if self.tokens else None

    @property
    def accepted(self) -> int:
        """Drafts that were accepted."""
        return max(0, len(self.tokens) - 1)


class Executor(Moves, Protocol):
    """Runs the rows of one step, and copies cache memory between steps. The engine calls it from one thread at a time.

    One that can be given a step while the one before runs is a `LaunchingExecutor`, too.
    """

    def run(self, work: Sequence[Work]) -> list[Result]:
        """One result per work item, in order. Pages and slots of every item stay leased until it returns."""
        ...


class LaunchingExecutor(Executor, Protocol):
    """Is given a step without waiting for the one before."""

    def launch(self, work: Sequence[Work], land: Callable[[], None]) -> Ticket:
        """Queue the rows of a step; its results come later. Steps run in the order in which they are launched.

        Args:
            work: pages and slots of every item stay leased until its results have been asked for.
            land: makes all of `work` known (see `Work.ahead`), by waiting for the step before. For executors that
                need that for this step; it may be called once, at any point of the launch.

        Raises:
            Exception: the step could not be launched, or what `land` raised.
        """
        ...


class ProposesDrafts(Protocol):
    """Makes the drafts of the next step."""

    def propose(self, work: Sequence[Work], results: Sequence[Result]) -> None:
        """Fill in `Result.proposal` where `wants_drafts`. Called once per step, behind its forward and sampling."""
        ...


class RunsDecodeSteps(Protocol):
    """Runs steps whose rows all decode in a way of its own; see `graphs.DecodeGraphs`."""

    def takes(self, work: Sequence[Work]) -> bool:
        """Whether it runs this step."""
        ...

    def takes_ahead(self, work: Sequence[Work]) -> bool:
        """Whether it launches this step, too, although only the device knows where its requests stand."""
        ...

    def run(self, work: Sequence[Work]) -> list[Result]:
        """As `Executor.run`."""
        ...

    def launch(self, work: Sequence[Work], state: SlotState) -> Ticket:
        """As `LaunchingExecutor.launch`, of steps that `takes_ahead` said yes to; keeps the device's tables up."""
        ...

    def release(self) -> None:
        """Free what it holds on the device."""
        ...


class ModelExecutor:
    """Executor over `model.Model`: builds the batch, runs the forward, samples, drafts.

    Args:
        model, caches, sampler: as they are.
        drafter: proposes drafts; None where no request takes any.
        truncation: how prompts are computed. A prompt ends where the request's own ended, also when its whole text is
            computed again after a preemption: what was decoded behind it stays as it was, bit for bit.
        graphs: runs steps that only decode; None runs these as all others.
        streams: of the model's device; None where that runs work as it is called.
        slots: state slots, number 0 included; None are those of the caches.

    Attributes:
        host: memory that `save` copies to; None where the engine offloads nobody.
    """

    def __init__(
        self,
        model: Any,
        caches: Any,
        sampler: Any,
        drafter: ProposesDrafts | None = None,
        truncation: Truncation = EXACT,
        graphs: RunsDecodeSteps | None = None,
        streams: Streams | None = None,
        slots: int | None = None,
    ) -> None:
        self.model = model
        self.caches = caches
        self.sampler = sampler
        self.drafter = drafter
        self.truncation = truncation
        self.graphs = graphs
        self.host: HostMemory | None = None
        self._streams = streams
        self._slots = slots
        self._launcher: LaunchesSteps | None = None

    def launch(self, work: Sequence[Work], land: Callable[[], None]) -> Ticket:
        """See `LaunchingExecutor.launch`.

        A step waits for the one before where a prompt's truncation hides keys of one of its rows, and where drafts are
        those of a drafter that is no part of the model. It is run at once where nothing of it is unknown and some of it
        is the host's to sample.
        """
        from ..hal.device import Device
        from ..hal.stream import InlineStreams
        from .ahead import LaunchesSteps, needs_host
        from .drafting import ModelDrafter
        from .flight import Done

        graphs = self.graphs if self.graphs is not None and self.graphs.takes(work) else None
        waits = graphs is not None and not graphs.takes_ahead(work)
        if waits or self._hides_keys(work) or not isinstance(self.drafter, ModelDrafter | None):
            land()
            return Done(self._run_unfinished(work))
        if not any(item.ahead for item in work) and any(map(needs_host, work)):
            return Done(self.run(work))
        if self._launcher is None:
            streams = InlineStreams(Device("cpu")) if self._streams is None else self._streams
            slots = int(self.caches.state.shape[0]) if self._slots is None else self._slots
            self._launcher = LaunchesSteps(self.model, self.caches, self.sampler, self.drafter, slots, streams)
        self._encode(work)
        if graphs is None:
            ticket: Ticket = self._launcher.launch(work, land)
        else:
            ticket = graphs.launch(work, self._launcher.state)
        for item in work:
            for image in item.request.images:
                image.computed(item.request.key, item.end)
        return ticket

    def check_device(self) -> None:
        """Asks the device of the model whether it still answers. Raises DeviceFaultError."""
        from ..hal import device
        from ..hal.errors import DeviceFaultError, InvalidArgumentError

        try:
            device.capability(device.Device.parse(self.model.device), "")
        except InvalidArgumentError as error:  # it was there when the model was loaded
            raise DeviceFaultError(str(error)) from error

    def _run_unfinished(self, work: Sequence[Work]) -> list[Result]:
        """Results of those items whose requests go on behind the step before; nothing for the others.

        Nobody settles the rows of one that was aborted; another thread may do that now, so it is looked at once.
        """
        ended = [item.ahead or item.request.finished for item in work]
        live = [item for item, over in zip(work, ended, strict=True) if not over]
        found = iter(self.run(live) if live else [])
        return [Result() if over else next(found) for over in ended]

    def run(self, work: Sequence[Work]) -> list[Result]:
        if self.graphs is not None and self.graphs.takes(work) and not self._hides_keys(work):
            results = self.graphs.run(work)
            for item in work:
                for image in item.request.images:
                    image.computed(item.request.key, item.end)
            return results
        return self._run(work)

    def _hides_keys(self, work: Sequence[Work]) -> bool:
        """Whether truncation of its prompt hides window keys of a row that decodes."""
        window = self.model.config.text.sliding_window
        # Of rows whose drafts may not hold, the first may be as many places before.
        first = [item.start - (item.request.max_drafts if item.ahead else 0) for item in work]
        kept = [self.truncation.keep_from(item.request.prompt_len) for item in work]
        return any(keep > max(0, start - window + 1) for keep, start in zip(kept, first, strict=True))

    def _run(self, work: Sequence[Work]) -> list[Result]:
        from ..model.batch import Batch, SequenceSlice

        self._encode(work)
        slices = []
        for item in work:
            request = item.request
            assert request.pages is not None and request.slot is not None
            # Sampled rows come after the prompt, so they are never among the prompt rows.
            rows = [*item.prompt_rows, *item.sampled_rows]
            slices.append(
                SequenceSlice(
                    tokens=item.tokens(),
                    start=item.start,
                    end=item.end,
                    state_slot=request.slot.ids[0],
                    pages=request.pages.ids,
                    logits=rows,
                    valid_start=request.valid_start,
                    keep_from=self.truncation.keep_from(request.prompt_len),
                    images=spans_of(item),
                )
            )
        text, compact = self.model.config.text, self.truncation.compact
        batch = Batch.build(slices, text, self.model.device, compact=compact)
        logits = self.model.forward(batch, self.caches)
        for item in work:
            for image in item.request.images:
                image.computed(item.request.key, item.end)
        results: list[Result] = self.sampler.sample(logits, work)
        if self.drafter is not None:
            self.drafter.propose(work, results)
        return results

    def copy_pages(self, pairs: Pairs) -> None:
        """See `Moves.copy_pages`."""
        self.caches.copy_pages(pairs)

    def copy_states(self, pairs: Pairs) -> None:
        """See `Moves.copy_states`."""
        self.caches.copy_states(pairs)

    def save(self, pages: Pairs, slots: Pairs) -> None:
        """See `Moves.save`."""
        assert self.host is not None
        self.host.save(pages, slots)

    def restore(self, pages: Pairs, slots: Pairs) -> None:
        """See `Moves.restore`."""
        assert self.host is not None
        self.host.restore(pages, slots)

    def _encode(self, work: Sequence[Work]) -> None:
        """Encode the images that the step needs and that no earlier step, of any sample, has left."""
        wanted = {
            image: image.image
            for item in work
            for image in item.request.images
            if image.embeds is None and image.lies_in(item.start, item.end)
        }
        if wanted:
            for image, embeds in zip(wanted, self.model.vision.encode(list(wanted.values())), strict=True):
                image.embeds = embeds


def spans_of(item: Work) -> list[Any]:
    """The images that the rows of an item compute a part of, as the batch takes them."""
    from ..model.vision import ImageSpan

    inside = (image for image in item.request.images if image.lies_in(item.start, item.end))
    return [ImageSpan(image.start, image.image.plan, image.embeds) for image in inside]


def work_on(request: Request, start: int, end: int) -> Work:
    """Rows start..end-1 of a request: from the end of its known text on they draw; prompt rows tell what is missing."""
    rows = range(0)
    if request.params.prompt_logprobs:
        first, last = max(start, len(request.prompt_logprobs)), min(end, request.prompt_len - 1)
        rows = range(first, max(first, last))
    flying = request.flying
    if flying is not None and flying.draws:
        return Work(request, start, end, True, drafts=[-1] * (end - start - 1), ahead=True)
    drafts = request.proposal.tokens[: max(0, end - request.length)]
    redraft = request.redrafts and end == request.length - 1
    return Work(request, start, end, end >= request.length, rows, drafts, redraft)


def wants_drafts(item: Work, result: Result) -> bool:
    """Whether the request goes on, as far as its tokens tell, and takes drafts in its next step."""
    if item.redraft:
        return True
    ended = any(not one.valid or item.request.ends_with(one.token) for one in result.tokens)
    return bool(result.tokens) and not ended and item.request.draft_count(len(result.tokens)) > 0
