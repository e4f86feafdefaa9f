"""Token ids are those of the recorded cases and of the wheel; the cache changes none and stays within its bound."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from deepinfer.recipe.conversation import AssistantMessage, Conversation, ImageSource, Message, UserMessage
from deepinfer.recipe.encoding import Encoding, StretchCache
from deepinfer.recipe.errors import EncodingError
from deepinfer.recipe.special_tokens import IMAGE_SPELLINGS, SpecialTokens
from deepinfer.recipe.tokenizer import Tokenizer
from deepinfer.recipe.versions import model_version
from recipe_cases import VERSIONS, recorded
from recipe_conversations import Generator, build


class CountingTokenizer(Tokenizer):
    """Notes the stretches that are tokenised."""

    def __init__(self, of: Tokenizer) -> None:
        self.__dict__ |= of.__dict__
        self.asked: list[str] = []

    def encode_plain(self, texts: Any) -> list[list[int]]:
        self.asked += texts
        return super().encode_plain(texts)


def chat(turns: int) -> Conversation:
    messages: list[Message] = []
    for turn in range(turns):
        messages += [UserMessage(f"question {turn}"), AssistantMessage(f"answer {turn}")]
    return Conversation((*messages, UserMessage("last")), thinking_mode=False)


@pytest.mark.parametrize("case", recorded("encode"))
def test_recorded(case: dict[str, Any], tokenizers: dict[str, Tokenizer]) -> None:
    name = case.get("tokenizer", case["model_version"])
    encoding = Encoding(model_version(case["model_version"]), tokenizers[name] if name else None)
    conversation = build(case["conversation"])
    if "error" in case["expected"]:
        with pytest.raises(EncodingError) as caught:
            encoding.encode(conversation)
        assert str(caught.value) == case["expected"]["error"]["message"]
    else:
        assert encoding.encode(conversation) == case["expected"]["token_ids"]


@pytest.mark.parametrize("seed", range(5))
def test_random_conversations_as_the_wheel(
    seed: int, wheel: Any, wheel_encodings: dict[str, Any], tokenizers: dict[str, Tokenizer]
) -> None:
    generator = Generator(3000 + seed)
    ours = {version: Encoding(model_version(version), tokenizers[version]) for version in VERSIONS}
    for _ in range(60):
        spec = generator.conversation()
        for version, encoding in ours.items():
            assert encoding.encode(build(spec)) == wheel_encodings[version].encode(build(spec, wheel)), spec


@pytest.mark.parametrize("version", VERSIONS)
def test_added_ids_are_those_of_the_ranges_alone(version: str, tokenizers: dict[str, Tokenizer]) -> None:
    """Whatever the texts spell, an id of the added vocabulary is one of the template."""
    generator, tokenizer = Generator(4000), tokenizers[version]
    encoding = Encoding(model_version(version), tokenizer)
    for _ in range(200):
        prompt = encoding.render(build(generator.conversation()))
        added = [token_id for token_id in encoding.encode_prompt(prompt) if tokenizer.is_added(token_id)]
        assert added == [tokenizer.added_id(prompt.text[start:stop]) for start, stop in prompt.special_ranges]


@pytest.mark.parametrize("version", VERSIONS)
def test_ids_spell_the_prompt(version: str, tokenizers: dict[str, Tokenizer]) -> None:
    generator, tokenizer = Generator(5000), tokenizers[version]
    encoding = Encoding(model_version(version), tokenizer)
    for _ in range(200):
        conversation = build(generator.conversation())
        ids = encoding.encode(conversation)
        spelled = b"".join(tokenizer.token_bytes(token_id) or b"?" for token_id in ids)
        assert spelled == encoding.render(conversation).text.encode()


@pytest.mark.parametrize("spelling", IMAGE_SPELLINGS)
def test_every_spelling_of_the_image_token_is_the_tokenizers_own(
    spelling: str, tokenizers: dict[str, Tokenizer]
) -> None:
    encoding = Encoding(model_version("v4.1"), tokenizers["v4.1"])
    message = UserMessage(f"a{spelling}b{spelling}", (ImageSource.from_url("http://h"),), image_token=spelling)
    ids = encoding.encode(Conversation((message,), thinking_mode=False))
    assert [token_id for token_id in ids if token_id == 129279] == [129279]  # the second is text


def test_a_missing_special_token_is_named(tokenizers: dict[str, Tokenizer]) -> None:
    encoding = Encoding(model_version("v4"), tokenizers["v4"]).with_special_tokens(SpecialTokens(user="<u>"))
    with pytest.raises(EncodingError, match='special token "<u>" is not in the added vocabulary'):
        encoding.encode(chat(1))
    with pytest.raises(EncodingError, match="no tokenizer is attached"):
        Encoding(model_version("v4")).encode_prompt(encoding.render(chat(1)))


def test_the_next_turn_tokenises_what_is_new(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = CountingTokenizer(tokenizers["v4"])
    encoding = Encoding(model_version("v4")).with_tokenizer(tokenizer)
    encoding.encode(chat(20))
    assert len(tokenizer.asked) == 41
    tokenizer.asked.clear()
    longer = chat(20)
    longer = replace(longer, messages=(*longer.messages, AssistantMessage("new answer"), UserMessage("new question")))
    ids = encoding.encode(longer)
    assert tokenizer.asked == ["new answer", "new question"]
    assert ids == Encoding(model_version("v4"), tokenizers["v4"]).encode(longer)


def test_a_stretch_that_repeats_in_a_prompt_is_tokenised_once(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = CountingTokenizer(tokenizers["v4"])
    messages = (UserMessage("same"), AssistantMessage("same")) * 10
    Encoding(model_version("v4"), tokenizer).encode(Conversation(messages, thinking_mode=False))
    assert tokenizer.asked == ["same"]


def test_the_cache_is_bounded_and_keeps_what_was_used_last(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = CountingTokenizer(tokenizers["v4"])
    cache = StretchCache(tokenizer, max_bytes=3000)
    for number in range(100):
        cache.encode(["kept", f"stretch {number}"])
        assert 0 < cache.bytes <= 3000
    assert 3 < len(cache) < 15
    tokenizer.asked.clear()
    cache.encode(["kept", "stretch 99"])
    assert tokenizer.asked == []
    size = cache.bytes
    ids = cache.encode(["x" * 5000])["x" * 5000]  # too large to keep, and no reason to drop the others
    assert len(ids) > 100 and cache.bytes == size
    cache.encode(["stretch 0"])
    assert tokenizer.asked[-1] == "stretch 0"


def test_encodings_share_a_cache_only_with_their_tokenizer(tokenizers: dict[str, Tokenizer]) -> None:
    encoding = Encoding(model_version("v4"), tokenizers["v4"])
    assert encoding.with_special_tokens(SpecialTokens(bos="<｜User｜>")).cache is encoding.cache
    assert encoding.with_tokenizer(tokenizers["v4.1"]).cache is not encoding.cache
    assert Encoding(model_version("v4.1"), tokenizers["v4"], cache=encoding.cache).cache is encoding.cache


def test_threads(tokenizers: dict[str, Tokenizer]) -> None:
    """Many threads and a cache that drops entries all the time: ids as without."""
    tokenizer = tokenizers["v4"]
    conversations = [chat(number % 7 + 1) for number in range(60)]
    expected = [Encoding(model_version("v4"), tokenizer).encode(conversation) for conversation in conversations]
    cache = StretchCache(tokenizer, max_bytes=2000)
    encoding = Encoding(model_version("v4"), tokenizer, cache=cache)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(encoding.encode, conversations * 5)) == expected * 5
    assert cache.bytes <= 2000


def test_an_entry_that_two_threads_made_counts_once(tokenizers: dict[str, Tokenizer]) -> None:
    cache = StretchCache(tokenizers["v4"])
    cache.encode(["stretch"])
    size = cache.bytes
    cache._keep("stretch", [1])
    assert (cache.bytes, len(cache)) == (size, 1)
