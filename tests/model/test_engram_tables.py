import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models

from deepinfer import ops
from deepinfer.backends import reference
from deepinfer.hal import errors
from deepinfer.model import engram_tables as engram

RELEASED = {"vocab_size": 16_000_000, "max_ngram": 4, "heads": 8, "compressed_size": 99092}
TINY = {"vocab_size": 256, "max_ngram": 4, "heads": 2, "compressed_size": 512}


def hash_rows(table: engram.EngramTable, ngrams: list[list[int]]) -> list[list[int]]:
    """Rows of n-grams of compressed ids: the op over an identity vocabulary."""
    reference.backend.load()
    lookup = torch.arange(512, dtype=torch.int32)
    parameters = map(torch.from_numpy, (table.multipliers, table.primes, table.offsets))
    return ops.engram_hash(torch.tensor(ngrams, dtype=torch.int32), lookup, *parameters, 2).tolist()


def released() -> tuple[engram.EngramTable, ...]:
    return engram.engram_tables([1, 14], declared_rows=[384_006_168, 384_016_682], **RELEASED)


def test_released_primes_and_table_sizes() -> None:
    first, second = released()
    assert first.primes[:3].tolist() == [16000057, 16000079, 16000081]
    assert second.primes[-1] == 16000889
    assert (first.rows, second.rows) == (384_006_168, 384_016_682)
    assert len({*first.primes.tolist(), *second.primes.tolist()}) == 48
    assert first.offsets[0] == 0 and first.offsets[-1] + first.primes[-1] == first.rows


def test_released_multipliers() -> None:
    first, second = released()
    assert first.multipliers.tolist() == [76632096046245, 4839876093313, 35959672319349, 73987337458391]
    assert second.multipliers.tolist() == [67716810739261, 51510806800915, 30921347202721, 82619226485591]


def test_released_hash_vector() -> None:
    columns = [0, 1, 2, 8, 9, 23]
    first, second = (
        [hash_rows(table, [[100, 200, 300, 400]])[0][column] for column in columns] for table in released()
    )
    assert first == [12013311, 19589167, 45006560, 139496094, 154390218, 380048014]
    assert second == [1915295, 31448111, 41304315, 135466211, 144663466, 383274204]


def test_small_tables() -> None:
    first, second = engram.engram_tables([1, 4], declared_rows=[1618, 1824], **TINY)
    assert first.primes.tolist() == [257, 263, 269, 271, 277, 281]
    assert second.primes.tolist() == [283, 293, 307, 311, 313, 317]
    assert first.multipliers.tolist() == [
        14831304026200453, 936705081716061, 6959601268494069, 14319439928568407,
    ]  # fmt: skip
    rows = hash_rows(first, [[10, 2, 2, 2], [50, 40, 30, 20]])
    assert rows == [[249, 294, 689, 798, 1227, 1503], [165, 386, 568, 949, 1245, 1611]]


def test_wrong_declared_rows_are_refused() -> None:
    with pytest.raises(errors.ConfigError, match=r"engram_num_embeddings.*1618, 1824"):
        engram.engram_tables([1, 4], declared_rows=[1618, 1825], **TINY)


def test_products_of_the_largest_id_stay_in_int64() -> None:
    for size in (1, 2, 512, 99092, 2**31 - 1):
        for layer in range(1, 40):
            largest = max(engram.hash_multipliers(layer, size, 4).tolist())
            assert largest * (size - 1) < 2**63 and largest % 2 == 1


def test_is_prime_against_a_sieve() -> None:
    sieve = np.ones(5000, dtype=bool)
    sieve[:2] = False
    for i in range(2, 71):
        sieve[i * i :: i] = False
    assert [i for i in range(5000) if engram.is_prime(i)] == np.flatnonzero(sieve).tolist()
    assert engram.is_prime(2**61 - 1)
    assert not engram.is_prime(3215031751)  # strong pseudoprime to the bases 2, 3, 5 and 7


# ---- compressed vocabulary

TOKENS = [
    "<s>",  # special: decoded all the same
    "a",
    "A",  # lower case: same as "a"
    "Ġa",  # leading space stripped: same as "a"
    "Ã¡",  # U+00E1: accent off, same as "a"
    "Ġ",  # one space: protected
    "ĠĠ",  # blanks collapse to one space, which is protected too
    "ĉ",  # a tab: the same
    "Ã",  # half a character: its raw vocabulary string is the key
    "¡",  # the other half
    "ï¬ģ",  # U+FB01, the ligature: NFKC gives "fi"
    "fi",
    "ÌĢ",  # U+0300, a combining accent: normalised to nothing, kept as it is
    "ÌĢÌĢ",
    "<S>",  # added, ordinary: lower case makes it "<s>"
]


def small_tokenizer(path: Path) -> Path:
    vocabulary = {token: index for index, token in enumerate(TOKENS[:-1])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.add_tokens([AddedToken(TOKENS[-1], normalized=False)])
    tokenizer.save(str(path / "tokenizer.json"))
    return path / "tokenizer.json"


def test_compressed_ids_follow_first_appearance(tmp_path: Path) -> None:
    vocabulary = engram.compress_vocabulary(small_tokenizer(tmp_path), len(TOKENS))
    assert vocabulary.lookup.dtype == np.int32
    assert vocabulary.lookup.tolist() == [0, 1, 1, 1, 1, 2, 2, 2, 3, 4, 5, 5, 6, 7, 0]
    assert vocabulary.size == 8


def test_declared_size_is_checked(tmp_path: Path) -> None:
    small_tokenizer(tmp_path)
    assert engram.load_vocabulary(tmp_path, len(TOKENS), 8).size == 8
    with pytest.raises(errors.ConfigError, match=r"engram_compressed_vocab_size.*must be 8"):
        engram.load_vocabulary(tmp_path, len(TOKENS), 9)


def test_identity_table_only_on_request(tmp_path: Path) -> None:
    with pytest.raises(errors.TokenizerError, match="tokenizer.json"):
        engram.load_vocabulary(tmp_path, 512, 512)
    vocabulary = engram.load_vocabulary(tmp_path, 512, 512, identity=True)
    assert vocabulary.lookup.tolist() == list(range(512))
    with pytest.raises(errors.ConfigError, match="identity"):
        engram.load_vocabulary(tmp_path, 512, 500, identity=True)


@pytest.mark.parametrize("content", ["", "{", json.dumps({"model": {"type": "Unheard"}})])
def test_broken_file_is_one_typed_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(errors.TokenizerError, match="not a tokenizer file"):
        engram.compress_vocabulary(tmp_path / "tokenizer.json", 4)
