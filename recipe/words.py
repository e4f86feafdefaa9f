"""Ids of the words of texts, kept from text to text: a look-up is cheaper than tokenising a word again.

A text is cut where its tokenizer splits it in any case, whatever stands further left or right. For DeepSeek's that is
so in front of a space between a printable ASCII character and an ASCII letter: of its patterns only the one of words
takes such a space, as their beginning, and none looks beyond the character next to a match. So the ids of the pieces in
a row are the ids of the text.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from threading import Lock
from typing import Any, TypeAlias

from tokenizers import Tokenizer as HfTokenizer

DEFAULT_WORD_BYTES = 32 << 20
"""Memory that the words of a tokenizer may take, in bytes."""
MAX_WORD = 40
"""Longer words are not kept, in code points."""

Ids: TypeAlias = "list[int]"
EncodeBatch: TypeAlias = Callable[[Sequence[str]], "list[list[int]]"]

_PATTERNS = [
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"""
    "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]
_BORDER = re.compile(r" (?=[A-Za-z])(?<=[!-~] )")
BYTES_OF_ID = 40
"""Of an id in a list, its object included."""
_BYTES_OF_ENTRY = 250  # of the tables and the objects, besides their contents


def has_words(tokenizer: HfTokenizer) -> bool:
    """Whether a tokenizer splits texts as this module takes it to, and has no chance in what it does."""
    if tokenizer.pre_tokenizer is None or getattr(tokenizer.model, "dropout", None):
        return False
    if tokenizer.normalizer is not None and _content(tokenizer.normalizer) != {"type": "Sequence", "normalizers": []}:
        return False
    steps = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in _PATTERNS
    ]
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return bool(_content(tokenizer.pre_tokenizer) == {"type": "Sequence", "pretokenizers": [*steps, last]})


def _content(part: Any) -> Any:
    """A part of a tokenizer as its file has it, which is how the library pickles it."""
    return json.loads(part.__getstate__())


class WordCache:
    """Ids of words, all dropped when they become too many. Safe to share between threads.

    Args:
        encode: what makes the ids of texts; its tokenizer has to be one that `has_words`.
        max_bytes: bound of the memory that the words take.
    """

    def __init__(self, encode: EncodeBatch, max_bytes: int = DEFAULT_WORD_BYTES) -> None:
        self._encode = encode
        self.max_bytes = max_bytes
        self.bytes = 0
        self._firsts: dict[str, Ids] = {}
        self._words: dict[str, Ids] = {}
        self._lock = Lock()

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of each text by itself."""
        cut = [_BORDER.split(text) for text in texts]
        firsts = [words.pop(0) for words in cut]
        of_first, new_firsts = _look_up(self._firsts, set(firsts))
        of_word, new_words = _look_up(self._words, set().union(*cut))
        made = self._encode([*new_firsts, *(f" {word}" for word in new_words)])
        self._keep(self._firsts, zip(new_firsts, made), of_first)
        self._keep(self._words, zip(new_words, made[len(new_firsts) :]), of_word)
        return [
            list(chain(of_first[first], chain.from_iterable(map(of_word.__getitem__, words))))
            for first, words in zip(firsts, cut)
        ]

    def _keep(self, kept: dict[str, Ids], new: Iterable[tuple[str, Ids]], found: dict[str, Ids]) -> None:
        """Add new words to those found, and keep the short ones."""
        made = dict(new)
        found |= made
        short = {word: ids for word, ids in made.items() if len(word) <= MAX_WORD}
        size = sum(sys.getsizeof(word) + BYTES_OF_ID * len(ids) + _BYTES_OF_ENTRY for word, ids in short.items())
        with self._lock:
            if self.bytes + size > self.max_bytes:
                self._firsts.clear()
                self._words.clear()
                self.bytes = 0
            if size <= self.max_bytes:
                kept.update(short)
                self.bytes += size


def _look_up(kept: dict[str, Ids], words: set[str]) -> tuple[dict[str, Ids], list[str]]:
    """Ids of the words that are kept, and the others."""
    found = {word: ids for word in words if (ids := kept.get(word)) is not None}
    return found, [word for word in words if word not in found]
