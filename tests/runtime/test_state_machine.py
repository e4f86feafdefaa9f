"""An engine under everything at once: requests come, fork, wait for images, are aborted, preempted both ways and end;
steps fail, when they are launched and when they run.

After every step: pages and slots are conserved, and nothing is read that is not there (the executor checks, against
memory that is overwritten as it returns). At the end: nothing is left, everybody has ended, and every request has said
what it says alone, bit for bit. Steps overlap in half of the runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from deepinfer.runtime import forks, moves, offload
from deepinfer.runtime.cost import Cost
from deepinfer.runtime.image_workers import ImageWorkerError
from deepinfer.runtime.offload import HostSettings
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.prefix import PrefixSettings
from deepinfer.runtime.request import Request
from delayed import Delayed, poison_freed
from engines import alone, bits, build_engine
from fake_images import PLACEHOLDER, TOKENS, FakeReader, FakeWorkers

PAGE = 4
LONGEST = 32
PATIENCE = 400
"""Steps after the last rule without the end of any sample, after which somebody starves: far more than the longest of
them needs alone, begun anew after every other."""


def build(rng: random.Random) -> tuple[Any, FakeWorkers, int]:
    """An engine of any kind, always short of something."""
    drafts = rng.choice([0, 0, 2])
    reach = drafts + 1
    prefix = PrefixSettings(slack=PAGE + reach) if rng.random() < 0.5 else None
    pages, slots = rng.choice([9, 9, 12, 16, 40]), rng.choice([3, 5, 8])
    workers = FakeWorkers()
    executor = Delayed(97, pages, slots, PAGE, slack=reach if prefix is None else prefix.slack)
    executor.lands = rng.choice([0, 0, 3])
    engine = build_engine(
        executor=executor, num_pages=pages, num_slots=slots, max_requests=min(slots, rng.choice([2, 4])),
        max_drafts=drafts, max_tokens=rng.choice([12, 24]), max_model_len=LONGEST, prefix=prefix, slack=reach,
        host=rng.choice([None, *[HostSettings(6, 2), HostSettings(40, 8)] * 2]), images=FakeReader(workers),
        async_scheduling=rng.random() < 0.6, step_seconds=rng.choice([None, 1.0]),
    )  # fmt: skip
    if engine._costs is not None:  # times of steps mean nothing here, and choices are to repeat
        engine._costs = None if rng.random() < 0.5 else _Fixed(rng.choice([1e-9, 1e-3]))
    poison_freed(engine, in_order=prefix is not None)
    return engine, workers, drafts


class _Fixed:
    """A cost model that is what it is."""

    def __init__(self, row: float) -> None:
        self.cost = Cost(1e-9, row, 0.0, 0.0, 99)

    def add(self, spans: Any, seconds: float) -> None:
        pass


class Planted(RuntimeError):
    """Of a step that was made to fail."""


class Traffic(RuleBasedStateMachine):
    """See the module."""

    steps = failures = 0

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.engine, self.workers, self.drafts = build(self.rng)
        self.families = [[self.rng.randrange(2, 90) for _ in range(14)] for _ in range(2)]
        self.asked: dict[int, tuple[list[int], SamplingParams]] = {}
        self.spoiled: set[int] = set()
        self.found: dict[tuple[int, int], list[Any]] = {}
        self.search, self.engine._start_search = self.engine._start_search, self.fail
        self.armed = False
        self.engine.executor.fault = self.fault

    def fail(self, work: Any, error: Exception) -> None:
        if not isinstance(error, Planted) and not str(error).startswith("fault in launch"):
            raise error
        Traffic.failures += 1
        self.search(work, error)

    def fault(self, work: Any) -> Exception | None:
        """Once, and not while the last one is looked for: nobody is to blame, and nobody is blamed."""
        if not self.armed or self.engine._search is not None:
            return None
        self.armed = False
        return Planted("planted")

    def params(self, **more: Any) -> SamplingParams:
        rng = self.rng
        return SamplingParams(
            max_tokens=rng.randrange(1, 12), seq_seed=rng.randrange(99), temperature=rng.choice([0.0, 1.0]),
            ignore_eos=rng.random() < 0.8, n=rng.choice([1, 1, 1, 2, 3]), priority=rng.choice([0, 0, 0, 1]),
            tenant=rng.choice([None, "a", "b"]), prompt_logprobs=rng.random() < 0.1,
            cache_salt=rng.choice([None, None, "a"]), **more,
        )  # fmt: skip

    def text(self) -> list[int]:
        rng = self.rng
        begin = rng.choice(self.families)
        return begin[: rng.randrange(1, len(begin))] + [rng.randrange(2, 90) for _ in range(rng.randrange(4))]

    @rule()
    def add(self) -> None:
        key, prompt, params = len(self.asked), self.text(), self.params()
        self.engine.add_request(None, key, params, prompt)
        self.asked[key] = prompt, params

    @rule()
    def add_images(self) -> None:
        key, prompt, params = len(self.asked), self.text(), self.params()
        prompt.insert(self.rng.randrange(len(prompt)), PLACEHOLDER)
        name = self.rng.choice([b"cat", b"dog"])
        self.engine.add_request(None, key, params, prompt, {"image_bytes": [name]})
        place = prompt.index(PLACEHOLDER)
        self.asked[key] = prompt[:place] + [PLACEHOLDER] * TOKENS + prompt[place + 1 :], params

    @rule()
    def images_come(self) -> None:
        for job in list(self.workers.jobs):
            self.workers.end(job)

    @rule()
    def images_fail(self) -> None:
        if self.workers.jobs:
            job = self.rng.choice(self.workers.jobs)
            for samples in [one.samples for one in self.engine._queues.arrivals._arrivals if one.job is job]:
                self.spoiled.update(request.request_id for request in samples)
            self.workers.end(job, ImageWorkerError("the worker died"))

    @rule()
    def fork(self) -> None:
        running = [one for one in self.engine._queues.running if not one.finished and not one.aborted]
        running = [one for one in running if one.length < LONGEST and not one.aborted]
        if not running:
            return
        source, key = self.rng.choice(running), len(self.asked)
        last = self.rng.choice([None, self.rng.randrange(2, 90)])
        if any(image.lies_in(source.length - 1, source.length) for image in source.images):
            last = None
        prompt = source.tokens[: source.length].tolist()
        params = self.params()
        self.engine.fork_request(source.request_id, key, params, last, source.sample_index)
        self.asked[key] = [*prompt[:-1], prompt[-1] if last is None else last], params

    @rule()
    def abort(self) -> None:
        if self.asked:
            key = self.rng.randrange(len(self.asked))
            self.spoiled.update(self.engine.abort_request(key))

    @rule()
    def break_a_step(self) -> None:
        executor = self.engine.executor
        if self.rng.random() < 0.5:
            self.armed = True
        else:
            executor.launch_faults = (executor.launches + self.rng.randrange(1, 3),)

    @rule()
    def forget_prefixes(self) -> None:
        if self.rng.random() < 0.2:
            self.engine.reset_prefix_cache()

    @rule(count=st.integers(1, 6))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.one_step()

    def one_step(self) -> None:
        Traffic.steps += 1
        for output in self.engine.step():
            self.found.setdefault((output.request_id, output.sample_index), []).append(output)
        self.engine.check_conservation()

    @invariant()
    def everything_has_an_owner(self) -> None:
        if hasattr(self, "engine"):
            self.engine.check_conservation()

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.images_come()
        patience, left = PATIENCE, self.engine.get_num_unfinished_requests()
        while self.engine.has_unfinished_requests() and patience:
            self.images_come()
            self.one_step()
            before, left = left, self.engine.get_num_unfinished_requests()
            patience = PATIENCE if left < before else patience - 1
        assert not self.engine.has_unfinished_requests(), "somebody starves"
        assert not self.engine._queues.forks.slots_kept, "an anchor without heirs"
        for key, (prompt, params) in self.asked.items():
            for index in range(params.n):
                self.judge(key, index, prompt, params)
        self.engine.close()
        queues = self.engine._queues
        assert queues.pages.used == queues.slots.used == queues.host.pages.used == queues.host.slots.used == 0

    def judge(self, key: int, index: int, prompt: list[int], params: SamplingParams) -> None:
        one = params.copy()
        one.n, one.seq_seed = 1, (params.seq_seed or 0) + index
        want = bits(alone(prompt, one, max_drafts=self.drafts, max_tokens=24, max_model_len=LONGEST))
        got = bits(self.found[key, index])
        assert self.found[key, index][-1].finished
        if key in self.spoiled and self.found[key, index][-1].finish_reason in ("abort", "error"):
            told = [token for token, *_ in got if token >= 0]
            assert told == [token for token, *_ in want[: len(told)]], key
        else:
            assert got == want, key


def run(examples: int, rules: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Traffic,
        settings=settings(
            max_examples=examples, stateful_step_count=rules, deadline=None, print_blob=False,
            suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.reuse, Phase.generate],
        ),
    )  # fmt: skip


def test_thousands_of_steps() -> None:
    Traffic.steps = Traffic.failures = 0
    run(60, 60)
    for seed in range(40):
        drive(seed)
    assert Traffic.steps > 4000 and Traffic.failures > 40


@pytest.mark.whole
def test_many_thousands_of_steps() -> None:
    run(250, 100)


# ---- faults that the machine must see


def skip_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks.Forks, "leave", lambda self, request: setattr(request, "anchor", None))


def read_what_was_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pins return before their copies are made."""
    monkeypatch.setattr(forks.Begun, "moves", lambda self, launched, f=forks.Begun.moves: _early(f(self, launched)))


def _early(made: moves.MoveList) -> moves.MoveList:
    for pin in made.pins:
        pin.release()
    return made


def copy_the_wrong_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half pages are shared without their content."""
    monkeypatch.setattr(Delayed, "copy_pages", lambda self, pairs: None)


def share_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy-on-write forgets the write: the half page itself is shared."""

    def attach(self: Any, request: Any, anchor: Any, original: Callable[..., Any] = forks.Forks.attach) -> Any:
        pins, half = original(self, request, anchor)
        if half is not None:
            full = anchor.tokens // PAGE
            request.pages.join(anchor.pages, full, full + 1)
        return pins, None

    monkeypatch.setattr(forks.Forks, "attach", attach)
    monkeypatch.setattr(
        "deepinfer.runtime.queues.Queues._forked_view",
        lambda self, request, anchor: None if anchor.tokens % PAGE == 0 else _counted(self, request, anchor),
    )


def _counted(self: Any, request: Any, anchor: Any) -> Any:
    from dataclasses import replace

    pages = -(-anchor.tokens // PAGE)
    return replace(request.view(), computed=anchor.tokens, pages=pages, reclaimed=self.forks.reclaimed(anchor), cut=0)


def bring_back_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages come back from the host in another order."""

    def restore(self: Any, request: Any, made: Any, original: Callable[..., Any] = offload.HostStore.restore) -> None:
        original(self, request, made)
        made.restored_pages.reverse()
        made.restored_pages[:] = [
            (source, target)
            for (source, _), (_, target) in zip(made.restored_pages, reversed(made.restored_pages), strict=True)
        ]

    monkeypatch.setattr(offload.HostStore, "restore", restore)


def go_on_from_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back is taken for what it was some rows before."""

    def suspend(self: Any, held: Any, original: Callable[..., Any] = Request.suspend) -> None:
        original(self, held)
        self.computed -= 2 if self.computed > 2 else 0
        self.written = self.computed

    monkeypatch.setattr(Request, "suspend", suspend)


@pytest.mark.parametrize(
    "plant",
    [
        skip_a_release, read_what_was_given_back, copy_the_wrong_page, share_what_is_written, bring_back_another,
        go_on_from_before,
    ],
)  # fmt: skip
def test_planted_faults_are_seen(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017 - whichever check meets it first
        for seed in range(80):
            drive(seed)


RULES = (
    "add", "add", "add_images", "images_come", "images_fail", "fork", "abort", "forget_prefixes", "break_a_step",
    *["step"] * 3,
)  # fmt: skip


def drive(seed: int, rules: int = 60) -> None:
    """The machine without Hypothesis: the same run for a seed, ten times as fast."""
    machine, rng = Traffic(), random.Random(seed)
    machine.start(seed=seed)
    for _ in range(rules):
        name = rng.choice(RULES)
        if name == "step":
            machine.step(rng.randrange(1, 7))
        else:
            getattr(machine, name)()
        machine.everything_has_an_owner()
    machine.teardown()


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(40, 140), pytest.param(range(140, 440), marks=pytest.mark.whole)])
def test_many_seeds(seeds: range) -> None:
    """Others than those of the shorter run."""
    for seed in seeds:
        drive(seed)
