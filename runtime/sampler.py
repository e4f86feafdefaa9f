"""Glue between requests and the sampling ops: per-row parameters as tensors, results as plain values.

A row's result depends on its own request only. Nothing here computes on tensors: the arithmetic is in `ops.sampling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..hal.errors import InvalidArgumentError
from ..ops import sampling as ops
from ..ops.embed import gather_rows
from .execute import Drawn, Result, Work
from .request import Request

if TYPE_CHECKING:
    from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class SamplerConfig:
    """Settings of an engine that act on every request.

    Attributes:
        blacklist: inclusive ranges of token ids that are never drawn (DEEPINFER_DECODE_TOKEN_BLACKLIST).
        force_top_k: candidates kept before everything else, 0 for all (DEEPINFER_SAMPLER_FORCE_TOPK).
        sum_smaller: return the mass of the tokens less likely than the drawn one
            (DEEPINFER_COMPUTE_SUM_SMALLER_PROBS).
    """

    blacklist: tuple[range, ...] = ()
    force_top_k: int = 0
    sum_smaller: bool = False

    @classmethod
    def from_environment(cls) -> SamplerConfig:
        from ..hal import env

        return cls(
            blacklist=env.get("DEEPINFER_DECODE_TOKEN_BLACKLIST"),
            force_top_k=env.get("DEEPINFER_SAMPLER_FORCE_TOPK"),
            sum_smaller=env.get("DEEPINFER_COMPUTE_SUM_SMALLER_PROBS"),
        )

    def validate(self, vocab_size: int) -> None:
        """Raises InvalidArgumentError for ids outside the vocabulary, or a blacklist that leaves no token."""
        name = "DEEPINFER_DECODE_TOKEN_BLACKLIST"
        for ids in self.blacklist:
            if ids.stop > vocab_size:
                raise InvalidArgumentError(
                    name, f"{ids.start}..{ids.stop - 1}", f"token ids from 0 to {vocab_size - 1}"
                )
        if sum(len(ids) for ids in self.blacklist) >= vocab_size:
            raise InvalidArgumentError(name, "every token", "at least one token of the vocabulary left")


class Sampler:
    """Draws the tokens of a step."""

    def __init__(self, vocab_size: int, config: SamplerConfig | None = None) -> None:
        self.vocab_size = vocab_size
        self.config = SamplerConfig() if config is None else config
        self.config.validate(vocab_size)
        self._mask = self._blacklist_mask()

    def sample(self, logits: Tensor, work: Sequence[Work]) -> list[Result]:
        """One result per work item.

        Args:
            logits: [L, V] fp32; per item its prompt rows in order, then its sampled row.
            work: the items of the step.
        """
        results = [Result() for _ in work]
        row = 0
        drawn_rows: list[int] = []
        drawn_items: list[int] = []
        prompt_rows: list[int] = []
        for index, item in enumerate(work):
            prompt_rows += range(row, row + len(item.prompt_rows))
            row += len(item.prompt_rows)
            if item.sample:
                drawn_rows.append(row)
                drawn_items.append(index)
                row += 1
        assert row == logits.shape[0], "the model returned another number of logit rows than was asked for"
        if prompt_rows:
            self._prompt(_rows(logits, prompt_rows), work, results)
        if drawn_rows:
            requests = [work[index].request for index in drawn_items]
            for index, drawn in zip(drawn_items, self._draw(_rows(logits, drawn_rows), requests), strict=True):
                results[index].drawn = drawn
        return results

    def _prompt(self, logits: Tensor, work: Sequence[Work], results: list[Result]) -> None:
        targets = [item.request.tokens[item.prompt_rows.start + 1 : item.prompt_rows.stop + 1] for item in work]
        values = ops.token_logprobs(logits, _upload(np.concatenate(targets), logits)).tolist()
        begin = 0
        for target, result in zip(targets, results, strict=True):
            result.prompt_logprobs = values[begin : begin + len(target)]
            begin += len(target)

    def _draw(self, raw: Tensor, requests: Sequence[Request]) -> list[Drawn]:
        params = [request.params for request in requests]
        logits = self._adjust(raw, requests)
        inverse = _upload(np.array([ops.inverse_temperature(p.temperature) for p in params], np.float32), raw)
        kept = ops.sample_filter(
            logits,
            inverse,
            top_k=_optional([max(p.top_k, 0) for p in params], 0, np.int32, raw),
            top_p=_optional([ops.fixed31(p.top_p) for p in params], 1 << 31, np.int64, raw),
            min_p=_optional([ops.fixed31(p.min_p) for p in params], 0, np.int64, raw),
            force_top_k=self.config.force_top_k,
        )
        seeds = np.array([request.seed for request in requests], np.uint64).view(np.int64)
        positions = np.array([request.length for request in requests], np.int64)
        tokens = ops.sample_draw(logits, inverse, kept, _upload(seeds, raw), _upload(positions, raw))
        tokens = self._force_golden(tokens, requests)
        logprobs = ops.token_logprobs(logits, tokens, inverse, kept).tolist()
        valid = kept.count.tolist()
        drawn = [
            Drawn(token, logprob, valid=count > 0)
            for token, logprob, count in zip(tokens.tolist(), logprobs, valid, strict=True)
        ]
        self._report(raw, logits, tokens, inverse, kept, requests, drawn)
        return drawn

    def _report(
        self,
        raw: Tensor,
        logits: Tensor,
        tokens: Tensor,
        inverse: Tensor,
        kept: Any,
        requests: Sequence[Request],
        drawn: list[Drawn],
    ) -> None:
        """Fills in what only some requests ask for."""
        params = [request.params for request in requests]
        most = max(p.top_logprobs for p in params)
        if most:
            ids, values = (t.tolist() for t in ops.top_logprobs(logits, most, inverse, kept))
            for i, p in enumerate(params):
                drawn[i].top_ids, drawn[i].top_logprobs = ids[i][: p.top_logprobs], values[i][: p.top_logprobs]
        if any(p.logprobs is not None for p in params):
            raw_values = ops.token_logprobs(raw, tokens).tolist()
            most = max(p.logprobs or 0 for p in params)
            ids, values = (t.tolist() for t in ops.top_logprobs(raw, most)) if most else ([], [])
            for i, p in enumerate(params):
                if p.logprobs is not None:
                    drawn[i].raw_logprob = raw_values[i]
                if p.logprobs:
                    drawn[i].raw_top_ids, drawn[i].raw_top_logprobs = ids[i][: p.logprobs], values[i][: p.logprobs]
        if self.config.sum_smaller:
            smaller = ops.smaller_mass(logits, inverse, kept, tokens).tolist()
            for i, (part, total) in enumerate(zip(smaller, kept.mass.tolist(), strict=True)):
                drawn[i].sum_smaller = part / total if total else -1.0

    def _force_golden(self, tokens: Tensor, requests: Sequence[Request]) -> Tensor:
        golden = {
            i: request.params.golden_token_ids[request.num_output_tokens]
            for i, request in enumerate(requests)
            if request.num_output_tokens < len(request.params.golden_token_ids or ())
            and request.params.golden_token_ids is not None
        }
        if not golden:
            return tokens
        forced = tokens.cpu().numpy().copy()
        for i, token in golden.items():
            forced[i] = token
        return _upload(forced, tokens)

    def _adjust(self, logits: Tensor, requests: Sequence[Request]) -> Tensor:
        """Penalties, biases, bans and the blacklist; the logits themselves when no row has any."""
        groups: dict[str, Tensor] = {}
        if any(_penalised(request) for request in requests):
            groups |= _penalties(requests, logits)
        biases = [_biases(request) for request in requests]
        if any(biases):
            groups |= _bias_table(biases, logits)
        if self._mask is not None:
            groups["bitmask"] = _upload(np.tile(self._mask, (len(requests), 1)), logits)
        return ops.adjust_logits(logits, **groups) if groups else logits

    def _blacklist_mask(self) -> Array | None:
        if not self.config.blacklist:
            return None
        allowed = np.ones(-(-self.vocab_size // 32) * 32, np.uint8)
        allowed[self.vocab_size :] = 0
        for ids in self.config.blacklist:
            allowed[ids.start : ids.stop] = 0
        return np.packbits(allowed, bitorder="little").view("<i4").astype(np.int32)


def _upload(array: Array, like: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(like.device)


def _rows(logits: Tensor, rows: list[int]) -> Tensor:
    if len(rows) == logits.shape[0]:
        return logits
    return gather_rows(logits, _upload(np.array(rows, np.int32), logits))


def _optional(values: list[int], off: int, dtype: Any, like: Tensor) -> Tensor | None:
    """None when no row uses the filter, so that the op takes its short path."""
    return None if all(value == off for value in values) else _upload(np.array(values, dtype), like)


def _penalised(request: Request) -> bool:
    p = request.params
    return p.repetition_penalty != 1.0 or p.frequency_penalty != 0.0 or p.presence_penalty != 0.0


def _penalties(requests: Sequence[Request], like: Tensor) -> dict[str, Tensor]:
    rows, counts_of_rows, ids_of_rows = [], [], []
    for request in requests:
        p = request.params
        repetition = np.float32(p.repetition_penalty)
        rows.append((repetition, np.float32(1.0 / float(repetition)), p.frequency_penalty, p.presence_penalty))
        seen = np.empty(0, np.int32)
        counts = np.empty(0, np.int32)
        if _penalised(request):
            seen = np.unique(request.tokens[: request.length])
            output, output_counts = np.unique(request.output_tokens, return_counts=True)
            counts = np.zeros(len(seen), np.int32)
            counts[np.searchsorted(seen, output)] = output_counts
        ids_of_rows.append(seen)
        counts_of_rows.append(counts)
    return {
        "penalties": _upload(np.array(rows, np.float32), like),
        "stat_offsets": _offsets([len(ids) for ids in ids_of_rows], like),
        "stat_ids": _upload(np.concatenate(ids_of_rows).astype(np.int32), like),
        "stat_counts": _upload(np.concatenate(counts_of_rows), like),
    }


def _biases(request: Request) -> dict[int, float]:
    p = request.params
    biases = dict(p.logit_bias or {})
    if request.num_output_tokens < p.first_n_token_no_eos:
        biases[request.eos_id] = -np.inf
    return biases


def _bias_table(biases: Sequence[dict[int, float]], like: Tensor) -> dict[str, Tensor]:
    return {
        "bias_offsets": _offsets([len(row) for row in biases], like),
        "bias_ids": _upload(np.array([i for row in biases for i in sorted(row)], np.int32), like),
        "bias_values": _upload(np.array([row[i] for row in biases for i in sorted(row)], np.float32), like),
    }


def _offsets(counts: list[int], like: Tensor) -> Tensor:
    return _upload(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), like)
