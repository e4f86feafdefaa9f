"""Options of conversions, of sampling and of parsing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from .. import options as plain
from ..quirks import Quirks
from . import arguments as check
from .prompts import SpecialTokens
from .words import ModelVersion, ReasoningContentBehavior, ThinkingInitialStage, WebSearchBehavior, stage_of
from .wrapped import Wrapped, debug

QUIRKS = Quirks.all_on()
"""Everything in this package repeats the original's mistakes."""


def _versions(name: str, versions: object) -> dict[str, Any]:
    given = check.instance(name, versions, dict)
    return {check.text(name, key): check.instance(name, value, ModelVersion).plain for key, value in given.items()}


class ConversionOptions(Wrapped[plain.ConversionOptions]):
    """How requests become conversations. `with_…` methods return changed copies."""

    __slots__ = ()

    def __init__(
        self,
        *,
        default_thinking_mode: bool = True,
        reasoning_content_behavior: ReasoningContentBehavior = ReasoningContentBehavior.FillEmpty,
        responses_web_search: WebSearchBehavior = WebSearchBehavior.Drop,
        messages_web_search: WebSearchBehavior = WebSearchBehavior.Reject,
        thinking_max_tokens_upper_bound: int = plain.MAX_TOKENS_UPPER_BOUND,
        non_thinking_max_tokens_upper_bound: int = plain.MAX_TOKENS_UPPER_BOUND,
    ) -> None:
        behavior = check.instance(
            "reasoning_content_behavior", reasoning_content_behavior, ReasoningContentBehavior
        ).plain
        bounds = (
            check.unsigned("thinking_max_tokens_upper_bound", thinking_max_tokens_upper_bound, check.U32),
            check.unsigned("non_thinking_max_tokens_upper_bound", non_thinking_max_tokens_upper_bound, check.U32),
        )
        self._plain = plain.ConversionOptions(
            default_thinking_mode=check.flag("default_thinking_mode", default_thinking_mode),
            reasoning_content_behavior=behavior,
            responses_web_search=check.instance("responses_web_search", responses_web_search, WebSearchBehavior).plain,
            messages_web_search=check.instance("messages_web_search", messages_web_search, WebSearchBehavior).plain,
            thinking_max_tokens_upper_bound=bounds[0],
            non_thinking_max_tokens_upper_bound=bounds[1],
            quirks=QUIRKS,
        )

    @property
    def default_thinking_mode(self) -> bool:
        return self._plain.default_thinking_mode

    @property
    def model_versions_by_name(self) -> dict[str, ModelVersion]:
        """The accepted model names, each with the version that it stands for."""
        words = {word.plain: word for word in ModelVersion}
        return {name: words[version] for name, version in self._plain.model_versions_by_name.items()}

    @property
    def thinking_max_tokens_upper_bound(self) -> int:
        return self._plain.thinking_max_tokens_upper_bound

    @property
    def non_thinking_max_tokens_upper_bound(self) -> int:
        return self._plain.non_thinking_max_tokens_upper_bound

    @property
    def reasoning_content_behavior(self) -> ReasoningContentBehavior:
        behavior = self._plain.reasoning_content_behavior
        return next(word for word in ReasoningContentBehavior if word.plain is behavior)

    @property
    def responses_web_search(self) -> WebSearchBehavior:
        behavior = self._plain.responses_web_search
        return next(word for word in WebSearchBehavior if word.plain is behavior)

    @property
    def messages_web_search(self) -> WebSearchBehavior:
        behavior = self._plain.messages_web_search
        return next(word for word in WebSearchBehavior if word.plain is behavior)

    @property
    def special_tokens(self) -> SpecialTokens:
        return SpecialTokens._of(self._plain.special_tokens)

    def _with(self, **changes: Any) -> ConversionOptions:
        return ConversionOptions._of(dataclasses.replace(self._plain, **changes))

    def with_default_thinking_mode(self, default_thinking_mode: bool) -> ConversionOptions:
        return self._with(default_thinking_mode=check.flag("default_thinking_mode", default_thinking_mode))

    def with_reasoning_content_behavior(
        self, reasoning_content_behavior: ReasoningContentBehavior
    ) -> ConversionOptions:
        name = "reasoning_content_behavior"
        return self._with(**{name: check.instance(name, reasoning_content_behavior, ReasoningContentBehavior).plain})

    def with_responses_web_search(self, responses_web_search: WebSearchBehavior) -> ConversionOptions:
        behavior = check.instance("responses_web_search", responses_web_search, WebSearchBehavior)
        return self._with(responses_web_search=behavior.plain)

    def with_messages_web_search(self, messages_web_search: WebSearchBehavior) -> ConversionOptions:
        behavior = check.instance("messages_web_search", messages_web_search, WebSearchBehavior)
        return self._with(messages_web_search=behavior.plain)

    def with_special_tokens(self, special_tokens: SpecialTokens) -> ConversionOptions:
        return self._with(special_tokens=check.instance("special_tokens", special_tokens, SpecialTokens)._plain)

    def with_model_alias(self, model: str, model_version: ModelVersion) -> ConversionOptions:
        """Accept `model` too, or give a name that is accepted another version."""
        name = check.text("model", model)
        version = check.instance("model_version", model_version, ModelVersion).plain
        return ConversionOptions._of(self._plain.with_model_alias(name, version))

    def with_model_versions_by_name(self, model_versions_by_name: dict[str, ModelVersion]) -> ConversionOptions:
        """Accept exactly these names."""
        return self._with(model_versions_by_name=_versions("model_versions_by_name", model_versions_by_name))

    def with_thinking_max_tokens_upper_bound(self, thinking_max_tokens_upper_bound: int) -> ConversionOptions:
        name = "thinking_max_tokens_upper_bound"
        return self._with(**{name: check.unsigned(name, thinking_max_tokens_upper_bound, check.U32)})

    def with_non_thinking_max_tokens_upper_bound(self, non_thinking_max_tokens_upper_bound: int) -> ConversionOptions:
        name = "non_thinking_max_tokens_upper_bound"
        return self._with(**{name: check.unsigned(name, non_thinking_max_tokens_upper_bound, check.U32)})


class OutputConstraint(Wrapped[plain.OutputConstraint]):
    """What constrained decoding would enforce on the output."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """`json`, `regex`, `tool_call` or `tool_call_required`."""
        return self._plain.kind

    @property
    def schema(self) -> str:
        """The schema or the tools as compact JSON, or the expression; empty for any JSON value."""
        return self._plain.schema

    def __repr__(self) -> str:
        return f"OutputConstraint(kind={debug(self.kind)}, schema={debug(self.schema)})"


class InferenceOptions(Wrapped[plain.InferenceOptions]):
    """Sampling as a conversion settled it. None: the request does not say."""

    __slots__ = ()

    @property
    def max_tokens(self) -> int | None:
        return self._plain.max_tokens

    @property
    def temperature(self) -> float | None:
        return self._plain.temperature

    @property
    def top_p(self) -> float | None:
        return self._plain.top_p

    @property
    def logprobs(self) -> bool:
        return self._plain.logprobs

    @property
    def top_logprobs(self) -> int | None:
        return self._plain.top_logprobs

    @property
    def seed(self) -> int | None:
        return self._plain.seed

    @property
    def output_constraint(self) -> OutputConstraint | None:
        constraint = self._plain.output_constraint
        return None if constraint is None else OutputConstraint._of(constraint)


class ParsingOptions(Wrapped[plain.ParsingOptions]):
    """How the output is parsed. Its attributes can be set."""

    __slots__ = ()

    def __init__(
        self,
        *,
        parse_tool_calls: bool = True,
        starts_in_tool_calls: bool = False,
        parse_json_output: bool = False,
        thinking_initial_stage: ThinkingInitialStage | None = None,
        stop_sequences: Sequence[str] | None = None,
        special_tokens: SpecialTokens | None = None,
    ) -> None:
        stage = check.optional("thinking_initial_stage", thinking_initial_stage, ThinkingInitialStage)
        spellings = check.optional("special_tokens", special_tokens, SpecialTokens) or SpecialTokens()
        self._plain = plain.ParsingOptions(
            parse_tool_calls=check.flag("parse_tool_calls", parse_tool_calls),
            starts_in_tool_calls=check.flag("starts_in_tool_calls", starts_in_tool_calls),
            parse_json_output=check.flag("parse_json_output", parse_json_output),
            thinking_initial_stage=None if stage is None else stage.plain,
            stop_sequences=_texts("stop_sequences", [] if stop_sequences is None else stop_sequences),
            special_tokens=spellings._plain,
            quirks=QUIRKS,
        )

    def _set(self, **changes: Any) -> None:
        self._plain = dataclasses.replace(self._plain, **changes)

    @property
    def parse_tool_calls(self) -> bool:
        """Whether tool-call markup means calls."""
        return self._plain.parse_tool_calls

    @parse_tool_calls.setter
    def parse_tool_calls(self, value: bool) -> None:
        self._set(parse_tool_calls=check.flag("value", value))

    @property
    def starts_in_tool_calls(self) -> bool:
        """Whether the prompt opened a block of calls."""
        return self._plain.starts_in_tool_calls

    @starts_in_tool_calls.setter
    def starts_in_tool_calls(self, value: bool) -> None:
        self._set(starts_in_tool_calls=check.flag("value", value))

    @property
    def parse_json_output(self) -> bool:
        """Whether the output is JSON, possibly fenced."""
        return self._plain.parse_json_output

    @parse_json_output.setter
    def parse_json_output(self, value: bool) -> None:
        self._set(parse_json_output=check.flag("value", value))

    @property
    def thinking_initial_stage(self) -> ThinkingInitialStage | None:
        """Where a thinking output begins; None when not thinking."""
        return stage_of(self._plain.thinking_initial_stage)

    @thinking_initial_stage.setter
    def thinking_initial_stage(self, value: ThinkingInitialStage | None) -> None:
        stage = check.optional("value", value, ThinkingInitialStage)
        self._set(thinking_initial_stage=None if stage is None else stage.plain)

    @property
    def stop_sequences(self) -> list[str]:
        """Texts that end the output."""
        return list(self._plain.stop_sequences)

    @stop_sequences.setter
    def stop_sequences(self, value: Sequence[str]) -> None:
        self._set(stop_sequences=_texts("value", value))

    @property
    def special_tokens(self) -> SpecialTokens:
        return SpecialTokens._of(self._plain.special_tokens)

    @special_tokens.setter
    def special_tokens(self, value: SpecialTokens) -> None:
        self._set(special_tokens=check.instance("value", value, SpecialTokens)._plain)


def _texts(name: str, values: object) -> tuple[str, ...]:
    return tuple(check.text(name, value) for value in check.sequence(name, values))
