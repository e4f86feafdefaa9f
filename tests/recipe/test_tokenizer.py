"""The tokenizer with and without its added vocabulary, and the bytes of single ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as HfTokenizer

from deepinfer.recipe.errors import TokenizerError
from deepinfer.recipe.special_tokens import IMAGE_SPELLINGS
from deepinfer.recipe.tokenizer import Tokenizer, _byte_alphabet
from recipe_conversations import Generator


def small(**changes: Any) -> str:
    """A byte-level tokenizer of the 256 bytes, one merge and a few added tokens."""
    alphabet = _byte_alphabet()
    content: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": special}
            for number, text, special in [(258, "<｜User｜>", True), (259, "<image>", True), (260, "né", False)]
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<｜User｜>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<｜User｜>": {"id": "<｜User｜>", "ids": [258], "tokens": ["<｜User｜>"]}},
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {**alphabet, "ab": 256, "日": 257}, "merges": ["a b"]},
    }  # fmt: skip
    return json.dumps({**content, **changes}, ensure_ascii=False)


def test_added_vocabulary_is_on_in_encode_and_off_in_encode_plain() -> None:
    tokenizer = Tokenizer.from_str(small())
    assert tokenizer.encode("ab<｜User｜>né") == [256, 258, 260]
    (ids,) = tokenizer.encode_plain(["ab<｜User｜>né"])
    assert ids == [256, *"<｜User｜>né".encode()]


def test_nothing_of_the_file_cuts_pads_or_surrounds() -> None:
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    padding = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
               "pad_type_id": 0, "pad_token": "x"}  # fmt: skip
    tokenizer = Tokenizer.from_str(small(truncation=truncation, padding=padding))
    assert tokenizer.encode("xyzw") == tokenizer.encode_plain(["xyzw"])[0] == list(b"xyzw")
    assert tokenizer.encode_plain(["x", "xyz"]) == [[ord("x")], list(b"xyz")]


def test_the_normalizer_of_the_file_applies() -> None:
    tokenizer = Tokenizer.from_str(small(normalizer={"type": "Lowercase"}))
    assert tokenizer.encode_plain(["AB"]) == [[256]]


def test_added_ids_and_the_spellings_of_the_image_token() -> None:
    tokenizer = Tokenizer.from_str(small())
    assert tokenizer.added_id("<｜User｜>") == 258
    assert tokenizer.added_id("ab") is None and tokenizer.added_id("<｜Assistant｜>") is None
    assert [tokenizer.added_id(spelling) for spelling in IMAGE_SPELLINGS] == [259, 259, 259]
    assert dict(tokenizer.added_tokens) == {258: "<｜User｜>", 259: "<image>", 260: "né"}
    assert [tokenizer.is_added(token_id) for token_id in (256, 258, 260, 261)] == [False, True, True, False]


def test_bytes_of_ids() -> None:
    tokenizer = Tokenizer.from_str(small())
    assert [tokenizer.token_bytes(byte) for byte in range(256)] == [bytes([byte]) for byte in range(256)]
    assert tokenizer.token_bytes(256) == b"ab"
    assert tokenizer.token_bytes(257) == "日".encode()  # not of the byte alphabet
    assert tokenizer.token_bytes(258) == "<｜User｜>".encode()
    assert tokenizer.token_bytes(260) == "né".encode()  # é alone would stand for the byte 0xE9
    assert [tokenizer.token_bytes(token_id) for token_id in (261, 9999, -1, 1 << 40)] == [None] * 4


def test_bytes_need_a_byte_level_decoder() -> None:
    tokenizer = Tokenizer.from_str(small(decoder={"type": "Fuse"}))
    assert tokenizer.token_bytes(258) == "<｜User｜>".encode()
    with pytest.raises(TokenizerError, match="byte-level"):
        tokenizer.token_bytes(256)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(small(), encoding="utf-8")
    assert Tokenizer.from_file(path).encode("ab") == Tokenizer.from_file(str(path)).encode("ab") == [256]
    with pytest.raises(TokenizerError, match="cannot read the tokenizer .*missing.json"):
        Tokenizer.from_file(tmp_path / "missing.json")
    path.write_bytes(b"\xff")
    with pytest.raises(TokenizerError, match="cannot read"):
        Tokenizer.from_file(path)
    for text in ("", "{}", "[1"):
        with pytest.raises(TokenizerError, match="not a tokenizer"):
            Tokenizer.from_str(text)


def test_from_pretrained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    path = tmp_path / "tokenizer.json"
    path.write_text(small(), encoding="utf-8")
    asked: list[object] = []

    def download(*arguments: object, **keywords: object) -> str:
        asked.append((arguments, keywords))
        if keywords["revision"] == "gone":
            raise OSError("no such revision")
        return str(path)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert Tokenizer.from_pretrained("a/b", "main", "t").encode("ab") == [256]
    assert asked == [(("a/b", "tokenizer.json"), {"revision": "main", "token": "t"})]
    with pytest.raises(TokenizerError, match="a/b: no such revision"):
        Tokenizer.from_pretrained("a/b", "gone")


def test_bytes_of_all_ids_as_the_library_decodes(
    tokenizer_texts: dict[str, str], tokenizers: dict[str, Tokenizer]
) -> None:
    library, tokenizer = HfTokenizer.from_str(tokenizer_texts["v4"]), tokenizers["v4"]
    for token_id in range(0, library.get_vocab_size(), 7):
        value = tokenizer.token_bytes(token_id)
        assert value is not None
        assert library.decode([token_id], skip_special_tokens=False) == value.decode(errors="replace")


def test_bytes_of_ids_join_to_the_text(tokenizers: dict[str, Tokenizer]) -> None:
    generator, tokenizer = Generator(5), tokenizers["v4"]
    texts = [generator.text(30) for _ in range(300)]
    for text, ids in zip(texts, tokenizer.encode_plain(texts)):
        assert b"".join(tokenizer.token_bytes(token_id) or b"?" for token_id in ids) == text.encode()
        assert not any(tokenizer.is_added(token_id) for token_id in ids)
        assert b"".join(tokenizer.token_bytes(number) or b"?" for number in tokenizer.encode(text)) == text.encode()
