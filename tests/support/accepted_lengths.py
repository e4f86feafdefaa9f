"""Drafts of which a known number is right: every accepted length, tokens and cache bytes held against plain decoding.

    python tests/support/accepted_lengths.py --times 1000

decodes until each accepted length 0..5 has occurred so often, compares after every step, and prints the histogram.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
from tqdm import tqdm

from cache_bytes import kept
from deepinfer.hal.catalog import load_backend
from deepinfer.model.hub import resolve_model
from deepinfer.model.transformer import Model
from deepinfer.runtime.engine import LLMEngine
from deepinfer.runtime.execute import Result, Work, wants_drafts
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.request import Proposal, Request
from model_engines import model_engine

DRAFTS = 5


class Injected:
    """Proposes what plain decoding said, up to a place that the position decides, and something else behind it."""

    def __init__(self, said: dict[int, list[int]], vocab: int, seed: int) -> None:
        self.said, self.vocab, self.seed = said, vocab, seed

    def right(self, request: Request, position: int) -> int:
        """How many of the drafts behind a position are right."""
        return int(np.random.default_rng((self.seed, request.key, position)).integers(0, DRAFTS + 1))

    def propose(self, work: Sequence[Work], results: Sequence[Result]) -> None:
        """See `execute.ProposesDrafts.propose`."""
        for item, result in zip(work, results, strict=True):
            if not wants_drafts(item, result):
                continue
            first = item.known_end + result.accepted + 1
            truth = self.said[item.request.key][first : first + DRAFTS]
            truth += [0] * (DRAFTS - len(truth))
            right = self.right(item.request, first)
            tokens = [t if place < right else (t + 1) % self.vocab for place, t in enumerate(truth)]
            result.proposal = Proposal(tokens, drawn=False)


def state(made: LLMEngine, request: Request) -> dict[str, str]:
    """What the caches hold of the computed tokens of a request."""
    assert request.slot is not None and request.pages is not None
    executor = made.executor
    return kept(
        executor.model.config,  # type: ignore[attr-defined]
        executor.caches,  # type: ignore[attr-defined]
        request.slot.ids[0],
        request.pages.ids,
        request.computed,
    )


def compare(
    model: Model, prompts: Sequence[list[int]], length: int, seed: int, pages: int | None = None
) -> Counter[int]:
    """Decode prompts at temperature 0, plainly and with injected drafts; returns how often each length was accepted.

    Args:
        pages: of the pool of the engine with drafts; None is plenty.

    Raises:
        AssertionError: a token, or a byte of what is kept after a step, differs.
    """
    params = SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)
    options = {"requests": len(prompts), "longest": max(map(len, prompts)) + length}
    plain = model_engine(model, DRAFTS, pages=len(prompts) * -(-options["longest"] // 128), **options)
    said, bytes_of = {key: list(prompt) for key, prompt in enumerate(prompts)}, {}
    plain.executor.drafter = None  # type: ignore[attr-defined]
    for key, prompt in enumerate(prompts):
        plain.add_request(None, key, params, prompt)
    while plain.has_unfinished_requests():
        for output in plain.step():
            said[output.request_id].append(output.token_id)
        for request in plain._queues.running:
            bytes_of[request.key, request.computed] = state(plain, request)

    drafted = model_engine(model, DRAFTS, pages=pages or 2 * len(prompts) + 2, poison=0xE5, **options)
    drafted.executor.drafter = Injected(said, model.config.text.vocab_size, seed)  # type: ignore[attr-defined]
    for key, prompt in enumerate(prompts):
        drafted.add_request(None, key, params, prompt)
    again = {key: list(prompt) for key, prompt in enumerate(prompts)}
    counts: Counter[int] = Counter()
    while drafted.has_unfinished_requests():
        for output in drafted.step():
            again[output.request_id].append(output.token_id)
            if output.verified == DRAFTS and not output.finished:
                counts[output.accepted] += 1
        drafted.check_conservation()
        for request in drafted._queues.running:
            if request.computed >= request.prompt_len:
                got, want = state(drafted, request), bytes_of[request.key, request.computed]
                assert got == want, (request.key, request.computed, [n for n in want if got[n] != want[n]])
    assert again == said
    assert drafted.pages_in_use == 0
    return counts


def prompts_of(count: int, seed: int, vocab: int = 480) -> list[list[int]]:
    """Prompts of 1 to 150 tokens."""
    rng = np.random.default_rng(seed)
    return [[0, *rng.integers(3, vocab, int(rng.integers(0, 150))).tolist()] for _ in range(count)]


def main() -> None:
    """Run until every accepted length has occurred often enough."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1000, help="occurrences of each accepted length")
    parser.add_argument("--requests", type=int, default=48, help="requests side by side")
    parser.add_argument("--length", type=int, default=110, help="tokens of each")
    parser.add_argument("--model", default="tiny", help="preset, or checkpoint directory")
    arguments = parser.parse_args()
    load_backend("reference")
    model = Model.load(resolve_model(arguments.model), max_model_len=512, max_draft=DRAFTS)
    counts: Counter[int] = Counter()
    started, rounds = time.monotonic(), 0
    with tqdm(total=(DRAFTS + 1) * arguments.times) as bar:
        while min(counts[k] for k in range(DRAFTS + 1)) < arguments.times:
            counts += compare(model, prompts_of(arguments.requests, rounds), arguments.length, rounds)
            rounds += 1
            bar.write(f"round {rounds}: {sorted(counts.items())}")
            bar.update(sum(min(counts[k], arguments.times) for k in range(DRAFTS + 1)) - bar.n)
    print(f"{arguments.model}: every token and every kept byte equals plain decoding's, {rounds} rounds of "
          f"{arguments.requests} requests, {time.monotonic() - started:.0f} s")  # fmt: skip
    for accepted in range(DRAFTS + 1):
        print(f"{accepted} accepted: {counts[accepted]}")


if __name__ == "__main__":
    main()
