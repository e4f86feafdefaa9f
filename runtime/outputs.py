"""What the engine returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from ..hal.errors import DeepInferError

NO_TOKEN = -1
LOGPROB_FLOOR = -9999.0
"""Log-probabilities are never below this; a token that cannot be drawn has exactly this value."""


class FinishReason(StrEnum):
    """Why a request ended. The values are what outputs carry."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    PREEMPTED = "insufficient_system_resource"
    ERROR = "error"


@dataclass(slots=True, kw_only=True)
class RequestOutput:
    """One generated token of one sample, or the end of a request without a token (`token_id` -1).

    Attributes:
        request_id: as submitted.
        user_id: as submitted.
        sample_index: j of n samples.
        seed: seed of this sample; submitting it as `seq_seed` with n = 1 repeats the sample.
        prompt_len: tokens of the prompt.
        token_id: the token, -1 when the output carries none (abort, preemption, error).
        text: text that became certain with this token: whole characters, nothing of a stop string. The pieces of a
            request concatenate to its text. Empty when the engine does not detokenize.
        finished: whether this is the last output of the sample.
        finish_reason: None until finished; then stop, length, abort, insufficient_system_resource or error.
        stop_reason: the stop string or stop token id that matched; None for the end-of-sequence token and other ends.
        error: what went wrong, for the finish reason error.
        num_output_tokens: tokens of the sample so far, this one included.
        max_output_tokens: the limit in force: min(max_tokens, max_model_len - prompt_len).
        max_num_batched_tokens: row limit of a step of this engine.
        token_logprobs: log-probability of the token in the processed distribution, floored at -9999.
        top_token_ids, top_logprobs: the most likely tokens of the processed distribution, `top_logprobs` of them.
        raw_token_logprobs: log-probability before penalties, temperature and filters; None unless `logprobs` was set.
        raw_top_token_ids, raw_top_logprobs: the most likely tokens of that distribution, `logprobs` of them.
        sum_smaller_probs: processed probability mass of the tokens less likely than this one; -1 when not computed.
        prompt_logprobs: on the first output: log-probability of prompt tokens 1.. under the raw distribution, one less
            than the prompt has tokens. Empty elsewhere and when not asked for.
        cached_tokens: on the first output: prompt tokens that the prefix cache had when the request began to run.
        elapsed: seconds since the request arrived.
        nextn_logprobs: log-probability with which the drafter drew this token, if it was an accepted draft; 1.0 means
            not available: other tokens, temperature 0, drafter-invariant mode.
        drafted, verified, accepted: on the last token of a step: drafts proposed, drafts among the step's rows (no more
            than could still be said), drafts that became tokens. 0 elsewhere.
        draft_tok, accept_tok: on the last token of a step: rows, verified + 1, and tokens that came of them. 0
            elsewhere.
        confidence_score: on the last token of a step: how sure the drafter was of each draft, given those before it.
            Empty without drafting.
    """

    request_id: Any
    user_id: Any = None
    sample_index: int = 0
    seed: int = 0
    prompt_len: int = 0
    token_id: int = NO_TOKEN
    text: str = ""
    finished: bool = False
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    num_output_tokens: int = 0
    max_output_tokens: int = 0
    max_num_batched_tokens: int = 0
    token_logprobs: float = 0.0
    top_token_ids: list[int] = field(default_factory=list)
    top_logprobs: list[float] = field(default_factory=list)
    raw_token_logprobs: float | None = None
    raw_top_token_ids: list[int] = field(default_factory=list)
    raw_top_logprobs: list[float] = field(default_factory=list)
    sum_smaller_probs: float = -1.0
    prompt_logprobs: list[float] = field(default_factory=list)
    cached_tokens: int = 0
    elapsed: float = 0.0
    nextn_logprobs: float = 1.0
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    draft_tok: int = 0
    accept_tok: int = 0
    confidence_score: list[float] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


class InvalidRequestsError(DeepInferError):
    """Some requests of a batch are invalid; none of the batch was queued.

    Attributes:
        errors: index of the prompt in the batch -> the error of that request.
    """

    def __init__(self, errors: dict[int, DeepInferError], total: int) -> None:
        self.errors = dict(sorted(errors.items()))
        self.total = total
        lines = [f"prompt {index}: {error}" for index, error in self.errors.items()]
        super().__init__(f"{len(lines)} of {total} requests are invalid, nothing was run\n" + "\n".join(lines))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.errors, self.total))


class RequestFailedError(DeepInferError):
    """Requests of a batch failed while running; the others finished.

    Attributes:
        failures: index of the prompt in the batch -> what went wrong.
        results: what `generate` would have returned; failed entries hold what came before the failure.
    """

    def __init__(self, failures: dict[int, str], results: list[Any]) -> None:
        self.failures = dict(sorted(failures.items()))
        self.results = results
        lines = [f"prompt {index}: {message}" for index, message in self.failures.items()]
        super().__init__(f"{len(lines)} of {len(results)} requests failed\n" + "\n".join(lines))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.failures, self.results))
