"""Tokenizer of a checkpoint directory: byte-level BPE of tokenizer.json with this model family's token
policy.
 Control tokens are made by id only (`special_id`); text never becomes one, whatever it spells. So the added
vocabulary of the file is kept out of the encoder, and decoding works on the bytes of each token.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ..hal import errors
from .detokenizer import Detokenizer

BOS_ID, EOS_ID, PAD_ID = 0, 1, 2
BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
IMAGE_SPELLINGS = ("<image>", "<｜deepseek_image｜>", "<｜image｜>")
SPAN_TOKENS = tuple(f"<|place_holder_mm_span_{index:04d}|>" for index in range(21))
COMPATIBILITIES = ("release", "native")
_PROBE = "Once upon  a time,\r\n\tÉé e\u0301 \u4e2d\U0001f600 007 \ufb01\x00\x7f "


class Tokenizer:
    """Text to ids and back. Build it with `Tokenizer.load`.

    Attributes:
        vocab_size: rows of the embedding; every id of the file is below it.
        compatibility: "release" or "native" (`tokenizer_compatibility` of config.json).
        bos_id, eos_id, pad_id: ids of the policy; in "release" always 0, 1, 2.
        add_bos: whether `encode` puts BOS in front when not told otherwise; in "release" always True.
        image_id: id of the image placeholder, or None when the file has none.
        span_ids: ids of the 21 run-time span tokens, `vocab_size` .. `vocab_size + 20`; empty in "native".
        file: the tokenizer.json read.
    """

    def __init__(self, file: Path, *, vocab_size: int | None, image_token_id: int | None, compatibility: str) -> None:
        if compatibility not in COMPATIBILITIES:
            raise errors.ConfigError("tokenizer_compatibility", compatibility, f"must be one of {COMPATIBILITIES}")
        self.file = file
        self.compatibility = compatibility
        content = _read(file)
        vocabulary = _vocabulary(file, content["model"].get("vocab"))
        added = _added_tokens(file, content.get("added_tokens") or [])
        self._added = {token["content"]: index for index, token in added.items()}
        self._special = {index for index, token in added.items() if token["special"]}
        last = max((*vocabulary.values(), *added), default=-1)
        self.vocab_size = last + 1 if vocab_size is None else vocab_size
        if last >= self.vocab_size:
            raise errors.TokenizerError(f"{file}: token id {last} is outside the vocabulary of {self.vocab_size}")
        self._bytes = _byte_table(file, vocabulary, added, self.vocab_size)
        self._encoder = _plain_encoder(file, content, self._added)
        self._check_round_trip()
        self._set_policy()
        self._register_spans()
        self.image_id = self._find_image(image_token_id)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        vocab_size: int | None = None,
        image_token_id: int | None = None,
        compatibility: str | None = "release",
        special_ids: Mapping[str, int] | None = None,
    ) -> Tokenizer:
        """Read the tokenizer of a checkpoint.

        Args:
            path: directory with tokenizer.json (and optionally tokenizer_config.json), or that file.
            vocab_size: `vocab_size` of the text configuration; default one past the largest id of the file.
            image_token_id: `image_token_id` of the configuration; its spelling is checked when given.
            compatibility: `tokenizer_compatibility` of the configuration; None (key absent) means "release".
            special_ids: `bos`, `eos`, `pad` ids of the configuration; checked when given.

        Raises:
            TokenizerError: no file, not a byte-level BPE, ids outside the vocabulary, or BOS, EOS, PAD,
                image token not where the policy wants them.
            ConfigError: unknown compatibility, or special ids that are not the tokenizer's.
        """
        file = Path(path)
        if file.is_dir():
            file = file / "tokenizer.json"
        tokenizer = cls(
            file,
            vocab_size=vocab_size,
            image_token_id=image_token_id,
            compatibility=compatibility or "release",
        )
        for role, wanted in (special_ids or {}).items():
            found = getattr(tokenizer, f"{role}_id")
            if found != wanted:
                raise errors.ConfigError(f"{role}_token_id", wanted, f"must be {found}, the tokenizer's")
        return tokenizer

    # ---- text to ids

    def encode(self, text: str, *, bos: bool | None = None) -> list[int]:
        """Ids of a text, control spellings taken as ordinary text.

        Args:
            text: any text that UTF-8 can express.
            bos: put BOS in front; None follows `add_bos`.

        Raises:
            InvalidArgumentError: not a str, or it holds a lone surrogate.
        """
        if not isinstance(text, str):
            raise errors.InvalidArgumentError("text", text, "a str")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise errors.InvalidArgumentError(
                "text",
                text[error.start : error.end],
                "text without lone surrogates (code points U+D800 to U+DFFF)",
            ) from None
        ids: list[int] = self._encoder.encode(text, add_special_tokens=False).ids
        return [self.bos_id, *ids] if (self.add_bos if bos is None else bos) else ids

    def special_id(self, spelling: str) -> int:
        """Id of a control token: the added vocabulary of the file and the run-time span tokens.

        Raises:
            TokenizerError: there is no such control token.
        """
        try:
            index: int = self._added[spelling]
        except KeyError:
            raise errors.TokenizerError(f"{self.file}: no control token {spelling!r}") from None
        return index

    # ---- ids to text

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text of ids; bytes that are not UTF-8 become U+FFFD.

        Raises:
            InvalidArgumentError: an id outside the vocabulary and the span tokens.
        """
        kept = (index for index in ids if not (skip_special and index in self._special))
        return b"".join(map(self.token_bytes, kept)).decode("utf-8", errors="replace")

    def detokenizer(self, *, skip_special: bool = True) -> Detokenizer:
        """Streaming decoder for one sequence."""
        return Detokenizer(self, skip_special=skip_special)

    def token_bytes(self, token: int) -> bytes:
        """Bytes a token stands for; a control token stands for its spelling, an unused id for nothing.

        Raises:
            InvalidArgumentError: an id outside the vocabulary and the span tokens.
        """
        index = operator.index(token)
        if not 0 <= index < len(self._bytes):
            raise errors.InvalidArgumentError("token id", index, f"0 to {len(self._bytes) - 1}")
        return self._bytes[index]

    def is_special(self, token: int) -> bool:
        """Whether `skip_special` leaves this token out."""
        return token in self._special

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """Ids that no text becomes: the added vocabulary and the span tokens."""
        return frozenset(self._added.values())

    @cached_property
    def backend(self) -> Any:
        """The file as a `tokenizers.Tokenizer`, added vocabulary on, without the run-time span tokens."""
        import tokenizers

        return tokenizers.Tokenizer.from_file(str(self.file))

    # ---- policy

    def _check_round_trip(self) -> None:
        """Refuse a file whose normalizer, pre-tokenizer or dropout changes or drops text on its way to ids."""
        ids = self._encoder.encode(_PROBE, add_special_tokens=False).ids
        if b"".join(map(self.token_bytes, ids)) != _PROBE.encode("utf-8"):
            raise errors.TokenizerError(f"{self.file}: text does not come back from its ids; it must, byte for byte")

    def _set_policy(self) -> None:
        settings = _settings(self.file.parent / "tokenizer_config.json")
        if self.compatibility == "release":
            # The released settings name EOS as padding and switch BOS off; the policy overrules both.
            self.add_bos = True
            self.bos_id = self._require("BOS", settings.get("bos_token") or BOS, BOS_ID)
            self.eos_id = self._require("EOS", settings.get("eos_token") or EOS, EOS_ID)
            self.pad_id = self._require("PAD", PAD, PAD_ID)
            return
        self.add_bos = bool(settings.get("add_bos_token", False))
        self.bos_id = self.special_id(settings.get("bos_token") or BOS)
        self.eos_id = self.special_id(settings.get("eos_token") or EOS)
        self.pad_id = self.special_id(settings.get("pad_token") or PAD)

    def _require(self, role: str, spelling: str, wanted: int) -> int:
        found = self._added.get(spelling)
        if found != wanted:
            raise errors.TokenizerError(f"{self.file}: {role} {spelling!r} has id {found}; it must be {wanted}")
        return wanted

    def _register_spans(self) -> None:
        """Give the span tokens their ids behind the vocabulary; the file knows nothing of them."""
        if self.compatibility == "native":
            self.span_ids = range(0)
            return
        self.span_ids = range(self.vocab_size, self.vocab_size + len(SPAN_TOKENS))
        for index, spelling in zip(self.span_ids, SPAN_TOKENS, strict=True):
            self._added[spelling] = index
            self._special.add(index)
            self._bytes.append(spelling.encode("utf-8"))

    def _find_image(self, image_token_id: int | None) -> int | None:
        known = {self._added[spelling]: spelling for spelling in IMAGE_SPELLINGS if spelling in self._added}
        if image_token_id is None:
            return next(iter(known), None)
        if image_token_id not in known:
            raise errors.TokenizerError(
                f"{self.file}: image_token_id {image_token_id} must be the id of one of "
                f"{', '.join(IMAGE_SPELLINGS)}; the file has {known or 'none of them'}"
            )
        return image_token_id


def byte_alphabet() -> dict[str, int]:
    """Character -> byte of the byte-level alphabet: printable Latin-1 stands for itself, the rest from
    U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in set(printable)]
    return {chr(value): value for value in printable} | {chr(0x100 + i): value for i, value in enumerate(others)}


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise errors.TokenizerError(f"no such file: {file}")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        kind = content["model"]["type"]
        decoder = content["decoder"] or {}
        decoders = [part.get("type") for part in decoder.get("decoders", [decoder])]
    except (OSError, RecursionError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.TokenizerError(f"{file}: not a tokenizer file: {error!r}") from error
    if kind != "BPE" or "ByteLevel" not in decoders:
        raise errors.TokenizerError(f"{file}: {kind} with decoder {decoders}; only byte-level BPE is supported")
    return content  # type: ignore[no-any-return]


def _vocabulary(file: Path, values: Any) -> dict[str, int]:
    """The model's vocabulary, spelling -> id; every id belongs to one spelling."""
    if not isinstance(values, dict):
        raise errors.TokenizerError(f"{file}: the vocabulary must be a JSON object, is {errors.short(values)}")
    owners: dict[int, str] = {}
    for token, index in values.items():
        if not _is_id(index):
            raise errors.TokenizerError(f"{file}: token {token!r} has id {errors.short(index)}, not an integer from 0")
        if index in owners:
            raise errors.TokenizerError(f"{file}: tokens {owners[index]!r} and {token!r} have one id, {index}")
        owners[index] = token
    return values


def _added_tokens(file: Path, values: Any) -> dict[int, dict[str, Any]]:
    """Id -> entry of the added vocabulary, each with an id and a spelling of its own."""
    if not isinstance(values, list):
        raise errors.TokenizerError(f"{file}: added_tokens must be a list, is {errors.short(values)}")
    added: dict[int, dict[str, Any]] = {}
    spellings: set[str] = set()
    for entry in values:
        fits = isinstance(entry, dict) and _is_id(entry.get("id")) and isinstance(entry.get("special"), bool)
        if not fits or not _is_text(entry.get("content")):
            raise errors.TokenizerError(
                f"{file}: added token {errors.short(entry)} needs an id (an integer from 0), a content (text), and"
                " special (true or false)"
            )
        if entry["id"] in added or entry["content"] in spellings:
            raise errors.TokenizerError(f"{file}: added token {errors.short(entry)}: its id or content is there twice")
        added[entry["id"]] = entry
        spellings.add(entry["content"])
    return added


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: Any) -> bool:
    """Text that UTF-8 can express, at least one character."""
    return isinstance(value, str) and bool(value) and not any("\ud800" <= c <= "\udfff" for c in value)


def _settings(file: Path) -> dict[str, Any]:
    """tokenizer_config.json with its token entries as plain spellings; empty when there is none."""
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        settings = {key: value["content"] if _is_token(value) else value for key, value in content.items()}
    except (OSError, RecursionError, ValueError, AttributeError) as error:
        raise errors.TokenizerError(f"{file}: not a settings file: {error}") from error
    for key in ("bos_token", "eos_token", "pad_token"):
        if settings.get(key) is not None and not isinstance(settings[key], str):
            raise errors.TokenizerError(f"{file}: {key} is {errors.short(settings[key])}, not a spelling")
    if not isinstance(settings.get("add_bos_token") or False, bool):
        raise errors.TokenizerError(f"{file}: add_bos_token is {settings['add_bos_token']!r}, not true or false")
    return settings


def _is_token(value: Any) -> bool:
    return isinstance(value, dict) and "content" in value


def _byte_table(
    file: Path, vocabulary: dict[str, int], added: dict[int, dict[str, Any]], vocab_size: int
) -> list[bytes]:
    """Bytes of every id; added tokens stand for their spelling."""
    alphabet = byte_alphabet()
    missing = [value for character, value in alphabet.items() if character not in vocabulary]
    if missing:
        # The library would drop such bytes from the text without a word.
        raise errors.TokenizerError(f"{file}: the vocabulary lacks {len(missing)} of the 256 bytes, first {missing[0]}")
    table = [b""] * vocab_size
    for token, index in vocabulary.items():
        if index not in added:
            if not alphabet.keys() >= set(token):
                raise errors.TokenizerError(f"{file}: token {index} {token!r} is not in the byte-level alphabet")
            table[index] = bytes(alphabet[character] for character in token)
    for index, token_entry in added.items():
        table[index] = token_entry["content"].encode("utf-8")
    return table


def _plain_encoder(file: Path, content: dict[str, Any], added: dict[str, int]) -> Any:
    """The file's BPE without added vocabulary, template, truncation and padding."""
    import tokenizers

    model = dict(content["model"])
    # A control token may also be listed in the model's vocabulary; a spelling outside the alphabet keeps
    # its id taken and out of reach.
    model["vocab"] = {
        (f"\0{index}" if token in added else token): index for token, index in content["model"]["vocab"].items()
    }
    plain = content | {
        "model": model, "added_tokens": [], "post_processor": None, "truncation": None, "padding": None,
    }  # fmt: skip
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(plain))
    except Exception as error:  # the library raises plain Exception for every fault of the file
        raise errors.TokenizerError(f"{file}: not a tokenizer file: {error}") from error
