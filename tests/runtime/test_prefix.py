"""What requests share through the prefix cache, and that nothing but the work changes by it.

The simulated executor reads every token of the history back through the pages of the request, and its slot must hold
the state at the place where it goes on: a page or state of another history, or one that was overwritten, is an error.
"""

from __future__ import annotations

import random
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime.images import PromptImage
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.pool import Pool, PoolError
from deepinfer.runtime.prefix import Chain, PrefixCache, PrefixSettings
from engines import FREE, Faulty, alone, bits, build_engine, drain, tokens

PAGE = 4
DRAFTS = 2
PREFIX = PrefixSettings(slack=PAGE + DRAFTS + 1)


def build(**options: Any) -> Any:
    return build_engine(**({"prefix": PREFIX} | options))


def ask(engine: Any, key: Any, prompt: list[int], **params: Any) -> list[Any]:
    """Outputs of one request, which has the engine to itself."""
    engine.add_request(None, key, SamplingParams(**(FREE | params)), prompt)
    outputs: list[Any] = drain(engine)[(key, 0)]
    return outputs


def text(seed: int, count: int) -> list[int]:
    return [random.Random(seed).randrange(2, 90) for _ in range(count)]


def test_the_next_turn_begins_where_the_last_one_ended() -> None:
    engine = build()
    first = text(0, 10)
    said = tokens(ask(engine, 0, first, max_tokens=7))
    second = first + said + text(1, 5)
    outputs = ask(engine, 1, second)
    # 16 of the 17 tokens of the first turn were computed: the last one was only said.
    assert outputs[0].cached_tokens == 16 and all(o.cached_tokens == 0 for o in outputs[1:])
    assert engine.stats.prompt_tokens == 10 + 22 - 16 and engine.stats.cached_tokens == 16
    assert bits(outputs) == bits(alone(second, SamplingParams(**FREE)))


def test_the_same_prompt_again_computes_its_last_page_alone() -> None:
    engine = build()
    for key, cached in enumerate([0, 8, 8]):
        assert ask(engine, key, text(0, 12))[0].cached_tokens == cached  # the last row draws, so it is always computed
    found = [ask(engine, 3 + key, text(0, 13))[0].cached_tokens for key in range(2)]
    assert found == [8, 12]


def test_a_beginning_shared_by_several_is_found_by_the_third() -> None:
    """Nobody's prompt ends with the system prompt: its state is kept when a second request turns off there."""
    engine = build()
    system = text(0, 8)
    found = [ask(engine, key, system + text(10 + key, 9))[0].cached_tokens for key in range(4)]
    assert found == [0, 0, 8, 8]


def test_the_cache_can_be_turned_off_and_on() -> None:
    engine = build()
    found = []
    for key, on in enumerate([True, True, False, False, True, True]):
        if key in (2, 4):
            engine.use_prefix_cache(on)
        found.append(ask(engine, key, text(0, 12))[0].cached_tokens)
        if not on:
            assert engine._queues.pages.used == 0
    assert found == [0, 8, 0, 0, 0, 8]
    with pytest.raises(InvalidArgumentError, match="use_prefix_cache"):
        build_engine().use_prefix_cache(False)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_found_is_remembered_no_longer_than_it_is_true(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Requests that wait for room are looked up once per change of the cache, not once per step."""
    looked, asked = 0, 0
    match, find = PrefixCache.match, PrefixCache._match

    def counted(self: PrefixCache, request: Any, settings: PrefixSettings) -> Any:
        nonlocal looked
        looked += 1
        return find(self, request, settings)

    def checked(self: PrefixCache, request: Any) -> Any:
        nonlocal asked
        asked += 1
        found = match(self, request)
        if self._blocks:
            assert found == find(self, request, cast(PrefixSettings, self.settings))
        return found

    monkeypatch.setattr(PrefixCache, "_match", counted)
    monkeypatch.setattr(PrefixCache, "match", checked)
    rng = random.Random(seed)
    engine = build(num_pages=rng.choice([18, 30]), num_slots=4, max_requests=2, max_tokens=12, max_drafts=DRAFTS)
    for key in range(14):
        prompt = text(rng.randrange(2), rng.randrange(1, 14)) + text(key, rng.randrange(1, 6))
        engine.add_request(None, key, SamplingParams(**FREE, max_tokens=rng.randrange(1, 30)), prompt)
        for _ in range(rng.randrange(4)):
            engine.step()
        if rng.random() < 0.1:
            engine.reset_prefix_cache()
    drain(engine)
    assert asked > 20 and looked < asked


def test_what_is_remembered_counts_the_pages_that_are_free_now() -> None:
    engine = build(max_requests=1)
    ask(engine, "first", text(0, 12))
    for key in range(2):
        engine.add_request(None, key, SamplingParams(**FREE), text(0, 12))
    waits = engine._queues.waiting.find(engine._by_id[1][0].key)
    cache, pages = engine._queues.cache, engine._queues.pages
    assert cache.match(waits).reclaimed == 2
    reader = pages.lease()
    reader.join(cache._blocks[cache._chain(waits)[0]])
    assert (cache.match(waits).tokens, cache.match(waits).reclaimed) == (8, 1)
    reader.release()
    assert cache.match(waits).reclaimed == 2
    drain(engine)


def test_requests_side_by_side_share_pages_and_no_state() -> None:
    engine = build(num_slots=8)
    ask(engine, "first", text(0, 17))
    used = engine.config.num_pages - engine._queues.pages.free
    for key in range(4):
        engine.add_request(None, key, SamplingParams(**FREE, max_tokens=2), text(0, 17))
    engine.step()
    # Four shared pages, and one of each.
    assert engine.config.num_pages - engine._queues.pages.free == used + 4 and engine.pages_in_use == 8
    found = drain(engine)
    assert len({str(bits(outputs)) for outputs in found.values()}) == 1


def test_salts_do_not_share() -> None:
    engine = build(num_slots=32)
    found = []
    for key, salt in enumerate([None, "a", "", "b", "a", None, ""]):
        found.append(ask(engine, key, text(0, 12), cache_salt=salt)[0].cached_tokens)
    assert found == [0, 0, 0, 0, 8, 8, 8]


def test_the_chain_names_everything_that_entries_follow_from() -> None:
    cache = build()._queues.cache
    other = build(prefix=PrefixSettings(slack=7, identity=b"another model"))._queues.cache
    ids = np.array(text(0, 16), np.int32)

    def image(start: int, name: bytes, count: int = 3) -> PromptImage:
        return PromptImage(start, cast(Any, SimpleNamespace(plan=SimpleNamespace(tokens=count), digest=name)))

    def names(root: bytes = cache.root(None), images: Any = (), changed: int | None = None) -> list[bytes]:
        told = ids.copy()
        if changed is not None:
            told[changed] += 1
        return Chain(root, images).extend(told, PAGE)

    base = names()
    assert len(set(base)) == 4 and names() == base
    for different in (names(other.root(None)), names(cache.root("a")), names(changed=0)):
        assert not set(different) & set(base)
    late = names(changed=9)
    assert late[:2] == base[:2] and not set(late[2:]) & set(base)
    shown = names(images=[image(6, b"cat")])
    assert shown[0] == base[0] and not set(shown[1:]) & set(base)
    for one in (image(6, b"dog"), image(5, b"cat")):
        assert not set(names(images=[one])[1:]) & set(shown)
    grown = Chain(cache.root(None))
    for end in range(17):
        assert grown.extend(ids[:end], PAGE) == base[: end // PAGE]


def test_what_is_forgotten_is_computed_again() -> None:
    engine = build()
    ask(engine, 0, text(0, 12))
    engine.reset_prefix_cache()
    assert engine._queues.pages.used == engine._queues.slots.used == 0
    assert ask(engine, 1, text(0, 12))[0].cached_tokens == 0
    assert ask(engine, 2, text(0, 12))[0].cached_tokens == 8


def test_without_the_cache_nothing_is_kept() -> None:
    engine = build(prefix=None)
    for key in range(2):
        assert ask(engine, key, text(0, 12))[0].cached_tokens == 0
    assert engine._queues.pages.used == engine._queues.slots.used == 0


def test_rows_that_are_asked_about_are_computed() -> None:
    engine = build()
    ask(engine, 0, text(0, 12))
    outputs = ask(engine, 1, text(0, 12), prompt_logprobs=True)
    assert outputs[0].cached_tokens == 0 and len(outputs[0].prompt_logprobs) == 11
    assert bits(outputs) == bits(alone(text(0, 12), SamplingParams(**FREE, prompt_logprobs=True)))


def test_memory_that_others_want_is_given_up_the_oldest_first() -> None:
    engine = build(num_pages=12, num_slots=8)
    for key in range(3):
        ask(engine, key, text(key, 13), max_tokens=1)  # three pages each stay
    ask(engine, 3, text(0, 13), max_tokens=1)  # the oldest is used again
    assert ask(engine, 4, text(9, 18), max_tokens=1)[0].cached_tokens == 0  # five pages: two are taken from request 1
    found = {key: ask(engine, 10 + key, text(key, 13), max_tokens=1)[0].cached_tokens for key in (2, 0, 1)}
    assert found == {2: 12, 0: 12, 1: 0}


def test_a_pool_full_of_what_is_kept_still_serves_the_longest_request() -> None:
    engine = build(num_pages=16, num_slots=1)
    for key in range(8):
        outputs = ask(engine, key, text(key, 62), max_tokens=2)
        assert len(outputs) == 2
        again = ask(engine, 10 + key, text(key, 62), max_tokens=2)
        assert bits(again) == bits(outputs) and again[0].cached_tokens == 60  # the slot itself is taken over
    engine.close()
    assert engine._queues.pages.used == engine._queues.slots.used == 0


def test_who_gives_way_frees_no_page_that_others_share() -> None:
    """Four requests share seven pages and cross page borders in the same steps, with nothing free."""
    engine = build(num_pages=16, max_requests=4)
    ask(engine, "first", text(0, 29), max_tokens=1)
    params = SamplingParams(**FREE, max_tokens=30)
    for key in range(4):
        engine.add_request(None, key, params, text(0, 29))
    found = drain(engine)
    assert engine.stats.preemptions > 0 and engine.stats.cached_tokens == 4 * 28
    assert {str(bits(found[(key, 0)])) for key in range(4)} == {str(bits(alone(text(0, 29), params)))}


def test_two_that_go_on_from_a_state_whose_slot_a_third_one_has_to_take() -> None:
    """Every slot holds a state: the first takes an unused one, the second that of its beginning; the third loses it."""
    engine = build(num_slots=3, max_requests=3)
    for family in range(3):
        ask(engine, family, text(family, 13), max_tokens=1)
    assert engine._queues.slots.free == 0
    params = SamplingParams(**FREE, max_tokens=2)
    for key, family in enumerate([0, 1, 1]):
        engine.add_request(None, key, params, text(family, 13))
    outputs = engine.step()
    assert [output.request_id for output in outputs] == [0, 1]
    outputs += [output for found in drain(engine).values() for output in found]
    for key, family in enumerate([0, 1, 1]):
        assert bits([one for one in outputs if one.request_id == key]) == bits(alone(text(family, 13), params))


def test_a_preempted_request_goes_on_from_what_is_left_of_it() -> None:
    rows = []
    for prefix in (None, PREFIX):
        engine = build(prefix=prefix, num_pages=11, num_slots=4, max_requests=2)
        for key in range(2):
            engine.add_request(None, key, SamplingParams(**FREE, max_tokens=12), text(key, 12))
        found = drain(engine)
        assert engine.stats.preemptions > 0
        for key in range(2):
            assert bits(found[(key, 0)]) == bits(alone(text(key, 12), SamplingParams(**FREE, max_tokens=12)))
            assert found[(key, 0)][0].cached_tokens == 0, "what it had computed itself is no prompt that was spared"
        rows.append(engine.executor.rows)
    assert rows[1] < rows[0]


def test_after_a_failed_step_nothing_is_trusted() -> None:
    executor = Faulty(97, 64, 8, PAGE, slack=PREFIX.slack)
    engine = build(executor=executor)
    ask(engine, 0, text(0, 12))
    executor.raise_at = [executor.steps + 1]
    outputs = ask(engine, 1, text(0, 12))
    assert bits(outputs) == bits(alone(text(0, 12), SamplingParams(**FREE)))
    # It began from the cache, failed, and computed everything again.
    assert engine.stats.prompt_tokens == 12 + 12


def test_a_request_whose_logits_are_not_numbers_leaves_nothing_behind() -> None:
    executor = Faulty(97, 64, 8, PAGE, slack=PREFIX.slack)
    engine = build(executor=executor)
    ask(engine, 0, text(0, 12))
    executor.bad_first_token = text(0, 1)[0]
    assert ask(engine, 1, text(0, 12))[-1].finish_reason == "error"
    executor.bad_first_token = -1
    assert ask(engine, 2, text(0, 12))[0].cached_tokens == 0


def test_nor_does_one_that_is_aborted_in_that_step() -> None:
    executor = Faulty(97, 64, 8, PAGE, slack=PREFIX.slack)
    engine = build(executor=executor)
    executor.bad_first_token = text(0, 1)[0]
    engine.add_request(None, 0, SamplingParams(**FREE), text(0, 13))
    executor.fault = lambda work: engine.abort_request(0) and None
    drain(engine)
    executor.bad_first_token, executor.fault = -1, None
    assert ask(engine, 1, text(0, 13))[0].cached_tokens == 0


def test_a_state_that_could_not_be_copied_is_nobodys_beginning() -> None:
    engine = build()
    copy, engine.executor.copy_states = engine.executor.copy_states, Mock(side_effect=RuntimeError("no memory"))
    params = SamplingParams(**FREE, max_tokens=6)
    for key in range(2):  # in one step: the second is committed behind the fault
        engine.add_request(None, key, params, text(key, 6))
    found = drain(engine)
    assert engine.executor.copy_states.called
    engine.executor.copy_states = copy
    for key in range(2):
        again = ask(engine, 2 + key, text(key, 6), max_tokens=6)
        assert bits(found[(key, 0)]) == bits(again) == bits(alone(text(key, 6), params))


def test_an_aborted_request_leaves_what_it_computed() -> None:
    engine = build()
    engine.add_request(None, 0, SamplingParams(**FREE, max_tokens=40), text(0, 13))
    for _ in range(3):
        engine.step()
    engine.abort_request(0)
    drain(engine)
    assert ask(engine, 1, text(0, 13))[0].cached_tokens == 12


@pytest.mark.parametrize("slack", [0, 2, PAGE, PAGE + DRAFTS + 1])
@pytest.mark.parametrize("drafts", [0, DRAFTS])
def test_any_length_of_rings_gives_the_same_bits(slack: int, drafts: int) -> None:
    engine = build(
        prefix=PrefixSettings(slack=max(slack, drafts + 1 if drafts else 0)), max_drafts=drafts, max_tokens=40
    )
    said = text(0, 9)
    for turn in range(4):
        outputs = ask(engine, turn, said, max_tokens=6)
        want = alone(said, SamplingParams(**FREE, max_tokens=6), max_drafts=drafts, max_tokens=40)
        assert [o.token_id for o in outputs] == [o.token_id for o in want]
        said = said + tokens(outputs) + text(50 + turn, 3)
        if len(said) > 50:
            break


def test_a_state_that_the_rings_no_longer_hold_is_not_kept() -> None:
    """An engine that is told of longer rings than there are goes on from a state that is gone, which is an error."""
    for told, cached in ((0, 0), (1, 12)):
        engine = build(prefix=PrefixSettings(slack=told))
        engine.executor._slack = 0
        ask(engine, 0, text(0, 13), max_tokens=1)
        engine.add_request(None, 1, SamplingParams(**FREE), text(0, 13))
        work, moves = engine._plan()
        assert work[0].start == cached
        moves.carry_out(engine.executor)
        with pytest.raises(PoolError, match="another state") if cached else nullcontext():
            engine.executor.run(work)


def test_reclaimable_ids_are_counted() -> None:
    pool = Pool("pages", 4)
    cache, request = pool.lease(2), pool.lease()
    pool.mark(1)
    pool.mark(2)
    assert pool.reclaimable == 2
    request.join(cache, 1)
    assert pool.reclaimable == 1 and request.references(0) == 2
    pool.check([cache, request])
    request.release()
    assert pool.reclaimable == 2
    pool.unmark(2)
    assert pool.reclaimable == 1
    pool._reclaimable = 0
    with pytest.raises(PoolError, match="0 ids are counted as reclaimable, 1 are"):
        pool.check([cache])


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_traffic_gives_every_request_the_bits_it_has_alone(data: st.DataObject) -> None:
    """Requests of a few families of prompts come, end, are aborted and preempted, in pools of any size."""
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    drafts = rng.choice([0, DRAFTS])
    options = {
        "max_drafts": drafts, "max_tokens": rng.choice([12, 16, 40]), "max_requests": rng.choice([1, 3, 4]),
        "chunked_prefill": True, "max_model_len": 40,
    }  # fmt: skip
    engine = build(num_pages=rng.choice([10, 11, 14, 40]), num_slots=rng.choice([3, 4, 6]), **options)
    asked: dict[int, tuple[list[int], SamplingParams]] = {}
    found: dict[int, list[Any]] = {}
    aborted: set[int] = set()
    history: list[list[int]] = [text(family, 12) for family in range(3)]

    def collect() -> None:
        for output in engine.step():
            found.setdefault(output.request_id, []).append(output)
            if output.finished and output.request_id not in aborted:
                history.append(asked[output.request_id][0] + tokens(found[output.request_id]))
        engine.check_conservation()

    for key in range(24):
        begin = rng.choice(history)
        prompt = begin[: rng.choice([len(begin), rng.randrange(1, len(begin) + 1)])] + text(
            rng.randrange(5), rng.randrange(3)
        )
        params = SamplingParams(
            max_tokens=rng.randrange(1, 9), seq_seed=key, temperature=rng.choice([0.0, 1.0]), ignore_eos=True,
            prompt_logprobs=rng.random() < 0.1, cache_salt=rng.choice([None, None, None, "a"]),
        )  # fmt: skip
        asked[key] = prompt[:30], params
        engine.add_request(None, key, params, prompt[:30])
        for _ in range(rng.choice([0, 0, 0, 1, 2, 3, 6])):
            collect()
        if rng.random() < 0.15:
            aborted.update(engine.abort_request(rng.randrange(key + 1)))
        if rng.random() < 0.03:
            engine.reset_prefix_cache()
    while engine.has_unfinished_requests():
        collect()
    for key, (prompt, params) in asked.items():
        want = bits(alone(prompt, params, **(options | {"max_requests": 1})))
        got = bits(found[key])
        if key in aborted:
            told = [one[0] for one in got if one[0] >= 0]
            assert told == [one[0] for one in want[: len(told)]]
        else:
            assert got == want, key
    engine.close()
    assert engine._queues.pages.used == engine._queues.slots.used == 0
