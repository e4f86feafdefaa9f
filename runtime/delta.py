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


class Mailbox:
    """Outputs of one sample that nobody has read yet, as one delta in the making.

    It holds 12 bytes and the text per token, and what was asked about each: no more than the request may say.
    """

    __slots__ = ("_delta", "_logprobs", "_text", "_tokens")

    def __init__(self, request_id: Any, first: RequestOutput) -> None:
        self._delta = OutputDelta(
            request_id=request_id,
            user_id=first.user_id,
            sample_index=first.sample_index,
            seed=first.seed,
            prompt_len=first.prompt_len,
            max_output_tokens=first.max_output_tokens,
        )
        self._tokens, self._logprobs, self._text = array("i"), array("d"), StringIO()

    def add(self, output: RequestOutput) -> None:
        """The next output of the sample."""
        delta = self._delta
        if output.token_id >= 0:
            self._tokens.append(output.token_id)
            self._logprobs.append(output.token_logprobs)
            if output.top_token_ids:
                delta.top_token_ids.append(output.top_token_ids)
                delta.top_logprobs.append(output.top_logprobs)
            if output.raw_token_logprobs is not None:
                delta.raw_token_logprobs.append(output.raw_token_logprobs)
                delta.raw_top_token_ids.append(output.raw_top_token_ids)
                delta.raw_top_logprobs.append(output.raw_top_logprobs)
            if output.sum_smaller_probs >= 0:
                delta.sum_smaller_probs.append(output.sum_smaller_probs)
        self._text.write(output.text)
        if output.prompt_logprobs:
            delta.prompt_logprobs = output.prompt_logprobs
        delta.cached_tokens += output.cached_tokens
        delta.num_output_tokens = output.num_output_tokens
        delta.finished, delta.finish_reason = output.finished, output.finish_reason
        delta.stop_reason, delta.error = output.stop_reason, output.error
        delta.drafted += output.drafted
        delta.verified += output.verified
        delta.accepted += output.accepted
        delta.merged += 1
        delta.elapsed = output.elapsed

    def take(self) -> OutputDelta:
        """The delta; the mailbox is spent."""
        delta = self._delta
        delta.token_ids, delta.token_logprobs = self._tokens.tolist(), self._logprobs.tolist()
        delta.text = self._text.getvalue()
        return delta
