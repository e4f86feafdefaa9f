"""Special tokens, tokenizers, and the encodings of the two model versions."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from .. import special_tokens as plain_tokens
from .. import tokenizer as plain_tokenizer
from ..encoding import Encoding
from ..templates.base import Prompt
from . import arguments as check
from .conversation import Conversation, ImageSource, image_sources_of
from .errors import translated
from .words import ModelVersion, SpecialToken
from .wrapped import Wrapped

_EncodingT = TypeVar("_EncodingT", bound="_Encoding")

IMAGE_SPECIAL_TOKEN_ID = plain_tokens.IMAGE_TOKEN_ID


class SpecialTokens(Wrapped[plain_tokens.SpecialTokens]):
    """The spelling of every special token: the default one where none is given."""

    __slots__ = ()

    def __init__(
        self,
        *,
        bos: str | None = None,
        eos: str | None = None,
        thinking_start: str | None = None,
        thinking_end: str | None = None,
        system: str | None = None,
        user: str | None = None,
        assistant: str | None = None,
        latest_reminder: str | None = None,
        dsml: str | None = None,
        image: str | None = None,
        ref: str | None = None,
        ref_end: str | None = None,
        box: str | None = None,
        box_end: str | None = None,
        point: str | None = None,
        point_end: str | None = None,
        polygon: str | None = None,
        polygon_end: str | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self" and value is not None}
        self._plain = plain_tokens.SpecialTokens(**{name: check.text(name, value) for name, value in given.items()})

    def token(self, token: SpecialToken) -> str:
        """The spelling of `token`."""
        return self._plain.token(check.instance("token", token, SpecialToken).plain)


class Tokenizer(Wrapped[plain_tokenizer.Tokenizer]):
    """A Hugging Face tokenizer."""

    __slots__ = ()

    @staticmethod
    def from_file(path: str) -> Tokenizer:
        """Load a `tokenizer.json`. Raises `RuntimeError`."""
        with translated():
            return Tokenizer._of(plain_tokenizer.Tokenizer.from_file(check.text("path", path)))

    @staticmethod
    def from_str(text: str) -> Tokenizer:
        """Load the contents of a `tokenizer.json`. Raises `RuntimeError`."""
        with translated():
            return Tokenizer._of(plain_tokenizer.Tokenizer.from_str(check.text("text", text)))

    @staticmethod
    def from_pretrained(identifier: str, revision: str | None = None, token: str | None = None) -> Tokenizer:
        """Download the `tokenizer.json` of a repository, or take it from the cache. Raises `RuntimeError`."""
        arguments = (
            check.text("identifier", identifier),
            check.optional_text("revision", revision),
            check.optional_text("token", token),
        )
        with translated():
            return Tokenizer._of(plain_tokenizer.Tokenizer.from_pretrained(*arguments))

    def encode(self, text: str) -> list[int]:
        """Ids of a text in which the spelling of an added token is that token. Nothing is put around them."""
        return self._plain.encode(check.text("text", text))


class RenderedPrompt(Wrapped[Prompt]):
    """A prompt, and the images that its placeholders stand for."""

    __slots__ = ()

    @property
    def prompt(self) -> str:
        return self._plain.text

    @property
    def special_ranges(self) -> list[tuple[int, int]]:
        """Half-open ranges of code points that are special tokens, ascending."""
        return list(self._plain.special_ranges)

    @property
    def image_sources(self) -> list[ImageSource]:
        return image_sources_of(self._plain.image_sources)

    def __repr__(self) -> str:
        images = len(self._plain.image_sources)
        return f"RenderedPrompt(prompt=<{len(self.prompt)} characters>, image_sources={images})"


class _Encoding(Wrapped[Encoding]):
    """How conversations become prompts and token ids."""

    __slots__ = ()

    _version: ClassVar[ModelVersion]

    def __init__(self) -> None:
        self._plain = Encoding(self._version.plain)

    def with_tokenizer(self: _EncodingT, tokenizer: Tokenizer) -> _EncodingT:
        """The same encoding with a tokenizer for `encode`."""
        return self._of(self._plain.with_tokenizer(check.instance("tokenizer", tokenizer, Tokenizer)._plain))

    def with_special_tokens(self: _EncodingT, special_tokens: SpecialTokens) -> _EncodingT:
        """The same encoding with other spellings."""
        spellings = check.instance("special_tokens", special_tokens, SpecialTokens)
        return self._of(self._plain.with_special_tokens(spellings._plain))

    def render_conversation(self, conversation: Conversation) -> RenderedPrompt:
        """The prompt as text, with the ranges of its special tokens."""
        return RenderedPrompt._of(self._plain.render(check.instance("conversation", conversation, Conversation)._plain))

    def encode(self, conversation: Conversation) -> list[int]:
        """The prompt as token ids. Raises `RuntimeError`: no tokenizer, or it lacks a special token."""
        given = check.instance("conversation", conversation, Conversation)
        with translated():
            return self._plain.encode(given._plain)


class DeepseekV4Encoding(_Encoding):
    """The prompts of V4."""

    __slots__ = ()

    _version = ModelVersion.DeepseekV4Pro


class DeepseekV41Encoding(_Encoding):
    """The prompts of V4.1."""

    __slots__ = ()

    _version = ModelVersion.DeepseekV41Flash
