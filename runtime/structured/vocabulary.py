"""The tokens of a model as grammars see them, and the library that runs grammars."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ...hal.errors import NotSupportedError
from .args import Structure

if TYPE_CHECKING:
    from ...model.tokenizer import Tokenizer


VERSIONS = (0, 2, 9), (0, 3)
"""Of xgrammar, from the first to before the second: as `pyproject.toml` says. What it takes for what changes with minor
versions, and so does what `schema.py` has to refuse."""
_UNWRITTEN = re.compile(rb"[\x00-\x09\x0b\x0c\x0e-\x1f]")
"""Bytes that JSON has nowhere but in escapes. Between its tokens it may have a tab; but strings of a bounded length are
to the compiler any characters without quotes, backslashes and ends of lines."""


class View(NamedTuple):
    """A vocabulary as one grammar sees it.

    Attributes:
        spelled: control tokens that may be written.
        json: whether there is JSON in it.
    """

    spelled: frozenset[int] = frozenset()
    json: bool = True


@dataclass(frozen=True)
class Vocabulary:
    """What every token writes.

    Attributes:
        pieces: bytes of each id of the model; b"" for those that are no text: control tokens, and ids without meaning.
        control: what the control tokens among them are spelled, by id. Only structural tags that spell one allow it.
        eos_id: ends an output.
    """

    pieces: tuple[bytes, ...]
    control: Mapping[int, str] = field(default_factory=dict)
    eos_id: int = 1

    @classmethod
    def of(cls, tokenizer: Tokenizer, vocab_size: int) -> Vocabulary:
        """Those of a tokenizer; ids that it does not have write nothing."""
        special = {one for one in tokenizer.control_ids if one < vocab_size}
        pieces = [tokenizer.token_bytes(one) if one < tokenizer.vocab_size else b"" for one in range(vocab_size)]
        control = {one: pieces[one].decode() for one in special if one != tokenizer.eos_id}
        for one in special:
            pieces[one] = b""
        return cls(tuple(pieces), control, tokenizer.eos_id)

    def view(self, structure: Structure) -> View:
        """What of it a structure may write."""
        tag = structure.kind == "structural_tag"
        spelled = [one for one, text in self.control.items() if tag and text and text in structure.text]
        return View(frozenset(spelled), structure.kind == "json" or (tag and '"json_schema"' in structure.text))

    def info(self, view: View) -> Any:
        """As `xgrammar.TokenizerInfo`."""
        pieces = list(self.pieces)
        for one in view.spelled:
            pieces[one] = self.control[one].encode()
        if view.json:
            pieces = [b"" if _UNWRITTEN.search(piece) else piece for piece in pieces]
        return load_xgrammar().TokenizerInfo(pieces, vocab_size=len(pieces), stop_token_ids=[self.eos_id])


def check_installed() -> None:
    """Raises NotSupportedError where the library for grammars is not installed, or in a version that is not known."""
    install = 'pip install "deepinfer-hal[structured]"'
    if importlib.util.find_spec("xgrammar") is None:
        raise NotSupportedError("so_args", f"xgrammar is not installed: {install}")
    found = _version()
    numbers = re.match(r"\d+(\.\d+)*", found or "")
    if numbers is not None and not VERSIONS[0] <= tuple(map(int, numbers[0].split("."))) < VERSIONS[1]:
        least, below = (".".join(map(str, one)) for one in VERSIONS)
        raise NotSupportedError("so_args", f"xgrammar {found} is none of >={least},<{below}: {install}")


@cache
def _version() -> str | None:
    """Of the library that is installed; None where it was put there by other means, which nobody can judge."""
    try:
        return importlib.metadata.version("xgrammar")
    except importlib.metadata.PackageNotFoundError:
        return None


def load_xgrammar() -> Any:
    """The library. Raises NotSupportedError."""
    check_installed()
    return importlib.import_module("xgrammar")
