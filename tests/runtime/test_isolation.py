"""Steps that fail: who is guilty ends, everybody else goes on to the same bits."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepinfer.hal.device import Device
from deepinfer.hal.errors import DeviceFaultError, InvalidArgumentError
from deepinfer.runtime import engine as engine_module
from deepinfer.runtime.engine import LLMEngine
from deepinfer.runtime.execute import ModelExecutor, Work
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.plan import Limits, Snapshot, StepPlan
from deepinfer.runtime.planner import plan_step
from engines import FREE, Faulty, alone, bits, build_engine, drain, tokens

PARAMS = {"max_tokens": 6, "prompt_logprobs": True, **FREE}


def named(work: Sequence[Work]) -> list[Any]:
    return [item.request.request_id for item in work]


def poisoned(*bad: Any, error: type[Exception] = RuntimeError) -> Callable[[Sequence[Work]], Exception | None]:
    """Raises in every step that holds one of these requests, and names them."""

    def fault(work: Sequence[Work]) -> Exception | None:
        found = [name for name in named(work) if name in bad]
        return error(f"{found} cannot run") if found else None

    return fault


def engine_with(fault: Any, **options: Any) -> LLMEngine:
    executor = Faulty(97, options.get("num_pages", 64), options.get("num_slots", 8), 4)
    executor.fault = fault
    return build_engine(executor=executor, **options)


@pytest.mark.parametrize("count", [2, 3, 8])
def test_one_bad_request_ends_and_its_neighbours_go_on(count: int) -> None:
    for bad in range(count):
        engine = engine_with(poisoned(bad))
        prompts = [[4 + i] * (1 + 5 * i % 7) for i in range(count)]
        for i, prompt in enumerate(prompts):
            engine.add_request(None, i, SamplingParams(**PARAMS), prompt)
        outputs = drain(engine)
        (ended,) = outputs.pop((bad, 0))
        assert (ended.token_id, ended.finish_reason, ended.num_output_tokens) == (-1, "error", 0)
        assert ended.error == f"RuntimeError: [{bad}] cannot run"
        for (i, _), found in outputs.items():
            assert bits(found) == bits(alone(prompts[i], SamplingParams(**PARAMS)))


def test_a_request_that_turns_bad_keeps_what_it_gave() -> None:
    def fault(work: Sequence[Work]) -> Exception | None:
        bad = any(w.request.request_id == "bad" and w.request.num_output_tokens == 3 for w in work)
        return ValueError("the fourth token") if bad else None

    engine = engine_with(fault)
    for name, prompt in (("good", [4, 5]), ("bad", [6] * 20), ("other", [7])):
        engine.add_request(None, name, SamplingParams(**PARAMS), prompt)
    outputs = drain(engine)
    expected = alone([6] * 20, SamplingParams(**PARAMS))
    found = outputs[("bad", 0)]
    assert bits(found[:-1]) == bits(expected[:3])
    assert (found[-1].finish_reason, found[-1].error) == ("error", "ValueError: the fourth token")
    assert bits(outputs[("good", 0)]) == bits(alone([4, 5], SamplingParams(**PARAMS)))
    assert bits(outputs[("other", 0)]) == bits(alone([7], SamplingParams(**PARAMS)))


def test_the_search_takes_a_number_of_steps_like_the_logarithm() -> None:
    engine = engine_with(poisoned(37), max_tokens=64, max_requests=64, num_slots=64)
    for i in range(64):
        engine.add_request(None, i, SamplingParams(max_tokens=2, **FREE), [4])
    while engine.get_num_unfinished_requests() == 64:
        engine.step()
    assert engine.executor.steps <= 2 * 6 + 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("neighbours", [0, 1])
def test_a_request_that_fails_in_a_later_chunk_is_found_there(neighbours: int) -> None:
    def fault(work: Sequence[Work]) -> Exception | None:
        return ValueError("token 9") if any(w.request.request_id == "bad" and w.end > 8 for w in work) else None

    engine = engine_with(fault, max_tokens=4, max_requests=4)
    for i in range(neighbours):
        engine.add_request(None, i, SamplingParams(**PARAMS), [4 + i])
    engine.add_request(None, "bad", SamplingParams(**PARAMS), [9] * 20)
    outputs = drain(engine, limit=60)
    assert [o.error for o in outputs[("bad", 0)]] == ["ValueError: token 9"]
    for i in range(neighbours):
        assert bits(outputs[(i, 0)]) == bits(alone([4 + i], SamplingParams(**PARAMS)))


def test_what_a_failed_step_had_computed_is_let_go() -> None:
    class Activations:
        pass

    alive: list[weakref.ref[Activations]] = []

    def fault(work: Sequence[Work]) -> Exception | None:
        held = Activations()
        alive.append(weakref.ref(held))
        raise MemoryError(len(work))

    engine = engine_with(fault)
    for i in range(2):
        engine.add_request(None, i, SamplingParams(**PARAMS), [4 + i])
    assert engine.step() == []
    assert alive[0]() is None, "the error that is kept keeps the memory of the step"


def test_a_trial_without_room_does_not_stop_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = []

    def no_room_twice(state: Snapshot, limits: Limits) -> StepPlan:
        if engine._search is not None and len(refused) < 2:
            refused.append(state)
            return StepPlan()
        return plan_step(state, limits)

    monkeypatch.setattr(engine_module, "plan_step", no_room_twice)
    engine = engine_with(poisoned(1))
    for i in range(3):
        engine.add_request(None, i, SamplingParams(**PARAMS), [4 + i])
    outputs = drain(engine, limit=60)
    assert len(refused) == 2
    assert [outputs[(i, 0)][-1].finish_reason for i in range(3)] == ["length", "error", "length"]


def test_several_bad_requests_each_end_with_their_own_message() -> None:
    engine = engine_with(poisoned(1, 4, 5))
    for i in range(6):
        engine.add_request(None, i, SamplingParams(**PARAMS), [4 + i])
    outputs = drain(engine)
    ends = {i: outputs[(i, 0)][-1] for i in range(6)}
    assert {i for i, end in ends.items() if end.finish_reason == "error"} == {1, 4, 5}
    assert ends[4].error == "RuntimeError: [4] cannot run"
    assert ends[5].error == "RuntimeError: [5] cannot run"


def test_a_fault_that_passes_leaves_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    prompts = [[4, 5, 6], [7] * 20, [8]]
    executor = Faulty(97, 64, 8, 4)
    executor.raise_at = (1, 4)
    engine = build_engine(executor=executor)
    for i, prompt in enumerate(prompts):
        engine.add_request(None, i, SamplingParams(**PARAMS), prompt)
    with caplog.at_level(logging.WARNING, logger="deepinfer"):
        outputs = drain(engine)
    for i, prompt in enumerate(prompts):
        assert bits(outputs[(i, 0)]) == bits(alone(prompt, SamplingParams(**PARAMS)))
    assert "fault in step 1" in caplog.text and "3 requests" in caplog.text


@pytest.mark.parametrize("count", [2, 5])
def test_an_error_that_hits_everybody_is_the_callers(count: int) -> None:
    gone = True
    engine = engine_with(lambda work: RuntimeError("device gone") if gone else None)
    for i in range(count):
        engine.add_request(None, i, SamplingParams(**PARAMS), [4 + i])
    outputs = []
    with pytest.raises(RuntimeError, match="device gone"):
        for _ in range(100):
            outputs += engine.step()
    assert outputs == [] and engine.get_num_unfinished_requests() == count
    engine.check_conservation()
    assert engine.pages_in_use == 0 and [r.key for r in engine._queues.waiting] == list(range(count))
    gone = False
    for (i, _), found in drain(engine).items():
        assert bits(found) == bits(alone([4 + i], SamplingParams(**PARAMS)))


@pytest.mark.parametrize("error", [MemoryError, DeviceFaultError, torch.OutOfMemoryError])
def test_a_request_on_its_own_is_not_blamed_for_the_machine(error: type[Exception]) -> None:
    engine = engine_with(poisoned(0, error=error))
    engine.add_request(None, 0, SamplingParams(**PARAMS), [4])
    assert engine.step() == []  # and is tried again
    with pytest.raises(error):
        engine.step()
    assert engine.get_num_unfinished_requests() == 1 and engine.pages_in_use == 0


def test_a_device_that_does_not_answer_is_nobodys_fault() -> None:
    """Errors that a device keeps giving once it has met one are plain RuntimeErrors: so it is asked itself."""
    engine = engine_with(poisoned(0))
    asked: list[bool] = []

    def check_device() -> None:
        asked.append(True)
        if len(asked) == 2:
            raise DeviceFaultError("cuda:0 does not answer")

    engine.executor.check_device = check_device  # type: ignore[attr-defined]
    for i in range(3):
        engine.add_request(None, i, SamplingParams(**PARAMS), [4 + i])
    assert engine.step() == [] and asked == [True], "the device is well, so it is a request"
    with pytest.raises(DeviceFaultError, match="does not answer") as caught:
        engine.step()
    assert str(caught.value.__cause__) == "[0] cannot run"
    assert engine.pages_in_use == 0 and engine.get_num_unfinished_requests() == 3


@pytest.mark.parametrize("kind", [DeviceFaultError, lambda text: InvalidArgumentError("device", text, "a device")])
def test_the_executor_of_a_model_asks_the_device_of_the_model(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = ModelExecutor(SimpleNamespace(device=torch.device("cpu")), None, None)
    executor.check_device()

    def gone(device: Device, backend: str) -> None:
        raise kind(f"{device} does not answer")

    monkeypatch.setattr("deepinfer.hal.device.capability", gone)
    with pytest.raises(DeviceFaultError, match="cpu does not answer"):
        executor.check_device()


def test_a_bad_request_on_its_own_ends() -> None:
    engine = engine_with(poisoned("bad"))
    engine.add_request(None, "bad", SamplingParams(**PARAMS), [4])
    assert engine.step() == []  # and is tried again
    (output,) = engine.step()
    assert (output.finish_reason, output.error) == ("error", "RuntimeError: ['bad'] cannot run")
    assert not engine.has_unfinished_requests() and engine.pages_in_use == 0


def test_bad_requests_that_fill_the_engine_do_not_hold_up_the_queue() -> None:
    engine = engine_with(poisoned(0, 1, 2), max_requests=2, num_slots=2)
    for i in range(5):
        engine.add_request(None, i, SamplingParams(**PARAMS), [4 + i])
    outputs = drain(engine)
    assert [outputs[(i, 0)][-1].finish_reason for i in range(5)] == ["error"] * 3 + ["length"] * 2


def test_whoever_steps_on_after_the_error_gets_past_any_number_of_bad_requests() -> None:
    engine = engine_with(poisoned(*range(12)), max_requests=2, num_slots=2)
    for i in range(13):
        engine.add_request(None, i, SamplingParams(**PARAMS | {"max_tokens": 40}), [4 + i])
    outputs: dict[int, list[Any]] = {i: [] for i in range(13)}
    raised = 0
    for _ in range(200):
        try:
            for output in engine.step():
                outputs[output.request_id].append(output)
        except RuntimeError:
            raised += 1
    assert 1 <= raised <= 4
    assert [found[-1].finish_reason for found in outputs.values()] == ["error"] * 12 + ["length"]


def test_a_dead_device_is_told_before_the_whole_queue_was_tried() -> None:
    engine = engine_with(lambda work: RuntimeError("device gone"), max_requests=2, num_slots=2)
    for i in range(1000):
        engine.add_request(None, i, SamplingParams(**PARAMS), [4])
    with pytest.raises(RuntimeError, match="device gone"):
        for _ in range(30):
            assert engine.step() == []
    assert engine.get_num_unfinished_requests() == 1000


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_rolls_back_and_blames_nobody(error: type[BaseException]) -> None:
    interrupts = [error()]
    engine = engine_with(lambda work: interrupts.pop() if interrupts else None)
    for i in range(3):
        engine.add_request(None, i, SamplingParams(**PARAMS), [4 + i])
    with pytest.raises(error):
        engine.step()
    engine.check_conservation()
    assert engine.pages_in_use == 0
    assert len(engine.step()) == 3, "the next step runs everybody"


def test_an_interrupt_during_the_search_does_not_end_it() -> None:
    interrupts = [False, False, True]

    def fault(work: Sequence[Work]) -> BaseException | None:
        if interrupts and interrupts.pop(0):
            return KeyboardInterrupt()
        return poisoned(1)(work)

    engine = engine_with(fault)
    for i in range(4):
        engine.add_request(None, i, SamplingParams(**PARAMS), [4 + i])
    outputs: dict[Any, list[Any]] = {}
    interrupted = 0
    while engine.has_unfinished_requests():
        try:
            for output in engine.step():
                outputs.setdefault(output.request_id, []).append(output)
        except KeyboardInterrupt:
            interrupted += 1
    assert interrupted == 1 and [o.finish_reason for o in outputs.pop(1)] == ["error"]
    for i, found in outputs.items():
        assert bits(found) == bits(alone([4 + i], SamplingParams(**PARAMS)))


def test_requests_aborted_during_the_search_are_left_out() -> None:
    engine = engine_with(poisoned(1, 2))
    for i in range(4):
        engine.add_request(None, i, SamplingParams(**PARAMS), [4 + i])
    seen = engine.step()  # fails; 0 and 1 are tried next
    engine.abort_request([0, 1])
    outputs = {key[0]: found for key, found in drain(engine).items()}
    assert seen == []
    assert [outputs[i][-1].finish_reason for i in range(4)] == ["abort", "abort", "error", "length"]


def test_a_failed_step_without_survivors_ends_the_search() -> None:
    engine = engine_with(poisoned(0, 1))
    for i in range(2):
        engine.add_request(None, i, SamplingParams(**PARAMS), [4 + i])
    engine.step()
    engine.abort_request([0, 1])
    engine.add_request(None, 2, SamplingParams(**PARAMS), [9])
    outputs = drain(engine)
    assert bits(outputs[(2, 0)]) == bits(alone([9], SamplingParams(**PARAMS)))


def test_requests_outside_the_failed_step_keep_their_caches() -> None:
    """Decoding rows fill the step, so the long prompt is not in it; it must not be computed again."""
    engine = engine_with(None, max_tokens=4, max_requests=4)
    for i in range(3):
        engine.add_request(None, i, SamplingParams(max_tokens=30, **FREE), [4 + i])
    engine.step()
    engine.add_request(None, "long", SamplingParams(max_tokens=2, **FREE), [9] * 12)
    engine.step()
    (long,) = (r for r in engine._queues.running if r.request_id == "long")
    assert long.computed == 1
    engine.executor.fault = lambda w: RuntimeError("x") if 1 in named(w) and "long" not in named(w) else None  # type: ignore[attr-defined]
    engine.abort_request(0)
    drain(engine)
    assert long.preemptions == 0


def test_a_text_that_cannot_be_made_ends_its_own_request_only() -> None:
    class Breaks:
        made = 0

        def __init__(self) -> None:
            self.number, Breaks.made = Breaks.made, Breaks.made + 1
            self.pushed = 0

        def push(self, token: int) -> str:
            self.pushed += 1
            if self.number == 1 and self.pushed == 3:
                raise UnicodeError("no text for this token")
            return "x"

        def finish(self) -> str:
            if self.number == 1:
                raise UnicodeError("nor for the rest")
            return ""

    engine = build_engine(decoder=Breaks)
    for i in range(3):
        engine.add_request(None, i, SamplingParams(**PARAMS), [4 + i])
    outputs = drain(engine)
    assert [outputs[(i, 0)][-1].finish_reason for i in range(3)] == ["length", "error", "length"]
    assert outputs[(1, 0)][-1].error == "UnicodeError: no text for this token"
    assert [o.token_id >= 0 for o in outputs[(1, 0)]] == [True, True, False]
    for i in (0, 2):
        assert tokens(outputs[(i, 0)]) == tokens(alone([4 + i], SamplingParams(**PARAMS)))


def test_a_request_that_met_a_passing_fault_is_a_witness_again() -> None:
    """The bad ones fill every step, and the only good one had failed alone: nobody else could ever show their guilt."""
    engine = engine_with(poisoned(0, 1, 2), max_tokens=4, max_requests=4)
    engine.executor.raise_at = [5]  # type: ignore[attr-defined]
    prompts = [[2], [2], [2, 2], [2]]
    for i, prompt in enumerate(prompts):
        engine.add_request(None, i, SamplingParams(**PARAMS), prompt)
        if i == 1:
            engine.step()
    outputs: list[Any] = []
    for _ in range(60):
        try:
            outputs += engine.step()
        except RuntimeError:  # the first search ends so, and the caller goes on
            continue
        if not engine.has_unfinished_requests():
            break
    assert {o.request_id: o.finish_reason for o in outputs if o.finished} == {
        0: "error",
        1: "error",
        2: "error",
        3: "length",
    }
    assert bits([o for o in outputs if o.request_id == 3]) == bits(alone(prompts[3], SamplingParams(**PARAMS)))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_mix_of_bad_requests_and_passing_faults(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 7))
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    passing = data.draw(st.lists(st.integers(1, 40), max_size=4))
    engine = engine_with(
        poisoned(*bad),
        max_tokens=data.draw(st.integers(count, 20)),
        max_requests=count,
        num_pages=data.draw(st.integers(16, 40)),
    )
    engine.executor.raise_at = passing  # type: ignore[attr-defined]
    prompts = [data.draw(st.lists(st.integers(2, 96), min_size=1, max_size=30)) for _ in range(count)]
    seen: dict[int, list[Any]] = {i: [] for i in range(count)}
    for i, prompt in enumerate(prompts):
        engine.add_request(None, i, SamplingParams(**PARAMS), prompt)
        for _ in range(data.draw(st.integers(0, 3))):
            for output in _step(engine, bad):
                seen[output.request_id].append(output)
    budget = 2000
    while engine.has_unfinished_requests():
        budget -= 1
        assert budget, "the engine makes no progress"
        for output in _step(engine, bad):
            seen[output.request_id].append(output)
        engine.check_conservation()
        keys = [request.key for request in engine._queues]
        assert keys[: len(engine._queues.running)] == sorted(keys[: len(engine._queues.running)])
        assert keys[len(engine._queues.running) :] == sorted(keys[len(engine._queues.running) :])
    assert engine.pages_in_use == 0
    for i, found in seen.items():
        assert sum(o.finished for o in found) == 1
        if i in bad:
            assert [o.finish_reason for o in found] in (["error"], ["abort"])
        elif found[-1].finish_reason != "error":  # a passing fault that hit it alone
            assert bits(found) == bits(alone(prompts[i], SamplingParams(**PARAMS)))
        else:
            assert "fault in step" in found[-1].error and passing


def _step(engine: LLMEngine, bad: set[int]) -> list[Any]:
    """A step. That every request fails is possible here and not the subject: then those that are left end."""
    try:
        return engine.step()
    except RuntimeError:
        left = {request.request_id for request in engine._queues}
        if left <= bad:
            engine.abort_request(left)
        return []
