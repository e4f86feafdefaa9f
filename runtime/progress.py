"""Counters of an engine."""

from __future__ import annotations

from dataclasses import dataclass

from .outputs import RequestOutput


@dataclass(slots=True)
class EngineStats:
    """Counters since the engine was made. A step that failed is not counted.

    Attributes:
        prompt_tokens: computed. cached_tokens: of prompts, spared by the prefix cache when their request began to run.
        forked_tokens: of prompts, spared since another sample had computed them.
        offloads: those of `preemptions` that went to host memory.
        verified, accepted: drafts that were verified, and those of them that became output.
    """

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    finished: int = 0
    preemptions: int = 0
    forked_tokens: int = 0
    offloads: int = 0
    verified: int = 0
    accepted: int = 0

    def count_drafts(self, output: RequestOutput) -> None:
        """Drafts that a step verified, from its last output."""
        self.verified += output.verified
        self.accepted += output.accepted
