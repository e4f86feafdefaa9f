"""Asynchronous scheduling over an executor whose results come late: the outputs of a request are those of synchronous
steps, bit for bit, whatever happens between a launch and its landing."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepinfer.runtime.execute import ModelExecutor, Result, Work
from deepinfer.runtime.flight import Done
from deepinfer.runtime.observe import Observer
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.pool import PoolError
from deepinfer.runtime.prefix import PrefixSettings
from delayed import Delayed, Ticket, poison_freed
from engines import FREE, alone, bits, build_engine, drain, tokens


def ahead(executor: type[Delayed] = Delayed, **options: Any) -> Any:
    """An asynchronous engine whose freed pages and slots are overwritten at once."""
    sizes = {"num_pages": 64, "num_slots": 8, "page_tokens": 4, "max_tokens": 40} | options
    slack = max(sizes["prefix"].slack if sizes.get("prefix") else 0, sizes.get("max_drafts", 0) + 1)
    made = executor(97, sizes["num_pages"], sizes["num_slots"], sizes["page_tokens"], slack)
    engine = build_engine(executor=made, async_scheduling=True, **sizes)
    poison_freed(engine, in_order=sizes.get("prefix") is not None)
    return engine


def report(outputs: Sequence[Any]) -> list[Any]:
    """Everything that a caller sees but the time."""
    return [output.to_dict() | {"elapsed": 0, "request_id": 0, "user_id": 0} for output in outputs]


def test_a_step_is_launched_before_the_one_before_is_looked_at() -> None:
    engine = ahead()
    engine.add_request(None, 0, SamplingParams(max_tokens=5, **FREE), [4, 5])
    assert engine.step() == [] and len(engine._flights) == 1, "the first step has nothing before it"
    assert [o.num_output_tokens for o in engine.step()] == [1]
    assert engine.executor.launches == 2 and engine.executor.steps == 1
    assert [o.num_output_tokens for o in engine.flush_inflight_reqs()] == [2] and not engine._flights
    rest = drain(engine)[(0, 0)]
    assert [o.num_output_tokens for o in rest] == [3, 4, 5]
    assert engine.executor.overlapped == 3, "nothing is launched behind a step that is known to be the last"
    assert engine.executor.steps == 5 and engine.step() == []


def test_an_executor_that_cannot_launch_runs_step_by_step() -> None:
    engine = build_engine(async_scheduling=True)
    engine.add_request(None, 0, SamplingParams(max_tokens=2, **FREE), [4])
    assert len(engine.step()) == 1 and not engine._flights


@pytest.mark.parametrize("drafts", [0, 3])
def test_a_request_that_the_device_saw_end_computes_no_further_row(drafts: int) -> None:
    params = SamplingParams(max_tokens=30, seq_seed=3, ignore_eos=True)
    said = tokens(alone([4, 5], params, max_drafts=drafts, max_tokens=40))
    stop = next(t for i, t in enumerate(said) if i >= 3 and t not in said[:i])
    params = SamplingParams(max_tokens=30, seq_seed=3, ignore_eos=True, stop_token_ids=[stop])
    engine = ahead(max_drafts=drafts)
    engine.add_request(None, 0, params, [4, 5])
    found = drain(engine)[(0, 0)]
    assert report(found) == report(alone([4, 5], params, max_drafts=drafts, max_tokens=40))
    assert found[-1].finish_reason == "stop" and engine.executor.masked == 1


@pytest.mark.parametrize("drafts", [0, 3])
def test_a_stop_string_is_cut_exactly_though_the_device_has_gone_on(drafts: int) -> None:
    params = SamplingParams(max_tokens=30, **FREE)
    text = "".join(o.text for o in alone([4, 5], params, max_drafts=drafts, max_tokens=40))
    stop = text[8:11]
    params = SamplingParams(max_tokens=30, stop=[stop], **FREE)
    engine = ahead(max_drafts=drafts)
    engine.add_request(None, "stops", params, [4, 5])
    engine.add_request(None, "goes on", SamplingParams(max_tokens=30, **FREE), [7])
    found = drain(engine)
    assert report(found[("stops", 0)]) == report(alone([4, 5], params, max_drafts=drafts, max_tokens=40))
    assert found[("stops", 0)][-1].stop_reason == stop
    assert drafts or engine.executor.masked == 0, "the device does not know of strings"
    assert bits(found[("goes on", 0)]) == bits(alone([7], SamplingParams(max_tokens=30, **FREE)))


def test_pages_return_when_the_last_step_with_them_has_landed() -> None:
    engine = ahead()
    engine.add_request(None, "gone", SamplingParams(max_tokens=30, **FREE), [4] * 9)
    engine.add_request(None, "stays", SamplingParams(max_tokens=30, **FREE), [5])
    engine.step()
    engine.step()
    used = engine.pages_in_use
    assert engine.abort_request("gone") == ["gone"] and engine.abort_request("gone") == []
    assert engine.pages_in_use == used, "a step in flight reads them"
    engine.check_conservation()
    outputs = engine.step()
    assert [(o.request_id, o.finish_reason) for o in outputs] == [("gone", "abort"), ("stays", None)]
    assert engine.pages_in_use < used
    engine.add_request(None, "gone", SamplingParams(max_tokens=3, **FREE), [4] * 9)
    found = drain(engine)
    assert bits(found[("gone", 0)]) == bits(alone([4] * 9, SamplingParams(max_tokens=3, **FREE)))
    whole = tokens(alone([5], SamplingParams(max_tokens=30, **FREE)))
    assert tokens(found[("stays", 0)]) == whole[-len(found[("stays", 0)]) :]


@pytest.mark.parametrize("drafts", [0, 1, 3])
def test_the_longest_request_fits_the_smallest_pool(drafts: int) -> None:
    """Bounds of a step that is planned ahead ask for no page that the request can never fill."""
    params = SamplingParams(max_tokens=40, **FREE)
    engine = ahead(num_pages=16, max_requests=2, max_drafts=drafts)
    for key in range(2):
        engine.add_request(None, key, params, [4 + key] * 24)
    found = drain(engine)
    for key in range(2):
        assert bits(found[(key, 0)]) == bits(alone([4 + key] * 24, params, max_drafts=drafts, max_tokens=40))


def test_aborted_while_it_is_launched_and_landed() -> None:
    """Both of two steps in flight hold the request: its resources return behind the second."""
    launched, go = threading.Event(), threading.Event()

    class Slow(Delayed):
        def launch(self, work: Sequence[Work], land: Any) -> Ticket:
            ticket = super().launch(work, land)
            if self.launches == 3:
                launched.set()
                assert go.wait(10)
            return ticket

    engine = ahead(Slow)
    params = SamplingParams(max_tokens=20, **FREE)
    engine.add_request(None, "gone", params, [4])
    engine.add_request(None, "stays", params, [5])
    outputs = [*engine.step(), *engine.step()]
    thread = threading.Thread(target=lambda: outputs.extend(engine.step()))
    thread.start()
    assert launched.wait(10) and len(engine._flights) == 2
    assert engine.abort_request("gone") == ["gone"]
    with pytest.raises(RuntimeError, match="while a step is running"):
        engine.flush_inflight_reqs()
    go.set()
    thread.join(10)
    assert [o.finish_reason for o in outputs if o.request_id == "gone"] == [None, "abort"]
    assert engine.pages_in_use == 2 and len(engine._queues.leaving) == 1
    found = drain(engine)
    assert not engine._queues.leaving and ("gone", 0) not in found
    stays = [o for o in outputs if o.request_id == "stays"] + found[("stays", 0)]
    assert tokens(stays) == tokens(alone([5], params))


def test_a_step_whose_rows_are_not_all_known_says_nothing_of_what_steps_cost() -> None:
    """The device computes the row of who was aborted meanwhile, and none of who it has seen to end."""

    class Aborts(Delayed):
        at = 0

        def launch(self, work: Sequence[Work], land: Any) -> Ticket:
            if self.launches + 1 == self.at:
                assert engine.abort_request("gone") == ["gone"]
            return super().launch(work, land)

    stop = tokens(alone([4, 5], SamplingParams(max_tokens=30, **FREE), max_tokens=40))[6]
    for at, unknown in ((0, 0), (3, 1)):
        engine = ahead(Aborts)
        engine.executor.at = at
        added: list[Any] = []
        engine._costs = SimpleNamespace(cost=None, add=lambda spans, seconds, added=added: added.append(spans))
        engine.add_request(None, "gone", SamplingParams(max_tokens=30, stop_token_ids=[stop], **FREE), [4, 5])
        engine.add_request(None, "stays", SamplingParams(max_tokens=20, **FREE), [5])
        drain(engine)
        assert engine.executor.masked == (not at)
        assert engine.stats.steps == engine.executor.steps == len(added) + unknown == 20


class Waits(Delayed):
    """Every step from the second on waits for the one before, and the request "gone" is aborted while it does."""

    engine: Any = None
    at = 2

    def launch(self, work: Sequence[Work], land: Any) -> Any:
        if self.launches + 1 < self.at:
            return super().launch(work, land)
        self.launches += 1
        if self.launches == self.at:
            assert self.engine.abort_request("gone") == ["gone"]
        land()
        return Done(ModelExecutor._run_unfinished(self, work))  # type: ignore[arg-type]

    def run(self, work: Sequence[Work]) -> list[Result]:
        assert all(item.end > item.start and not item.ahead for item in work), "a batch refuses such rows"
        return super().run(work)


class Spans(Observer):
    """Rows of the items of every step."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def ran(self, work: Sequence[Work], *rest: Any) -> None:
        self.rows += [item.end - item.start for item in work]


@pytest.mark.parametrize("prompt", [1, 60])
@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("at", [2, 3, 4])
def test_aborted_while_a_step_waits_for_the_one_before(at: int, drafts: int, prompt: int) -> None:
    """What that one said of it is dropped, so its rows in the next are none; the others know nothing of it."""
    engine = ahead(Waits, max_drafts=drafts, prefix=PrefixSettings(4 + drafts + 1), max_model_len=128)
    engine.executor.engine, engine.executor.at = engine, at
    spans = Spans()
    engine.observers.add(spans)

    def failed(work: Any, error: Exception) -> None:
        raise AssertionError("a step failed") from error

    engine._start_search = failed
    params = SamplingParams(max_tokens=20, **FREE)
    engine.add_request(None, "stays", params, [5])
    engine.add_request(None, "gone", params, [4] * prompt)
    found = drain(engine)
    assert [o.finish_reason for o in found[("gone", 0)] if o.finished] == ["abort"]
    assert bits(found[("stays", 0)]) == bits(alone([5], params))
    assert min(spans.rows) > 0
    engine.add_request(None, "again", params, [4] * prompt)
    again = alone([4] * prompt, params, max_tokens=40, max_model_len=128)
    assert bits(drain(engine)[("again", 0)]) == bits(again), "the prefix cache holds what was not computed"


def test_close_waits_for_what_is_in_flight() -> None:
    engine = ahead()
    engine.add_request(None, 0, SamplingParams(max_tokens=9, **FREE), [4])
    engine.step()
    engine.step()
    released: list[int] = []
    engine._on_close = lambda: released.append(len(engine.executor.queue))
    engine.close()
    engine.close()
    assert released == [0] and engine.pages_in_use == 0 and not engine.has_unfinished_requests()


@pytest.mark.parametrize("place", ["check_conservation", "_apply_aborts", "returned"])
def test_close_releases_all_whatever_is_broken(place: str) -> None:
    class Told(Observer):
        def closed(self) -> None:
            done.append("observers")

    done: list[str] = []
    engine = ahead()
    engine.observers.add(Told())
    engine._on_close = lambda: done.append("model")
    engine._trace = SimpleNamespace(step=lambda *_: None, close=lambda: done.append("trace"))
    engine.add_request(None, 0, SamplingParams(max_tokens=9, **FREE), [4])
    engine.step()
    Trips(engine.observers if place == "returned" else engine, place, 1, PoolError("lost a page"), behind=False)
    with pytest.raises(PoolError, match="lost a page"):
        engine.close()
    assert done == ["trace", "observers", "model"]
    engine.close()


def test_who_closes_is_told_of_the_end_of_a_step_whatever_happened_there() -> None:
    running, go = threading.Event(), threading.Event()

    class Slow(Delayed):
        def launch(self, work: Sequence[Work], land: Any) -> Ticket:
            running.set()
            assert go.wait(10)
            return super().launch(work, land)

    engine = ahead(Slow)
    engine.add_request(None, 0, SamplingParams(max_tokens=9, **FREE), [4])
    errors: list[BaseException] = []

    def step() -> None:
        try:
            engine.step()
        except PoolError as error:
            errors.append(error)

    steps = threading.Thread(target=step, daemon=True)
    steps.start()
    assert running.wait(10)
    Trips(engine, "_apply_aborts", 1, PoolError("lost a page"), behind=False)
    closes = threading.Thread(target=engine.close, daemon=True)
    closes.start()
    while not engine._closed:
        time.sleep(0.001)
    go.set()
    closes.join(2)
    assert not closes.is_alive() and len(errors) == 1


# ---- faults


def test_a_row_that_is_no_number_ends_its_request_and_no_other() -> None:
    engine = ahead()
    engine.executor.bad_first_token = 9
    params = SamplingParams(max_tokens=8, **FREE)
    for name, prompt in (("good", [4, 5]), ("bad", [9, 5]), ("late", [6])):
        engine.add_request(None, name, params, prompt)
    found = drain(engine)
    assert [o.finish_reason for o in found[("bad", 0)]] == ["error"] and engine.executor.masked == 1
    for name, prompt in (("good", [4, 5]), ("late", [6])):
        assert bits(found[(name, 0)]) == bits(alone(prompt, params))


@pytest.mark.parametrize("drafts", [0, 2])
@pytest.mark.parametrize("where", ["launch", "landing"])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 7])
def test_a_step_that_fails_in_flight_changes_nobodys_tokens(where: str, at: int, drafts: int) -> None:
    engine = ahead(max_drafts=drafts)
    setattr(engine.executor, "launch_faults" if where == "launch" else "raise_at", (at,))
    params = SamplingParams(max_tokens=12, prompt_logprobs=True, **FREE)
    prompts = {i: [10 + i] * (1 + 6 * i) for i in range(4)}
    for i, prompt in prompts.items():
        engine.add_request(None, i, params, prompt)
    found = drain(engine)
    for i, prompt in prompts.items():
        assert bits(found[(i, 0)]) == bits(alone(prompt, params, max_drafts=drafts, max_tokens=40))
    assert engine._search is None


def test_who_makes_steps_fail_ends_alone() -> None:
    engine = ahead()

    def fault(work: Sequence[Work]) -> BaseException | None:
        return ValueError("no") if any(item.request.tokens[0] == 9 for item in work) else None

    engine.executor.fault = fault
    params = SamplingParams(max_tokens=12, **FREE)
    for i, prompt in enumerate([[4], [5], [9], [6]]):
        engine.add_request(None, i, params, prompt)
        engine.step()
    found = drain(engine)
    assert found[(2, 0)][-1].finish_reason == "error" and "ValueError: no" in (found[(2, 0)][-1].error or "")
    for i, prompt in ((0, [4]), (1, [5]), (3, [6])):
        assert found[(i, 0)][-1].finish_reason == "length"
        whole = tokens(alone(prompt, params))
        assert tokens(found[(i, 0)]) == whole[-len(tokens(found[(i, 0)])) :]


def test_an_interrupt_blames_nobody() -> None:
    class Interrupted(Delayed):
        def compute(self, cells: Any) -> list[Result]:
            if self.steps == 3:
                self.steps += 1
                raise KeyboardInterrupt
            return super().compute(cells)

    engine = ahead(Interrupted)
    params = SamplingParams(max_tokens=8, **FREE)
    engine.add_request(None, 0, params, [4, 5])
    found: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        while True:
            found += engine.step()
    assert engine._search is None and not engine._flights and engine.pages_in_use == 0
    found += drain(engine)[(0, 0)]
    assert bits(found) == bits(alone([4, 5], params))


@pytest.mark.parametrize("where", ["launch", "landing"])
def test_a_broken_pool_is_nobodys_fault_and_healed_by_nothing(where: str) -> None:
    """A step that read what belongs to another is our own fault: it is told, not tried again until it goes away."""
    broken = [PoolError("a slot belongs to another request")]

    class Reads(Delayed):
        def launch(self, work: Sequence[Work], land: Any) -> Ticket:
            if where == "launch" and self.launches == 2 and broken:
                raise broken.pop()
            return super().launch(work, land)

        def compute(self, cells: Any) -> list[Result]:
            if where == "landing" and self.steps == 2 and broken:
                raise broken.pop()
            return super().compute(cells)

    engine = ahead(Reads)
    params = SamplingParams(max_tokens=8, **FREE)
    for i in range(3):
        engine.add_request(None, i, params, [4 + i])
    found: list[Any] = []
    with pytest.raises(PoolError, match="belongs to another"):
        for _ in range(20):
            found += engine.step()
    assert engine._search is None and not engine._flights and engine.pages_in_use == 0
    rest = drain(engine)
    for i in range(3):
        assert bits([o for o in found if o.request_id == i] + rest[(i, 0)]) == bits(alone([4 + i], params))


# ---- errors amid the bookkeeping


class Trips:
    """Stands for a method of the engine's, and raises in one of its calls."""

    def __init__(self, owner: Any, name: str, at: int, error: BaseException, behind: bool) -> None:
        self.call, self.left, self.error, self.behind = getattr(owner, name), at, error, behind
        setattr(owner, name, self)

    def __call__(self, *args: Any) -> Any:
        self.left -= 1
        if self.left or self.behind:
            result = self.call(*args)
        if not self.left:
            raise self.error
        return result


PLACES = {
    "admit": lambda engine: engine._queues,
    "charge": lambda engine: engine._queues.service,
    "make_room": lambda engine: engine._queues.cache,
    "keep_pages": lambda engine: engine._queues.cache,
    "planned": lambda engine: engine.observers,
    "ran": lambda engine: engine.observers,
}


@pytest.mark.parametrize(("behind", "drafts"), [(False, 2), (True, 0)])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("ours")])
@pytest.mark.parametrize("place", PLACES)
def test_an_error_amid_the_bookkeeping_leaves_no_half_of_a_step(
    place: str, error: BaseException, behind: bool, drafts: int
) -> None:
    params = SamplingParams(max_tokens=12, **FREE)
    prompts = {i: [10 + i] * (1 + 12 * i) for i in range(4)}
    expected = {i: bits(alone(prompt, params, max_drafts=drafts, max_tokens=40)) for i, prompt in prompts.items()}
    met = 0
    for at in (1, 2, 3, 5, 9):
        engine = ahead(max_drafts=drafts, prefix=PrefixSettings(4 + drafts + 1))
        engine.observers.add(Observer())
        Trips(PLACES[place](engine), place, at, error, behind)
        for i, prompt in prompts.items():
            engine.add_request(None, i, params, prompt)
        found: dict[Any, list[Any]] = {}
        while engine.has_unfinished_requests():
            try:
                for output in engine.step():
                    found.setdefault(output.request_id, []).append(output)
            except type(error):
                met += 1
                assert not engine._flights and engine.pages_in_use == 0 and not engine._queues.running
            engine.check_conservation()
        assert engine.pages_in_use == 0 and {i: bits(outputs) for i, outputs in found.items()} == expected
    assert met


def test_a_request_whose_end_met_an_error_is_told_that_it_has_ended() -> None:
    engine = ahead()
    engine.add_request(None, 0, SamplingParams(max_tokens=2, **FREE), [4])
    Trips(engine._queues, "remove", 1, KeyboardInterrupt(), behind=False)
    outputs: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        for _ in range(9):
            outputs += engine.step()
    assert drain(engine)[(0, 0)][-1].finish_reason == "length"


# ---- any schedule


@st.composite
def scripts(draw: st.DrawFn) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """Engine options, and what happens before each step: arrivals, aborts, nothing."""
    requests, drafts = draw(st.integers(1, 5)), draw(st.sampled_from([0, 0, 1, 3]))
    options: dict[str, Any] = {
        "max_requests": requests,
        "num_slots": requests + draw(st.integers(0, 2)),
        "max_tokens": draw(st.integers(requests * (1 + drafts), 40)),
        "num_pages": draw(st.integers(16, 40)),
        "page_tokens": 4,
        "max_drafts": drafts,
    }
    if draw(st.booleans()):
        options["prefix"] = PrefixSettings(4 + drafts + 1)
    script: list[tuple[Any, ...]] = [("lands", draw(st.sampled_from([0, 0, 1, 3])))]
    for i in range(draw(st.integers(1, 8))):
        shared = [2, 3, 5, 7, 2, 3, 5, 7, 11][: draw(st.integers(0, 9))]
        prompt = shared + draw(st.lists(st.integers(2, 96), min_size=1, max_size=20))
        params = {
            "max_tokens": draw(st.integers(1, 30)),
            "seq_seed": draw(st.integers(0, 3)),
            "temperature": draw(st.sampled_from([0, 1.0])),
            "prompt_logprobs": draw(st.booleans()),
            "n": draw(st.sampled_from([1, 1, 2])),
            "stop_token_ids": draw(st.sampled_from([None, list(range(10, 30))])),
            "stop": draw(st.sampled_from([None, ["a", "b", "c", "5", "6"]])),
        }
        script += [("step",)] * draw(st.integers(0, 4))
        script.append(("add", i, prompt, params))
        if draw(st.booleans()) and draw(st.booleans()):
            script += [("step",)] * draw(st.integers(0, 6))
            script.append(("abort", draw(st.integers(0, i))))
        if draw(st.booleans()) and draw(st.booleans()):
            script.append(("flush",))
    return options, script


def play(options: dict[str, Any], script: list[tuple[Any, ...]]) -> tuple[Any, dict[Any, list[Any]], set[int]]:
    engine = ahead(**options)

    def failed(work: Any, error: Exception) -> None:
        raise AssertionError("a step failed, which starting anew would hide") from error

    engine._start_search = failed
    seen: dict[Any, list[Any]] = {}
    aborted: set[int] = set()

    def collect(outputs: Sequence[Any]) -> None:
        for output in outputs:
            seen.setdefault((output.request_id, output.sample_index), []).append(output)

    for action, *rest in script:
        if action == "add":
            engine.add_request(None, rest[0], SamplingParams(**rest[2]), rest[1])
        elif action == "abort":
            aborted |= set(engine.abort_request(rest[0]))
        elif action == "lands":
            engine.executor.lands = rest[0]
        elif action == "flush":
            collect(engine.flush_inflight_reqs())
        else:
            collect(engine.step())
        engine.check_conservation()
    for key, outputs in drain(engine).items():
        seen.setdefault(key, []).extend(outputs)
    return engine, seen, aborted


@settings(max_examples=200, deadline=None)
@given(scripts())
def test_outputs_are_those_of_a_request_alone_and_synchronous(
    case: tuple[dict[str, Any], list[tuple[Any, ...]]],
) -> None:
    options, script = case
    engine, seen, aborted = play(options, script)
    for action, *rest in script:
        if action != "add":
            continue
        index, prompt, params = rest
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
    assert not engine._queues.leaving and not engine._flights
