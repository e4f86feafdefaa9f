"""Rules that the protocols share: model, thinking, sampling, stop sequences, reasoning of the history."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ..conversation import AssistantMessage, Message, ReasoningEffort, UserMessage
from ..errors import ConversionError
from ..options import ConversionOptions, ReasoningContentBehavior, ThinkingInitialStage
from ..versions import ModelVersion

MAX_STOP_SEQUENCES = 16
MAX_TOP_LOGPROBS = 20
MAX_SEED = (1 << 63) - 1

EFFORTS: Mapping[str, ReasoningEffort | None] = MappingProxyType(
    {
        "none": None,
        "minimal": "low",
        "low": "low",
        "medium": "high",
        "high": "high",
        "xhigh": "xhigh",
        "ultra": "max",
        "max": "max",
    }
)
"""The words for reasoning effort, with the effort that each stands for; None: no thinking."""

THINKING_TYPES: Mapping[str, bool] = MappingProxyType({"adaptive": True, "enabled": True, "disabled": False})


def empty_string(name: str) -> ConversionError:
    """The error for an empty string where there has to be one."""
    return ConversionError(
        f"Invalid '{name}': empty string. Expected a string with minimum length 1, but got an empty string instead."
    )


def resolve_version(model: str, options: ConversionOptions) -> ModelVersion:
    version = options.model_versions_by_name.get(model)
    if version is None:
        names = ", ".join(sorted(options.model_versions_by_name, key=str.encode))
        raise ConversionError(f"The supported API model names are {names}, but you passed {model}.")
    return version


@dataclass(frozen=True, slots=True)
class Thinking:
    """Whether to think, and how much: None exactly when not."""

    on: bool
    effort: ReasoningEffort | None


def resolve_thinking(explicit: bool | None, effort: str | None, options: ConversionOptions) -> Thinking:
    """Thinking from what the request says of it and from its word for effort, if any; the former wins."""
    on = explicit
    if on is None:
        on = options.default_thinking_mode if effort is None else effort != "none"
    return Thinking(on, (EFFORTS.get(effort or "") or "high") if on else None)


# Sampling


def to_single(value: float) -> float:
    """`value` rounded to 32 bits, as sampling parameters are kept."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def shortest_single(value: float) -> float:
    """The double with the fewest decimal digits that rounds to the 32-bit `value`, for printing it."""
    for digits in range(1, 9):
        shorter = float(f"{value:.{digits}g}")
        if to_single(shorter) == value:
            return shorter
    return float(f"{value:.9g}")


@dataclass(frozen=True, slots=True)
class Sampling:
    temperature: float
    top_p: float


def check_temperature(temperature: float | None) -> None:
    if temperature is not None and not 0 <= temperature <= 2:
        raise ConversionError("Invalid temperature value, the valid range of temperature is [0, 2]")


def check_top_p(top_p: float | None) -> None:
    if top_p is not None and not 0 < top_p <= 1:
        raise ConversionError("Invalid top_p value, the valid range of top_p is (0, 1.0]")


def resolve_sampling(
    temperature: float | None, top_p: float | None, version: ModelVersion, thinking: bool, tools_in_effect: bool
) -> Sampling:
    """Temperature and top_p as the version samples; a version may not leave the choice to the request.

    Raises:
        ConversionError: a requested value is out of range.
    """
    check_temperature(temperature)
    check_top_p(top_p)
    requested = 1.0 if top_p is None else top_p
    minimum = version.minimum_thinking_top_p
    if thinking:
        settled = to_single(0.95) if tools_in_effect else 1.0
        if minimum is not None:
            settled = max(requested, to_single(minimum))
        return Sampling(1.0, settled)
    return Sampling(1.0 if temperature is None else temperature, requested if minimum is None else 1.0)


def check_top_logprobs(top_logprobs: int | None) -> None:
    if top_logprobs is not None and top_logprobs > MAX_TOP_LOGPROBS:
        raise ConversionError("Invalid top_logprobs value, the valid range of top_logprobs is [0, 20].")


def check_max_tokens(max_tokens: int | None, thinking: bool, options: ConversionOptions) -> None:
    bound = options.max_tokens_upper_bound(thinking)
    if max_tokens is not None and not 1 <= max_tokens <= bound:
        raise ConversionError(f"Invalid max_tokens value, the valid range of max_tokens is [1, {bound}]")


def check_seed(seed: int | None) -> None:
    if seed is not None and seed > MAX_SEED:
        raise ConversionError("Invalid seed value, the valid range of seed is [0, 2^63)")


def check_stop_sequences(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """Stop sequences from a lone string or a list, in order.

    Raises:
        ConversionError: there are more than 16, or one is empty.
    """
    if isinstance(stop, str):
        if not stop:
            raise empty_string("stop")
        return (stop,)
    sequences = tuple(stop or ())
    if len(sequences) > MAX_STOP_SEQUENCES:
        raise ConversionError(f"Stop string array too long: {len(sequences)}")
    if "" in sequences:
        raise empty_string(f"stop[{sequences.index('')}]")
    return sequences


# History


def mentions_json(messages: Iterable[Message]) -> bool:
    """Whether some message's content has the letters "json" in any case; only ASCII letters have one here."""
    return any(b"json" in message.content.encode().lower() for message in messages)


def fill_reasoning(
    messages: Sequence[Message], thinking: bool, has_tools: bool, behavior: ReasoningContentBehavior, name: str
) -> tuple[Message, ...]:
    """The messages with reasoning as the thinking mode wants it: None when off, a text when on.

    Raises:
        ConversionError: reasoning that had to be passed back is missing, in the words of `name`.
    """
    if behavior is ReasoningContentBehavior.REJECT and thinking:
        _check_reasoning(messages, has_tools, name)
    result: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            reasoning = (message.reasoning_content or "") if thinking else None
            if reasoning != message.reasoning_content:
                message = dataclasses.replace(message, reasoning_content=reasoning)
        result.append(message)
    return tuple(result)


def _check_reasoning(messages: Sequence[Message], has_tools: bool, name: str) -> None:
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            return
        if (
            isinstance(message, AssistantMessage)
            and message.reasoning_content is None
            and (message.tool_calls or has_tools)
        ):
            raise ConversionError(f"The `{name}` in the thinking mode must be passed back to the API.")


def initial_stage(messages: Sequence[Message], thinking: bool) -> ThinkingInitialStage | None:
    """Where the output begins: after a prefix it goes on where the prefix ends."""
    if not thinking:
        return None
    last = messages[-1] if messages else None
    if last is not None and last.prefix:
        if last.content:
            return ThinkingInitialStage.CONTENT_CONTINUATION
        if last.reasoning_content:
            return ThinkingInitialStage.REASONING_CONTINUATION
    return ThinkingInitialStage.REASONING_START
