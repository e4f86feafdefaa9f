"""What a conversion returns."""

from __future__ import annotations

from dataclasses import dataclass

from ..conversation import Conversation
from ..errors import ConversionError
from ..options import InferenceOptions, ParsingOptions
from ..versions import ModelVersion

DEFAULT_MAX_TOKENS = 8192
DEFAULT_THINKING_MAX_TOKENS = 65536
DEFAULT_MAX_EFFORT_MAX_TOKENS = 131072


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSettings:
    """Base of what a request says about the form of its answer; each protocol has its own."""


@dataclass(frozen=True, slots=True)
class ConversationRequest:
    """A request as the prompt, the engine, the output parser and the events of its protocol need it.

    Args:
        stream: whether the request asks for a streamed response.
        answer: what the events of its protocol need besides; None for a request that was not converted.
    """

    conversation: Conversation
    model_version: ModelVersion
    inference_options: InferenceOptions = InferenceOptions()
    parsing_options: ParsingOptions = ParsingOptions()
    stream: bool = False
    answer: AnswerSettings | None = None

    @property
    def default_max_tokens(self) -> int:
        """Number of output tokens when the request sets none."""
        if not self.conversation.thinking_mode:
            return DEFAULT_MAX_TOKENS
        if self.conversation.reasoning_effort == "max":
            return DEFAULT_MAX_EFFORT_MAX_TOKENS
        return DEFAULT_THINKING_MAX_TOKENS

    def resolve_max_tokens(self, prompt_tokens: int, context_limit: int) -> int:
        """The largest number of output tokens to ask the engine for.

        Args:
            prompt_tokens: length of the prompt in tokens, images counted at their number of tokens.
            context_limit: number of tokens that the model's context holds.

        Raises:
            ConversionError: the prompt, with the requested number of output tokens if there is one, does not fit.
        """
        requested = self.inference_options.max_tokens
        total = prompt_tokens + (requested or 0)
        if total > context_limit:
            raise ConversionError(
                f"This model's maximum context length is {context_limit} tokens. However, you requested {total} tokens "
                f"({prompt_tokens} in the messages, {requested or 0} in the completion). "
                "Please reduce the length of the messages or completion."
            )
        if requested is not None:
            return requested
        return max(1, min(self.default_max_tokens, context_limit - prompt_tokens))
