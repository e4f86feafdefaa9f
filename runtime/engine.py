"""The synchronous engine: requests in, steps, outputs out.

A step plans (`planner.plan_step`, pure), carries the plan out on the pools, runs the rows (`execute.Executor`), commits
and returns outputs. Requests may be added and aborted at any moment and from any thread; only `step` itself belongs to
one thread. Resources go back at step borders, never while a launched step may still read them.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from ..hal.errors import InvalidArgumentError, NotSupportedError, short
from .checks import check_float, check_in_vocabulary
from .execute import Drawn, Executor, Result, Work
from .outputs import FinishReason, RequestOutput
from .params import SamplingParams, fresh_seed, sample_seed
from .planner import Limits, Snapshot, StepPlan, plan_step
from .pool import Pool
from .request import Request, TextDecoder
from .stop import StopStrings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineConfig:
    """What the engine needs to know beside its executor.

    Attributes:
        vocab_size: token ids are 0..vocab_size - 1.
        eos_id: end-of-sequence id of the tokenizer.
        max_model_len: most tokens of prompt and output together.
        limits: limits of a step.
        num_pages: pages that can be handed out (the reserved page 0 not counted).
        num_slots: state slots that can be handed out (the reserved slot 0 not counted).
        stop_preempted_request: end preempted requests instead of recomputing them.
        seed: base of the seeds of requests that have none; None draws them from the operating system.
        force_top_k: candidates that sampling keeps at most, 0 for all; bounds `top_logprobs`.
        log_interval: steps between log lines; 0 is off.
    """

    vocab_size: int
    eos_id: int
    max_model_len: int
    limits: Limits
    num_pages: int
    num_slots: int
    stop_preempted_request: bool = False
    seed: int | None = None
    force_top_k: int = 0
    log_interval: int = 0


@dataclass(slots=True)
class EngineStats:
    """Counters since the engine was made."""

    steps: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    finished: int = 0
    preemptions: int = 0


class LLMEngine:
    """Continuous batching over an `Executor`.

    Args:
        config: sizes and limits.
        executor: runs the rows of a step.
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
        self._make_decoder = decoder
        self._on_close = close
        self._pages = Pool("page pool", config.num_pages)
        self._slots = Pool("state slots", config.num_slots)
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._by_id: dict[Any, list[Request]] = {}
        self._aborted: list[Request] = []
        self._ready: list[RequestOutput] = []
        self._next_key = 0
        self._seeds_drawn = 0
        self._in_flight = False
        self._closed = False
        self._log_mark = (time.monotonic(), 0, 0)
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
            multi_modal_data: None, or nothing but empty lists.
            arrival_time: seconds of time.monotonic(); now by default.
            extra, enqueue, chunk_checkpoints: upstream's; only their defaults are accepted.

        Returns:
            The seed of every sample.

        Raises:
            InvalidArgumentError: names the parameter, what came and what is allowed.
            NotSupportedError: images, so_args, extra, enqueue=False, chunk_checkpoints.
        """
        for name, value, default in (
            ("extra", extra, None),
            ("enqueue", enqueue, True),
            ("chunk_checkpoints", chunk_checkpoints, None),
        ):
            if value is not default:
                raise NotSupportedError(f"{name}={short(value)}", "it comes with the disaggregated engines")
        params, prompt = self.check_request(sampling_params, prompt_token_ids, multi_modal_data)
        now = time.monotonic()
        if arrival_time is not None:
            now = check_float("arrival_time", arrival_time, 0.0, now, also="None for now")
        with self._lock:
            if self._closed:
                raise InvalidArgumentError("engine", "closed", "an open engine")
            self._check_id(request_id)
            seed = self._default_seed() if params.seq_seed is None else params.seq_seed
            samples = [self._sample(request_id, user_id, j, params, prompt, seed, now) for j in range(params.n)]
            self._by_id[request_id] = samples
            self._waiting.extend(samples)
        return [request.seed for request in samples]

    def check_request(
        self,
        sampling_params: SamplingParams,
        prompt_token_ids: Sequence[int] | np.ndarray[Any, Any],
        multi_modal_data: Any = None,
    ) -> tuple[SamplingParams, np.ndarray[Any, np.dtype[np.int32]]]:
        """Everything that `add_request` checks of a request by itself; queues nothing.

        Returns:
            A checked copy of the parameters, and the prompt as int32.

        Raises:
            InvalidArgumentError, NotSupportedError: see `add_request`.
        """
        if not isinstance(sampling_params, SamplingParams):
            raise InvalidArgumentError("sampling_params", sampling_params, "a SamplingParams")
        params = sampling_params.copy()
        params.validate_for_model(self.config.vocab_size)
        most = self.config.force_top_k
        if most and params.top_logprobs > most:
            raise InvalidArgumentError(
                "top_logprobs", params.top_logprobs, f"at most DEEPINFER_SAMPLER_FORCE_TOPK = {most}"
            )
        if params.stop_strings and self._make_decoder is None:
            raise InvalidArgumentError("stop", params.stop, "None: this engine has no tokenizer")
        check_no_images(multi_modal_data)
        return params, self._check_prompt(prompt_token_ids)

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
            for one in self._ids_to_abort(request_id):
                aborted.append(one)
                self._mark_aborted(self._by_id[one])
            if not self._in_flight:
                self._apply_aborts()
        return aborted

    def has_unfinished_requests(self) -> bool:
        """Whether another `step` has something to do or to return."""
        with self._lock:
            return bool(self._waiting or self._running or self._ready)

    def get_num_unfinished_requests(self) -> int:
        """Requests (not samples) that have not ended."""
        with self._lock:
            return len(self._by_id)

    # ---- steps

    def step(self) -> list[RequestOutput]:
        """Run one step.

        Returns:
            At most one output per sample for what this step computed, and those of requests aborted since the last.

        Raises:
            Exception: whatever the model raised. The requests of that step go back to the queue and are recomputed; the
                engine stays usable.
        """
        with self._lock:
            if self._closed:
                raise InvalidArgumentError("engine", "closed", "an open engine")
            if self._in_flight:
                raise RuntimeError("step() was called while a step is running")
            work = self._carry_out(plan_step(self._snapshot(), self.config.limits))
            self._in_flight = bool(work)
        if work:
            try:
                results = self.executor.run(work)
            except BaseException:
                with self._lock:
                    self._roll_back(work)
                raise
            with self._lock:
                self._land()
                self._commit(work, results)
        with self._lock:
            self.stats.steps += bool(work)
            self._log_progress()
            if not self._running and not self._waiting:
                self.check_conservation()
            outputs, self._ready = self._ready, []
        return outputs

    def flush_inflight_reqs(self) -> list[RequestOutput]:
        """Outputs of a step that is still in flight: none, since steps are synchronous."""
        with self._lock:
            outputs, self._ready = self._ready, []
        return outputs

    def close(self) -> None:
        """Abort everything and release the model. Calling it again does nothing.

        While another thread runs a step, this waits for its end: the step still reads what would be released.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True  # no new requests, no further step
            self._mark_aborted([*self._waiting, *self._running])
            self._idle.wait_for(lambda: not self._in_flight)
            self._apply_aborts()
            self._ready.clear()
            self.check_conservation()
        if self._on_close is not None:
            self._on_close()

    def check_conservation(self) -> None:
        """Free + owned = total in both pools, by the leases of the requests. Raises PoolError."""
        leases = [request.leases() for request in [*self._waiting, *self._running]]
        self._pages.check(lease for pages, _ in leases for lease in pages)
        self._slots.check(lease for _, slots in leases for lease in slots)

    @property
    def pages_in_use(self) -> int:
        return self._pages.used

    # ---- admission

    def _check_prompt(self, ids: Sequence[int] | np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.int32]]:
        limit = self.config.max_model_len - 1
        allowed = f"1 to {limit} token ids (max_model_len = {limit + 1} holds the prompt and at least one token)"
        try:
            array = np.asarray(ids)
        except Exception:  # arrays of other libraries raise what they like
            raise InvalidArgumentError("prompt_token_ids", ids, allowed) from None
        # In a list of both, numpy takes True for 1 without a word.
        mixed = isinstance(ids, (list, tuple)) and any(isinstance(one, (bool, np.bool_)) for one in ids)
        if mixed or array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise InvalidArgumentError("prompt_token_ids", ids, allowed)
        if not 1 <= array.size <= limit:
            raise InvalidArgumentError("prompt_token_ids", f"{array.size} ids", allowed)
        outside = np.flatnonzero((array < 0) | (array >= self.config.vocab_size))
        if outside.size:
            check_in_vocabulary("prompt_token_ids", array.tolist(), self.config.vocab_size)
        return array.astype(np.int32)

    def _check_id(self, request_id: Any) -> None:
        if self._is_known(request_id):
            raise InvalidArgumentError("request_id", request_id, "an id that no unfinished request has")

    def _is_known(self, request_id: Any) -> bool:
        try:
            return request_id in self._by_id
        except TypeError:
            raise InvalidArgumentError("request_id", request_id, "a hashable value") from None

    def _ids_to_abort(self, request_id: Any) -> list[Any]:
        if isinstance(request_id, (list, set)):
            several = True
        else:
            # Whoever names requests by tuples passes such a name here.
            several = isinstance(request_id, (tuple, frozenset)) and not (
                _is_hashable(request_id) and request_id in self._by_id
            )
        ids = list(request_id) if several else [request_id]
        return [one for one in ids if self._is_known(one)]

    def _default_seed(self) -> int:
        if self.config.seed is None:
            return fresh_seed()
        text = f"{self.config.seed}:{self._seeds_drawn}".encode()
        self._seeds_drawn += 1
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

    def _sample(
        self,
        request_id: Any,
        user_id: Any,
        index: int,
        params: SamplingParams,
        prompt: np.ndarray[Any, np.dtype[np.int32]],
        seed: int,
        arrival_time: float,
    ) -> Request:
        key, self._next_key = self._next_key, self._next_key + 1
        return Request(
            key=key,
            request_id=request_id,
            user_id=user_id,
            sample_index=index,
            params=params,
            seed=sample_seed(seed, index),
            eos_id=self.config.eos_id if params.eos_id is None else params.eos_id,
            prompt_len=len(prompt),
            max_output_tokens=min(params.max_tokens, self.config.max_model_len - len(prompt)),
            tokens=prompt,
            arrival_time=arrival_time,
            decoder=None if self._make_decoder is None else self._make_decoder(),
            stops=StopStrings(params.stop_strings),
        )

    # ---- planning and its execution on the pools

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            running=[request.view() for request in self._running],
            # More than that cannot be admitted; a queue of many thousands costs a step nothing.
            waiting=[request.view() for request in islice(self._waiting, self.config.limits.max_requests)],
            free_pages=self._pages.free,
            free_slots=self._slots.free,
        )

    def _carry_out(self, plan: StepPlan) -> list[Work]:
        by_key = {request.key: request for request in self._running}
        for key in plan.preempted:
            self._preempt(by_key.pop(key))
        work = []
        for item in plan.items:
            if item.admitted:
                request = self._waiting.popleft()
                self._running.append(request)
            else:
                request = by_key[item.key]
            assert request.key == item.key and request.computed == item.start
            request.take(self._pages, self._slots, item.new_pages)
            work.append(
                Work(
                    request,
                    item.start,
                    item.end,
                    item.end == request.length,
                    _prompt_rows(request, item.start, item.end),
                )
            )
        return work

    def _preempt(self, request: Request) -> None:
        self.stats.preemptions += 1
        request.preemptions += 1
        if self.config.stop_preempted_request:
            self._finish(request, FinishReason.PREEMPTED)
            return
        self._requeue(request)

    def _requeue(self, request: Request) -> None:
        """Back to the front of the queue, to be computed again from its first token."""
        request.release()
        self._running.remove(request)
        self._waiting.appendleft(request)

    def _land(self) -> None:
        self._in_flight = False
        self._idle.notify_all()

    def _roll_back(self, work: Sequence[Work]) -> None:
        """After a failed step: its requests may have half-written caches, so none of that is kept."""
        self._land()
        failed = {item.request.key for item in work}
        for request in reversed(list(self._running)):  # youngest first, so that the order stays
            if request.key in failed:
                self._requeue(request)
        self._apply_aborts()

    # ---- committing

    def _commit(self, work: Sequence[Work], results: Sequence[Result]) -> None:
        for item, result in zip(work, results, strict=True):
            request = item.request
            request.computed = item.end
            self.stats.prompt_tokens += max(0, min(item.end, request.prompt_len) - item.start)
            if request.aborted:
                continue
            request.prompt_logprobs += result.prompt_logprobs
            if result.drawn is not None:
                self._append(request, result.drawn)
        self._apply_aborts()

    def _append(self, request: Request, drawn: Drawn) -> None:
        if not drawn.valid:
            self._finish(request, FinishReason.ERROR, error="the model returned logits that are not numbers")
            return
        request.append(drawn.token)
        self.stats.output_tokens += 1
        reason, stop_reason, text = _advance(request, drawn.token)
        output = self._output(request, text)
        output.token_id = drawn.token
        output.token_logprobs = drawn.logprob
        output.top_token_ids, output.top_logprobs = drawn.top_ids, drawn.top_logprobs
        output.raw_token_logprobs = drawn.raw_logprob
        output.raw_top_token_ids, output.raw_top_logprobs = drawn.raw_top_ids, drawn.raw_top_logprobs
        output.sum_smaller_probs = drawn.sum_smaller
        output.draft_tok = output.accept_tok = 1
        if not request.prompt_reported:
            output.prompt_logprobs, request.prompt_reported = request.prompt_logprobs, True
        if reason is not None:
            self._end(request, reason, output)
            output.stop_reason = stop_reason
        self._ready.append(output)

    def _finish(self, request: Request, reason: FinishReason, error: str | None = None) -> None:
        """End a request without a token."""
        output = self._output(request, "" if request.decoder is None else _flush(request))
        output.error = error
        self._end(request, reason, output)
        self._ready.append(output)

    def _end(self, request: Request, reason: FinishReason, output: RequestOutput) -> None:
        output.finished, output.finish_reason = True, str(reason)
        request.finish_reason = reason
        request.release()
        queue = self._running if request in self._running else self._waiting
        queue.remove(request)
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
        """At a step border: no launched step reads the resources that go back here."""
        aborted, self._aborted = self._aborted, []
        for request in aborted:
            if not request.finished:
                self._finish(request, FinishReason.ABORT)

    def _output(self, request: Request, text: str) -> RequestOutput:
        return RequestOutput(
            request_id=request.request_id,
            user_id=request.user_id,
            sample_index=request.sample_index,
            seed=request.seed,
            prompt_len=request.prompt_len,
            text=text,
            num_output_tokens=request.num_output_tokens,
            max_output_tokens=request.max_output_tokens,
            max_num_batched_tokens=self.config.limits.max_tokens,
            elapsed=time.monotonic() - request.arrival_time,
        )

    def _log_progress(self) -> None:
        interval = self.config.log_interval
        if interval <= 0 or self.stats.steps == 0 or self.stats.steps % interval:
            return
        then, prompt, output = self._log_mark
        now = time.monotonic()
        seconds = max(now - then, 1e-9)
        log.info(
            "step %d: %.1f prompt tokens/s, %.1f output tokens/s, "
            "%d running, %d waiting, %d of %d pages, %d preemptions",
            self.stats.steps,
            (self.stats.prompt_tokens - prompt) / seconds,
            (self.stats.output_tokens - output) / seconds,
            len(self._running),
            len(self._waiting),
            self._pages.used,
            self._pages.capacity,
            self.stats.preemptions,
        )
        self._log_mark = (now, self.stats.prompt_tokens, self.stats.output_tokens)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def check_no_images(multi_modal_data: Any) -> None:
    """Raises NotSupportedError unless the value is None or holds nothing but empty lists."""
    if multi_modal_data is None:
        return
    if not isinstance(multi_modal_data, dict):
        raise InvalidArgumentError("multi_modal_data", multi_modal_data, "None or a dict")
    for name, value in multi_modal_data.items():
        if name not in ("image_bytes", "image_sizes"):
            raise InvalidArgumentError("multi_modal_data key", name, "image_bytes, image_sizes")
        if value is not None and not hasattr(value, "__len__"):
            raise InvalidArgumentError(f"multi_modal_data[{name!r}]", value, "None or a list")
        if value is not None and len(value) > 0:
            raise NotSupportedError(f"multi_modal_data[{name!r}]", "images come with the vision pipeline")


def _prompt_rows(request: Request, start: int, end: int) -> range:
    """Positions of this chunk whose logits give prompt log-probabilities that are still missing."""
    if not request.params.prompt_logprobs:
        return range(0)
    first = max(start, len(request.prompt_logprobs))
    last = min(end, request.prompt_len - 1)
    return range(first, last) if first < last else range(0)


def _advance(request: Request, token: int) -> tuple[FinishReason | None, str | int | None, str]:
    """Why the request ends with this token, what matched, and the text that became certain."""
    params = request.params
    stop_id = token in (params.stop_token_ids or ())
    at_eos = token == request.eos_id and not params.ignore_eos
    ends = at_eos or stop_id
    full = request.num_output_tokens >= request.max_output_tokens
    text = ""
    if request.decoder is not None:
        if not ends:
            text = request.stops.push(request.decoder.push(token))
        if (ends or full) and request.stops.matched is None:
            text += _flush(request)
        if request.stops.matched is not None:
            return FinishReason.STOP, request.stops.matched, text
    if ends:
        return FinishReason.STOP, None if at_eos else token, text
    return (FinishReason.LENGTH if full else None), None, text


def _flush(request: Request) -> str:
    """Text held back by the detokenizer and the stop strings."""
    assert request.decoder is not None
    text = request.stops.push(request.decoder.finish())
    return text if request.stops.matched is not None else text + request.stops.finish()
