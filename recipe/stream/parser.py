"""The engine's chunks in, a protocol's events out."""

from __future__ import annotations

from typing import Generic

from ..errors import StreamError
from ..events.base import ChunkGenerator, End, EventT, call_id
from ..options import ParsingOptions
from .chunks import FinishReason, InferenceChunk, ReadyChunk, TextChunk, TokensChunk
from .detokenize import Detokenizer, Piece, Vocabulary
from .logprobs import Logprobs
from .machine import Kind, Machine, Output
from .usage import NO_PROMPT_USAGE, Usage


class StreamProcessor(Generic[EventT]):
    """Parses one stream. Push each chunk as it comes, then call `finish`.

    Args:
        generator: of the protocol; consumed.
        options: `ConversationRequest.parsing_options`.
        tokenizer: decodes token chunks, and counts reasoning tokens of thinking output.

    Raises:
        ConsumedError: the generator served another stream.
    """

    def __init__(
        self, generator: ChunkGenerator[EventT], options: ParsingOptions, tokenizer: Vocabulary | None = None
    ) -> None:
        generator.consume()
        self._generator = generator
        self._tokenizer = tokenizer
        self._machine = Machine(options)
        self._detokenizer = (
            None
            if tokenizer is None
            else Detokenizer(tokenizer, options.special_tokens, keep_unfinished=not options.quirks.depends_on_chunks)
        )
        self._repeats_logprobs = options.quirks.logprobs_repeated
        self._forgets_held_calls = options.quirks.depends_on_chunks
        self._begun = self._done = self._closed = False
        self._ready: ReadyChunk | None = None
        self._calls = 0
        self._tokens = 0
        self._has_reasoning = False
        counts_reasoning = tokenizer is not None and options.thinking_initial_stage is not None
        self._reasoning: list[str] | None = [] if counts_reasoning else None  # kept for counting only

    @property
    def finished(self) -> bool:
        """Whether the stream ended, and was not closed."""
        return self._done and not self._closed

    def push(self, chunk: InferenceChunk) -> list[EventT]:
        """The events that a chunk leads to.

        Raises:
            StreamError: the stream ended or is closed; a token chunk without a tokenizer, or with a number of log
                probabilities that is not its number of ids. The last two close the stream.
            TokenizerError: the tokenizer cannot decode single ids. Closes the stream.
        """
        if self._closed:
            raise StreamError("stream processor is closed")
        if self._done:
            raise StreamError("stream processor has finished")
        events: list[EventT] = []
        try:
            if isinstance(chunk, TextChunk):
                self._push_text(chunk, events)
            elif isinstance(chunk, TokensChunk):
                self._push_tokens(chunk, events)
            elif isinstance(chunk, ReadyChunk):
                self._begin(chunk, events)
            else:
                self._end(chunk.reason, events, said_so=True)
        except Exception:
            self.close()
            raise
        return events

    def finish(self) -> list[EventT]:
        """No more chunks: the events of what was held back, and the last ones. None if the stream ended before.

        Raises:
            StreamError: the stream is closed.
        """
        if self._closed:
            raise StreamError("stream processor is closed")
        events: list[EventT] = []
        if not self._done:
            self._end(FinishReason.STOP, events, said_so=False)
        return events

    def close(self) -> None:
        """Drop the stream without an end."""
        self._closed = True

    def _begin(self, ready: ReadyChunk, events: list[EventT]) -> None:
        if not self._begun:
            self._begun = True
            self._ready = ready
            self._generator.begin(ready, events)

    def _push_text(self, chunk: TextChunk, events: list[EventT]) -> None:
        if not self._begun:
            self._begin(ReadyChunk(), events)
        if self._detokenizer is not None:
            self._push_pieces(self._detokenizer.finish(), events)
        self._tokens += chunk.token_count
        outputs: list[Output] = []
        self._machine.feed(chunk.content, outputs)
        self._put(outputs, events)

    def _push_tokens(self, chunk: TokensChunk, events: list[EventT]) -> None:
        if self._detokenizer is None:
            raise StreamError("token chunk received without a tokenizer")
        ids, logprobs = chunk.token_ids, chunk.logprobs
        entries = None
        if logprobs is not None:
            if len(logprobs) != len(ids):
                message = f"invalid log probabilities: {len(logprobs)} log probabilities for {len(ids)} token IDs"
                raise StreamError(message)
            entries = list(zip(ids, logprobs))
        self._push_pieces(self._detokenizer.push(ids, entries), events)

    def _push_pieces(self, pieces: list[Piece], events: list[EventT]) -> None:
        """Feed decoded pieces, as far as no stop sequence comes."""
        if pieces and not self._begun:
            self._begin(ReadyChunk(), events)
        for piece in pieces:
            if self._done:
                return
            self._tokens += piece.count
            if piece.text:
                outputs: list[Output] = []
                source = None
                if piece.entries and self._detokenizer is not None:
                    source = Logprobs(piece.entries, self._detokenizer.bytes_of, repeat=self._repeats_logprobs)
                self._machine.feed(piece.text, outputs, source, True, piece.symbol)
                self._put(outputs, events)

    def _put(self, outputs: list[Output], events: list[EventT]) -> None:
        """Turn outputs of the machine into events."""
        generator = self._generator
        for kind, text, source in outputs:
            if kind is Kind.CONTENT:
                generator.content(text, source, events)
            elif kind is Kind.ARGUMENTS:
                generator.arguments(text, events)
            elif kind is Kind.REASONING:
                self._has_reasoning = True
                if self._reasoning is not None:
                    self._reasoning.append(text)
                generator.reasoning(text, source, events)
            elif kind is Kind.CALL:
                without_reasoning = generator.thinking and not self._has_reasoning
                generator.call(self._calls, call_id(self._calls, without_reasoning=without_reasoning), text, events)
                self._calls += 1
            else:
                self._close_output(FinishReason.STOP, events, stop_sequence=text)

    def _end(self, reason: FinishReason, events: list[EventT], *, said_so: bool) -> None:
        if not self._begun:
            self._begin(ReadyChunk(), events)
        if self._detokenizer is not None:
            self._push_pieces(self._detokenizer.finish(), events)
        if self._done:
            return
        calls = self._calls
        outputs: list[Output] = []
        self._machine.finish(outputs)
        self._put(outputs, events)
        if not self._forgets_held_calls:
            calls = self._calls
        self._close_output(reason, events, made_calls=said_so and calls > 0)

    def _close_output(
        self, reason: FinishReason, events: list[EventT], *, made_calls: bool = False, stop_sequence: str | None = None
    ) -> None:
        self._done = True
        prompt = self._ready.prompt_usage if self._ready is not None else None
        reasoning: int | None = None
        if self._reasoning is not None and self._tokenizer is not None:
            reasoning = len(self._tokenizer.encode("".join(self._reasoning)))
        usage = Usage(prompt or NO_PROMPT_USAGE, self._tokens, reasoning)
        self._generator.end(End(reason, made_calls, stop_sequence, usage), events)
