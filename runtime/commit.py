"""What a drawn token does to a request, and the output that reports it."""

from __future__ import annotations

import time

from .execute import Drawn, Result, Work
from .outputs import NO_TOKEN, FinishReason, RequestOutput
from .request import Proposal, Request


def advance(request: Request, token: int) -> tuple[FinishReason | None, str | int | None, str]:
    """Why the request ends with this token, what matched, and the text that became certain."""
    params = request.params
    at_eos = token == request.eos_id and not params.ignore_eos
    ends = at_eos or (params.stop_token_ids is not None and token in params.stop_token_ids)
    full = request.length - request.prompt_len >= request.max_output_tokens
    text = ""
    if request.decoder is not None:
        if not ends:
            text = request.stops.push(request.decoder.push(token))
        if (ends or full) and request.stops.matched is None:
            text += flush(request)
        if request.stops.matched is not None:
            return FinishReason.STOP, request.stops.matched, text
    if ends:
        return FinishReason.STOP, None if at_eos else token, text
    return (FinishReason.LENGTH if full else None), None, text


def flush(request: Request) -> str:
    """Text held back by the detokenizer and the stop strings."""
    if request.decoder is None:
        return ""
    text = request.stops.push(request.decoder.finish())
    return text if request.stops.matched is not None else text + request.stops.finish()


def output_of(request: Request, text: str, max_num_batched_tokens: int, drawn: Drawn | None = None) -> RequestOutput:
    """An output of a request: with a token and what was asked about it, or without."""
    prompt_len = request.prompt_len
    output = RequestOutput(
        request_id=request.request_id,
        user_id=request.user_id,
        sample_index=request.sample_index,
        seed=request.seed,
        prompt_len=prompt_len,
        token_id=NO_TOKEN if drawn is None else drawn.token,
        text=text,
        num_output_tokens=request.length - prompt_len,
        max_output_tokens=request.max_output_tokens,
        max_num_batched_tokens=max_num_batched_tokens,
        token_logprobs=0.0 if drawn is None else drawn.logprob,
        elapsed=time.monotonic() - request.arrival_time,
    )
    if drawn is not None:
        _report(output, request, drawn)
    return output


def _report(output: RequestOutput, request: Request, drawn: Drawn) -> None:
    """Puts what was asked about a token into its output."""
    output.nextn_logprobs = drawn.draft_logprob
    if drawn.top_ids:
        output.top_token_ids, output.top_logprobs = list(drawn.top_ids), list(drawn.top_logprobs)
    if drawn.raw_logprob is not None:
        output.raw_token_logprobs = drawn.raw_logprob
        output.raw_top_token_ids, output.raw_top_logprobs = list(drawn.raw_top_ids), list(drawn.raw_top_logprobs)
    output.sum_smaller_probs = drawn.sum_smaller
    if not request.prompt_reported:
        output.prompt_logprobs, request.prompt_reported = request.prompt_logprobs, True
        output.cached_tokens = request.cached_tokens or 0


def report_step(output: RequestOutput, proposal: Proposal, item: Work, result: Result, said: int) -> None:
    """Puts what a step drafted and verified into the output of its last token.

    Args:
        output: of that token.
        proposal: drafts that the step began with.
        item, result: rows of the step, and what they gave.
        said: tokens of the result that became output; fewer than it has where one of them is the end.
    """
    verified = len(item.drafts)
    output.draft_tok, output.accept_tok = 1 + verified, said
    if verified or proposal.tokens:
        output.drafted, output.verified = len(proposal.tokens), verified
        output.accepted = min(said, result.accepted)
        output.confidence_score = proposal.confidences
