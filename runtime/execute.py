"""Carrying a planned step out on the model: batch, forward, sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .request import Request


@dataclass(slots=True)
class Work:
    """Rows start..end-1 of one request in one step.

    Attributes:
        sample: whether the last row's logits draw the next token.
        prompt_rows: positions whose logits give the log-probability of the prompt token that follows.
    """

    request: Request
    start: int
    end: int
    sample: bool
    prompt_rows: range = range(0)


@dataclass(slots=True)
class Drawn:
    """The token drawn for one row, with what was asked about it. `valid` is False when the logits were not numbers."""

    token: int
    logprob: float = 0.0
    top_ids: list[int] = field(default_factory=list)
    top_logprobs: list[float] = field(default_factory=list)
    raw_logprob: float | None = None
    raw_top_ids: list[int] = field(default_factory=list)
    raw_top_logprobs: list[float] = field(default_factory=list)
    sum_smaller: float = -1.0
    valid: bool = True


@dataclass(slots=True)
class Result:
    """What one `Work` gave."""

    drawn: Drawn | None = None
    prompt_logprobs: list[float] = field(default_factory=list)


class Executor(Protocol):
    """Runs the rows of one step. The engine calls it from one thread at a time."""

    def run(self, work: Sequence[Work]) -> list[Result]:
        """One result per work item, in order. Pages and slots of every item stay leased until it returns."""
        ...


class ModelExecutor:
    """Executor over `model.Model`: builds the batch, runs the forward, samples."""

    def __init__(self, model: Any, caches: Any, sampler: Any) -> None:
        self.model = model
        self.caches = caches
        self.sampler = sampler

    def run(self, work: Sequence[Work]) -> list[Result]:
        from ..model.batch import Batch, SequenceSlice

        slices = []
        for item in work:
            request = item.request
            assert request.pages is not None and request.slot is not None
            # A sampled row comes after the prompt, so it is never one of the prompt rows.
            rows = [*item.prompt_rows, item.end - 1] if item.sample else list(item.prompt_rows)
            slices.append(
                SequenceSlice(
                    tokens=request.tokens[: request.length],
                    start=item.start,
                    end=item.end,
                    state_slot=request.slot.ids[0],
                    pages=request.pages.ids,
                    logits=rows,
                )
            )
        batch = Batch.build(slices, self.model.config.text, self.model.device)
        logits = self.model.forward(batch, self.caches)
        results: list[Result] = self.sampler.sample(logits, work)
        return results


def work_on(request: Request, start: int, end: int) -> Work:
    """Rows start..end-1 of a request: the last row of its known text draws, prompt rows tell what is still missing."""
    rows = range(0)
    if request.params.prompt_logprobs:
        first, last = max(start, len(request.prompt_logprobs)), min(end, request.prompt_len - 1)
        rows = range(first, max(first, last))
    return Work(request, start, end, end == request.length, rows)
