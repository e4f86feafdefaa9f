"""Conversations to token ids.

A special range of the prompt is the id of its spelling in the added vocabulary. Every plain stretch between two of
them is tokenised by itself, without added vocabulary. A stretch always has the same ids, so those of earlier turns are
kept: the next turn of a conversation tokenises what is new.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from threading import Lock

from .conversation import Conversation
from .errors import EncodingError
from .special_tokens import DEFAULT_SPECIAL_TOKENS, SpecialTokens
from .templates.base import Prompt
from .tokenizer import Tokenizer
from .versions import ModelVersion
from .words import BYTES_OF_ID

DEFAULT_CACHE_BYTES = 128 << 20
"""Memory that an encoding may keep for stretches of earlier prompts, in bytes."""

_ENTRY_BYTES = 200  # of the table and the objects, besides their contents


class StretchCache:
    """Ids of plain stretches, least recently used ones dropped. Safe to share between threads.

    Args:
        tokenizer: what makes the ids.
        max_bytes: bound of the memory that the entries take.
    """

    def __init__(self, tokenizer: Tokenizer, max_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.tokenizer = tokenizer
        self.max_bytes = max_bytes
        self.bytes = 0
        self._entries: OrderedDict[str, list[int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def encode(self, stretches: Iterable[str]) -> dict[str, list[int]]:
        """Ids of every stretch. Those that are not known yet are tokenised together, in parallel when many."""
        found: dict[str, list[int]] = {}
        new: dict[str, None] = {}
        with self._lock:
            for stretch in stretches:
                ids = self._entries.get(stretch)
                if ids is None:
                    new[stretch] = None
                else:
                    self._entries.move_to_end(stretch)
                    found[stretch] = ids
        if new:
            made = dict(zip(new, self.tokenizer.encode_plain(list(new))))
            found |= made
            with self._lock:
                for stretch, ids in made.items():
                    self._keep(stretch, ids)
        return found

    def _keep(self, stretch: str, ids: list[int]) -> None:
        size = _size(stretch, ids)
        if stretch in self._entries or size > self.max_bytes:
            return
        self._entries[stretch] = ids
        self.bytes += size
        while self.bytes > self.max_bytes:
            self.bytes -= _size(*self._entries.popitem(last=False))


def _size(stretch: str, ids: list[int]) -> int:
    return sys.getsizeof(stretch) + BYTES_OF_ID * len(ids) + _ENTRY_BYTES


@dataclass(frozen=True, slots=True)
class Encoding:
    """How conversations become prompts and token ids for one model version.

    Args:
        version: the model version, which names the template.
        tokenizer: needed for `encode` only.
        special_tokens: spellings of the special tokens.
        cache: what keeps the ids of earlier prompts; made when there is none yet.
    """

    version: ModelVersion
    tokenizer: Tokenizer | None = None
    special_tokens: SpecialTokens = DEFAULT_SPECIAL_TOKENS
    cache: StretchCache | None = None

    def __post_init__(self) -> None:
        tokenizer, cache = self.tokenizer, self.cache
        if tokenizer is not None and (cache is None or cache.tokenizer is not tokenizer):
            object.__setattr__(self, "cache", StretchCache(tokenizer))

    def with_tokenizer(self, tokenizer: Tokenizer) -> Encoding:
        return replace(self, tokenizer=tokenizer)

    def with_special_tokens(self, special_tokens: SpecialTokens) -> Encoding:
        return replace(self, special_tokens=special_tokens)

    def render(self, conversation: Conversation) -> Prompt:
        """The prompt as text, with the ranges of its special tokens and its images."""
        return self.version.template.render(conversation, self.special_tokens)

    def encode(self, conversation: Conversation) -> list[int]:
        """The prompt as token ids.

        Raises:
            EncodingError: there is no tokenizer, or it lacks a special token of the prompt.
        """
        if self.tokenizer is None:
            raise EncodingError("no tokenizer is attached to the encoding")
        return self.encode_prompt(self.render(conversation))

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        """As `encode`, of a prompt that is rendered already."""
        if self.tokenizer is None or self.cache is None:
            raise EncodingError("no tokenizer is attached to the encoding")
        stretches = self.cache.encode(piece for piece in prompt.pieces if isinstance(piece, str))
        ids: list[int] = []
        for piece in prompt.pieces:
            if isinstance(piece, str):
                ids.extend(stretches[piece])
            else:
                ids.append(_special_id(self.tokenizer, piece.text))
        return ids


def _special_id(tokenizer: Tokenizer, spelling: str) -> int:
    token_id = tokenizer.added_id(spelling)
    if token_id is None:
        raise EncodingError(f'failed to encode conversation: special token "{spelling}" is not in the added vocabulary')
    return token_id
