"""The exceptions of the original, and how ours become them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .. import errors


class ConversionError(Exception):
    """A request is invalid, or cannot be converted.

    Attributes:
        status_code: HTTP status of the answer.
        body: the answer's body as compact JSON.
    """

    status_code: int
    body: str


class ImageError(Exception):
    """An image cannot be resolved, fetched or preprocessed.

    Attributes:
        kind: what went wrong, one word.
        is_retryable: whether the same request may succeed later.
    """

    kind: str
    is_retryable: bool


class CalcResizeError(ValueError):
    """The size of an image cannot be calculated. Never raised: every size can."""


# Subclasses before their bases.
_BUILTIN = (OverflowError, RecursionError, ValueError, TypeError, RuntimeError)


def as_original(error: errors.RecipeError) -> Exception:
    """The exception that the original raises in the place of `error`, with the same text."""
    if isinstance(error, errors.ConversionError):
        conversion = ConversionError(error.message)
        conversion.status_code = error.status_code
        conversion.body = error.body
        return conversion
    if isinstance(error, errors.ImageError):
        image = ImageError(str(error))
        image.kind = error.kind
        image.is_retryable = error.is_retryable
        return image
    if isinstance(error.__context__, UnicodeEncodeError):  # a lone surrogate, which ours describe in their own words
        return error.__context__
    kind = next((kind for kind in _BUILTIN if isinstance(error, kind)), RuntimeError)
    return kind(str(error))


@contextmanager
def translated() -> Iterator[None]:
    """Errors of ours leave as those of the original."""
    try:
        yield
    except errors.RecipeError as error:
        raise as_original(error) from None
