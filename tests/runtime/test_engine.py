"""The engine over a simulated executor: life cycle, stopping, errors, and schedules that change nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepinfer.hal.errors import InvalidArgumentError, NotSupportedError
from deepinfer.runtime.execute import Result, Work
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.simulate import SimulatedExecutor

FREE = {"ignore_eos": True, "seq_seed": 3}


def tokens(outputs: Sequence[Any]) -> list[int]:
    return [output.token_id for output in outputs if output.token_id >= 0]


def alone(make_engine: Any, run_dry: Any, prompt: list[int], params: SamplingParams, **options: Any) -> list[Any]:
    engine = make_engine(**options)
    engine.add_request(None, 0, params, prompt)
    outputs: list[Any] = run_dry(engine)[(0, 0)]
    return outputs


def bits(outputs: Sequence[Any]) -> list[Any]:
    return [(o.token_id, o.token_logprobs, o.finish_reason, o.prompt_logprobs, o.text) for o in outputs]


# ---- one request


def test_one_output_per_token_and_the_fields_of_each(make_engine: Any, run_dry: Any) -> None:
    engine = make_engine()
    params = SamplingParams(max_tokens=3, ignore_eos=True, seq_seed=9)
    assert engine.add_request("user", "id", params, [5, 6, 7]) == [9]
    assert engine.has_unfinished_requests() and engine.get_num_unfinished_requests() == 1
    outputs = run_dry(engine)[("id", 0)]
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


def test_eos_ends_a_request_unless_ignored(make_engine: Any, run_dry: Any) -> None:
    golden = [9, 1, 8]
    params = SamplingParams(max_tokens=3, golden_token_ids=golden)
    outputs = alone(make_engine, run_dry, [5], params)
    assert tokens(outputs) == [9, 1] and outputs[-1].finish_reason == "stop" and outputs[-1].stop_reason is None
    assert "".join(o.text for o in outputs) == "\t"  # the end token has no text
    params.ignore_eos = True
    assert tokens(alone(make_engine, run_dry, [5], params)) == golden
    params.ignore_eos, params.eos_id = False, 9
    assert tokens(alone(make_engine, run_dry, [5], params)) == [9]


def test_stop_token_ids(make_engine: Any, run_dry: Any) -> None:
    params = SamplingParams(max_tokens=5, golden_token_ids=[70, 71, 72], stop_token_ids=[71])
    outputs = alone(make_engine, run_dry, [5], params)
    assert tokens(outputs) == [70, 71] and outputs[-1].stop_reason == 71
    assert "".join(o.text for o in outputs) == "F"


def test_stop_strings_over_token_borders(make_engine: Any, run_dry: Any) -> None:
    params = SamplingParams(max_tokens=6, golden_token_ids=list(b"xABCyz"), stop=["BC", "q"])
    outputs = alone(make_engine, run_dry, [5], params, vocab_size=256)
    assert tokens(outputs) == list(b"xABC")
    assert [o.text for o in outputs] == ["x", "A", "", ""]
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == ("stop", "BC")


def test_held_back_text_comes_with_the_last_token(make_engine: Any, run_dry: Any) -> None:
    params = SamplingParams(max_tokens=3, golden_token_ids=list(b"xAB"), stop=["ABC"])
    outputs = alone(make_engine, run_dry, [5], params, vocab_size=256)
    assert [o.text for o in outputs] == ["x", "", "AB"] and outputs[-1].finish_reason == "length"


def test_text_never_holds_half_a_character(make_engine: Any, run_dry: Any) -> None:
    text = "a\u00e9\u4e2d"
    golden = list(text.encode())
    whole = SamplingParams(max_tokens=len(golden), golden_token_ids=golden)
    outputs = alone(make_engine, run_dry, [5], whole, vocab_size=256)
    assert [o.text for o in outputs] == ["a", "", "\u00e9", "", "", "\u4e2d"]
    cut = SamplingParams(max_tokens=2, golden_token_ids=golden[:2])
    assert [o.text for o in alone(make_engine, run_dry, [5], cut, vocab_size=256)] == ["a", "\ufffd"]


def test_the_length_limit_in_force_is_announced(make_engine: Any, run_dry: Any) -> None:
    params = SamplingParams(max_tokens=1000, **FREE)
    outputs = alone(make_engine, run_dry, list(range(60)), params)
    assert len(outputs) == 4 and {o.max_output_tokens for o in outputs} == {4}
    assert outputs[-1].finish_reason == "length"
    assert len(alone(make_engine, run_dry, list(range(63)), params)) == 1


def test_prompt_logprobs_come_once_whatever_the_chunks(make_engine: Any, run_dry: Any) -> None:
    prompt = [int(i * 7 % 97) for i in range(30)]
    params = SamplingParams(max_tokens=3, prompt_logprobs=True, **FREE)
    whole = alone(make_engine, run_dry, prompt, params, max_tokens=64)
    assert [len(o.prompt_logprobs) for o in whole] == [29, 0, 0]
    for size in (8, 11, 29, 30):
        assert bits(alone(make_engine, run_dry, prompt, params, max_tokens=size)) == bits(whole)
    assert alone(make_engine, run_dry, [4], params)[0].prompt_logprobs == []


def test_elapsed_counts_from_the_arrival_time(make_engine: Any, run_dry: Any) -> None:
    engine = make_engine()
    earlier = time.monotonic() / 2  # the clock may have started a moment ago
    engine.add_request(None, 0, SamplingParams(max_tokens=1), [4], arrival_time=earlier)
    assert earlier <= run_dry(engine)[(0, 0)][0].elapsed < earlier + 100
    for bad in (-1.0, float("nan"), time.monotonic() + 100, "now"):
        with pytest.raises(InvalidArgumentError, match="arrival_time"):
            engine.add_request(None, 1, SamplingParams(), [4], arrival_time=bad)  # type: ignore[arg-type]


def test_nothing_is_in_flight_between_steps(make_engine: Any) -> None:
    engine = make_engine()
    engine.add_request(None, 0, SamplingParams(max_tokens=2, **FREE), [4])
    assert len(engine.step()) == 1 and engine.flush_inflight_reqs() == []
    engine.abort_request(0)
    assert [o.finish_reason for o in engine.flush_inflight_reqs()] == ["abort"]
    assert not engine.has_unfinished_requests()


# ---- n and seeds


def test_sample_j_is_the_request_with_seed_plus_j(make_engine: Any, run_dry: Any) -> None:
    engine = make_engine()
    seeds = engine.add_request(None, "many", SamplingParams(n=3, max_tokens=5, **FREE), [4, 5])
    assert seeds == [3, 4, 5] and engine.get_num_unfinished_requests() == 1
    outputs = run_dry(engine)
    assert len({tuple(tokens(o)) for o in outputs.values()}) == 3
    for j in range(3):
        single = SamplingParams(max_tokens=5, ignore_eos=True, seq_seed=3 + j)
        assert tokens(alone(make_engine, run_dry, [4, 5], single)) == tokens(outputs[("many", j)])
        assert {o.seed for o in outputs[("many", j)]} == {3 + j}


def test_the_same_seed_gives_the_same_tokens_whenever_the_request_starts(make_engine: Any, run_dry: Any) -> None:
    engine = make_engine()
    params = SamplingParams(max_tokens=6, **FREE)
    engine.add_request(None, "early", params, [4, 5])
    early = [o for _ in range(3) for o in engine.step()]
    engine.add_request(None, "late", params, [4, 5])
    outputs = run_dry(engine)
    assert tokens(early) + tokens(outputs[("early", 0)]) == tokens(outputs[("late", 0)])


def test_seeds_drawn_by_the_engine_are_echoed_and_repeat_the_run(make_engine: Any, run_dry: Any) -> None:
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    first = alone(make_engine, run_dry, [4, 5], params)
    other = alone(make_engine, run_dry, [4, 5], params)
    assert first[0].seed != other[0].seed
    again = SamplingParams(max_tokens=6, ignore_eos=True, seq_seed=first[0].seed)
    assert tokens(alone(make_engine, run_dry, [4, 5], again)) == tokens(first)


def test_an_engine_seed_makes_default_seeds_repeat(make_engine: Any) -> None:
    def drawn(seed: int | None) -> list[int]:
        engine = make_engine(seed=seed)
        return [engine.add_request(None, i, SamplingParams(), [1])[0] for i in range(3)]

    assert drawn(5) == drawn(5) and len(set(drawn(5))) == 3
    assert drawn(5) != drawn(6) and drawn(None) != drawn(None)


# ---- refused requests


class Unreadable:
    """An array that numpy cannot read, as those of a device or of autograd."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("not here")


@pytest.mark.parametrize(
    "prompt",
    [
        [],
        np.zeros(0, np.int32),
        [[1]],
        "text",
        [1.5],
        [True],
        [-1],
        [97],
        [1] * 64,
        [2**70],
        None,
        [None],
        [True, 5],
        [5, np.True_],
        Unreadable(),
    ],
)
def test_bad_prompts_are_refused_before_they_are_queued(make_engine: Any, prompt: Any) -> None:
    engine = make_engine()
    with pytest.raises(InvalidArgumentError, match="prompt_token_ids") as caught:
        engine.add_request(None, 0, SamplingParams(), prompt)
    assert caught.value.allowed
    assert not engine.has_unfinished_requests() and engine.pages_in_use == 0


def test_a_prompt_past_the_limit_names_the_limit(make_engine: Any) -> None:
    engine = make_engine()
    engine.add_request(None, 0, SamplingParams(), [1] * 63)
    with pytest.raises(
        InvalidArgumentError, match=r"prompt_token_ids: got '64 ids'; allowed: 1 to 63 .*max_model_len = 64"
    ):
        engine.add_request(None, 1, SamplingParams(), [1] * 64)


def test_bad_parameters_leave_the_engine_alive(make_engine: Any, run_dry: Any) -> None:
    engine = make_engine()
    engine.add_request(None, "good", SamplingParams(max_tokens=4, **FREE), [4, 5])
    params = SamplingParams()
    params.max_tokens = 0
    for bad in (params, SamplingParams(stop_token_ids=[97]), None, {"max_tokens": 3}):
        with pytest.raises(InvalidArgumentError):
            engine.add_request(None, "bad", bad, [4])
    with pytest.raises(InvalidArgumentError, match="request_id.*no unfinished request has"):
        engine.add_request(None, "good", SamplingParams(), [4])
    with pytest.raises(InvalidArgumentError, match="request_id"):
        engine.add_request(None, [], SamplingParams(), [4])
    expected = alone(make_engine, run_dry, [4, 5], SamplingParams(max_tokens=4, **FREE))
    assert tokens(run_dry(engine)[("good", 0)]) == tokens(expected)


@pytest.mark.parametrize("option", [{"extra": {}}, {"enqueue": False}, {"chunk_checkpoints": [3]}])
def test_arguments_of_other_engines_are_refused(make_engine: Any, option: Any) -> None:
    with pytest.raises(NotSupportedError, match=next(iter(option))):
        make_engine().add_request(None, 0, SamplingParams(), [1], **option)


def test_images_are_refused_and_empty_image_lists_are_not(make_engine: Any) -> None:
    engine = make_engine()
    engine.add_request(None, 0, SamplingParams(), [1], {"image_bytes": [], "image_sizes": []})
    with pytest.raises(NotSupportedError, match="image_bytes.*vision"):
        engine.add_request(None, 1, SamplingParams(), [1], {"image_bytes": [b"x"], "image_sizes": [(1, 1)]})
    for bad in ([b"x"], {"images": []}):
        with pytest.raises(InvalidArgumentError, match="multi_modal_data"):
            engine.add_request(None, 1, SamplingParams(), [1], bad)


def test_stop_strings_need_a_tokenizer(make_engine: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="stop.*no tokenizer"):
        make_engine(decoder=None).add_request(None, 0, SamplingParams(stop=["x"]), [1])


def test_top_lists_are_bounded_by_the_forced_candidates(make_engine: Any) -> None:
    engine = make_engine(force_top_k=4)
    engine.add_request(None, 0, SamplingParams(top_logprobs=4), [1])
    with pytest.raises(InvalidArgumentError, match="top_logprobs.*SAMPLER_FORCE_TOPK = 4"):
        engine.add_request(None, 1, SamplingParams(top_logprobs=5), [1])


# ---- faults


class Faulty(SimulatedExecutor):
    """Marks rows of one prompt as invalid, or raises in the steps listed."""

    bad_first_token = -1
    raise_at: Sequence[int] = ()

    def run(self, work: Sequence[Work]) -> list[Result]:
        results = super().run(work)
        if self.steps in self.raise_at:
            raise RuntimeError(f"fault in step {self.steps}")
        for item, result in zip(work, results, strict=True):
            if result.drawn is not None and item.request.tokens[0] == self.bad_first_token:
                result.drawn.valid = False
        return results


def test_logits_that_are_not_numbers_end_their_own_request_only(make_engine: Any, run_dry: Any) -> None:
    executor = Faulty(97, 64, 8, 4)
    executor.bad_first_token = 50
    engine = make_engine(executor=executor)
    params = SamplingParams(max_tokens=4, **FREE)
    engine.add_request(None, "bad", params, [50, 3])
    engine.add_request(None, "good", params, [4, 5])
    outputs = run_dry(engine)
    (bad,) = outputs[("bad", 0)]
    assert (bad.token_id, bad.finish_reason, bad.num_output_tokens) == (-1, "error", 0) and "not numbers" in bad.error
    assert tokens(outputs[("good", 0)]) == tokens(alone(make_engine, run_dry, [4, 5], params))


def test_after_a_failed_step_everything_is_recomputed(make_engine: Any, run_dry: Any) -> None:
    params = SamplingParams(max_tokens=6, prompt_logprobs=True, **FREE)
    prompts = [[4, 5, 6], [7] * 20, [8]]
    executor = Faulty(97, 64, 8, 4)
    executor.raise_at = (1, 2, 5)
    engine = make_engine(executor=executor)
    for i, prompt in enumerate(prompts):
        engine.add_request(None, i, params, prompt)
    seen: dict[Any, list[Any]] = {}
    faults = 0
    while engine.has_unfinished_requests():
        try:
            for output in engine.step():
                seen.setdefault(output.request_id, []).append(output)
        except RuntimeError:
            faults += 1
            engine.check_conservation()
    assert faults == 3
    for i, prompt in enumerate(prompts):
        assert bits(seen[i]) == bits(alone(make_engine, run_dry, prompt, params))


# ---- aborts


def test_abort_while_waiting_prefilling_and_decoding(make_engine: Any, run_dry: Any) -> None:
    engine = make_engine(max_requests=2, num_slots=2)
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
    outputs = run_dry(engine)
    assert {key[0]: o[-1].finish_reason for key, o in outputs.items()} == {
        "decoding": "abort", "prefilling": "abort", "waiting": "abort"
    }  # fmt: skip
    assert outputs[("prefilling", 0)][0].token_id == -1
    engine.add_request(None, "decoding", params, [4])  # the id is free again
    assert len(run_dry(engine)[("decoding", 0)]) == 20


def test_abort_from_another_thread_while_the_step_runs(make_engine: Any, run_dry: Any) -> None:
    started, go = threading.Event(), threading.Event()

    class Slow(SimulatedExecutor):
        def run(self, work: Sequence[Work]) -> list[Result]:
            started.set()
            assert go.wait(10)
            return super().run(work)

    engine = make_engine(executor=Slow(97, 64, 8, 4))
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
    rest = run_dry(engine)
    assert tokens(outputs[:1] + rest[("stays", 0)]) == tokens(alone(make_engine, run_dry, [5], params))
    assert tokens(rest[("added", 0)]) == tokens(alone(make_engine, run_dry, [6], params))


def test_a_tuple_may_name_one_request_or_several(make_engine: Any, run_dry: Any) -> None:
    engine = make_engine()
    for request_id in ("a", "b", ("user", 1), frozenset({"x"})):
        engine.add_request(None, request_id, SamplingParams(max_tokens=20, **FREE), [4])
    assert engine.abort_request(("user", 1)) == [("user", 1)]
    assert engine.abort_request(frozenset({"x"})) == [frozenset({"x"})]
    assert engine.abort_request(("a", "unknown", "b")) == ["a", "b"]
    assert not {output.finish_reason for outputs in run_dry(engine).values() for output in outputs} - {"abort"}
    with pytest.raises(InvalidArgumentError, match="request_id.*hashable"):
        engine.abort_request({"a": 1})


def test_close_waits_for_the_step_of_another_thread(make_engine: Any) -> None:
    started, go = threading.Event(), threading.Event()

    class Slow(SimulatedExecutor):
        def run(self, work: Sequence[Work]) -> list[Result]:
            started.set()
            assert go.wait(10)
            assert engine.pages_in_use == 1, "pages went back while the step read them"
            return super().run(work)

    engine = make_engine(executor=Slow(97, 64, 8, 4))
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


def test_abort_ends_every_sample(make_engine: Any, run_dry: Any) -> None:
    engine = make_engine()
    engine.add_request(None, "id", SamplingParams(n=3, max_tokens=20, **FREE), [4])
    engine.step()
    engine.abort_request("id")
    assert sorted(key[1] for key in run_dry(engine)) == [0, 1, 2]


def test_close_is_idempotent_and_ends_everything(make_engine: Any) -> None:
    engine = make_engine()
    engine.add_request(None, 0, SamplingParams(), [4])
    engine.step()
    engine.close()
    engine.close()
    assert engine.pages_in_use == 0 and not engine.has_unfinished_requests()
    with pytest.raises(InvalidArgumentError, match="closed"):
        engine.add_request(None, 1, SamplingParams(), [4])


# ---- memory pressure


def test_preempted_requests_give_the_same_tokens(make_engine: Any, run_dry: Any) -> None:
    engine = make_engine(num_pages=16)
    params = SamplingParams(max_tokens=24, prompt_logprobs=True, **FREE)
    for i in range(6):
        engine.add_request(None, i, params, [10 + i] * 7)
    outputs = run_dry(engine)
    assert engine.stats.preemptions > 0
    for i in range(6):
        assert bits(outputs[(i, 0)]) == bits(alone(make_engine, run_dry, [10 + i] * 7, params))


def test_a_preempted_request_may_end_instead(make_engine: Any, run_dry: Any) -> None:
    engine = make_engine(num_pages=16, stop_preempted_request=True)
    params = SamplingParams(max_tokens=40, **FREE)
    for i in range(4):
        engine.add_request(None, i, params, [10 + i] * 7)
    outputs = run_dry(engine)
    ends = {key[0]: o[-1].finish_reason for key, o in outputs.items()}
    assert ends[0] == "length" and "insufficient_system_resource" in ends.values()
    for i in range(4):
        expected = tokens(alone(make_engine, run_dry, [10 + i] * 7, params))
        found = tokens(outputs[(i, 0)])
        assert found == expected[: len(found)]


def test_preempted_and_failed_requests_keep_their_place_in_the_queue(make_engine: Any, run_dry: Any) -> None:
    params = SamplingParams(max_tokens=30, **FREE)
    engine = make_engine(num_pages=16, max_requests=4, num_slots=4)
    for i in range(6):
        engine.add_request(None, i, params, [10 + i] * 11)

    def queue() -> list[int]:
        return [request.key for request in [*engine._running, *engine._waiting]]

    while engine.stats.preemptions < 2:
        engine.step()
        assert queue() == sorted(queue())
    executor = Faulty(97, 16, 4, 4)
    executor.raise_at = (2,)
    engine = make_engine(num_pages=16, max_requests=4, num_slots=4, executor=executor)
    for i in range(6):
        engine.add_request(None, i, params, [10 + i] * 3)
    engine.step()
    with pytest.raises(RuntimeError, match="fault in step 2"):
        engine.step()
    assert queue() == [0, 1, 2, 3, 4, 5] and engine.pages_in_use == 0
    run_dry(engine)


def test_progress_is_logged_every_so_many_steps(
    make_engine: Any, run_dry: Any, caplog: pytest.LogCaptureFixture
) -> None:
    engine = make_engine(log_interval=2)
    engine.add_request(None, 0, SamplingParams(max_tokens=5, **FREE), [4, 5])
    with caplog.at_level("INFO", logger="deepinfer"):
        run_dry(engine)
    assert [message.split(":")[0] for message in caplog.messages] == ["step 2", "step 4"]
    assert "1 running, 0 waiting" in caplog.messages[0] and "of 64 pages" in caplog.messages[0]


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
    conftest = _helpers()
    options, script = case
    engine = conftest.build_engine(**options)
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
    for key, outputs in conftest.drain(engine).items():
        seen.setdefault(key, []).extend(outputs)
    for index, (prompt, params) in requests.items():
        for j in range(params["n"]):
            single = SamplingParams(**params | {"n": 1, "seq_seed": params["seq_seed"] + j})
            expected = bits(alone(conftest.build_engine, conftest.drain, prompt, single))
            found = seen[(index, j)]
            assert sum(o.finished for o in found) == 1 and found[-1].finished
            if found[-1].finish_reason == "abort":
                assert index in aborted
                assert bits(found[:-1]) == expected[: len(found) - 1]
            else:
                assert bits(found) == expected


def _helpers() -> Any:
    """The helpers of conftest; hypothesis tests cannot take function-scoped fixtures."""
    import importlib.util
    import pathlib

    spec = importlib.util.spec_from_file_location("runtime_helpers", pathlib.Path(__file__).with_name("conftest.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
