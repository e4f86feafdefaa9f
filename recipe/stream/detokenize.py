"""Token ids to pieces of text, incrementally.

A piece is the text of the ids of one chunk between special tokens, or one special token. Text that ends in the middle
of a character waits, whole, for the ids that complete it.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..special_tokens import SpecialTokens
from .stages import DSML, OPAQUE, THINK_END

REPLACEMENT = "\ufffd"

_DECODER = codecs.getincrementaldecoder("utf-8")


class Vocabulary(Protocol):
    """What is needed of a tokenizer to decode and to count."""

    @property
    def added_tokens(self) -> Mapping[int, str]:
        """The added vocabulary: id to spelling."""

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes that an id stands for; None for an id that the vocabulary lacks."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text, the added vocabulary included."""


class ByteTable(dict[int, bytes]):
    """The bytes of ids, read from a vocabulary when first asked for, at most once each."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self._vocabulary = vocabulary

    def __missing__(self, token_id: int) -> bytes:
        value = self._vocabulary.token_bytes(token_id)
        if value is None:  # not remembered: there is no end of them
            return b""
        self[token_id] = value
        return value


@dataclass(frozen=True, slots=True)
class Piece:
    """Decoded text.

    Args:
        text: empty when the ids stand for nothing.
        count: number of ids.
        symbol: for a special token, the character of `stages` that stands for it; otherwise empty.
        entries: what came along with the ids, one each, or None.
    """

    text: str
    count: int
    symbol: str = ""
    entries: Sequence[Any] | None = None


class Detokenizer:
    """Decodes the ids of one stream.

    Args:
        keep_unfinished: when no ids follow, what waits is decoded up to its last complete character. Otherwise it is
            lost.
    """

    def __init__(self, vocabulary: Vocabulary, special_tokens: SpecialTokens, *, keep_unfinished: bool = True) -> None:
        self._bytes = ByteTable(vocabulary)
        self._added = vocabulary.added_tokens
        self._added_ids = frozenset(self._added)
        self._symbols = {special_tokens.dsml: DSML, special_tokens.thinking_end: THINK_END}
        self._keep_unfinished = keep_unfinished
        self._decoder = _DECODER("replace")
        self._forget()

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes of an id; none for an id that the vocabulary lacks."""
        return self._bytes[token_id]

    def _forget(self) -> None:
        # What waits: ids, the text of their complete characters, what came along. The decoder holds the bytes left.
        self._ids: list[int] = []
        self._texts: list[str] = []
        self._entries: list[Any] | None = []  # None: some ids came without
        self._decoder.reset()

    def push(self, ids: Sequence[int], entries: Sequence[Any] | None = None) -> list[Piece]:
        """Decode `ids`; `entries`, if given, has one entry per id."""
        pieces: list[Piece] = []
        begin = 0
        if not self._added_ids.isdisjoint(ids):
            for index, token_id in enumerate(ids):
                text = self._added.get(token_id)
                if text is None:
                    continue
                self._ordinary(ids[begin:index], entries and entries[begin:index], pieces)
                symbol = self._symbols.get(text, OPAQUE)
                self._special(text, symbol, entries and entries[index : index + 1], pieces)
                begin = index + 1
        self._ordinary(ids[begin:] if begin else ids, entries and entries[begin:], pieces)
        return pieces

    def _ordinary(self, ids: Sequence[int], entries: Sequence[Any] | None, pieces: list[Piece]) -> None:
        """Decode ids of no special token, after what waits."""
        if not ids:
            return
        encoded = b"".join(map(self._bytes.__getitem__, ids))
        if not self._ids:
            text = encoded.decode("utf-8", "replace")
            if text and text[-1] != REPLACEMENT:
                pieces.append(Piece(text, len(ids), "", entries))
                return
        text = self._decoder.decode(encoded)
        if text:
            self._texts.append(text)
        self._ids += ids
        if entries is None:
            self._entries = None
        elif self._entries is not None:
            self._entries += entries
        if self._texts and self._texts[-1][-1] != REPLACEMENT and not self._decoder.getstate()[0]:
            self._take(len(self._ids), pieces)

    def _special(self, text: str, symbol: str, entries: Sequence[Any] | None, pieces: list[Piece]) -> None:
        """A special token ends what waits: bytes that make no character are replaced."""
        count = 1
        if self._ids:
            self._texts.append(self._decoder.decode(b"", True))
            if any(self._texts):
                self._take(len(self._ids), pieces)
            else:  # ids that stand for nothing go with the next piece
                count += len(self._ids)
                entries = entries and self._entries and [*self._entries, *entries]
                self._forget()
        pieces.append(Piece(text, count, symbol, entries))

    def _take(self, count: int, pieces: list[Piece]) -> None:
        """Make a piece of what waits, its first `count` ids."""
        pieces.append(Piece("".join(self._texts), count, "", self._entries and self._entries[:count]))
        self._forget()

    def finish(self) -> list[Piece]:
        """No ids follow, or text does: what waits, without the bytes at its end that make no character."""
        pieces: list[Piece] = []
        if self._keep_unfinished and self._ids:
            unfinished = len(self._decoder.getstate()[0])
            count = len(self._ids)
            while unfinished > 0:
                count -= 1
                unfinished -= len(self._bytes[self._ids[count]])
            self._take(count, pieces)
        return pieces
