import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepinfer.hal import errors
from deepinfer.model.presets.vocabulary import TRAILING, tokenizer_json, tokenizer_settings, train_tokenizer
from deepinfer.model.tokenizer import BOS, EOS, IMAGE_SPELLINGS, PAD, SPAN_TOKENS, Tokenizer

VOCABULARY = 512
JSON = tokenizer_json(train_tokenizer(VOCABULARY))
ROUND_TRIP: Tokenizer
CONTROL = [BOS, EOS, PAD, *(spelling for spelling, _ in TRAILING), *SPAN_TOKENS]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    (path / "tokenizer.json").write_text(JSON, encoding="utf-8")
    (path / "tokenizer_config.json").write_text(json.dumps(tokenizer_settings(4096)), encoding="utf-8")
    return path


@pytest.fixture(scope="module", autouse=True)
def _round_trip(directory: Path) -> None:
    """Function-scoped fixtures and property tests do not mix, so these share a module global."""
    global ROUND_TRIP
    ROUND_TRIP = Tokenizer.load(directory, vocab_size=VOCABULARY)


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.load(directory, vocab_size=VOCABULARY)


def write(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    content = json.loads(JSON)
    change(content)
    (path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return path


def test_policy_ids(tokenizer: Tokenizer) -> None:
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == (0, 1, 2)
    assert [tokenizer.special_id(token) for token in (BOS, EOS, PAD)] == [0, 1, 2]
    assert tokenizer.vocab_size == VOCABULARY
    assert tokenizer.image_id == tokenizer.special_id("<｜image｜>")


def test_span_tokens_lie_behind_the_vocabulary(tokenizer: Tokenizer) -> None:
    assert tokenizer.span_ids == range(512, 533)
    assert tokenizer.special_id("<|place_holder_mm_span_0000|>") == 512
    assert tokenizer.special_id("<|place_holder_mm_span_0020|>") == 532
    assert tokenizer.decode([532]) == ""
    assert tokenizer.decode([532], skip_special=False) == "<|place_holder_mm_span_0020|>"
    with pytest.raises(errors.InvalidArgumentError, match="token id.*533.*0 to 532"):
        tokenizer.decode([533])


def test_native_registers_nothing_and_takes_the_policy_of_the_file(directory: Path) -> None:
    native = Tokenizer.load(directory, vocab_size=VOCABULARY, compatibility="native")
    assert len(native.span_ids) == 0
    assert native.encode("mill") == native.encode("mill", bos=False)
    assert native.encode("mill", bos=True)[0] == 0
    with pytest.raises(errors.InvalidArgumentError):
        native.token_bytes(512)
    with pytest.raises(errors.TokenizerError, match="mm_span"):
        native.special_id(SPAN_TOKENS[0])


def test_release_overrules_settings_that_pad_with_eos_and_drop_bos(tmp_path: Path) -> None:
    write(tmp_path, lambda content: None)
    settings = {"pad_token": {"content": EOS}, "add_bos_token": False, "bos_token": {"content": BOS}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    release = Tokenizer.load(tmp_path)
    assert release.pad_id == 2 and release.encode("a")[0] == 0
    native = Tokenizer.load(tmp_path, compatibility="native")
    assert native.pad_id == 1 and native.encode("a")[0] != 0
    own = {"bos": native.bos_id, "eos": native.eos_id, "pad": 1}
    assert Tokenizer.load(tmp_path, compatibility="native", special_ids=own).pad_id == 1
    with pytest.raises(errors.ConfigError, match="pad_token_id.* 2: must be 1, the tokenizer's"):
        Tokenizer.load(tmp_path, compatibility="native", special_ids=own | {"pad": 2})


def test_bos_is_inserted_once_and_on_demand(tokenizer: Tokenizer) -> None:
    plain = tokenizer.encode("Once upon a time", bos=False)
    assert tokenizer.encode("Once upon a time") == [0, *plain]
    assert tokenizer.encode("", bos=False) == [] and tokenizer.encode("") == [0]


@pytest.mark.parametrize("spelling", CONTROL)
def test_text_never_becomes_a_control_token(tokenizer: Tokenizer, spelling: str) -> None:
    text = f"a{spelling}b {spelling}{spelling}"
    ids = tokenizer.encode(text, bos=False)
    assert tokenizer.control_ids.isdisjoint(ids)
    assert tokenizer.decode(ids) == text


@given(
    parts=st.lists(
        st.one_of(st.sampled_from(CONTROL), st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=8)),
        max_size=8,
    )
)
def test_round_trip_keeps_any_text(parts: list[str]) -> None:
    text = "".join(parts)
    ids = ROUND_TRIP.encode(text, bos=False)
    assert ROUND_TRIP.control_ids.isdisjoint(ids)
    assert ROUND_TRIP.decode(ids) == text


@given(ids=st.lists(st.integers(0, VOCABULARY + 20), max_size=30), skip=st.booleans())
def test_streamed_pieces_join_to_the_decoded_text(ids: list[int], skip: bool) -> None:
    stream = ROUND_TRIP.detokenizer(skip_special=skip)
    pieces = [stream.push(token) for token in ids]
    assert "".join(pieces) + stream.finish() == ROUND_TRIP.decode(ids, skip_special=skip)


@given(ids=st.lists(st.integers(0, VOCABULARY - 1), max_size=30), skip=st.booleans())
def test_decode_equals_the_library(ids: list[int], skip: bool) -> None:
    assert ROUND_TRIP.decode(ids, skip_special=skip) == ROUND_TRIP.backend.decode(ids, skip_special_tokens=skip)


def test_encode_equals_the_library_where_no_control_token_is_spelled(tokenizer: Tokenizer) -> None:
    for text in ("def f(x):\n    return x ** 2\n", "1234567 Mühle 小磨坊 🎉", "  two  spaces \t\r\n"):
        assert tokenizer.encode(text, bos=False) == tokenizer.backend.encode(text).ids


def test_truncation_padding_and_template_of_the_file_are_ignored(tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
        content["padding"] = {
            "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
            "pad_id": 2, "pad_type_id": 0, "pad_token": PAD,
        }  # fmt: skip
        content["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": BOS, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {BOS: {"id": BOS, "ids": [0], "tokens": [BOS]}},
        }

    changed = Tokenizer.load(write(tmp_path, change))
    assert changed.encode("one two three four five") == ROUND_TRIP.encode("one two three four five")


def test_control_token_also_listed_in_the_model_stays_out_of_reach(tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["model"]["ignore_merges"] = True  # takes a whole piece that the vocabulary lists
        content["pre_tokenizer"] = {
            "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False,
        }  # fmt: skip
        index = next(token["id"] for token in content["added_tokens"] if token["content"] == "<think>")
        content["model"]["vocab"]["<think>"] = index

    changed = Tokenizer.load(write(tmp_path, change))
    assert changed.backend.encode("<think>").ids == [changed.special_id("<think>")]
    ids = changed.encode("<think>", bos=False)
    assert len(ids) > 1 and changed.control_ids.isdisjoint(ids) and changed.decode(ids) == "<think>"


def test_lone_surrogate_and_bytes_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="surrogate"):
        tokenizer.encode("ok \ud800")
    with pytest.raises(errors.InvalidArgumentError, match="text"):
        tokenizer.encode(b"bytes")  # type: ignore[arg-type]


def test_long_run_of_one_character(tokenizer: Tokenizer) -> None:
    text = "a" * 20000
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_unused_ids_of_a_wider_embedding_decode_to_nothing(directory: Path) -> None:
    wide = Tokenizer.load(directory, vocab_size=600)
    assert wide.token_bytes(550) == b"" and wide.span_ids[0] == 600


# ---- faults of the file


@pytest.mark.parametrize("role, index", [("BOS", 0), ("EOS", 1), ("PAD", 2)])
def test_token_with_another_id_is_refused(tmp_path: Path, role: str, index: int) -> None:
    def swap(content: dict[str, Any]) -> None:
        content["added_tokens"][index]["content"] = "<other>"

    with pytest.raises(errors.TokenizerError, match=f"{role}.*must be {index}"):
        Tokenizer.load(write(tmp_path, swap))


def test_id_outside_the_embedding_is_refused(directory: Path) -> None:
    with pytest.raises(errors.TokenizerError, match="511 is outside the vocabulary of 511"):
        Tokenizer.load(directory, vocab_size=511)


@pytest.mark.parametrize("spelling", IMAGE_SPELLINGS)
def test_every_image_spelling_is_accepted(tmp_path: Path, spelling: str) -> None:
    index = ROUND_TRIP.image_id

    def rename(content: dict[str, Any]) -> None:
        for token in content["added_tokens"]:
            if token["id"] == index:
                token["content"] = spelling

    assert Tokenizer.load(write(tmp_path, rename), image_token_id=index).image_id == index
    with pytest.raises(errors.TokenizerError, match="image_token_id 5 must be"):
        Tokenizer.load(tmp_path, image_token_id=5)


def rename_token(content: dict[str, Any], index: int, spelling: str) -> None:
    vocabulary = content["model"]["vocab"]
    del vocabulary[next(token for token, known in vocabulary.items() if known == index)]
    vocabulary[spelling] = index


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda content: content["model"]["vocab"].pop("!"), "lacks 1 of the 256 bytes"),
        (lambda content: content["model"].update(type="WordPiece"), "only byte-level BPE"),
        (lambda content: content.update(decoder=None), "only byte-level BPE"),
        (lambda content: content["model"].pop("vocab"), "vocabulary must be a JSON object, is None"),
        (lambda content: content["model"].pop("merges"), "not a tokenizer file"),
        (lambda content: rename_token(content, 300, "\u3042"), "byte-level alphabet"),
        (lambda content: content["model"]["vocab"].update({"!": 300}), "have one id, 300"),
        *(
            (lambda content, index=index: content["model"]["vocab"].update({"!": index}), "not an integer from 0")
            for index in (-1, 1.5, "1", None, True, [])
        ),
        *(
            (lambda content, value=value: content.update(added_tokens=value), message)
            for value, message in [
                (5, "must be a list"),
                ([None], "needs an id"),
                ([{"id": 0, "special": True}], "needs an id"),
                ([{"id": "0", "content": "x", "special": True}], "needs an id"),
                ([{"id": -1, "content": "x", "special": True}], "needs an id"),
                ([{"id": 0, "content": "", "special": True}], "needs an id"),
                ([{"id": 0, "content": "\ud800", "special": True}], "needs an id"),
                ([{"id": 0, "content": "x"}], "needs an id"),
                ([{"id": 0, "content": c, "special": True} for c in "xy"], "there twice"),
                ([{"id": i, "content": "x", "special": True} for i in (0, 1)], "there twice"),
            ]
        ),
        (lambda content: content.update(pre_tokenizer=None), "does not come back"),
        (lambda content: content.update(normalizer={"type": "Lowercase"}), "does not come back"),
        (lambda content: content["pre_tokenizer"]["pretokenizers"][0].update(behavior="Removed"), "does not come back"),
    ],
)
def test_broken_file_is_one_typed_error(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    with pytest.raises(errors.TokenizerError, match=message):
        Tokenizer.load(write(tmp_path, change))


def test_missing_file_and_broken_settings(tmp_path: Path) -> None:
    with pytest.raises(errors.TokenizerError, match="no such file"):
        Tokenizer.load(tmp_path)
    write(tmp_path, lambda content: None)
    (tmp_path / "tokenizer_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(errors.TokenizerError, match="not a settings file"):
        Tokenizer.load(tmp_path)
    for settings in ({"bos_token": ["x"]}, {"eos_token": 5}, {"add_bos_token": "yes"}):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
        with pytest.raises(errors.TokenizerError, match=next(iter(settings))):
            Tokenizer.load(tmp_path)
    for name in ("tokenizer_config.json", "tokenizer.json"):
        (tmp_path / name).write_text("[" * 100_000, encoding="utf-8")
        with pytest.raises(errors.TokenizerError, match="not a"):
            Tokenizer.load(tmp_path)


def test_unknown_compatibility_is_refused(directory: Path) -> None:
    with pytest.raises(errors.ConfigError, match="tokenizer_compatibility"):
        Tokenizer.load(directory, compatibility="releases")
