"""Conversations of several turns, with and without the prefix cache: what the cache is worth, as ratios of one run.

Every turn's prompt is the conversation so far: what all conversations begin with, what the user has said, and what the
engine has answered, in the tokens that it gave. Rounds with the cache and without alternate on one engine, so that a
machine that changes speed changes both; what a round leaves in the cache is forgotten. Both must say the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from ...hal.errors import InvalidArgumentError
from ..engine import LLMEngine
from ..params import SamplingParams
from .drive import Progress, vocabulary_of
from .measure import AccountingError, Measured, Slo, summary
from .workload import Lengths, Vocabulary


@dataclass(frozen=True)
class Conversation:
    """Tokens that it begins with, and by turn what the user says and how many tokens the answer has."""

    beginning: Sequence[int]
    turns: Sequence[tuple[Sequence[int], int]]

    @property
    def length(self) -> int:
        """Tokens at its end."""
        return len(self.beginning) + sum(len(said) + answer for said, answer in self.turns)


@dataclass(frozen=True)
class MultiTurn:
    """Conversations drawn from distributions.

    Attributes:
        conversations, turns: how many, of how many turns each.
        shared: tokens that all of them begin with, a system prompt.
        inputs, outputs: tokens of the user and of the engine per turn.
        concurrency: conversations under way at a time; the next turn of one begins when the answer has ended.
    """

    conversations: int
    turns: int
    shared: int
    inputs: Lengths
    outputs: Lengths
    concurrency: int
    seed: int

    def draw(self, vocabulary: Vocabulary) -> list[Conversation]:
        """The conversations; a seed decides all of them."""
        seeds = np.random.SeedSequence([self.seed, 2]).spawn(4)
        lengths, outputs, tokens, common = (np.random.Generator(np.random.PCG64(seed)) for seed in seeds)
        count = self.conversations * self.turns
        said, answers = self.inputs.draw(lengths, count).tolist(), self.outputs.draw(outputs, count).tolist()
        beginning = vocabulary.draw(common, self.shared)
        turns = [(vocabulary.draw(tokens, length), answer) for length, answer in zip(said, answers, strict=True)]
        return [
            Conversation(beginning, turns[first : first + self.turns]) for first in range(0, len(turns), self.turns)
        ]

    def describe(self) -> dict[str, Any]:
        """What decides the requests, for a record."""
        return {
            "kind": "turns", "conversations": self.conversations, "turns": self.turns, "shared_prefix": self.shared,
            "input": self.inputs.spec, "output": self.outputs.spec, "arrivals": f"closed:{self.concurrency}",
            "seed": self.seed,
        }  # fmt: skip


def talk(
    engine: LLMEngine,
    conversations: Sequence[Conversation],
    concurrency: int,
    *,
    temperature: float = 0.0,
    seed: int = 0,
    progress: Progress = lambda ended, tokens: None,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[list[list[Measured]], list[list[int]]]:
    """Run conversations to their ends, so many at a time.

    Returns:
        By conversation, a measurement of each turn; and all that the engine answered.

    Raises:
        InvalidArgumentError: a conversation does not fit the engine; then nothing runs.
        AccountingError: the engine's count of tokens is another one, or it has lost a request.
    """
    most = engine.config.max_model_len
    for number, one in enumerate(conversations):
        if one.length > most:
            raise InvalidArgumentError(f"conversation {number}", f"{one.length} tokens", f"{most}: max_model_len")
    texts = [list(one.beginning) for one in conversations]
    answers: list[list[int]] = [[] for _ in conversations]
    measured: list[list[Measured]] = [[] for _ in conversations]
    begun = 0
    under_way: dict[str, int] = {}

    def speak(number: int) -> None:
        turn, one = len(measured[number]), conversations[number]
        said, answer = one.turns[turn]
        texts[number] += said
        now, name = clock(), f"turn-{number}-{turn}"
        params = SamplingParams(
            temperature=temperature, max_tokens=answer, ignore_eos=True, seq_seed=seed + number * 1000 + turn
        )
        engine.add_request(None, name, params, texts[number], arrival_time=now)
        measured[number].append(Measured(number * len(one.turns) + turn, now, len(texts[number]), answer))
        under_way[name] = number

    while begun < len(conversations) or under_way:
        while begun < len(conversations) and len(under_way) < concurrency:
            speak(begun)
            begun += 1
        if not engine.has_unfinished_requests():
            raise AccountingError(f"the engine has nothing left to do, and has not ended {len(under_way)} turns")
        outputs = engine.step()
        now = clock()
        ended = tokens = 0
        for output in outputs:
            found = under_way.get(output.request_id)
            if found is None:
                continue
            measured[found][-1].add(output, now)
            if output.token_id >= 0:
                texts[found].append(output.token_id)
                answers[found].append(output.token_id)
                tokens += 1
            if output.finished:
                del under_way[output.request_id]
                ended += 1
                if measured[found][-1].good and len(measured[found]) < len(conversations[found].turns):
                    speak(found)
        progress(ended, tokens)
    return measured, answers


def compare(
    engine: LLMEngine,
    workload: MultiTurn,
    *,
    rounds: int = 3,
    warmup: bool = True,
    temperature: float = 0.0,
    progress: Progress = lambda ended, tokens: None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Rounds with the cache and without in turns; medians over the rounds, and ratios: without over with for times,
    with over without for throughput, so that above 1 the cache pays.

    Args:
        engine: with a prefix cache, which is on again afterwards. Nobody else uses it meanwhile.
        warmup: run the first conversation once either way before anything is timed.

    Raises:
        InvalidArgumentError: the engine has no prefix cache, or a conversation does not fit it.
    """
    if engine.config.prefix is None:
        raise InvalidArgumentError("enable_prefix_caching", False, "True: the engine is to have a prefix cache")
    conversations = workload.draw(vocabulary_of(engine))
    runs: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    said: list[list[list[int]]] = []
    how: dict[str, Any] = {"temperature": temperature, "seed": workload.seed, "clock": clock}
    try:
        for number in range(-1 if warmup else 0, rounds):
            for cached in (False, True) if number % 2 else (True, False):
                engine.use_prefix_cache(cached)
                chosen = conversations if number >= 0 else conversations[:1]
                measured, answers = talk(engine, chosen, workload.concurrency, **how, progress=progress)
                if number >= 0:
                    runs[cached].append(_numbers(measured))
                    said.append(answers)
    finally:
        engine.use_prefix_cache(True)
    with_, without = (_median(runs[cached]) for cached in (True, False))
    return {
        "rounds": rounds,
        "with_cache": with_,
        "without_cache": without,
        "same_tokens": all(one == said[0] for one in said),
        "ratios": {
            "ttft": _ratio(without["ttft"], with_["ttft"]),
            "ttft_later_turns": _ratio(without["ttft_later_turns"], with_["ttft_later_turns"]),
            "output_tokens_per_s": _ratio(with_["output_tokens_per_s"], without["output_tokens_per_s"]),
        },
    }


def _numbers(measured: Sequence[Sequence[Measured]]) -> dict[str, Any]:
    every = [one for turns in measured for one in turns]
    found = summary(every, Slo())

    def mean(turns: Sequence[Measured]) -> float | None:
        times = [one.ttft for one in turns if one.ttft is not None]
        return sum(times) / len(times) if times else None

    return {
        "seconds": found["seconds"],
        "requests": found["requests"],
        "outcomes": found["outcomes"],
        "output_tokens_per_s": found["output_tokens_per_s"],
        "prompt_tokens": found["prompt_tokens"],
        "cached_tokens": found["cached_tokens"],
        "ttft": mean(every),
        "ttft_later_turns": mean([one for turns in measured for one in turns[1:]]),
        "ttft_p90": found["ttft"]["p90"],
        "tbt": found["tbt"]["mean"],
    }


def _median(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of every number; what is none is that of the last run."""
    return {
        name: median(run[name] for run in runs) if isinstance(last, float) and all(run[name] for run in runs) else last
        for name, last in runs[-1].items()
    }


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def table(results: dict[str, Any]) -> str:
    """A comparison in words."""

    def line(name: str, key: str, digits: int, ratio: str = "") -> str:
        values = (results[kind][key] for kind in ("with_cache", "without_cache"))
        texts = ["-" if value is None else f"{value:.{digits}f}" for value in values]
        times = results["ratios"].get(ratio)
        return f"{name:34}{texts[0]:>14}{texts[1]:>14}" + ("" if times is None else f"{times:>9.2f} x")

    cached, prompt = results["with_cache"]["cached_tokens"], results["with_cache"]["prompt_tokens"]
    return "\n".join(
        [
            f"{'':34}{'with cache':>14}{'without':>14}",
            line("TTFT, mean, s", "ttft", 5, "ttft"),
            line("TTFT behind the first turn, mean, s", "ttft_later_turns", 5, "ttft_later_turns"),
            line("TTFT, p90, s", "ttft_p90", 5),
            line("TBT, mean, s", "tbt", 5),
            line("output tokens per s", "output_tokens_per_s", 2, "output_tokens_per_s"),
            f"{cached} of {prompt} prompt tokens cached; {results['rounds']} rounds each way, "
            + ("the same tokens in all" if results["same_tokens"] else "DIFFERENT TOKENS"),
        ]
    )
