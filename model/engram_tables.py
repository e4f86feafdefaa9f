"""Engram hash tables: primes, row offsets, multipliers and the compressed vocabulary.

Everything here is host arithmetic with numpy and depends on the configuration and the tokenizer file only.

* A table of one layer is cut into `C = (max_ngram - 1) * heads` column blocks, one per (n-gram size, head),
  each as long as a prime. Primes are unique over all layers, sizes and heads, so no two blocks share their
  collisions.
* Token ids are first mapped to a *compressed* vocabulary in which spellings that differ only by case,
  accents or surrounding blanks are one id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..hal import errors

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]

SEED_STEP = 10007
"""The multipliers of layer l come from a generator seeded with SEED_STEP * l."""

# Witnesses that make the Miller-Rabin test exact below 3.3e24, which covers every 64-bit number.
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


@dataclass(frozen=True)
class EngramTable:
    """Hash parameters of one Engram layer.

    Attributes:
        layer_id: backbone layer that owns the table.
        primes: int64 [C], rows of each column block, size-major then head.
        offsets: int64 [C], first row of each column block (exclusive prefix sum of `primes`).
        multipliers: int64 [n], odd factor of the id at look-back distance 0 .. n-1.
    """

    layer_id: int
    primes: Int64Array
    offsets: Int64Array
    multipliers: Int64Array

    @property
    def rows(self) -> int:
        """Rows of the embedding table."""
        return int(self.primes.sum())


@dataclass(frozen=True)
class CompressedVocabulary:
    """Map from token ids to compressed ids.

    Attributes:
        lookup: int32 [V], compressed id of every token id.
        size: number of distinct compressed ids; they are 0 .. size-1 in order of first appearance.
    """

    lookup: Int32Array
    size: int


def is_prime(value: int) -> bool:
    """Whether `value` is prime; exact for every 64-bit number."""
    if value < 2:
        return False
    for witness in _WITNESSES:
        if value % witness == 0:
            return value == witness
    odd, twos = value - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(value, witness, odd, twos) for witness in _WITNESSES)


def _passes(value: int, witness: int, odd: int, twos: int) -> bool:
    x = pow(witness, odd, value)
    if x in (1, value - 1):
        return True
    for _ in range(twos - 1):
        x = x * x % value
        if x == value - 1:
            return True
    return False


def table_primes(layer_ids: Sequence[int], vocab_size: int, max_ngram: int, heads: int) -> dict[int, Int64Array]:
    """Primes of every table, in search order: layer, then n-gram size 2 .. max_ngram, then head.

    Each (layer, size) starts again at `vocab_size` and takes the next primes that nothing before it has used.

    Returns:
        layer id -> int64 [(max_ngram - 1) * heads].
    """
    used: set[int] = set()
    tables = {}
    for layer in layer_ids:
        blocks = []
        for _ in range(max_ngram - 1):
            candidate = vocab_size
            for _ in range(heads):
                while candidate in used or not is_prime(candidate):
                    candidate += 1
                used.add(candidate)
                blocks.append(candidate)
        tables[layer] = np.array(blocks, dtype=np.int64)
    return tables


def hash_multipliers(layer_id: int, compressed_size: int, max_ngram: int) -> Int64Array:
    """Odd multipliers, int64 [max_ngram], small enough that id * multiplier never overflows int64."""
    bound = max(1, (2**63 - 1) // compressed_size // 2)
    draws = np.random.default_rng(SEED_STEP * layer_id).integers(0, bound, size=max_ngram, dtype=np.int64)
    return draws * 2 + 1


def engram_tables(
    layer_ids: Sequence[int],
    *,
    vocab_size: int,
    max_ngram: int,
    heads: int,
    compressed_size: int,
    declared_rows: Sequence[int] | None = None,
) -> tuple[EngramTable, ...]:
    """Hash parameters of all Engram layers.

    Args:
        layer_ids: `engram_layer_ids`, in configuration order.
        vocab_size: `engram_vocab_size`, where the prime search starts.
        max_ngram: `engram_max_ngram_size`.
        heads: `engram_n_heads`.
        compressed_size: size of the compressed vocabulary.
        declared_rows: `engram_num_embeddings`; checked against the primes found when given.

    Raises:
        ConfigError: a declared row count differs from the sum of that layer's primes.
    """
    tables = []
    for layer, primes in table_primes(layer_ids, vocab_size, max_ngram, heads).items():
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(primes)[:-1]])
        tables.append(EngramTable(layer, primes, offsets, hash_multipliers(layer, compressed_size, max_ngram)))
    if declared_rows is not None:
        found = [table.rows for table in tables]
        if list(declared_rows) != found:
            raise errors.ConfigError(
                "engram_num_embeddings",
                list(declared_rows),
                f"must be the row counts of the hash tables, {found}",
            )
    return tuple(tables)


def identity_vocabulary(vocab_size: int) -> CompressedVocabulary:
    """Every id is its own compressed id. For tests with checkpoints that have no tokenizer; never a
    default."""
    return CompressedVocabulary(np.arange(vocab_size, dtype=np.int32), vocab_size)


def compress_vocabulary(tokenizer_file: str | Path, vocab_size: int) -> CompressedVocabulary:
    """Compressed vocabulary of a tokenizer.json, as it is on disk (no tokens added at run time).

    Each id is decoded alone, special tokens included. A decoded text that is not whole UTF-8 keeps its raw
    vocabulary string as key; any other is normalised (see `text_normalizer`), and kept as it is where that
    leaves nothing. Equal keys are one compressed id.

    Raises:
        TokenizerError: the file cannot be read as a tokenizer.
    """
    tokenizer = _raw_tokenizer(Path(tokenizer_file))
    normalizer = text_normalizer()
    texts = tokenizer.decode_batch([[token] for token in range(vocab_size)], skip_special_tokens=False)
    seen: dict[str, int] = {}
    lookup = np.empty(vocab_size, dtype=np.int32)
    for token, text in enumerate(texts):
        if "\ufffd" in text:
            key = tokenizer.id_to_token(token) or text
        else:
            key = normalizer.normalize_str(text) or text
        lookup[token] = seen.setdefault(key, len(seen))
    return CompressedVocabulary(lookup, len(seen))


def load_vocabulary(
    directory: str | Path, vocab_size: int, declared_size: int, *, identity: bool = False
) -> CompressedVocabulary:
    """Compressed vocabulary of a checkpoint directory, checked against `engram_compressed_vocab_size`.

    Args:
        directory: checkpoint directory with a tokenizer.json.
        vocab_size: `vocab_size` of the text configuration.
        declared_size: `engram_compressed_vocab_size`.
        identity: use the identity table and read no file (tests only).

    Raises:
        TokenizerError: no tokenizer.json, or not readable.
        ConfigError: the declared size is not the one found.
    """
    if identity:
        vocabulary = identity_vocabulary(vocab_size)
        source = "the identity table"
    else:
        vocabulary = compress_vocabulary(Path(directory) / "tokenizer.json", vocab_size)
        source = "tokenizer.json"
    if vocabulary.size != declared_size:
        raise errors.ConfigError(
            "engram_compressed_vocab_size",
            declared_size,
            f"must be {vocabulary.size}, the size {source} gives",
        )
    return vocabulary


def text_normalizer() -> Any:
    """Normalisation of decoded tokens: NFKC, NFD, accents off, lower case, runs of blanks to one space,
    ends stripped.

    A text that is exactly one space stays one. The `tokenizers` normalisers are used rather than
    `unicodedata`, whose Unicode version follows the Python release.
    """
    from tokenizers import Regex, normalizers

    lone_space = "\ue000"  # a private-use character, so that no token spells it
    return normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
            normalizers.Replace(Regex(r"^ $"), lone_space),
            normalizers.Strip(),
            normalizers.Replace(lone_space, " "),
        ]
    )


def _raw_tokenizer(file: Path) -> Any:
    from tokenizers import Tokenizer

    if not file.is_file():
        raise errors.TokenizerError(f"no such file: {file}")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception for every fault of the file
        raise errors.TokenizerError(f"{file}: not a tokenizer file: {error}") from error
