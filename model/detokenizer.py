"""Token ids back to text, one id at a time."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Protocol


class TokenBytes(Protocol):
    """What a detokenizer needs of a tokenizer."""

    def token_bytes(self, token: int) -> bytes: ...

    def is_special(self, token: int) -> bool: ...


class Detokenizer:
    """Streaming decoder of one sequence.

    A character whose bytes are spread over several tokens appears when its last byte is there. Bytes that
    can no longer become a character turn into U+FFFD as soon as that is certain, so the pieces joined equal
    `Tokenizer.decode` of all the ids, however they are cut.

    Args:
        tokenizer: source of the bytes of each token.
        skip_special: leave out tokens flagged special.
    """

    def __init__(self, tokenizer: TokenBytes, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """Text that became certain with this token; often empty inside a multi-byte character."""
        if self._skip_special and self._tokenizer.is_special(token):
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def extend(self, tokens: Iterable[int]) -> str:
        """`push` for several tokens."""
        return "".join(self.push(token) for token in tokens)

    def finish(self) -> str:
        """Text of the bytes still held (U+FFFD for a character cut off by the end). The object starts
        afresh."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest

    @property
    def pending(self) -> bytes:
        """Bytes of an unfinished character that have not been returned as text."""
        return self._decoder.getstate()[0]
