"""How far bounded replay moves next-token distributions from those of the exact model, and how many rows it saves.

    python benchmarks/replay.py [--model tiny] [--keep 22,44,88] [--modes mask,compact,resume] [--prompts N]
        [--prompt-tokens P] [--continuation D] [--json]

Prompts are P tokens of a text from different places of it, followed by the D tokens that the text goes on with. Every
case gives D + 1 distributions per prompt: behind the prompt, and behind each token of the continuation, which is
decoded exactly on top of what the prompt left. They are compared with the exact model's:

* kl, kl_max: mean and largest Kullback-Leibler divergence of the case from the exact model, in nats;
* top1: share of positions whose most likely token is the same;
* rows: rows of `sparse_attention` in all layers while the prompt is computed, as a share of the exact model's;
* flops: the same of the floating-point operations of all ops. Both come from counters of op calls.

Cases: `mask` and `compact` truncate the prompt and keep its last K tokens (see docs/engine.md). `resume` replays the
last K tokens in all layers over the compressed KV of the exact model, with no window keys before them: what is left to
do where a store kept the pages of a prompt and nothing else. `rounding` is the exact model with other legitimate
roundings and orders of summation, the distance below which no two implementations can be told apart.

Exit status 1 when mask and compact differ in a bit.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from deepinfer.conformance.variants import installed, variants
from deepinfer.hal.catalog import load_backend
from deepinfer.model.batch import Batch, SequenceSlice
from deepinfer.model.caches import Caches
from deepinfer.model.hub import resolve_model
from deepinfer.model.presets.corpus import training_text
from deepinfer.model.tokenizer import Tokenizer
from deepinfer.model.transformer import Model
from deepinfer.model.truncation import EXACT, Truncation
from deepinfer.ops.counting import counting

MODES = ("mask", "compact", "resume")


class Outcome(NamedTuple):
    """Logits fp64 [prompts * (D + 1), vocab], and what computing the prompts took."""

    logits: torch.Tensor
    rows: int
    flops: float


class Texts:
    """Prompts and their continuations over one model, each with a state slot and pages of its own."""

    def __init__(self, model: Model, texts: Sequence[Sequence[int]], prompt_tokens: int) -> None:
        self.model = model
        self.texts = [np.array(ids, np.int32) for ids in texts]
        self.prompt = prompt_tokens
        self.length = len(self.texts[0])
        self.each = model.cache_layout.pages_for(self.length)

    def caches(self) -> Caches:
        """Caches full of bytes that are no numbers, so that reading what nobody wrote shows."""
        made = self.model.new_caches(1 + self.each * len(self.texts), 1 + len(self.texts))
        made.state.fill_(0xFF)
        return made

    def forward(
        self, caches: Caches, start: int, end: int, logits: range, truncation: Truncation = EXACT, valid_start: int = 0
    ) -> torch.Tensor:
        """Rows start..end-1 of every text, in one step."""
        keep = truncation.keep_from(self.prompt)
        slices = [
            SequenceSlice(
                ids, start, end, 1 + j, range(1 + j * self.each, 1 + (j + 1) * self.each), logits, valid_start, keep
            )
            for j, ids in enumerate(self.texts)
        ]
        text, compact = self.model.config.text, truncation.compact
        return self.model.forward(Batch.build(slices, text, self.model.device, compact=compact), caches)

    def run(self, truncation: Truncation = EXACT, *, resumed: Caches | None = None, keep: int = 0) -> Outcome:
        """The prompts, then their continuations. `resumed`: caches whose pages are taken over up to the last `keep`."""
        caches, start, last = self.caches(), 0, self.prompt - 1
        if resumed is not None:
            caches.pages.copy_(resumed.pages)
            start = self.prompt - keep
        with counting() as counts:
            first = self.forward(caches, start, self.prompt, range(last, self.prompt), truncation, start)
        rest = range(self.prompt, self.length)
        others = self.forward(caches, self.prompt, self.length, rest, truncation, start)
        logits = torch.cat([first.unsqueeze(1), others.unflatten(0, (len(self.texts), -1))], dim=1).flatten(0, 1)
        self.left = caches
        return Outcome(logits.double(), counts.total_rows("sparse_attention"), counts.total_flops)


def compare(exact: Outcome, other: Outcome) -> dict[str, float]:
    """The figures of a case."""
    p, q = exact.logits.log_softmax(-1), other.logits.log_softmax(-1)
    divergence = (p.exp() * (p - q)).sum(-1).clamp(min=0.0)
    return {
        "kl": float(divergence.mean()),
        "kl_max": float(divergence.max()),
        "top1": float((p.argmax(-1) == q.argmax(-1)).double().mean()),
        "rows": other.rows / exact.rows,
        "flops": other.flops / exact.flops,
    }


def run(
    name: str, keeps: Sequence[int], modes: Sequence[str], prompts: int, prompt_tokens: int, continuation: int
) -> list[dict[str, Any]]:
    """One record per case; in the later of mask and compact, `same_bits` says whether they agree."""
    load_backend("reference")
    path = resolve_model(name)
    model = Model.load(path, max_model_len=prompt_tokens + continuation + 8, max_draft=5)
    ids = Tokenizer.load(path).encode("\n\n".join(training_text()))
    length = prompt_tokens + continuation
    step = max(1, (len(ids) - length) // prompts)
    texts = Texts(model, [(ids[j * step :] + ids)[:length] for j in range(prompts)], prompt_tokens)
    exact = texts.run()
    pages = texts.left
    shape = {"model": name, "prompts": prompts, "prompt_tokens": prompt_tokens, "positions": len(exact.logits)}
    with installed(variants()["all"]):  # pinned, so past the counters; the work is the same
        other = exact._replace(logits=texts.run().logits)
    records = [shape | {"case": "rounding", "keep": prompt_tokens} | compare(exact, other)]
    for keep in keeps:
        seen: dict[str, Outcome] = {}
        for mode in modes:
            if mode == "resume":
                found = texts.run(resumed=pages, keep=keep)
            else:
                truncation = Truncation(mode, keep)
                truncation.check(model.cache_layout.ring_slots, model.topology, keep_tokens="--keep")
                found = seen[mode] = texts.run(truncation)
            records.append(shape | {"case": mode, "keep": keep} | compare(exact, found))
            if len(seen) == 2 and mode in seen:
                records[-1]["same_bits"] = torch.equal(seen["mask"].logits, seen["compact"].logits)
    model.close()
    return records


def main() -> int:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny", help="tiny, kernel, a directory or a hub id")
    parser.add_argument("--keep", type=numbers, default=[22, 44, 88, 176], help="kept tokens, comma-separated")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=list(MODES), help=", ".join(MODES))
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--prompt-tokens", type=int, default=300)
    parser.add_argument("--continuation", type=int, default=32, help="tokens behind each prompt")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    args = parser.parse_args()
    if unknown := set(args.modes) - set(MODES):
        parser.error(f"--modes: got {', '.join(sorted(unknown))}; allowed: {', '.join(MODES)}")
    if not all(0 < keep <= args.prompt_tokens for keep in args.keep):
        parser.error(f"--keep: got {args.keep}; allowed: 1 to --prompt-tokens = {args.prompt_tokens}")
    shape = (args.prompts, args.prompt_tokens, args.continuation)
    records = run(args.model, args.keep, args.modes, *shape)
    if not args.json:
        print(f"{'model':8}{'case':10}{'keep':>6}{'kl':>12}{'kl_max':>12}{'top1':>8}{'rows':>8}{'flops':>8}")
    for r in records:
        line = f"{r['model']:8}{r['case']:10}{r['keep']:6d}{r['kl']:12.2e}{r['kl_max']:12.2e}{r['top1']:8.3f}"
        print(json.dumps(r) if args.json else f"{line}{r['rows']:8.3f}{r['flops']:8.3f}")
    if any(r.get("same_bits") is False for r in records):
        print("mask and compact differ", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
