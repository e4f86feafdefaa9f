"""Typed errors of the codec.

Every error that a request, a conversation or a model's output can cause derives from `RecipeError`; each also derives
from the built-in exception that says the same, so that a caller without this module can still tell them apart.
"""

from __future__ import annotations

import json
from typing import Any


class RecipeError(Exception):
    """Base of every error that the codec raises on purpose."""


class InvalidArgumentError(RecipeError, ValueError):
    """An argument of the Python API has a value that is not allowed. The message names it and what is allowed."""


class InvalidTypeError(RecipeError, TypeError):
    """An argument of the Python API, or a Python value that should stand for JSON, has a type that is not allowed."""


class InvalidJsonError(RecipeError, ValueError):
    """Text is not JSON, breaks a limit of the codec (depth, range of numbers), or holds half a surrogate pair."""


class JsonRangeError(RecipeError, OverflowError):
    """A Python integer lies outside what JSON carries here: below the signed or above the unsigned 64-bit range."""


class JsonDepthError(RecipeError, RecursionError):
    """A Python value nests deeper than JSON may here."""


class InvalidBodyError(RecipeError, ValueError):
    """A request body is JSON, but not of the shape that its protocol asks for."""


class ConversionError(RecipeError):
    """A request is well formed and breaks a rule of its protocol or model.

    Attributes:
        message: the text for the client; `str(error)` is the same.
        status_code: HTTP status of the answer, 400.
        body: the answer's body as compact JSON.
    """

    status_code = 400

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    @property
    def body(self) -> str:
        """The error object of the answer, the same for every protocol."""
        kind = "invalid_request_error"
        error = {"message": self.message, "type": kind, "param": None, "code": kind}
        return json.dumps({"error": error}, ensure_ascii=False, separators=(",", ":"))


class ConsumedError(RecipeError, RuntimeError):
    """An object that serves once was used again."""


class EncodingError(RecipeError, RuntimeError):
    """A prompt cannot become token ids: no tokenizer, or a special token that the tokenizer does not have."""


class TokenizerError(RecipeError, RuntimeError):
    """A tokenizer file cannot be read, or is of a kind that the codec does not support."""


class StreamError(RecipeError, RuntimeError):
    """The engine's output cannot be processed, or the stream was closed before."""


class ImageError(RecipeError):
    """An image cannot be resolved, fetched or preprocessed.

    Attributes:
        kind: what went wrong, one word such as `TooManyImages` or `FetchStatus`.
        is_retryable: whether the same request may succeed later.
    """

    def __init__(self, kind: str, message: str, *, is_retryable: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.is_retryable = is_retryable

    def __reduce__(self) -> tuple[Any, ...]:
        return (_image_error, (self.kind, str(self), self.is_retryable))


def _image_error(kind: str, message: str, is_retryable: bool) -> ImageError:
    return ImageError(kind, message, is_retryable=is_retryable)
