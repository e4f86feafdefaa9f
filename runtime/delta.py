"""What a stream says at a time: the outputs of one sample since it was last asked, put together."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from .outputs import RequestOutput


@dataclass(slots=True, kw_only=True)
class OutputDelta:
    """One or more `RequestOutput`s of one sample in a row. The deltas of a sample concatenate to its outputs.

    Attributes:
        request_id: as submitted to the stream.
        user_id, sample_index, seed, prompt_len, max_output_tokens: as in `RequestOutput`.
        token_ids: the tokens, in order; empty where the end came without one.
        text: text that became certain with them.
        token_logprobs: of each token.
        top_token_ids, top_logprobs, raw_token_logprobs, raw_top_token_ids, raw_top_logprobs, sum_smaller_probs: a
            value per token; empty where the request did not ask for them.
        prompt_logprobs, cached_tokens: of the first output.
        num_output_tokens: tokens of the sample so far.
        finished, finish_reason, stop_reason, error: as in its last output.
        drafted, verified, accepted: sums over its outputs.
        merged: outputs that it is made of; more than a step gives where the reader was slower than the engine.
        elapsed: seconds from the arrival of the request to the last of its outputs.
    """

    request_id: Any
    user_id: Any = None
    sample_index: int = 0
    seed: int = 0
    prompt_len: int = 0
    max_output_tokens: int = 0
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    token_logprobs: list[float] = field(default_factory=list)
    top_token_ids: list[list[int]] = field(default_factory=list)
    top_logprobs: list[list[float]] = field(default_factory=list)
    raw_token_logprobs: list[float] = field(default_factory=list)
    raw_top_token_ids: list[list[int]] = field(default_factory=list)
    raw_top_logprobs: list[list[float]] = field(default_factory=list)
    sum_smaller_probs: list[float] = field(default_factory=list)
    prompt_logprobs: list[float] = field(default_factory=list)
    cached_tokens: int = 0
    num_output_tokens: int = 0
    finished: bool = False
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    merged: int = 0
    elapsed: float = 0.0


FEW = 8
"""Outputs that wait as they are."""


class Mailbox:
    """Outputs of one sample that nobody has read yet.

    Few of them wait as they are, which takes the engine's thread the least time. More are put together: 12 bytes and
    the text per token, and what was asked about each; in all no more than the request may say.
    """

    __slots__ = ("_bulk", "_few", "_request_id")

    def __init__(self, request_id: Any) -> None:
        self._request_id = request_id
        self._few: list[RequestOutput] = []
        self._bulk: _Bulk | None = None

    def add(self, output: RequestOutput) -> None:
        """The next output of the sample."""
        if self._bulk is not None:
            self._bulk.add(output)
            return
        few = self._few
        few.append(output)
        if len(few) > FEW:
            self._bulk, self._few = _Bulk(), []
            for one in few:
                self._bulk.add(one)

    def take(self) -> OutputDelta:
        """All of them as one delta; the mailbox is spent."""
        if self._bulk is not None:
            return self._bulk.delta(self._request_id)
        few = self._few
        if len(few) == 1:  # mostly: the reader keeps up, and nothing is to be put together
            (one,) = few
            said = few if one.token_id >= 0 else []
            logprobs = [one.token_logprobs] if said else []
            details = said if _asked(one) else []
            tokens = [one.token_id] if said else []
            return _delta(self._request_id, one, one, tokens, one.text, logprobs, details, one, 1)
        said = [output for output in few if output.token_id >= 0]
        drafts = RequestOutput(request_id=None)
        for output in few:
            _add_drafts(drafts, output)
        return _delta(
            self._request_id,
            few[0],
            few[-1],
            [output.token_id for output in said],
            "".join([output.text for output in few]),
            [output.token_logprobs for output in said],
            [output for output in said if _asked(output)],
            drafts,
            len(few),
        )


def _asked(output: RequestOutput) -> bool:
    """Whether it tells more of its token than what it was."""
    return bool(output.top_token_ids) or output.raw_token_logprobs is not None or output.sum_smaller_probs >= 0


def _add_drafts(total: RequestOutput, output: RequestOutput) -> None:
    total.drafted += output.drafted
    total.verified += output.verified
    total.accepted += output.accepted


class _Bulk:
    """Many outputs in little memory."""

    __slots__ = ("_details", "_drafts", "_first", "_last", "_logprobs", "_merged", "_text", "_tokens")

    def __init__(self) -> None:
        self._tokens, self._logprobs, self._text = array("i"), array("d"), StringIO()
        self._first: RequestOutput | None = None
        self._last: RequestOutput | None = None
        self._details: list[RequestOutput] = []
        self._drafts = RequestOutput(request_id=None)
        self._merged = 0

    def add(self, output: RequestOutput) -> None:
        if output.token_id >= 0:
            self._tokens.append(output.token_id)
            self._logprobs.append(output.token_logprobs)
            if _asked(output):
                self._details.append(output)
        self._text.write(output.text)
        _add_drafts(self._drafts, output)
        self._first = self._first or output
        self._last = output
        self._merged += 1

    def delta(self, request_id: Any) -> OutputDelta:
        assert self._first is not None and self._last is not None
        return _delta(
            request_id,
            self._first,
            self._last,
            self._tokens.tolist(),
            self._text.getvalue(),
            self._logprobs.tolist(),
            self._details,
            self._drafts,
            self._merged,
        )


def _delta(
    request_id: Any,
    first: RequestOutput,
    last: RequestOutput,
    token_ids: list[int],
    text: str,
    token_logprobs: list[float],
    details: list[RequestOutput],
    drafts: RequestOutput,
    merged: int,
) -> OutputDelta:
    """Puts outputs together. `details`: those that tell more of their token; `drafts`: sums of what they drafted."""
    delta = OutputDelta(
        request_id=request_id,
        user_id=first.user_id,
        sample_index=first.sample_index,
        seed=first.seed,
        prompt_len=first.prompt_len,
        max_output_tokens=first.max_output_tokens,
        token_ids=token_ids,
        text=text,
        token_logprobs=token_logprobs,
        prompt_logprobs=first.prompt_logprobs,
        cached_tokens=first.cached_tokens,
        num_output_tokens=last.num_output_tokens,
        finished=last.finished,
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
        error=last.error,
        drafted=drafts.drafted,
        verified=drafts.verified,
        accepted=drafts.accepted,
        merged=merged,
        elapsed=last.elapsed,
    )
    for output in details:
        if output.top_token_ids:
            delta.top_token_ids.append(output.top_token_ids)
            delta.top_logprobs.append(output.top_logprobs)
        if output.raw_token_logprobs is not None:
            delta.raw_token_logprobs.append(output.raw_token_logprobs)
            delta.raw_top_token_ids.append(output.raw_top_token_ids)
            delta.raw_top_logprobs.append(output.raw_top_logprobs)
        if output.sum_smaller_probs >= 0:
            delta.sum_smaller_probs.append(output.sum_smaller_probs)
    return delta
