"""Texts cut into words have the ids of whole texts; the words that are kept stay within their bound."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from tokenizers import Tokenizer as HfTokenizer

from deepinfer.recipe import words
from deepinfer.recipe.tokenizer import Tokenizer
from deepinfer.recipe.words import MAX_WORD, WordCache, has_words

HOSTILE = (
    *[" "] * 40, *[" the", "a b", " Of"] * 15, *"aZ", "word", "Don't", "x" * 50,
    *"0123456789", *".,;:!?\"'()[]{}<>|~`^_-+=*&%$#@\\/", "\n", "\r", "\t", "\v", "\f", "\0", "\x1c", "\x1f", "\x7f",
    "\x85", "\xa0", "\u1680", "\u2003", "\u200b", "\u2028", "\u202f", "\u3000", "\ufeff", "é", "e\u0301", "\u0301",
    "ß", "ſ", "\u212a", "世界", "ひら", "カナ", "ー", "龥", "龦", "한", "٣", "²", "Ⅷ", "½", "😀", "👩\u200d👩", "€",
    "－", "।", "\ue000", "\U0010ffff", "<｜User｜>", "ª", "µ",
)  # fmt: skip


def hostile(seed: int) -> str:
    rng = random.Random(seed)
    return "".join(rng.choices(HOSTILE, k=rng.choice((1, 3, 10, 40, 200))))


@pytest.fixture(scope="module")
def tokenizer(tokenizers: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizers["v4"]


def test_the_tokenizers_of_both_versions_have_words(tokenizers: dict[str, Tokenizer]) -> None:
    assert all(of._words is not None for of in tokenizers.values())


def test_hostile_texts_have_the_ids_of_whole_ones(tokenizer: Tokenizer) -> None:
    cache = WordCache(tokenizer._encode_whole)
    texts = [hostile(seed) for seed in range(3000)]
    assert sum(len(words._BORDER.split(text)) for text in texts) > 2 * len(texts)
    for text, ids, whole in zip(texts, cache.encode(texts), tokenizer._encode_whole(texts), strict=True):
        assert ids == whole, repr(text)
    assert cache.encode(texts) == tokenizer._encode_whole(texts), "as they are kept"


def test_every_character_beside_a_border(tokenizer: Tokenizer) -> None:
    """What may stand right before a border, and right behind its letter."""
    characters = [*map(chr, range(0x2100)), *"\u2c00\u3000\u3007一ぁァ㐀가\ua000\ufe0f\uff01\U00010000\U0001f600"]
    texts = [text for character in characters for text in (f"a{character} b", f"a b{character} ", f"a {character}b c")]
    assert WordCache(tokenizer._encode_whole).encode(texts) == tokenizer._encode_whole(texts)


@pytest.mark.parametrize("border", [r" (?<=[ !-~] )", r" (?=[0-9])", r" (?=\s)", r"(?<=[a-z])(?=[a-z])"])
def test_a_border_in_the_wrong_place_shows(border: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_BORDER", re.compile(border))
    texts = [hostile(seed) for seed in range(500)]
    assert WordCache(tokenizer._encode_whole).encode(texts) != tokenizer._encode_whole(texts)


def with_parts(**parts: object) -> HfTokenizer:
    """The pre-tokenizer and normalizer of DeepSeek with a vocabulary of two letters; `parts` are other than theirs."""
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in words._PATTERNS
    ]
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    content = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": None,
        "decoder": None, "normalizer": {"type": "Sequence", "normalizers": []},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, last]},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
    }  # fmt: skip
    return HfTokenizer.from_str(json.dumps({**content, **parts}))


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": None},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [], "dropout": 0.5}},
    ],
)
def test_other_tokenizers_take_whole_texts(parts: dict[str, object]) -> None:
    assert has_words(with_parts()) and has_words(with_parts(normalizer=None))
    assert not has_words(with_parts(**parts))


def lengths(texts: Sequence[str]) -> list[list[int]]:
    """In place of a tokenizer."""
    return [[len(text)] for text in texts]


def test_words_are_bounded_and_long_ones_are_not_kept() -> None:
    asked: list[str] = []

    def encode(texts: Sequence[str]) -> list[list[int]]:
        asked.extend(texts)
        return lengths(texts)

    cache = WordCache(encode, max_bytes=20_000)
    for number in range(300):
        assert cache.encode([f"kept of{number} word"]) == [[4, len(f" of{number}"), 5]]
        assert 0 < cache.bytes <= 20_000
    asked.clear()
    cache.encode(["kept word", "kept"])
    assert asked == []
    cache.encode([f"a b{'x' * MAX_WORD}"] * 2)
    cache.encode([f"a b{'x' * MAX_WORD}"])
    assert asked.count(f" b{'x' * MAX_WORD}") == 2
    size = cache.bytes
    many = "a" + "".join(f" w{number}" for number in range(1000))  # more than there is room for
    assert len(cache.encode([many])[0]) == 1001 and cache.bytes <= size


def test_threads() -> None:
    cache = WordCache(lengths, max_bytes=30_000)
    texts = [" ".join(f"w{(number * step) % 211}" for number in range(100)) for step in range(1, 50)]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(cache.encode, [texts] * 8):
            assert found == [[len(word) + bool(place) for place, word in enumerate(text.split(" "))] for text in texts]
