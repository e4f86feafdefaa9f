"""`AsyncLLM`: many streams of one engine, for programs with an event loop."""

from __future__ import annotations

import asyncio
import itertools
import time
import weakref
from collections.abc import AsyncIterator, Hashable
from typing import Any

from ..hal.errors import DeepInferError, InvalidArgumentError
from .checks import INT32_MAX, check_float, check_int
from .delta import OutputDelta
from .engine import LLMEngine
from .engine_thread import (
    EngineBusyError,
    EngineClosedError,
    EngineDeadError,
    EngineThread,
    StepFailedError,
    Stream,
)
from .llm import FAILED, LLM, Prompt
from .outputs import InvalidRequestsError
from .params import SamplingParams

__all__ = [
    "AsyncLLM",
    "EngineBusyError",
    "EngineClosedError",
    "EngineDeadError",
    "GenerationError",
    "OutputDelta",
    "StepFailedError",
]

STEP_TIMEOUT = 1800.0
"""Seconds that a step of an accelerator may take where nothing else is said: more than the first one of a shape that
compiles all its kernels, and less than for ever."""
MAX_QUEUED = 4096
"""Unfinished requests beyond those that can run, where nothing else is said."""
GRACE = 5.0
"""Seconds that a step may still take once the time of a shutdown is over."""


class GenerationError(DeepInferError):
    """A request failed while it ran. Its outputs up to that point were given before.

    Attributes:
        request_id: as submitted.
        failures: index of the sample -> what went wrong.
    """

    def __init__(self, request_id: Any, failures: dict[int, str]) -> None:
        self.request_id, self.failures = request_id, failures
        lines = "; ".join(f"sample {index}: {message}" for index, message in sorted(failures.items()))
        super().__init__(f"request {request_id!r} failed: {lines}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.request_id, self.failures))


class AsyncLLM:
    """A model ready to generate, for asyncio. The engine runs in a thread of its own; tokens are those of `LLM`.

    Args:
        model: see `LLM`, as are the other arguments. Loading blocks; `await AsyncLLM.load(...)` does not.
        step_timeout: seconds after which a step that has not come back counts as the engine's death, of which everybody
            is told; None waits for ever. "auto" is 1800 on an accelerator, and None on a CPU, where a step of a long
            prompt may rightly take any time.
        max_queued: unfinished requests beyond the `max_num_seqs` that can run; one more is refused with
            `EngineBusyError`, or waits, as `generate` says. None is no limit.

    Raises:
        What `LLM` raises.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        step_timeout: float | str | None = "auto",
        max_queued: int | None = MAX_QUEUED,
        **arguments: Any,
    ) -> None:
        _check_timeout(step_timeout, auto=True)
        _check_queued(max_queued)
        self._set_up(LLM(model, **arguments), step_timeout, max_queued)

    @classmethod
    async def load(cls, model: str | None = None, **arguments: Any) -> AsyncLLM:
        """The same, while the event loop goes on."""
        return await asyncio.to_thread(lambda: cls(model, **arguments))

    @classmethod
    def from_engine(
        cls,
        engine: LLMEngine,
        tokenizer: Any,
        *,
        step_timeout: float | str | None = "auto",
        max_queued: int | None = MAX_QUEUED,
    ) -> AsyncLLM:
        """An `AsyncLLM` over an engine that exists, and that nobody else steps from now on."""
        _check_timeout(step_timeout, auto=True)
        _check_queued(max_queued)
        made = cls.__new__(cls)
        made._set_up(LLM.from_engine(engine, tokenizer), step_timeout, max_queued)
        return made

    def _set_up(self, llm: LLM, step_timeout: float | str | None, max_queued: int | None) -> None:
        self._llm = llm
        if isinstance(step_timeout, str):
            device = getattr(getattr(llm.engine.executor, "model", None), "device", None)
            step_timeout = None if device is None or device.type == "cpu" else STEP_TIMEOUT
        most = None if max_queued is None else llm.engine.config.limits.max_requests + max_queued
        self._thread = EngineThread(llm.engine, step_timeout, most)
        self._numbers = itertools.count()
        # A daemon thread that still computes while the interpreter goes away may crash it.
        weakref.finalize(self, _stop, self._thread)

    @property
    def engine(self) -> LLMEngine:
        """For its `config`, `stats` and `observers`; only the thread steps it."""
        return self._llm.engine

    @property
    def tokenizer(self) -> Any:
        return self._llm.tokenizer

    @property
    def error(self) -> EngineDeadError | None:
        """What the engine died of; None while it lives."""
        return self._thread.error

    @property
    def unfinished(self) -> int:
        """Requests that have not ended."""
        return self._thread.unfinished

    # ---- generation

    async def generate(
        self,
        prompt: str | None = None,
        sampling_params: SamplingParams | None = None,
        *,
        prompt_token_ids: Prompt | None = None,
        multi_modal_data: Any = None,
        request_id: Any = None,
        user_id: Any = None,
        wait: bool = False,
    ) -> AsyncIterator[OutputDelta]:
        """Outputs of one request as they come. Leaving the iterator, or cancelling its task, aborts the request.

        A reader that is slower than the engine finds what has come since in one larger delta per sample; the others do
        not notice it.

        Args:
            prompt, sampling_params, prompt_token_ids, multi_modal_data: as those of `LLM.generate`, for one prompt.
            request_id: for `abort`, and in every delta; unique among unfinished requests. None makes one.
            user_id: returned with every delta.
            wait: where too many requests are unfinished, or too many of them wait for their images, wait for room, in
                the order of such calls, instead of raising `EngineBusyError` or `QueueFullError`. Times count from the
                call.

        Raises, once the iteration begins:
            InvalidArgumentError, NotSupportedError: before anything is queued.
            EngineBusyError: too many requests are unfinished.
            EngineClosedError, EngineDeadError: the engine takes no requests, or has died meanwhile.
            QueueFullError: it has images, no more may wait to be decoded, and it does not `wait`.
            StepFailedError: steps failed whatever ran in them.
            GenerationError: a sample failed while it ran, or gave way to others for good; once all samples have ended.
        """
        if not isinstance(wait, bool):
            raise InvalidArgumentError("wait", wait, "True or False")
        self._thread.check_open()
        arrival = time.monotonic()
        ids, params, images = await asyncio.to_thread(
            self._check, prompt, sampling_params, prompt_token_ids, multi_modal_data
        )
        if not isinstance(request_id, Hashable):
            raise InvalidArgumentError("request_id", request_id, "a hashable value, or None")
        number = next(self._numbers)
        request_id = f"request-{number}" if request_id is None else request_id
        # Its own name within the engine: the last word of an aborted request never reaches one that took over its id.
        stream = Stream(f"{request_id}#{number}", request_id, params.n, asyncio.get_running_loop(), patient=wait)
        await self._submit(stream, wait, params, ids, images, user_id, arrival)
        failures: dict[int, str] = {}
        try:
            while True:
                deltas, error, done = stream.take()
                for delta in deltas:
                    if delta.finish_reason in FAILED:
                        failures[delta.sample_index] = delta.error or str(delta.finish_reason)
                    yield delta
                if done or error is not None:
                    break
                await stream.event.wait()
        finally:
            self._thread.forget(stream)
        if error is not None and not done:
            raise error
        if failures:
            raise GenerationError(request_id, failures)

    async def _submit(self, stream: Stream, wait: bool, *request: Any) -> None:
        try:
            self._thread.submit(stream, *request)
            return
        except EngineBusyError:
            if not wait:
                raise
        room = self._thread.line_up(stream.loop)
        try:
            while True:
                await room.event.wait()
                room.event.clear()
                try:
                    self._thread.submit(stream, *request, room=room)
                    return
                except EngineBusyError:  # its turn has not come
                    continue
        finally:
            self._thread.step_out(room)

    def abort(self, request_id: Any) -> bool:
        """End a request, from any thread. Its stream ends with a delta whose reason is "abort", unless it has ended.

        Returns:
            Whether such a request was unfinished.
        """
        return self._thread.abort(request_id)

    # ---- the end

    async def shutdown(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Take no more requests, end those that are there, and release the model. Calling it again does no harm.

        Args:
            drain: let them finish; otherwise their streams end with the reason "abort".
            timeout: seconds after which those that are left are aborted; None waits for them.

        Raises:
            InvalidArgumentError: timeout.
        """
        if not isinstance(drain, bool):
            raise InvalidArgumentError("drain", drain, "True or False")
        _check_timeout(timeout, "timeout", zero=True)
        self._thread.stop(drain)
        if not await asyncio.to_thread(self._thread.join, timeout):
            self._thread.stop(False)
            if not await asyncio.to_thread(self._thread.join, GRACE):
                self._thread.kill(f"a step did not end within {GRACE:g} s of the shutdown")

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.shutdown(drain=kind is None)

    def _check(self, prompt: Any, params: Any, ids: Any, data: Any) -> tuple[Any, SamplingParams, Any]:
        try:
            checked = self._llm._requests(
                None if prompt is None else [prompt], params, None if ids is None else [ids], [data]
            )
        except InvalidRequestsError as error:
            raise error.errors[0] from None
        return checked[0][0], checked[1][0], checked[2][0]


def _stop(thread: EngineThread) -> None:
    thread.stop(False)
    thread.join(GRACE)


def _check_timeout(value: Any, name: str = "step_timeout", zero: bool = False, auto: bool = False) -> None:
    if value is not None and not (auto and value == "auto"):
        check_float(name, value, 0.0, 1e6, open_low=not zero, also='"auto" or None' if auto else "None")


def _check_queued(value: Any) -> None:
    if value is not None:
        check_int("max_queued", value, 0, INT32_MAX, also="None")
