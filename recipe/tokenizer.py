"""A tokenizer file, used in three ways: with its added vocabulary, without it, and backwards, id by id.

Prompts are encoded without: what a user writes never becomes a special token. The tokenizer without added vocabulary is
made of the model, normalizer and pre-tokenizer of the file, so there is nothing in it that could match.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tokenizers import Tokenizer as HfTokenizer
from tokenizers import decoders

from .errors import TokenizerError
from .special_tokens import IMAGE_SPELLINGS
from .words import WordCache, has_words


class Tokenizer:
    """A Hugging Face tokenizer. Made by `from_file`, `from_str` or `from_pretrained`. Safe to share between threads.

    Attributes:
        added_tokens: the added vocabulary, spelling by id.
    """

    def __init__(self, tokenizer: HfTokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._full = tokenizer
        self._plain = HfTokenizer(tokenizer.model)
        if tokenizer.normalizer is not None:
            self._plain.normalizer = tokenizer.normalizer
        if tokenizer.pre_tokenizer is not None:
            self._plain.pre_tokenizer = tokenizer.pre_tokenizer
        self._words = WordCache(self._encode_whole) if has_words(self._plain) else None
        added = {number: token.content for number, token in tokenizer.get_added_tokens_decoder().items()}
        self.added_tokens: Mapping[int, str] = MappingProxyType(added)
        self._added_ids = {spelling: number for number, spelling in added.items()}
        image_ids = [self._added_ids[spelling] for spelling in IMAGE_SPELLINGS if spelling in self._added_ids]
        for spelling in IMAGE_SPELLINGS:
            if image_ids:
                self._added_ids.setdefault(spelling, image_ids[0])
        self._bytes: dict[int, bytes | None] = {number: spelling.encode() for number, spelling in added.items()}
        self._is_byte_level = isinstance(tokenizer.decoder, decoders.ByteLevel)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Load a `tokenizer.json`.

        Raises:
            TokenizerError: it cannot be read, or is not a tokenizer.
        """
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise TokenizerError(f"cannot read the tokenizer {os.fspath(path)}: {error}") from error
        return cls.from_str(text)

    @classmethod
    def from_str(cls, text: str) -> Tokenizer:
        """Load the contents of a `tokenizer.json`.

        Raises:
            TokenizerError: the text is not a tokenizer.
        """
        try:
            tokenizer = HfTokenizer.from_str(text)
        except Exception as error:  # the library raises Exception itself
            raise TokenizerError(f"not a tokenizer: {error}") from error
        return cls(tokenizer)

    @classmethod
    def from_pretrained(cls, identifier: str, revision: str | None = None, token: str | None = None) -> Tokenizer:
        """Download the `tokenizer.json` of a repository, or take it from the cache, and load it.

        Raises:
            TokenizerError: it cannot be had, or is not a tokenizer.
        """
        from huggingface_hub import hf_hub_download

        try:
            path = hf_hub_download(identifier, "tokenizer.json", revision=revision, token=token)
        except (OSError, ValueError) as error:
            raise TokenizerError(f"cannot get the tokenizer of {identifier}: {error}") from error
        return cls.from_file(path)

    def encode(self, text: str) -> list[int]:
        """Ids of a text in which the spelling of an added token is that token. Nothing is put around them.

        This is not how a prompt is encoded; see `encoding`.
        """
        return list(self._full.encode(text, add_special_tokens=False).ids)

    def encode_plain(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text by itself, without the added vocabulary: whatever a text spells, it stays ordinary."""
        return self._encode_whole(texts) if self._words is None else self._words.encode(texts)

    def _encode_whole(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoded.ids for encoded in self._plain.encode_batch_fast(list(texts), add_special_tokens=False)]

    def added_id(self, spelling: str) -> int | None:
        """Id of an added token, or None. Every known spelling of the image token finds the one that is there."""
        return self._added_ids.get(spelling)

    def is_added(self, token_id: int) -> bool:
        """Whether the id belongs to the added vocabulary."""
        return token_id in self.added_tokens

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes that a token stands for, maybe part of a character; None for an id that does not exist.

        Raises:
            TokenizerError: the tokenizer is not a byte-level one.
        """
        try:
            return self._bytes[token_id]
        except KeyError:
            pass
        if not self._is_byte_level:
            raise TokenizerError("ids can be decoded one by one with a byte-level tokenizer only")
        token = self._full.id_to_token(token_id) if 0 <= token_id < 1 << 32 else None
        value = None if token is None else _bytes_of(token)
        if value is not None:  # unknown ids are without number
            self._bytes[token_id] = value
        return value


def _byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte: itself if it is printable Latin-1, else one from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_alphabet()


def _bytes_of(token: str) -> bytes:
    try:
        return bytes([_BYTES[character] for character in token])
    except KeyError:  # not written in that alphabet
        return token.encode()
