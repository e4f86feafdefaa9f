"""Argument checks shared by the typed dataclasses of the runtime.

Every helper returns the value in its canonical Python type or raises `InvalidArgumentError` naming the parameter,
what came and what is allowed. Nothing is clipped.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

from ..hal.errors import InvalidArgumentError

INT32_MAX = 2**31 - 1


def check_bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgumentError(name, value, "True or False")
    return value


def check_int(name: str, value: Any, low: int, high: int, also: str = "") -> int:
    """An integer in [low, high]; numpy integers count, booleans and floats do not."""
    allowed = f"an integer from {low} to {high}" + (f", or {also}" if also else "")
    if isinstance(value, bool):
        raise InvalidArgumentError(name, value, allowed)
    try:
        number = operator.index(value)
    except Exception:  # a class of the user's may raise what it likes
        raise InvalidArgumentError(name, value, allowed) from None
    if not low <= number <= high:
        raise InvalidArgumentError(name, value, allowed)
    return number


def check_float(name: str, value: Any, low: float, high: float, *, open_low: bool = False, also: str = "") -> float:
    """A finite number in [low, high], or (low, high] with `open_low`."""
    left = "(" if open_low else "["
    allowed = f"a number in {left}{low:g}, {high:g}]" + (f", or {also}" if also else "")
    # float() would also read texts, bytes, booleans of numpy and one-element arrays.
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidArgumentError(name, value, allowed)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise InvalidArgumentError(name, value, allowed) from None
    if not math.isfinite(number) or number > high or number < low or (open_low and number == low):
        raise InvalidArgumentError(name, value, allowed)
    return number


def check_ids(name: str, values: Any) -> list[int]:
    """A list of token ids, each an integer >= 0 (the vocabulary is checked where it is known)."""
    allowed = "a list of token ids, each an integer from 0"
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
        raise InvalidArgumentError(name, values, allowed)
    try:
        items = list(values)
    except TypeError:  # an array without dimensions calls itself iterable
        raise InvalidArgumentError(name, values, allowed) from None
    return [check_int(f"{name}[{i}]", v, 0, INT32_MAX) for i, v in enumerate(items)]


def check_choice(name: str, value: Any, choices: Sequence[Any], allowed: str) -> Any:
    """One of a few values, of the very type they have: neither True nor 1.0 is 1, and an array is none of them."""
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise InvalidArgumentError(name, value, allowed)
    return value


def check_in_vocabulary(name: str, ids: Iterable[int], vocab_size: int) -> None:
    for i, token in enumerate(ids):
        if not 0 <= token < vocab_size:
            raise InvalidArgumentError(
                f"{name}[{i}]", int(token), f"a token id from 0 to {vocab_size - 1} (the vocabulary of the model)"
            )
