"""Embedding and head of the presets.
 The two tables carry the word statistics of the training text, so that sampled text is mostly readable
words although every layer between them is random: the head row of a token points towards the embeddings of
its frequent predecessors, and channel 0 of every embedding is a constant on which the head keeps a bias.
The bias makes control tokens, bytes that are no text, and EOS rare.
 All sums are exact in float64 (small integers over powers of two), so no summation order can change a bit
of the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..tokenizer import EOS_ID, byte_alphabet
from .corpus import training_text

Float32Array = npt.NDArray[np.float32]

BIAS_CHANNEL = 0
BIAS_VALUE = 2.0
"""What every embedding holds there; other channels have standard deviation 1."""

_SHARE = 0.5  # expected amplitude of the embedding in the normalised output of the last layer
_BIGRAM = 6.5  # logit a frequent successor gains
_MARKOV = 2.0  # logit the draft head's correction adds to one
_RANDOM = 0.6  # standard deviation of the part of a logit that is not word statistics
_EOS_BIAS = 4.0
_NEVER = -14.0


def embedding_and_head(tokenizer: Any, width: int, rng: np.random.Generator) -> tuple[Float32Array, Float32Array]:
    """Tables [V, width] of a trained `tokenizers.Tokenizer`, V its size."""
    unigrams, bigrams = _counts(tokenizer)
    embed, towards = _pair(bigrams, width, rng)
    embed[:, BIAS_CHANNEL] = 0.0
    noise = rng.standard_normal(embed.shape) * (_RANDOM / np.sqrt(width))
    head = towards * (_BIGRAM / (_SHARE * width)) + noise
    bias = _bias(tokenizer, unigrams)
    head[bias == _NEVER] *= 0.25
    head[EOS_ID] *= 0.25
    head[:, BIAS_CHANNEL] = bias / (_SHARE * BIAS_VALUE)
    embed[:, BIAS_CHANNEL] = BIAS_VALUE
    return embed.astype(np.float32), head.astype(np.float32)


def markov_tables(tokenizer: Any, rank: int, rng: np.random.Generator) -> tuple[Float32Array, Float32Array]:
    """Tables [V, rank] of the draft head's first-order correction: it favours what follows the previous token."""
    embed, towards = _pair(_counts(tokenizer)[1], rank, rng)
    head = towards * (_MARKOV / rank)
    return embed.astype(np.float32), head.astype(np.float32)


def _pair(
    bigrams: npt.NDArray[np.int64], width: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Random codes [V, width] in sixteenths, and for each token the weighted sum of its predecessors' codes."""
    codes = np.round(rng.standard_normal((len(bigrams), width)) * 16) / 16
    return codes, _successor_strength(bigrams).T @ codes


def _counts(tokenizer: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    size = tokenizer.get_vocab_size()
    ids = [token for line in tokenizer.encode_batch(training_text()) for token in line.ids]
    bigrams = np.zeros((size, size), dtype=np.int64)
    np.add.at(bigrams, (ids[:-1], ids[1:]), 1)
    return np.bincount(ids, minlength=size), bigrams


def _successor_strength(bigrams: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """[from, to] strengths in eighths, 1 for the most frequent successor of each token.

    A token that follows very many others would collect their noise; its column is scaled down.
    """
    most = np.maximum(bigrams.max(axis=1, keepdims=True), 1)
    strength = np.sqrt(bigrams / most)
    crowd = np.maximum(np.sqrt((strength**2).sum(axis=0, keepdims=True)) / 2, 1.0)
    return np.round(strength / np.sqrt(crowd) * 8) / 8


def _bias(tokenizer: Any, unigrams: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Log frequencies, centred; `_NEVER` for what should not be in a text."""
    bias = np.log(unigrams + 0.25)
    bias -= bias.mean()
    alphabet = byte_alphabet()
    control = {token for token, entry in tokenizer.get_added_tokens_decoder().items()}
    for token in range(len(bias)):
        spelling = tokenizer.id_to_token(token)
        if token in control or not _is_text(bytes(alphabet[character] for character in spelling)):
            bias[token] = _NEVER
    bias[EOS_ID] = _EOS_BIAS
    return bias


def _is_text(data: bytes) -> bool:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return text.isprintable() or text == "\n"
