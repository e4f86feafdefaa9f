"""The engine: requests in, steps, outputs out.

A step plans (`planner.plan_step`, pure), carries the plan out on the pools, runs the rows (`execute.Executor`), commits
and returns outputs. With asynchronous scheduling the rows are launched only, and what is committed and returned is the
step before (`flight.py`). Requests may be added and aborted at any moment and from any thread; only `step` itself
belongs to one thread. Resources go back when the last step that may read or write them has landed.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np

from ..hal.errors import DeviceFaultError, InvalidArgumentError
from .admission import Admission, check_defaults, ids_to_abort
from .checks import check_float, check_int
from .commit import advance, flush, output_of, report_step
from .config import EngineConfig
from .cost import CostFit
from .execute import Drawn, Executor, Result, Work, work_on
from .flight import Done, Flight, is_given_up, settle
from .forks import Begun
from .images import FittedImages
from .isolation import Isolation, describe, is_everybodys
from .moves import MoveList
from .observe import Observers
from .outputs import FinishReason, RequestOutput
from .params import SamplingParams
from .plan import Held, StepPlan
from .planner import plan_step
from .pool import PoolError
from .progress import EngineStats
from .queues import Queues
from .request import Proposal, Request, TextDecoder
from .step_log import StepLog
from .structured.drafts import held_proposal, hold_forks
from .trace import TraceWriter

__all__ = ["EngineConfig", "EngineStats", "LLMEngine"]

log = logging.getLogger(__name__)

IMAGE_WAIT = 0.02
"""Seconds that a step waits for images, or for requests and aborts, where there is nothing else to do."""


class _Lost(Exception):
    """A step that was launched failed. Its cause says why."""

    def __init__(self, flight: Flight) -> None:
        self.flight = flight
        super().__init__()


class LLMEngine:
    """Continuous batching over an `Executor`.

    Args:
        config: sizes and limits.
        executor: runs the rows of a step. Steps overlap if it can launch them (`execute.LaunchingExecutor`) and the
            configuration says so. If it has a `check_device`, that is asked after a step that failed.
        decoder: makes an incremental detokenizer; None leaves `RequestOutput.text` empty and refuses stop strings.
        close: called once by `close`.
    """

    def __init__(
        self,
        config: EngineConfig,
        executor: Executor,
        decoder: Callable[[], TextDecoder] | None = None,
        close: Callable[[], None] | None = None,
    ) -> None:
        self.config = config
        self.executor = executor
        self.stats = EngineStats()
        self.observers = Observers()
        self._admission = Admission(config, decoder)
        self._on_close = close
        limits = config.limits
        self._queues = Queues(
            config.num_pages,
            config.num_slots,
            limits.max_requests,
            limits.page_tokens,
            config.prefix,
            config.host,
            config.slack,
            None if config.images is None else config.images.workers,
        )
        self._queues.arrivals.grammars = config.grammars
        self._by_id: dict[Any, list[Request]] = {}
        self._aborted: list[Request] = []
        self._ready: list[RequestOutput] = []
        self._search: Isolation | None = None
        self._distrusted: set[int] = set()
        self._stepping = self._collects = False
        self._flights: list[Flight] = []  # the oldest first
        self._launch: Any = getattr(executor, "launch", None) if config.async_scheduling else None
        self._landed = 0.0
        self._begun: Begun | None = None  # what the last step that was planned began with
        self._held: Held | None = None
        self._costs = CostFit(config.near_keys) if limits.step_seconds or config.host else None
        self._trace = None if config.trace is None else TraceWriter(config.trace, limits)
        self._closed = False
        if config.log_interval > 0:
            self.observers.add(StepLog(config))
        self._lock = threading.RLock()
        self._idle = threading.Condition(self._lock)
        """Told whenever a step has ended."""

    @classmethod
    def from_engine_args(cls, args: Any) -> LLMEngine:
        """An engine over the model that `EngineArgs` name: loads it, sizes the pools.

        Raises:
            InvalidArgumentError, NotSupportedError: an argument or an environment variable.
            CheckpointError, ConfigError, TokenizerError: the model directory.
        """
        from .loader import load_engine

        return load_engine(args).engine

    # ---- requests

    def add_request(
        self,
        user_id: Any,
        request_id: Any,
        sampling_params: SamplingParams,
        prompt_token_ids: Sequence[int] | np.ndarray[Any, Any],
        multi_modal_data: Any = None,
        arrival_time: float | None = None,
        extra: Any = None,
        enqueue: bool = True,
        chunk_checkpoints: Any = None,
    ) -> list[int]:
        """Check a request and queue its n samples. A refused request leaves the engine as it was.

        Args:
            user_id: returned with every output.
            request_id: hashable; unique among unfinished requests.
            sampling_params: copied.
            prompt_token_ids: 1 to max_model_len - 1 ids.
            multi_modal_data: the images of the prompt, see `LLM.generate`; or what `check_request` made of them.
            arrival_time: seconds of time.monotonic(); now by default.
            extra, enqueue, chunk_checkpoints: upstream's; only their defaults are accepted.

        Returns:
            The seed of every sample.

        Raises:
            InvalidArgumentError: names the parameter, what came and what is allowed.
            NotSupportedError: extra, enqueue=False, chunk_checkpoints; a feature of the schema in so_args, or the
                library for grammars is not installed.
            QueueFullError: it has images or so_args, and no more may wait to be decoded or compiled; it draws no seed,
                and may be tried again.
        """
        check_defaults(extra=(extra, None), enqueue=(enqueue, True), chunk_checkpoints=(chunk_checkpoints, None))
        params, prompt, images = self._admission.check(sampling_params, prompt_token_ids, multi_modal_data)
        now = time.monotonic()
        if arrival_time is not None:
            now = check_float("arrival_time", arrival_time, 0.0, now, also="None for now")
        with self._lock:
            if self._closed:
                raise InvalidArgumentError("engine", "closed", "an open engine")
            if self._is_known(request_id):
                raise InvalidArgumentError("request_id", request_id, "an id that no unfinished request has")
            samples = self._admission.samples(request_id, user_id, params, prompt, images, now)
            if images.encoded or params.structure is not None:
                self._queues.expect(samples, images.encoded)
            else:
                self._queues.add(samples)
            self._by_id[request_id] = samples
            self.observers.added(samples)
            self._queues.arrivals.wake()
        return [request.seed for request in samples]

    def fork_request(
        self,
        request_id: Any,
        new_request_id: Any,
        sampling_params: SamplingParams | None = None,
        last_token: int | None = None,
        sample_index: int = 0,
        user_id: Any = None,
    ) -> list[int]:
        """Queue a request whose prompt is the text of an unfinished one so far, its output included.

        It says what `add_request` with that text would have it say. What has been computed of the text is shared
        where it can be, instead of being computed again: while the other one runs, and with exact prompts.

        Args:
            request_id, sample_index: the other one, which goes on as it was.
            new_request_id: hashable; unique among unfinished requests.
            sampling_params: copied; None takes those of the other one. Lengths and stop strings count from here.
            last_token: replaces the last token of the text; None keeps it.
            user_id: returned with every output.

        Returns:
            The seed of every sample.

        Raises:
            InvalidArgumentError: names the parameter, what came and what is allowed.
        """
        with self._lock:
            samples = self._by_id.get(request_id, []) if self._is_known(request_id) else []
            if self._closed or not samples:
                raise InvalidArgumentError("request_id", request_id, "an unfinished request of an open engine")
            if self._is_known(new_request_id, "new_request_id"):
                raise InvalidArgumentError("new_request_id", new_request_id, "an id that no unfinished request has")
            source = samples[check_int("sample_index", sample_index, 0, len(samples) - 1)]
            if any(not hasattr(image.image, "pixels") for image in source.images):
                raise InvalidArgumentError("request_id", request_id, "a request whose images are decoded")
            if source.finished or source.aborted:
                raise InvalidArgumentError("sample_index", sample_index, "a sample that has not ended")
            params = self._admission.check_params(source.params if sampling_params is None else sampling_params)
            made = self._admission.fork(source, new_request_id, user_id, params, last_token, time.monotonic())
            hold_forks(source, made)
            self._by_id[new_request_id] = made
            for request in made:
                self._queues.fork(source, request, share=not self.config.truncation.on)
            self.observers.added(made)
            self._queues.arrivals.wake()
        return [request.seed for request in made]

    def check_request(
        self,
        sampling_params: SamplingParams,
        prompt_token_ids: Sequence[int] | np.ndarray[Any, Any],
        multi_modal_data: Any = None,
    ) -> tuple[SamplingParams, np.ndarray[Any, np.dtype[np.int32]], FittedImages]:
        """Everything that `add_request` checks of a request by itself; queues nothing.

        Returns:
            A checked copy of the parameters, the prompt as int32, and its images, for `add_request`: their headers have
            been looked at, and where there are no image workers they are decoded.

        Raises:
            InvalidArgumentError, NotSupportedError: see `add_request`.
        """
        return self._admission.check(sampling_params, prompt_token_ids, multi_modal_data)

    def abort_request(self, request_id: Any) -> list[Any]:
        """End requests; each of their unfinished samples gives one last output with the reason "abort".

        Args:
            request_id: one id, or a list, tuple or set of them. Unknown and finished ones are passed over. A tuple or
                frozenset that is itself the id of an unfinished request means that request.

        Returns:
            The ids that were unfinished.
        """
        aborted = []
        with self._lock:
            for one in ids_to_abort(request_id, self._is_known):
                aborted.append(one)
                self._mark_aborted(self._by_id[one])
            if not self._stepping:
                self._apply_aborts()
            self._queues.arrivals.wake()
        return aborted

    def wake(self) -> None:
        """Ends the pause of a step that has nothing to do but to wait for images, or the next one. From any thread."""
        self._queues.arrivals.wake()

    def has_unfinished_requests(self) -> bool:
        """Whether another `step` has something to do or to return."""
        with self._lock:
            return bool(self._queues or self._ready or self._flights)

    def get_num_unfinished_requests(self) -> int:
        """Requests (not samples) that have not ended."""
        with self._lock:
            return len(self._by_id)

    def waiting_for(self) -> str | None:
        """What the request whose turn it is lacked when the last step was planned; None if nobody had to wait."""
        with self._lock:
            if self._held is None:
                return None
            names = {request.key: request.request_id for request in self._queues.waiting}
            if self._held.key not in names:
                return None
            return f"request {names[self._held.key]!r} waits for {self._held.reason}"

    # ---- steps

    def step(self) -> list[RequestOutput]:
        """Run one step; with asynchronous scheduling, launch it and end the one before.

        A step that fails gives its requests back to the queue, to be computed again. The next steps try them in ever
        smaller groups (see `Isolation`): who fails on its own ends with the reason "error", the others go on.

        Returns:
            One output per token: at most one per sample and accepted draft, and one more; and those of requests aborted
            since the last step. With asynchronous scheduling tokens are those of the step before.

        Raises:
            Exception: whatever the executor raised, if each of its requests failed with an error on its own and so did
                others, or if a request that has nobody beside it met a fault of the machine. All of them are in the
                queue again, and the engine stays usable.
            PoolError: an invariant of the pools is broken.
            DeviceFaultError: a step failed, and the device does not answer since.
        """
        with self._lock:
            if self._closed:
                raise InvalidArgumentError("engine", "closed", "an open engine")
            self._begin_step()
        try:
            self._step()
        finally:
            self._end_step()
        return self._take_outputs()

    def flush_inflight_reqs(self) -> list[RequestOutput]:
        """End the step that is in flight, and launch none. Belongs to the thread that steps.

        Returns, Raises:
            As `step`.
        """
        with self._lock:
            self._begin_step()
        try:
            self._land_all()
        finally:
            self._end_step()
        return self._take_outputs()

    def _begin_step(self) -> None:
        if self._stepping:
            raise RuntimeError("step() was called while a step is running")
        self._stepping = True
        # A step makes objects for every request and no cycles: looking for garbage among them is for between steps.
        self._collects = gc.isenabled()
        gc.disable()

    def _end_step(self) -> None:
        if self._collects:
            gc.enable()
        with self._lock:
            self._stepping = False
            try:
                self._apply_aborts()
            finally:  # another thread may wait in `close`
                self._idle.notify_all()

    def _take_outputs(self) -> list[RequestOutput]:
        with self._lock:
            if not self._queues:
                self._queues.check_idle()
            outputs, self._ready = self._ready, []
            self.observers.returned(outputs)
        return outputs

    def _step(self) -> None:
        with self._lock:
            self._judge()
            self.observers.before_step(self._queues)
            planned = self._plan()
        if planned is None:  # somebody has to give way, which takes knowing where everybody is
            if not self._land_all():
                return
            with self._lock:
                planned = self._plan()
        work, moves = planned or ([], MoveList())
        if work and not self._take_off(work, moves):
            return
        if not work and not self._flights and not self._ready:
            self._queues.arrivals.wait(IMAGE_WAIT)
        ahead = work and self._flights and not self._is_done(self._flights[-1])
        while len(self._flights) > (1 if ahead else 0):
            if not self._try_to_land():
                return

    def _is_done(self, flight: Flight) -> bool:
        return flight.ticket is not None and flight.ticket.immediate

    # ---- launching and landing; the lock is not held while the executor works

    def _take_off(self, work: Sequence[Work], moves: MoveList) -> bool:
        """Launches a step. False if that failed, which is then dealt with."""
        flight = Flight(work, time.monotonic(), moves.pins)
        with self._lock:
            flight.take_off()
            self._flights.append(flight)
        try:
            moves.carry_out(self.executor)
            if self._launch is None or self._search is not None:
                flight.ticket = Done(self.executor.run(work))
            else:
                flight.ticket = self._launch(work, self._land_before)
        except BaseException as error:
            self._crash(flight, error)
            return False
        return True

    def _land_before(self) -> None:
        """Lands the step before the one that is being launched, for executors that need its results."""
        while len(self._flights) > 1:
            self._land(self._flights[0])

    def _land_all(self) -> bool:
        """False if a step failed, which is then dealt with."""
        while self._flights:
            if not self._try_to_land():
                return False
        return True

    def _try_to_land(self) -> bool:
        try:
            self._land(self._flights[0])
        except _Lost as lost:
            self._crash(lost.flight, lost)
            return False
        with self._lock:
            self._judge()
        return True

    def _land(self, flight: Flight) -> None:
        """Waits for the oldest step in flight and commits it. Raises _Lost if it failed."""
        assert flight.ticket is not None
        try:
            results = flight.ticket.results()
        except BaseException as error:
            raise _Lost(flight) from error
        try:
            self._set_down(flight, results)
        except BaseException:
            self._start_over()
            raise

    def _set_down(self, flight: Flight, results: Sequence[Result]) -> None:
        """Commits a step that has landed."""
        ended = time.monotonic()
        with self._lock:
            began, self._landed = max(flight.launched, self._landed), ended
            self._flights.remove(flight)
            leaving = [request for request in flight.set_down() if request.finished]
            work = [item for item in flight.work if not item.ahead]  # the others ended before their rows were known
            # Of those whose end only the host has seen the device computes rows that nobody counts.
            if self._costs is not None and not any(is_given_up(item) for item in flight.work):
                self._costs.add([(item.start, item.end) for item in work], ended - began)
            self._commit(flight, results)
            for request in leaving:
                self._retire(request)
            for later in self._flights:
                for item in later.work:
                    settle(item)
            self.stats.steps += 1
            if self.observers:
                self.observers.ran(work, began, ended, self._queues, flight.launched)
                self.observers.timed("commit", time.monotonic() - ended)
            if self._search is not None:
                self._search.step_passed(flight.work)

    def _crash(self, flight: Flight, error: BaseException) -> None:
        """Deals with a step that could not be launched or failed: whoever is in flight begins anew."""
        cause = error
        try:
            if isinstance(error, _Lost):
                flight, cause = error.flight, error.__cause__ or error
            elif isinstance(error, Exception):
                while self._flights and self._flights[0] is not flight:
                    self._land(self._flights[0])  # what was launched before is none of its fault
        except _Lost as earlier:
            flight, cause = earlier.flight, earlier.__cause__ or earlier
        finally:
            self._abandon(flight)
        if isinstance(cause, PoolError) or not isinstance(cause, Exception):  # our own fault, or an interrupt
            raise cause  # which blame nobody
        check_device = getattr(self.executor, "check_device", None)
        if check_device is not None:
            try:
                check_device()
            except DeviceFaultError as fault:  # whatever it is asked to do from now on fails
                raise fault from cause
        with self._lock:
            self._start_search(flight.work, cause)
            self.observers.failed(flight.work, cause)
            self._judge()

    def _abandon(self, failed: Flight) -> None:
        """Waits for every step in flight and drops it. Its requests may have half-written caches: none of that is kept.

        Neither is what others left in the prefix cache: who broke the step may have broken that.
        """
        self._wait_for_all(but=failed)
        with self._lock:
            flights, self._flights = self._flights, []
            lost = {item.request.key for flight in flights for item in flight.work}
            left = {request for flight in flights for request in flight.set_down() if request.finished}
            self._queues.cache.clear()
            for request in left:
                request.tainted = True
                self._retire(request)
            for request in list(self._queues.running):
                if request.key in lost:
                    self._queues.requeue(request)

    def _start_over(self) -> None:
        """After an error amid the bookkeeping of a step, which may have got anywhere: everybody begins anew.

        What has been said stays said, and requests that had ended are told so.
        """
        self._wait_for_all()
        with self._lock:
            flights, self._flights = self._flights, []
            queues = self._queues
            if self._begun is not None:
                self._begun.moves(launched=False)
            for pin in (pin for flight in flights for pin in flight.pins):
                pin.release()
            queues.cache.clear()
            for request in [*queues.leaving, *queues.running]:
                request.flights, request.flying = 0, None
            for request in list(queues.leaving):
                request.tainted = True
                queues.retire(request)
            for request in list(queues.running):
                if request.finish_reason is None:
                    queues.requeue(request)
                else:  # the error came between its end and its last output
                    request.tainted = True
                    self._finish(request, request.finish_reason)

    def _wait_for_all(self, but: Flight | None = None) -> None:
        """Until no step in flight reads or writes anything any more."""
        for flight in self._flights:
            if flight is not but and flight.ticket is not None:
                with suppress(Exception):
                    flight.ticket.results()

    def close(self) -> None:
        """Abort everything and release the model. Calling it again does nothing.

        While another thread runs a step, this waits for its end: the step still reads what would be released.

        Raises:
            PoolError: an invariant was broken. All is released none the less.
        """
        with ExitStack() as unlocked, self._lock, ExitStack() as locked:
            if self._closed:
                return
            self._closed = True  # no new requests, no further step
            self._mark_aborted(list(self._queues))
            self._idle.wait_for(lambda: not self._stepping)
            # Called in any case, the last one first.
            if self._on_close is not None:
                unlocked.callback(self._on_close)
            locked.callback(self.observers.closed)
            if self._trace is not None:
                locked.callback(self._trace.close)
            locked.callback(self._wait_for_all)
            self._apply_aborts()
            for flight in self._flights:
                if flight.ticket is not None:
                    with suppress(Exception):
                        flight.ticket.results()
                for request in flight.set_down():
                    self._retire(request)
            self._flights.clear()
            self.observers.returned(self._ready)  # for their counts: nobody else takes these any more
            self._ready.clear()
            self._queues.cache.clear()
            self.check_conservation()

    def check_conservation(self) -> None:
        """Free + owned = total in both pools, by the leases of the requests. Raises PoolError."""
        with self._lock:
            self._queues.check_conservation()

    def reset_prefix_cache(self) -> None:
        """Forget what the prefix cache holds; requests that run keep what they share."""
        with self._lock:
            self._queues.cache.clear()

    def use_prefix_cache(self, on: bool) -> None:
        """Whether later requests find and leave anything in the prefix cache, which is emptied. On at the beginning.

        Raises:
            InvalidArgumentError: the engine has none.
        """
        if self.config.prefix is None:
            raise InvalidArgumentError("use_prefix_cache", on, "an engine with enable_prefix_caching=True")
        with self._lock:
            self._queues.cache.clear()
            self._queues.cache.settings = self.config.prefix if on else None

    @property
    def pages_in_use(self) -> int:
        """Pages that requests hold; those of the prefix cache alone are not among them."""
        return self._queues.pages_in_use

    def _is_known(self, request_id: Any, name: str = "request_id") -> bool:
        try:
            return request_id in self._by_id
        except TypeError:
            raise InvalidArgumentError(name, request_id, "a hashable value") from None

    # ---- planning and its execution on the pools

    def _plan(self) -> tuple[list[Work], MoveList] | None:
        """The rows of the next step, and what is copied before; None if no step may be in flight for it."""
        try:
            return self._try_to_plan()
        except BaseException:
            self._start_over()
            raise

    def _try_to_plan(self) -> tuple[list[Work], MoveList] | None:
        self._take_images()
        self._queues.grant_forks()
        trial = [] if self._search is None else self._search.trial()
        began = time.monotonic()
        state = self._queues.snapshot(trial, began, None if self._costs is None else self._costs.cost)
        plan = plan_step(state, self.config.limits)
        if plan.preempted and self._flights:
            return None
        if self._trace is not None:
            self._trace.step(state, plan)
        self._held = plan.held
        work, moves = self._carry_out(plan)
        if trial and not work and self._search is not None:
            self._search.skip()  # those on trial had room when they failed; if not, that must not stop the engine
        if self.observers:
            self.observers.planned(plan, time.monotonic() - began)
        return work, moves

    def _take_images(self) -> None:
        """Requests that lack no image and no grammar wait for their turn; those for whom one failed end."""
        for samples, error in self._queues.arrivals.take():
            if error is None:
                self._queues.begin(samples)
                continue
            log.warning("request %r cannot begin: %s", samples[0].request_id, describe(error))
            for request in samples:
                self._finish(request, FinishReason.ERROR, error=describe(error))

    def _carry_out(self, plan: StepPlan) -> tuple[list[Work], MoveList]:
        queues, cache = self._queues, self._queues.cache
        by_key = {request.key: request for request in queues.running}
        for key in plan.preempted:
            self._preempt(by_key.pop(key), key in plan.offloaded)
        self._begun = begun = Begun(queues)
        for item in plan.items:  # what is shared has an owner more before anybody takes a page from the cache
            if item.admitted:
                by_key[item.key] = queues.admit(item.key)
                begun.attach(by_key[item.key], item.start)
        work: list[Work] = []
        for item in plan.items:
            request = by_key[item.key]
            if request.slot is None and not begun.give_slot(request):
                queues.postpone(request)  # all slots left are those of others in this step; its turn comes
                continue
            assert request.key == item.key
            assert item.start == (request.computed if request.flying is None else request.flying.end)
            if item.new_pages:
                cache.make_room(item.new_pages)
                request.take(queues.pages, item.new_pages)
            if item.admitted:
                begun.fill(request)
                self._count_cached(request)
            work.append(work_on(request, item.start, item.end))
        return work, begun.moves(launched=bool(work))

    def _count_cached(self, request: Request) -> None:
        """Tokens of a prompt that need not be computed, at its first admission."""
        if request.cached_tokens is None:
            request.cached_tokens = request.computed if request.anchor is None else 0
            self.stats.cached_tokens += request.cached_tokens
            self.stats.forked_tokens += request.computed - request.cached_tokens

    def _preempt(self, request: Request, offload: bool) -> None:
        self.stats.preemptions += 1
        request.preemptions += 1
        self.observers.preempted(request)
        if self.config.stop_preempted_request:
            self._finish(request, FinishReason.PREEMPTED)
            return
        if offload:
            try:
                self._queues.offload(request, self.executor)
                self.stats.offloads += 1
                self.observers.offloaded(request)
                return
            except Exception:
                log.exception("the caches of request %r could not be saved: computed again", request.request_id)
        self._keep(request)
        self._queues.requeue(request)

    def _keep(self, request: Request) -> None:
        """Leaves what an ending or preempted request has computed to the prefix cache."""
        if not request.tainted:
            self._queues.cache.keep_pages(request)
            self._queues.cache.keep_slot(request)

    def _retire(self, request: Request) -> None:
        """The last step with a request that has ended has landed: its resources return."""
        self._keep(request)
        self._queues.retire(request)

    def _start_search(self, work: Sequence[Work], error: Exception) -> None:
        if self._search is None:
            self._search = Isolation(self._distrusted)
            log.warning("a step of %d requests failed, each is tried again: %s", len(work), describe(error))
        self._search.step_failed(work, error)

    def _judge(self) -> None:
        """Ends the requests that are known to make steps fail. Raises their error where it seems to be everybody's."""
        search = self._search
        if search is None or (search.trial() and not search.healthy):
            return
        if not search.healthy and search.failed and search.call_witness([*self._queues.running, *self._queues.waiting]):
            return
        guilty = search.take_guilty()
        if not search.trial():
            self._search = None
        if not search.healthy and guilty and is_everybodys(guilty):
            raise guilty[0][1]
        for request, error in guilty:
            log.error("request %r fails on its own", request.request_id, exc_info=error)
            self._finish(request, FinishReason.ERROR, error=describe(error))

    # ---- committing

    def _commit(self, flight: Flight, results: Sequence[Result]) -> None:
        queues, stats = self._queues, self.stats
        charge, sharing = queues.service.charge, queues.cache.settings is not None
        for item, result, generation in zip(flight.work, results, flight.generations, strict=True):
            request = item.request
            if flight.is_late(request, generation):
                continue
            if request.aborted and not all(drawn.valid for drawn in result.tokens):
                queues.cache.forget(request)
                request.tainted = True
            if item.ahead:
                continue  # aborted before its rows were known, which may not even have run
            start, end = item.start, item.end
            charge(request.params.tenant, end - start)
            # Rows of rejected drafts are as if never computed.
            request.computed = end - len(item.drafts) + result.accepted if item.drafts else end
            if start < request.prompt_len:
                stats.prompt_tokens += min(end, request.prompt_len) - start
            if request.aborted:
                continue
            if result.prompt_logprobs:
                request.prompt_logprobs += result.prompt_logprobs
            try:
                self._say(item, result)
            except Exception as error:  # of its text: nobody else's affair
                log.exception("a token of request %r has no text", request.request_id)
                self._finish(request, FinishReason.ERROR, error=describe(error))
            if request.finish_reason is None:
                if result.proposal is not None or request.proposal.tokens:
                    request.proposal = result.proposal or Proposal([])
                if request.constraint is not None:
                    request.proposal = held_proposal(request)
                if sharing:
                    self._share(request, item)

    def _share(self, request: Request, item: Work) -> None:
        """Leaves a running request's full pages to the prefix cache, and copies of its state where others may begin."""
        cache = self._queues.cache
        cache.keep_pages(request)
        if item.start < request.prompt_len <= request.computed:
            border = request.prompt_len - 1  # behind it whoever asks the same must compute a row
        elif request.computed == request.checkpoint:
            border = request.checkpoint
        else:
            return
        copy = cache.copy_slot(request, border)
        if copy is None:
            return
        try:
            self.executor.copy_states([copy])
        except BaseException as error:
            cache.clear()  # the copy is none
            if not isinstance(error, Exception):
                raise
            log.exception("a state could not be copied for the prefix cache, which is emptied")

    def _say(self, item: Work, result: Result) -> None:
        """Append the tokens of a step up to an end among them."""
        request, tokens = item.request, result.tokens
        proposal, last = request.proposal, len(tokens)
        for said, drawn in enumerate(tokens, 1):
            output = self._append(request, drawn)
            if output is None:
                return
            if said == last or request.finish_reason is not None:
                report_step(output, proposal, item, result, said)
                if item.drafts:
                    self.stats.count_drafts(output)
                return

    def _append(self, request: Request, drawn: Drawn) -> RequestOutput | None:
        if not drawn.valid:
            self._queues.cache.forget(request)
            why = None if request.constraint is None else request.constraint.error
            why = why or drawn.barred or "the model returned logits that are not numbers"
            self._finish(request, FinishReason.ERROR, error=why)
            return None
        request.append(drawn.token)
        self.stats.output_tokens += 1
        reason, stop_reason, text = advance(request, drawn.token)
        output = output_of(request, text, self.config.limits.max_tokens, drawn)
        if reason is not None:
            self._end(request, reason, output)
            output.stop_reason = stop_reason
        self._ready.append(output)
        return output

    def _finish(self, request: Request, reason: FinishReason, error: str | None = None) -> None:
        """End a request without a token."""
        try:
            text = flush(request)
        except Exception:  # what made a request fail may well be its text
            log.exception("the rest of the text of request %r is lost", request.request_id)
            text = ""
        output = output_of(request, text, self.config.limits.max_tokens)
        output.error = error
        self._end(request, reason, output)
        self._ready.append(output)

    def _end(self, request: Request, reason: FinishReason, output: RequestOutput) -> None:
        output.finished, output.finish_reason = True, str(reason)
        request.finish_reason = reason
        request.tainted |= reason is FinishReason.ERROR
        if request.flights:
            self._queues.leave(request)
        else:
            self._keep(request)
            self._queues.remove(request)
        self.stats.finished += 1
        samples = self._by_id[request.request_id]
        if all(sample.finished for sample in samples):
            del self._by_id[request.request_id]

    def _mark_aborted(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if not request.finished and not request.aborted:
                request.aborted = True
                self._aborted.append(request)

    def _apply_aborts(self) -> None:
        """At a step border. What a launched step still reads goes back when that lands."""
        aborted, self._aborted = self._aborted, []
        for request in aborted:
            if not request.finished:
                self._finish(request, FinishReason.ABORT)
