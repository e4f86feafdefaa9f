"""Streams of an engine in a thread of its own: the tokens of `LLM`, every ending, and nobody left waiting."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from deepinfer.hal.errors import DeviceFaultError, InvalidArgumentError
from deepinfer.runtime.async_llm import (
    STEP_TIMEOUT,
    AsyncLLM,
    EngineBusyError,
    EngineClosedError,
    EngineDeadError,
    GenerationError,
    OutputDelta,
    StepFailedError,
)
from deepinfer.runtime.delta import FEW, Mailbox
from deepinfer.runtime.execute import Work
from deepinfer.runtime.metrics import EngineMetrics
from deepinfer.runtime.outputs import RequestOutput
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.pool import PoolError
from engines import FREE, VOCAB, Faulty, alone, build_engine, tokens


class Bytes:
    """A tokenizer whose tokens are bytes."""

    def encode(self, text: str, *, bos: bool | None = None) -> list[int]:
        return [byte % VOCAB for byte in text.encode()]


class Gated(Faulty):
    """Steps wait for a gate, and the thread that runs them is noted."""

    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        self.gate = threading.Event()
        self.gate.set()
        self.inside = threading.Event()
        self.threads: set[int] = set()
        self.limit: int | None = None  # steps that may begin

    def run(self, work: Sequence[Work]) -> Any:
        self.threads.add(threading.get_ident())
        self.inside.set()
        assert self.gate.wait(30)
        while self.limit is not None and self.steps >= self.limit:
            time.sleep(0.001)
        return super().run(work)


def made(**options: Any) -> tuple[AsyncLLM, Gated]:
    """A small engine behind streams, and its executor."""
    how = {name: options.pop(name) for name in ("step_timeout", "max_queued") if name in options}
    slack = options.get("max_drafts", 0) + 1  # states reach back as far as the engine believes: samples share them
    executor = Gated(VOCAB, options.get("num_pages", 64), options.get("num_slots", 8), 4, slack)
    engine = build_engine(executor=executor, **options)
    return AsyncLLM.from_engine(engine, Bytes(), **how), executor


def params(length: int = 6, **more: Any) -> SamplingParams:
    return SamplingParams(max_tokens=length, **{**FREE, **more})


async def collect(stream: Any) -> list[OutputDelta]:
    return [delta async for delta in stream]


def said(deltas: Sequence[OutputDelta], sample: int = 0) -> list[int]:
    return [token for delta in deltas if delta.sample_index == sample for token in delta.token_ids]


def run(work: Any) -> Any:
    """Runs a coroutine; one that hangs fails."""

    async def bounded() -> Any:
        return await asyncio.wait_for(work, 30)

    return asyncio.run(bounded())


async def idle(llm: AsyncLLM) -> None:
    """Until the engine has nothing to do; then nothing may be held."""
    while llm.unfinished or llm.engine.has_unfinished_requests():
        await asyncio.sleep(0.002)
    llm.engine.check_conservation()
    assert llm.engine.pages_in_use == 0


@pytest.mark.parametrize("drafts", [0, 3])
def test_streams_say_what_a_request_alone_says(drafts: int) -> None:
    prompts = [[5 + i] * (3 + 5 * i) for i in range(6)]

    async def main() -> None:
        llm, executor = made(max_drafts=drafts, max_tokens=32)
        async with llm:
            streams = [
                llm.generate(prompt_token_ids=prompt, sampling_params=params(9, seq_seed=i))
                for i, prompt in enumerate(prompts)
            ]
            found = await asyncio.gather(*map(collect, streams))
        for i, (prompt, deltas) in enumerate(zip(prompts, found, strict=True)):
            expected = alone(prompt, params(9, seq_seed=i), max_drafts=drafts, max_tokens=32)
            assert said(deltas) == tokens(expected)
            assert "".join(d.text for d in deltas) == "".join(o.text for o in expected)
            assert [p for d in deltas for p in d.token_logprobs] == [o.token_logprobs for o in expected]
            assert [d.finished for d in deltas] == [False] * (len(deltas) - 1) + [True]
            last = deltas[-1]
            assert (last.finish_reason, last.num_output_tokens) == ("length", 9)
            assert sum(d.accepted for d in deltas) == sum(o.accepted for o in expected)
            assert sum(d.merged for d in deltas) == len(expected)
        assert executor.threads.isdisjoint({threading.get_ident()}), "the event loop's thread never steps"

    run(main())


def test_text_prompts_samples_and_ids() -> None:
    async def main() -> None:
        llm, _ = made()
        async with llm:
            deltas = await collect(llm.generate("abc", params(4, n=3), request_id="mine", user_id=7))
        assert {d.sample_index for d in deltas} == {0, 1, 2} and {d.request_id for d in deltas} == {"mine"}
        assert {d.user_id for d in deltas} == {7} and deltas[0].prompt_len == 3
        for sample in range(3):
            assert said(deltas, sample) == tokens(alone([0, 1, 2], params(4, seq_seed=3 + sample))), sample

    run(main())


def test_a_slow_reader_gets_larger_deltas_and_holds_nobody_up() -> None:
    async def main() -> None:
        llm, executor = made(max_drafts=3, max_tokens=32)
        async with llm:
            executor.limit = 2
            slow = llm.generate(prompt_token_ids=[5, 6], sampling_params=params(50))
            first = await anext(slow)
            executor.limit = None
            fast = await collect(llm.generate(prompt_token_ids=[7], sampling_params=params(60)))
            assert len(said(fast)) == 60
            while llm.unfinished:  # the engine goes on without the reader
                await asyncio.sleep(0.002)
            (rest,) = await collect(slow)
        assert rest.merged == len(rest.token_ids) == 50 - len(first.token_ids) > 10 and rest.finished
        expected = alone([5, 6], params(50), max_drafts=3, max_tokens=32)
        assert said([first, rest]) == tokens(expected)
        for name in ("drafted", "verified", "accepted"):
            assert getattr(first, name) + getattr(rest, name) == sum(getattr(o, name) for o in expected) > 0

    run(main())


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, 1000])
def test_what_waits_for_a_reader_is_small_and_complete(count: int) -> None:
    """Many tokens that nobody reads take some bytes each, not an output object each."""
    box = Mailbox("x")
    outputs = [
        RequestOutput(request_id="y", token_id=token, text="ab"[token % 2], num_output_tokens=token + 1, seed=4,
                      token_logprobs=-token / 8, drafted=3, verified=2, accepted=token % 2, elapsed=token)
        for token in range(count)
    ]  # fmt: skip
    outputs[0].prompt_logprobs, outputs[0].cached_tokens = [-1.0], 7
    outputs.append(RequestOutput(request_id="y", text="z", finished=True, finish_reason="abort", error="e"))
    for output in outputs:
        box.add(output)
    assert len(box._few) + (len(box._bulk._details) if box._bulk else 0) <= FEW
    delta = box.take()
    assert delta.token_ids == list(range(count)) and delta.token_logprobs == [-t / 8 for t in range(count)]
    assert delta.text == "".join(o.text for o in outputs) and (delta.request_id, delta.seed) == ("x", 4)
    assert (delta.drafted, delta.verified, delta.accepted) == (3 * count, 2 * count, count // 2)
    assert (delta.merged, delta.prompt_logprobs, delta.cached_tokens) == (count + 1, [-1.0], 7)
    assert (delta.finished, delta.finish_reason, delta.error) == (True, "abort", "e")


@pytest.mark.parametrize("count", [1, 2, 3 * FEW])
def test_what_was_asked_of_each_token_is_kept(count: int) -> None:
    box = Mailbox("x")
    for token in range(count):
        box.add(RequestOutput(request_id="y", token_id=token, top_token_ids=[token], top_logprobs=[-0.5],
                              raw_token_logprobs=-token / 4, raw_top_token_ids=[token + 1], raw_top_logprobs=[-2.0],
                              sum_smaller_probs=token / 9))  # fmt: skip
    delta = box.take()
    assert delta.top_token_ids == [[t] for t in range(count)] and delta.top_logprobs == [[-0.5]] * count
    assert delta.raw_token_logprobs == [-t / 4 for t in range(count)] and delta.raw_top_logprobs == [[-2.0]] * count
    assert delta.raw_top_token_ids == [[t + 1] for t in range(count)]
    assert delta.sum_smaller_probs == [t / 9 for t in range(count)]


@pytest.mark.parametrize("how", ["cancel", "close", "break", "abort"])
def test_leaving_aborts_and_frees_everything(how: str) -> None:
    async def main() -> None:
        llm, executor = made()
        outcomes = EngineMetrics(llm.engine).counters["requests_total"]
        async with llm:
            executor.limit = 3  # the engine is in the middle of its request when the reader leaves
            other = asyncio.create_task(collect(llm.generate(prompt_token_ids=[9], sampling_params=params(40))))
            stream = llm.generate(prompt_token_ids=[5], sampling_params=params(60), request_id="it")
            await anext(stream)
            if how == "cancel":
                task = asyncio.create_task(collect(stream))
                await asyncio.sleep(0.01)
                task.cancel()
                await asyncio.wait([task])
            elif how == "close":
                await stream.aclose()
            elif how == "break":
                del stream
                await asyncio.sleep(0.01)
            else:
                assert llm.abort("it")
            executor.limit = None
            if how == "abort":
                rest = await collect(stream)
                assert rest[-1].finish_reason == "abort" and rest[-1].finished
                assert not llm.abort("it"), "it has ended"
            assert said(await other) == tokens(alone([9], params(40)))
            await idle(llm)
            assert (outcomes["abort"], outcomes["length"]) == (1, 1)

    run(main())


def test_an_id_is_free_again_and_the_last_word_of_the_aborted_goes_astray() -> None:
    async def main() -> None:
        llm, executor = made()
        async with llm:
            for _ in range(5):
                executor.gate.clear()
                stream = llm.generate(prompt_token_ids=[5], sampling_params=params(60), request_id="it")
                first = asyncio.ensure_future(anext(stream))
                while not llm.unfinished:
                    await asyncio.sleep(0.001)
                with pytest.raises(InvalidArgumentError, match="request_id"):
                    await anext(llm.generate(prompt_token_ids=[5], request_id="it"))
                first.cancel()
                await asyncio.wait([first])
                again = asyncio.ensure_future(
                    collect(llm.generate(prompt_token_ids=[8], sampling_params=params(3), request_id="it"))
                )
                while not llm.unfinished:
                    await asyncio.sleep(0.001)
                executor.gate.set()
                deltas = await again
                assert said(deltas) == tokens(alone([8], params(3))) and deltas[-1].finish_reason == "length"

    run(main())


def test_a_storm_of_cancellations_changes_nobody_else() -> None:
    async def main() -> None:
        llm, _ = made(num_pages=48)
        async with llm:
            kept, tasks = [], []
            for i in range(60):
                stream = llm.generate(
                    prompt_token_ids=[2 + i % 7] * (1 + i % 9), sampling_params=params(12, seq_seed=i)
                )
                task = asyncio.create_task(collect(stream))
                (kept if i % 5 == 0 else tasks).append((i, task))
            for i, task in tasks:
                await asyncio.sleep(0.001 * (i % 3))
                task.cancel()
            for i, task in kept:
                expected = alone([2 + i % 7] * (1 + i % 9), params(12, seq_seed=i), num_pages=48)
                assert said(await task) == tokens(expected), i
            await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)
            await idle(llm)

    run(main())


def test_bad_requests_raise_what_is_wrong_and_queue_nothing() -> None:
    async def main() -> None:
        llm, _ = made()
        async with llm:
            for bad in ({"prompt_token_ids": []}, {"prompt": ""}, {}, {"prompt_token_ids": [VOCAB]}, {"prompt": 3}):
                with pytest.raises(InvalidArgumentError):
                    await anext(llm.generate(sampling_params=params(), **bad))
            with pytest.raises(InvalidArgumentError, match="request_id"):
                await anext(llm.generate(prompt_token_ids=[5], request_id=[]))
            assert llm.unfinished == 0

    run(main())


def test_a_request_that_fails_gives_its_outputs_and_then_its_error() -> None:
    async def main() -> None:
        llm, executor = made()
        executor.bad_first_token = 13
        async with llm:
            bad = llm.generate(prompt_token_ids=[13, 2], sampling_params=params(), request_id="bad")
            good = asyncio.create_task(collect(llm.generate(prompt_token_ids=[5], sampling_params=params())))
            deltas = []
            with pytest.raises(GenerationError, match="'bad' failed.*not numbers") as caught:
                async for delta in bad:
                    deltas.append(delta)
            assert deltas[-1].finish_reason == "error" and deltas[-1].finished and list(caught.value.failures) == [0]
            assert said(await good) == tokens(alone([5], params()))

    run(main())


def test_steps_that_fail_for_everybody_end_who_is_there_and_the_engine_goes_on() -> None:
    async def main() -> None:
        llm, executor = made()
        async with llm:
            executor.fault = lambda work: RuntimeError("a passing fault")
            tasks = [asyncio.create_task(collect(llm.generate(prompt_token_ids=[5 + i]))) for i in range(3)]
            for task in tasks:
                with pytest.raises(StepFailedError, match="a passing fault") as caught:
                    await task
                assert isinstance(caught.value.__cause__, RuntimeError)
            executor.fault = None
            assert said(await collect(llm.generate(prompt_token_ids=[5], sampling_params=params()))) == tokens(
                alone([5], params())
            )
            await idle(llm)
            assert llm.error is None

    run(main())


@pytest.mark.parametrize("fatal", [DeviceFaultError("the device fell off"), SystemExit(3)])
def test_a_dead_engine_tells_everybody(fatal: BaseException) -> None:
    async def main() -> None:
        llm, executor = made(max_requests=2, num_slots=2)
        executor.gate.clear()
        tasks = [asyncio.create_task(collect(llm.generate(prompt_token_ids=[5 + i]))) for i in range(4)]
        await asyncio.sleep(0.05)
        executor.fault = lambda work: fatal
        executor.gate.set()
        for task in tasks:
            with pytest.raises(EngineDeadError) as caught:
                await task
            assert caught.value.__cause__ is fatal
        with pytest.raises(EngineDeadError, match=str(fatal)):
            await anext(llm.generate(prompt_token_ids=[5]))
        assert isinstance(llm.error, EngineDeadError)
        await llm.shutdown()

    run(main())


def test_a_fault_of_the_engine_itself_is_its_death(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        llm, _ = made()

        def broken() -> Any:
            raise AssertionError("a bug of ours")

        monkeypatch.setattr(llm.engine, "has_unfinished_requests", broken)
        with pytest.raises(EngineDeadError, match="a bug of ours"):
            await collect(llm.generate(prompt_token_ids=[5]))

    run(main())


def test_a_step_that_never_returns_is_noticed() -> None:
    async def main() -> None:
        llm, executor = made(step_timeout=0.1)
        executor.gate.clear()
        with pytest.raises(EngineDeadError, match="has not come back for 0.1 s"):
            await collect(llm.generate(prompt_token_ids=[5]))
        began = time.monotonic()
        await llm.shutdown()
        assert time.monotonic() - began < 5, "a dead engine is not waited for"
        executor.gate.set()

    run(main())


@pytest.mark.parametrize("ending", [False, True])
def test_a_dead_engine_does_not_go_on_when_its_step_comes_back(ending: bool) -> None:
    """Nobody reads what it would say; also where it was about to end, and stuck in the steps that takes."""

    async def main() -> None:
        llm, executor = made()
        thread = llm._thread
        executor.gate.clear()
        if ending:  # the last steps abort whoever is there, so somebody comes whom they do not know
            llm.engine.add_request(None, "unknown", params(40), [5])
            llm._thread.stop(drain=False)
            reads = None
        else:
            reads = asyncio.create_task(collect(llm.generate(prompt_token_ids=[5], sampling_params=params(40))))
        while not executor.inside.is_set():
            await asyncio.sleep(0.002)
        thread.kill("a step has not come back")
        if reads is not None:
            with pytest.raises(EngineDeadError, match="has not come back"):
                await reads
        executor.gate.set()
        await asyncio.to_thread(thread._thread.join, 10)
        assert not thread._thread.is_alive() and executor.steps == 1
        assert not llm.engine.has_unfinished_requests() and llm.engine.pages_in_use == 0

    run(main())


@pytest.mark.parametrize("queued", [False, True])
def test_a_request_that_cannot_be_queued_fails_alone(queued: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        llm, _ = made()
        add = llm.engine.add_request

        def no_memory(user_id: Any, key: Any, sampling: Any, prompt: Any, *rest: Any) -> Any:
            if prompt[0] != 9:
                return add(user_id, key, sampling, prompt, *rest)
            if queued:
                add(user_id, key, sampling, prompt, *rest)
            raise MemoryError("of one request")

        monkeypatch.setattr(llm.engine, "add_request", no_memory)
        good = asyncio.create_task(collect(llm.generate(prompt_token_ids=[5], sampling_params=params(20))))
        with pytest.raises(MemoryError, match="of one request"):
            await collect(llm.generate(prompt_token_ids=[9], sampling_params=params(60)))
        assert said(await good) == tokens(alone([5], params(20)))
        await idle(llm)
        assert llm.error is None
        await llm.shutdown()

    run(main())


def test_a_pool_that_is_broken_while_a_request_is_queued_is_everybodys(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        llm, _ = made()

        def broken(*args: Any) -> Any:
            raise PoolError("lost a page")

        monkeypatch.setattr(llm.engine, "add_request", broken)
        with pytest.raises(EngineDeadError, match="lost a page"):
            await collect(llm.generate(prompt_token_ids=[9], sampling_params=params()))

    run(main())


def test_too_many_requests_are_refused_or_wait_in_order() -> None:
    async def work() -> None:
        llm, executor = made(max_requests=1, max_queued=1)
        executor.gate.clear()
        order: list[int] = []

        async def one(key: int, **how: Any) -> None:
            stream = llm.generate(None, params(3), prompt_token_ids=[5 + key], request_id=key, **how)
            await collect(stream)
            order.append(key)

        first = [asyncio.create_task(one(key)) for key in range(2)]
        while llm.unfinished < 2:
            await asyncio.sleep(0.001)
        with pytest.raises(EngineBusyError, match="2 requests are unfinished, 2 may be"):
            await one(9)
        assert llm.unfinished == 2
        later = []
        for key in range(2, 6):
            later.append(asyncio.create_task(one(key, wait=True)))
            while len(llm._thread._line) < key - 1:
                await asyncio.sleep(0.001)
        later[1].cancel()
        most = 0
        executor.gate.set()
        while not all(task.done() for task in first + later):
            most = max(most, llm.unfinished)
            await asyncio.sleep(0.0005)
        await asyncio.gather(*first, *later, return_exceptions=True)
        assert order == [0, 1, 2, 4, 5] and most <= 2 and later[1].cancelled()
        assert not llm._thread._line
        await one(7)
        await idle(llm)
        await llm.shutdown()

    run(work())


def test_an_end_looks_at_those_in_the_line_who_may_come() -> None:
    looked: list[Any] = []

    class Line(deque[Any]):
        def __iter__(self) -> Iterator[Any]:
            for room in super().__iter__():
                looked.append(room)
                yield room

    async def work() -> None:
        llm, _ = made(max_requests=1, max_queued=2)
        thread, called = llm._thread, []
        loop = SimpleNamespace(call_soon_threadsafe=called.append)
        rooms = [SimpleNamespace(loop=loop, event=SimpleNamespace(set=number)) for number in range(50)]
        with thread._changed:
            thread._line = Line(rooms)
            thread._call()
            assert called == [0, 1, 2] and len(looked) == 3
            thread._call(everybody=True)
            assert called[3:] == list(range(50))
            thread._line = deque()
        await llm.shutdown()

    run(work())


@pytest.mark.parametrize("ending", ["shutdown", "death"])
def test_who_waits_for_room_is_told_of_the_end(ending: str) -> None:
    async def work() -> None:
        llm, executor = made(max_requests=1, max_queued=0)
        executor.gate.clear()
        runs = asyncio.create_task(collect(llm.generate(None, params(3), prompt_token_ids=[5])))
        while not llm.unfinished:
            await asyncio.sleep(0.001)
        waits = asyncio.create_task(collect(llm.generate(None, params(3), prompt_token_ids=[6], wait=True)))
        while not llm._thread._line:
            await asyncio.sleep(0.001)
        if ending == "death":
            llm._thread.kill("for a test")
        else:
            llm._thread.stop(True)
        with pytest.raises(EngineDeadError if ending == "death" else EngineClosedError):
            await waits
        executor.gate.set()
        await asyncio.gather(runs, return_exceptions=True)
        await llm.shutdown()

    run(work())


def test_steps_of_accelerators_may_not_take_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr("deepinfer.runtime.async_llm.EngineThread", lambda engine, *how: given.append(how))
    monkeypatch.setattr("deepinfer.runtime.async_llm.weakref.finalize", lambda *_: None)
    for kind, more in (("cpu", {}), ("cuda", {}), ("cuda", {"step_timeout": None}), ("cpu", {"step_timeout": 5.0})):
        engine = build_engine(max_requests=4)
        engine.executor.model = SimpleNamespace(device=SimpleNamespace(type=kind))
        AsyncLLM.from_engine(engine, Bytes(), **more)
        AsyncLLM.from_engine(engine, Bytes(), **more, max_queued=None)
    assert [how[0] for how in given[::2]] == [None, STEP_TIMEOUT, None, 5.0]
    assert {how[1] for how in given[::2]} == {4 + 4096} and {how[1] for how in given[1::2]} == {None}


def test_shutdown_drains_or_aborts() -> None:
    async def main() -> None:
        for drain in (True, False):
            llm, executor = made(max_requests=1, num_slots=1)
            executor.gate.clear()
            tasks = [
                asyncio.create_task(collect(llm.generate(prompt_token_ids=[5 + i], sampling_params=params())))
                for i in range(3)
            ]
            while not executor.inside.is_set() or llm.unfinished < 3:
                await asyncio.sleep(0.002)
            ending = asyncio.create_task(llm.shutdown(drain=drain))
            await asyncio.sleep(0.02)
            with pytest.raises(EngineClosedError):
                await anext(llm.generate(prompt_token_ids=[5]))
            executor.gate.set()
            await ending
            for i, task in enumerate(tasks):
                deltas = await task
                if drain:
                    assert said(deltas) == tokens(alone([5 + i], params()))
                else:
                    assert deltas[-1].finish_reason == "abort" and deltas[-1].finished
            await llm.shutdown()

    run(main())


def test_a_shutdown_that_takes_too_long_aborts_the_rest() -> None:
    async def main() -> None:
        llm, executor = made()
        executor.gate.clear()
        task = asyncio.create_task(collect(llm.generate(prompt_token_ids=[5], sampling_params=params(60))))
        await asyncio.sleep(0.02)
        ending = asyncio.create_task(llm.shutdown(timeout=0.05))
        await asyncio.sleep(0.2)
        executor.gate.set()
        await ending
        assert (await task)[-1].finish_reason == "abort"

    run(main())


def test_streams_whose_loop_is_gone_are_aborted() -> None:
    llm, executor = made()
    outcomes = EngineMetrics(llm.engine).counters["requests_total"]
    executor.limit = 2
    loop = asyncio.new_event_loop()
    stream = llm.generate(prompt_token_ids=[5], sampling_params=params(60))
    loop.run_until_complete(anext(stream))
    loop.close()  # and nobody closes the iterator
    executor.limit = None

    async def come() -> None:
        assert len(said(await collect(llm.generate(prompt_token_ids=[6], sampling_params=params())))) == 6
        await idle(llm)
        assert llm.error is None and (outcomes["abort"], outcomes["length"]) == (1, 1)
        await llm.shutdown()

    run(come())


def test_bad_arguments() -> None:
    with pytest.raises(InvalidArgumentError, match="step_timeout"):
        AsyncLLM.from_engine(build_engine(), Bytes(), step_timeout=0.0)

    async def main() -> None:
        llm, _ = made()
        with pytest.raises(InvalidArgumentError, match="timeout"):
            await llm.shutdown(timeout=-1.0)
        with pytest.raises(InvalidArgumentError, match="drain"):
            await llm.shutdown(drain=1)  # type: ignore[arg-type]
        await llm.shutdown()

    run(main())
