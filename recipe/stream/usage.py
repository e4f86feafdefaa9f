"""Token counts of a request."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptUsage:
    """Token counts of the prompt, as the engine reports them.

    Args:
        prompt_tokens: length of the prompt.
        prompt_cache_hit_tokens: how many of them were in a cache.

    Raises:
        InvalidArgumentError: a negative count.
    """

    prompt_tokens: int = 0
    prompt_cache_hit_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "prompt_cache_hit_tokens"):
            count = getattr(self, name)
            if count < 0:
                raise InvalidArgumentError(f"{name} is {count}; the allowed range is [0, 2^32)")

    @property
    def prompt_cache_miss_tokens(self) -> int:
        """The tokens that were in no cache; none if the engine reports more hits than tokens."""
        return max(0, self.prompt_tokens - self.prompt_cache_hit_tokens)


NO_PROMPT_USAGE = PromptUsage()


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a request that is done.

    Args:
        completion_tokens: tokens of the output. Ids that still wait for the bytes of a character do not count.
        reasoning_tokens: length of the reasoning text in tokens; None when nobody counted.
    """

    prompt: PromptUsage
    completion_tokens: int
    reasoning_tokens: int | None

    @property
    def total_tokens(self) -> int:
        return self.prompt.prompt_tokens + self.completion_tokens
