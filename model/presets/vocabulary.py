"""Byte-level BPE of the presets: trained at creation, with the control tokens of the model family."""

from __future__ import annotations

from typing import Any

from ..tokenizer import BOS, EOS, PAD
from .corpus import training_text

NOISE = "<｜place▁holder▁no▁0｜>"
IMAGE = "<｜image｜>"

# In front of the learned vocabulary, as the model family has them.
LEADING = (BOS, EOS, PAD)
# Behind it: (spelling, left out of decoded text).
TRAILING = (
    (NOISE, True),
    ("<｜User｜>", False),
    ("<｜Assistant｜>", False),
    ("<｜System｜>", False),
    ("<think>", False),
    ("</think>", False),
    ("｜DSML｜", False),
    ("<｜latest_reminder｜>", False),
    (IMAGE, True),
    ("<｜ref｜>", True),
    ("<｜/ref｜>", True),
    ("<｜box｜>", True),
    ("<｜/box｜>", True),
    ("<｜point｜>", True),
    ("<｜/point｜>", True),
    ("<｜polygon｜>", True),
    ("<｜/polygon｜>", True),
)


def train_tokenizer(vocab_size: int) -> Any:
    """A `tokenizers.Tokenizer` of exactly `vocab_size` ids: BOS, EOS, PAD, 256 bytes, merges, the other
    control tokens.

    Where the text has too few pairs left to merge, the vocabulary ends up smaller; read its size from the
    result.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
            pre_tokenizers.Split(Regex(r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(TRAILING),
        special_tokens=[AddedToken(token, normalized=False, special=True) for token in LEADING],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_text(), trainer)
    for spelling, special in TRAILING:
        token = AddedToken(spelling, normalized=False, special=special)
        tokenizer.add_special_tokens([token]) if special else tokenizer.add_tokens([token])
    return tokenizer


def tokenizer_json(tokenizer: Any) -> str:
    """Text of tokenizer.json."""
    return str(tokenizer.to_str(pretty=True)) + "\n"


def tokenizer_settings(max_position: int) -> dict[str, Any]:
    """Content of tokenizer_config.json."""
    return {
        "add_bos_token": False,
        "add_eos_token": False,
        "bos_token": BOS,
        "clean_up_tokenization_spaces": False,
        "eos_token": EOS,
        "model_max_length": max_position,
        "pad_token": PAD,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    }
