"""Counters of an engine, and the log line made of them."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from .outputs import RequestOutput
from .queues import Queues

log = logging.getLogger(__name__)


@dataclass(slots=True)
class EngineStats:
    """Counters since the engine was made. A step that failed is not counted.

    Attributes:
        prompt_tokens: computed. cached_tokens: of prompts, spared by the prefix cache when their request began to run.
        verified, accepted: drafts that were verified, and those of them that became output.
    """

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    finished: int = 0
    preemptions: int = 0
    verified: int = 0
    accepted: int = 0

    def count_drafts(self, output: RequestOutput) -> None:
        """Drafts that a step verified, from its last output."""
        self.verified += output.verified
        self.accepted += output.accepted


class ProgressLog:
    """One line every `interval` steps, with the rates since the last; 0 is off."""

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self._mark = (time.monotonic(), 0, 0, 0, 0)

    def after_step(self, stats: EngineStats, queues: Queues) -> None:
        """Call it once per step that ran."""
        if self.interval <= 0 or stats.steps % self.interval:
            return
        then, prompt, output, verified, accepted = self._mark
        now = time.monotonic()
        seconds = max(now - then, 1e-9)
        log.info(
            "step %d: %.1f prompt tokens/s, %.1f output tokens/s, "
            "%d of %d drafts accepted, %d running, %d waiting, %d of %d pages, %d preemptions",
            stats.steps,
            (stats.prompt_tokens - prompt) / seconds,
            (stats.output_tokens - output) / seconds,
            stats.accepted - accepted,
            stats.verified - verified,
            len(queues.running),
            len(queues.waiting),
            queues.pages_in_use,
            queues.pages.capacity,
            stats.preemptions,
        )
        self._mark = (now, stats.prompt_tokens, stats.output_tokens, stats.verified, stats.accepted)
