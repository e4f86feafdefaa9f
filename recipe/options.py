"""What a conversion is told, and what it says about sampling, constraining and parsing the output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Literal, TypeAlias

from .errors import InvalidArgumentError
from .quirks import NO_QUIRKS, Quirks
from .special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialTokens
from .versions import ModelVersion, model_versions

MAX_TOKENS_UPPER_BOUND = 393216
"""Largest number of output tokens that a request may ask for, unless the options say otherwise."""


def _default_model_names() -> Mapping[str, ModelVersion]:
    return {version.model_name: version for version in model_versions()}


class WebSearchBehavior(Enum):
    """What to do with a declaration, choice or block of the web search that a protocol's own service would run."""

    DROP = "drop"
    REJECT = "reject"


class ReasoningContentBehavior(Enum):
    """What to do with an assistant message of a thinking conversation that comes without its reasoning."""

    FILL_EMPTY = "fill_empty"
    REJECT = "reject"


class ThinkingInitialStage(Enum):
    """Where the output of a thinking conversation begins.

    A continuation keeps the newlines that it starts with; a new turn drops them.
    """

    REASONING_START = "reasoning_start"
    REASONING_CONTINUATION = "reasoning_continuation"
    CONTENT_CONTINUATION = "content_continuation"

    @property
    def starts_in_reasoning(self) -> bool:
        return self is not ThinkingInitialStage.CONTENT_CONTINUATION


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionOptions:
    """How requests become conversations. `with_…` methods return changed copies.

    Args:
        default_thinking_mode: whether a request that says nothing about thinking thinks.
        reasoning_content_behavior: what to do about reasoning that history lacks.
        responses_web_search, messages_web_search: what to do about web search of the protocol's own service.
        thinking_max_tokens_upper_bound, non_thinking_max_tokens_upper_bound: largest number of output tokens that a
            request may ask for, with and without thinking.
        special_tokens: spellings of the special tokens.
        model_versions_by_name: the accepted model names, each with the version that it stands for.
        quirks: mistakes to repeat.

    Raises:
        InvalidArgumentError: a bound lies outside [0, 2^32).
    """

    default_thinking_mode: bool = True
    reasoning_content_behavior: ReasoningContentBehavior = ReasoningContentBehavior.FILL_EMPTY
    responses_web_search: WebSearchBehavior = WebSearchBehavior.DROP
    messages_web_search: WebSearchBehavior = WebSearchBehavior.REJECT
    thinking_max_tokens_upper_bound: int = MAX_TOKENS_UPPER_BOUND
    non_thinking_max_tokens_upper_bound: int = MAX_TOKENS_UPPER_BOUND
    special_tokens: SpecialTokens = DEFAULT_SPECIAL_TOKENS
    model_versions_by_name: Mapping[str, ModelVersion] = field(default_factory=_default_model_names)
    quirks: Quirks = NO_QUIRKS

    def __post_init__(self) -> None:
        for name in ("thinking_max_tokens_upper_bound", "non_thinking_max_tokens_upper_bound"):
            bound = getattr(self, name)
            if not 0 <= bound < 1 << 32:
                raise InvalidArgumentError(f"{name} is {bound}; the allowed range is [0, 2^32)")
        names = MappingProxyType(dict(self.model_versions_by_name))
        object.__setattr__(self, "model_versions_by_name", names)

    def max_tokens_upper_bound(self, thinking: bool) -> int:
        return self.thinking_max_tokens_upper_bound if thinking else self.non_thinking_max_tokens_upper_bound

    def with_default_thinking_mode(self, default_thinking_mode: bool) -> ConversionOptions:
        return replace(self, default_thinking_mode=default_thinking_mode)

    def with_reasoning_content_behavior(self, behavior: ReasoningContentBehavior) -> ConversionOptions:
        return replace(self, reasoning_content_behavior=behavior)

    def with_responses_web_search(self, behavior: WebSearchBehavior) -> ConversionOptions:
        return replace(self, responses_web_search=behavior)

    def with_messages_web_search(self, behavior: WebSearchBehavior) -> ConversionOptions:
        return replace(self, messages_web_search=behavior)

    def with_special_tokens(self, special_tokens: SpecialTokens) -> ConversionOptions:
        return replace(self, special_tokens=special_tokens)

    def with_model_alias(self, model: str, version: ModelVersion) -> ConversionOptions:
        """Accept `model` too, or give a name that is accepted another version."""
        return self.with_model_versions_by_name({**self.model_versions_by_name, model: version})

    def with_model_versions_by_name(self, versions: Mapping[str, ModelVersion]) -> ConversionOptions:
        """Accept exactly these names; the default names are dropped unless they are among them."""
        return replace(self, model_versions_by_name=versions)

    def with_thinking_max_tokens_upper_bound(self, bound: int) -> ConversionOptions:
        return replace(self, thinking_max_tokens_upper_bound=bound)

    def with_non_thinking_max_tokens_upper_bound(self, bound: int) -> ConversionOptions:
        return replace(self, non_thinking_max_tokens_upper_bound=bound)

    def with_quirks(self, quirks: Quirks) -> ConversionOptions:
        return replace(self, quirks=quirks)


ConstraintKind: TypeAlias = Literal["json", "regex", "tool_call", "tool_call_required"]


@dataclass(frozen=True, slots=True)
class OutputConstraint:
    """What constrained decoding would enforce on the output. `recipe.grammar` writes it as a grammar.

    Args:
        kind: what `schema` is.
        schema: `json`: a JSON Schema as compact JSON, or empty for any JSON value. `regex`: the expression.
            `tool_call` and `tool_call_required`: compact JSON of the tools, as Chat Completions writes them, with
            `defer_loading` beside `function` for tools that are not loaded.
    """

    kind: ConstraintKind
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceOptions:
    """Sampling as the request and the model version settle it. None: the request does not say.

    Args:
        max_tokens: largest number of output tokens; `ConversationRequest.resolve_max_tokens` supplies a default.
        temperature, top_p: set by every conversion; None only for requests that were not converted.
        logprobs: whether to report log probabilities of the output tokens.
        top_logprobs: number of most likely alternatives to report for each output token, at most 20.
        seed: in [0, 2^63).
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    seed: int | None = None
    output_constraint: OutputConstraint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsingOptions:
    """How the output parser reads the output.

    Args:
        parse_tool_calls: whether tool-call markup means calls.
        starts_in_tool_calls: the prompt opened a block of calls; comes before `thinking_initial_stage`.
        parse_json_output: the output is JSON, possibly fenced; text around it becomes spaces.
        thinking_initial_stage: where a thinking output begins; None when not thinking.
        stop_sequences: texts that end the output.
        special_tokens: spellings of the special tokens.
        quirks: mistakes to repeat.
    """

    parse_tool_calls: bool = True
    starts_in_tool_calls: bool = False
    parse_json_output: bool = False
    thinking_initial_stage: ThinkingInitialStage | None = None
    stop_sequences: tuple[str, ...] = ()
    special_tokens: SpecialTokens = DEFAULT_SPECIAL_TOKENS
    quirks: Quirks = NO_QUIRKS
