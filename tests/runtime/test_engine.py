"""The engine over a simulated executor: steps, aborts, and schedules that change nothing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime.execute import Result, Work
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.simulate import SimulatedExecutor
from engines import FREE, Faulty, alone, bits, build_engine, drain, tokens


def test_one_output_per_token_and_the_fields_of_each() -> None:
    engine = build_engine()
    params = SamplingParams(max_tokens=3, ignore_eos=True, seq_seed=9)
    assert engine.add_request("user", "id", params, [5, 6, 7]) == [9]
    assert engine.has_unfinished_requests() and engine.get_num_unfinished_requests() == 1
    outputs = drain(engine)[("id", 0)]
    assert [o.num_output_tokens for o in outputs] == [1, 2, 3]
    assert [o.finished for o in outputs] == [False, False, True]
    assert [o.finish_reason for o in outputs] == [None, None, "length"]
    last = outputs[-1]
    assert (last.request_id, last.user_id, last.prompt_len, last.seed) == ("id", "user", 3, 9)
    assert (last.max_output_tokens, last.max_num_batched_tokens) == (3, 16)
    assert (last.nextn_logprobs, last.sum_smaller_probs, last.confidence_score) == (1.0, -1.0, [])
    assert last.draft_tok == last.accept_tok == 1 and last.elapsed >= 0
    assert not engine.has_unfinished_requests() and engine.get_num_unfinished_requests() == 0
    assert engine.step() == []


def test_nothing_is_in_flight_between_steps() -> None:
    engine = build_engine()
    engine.add_request(None, 0, SamplingParams(max_tokens=2, **FREE), [4])
    assert len(engine.step()) == 1 and engine.flush_inflight_reqs() == []
    engine.abort_request(0)
    assert [o.finish_reason for o in engine.flush_inflight_reqs()] == ["abort"]
    assert not engine.has_unfinished_requests()


def test_the_same_seed_gives_the_same_tokens_whenever_the_request_starts() -> None:
    engine = build_engine()
    params = SamplingParams(max_tokens=6, **FREE)
    engine.add_request(None, "early", params, [4, 5])
    early = [o for _ in range(3) for o in engine.step()]
    engine.add_request(None, "late", params, [4, 5])
    outputs = drain(engine)
    assert tokens(early) + tokens(outputs[("early", 0)]) == tokens(outputs[("late", 0)])


# ---- aborts


def test_abort_while_waiting_prefilling_and_decoding() -> None:
    engine = build_engine(max_requests=2, num_slots=2)
    params = SamplingParams(max_tokens=20, **FREE)
    for name, prompt in (("decoding", [4]), ("prefilling", [5] * 40), ("waiting", [6])):
        engine.add_request(None, name, params, prompt)
    first = engine.step()
    engine.step()
    assert tokens(first) and engine.pages_in_use > 0
    # between the second and the third chunk of "prefilling"
    assert engine.abort_request(["prefilling", "decoding", "waiting", "unknown"]) == [
        "prefilling",
        "decoding",
        "waiting",
    ]
    assert engine.abort_request("decoding") == []
    assert engine.pages_in_use == 0
    engine.check_conservation()
    assert engine.has_unfinished_requests()  # the last outputs are still to be fetched
    outputs = drain(engine)
    assert {key[0]: o[-1].finish_reason for key, o in outputs.items()} == {
        "decoding": "abort", "prefilling": "abort", "waiting": "abort"
    }  # fmt: skip
    assert outputs[("prefilling", 0)][0].token_id == -1
    engine.add_request(None, "decoding", params, [4])  # the id is free again
    assert len(drain(engine)[("decoding", 0)]) == 20


def test_abort_from_another_thread_while_the_step_runs() -> None:
    started, go = threading.Event(), threading.Event()

    class Slow(SimulatedExecutor):
        def run(self, work: Sequence[Work]) -> list[Result]:
            started.set()
            assert go.wait(10)
            return super().run(work)

    engine = build_engine(executor=Slow(97, 64, 8, 4))
    params = SamplingParams(max_tokens=4, **FREE)
    engine.add_request(None, "gone", params, [4])
    engine.add_request(None, "stays", params, [5])
    outputs: list[Any] = []
    thread = threading.Thread(target=lambda: outputs.extend(engine.step()))
    thread.start()
    assert started.wait(10)
    used = engine.pages_in_use
    assert engine.abort_request("gone") == ["gone"]
    assert engine.pages_in_use == used == 2, "pages stay until the step that reads them has ended"
    engine.add_request(None, "added", params, [6])
    with pytest.raises(RuntimeError, match="while a step is running"):
        engine.step()
    go.set()
    thread.join(10)
    assert [(o.request_id, o.token_id >= 0, o.finish_reason) for o in outputs] == [
        ("stays", True, None), ("gone", False, "abort")
    ]  # fmt: skip
    rest = drain(engine)
    assert tokens(outputs[:1] + rest[("stays", 0)]) == tokens(alone([5], params))
    assert tokens(rest[("added", 0)]) == tokens(alone([6], params))


def test_a_tuple_may_name_one_request_or_several() -> None:
    engine = build_engine()
    for request_id in ("a", "b", ("user", 1), frozenset({"x"})):
        engine.add_request(None, request_id, SamplingParams(max_tokens=20, **FREE), [4])
    assert engine.abort_request(("user", 1)) == [("user", 1)]
    assert engine.abort_request(frozenset({"x"})) == [frozenset({"x"})]
    assert engine.abort_request(("a", "unknown", "b")) == ["a", "b"]
    assert not {output.finish_reason for outputs in drain(engine).values() for output in outputs} - {"abort"}
    with pytest.raises(InvalidArgumentError, match="request_id.*hashable"):
        engine.abort_request({"a": 1})


def test_close_waits_for_the_step_of_another_thread() -> None:
    started, go = threading.Event(), threading.Event()

    class Slow(SimulatedExecutor):
        def run(self, work: Sequence[Work]) -> list[Result]:
            started.set()
            assert go.wait(10)
            assert engine.pages_in_use == 1, "pages went back while the step read them"
            return super().run(work)

    engine = build_engine(executor=Slow(97, 64, 8, 4))
    released: list[bool] = []
    engine._on_close = lambda: released.append(stepper.is_alive() and not go.is_set())
    engine.add_request(None, 0, SamplingParams(max_tokens=4, **FREE), [4])
    failures: list[BaseException] = []

    def run() -> None:
        try:
            engine.step()
        except BaseException as error:
            failures.append(error)

    stepper, closer = threading.Thread(target=run), threading.Thread(target=engine.close)
    stepper.start()
    assert started.wait(10)
    closer.start()
    closer.join(0.1)
    assert closer.is_alive() and not released
    with pytest.raises(InvalidArgumentError, match="closed"):
        engine.add_request(None, 1, SamplingParams(), [4])
    go.set()
    stepper.join(10)
    closer.join(10)
    assert released == [False] and not failures
    assert engine.pages_in_use == 0 and not engine.has_unfinished_requests()


def test_conservation_is_checked_between_the_changes_of_other_threads() -> None:
    engine = build_engine()
    engine.add_request(None, 0, SamplingParams(max_tokens=4, **FREE), [4])
    engine.step()
    checked = threading.Event()

    def check() -> None:
        engine.check_conservation()
        checked.set()

    checker = threading.Thread(target=check)
    with engine._lock:  # as a thread that is about to give a page back
        page = engine._queues.pages.lease(1)
        checker.start()
        assert not checked.wait(0.1)
        page.release()
    checker.join(10)
    assert checked.is_set()


def test_abort_ends_every_sample() -> None:
    engine = build_engine()
    engine.add_request(None, "id", SamplingParams(n=3, max_tokens=20, **FREE), [4])
    engine.step()
    engine.abort_request("id")
    assert sorted(key[1] for key in drain(engine)) == [0, 1, 2]


def test_close_is_idempotent_and_ends_everything() -> None:
    engine = build_engine()
    engine.add_request(None, 0, SamplingParams(), [4])
    engine.step()
    engine.close()
    engine.close()
    assert engine.pages_in_use == 0 and not engine.has_unfinished_requests()
    with pytest.raises(InvalidArgumentError, match="closed"):
        engine.add_request(None, 1, SamplingParams(), [4])


# ---- memory pressure


def test_preempted_requests_give_the_same_tokens() -> None:
    engine = build_engine(num_pages=16)
    params = SamplingParams(max_tokens=24, prompt_logprobs=True, **FREE)
    for i in range(6):
        engine.add_request(None, i, params, [10 + i] * 7)
    outputs = drain(engine)
    assert engine.stats.preemptions > 0
    for i in range(6):
        assert bits(outputs[(i, 0)]) == bits(alone([10 + i] * 7, params))


def test_a_preempted_request_may_end_instead() -> None:
    engine = build_engine(num_pages=16, stop_preempted_request=True)
    params = SamplingParams(max_tokens=40, **FREE)
    for i in range(4):
        engine.add_request(None, i, params, [10 + i] * 7)
    outputs = drain(engine)
    ends = {key[0]: o[-1].finish_reason for key, o in outputs.items()}
    assert ends[0] == "length" and "insufficient_system_resource" in ends.values()
    for i in range(4):
        expected = tokens(alone([10 + i] * 7, params))
        found = tokens(outputs[(i, 0)])
        assert found == expected[: len(found)]


def test_preempted_and_failed_requests_keep_their_place_in_the_queue() -> None:
    params = SamplingParams(max_tokens=30, **FREE)
    engine = build_engine(num_pages=16, max_requests=4, num_slots=4)
    for i in range(6):
        engine.add_request(None, i, params, [10 + i] * 11)

    def queue() -> list[int]:
        return [request.key for request in engine._queues]

    while engine.stats.preemptions < 2:
        engine.step()
        assert queue() == sorted(queue())
    executor = Faulty(97, 16, 4, 4)
    executor.raise_at = (2,)
    engine = build_engine(num_pages=16, max_requests=4, num_slots=4, executor=executor)
    for i in range(6):
        engine.add_request(None, i, params, [10 + i] * 3)
    engine.step()
    assert engine.step() == []
    assert queue() == [0, 1, 2, 3, 4, 5] and engine.pages_in_use == 0
    drain(engine)


# ---- any schedule


@st.composite
def scripts(draw: st.DrawFn) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """Engine options, and what happens before each step: arrivals, aborts, nothing."""
    requests = draw(st.integers(1, 5))
    options = {
        "max_requests": requests,
        "num_slots": requests + draw(st.integers(0, 1)),
        "max_tokens": draw(st.integers(requests, 40)),
        "num_pages": draw(st.integers(16, 40)),
        "page_tokens": 4,
    }
    script: list[tuple[Any, ...]] = []
    for i in range(draw(st.integers(1, 8))):
        prompt = draw(st.lists(st.integers(2, 96), min_size=1, max_size=30))
        params = {
            "max_tokens": draw(st.integers(1, 30)),
            "seq_seed": draw(st.integers(0, 3)),
            "temperature": draw(st.sampled_from([0, 1.0])),
            "prompt_logprobs": draw(st.booleans()),
            "n": draw(st.sampled_from([1, 1, 2])),
        }
        script += [("step",)] * draw(st.integers(0, 4))
        script.append(("add", i, prompt, params))
        if draw(st.booleans()) and draw(st.booleans()):
            script += [("step",)] * draw(st.integers(0, 6))
            script.append(("abort", draw(st.integers(0, i))))
    return options, script


@settings(max_examples=150, deadline=None)
@given(scripts())
def test_arrivals_aborts_and_preemption_change_nobodys_tokens(
    case: tuple[dict[str, Any], list[tuple[Any, ...]]],
) -> None:
    options, script = case
    engine = build_engine(**options)
    seen: dict[Any, list[Any]] = {}
    aborted: set[int] = set()
    requests: dict[int, tuple[list[int], dict[str, Any]]] = {}

    def collect(outputs: Sequence[Any]) -> None:
        for output in outputs:
            seen.setdefault((output.request_id, output.sample_index), []).append(output)

    for action, *rest in script:
        if action == "add":
            index, prompt, params = rest
            requests[index] = (prompt, params)
            engine.add_request(None, index, SamplingParams(**params), prompt)
        elif action == "abort":
            aborted |= set(engine.abort_request(rest[0]))
        else:
            collect(engine.step())
        engine.check_conservation()
    for key, outputs in drain(engine).items():
        seen.setdefault(key, []).extend(outputs)
    for index, (prompt, params) in requests.items():
        for j in range(params["n"]):
            single = SamplingParams(**params | {"n": 1, "seq_seed": params["seq_seed"] + j})
            expected = bits(alone(prompt, single))
            found = seen[(index, j)]
            assert sum(o.finished for o in found) == 1 and found[-1].finished
            if found[-1].finish_reason == "abort":
                assert index in aborted
                assert bits(found[:-1]) == expected[: len(found) - 1]
            else:
                assert bits(found) == expected
