"""Weights of the presets: random numbers with scales that keep the activations healthy.

Every matrix is Gaussian with standard deviation gain / sqrt(fan-in). The gains are chosen so that

* each sub-layer adds about a third of the embedding's amplitude to the residual streams, which so grow by
  less than 2.5 over ten layers;
* attention scores, index scores, router logits and gates spread by about one, and the SwiGLU clamp is
  reached now and then;
* quantised blocks differ in magnitude, so that a scale read from the wrong place is seen.

Each tensor has a generator of its own, seeded by (seed, name): adding a tensor changes no other.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ..config import ModelConfig
from ..names import TensorSpec, inventory
from . import formats
from .readout import BIAS_CHANNEL, BIAS_VALUE, embedding_and_head, markov_tables

Float32Array = npt.NDArray[np.float32]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Float32Array]

# Gains of matrices, first match of the whole name without `.weight`. Attention output has amplitude about
# 0.35 (an average of unit vectors), a SwiGLU product of two gains of 3 about 6.
_GAINS = (
    (r".*attn\.wq_b", 1.5),
    (r".*attn\.wo_a", 2.5),
    (r".*attn\.wo_b", 0.45),
    (r".*compressor\.wgate", 1.5),
    (r".*ffn\.gate", 1.5),
    (r".*experts(\.\d+)?\.w[13]", 3.0),
    (r".*ffn\.experts\.\d+\.w2", 0.06),
    (r".*shared_experts\.w2", 0.035),
    (r".*confidence_head\.proj", 0.7),
    (r"vision\..*(attn\.wo|mlp\.w2)", 0.5),
    (r"aligner\.w2", 1.5),
    (r".*", 1.0),
)
# Matrices that write into the residual streams; they leave the bias channel of the embedding nearly alone.
_WRITERS = re.compile(r".*(attn\.wo_b|experts(\.\d+)?\.w2)")
_BLOCK_FACTORS = np.array([0.5, 0.75, 1.0, 1.5], dtype=np.float32)


def preset_tensors(config: ModelConfig, tokenizer: Any, seed: int) -> Iterator[tuple[str, Tensor]]:
    """All tensors of the inventory in its order, quantised ones followed by their scales.

    Args:
        config: the preset's configuration.
        tokenizer: its trained `tokenizers.Tokenizer`, for the embedding and the head.
        seed: any integer >= 0; equal seeds give equal bytes.
    """
    tables = _word_tables(config, tokenizer, seed)
    for spec in inventory(config).values():
        if spec.is_scale:
            continue
        values = tables.get(spec.name)
        if values is None:
            values = _draw(config, spec, _generator(seed, spec.name))
        yield from _store(spec, values)


def _word_tables(config: ModelConfig, tokenizer: Any, seed: int) -> dict[str, Float32Array]:
    """The tensors that are made from the training text."""
    text = config.text
    embed, head = embedding_and_head(tokenizer, text.hidden_size, _generator(seed, "embed.weight"))
    last = f"mtp.{text.num_nextn_predict_layers - 1}.markov_head"
    previous, following = markov_tables(tokenizer, text.dspark_markov_rank, _generator(seed, last))
    return {
        "embed.weight": embed,
        "head.weight": head,
        f"{last}.embed.weight": previous,
        f"{last}.head.weight": following,
    }


def _generator(seed: int, name: str) -> np.random.Generator:
    digest = hashlib.sha256(name.encode("utf-8")).digest()
    return np.random.default_rng([seed, *np.frombuffer(digest[:16], dtype="<u4").tolist()])


def _store(spec: TensorSpec, values: Float32Array) -> Iterator[tuple[str, Tensor]]:
    if spec.dtype == "BF16":
        yield spec.name, formats.bf16(values)
    elif spec.dtype == "F32":
        yield spec.name, formats.fp32(values)
    else:
        encode = formats.fp4_rows if spec.dtype == "I8" else formats.fp8_blocks
        weight, scale = formats.fp8_rows(values) if spec.kind == "engram_table" else encode(values)
        yield spec.name, weight
        yield spec.name.removesuffix("weight") + "scale", scale


def _draw(config: ModelConfig, spec: TensorSpec, rng: np.random.Generator) -> Float32Array:
    """fp32 values of one tensor, in its logical shape."""
    for pattern, draw in _SPECIAL:
        if re.fullmatch(pattern, spec.name):
            return draw(rng, spec.shape)
    if "hc_" in spec.name:
        return _hyper_connection(rng, spec, config.text.hc_mult)
    if len(spec.shape) == 1:
        return _norm(rng, spec.shape) if re.search(r"norm\d?\.weight$", spec.name) else _normal(rng, spec.shape, 0.1)
    values = _matrix(spec, rng)
    if spec.name.endswith("engram.wkv.weight"):
        value_rows = values[-config.text.hidden_size :]
        value_rows *= np.float32(0.6)
        value_rows[BIAS_CHANNEL] *= np.float32(0.25)
    return values


def _matrix(spec: TensorSpec, rng: np.random.Generator) -> Float32Array:
    rows, columns = spec.shape
    columns *= 2 if spec.dtype == "I8" else 1
    name = spec.name.removesuffix(".weight")
    gain = next(gain for pattern, gain in _GAINS if re.fullmatch(pattern, name))
    values = _normal(rng, (rows, columns), gain / columns**0.5)
    if spec.dtype == "I8":
        values *= _factors(rng, (rows, columns), (1, formats.BLOCK))
    elif spec.dtype == "F8_E4M3":
        values *= _factors(rng, (rows, columns), (formats.BLOCK, formats.BLOCK))
    if _WRITERS.fullmatch(name):
        values[BIAS_CHANNEL] *= np.float32(0.25)
    return values


def _hyper_connection(rng: np.random.Generator, spec: TensorSpec, m: int) -> Float32Array:
    """Mixes that read one stream, write mostly to another and carry streams over, some of each to the next.

    Which stream that is follows the layer and the sub-layer. So the streams stay different, and no exchange of streams,
    rows or columns leaves the result as it was. All mixes vary with the input.
    """
    if spec.name.endswith("_scale"):
        return np.array([0.6, 0.6, 0.8], dtype=np.float32)
    if spec.name.endswith("_fn"):
        return _normal(rng, spec.shape, spec.shape[1] ** -0.5)
    layer = int(re.findall(r"\d+", spec.name)[0])
    pre, post = np.full(m, -1.5), np.full(m, -1.5)
    pre[layer % m] = 1.5
    post[(layer + 1 + ("ffn" in spec.name)) % m] = 1.8
    comb = np.full((m, m), -1.5)
    streams = np.arange(m)
    comb[streams, streams] = 2.0
    comb[streams, (streams + 1) % m] = 0.0
    base = np.concatenate([pre, post, comb.reshape(-1)])
    return base.astype(np.float32) + _normal(rng, spec.shape, 0.3)


def _normal(rng: np.random.Generator, shape: tuple[int, ...], deviation: float, mean: float = 0.0) -> Float32Array:
    values: Float32Array = rng.standard_normal(shape, dtype=np.float32) * np.float32(deviation) + np.float32(mean)
    return values


def _norm(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32Array:
    values = np.float32(0.7) + np.float32(0.6) * rng.random(shape, dtype=np.float32)
    values[BIAS_CHANNEL] = 1.0
    return values


def _embedded(rng: np.random.Generator, shape: tuple[int, ...], deviation: float) -> Float32Array:
    """A vector that stands in place of an embedding, bias channel included."""
    values = _normal(rng, shape, deviation)
    values[BIAS_CHANNEL] = BIAS_VALUE
    return values


def _factors(rng: np.random.Generator, shape: tuple[int, int], block: tuple[int, int]) -> Float32Array:
    """One factor per block, of mean square 1, spread over the shape (both sides may end in a partial
    block)."""
    grid = tuple(-(-size // step) for size, step in zip(shape, block, strict=True))
    factors = rng.choice(_BLOCK_FACTORS, size=grid) / np.float32(np.mean(_BLOCK_FACTORS.astype(np.float64) ** 2) ** 0.5)
    spread: Float32Array = factors.repeat(block[0], axis=0).repeat(block[1], axis=1)[: shape[0], : shape[1]]
    return spread


def _engram_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32Array:
    rows, width = shape
    return _normal(rng, shape, 1.0) * _factors(rng, (rows, width), (1, formats.BLOCK))


_SPECIAL: tuple[tuple[str, Draw], ...] = (
    (r".*attn_sink", lambda rng, shape: _normal(rng, shape, 1.0, mean=1.5)),
    (r".*gate\.bias", lambda rng, shape: _normal(rng, shape, 0.1)),
    (r".*gate\.bias_vl", lambda rng, shape: _normal(rng, shape, 0.3)),
    (r".*engram\.embed\.weight", _engram_rows),
    (r".*engram\.[qk]_weight", lambda rng, shape: _normal(rng, shape, 0.25, mean=1.2)),
    (r"image_(start|end|newline)", lambda rng, shape: _embedded(rng, shape, 1.0)),
    (r"aligner\.w2\.bias", lambda rng, shape: _embedded(rng, shape, 0.1)),
)
