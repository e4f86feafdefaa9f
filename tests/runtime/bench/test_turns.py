"""Conversations with and without the prefix cache: prompts go on from what was said, and ratios are what they say."""

from __future__ import annotations

from typing import Any

import pytest

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime.bench.measure import AccountingError
from deepinfer.runtime.bench.turns import Conversation, MultiTurn, compare, table, talk
from deepinfer.runtime.bench.workload import Lengths, Vocabulary
from deepinfer.runtime.prefix import PrefixSettings
from engines import build_engine


def workload(**more: Any) -> MultiTurn:
    values = {
        "conversations": 3, "turns": 3, "shared": 12, "inputs": Lengths.parse("i", "uniform:3:6"),
        "outputs": Lengths.parse("o", "5"), "concurrency": 2, "seed": 7,
    }  # fmt: skip
    return MultiTurn(**(values | more))  # type: ignore[arg-type]


def engine(**options: Any) -> Any:
    return build_engine(**({"prefix": PrefixSettings(slack=8), "num_pages": 200} | options))


class Ticking:
    """A clock by rows that the executor has computed, and one per step."""

    def __init__(self, engine: Any) -> None:
        self.now, run = 0.0, engine.executor.run

        def timed(work: Any) -> Any:
            self.now += 1.0 + sum(item.end - item.start for item in work)
            return run(work)

        engine.executor.run = timed

    def __call__(self) -> float:
        return self.now


def test_a_turn_goes_on_from_all_that_was_said() -> None:
    made = engine()
    prompts: list[list[int]] = []
    add = made.add_request

    def noted(user: Any, name: Any, params: Any, prompt: Any, **more: Any) -> Any:
        prompts.append(list(prompt))
        return add(user, name, params, prompt, **more)

    made.add_request = noted
    one = Conversation([5, 6, 7], [([8, 9], 4), ([10], 2), ([11, 12], 3)])
    ((first, second, third),), (said,) = talk(made, [one], 1, temperature=1.0)
    assert [m.tokens for m in (first, second, third)] == [4, 2, 3] and len(said) == 9 == one.length - 8
    assert prompts == [
        [5, 6, 7, 8, 9],
        [5, 6, 7, 8, 9, *said[:4], 10],
        [5, 6, 7, 8, 9, *said[:4], 10, *said[4:6], 11, 12],
    ]
    assert second.cached > 0 and second.arrival >= first.ended


def test_no_more_conversations_than_are_wanted_are_under_way() -> None:
    made, most = engine(), 0
    step = made.step

    def counted() -> Any:
        nonlocal most
        most = max(most, made.get_num_unfinished_requests())
        return step()

    made.step = counted
    measured, _ = talk(made, workload(conversations=6).draw(Vocabulary(97)), 2)
    assert most == 2 and [len(turns) for turns in measured] == [3] * 6
    assert all(one.good for turns in measured for one in turns)


def test_ratios_are_those_of_the_rows_that_the_cache_spares() -> None:
    made = engine()
    found = compare(made, workload(), rounds=2, temperature=1.0, clock=Ticking(made))
    assert found["same_tokens"]
    with_, without = found["with_cache"], found["without_cache"]
    assert without["cached_tokens"] == 0 < with_["cached_tokens"] < with_["prompt_tokens"] == without["prompt_tokens"]
    assert with_["requests"] == without["requests"] == 9
    spared = without["seconds"] - with_["seconds"]
    assert spared >= with_["cached_tokens"], "a row takes a tick, whoever waits for it; and there are fewer steps"
    ratios = found["ratios"]
    assert ratios["output_tokens_per_s"] == pytest.approx(without["seconds"] / with_["seconds"])
    assert ratios["ttft_later_turns"] == pytest.approx(without["ttft_later_turns"] / with_["ttft_later_turns"])
    assert ratios["ttft_later_turns"] > 1.5
    text = table(found)
    assert "the same tokens in all" in text and f"{ratios['ttft']:.2f} x" in text
    again = compare(made, workload(), rounds=1, temperature=1.0)
    assert again["with_cache"]["cached_tokens"] == with_["cached_tokens"], "nothing is left from before"


def test_other_tokens_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine()
    monkeypatch.setattr(
        "deepinfer.runtime.bench.turns.talk", lambda *_, **__: ([], [[made.executor.steps]]) if _other(made) else None
    )
    found = compare(made, workload(), rounds=1, warmup=False)
    assert not found["same_tokens"] and "DIFFERENT TOKENS" in table(found)


def _other(made: Any) -> bool:
    made.executor.steps += 1
    return True


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="enable_prefix_caching"):
        compare(build_engine(), workload())
    with pytest.raises(InvalidArgumentError, match=r"conversation 0: got '\d+ tokens'; allowed: 64"):
        compare(engine(), workload(turns=9))
    made = engine()
    made.has_unfinished_requests = lambda: False
    with pytest.raises(AccountingError, match="has not ended 1 turns"):
        talk(made, workload().draw(Vocabulary(97)), 1)
