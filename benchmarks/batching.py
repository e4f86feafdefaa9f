"""Continuous batching: tokens per second of the whole engine at several batch sizes, and the gain over one request.

    python benchmarks/batching.py [--json] [--model tiny] [--sizes 1,8,32]

All sizes are measured in turns in one process, over one model, so that a machine that changes speed changes them
alike; a size's rate is the median over the turns. The rate counts output tokens over the wall time of the decode steps,
planning, sampling and detokenization included; the step that prefills is not counted. The bar: batch 32 gives at least
8 times the tokens per second of batch 1. Exit status 1 below it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from deepinfer import LLM, SamplingParams
from deepinfer.runtime.engine import LLMEngine

BAR = 8.0
BAR_SIZE = 32


def decode_rate(engine: LLMEngine, batch: int, prompt: Sequence[int], tokens: int) -> float:
    """Output tokens per second of `batch` equal prompts with seeds of their own."""
    for index in range(batch):
        params = SamplingParams(max_tokens=tokens + 1, ignore_eos=True, seq_seed=index)
        engine.add_request(None, index, params, prompt)
    engine.step()  # prefill, and the first token of each
    engine.flush_inflight_reqs()
    started = time.perf_counter()
    count = 0
    while engine.has_unfinished_requests():
        count += len(engine.step())
    seconds = time.perf_counter() - started
    assert count == batch * tokens
    return count / seconds


def run(model: str, sizes: Sequence[int], prompt_tokens: int, tokens: int, turns: int) -> list[dict[str, Any]]:
    """One record per size."""
    with LLM(model, max_num_seqs=max(sizes), max_model_len=prompt_tokens + tokens + 8, seed=0) as llm:
        prompt = (llm.tokenizer.encode("Once upon a time there was a ") * prompt_tokens)[:prompt_tokens]
        decode_rate(llm.engine, max(sizes), prompt, 1)  # first use of every kernel
        rates: dict[int, list[float]] = {size: [] for size in sizes}
        for _ in range(turns):
            for size in sizes:
                rates[size].append(decode_rate(llm.engine, size, prompt, tokens))
    found = {size: median(values) for size, values in rates.items()}
    return [
        {
            "benchmark": "batching",
            "model": model,
            "batch": size,
            "tokens_per_second": rate,
            "gain": rate / found[sizes[0]],
        }
        for size, rate in found.items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--sizes", default=f"1,8,{BAR_SIZE}", help="batch sizes; gains are over the first")
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=8, help="tokens of each request")
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    records = run(arguments.model, sizes, arguments.prompt_tokens, arguments.tokens, arguments.turns)
    for record in records:
        if arguments.json:
            print(json.dumps(record))
        else:
            print(f"batch {record['batch']:4d}: {record['tokens_per_second']:8.1f} tokens/s, {record['gain']:5.2f} x")
    gains = {record["batch"]: record["gain"] for record in records}
    return 1 if sizes[0] == 1 and gains.get(BAR_SIZE, BAR) < BAR else 0


if __name__ == "__main__":
    sys.exit(main())
