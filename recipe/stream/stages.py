"""What ends each stretch of the output, as a table: stages, the markers that end them, and what text between means.

A marker's pattern is text. `DSML` and `THINK_END` in it stand for special tokens: in text from the engine they are
their spelling, in token ids they are the id alone. A new markup is new rows here; the machine knows none of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from ..options import ParsingOptions, ThinkingInitialStage

# Characters that no text holds (halves of a surrogate pair) stand for tokens that came as ids.
DSML = "\ud800"
THINK_END = "\ud801"
OPAQUE = "\ud802"  # any other special token


class Stage(Enum):
    """Where in the output the parser is."""

    CONTENT = auto()
    JSON = auto()
    AFTER_JSON = auto()
    REASONING = auto()
    CALLS = auto()
    NAME = auto()
    ARGS = auto()
    PARAM_NAME = auto()
    PARAM_TYPE = auto()
    VALUE = auto()
    FINISHED = auto()


class Other(Enum):
    """What becomes of text that is no marker."""

    CONTENT = auto()
    REASONING = auto()
    SPACE = auto()  # one space for each piece of it, as content
    SKIP = auto()
    HOLD = auto()  # kept until the marker that uses it
    ARGUMENT = auto()  # as it is, or escaped in a string value


class Effect(Enum):
    """What a marker puts out, besides ending the text before it."""

    NONE = auto()
    STOP = auto()  # ends the output
    KEEP = auto()  # its own text, as content
    CALL = auto()  # a call with the held name
    PARAMETER = auto()  # `{` or `, `
    NAME = auto()  # the held parameter name as a JSON string, then `: `
    COLON = auto()  # `: `
    STRING = auto()  # `"`, and the value that follows is escaped
    RAW = auto()  # the value that follows is JSON
    END_VALUE = auto()  # `"` after a string value
    END_CALL = auto()  # `{}` or `}`


@dataclass(frozen=True, slots=True)
class Marker:
    """A text that ends a stretch.

    Args:
        pattern: the text; never empty.
        next: the stage that follows; None: the same goes on.
        effect: what it puts out.
        newlines: newlines directly before it belong to it.
        leading: whether newlines at the start of the next stage are dropped.
    """

    pattern: str
    next: Stage | None
    effect: Effect = Effect.NONE
    newlines: bool = False
    leading: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A stage: its markers (of two that end at the same character the first counts), and what other text becomes."""

    markers: tuple[Marker, ...]
    other: Other


_BLOCK = Marker(f"<{DSML}", Stage.CALLS, newlines=True)
_CLOSE = f"</{DSML}"


def _content(options: ParsingOptions, stops: Iterable[Marker]) -> Row:
    opening: Iterable[Marker] = stops
    if options.parse_json_output:
        opening = (
            Marker("```json\n", Stage.JSON),
            Marker("```\n", Stage.JSON),
            Marker("{", Stage.JSON, Effect.KEEP),
            Marker("[", Stage.JSON, Effect.KEEP),
        )
    block = (_BLOCK,) if options.parse_tool_calls else ()
    other = Other.SPACE if options.parse_json_output else Other.CONTENT
    return Row((*opening, *block, Marker(THINK_END, None)), other)


def _parameter_name(options: ParsingOptions) -> Row:
    if options.quirks.parameter_name_ends_at_space:
        return Row((Marker(" ", Stage.PARAM_TYPE, Effect.COLON),), Other.ARGUMENT)
    # The renderer writes names as they are: only the attribute that follows tells where a name ends.
    return Row((Marker('" string="', Stage.PARAM_TYPE, Effect.NAME),), Other.HOLD)


def table(options: ParsingOptions) -> dict[Stage, Row]:
    """The rows for these options."""
    stops = tuple(Marker(text, None, Effect.STOP) for text in options.stop_sequences if text)
    block = (_BLOCK,) if options.parse_tool_calls else ()
    return {
        Stage.CONTENT: _content(options, stops),
        Stage.JSON: Row((*stops, Marker("\n```", Stage.AFTER_JSON)), Other.CONTENT),
        Stage.AFTER_JSON: Row(block, Other.SPACE),
        Stage.REASONING: Row(
            (*block, Marker(THINK_END, Stage.CONTENT, newlines=True, leading=True)),
            Other.REASONING,
        ),
        Stage.CALLS: Row(
            (
                Marker('invoke name="', Stage.NAME),
                Marker(f"{_CLOSE}tool_calls>", Stage.FINISHED),
                Marker(f"{_CLOSE} calls>", Stage.FINISHED),
            ),
            Other.SKIP,
        ),
        Stage.NAME: Row((Marker('"', Stage.ARGS, Effect.CALL),), Other.HOLD),
        Stage.ARGS: Row(
            (
                Marker("parameter name=", Stage.PARAM_NAME, Effect.PARAMETER),
                Marker(_CLOSE, Stage.CALLS, Effect.END_CALL),
            ),
            Other.SKIP,
        ),
        Stage.PARAM_NAME: _parameter_name(options),
        Stage.PARAM_TYPE: Row(
            (Marker('true">', Stage.VALUE, Effect.STRING), Marker('false">', Stage.VALUE, Effect.RAW)),
            Other.SKIP,
        ),
        Stage.VALUE: Row((Marker(_CLOSE, Stage.ARGS, Effect.END_VALUE),), Other.ARGUMENT),
        Stage.FINISHED: Row((), Other.SKIP),
    }


def start(options: ParsingOptions) -> tuple[Stage, bool]:
    """The first stage, and whether newlines at its start are dropped."""
    if options.starts_in_tool_calls:
        return Stage.CALLS, False
    stage = options.thinking_initial_stage
    if stage is ThinkingInitialStage.CONTENT_CONTINUATION:
        return Stage.CONTENT, False
    if stage is None:
        return Stage.CONTENT, True
    return Stage.REASONING, stage is ThinkingInitialStage.REASONING_START


def spelled(pattern: str, options: ParsingOptions) -> str:
    """A pattern as text of the engine spells it."""
    tokens = options.special_tokens
    return pattern.replace(DSML, tokens.dsml).replace(THINK_END, tokens.thinking_end)
