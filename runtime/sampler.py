"""Glue between requests and the sampling ops: per-row parameters as tensors, results as plain values.

A row's result depends on its own request only. Nothing here computes on tensors: the arithmetic is in `ops.sampling`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..hal.errors import InvalidArgumentError
from ..ops import sampling as ops
from ..ops import verify
from ..ops.embed import gather_rows
from ..ops.verify import NO_DRAFT
from .execute import Drawn, Result, Work
from .request import Request
from .structured.drafts import held_rows, why_barred

if TYPE_CHECKING:
    from ..model.draft import DraftPool

Array = np.ndarray[Any, np.dtype[Any]]
IntArray = np.ndarray[Any, np.dtype[np.int32]]


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


@dataclass(frozen=True, slots=True)
class Row:
    """A logit row that draws a token, or confirms or replaces a draft.

    Attributes:
        tokens: of the request, with drafts behind those that are known; the row is behind the first `length`, so that
            the token it decides has this index.
        draft: the draft it decides, NO_DRAFT for a row behind the last draft.
        log2q: row of the drafter's distributions that the draft was drawn from; -1 where it was certain.
        mask: int32 [ceil(V/32)], tokens that may be drawn; None is all.
    """

    request: Request
    tokens: IntArray
    length: int
    draft: int = NO_DRAFT
    log2q: int = -1
    mask: IntArray | None = None

    @property
    def num_output_tokens(self) -> int:
        return self.length - self.request.prompt_len

    @property
    def golden(self) -> int:
        """The token that is forced here, -1 for none."""
        forced, index = self.request.params.golden_token_ids or (), self.num_output_tokens
        return forced[index] if index < len(forced) else -1


class RowParams(NamedTuple):
    """Sampling parameters of rows as the ops take them; filters are None where no row uses them."""

    inverse: Tensor
    top_k: Tensor | None
    top_p: Tensor | None
    min_p: Tensor | None
    seeds: Tensor

    @classmethod
    def of(cls, requests: Sequence[Request], like: Tensor) -> RowParams:
        """Parameters of one row per request, on the device of `like`."""
        params = [request.params for request in requests]
        seeds = np.array([request.seed for request in requests], np.uint64).view(np.int64)
        return cls(
            _upload(np.array([ops.inverse_temperature(p.temperature) for p in params], np.float32), like),
            _optional([max(p.top_k, 0) for p in params], 0, np.int32, like),
            _optional([ops.fixed31(p.top_p) for p in params], 1 << 31, np.int64, like),
            _optional([ops.fixed31(p.min_p) for p in params], 0, np.int64, like),
            _upload(seeds, like),
        )


class Sampler:
    """Draws the tokens of a step and verifies its drafts.

    Args:
        vocab_size, config: as they are.
        pool: what drafts were drawn from, by state slot; None without drafting.
        shared: drafter-invariant mode: a draft is accepted if it is the target's own draw.
    """

    def __init__(
        self,
        vocab_size: int,
        config: SamplerConfig | None = None,
        pool: DraftPool | None = None,
        shared: bool = False,
    ) -> None:
        self.vocab_size = vocab_size
        self.config = SamplerConfig() if config is None else config
        self.config.validate(vocab_size)
        self._mask = self._blacklist_mask()
        self._log2q = None if pool is None or pool.log2q is None else pool.log2q
        self._shared = shared

    @property
    def log2q(self) -> Tensor | None:
        """Distributions that drafts were drawn from, [slots, n, V]; None where verification needs none."""
        return self._log2q

    @property
    def shared(self) -> bool:
        """Whether a draft is accepted if it is the target's own draw."""
        return self._shared

    def static_tables(self, requests: Sequence[Request]) -> dict[str, Array]:
        """Biases and the blacklist, which are the same for every token of a request: row i is one of requests[i].

        Returns:
            Arguments of `ops.adjust_logits`, of 4-byte numbers, to be moved to the device; none where nothing applies.
        """
        found: dict[str, Array] = {}
        biases = [request.params.logit_bias or {} for request in requests]
        if any(biases):
            found |= _bias_arrays(biases)
        if self._mask is not None:
            found["bitmask"] = np.tile(self._mask, (len(requests), 1))
        return found

    def sample(self, logits: Tensor, work: Sequence[Work]) -> list[Result]:
        """One result per work item.

        Args:
            logits: [L, V] fp32; per item its prompt rows in order, then its sampled rows.
            work: the items of the step.
        """
        results = [Result() for _ in work]
        row = 0
        sampled: list[int] = []
        spans: list[tuple[Result, list[Row]]] = []
        prompt_rows: list[int] = []
        for item, result in zip(work, results, strict=True):
            prompt_rows += range(row, row + len(item.prompt_rows))
            row += len(item.prompt_rows)
            if item.sample:
                rows = held_rows(self.rows_of(item), item.drafts)
                spans.append((result, rows))
                sampled += range(row, row + len(rows))
                row += len(item.sampled_rows)
        assert row == logits.shape[0], "the model returned another number of logit rows than was asked for"
        if prompt_rows:
            self._prompt(_rows(logits, prompt_rows), work, results)
        if sampled:
            drawn = self._draw(_rows(logits, sampled), [rows for _, rows in spans])
            for (result, _), tokens in zip(spans, drawn, strict=True):
                result.tokens = tokens
        return results

    def rows_of(self, item: Work) -> list[Row]:
        """The rows of an item that draw, in order."""
        tokens, request = item.tokens(), item.request
        first = -1
        if self._log2q is not None and item.drafts and request.proposal.drawn and request.params.temperature > 0:
            assert request.slot is not None
            first = request.slot.ids[0] * self._log2q.shape[1]
        rows = [
            Row(request, tokens, item.known_end + j, draft, first if first < 0 else first + j)
            for j, draft in enumerate(item.drafts)
        ]
        return [*rows, Row(request, tokens, item.end)]

    def _prompt(self, logits: Tensor, work: Sequence[Work], results: list[Result]) -> None:
        targets = [item.request.tokens[item.prompt_rows.start + 1 : item.prompt_rows.stop + 1] for item in work]
        targets = [np.where(ids < self.vocab_size, ids, -1) for ids in targets]  # tokens of images have none
        values = ops.token_logprobs(logits, _upload(np.concatenate(targets), logits)).tolist()
        begin = 0
        for target, result in zip(targets, results, strict=True):
            result.prompt_logprobs = values[begin : begin + len(target)]
            begin += len(target)

    def _draw(self, raw: Tensor, spans: Sequence[Sequence[Row]]) -> list[list[Drawn]]:
        """The tokens that each request's rows give: its accepted drafts and the token behind them."""
        rows = [row for span in spans for row in span]
        params = RowParams.of([row.request for row in rows], raw)
        logits = self._adjust(raw, rows)
        kept = ops.sample_filter(
            logits,
            params.inverse,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            force_top_k=self.config.force_top_k,
        )
        counts, tokens = self._decide(logits, params, kept, spans)
        said: list[int] = []
        begin = 0
        for span, count in zip(spans, counts, strict=True):
            said += range(begin, begin + count)
            begin += len(span)
        if len(said) < len(rows):  # of rows behind the first rejected draft nothing is reported
            pick = _upload(np.array(said, np.int64), raw)
            adjusted = logits is not raw
            raw = _rows(raw, said)
            logits = _rows(logits, said) if adjusted else raw
            kept, inverse = ops.Filter(*(value[pick] for value in kept)), params.inverse[pick]
        else:
            inverse = params.inverse
        drawn = self._describe(raw, logits, inverse, kept, tokens, [rows[i] for i in said])
        ends = np.cumsum(counts).tolist()
        return [drawn[end - count : end] for end, count in zip(ends, counts, strict=True)]

    def _decide(
        self, logits: Tensor, params: RowParams, kept: ops.Filter, spans: Sequence[Sequence[Row]]
    ) -> tuple[list[int], list[int]]:
        """Tokens per request, and all of them in one list."""
        rows = [row for span in spans for row in span]
        positions = _upload(np.array([row.length for row in rows], np.int64), logits)
        golden = [row.golden for row in rows]
        if all(len(span) == 1 for span in spans):
            tokens = ops.sample_draw(logits, params.inverse, kept, params.seeds, positions).tolist()
            return [1] * len(spans), [t if g < 0 else g for t, g in zip(tokens, golden, strict=True)]

        def put(values: Sequence[int]) -> Tensor:
            return _upload(np.array(values, np.int32), logits)

        drafts = put([row.draft for row in rows])
        log2q = draft_row = None
        if self._log2q is not None and not self._shared:
            log2q, draft_row = self._log2q.flatten(0, 1), put([row.log2q for row in rows])
        found = verify.verify_drafts(
            logits, params.inverse, kept, drafts, params.seeds, positions, log2q, draft_row, self._shared
        )
        lengths = [len(span) for span in spans]
        begin = put([0, *np.cumsum(lengths)[:-1]])
        emitted = verify.accept_prefix(*found, begin, put(lengths), max(lengths), drafts, put(golden))
        counts = [accepted + 1 for accepted in emitted.accepted.tolist()]
        return counts, [t for row, n in zip(emitted.tokens.tolist(), counts, strict=True) for t in row[:n]]

    def _describe(
        self, raw: Tensor, logits: Tensor, inverse: Tensor, kept: ops.Filter, tokens: list[int], rows: Sequence[Row]
    ) -> list[Drawn]:
        """What is told of tokens, one per row."""
        chosen = _upload(np.array(tokens, np.int32), raw)
        logprobs = ops.token_logprobs(logits, chosen, inverse, kept).tolist()
        valid = kept.count.tolist()
        drawn = [
            Drawn(token, logprob, valid=count > 0)
            for token, logprob, count in zip(tokens, logprobs, valid, strict=True)
        ]
        for one, row in zip(drawn, rows, strict=True):
            if not one.valid:
                one.barred = why_barred(row, self._mask)
        self._report(raw, logits, chosen, inverse, kept, [row.request for row in rows], drawn)
        known = [i for i, row in enumerate(rows) if row.log2q >= 0 and tokens[i] == row.draft]
        if known and self._log2q is not None:
            place = _upload(np.array([[rows[i].log2q for i in known], [tokens[i] for i in known]], np.int64), raw)
            for i, value in zip(known, self._log2q.flatten(0, 1)[place[0], place[1]].tolist(), strict=True):
                drawn[i].draft_logprob = max(value * math.log(2), ops.LOGPROB_FLOOR)
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
                if p.top_logprobs:
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

    def _adjust(self, logits: Tensor, rows: Sequence[Row]) -> Tensor:
        """Penalties, biases, bans and the blacklist; the logits themselves when no row has any."""
        groups: dict[str, Tensor] = {}
        if any(_penalised(row.request) for row in rows):
            groups |= _penalties(rows, logits)
        biases = [_biases(row) for row in rows]
        if any(biases):
            groups |= _bias_table(biases, logits)
        masks = self._masks(rows)
        if masks is not None:
            groups["bitmask"] = _upload(masks, logits)
        return ops.adjust_logits(logits, **groups) if groups else logits

    def _masks(self, rows: Sequence[Row]) -> Array | None:
        """Tokens that each row may draw; None where all may draw all."""
        if all(row.mask is None for row in rows):
            return None if self._mask is None else np.tile(self._mask, (len(rows), 1))
        free = np.full(-(-self.vocab_size // 32), -1, np.int32) if self._mask is None else self._mask
        return np.stack([free if row.mask is None else row.mask & free for row in rows])

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


def _penalties(rows: Sequence[Row], like: Tensor) -> dict[str, Tensor]:
    """Statistics of each row's own past; drafts before it belong to that, since they stand if the row counts."""
    factors, counts_of_rows, ids_of_rows = [], [], []
    for row in rows:
        p = row.request.params
        repetition = np.float32(p.repetition_penalty)
        factors.append((repetition, np.float32(1.0 / float(repetition)), p.frequency_penalty, p.presence_penalty))
        seen = np.empty(0, np.int32)
        counts = np.empty(0, np.int32)
        if _penalised(row.request):
            seen = np.unique(row.tokens[: row.length])
            seen = seen[seen < like.shape[-1]]  # not those of images
            said = row.tokens[row.request.prompt_len : row.length]
            output, output_counts = np.unique(said, return_counts=True)
            counts = np.zeros(len(seen), np.int32)
            counts[np.searchsorted(seen, output)] = output_counts
        ids_of_rows.append(seen)
        counts_of_rows.append(counts)
    return {
        "penalties": _upload(np.array(factors, np.float32), like),
        "stat_offsets": _offsets([len(ids) for ids in ids_of_rows], like),
        "stat_ids": _upload(np.concatenate(ids_of_rows).astype(np.int32), like),
        "stat_counts": _upload(np.concatenate(counts_of_rows), like),
    }


def _biases(row: Row) -> dict[int, float]:
    p = row.request.params
    biases = dict(p.logit_bias or {})
    if row.num_output_tokens < p.first_n_token_no_eos:
        biases[row.request.eos_id] = -np.inf
    return biases


def _bias_table(biases: Sequence[dict[int, float]], like: Tensor) -> dict[str, Tensor]:
    return {name: _upload(array, like) for name, array in _bias_arrays(biases).items()}


def _bias_arrays(biases: Sequence[dict[int, float]]) -> dict[str, Array]:
    return {
        "bias_offsets": np.cumsum([0, *(len(row) for row in biases)]).astype(np.int32),
        "bias_ids": np.array([i for row in biases for i in sorted(row)], np.int32),
        "bias_values": np.array([row[i] for row in biases for i in sorted(row)], np.float32),
    }


def _offsets(counts: list[int], like: Tensor) -> Tensor:
    return _upload(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), like)
