"""JSON text to values and back, by one set of rules for every place of the codec.

Parsing: integers that fit 64 bits, signed or unsigned, are `int`; every other number is a double, `-0` too, and one
that overflows is an error. Of duplicate keys the last value wins, at the place of the first. Half a surrogate pair is
an error, and so are more than 127 containers inside each other. Printing: non-ASCII text as it is, `\\u00xx` for
control characters without a short escape, the shortest digits that read back as the same double.

The standard library's scanner and encoder do the work in C; what they decide otherwise is corrected around them.
"""

from __future__ import annotations

import json
import math
import re
from typing import TypeAlias, cast

from .errors import InvalidArgumentError, InvalidJsonError, InvalidTypeError, JsonDepthError, JsonRangeError

JsonValue: TypeAlias = "None | bool | int | float | str | list[JsonValue] | dict[str, JsonValue]"

MAX_DEPTH = 127
"""Containers that JSON text may nest."""
MAX_PYTHON_DEPTH = 128
"""Containers that a Python value may nest that stands for JSON."""

_MIN_INT, _MAX_INT = -(1 << 63), (1 << 64) - 1


# --- reading -----------------------------------------------------------------------------------------------------


def _parse_int(text: str) -> int | float:
    if len(text) < 19:
        return -0.0 if text == "-0" else int(text)
    if len(text) <= 20 and _MIN_INT <= (value := int(text)) <= _MAX_INT:
        return value
    return _parse_float(text)


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise InvalidJsonError("number out of range")
    return value


def _refuse_constant(text: str) -> float:
    raise InvalidJsonError(f"{text} is not a JSON number")


_decoder = json.JSONDecoder(parse_int=_parse_int, parse_float=_parse_float, parse_constant=_refuse_constant)

_MAYBE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# Escapes in the order in which a reader meets them; only the last alternative is captured, half a pair.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u]|\\u(?![dD][89a-fA-F])|(\\u)", re.DOTALL
)
_NOT_A_QUOTE = re.compile(rb'\\["\\]')
# Bytes that say how deep a text nests, both kinds of brackets alike.
_BRACKETS_ALIKE = bytes.maketrans(b"{}", b"[]")
_OPEN = ord("[")
_NO_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'"[]{}')


def parse_json(text: str | bytes) -> JsonValue:
    """The value of a JSON text.

    Raises:
        InvalidJsonError: the text is not JSON by the rules of this module, or bytes are not UTF-8.
    """
    data = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise InvalidJsonError(f"not UTF-8 at byte {error.start}") from None
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _is_too_deep(data):
        raise InvalidJsonError("recursion limit exceeded")
    try:
        value = _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidJsonError(f"{error.msg} at line {error.lineno} column {error.colno}") from None
    if _MAYBE_SURROGATE.search(text) and any(match[1] for match in _ESCAPE.finditer(text)):
        raise InvalidJsonError("lone surrogate in a string")
    return cast(JsonValue, value)


def _is_too_deep(data: bytes) -> bool:
    """Whether brackets outside of strings nest too deep. What this lets through, the parser can recurse into."""
    unescaped = _NOT_A_QUOTE.sub(b"", data)
    # Every second piece between quotes is inside of a string; an unterminated one reaches to the end.
    brackets = b"".join(unescaped.translate(_BRACKETS_ALIKE, _NO_STRUCTURE).split(b'"')[::2])
    rest = brackets
    for _ in range(MAX_DEPTH):  # each round takes the innermost pairs away, in C
        shorter = rest.replace(b"[]", b"")
        if not shorter:
            return False
        if len(shorter) == len(rest):
            break
        rest = shorter
    depth = 0  # too deep, or brackets that do not match; those the parser reports
    for bracket in brackets:
        depth += 1 if bracket == _OPEN else -1
        if depth > MAX_DEPTH:
            return True
    return False


def from_python(value: object) -> JsonValue:
    """A copy of a Python value as JSON: tuples become lists, subclasses of `int`, `float` and `str` the plain type.

    Raises:
        InvalidTypeError: a type that JSON does not have, or a key that is not `str`.
        InvalidArgumentError: NaN, infinity, a lone surrogate, or a container that holds itself.
        JsonRangeError: an integer beyond 64 bits.
        JsonDepthError: more than 128 containers inside each other.
    """
    return _from_python(value, [])


def _from_python(value: object, around: list[int]) -> JsonValue:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _checked_text(value)
    if isinstance(value, int):
        if not _MIN_INT <= value <= _MAX_INT:
            raise JsonRangeError("integer is outside the JSON number range")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidArgumentError(f"{_CONSTANTS[repr(float(value))]} is not a finite JSON number")
        return float(value)
    if not isinstance(value, (dict, list, tuple)):
        raise InvalidTypeError(f"{type(value).__name__} is not a JSON value")
    if id(value) in around:
        raise InvalidArgumentError("circular reference in JSON input")
    if len(around) == MAX_PYTHON_DEPTH:
        raise JsonDepthError(f"JSON input exceeds the maximum nesting depth of {MAX_PYTHON_DEPTH}")
    around.append(id(value))
    result: JsonValue
    if isinstance(value, dict):
        result = {_checked_key(key): _from_python(item, around) for key, item in value.items()}
    else:
        result = [_from_python(item, around) for item in value]
    around.pop()
    return result


_CONSTANTS = {"nan": "NaN", "inf": "inf", "-inf": "-inf"}


def _checked_key(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidTypeError("JSON object keys must be str")
    return _checked_text(key)


def _checked_text(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"lone surrogate at position {error.start} of a JSON string") from None
    return str(text)


# --- printing ----------------------------------------------------------------------------------------------------

_spaced = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False)
_compact = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"))
_STRING_OR_SMALL = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(-?)(\d)(?:\.(\d+))?e-0(\d)')


def print_json(value: JsonValue, *, compact: bool = False, python_floats: bool = False) -> str:
    """The JSON text of a value, spaced (`", "` and `": "`) or compact.

    Doubles are positional from 1e-5 up to, not including, 1e16, with at least one decimal, and otherwise have an
    exponent without padding: `1e-6`, `1e+16`. With `python_floats` they are written as Python does: `1e-05`, `1e-06`.
    """
    text = (_compact if compact else _spaced).encode(value)
    if python_floats or "e-0" not in text:
        return text
    return _STRING_OR_SMALL.sub(_rewrite_small, text)


def _rewrite_small(match: re.Match[str]) -> str:
    """Python switches to exponents below 1e-4 and pads them to two digits; both differ for e-05 to e-09 only."""
    sign, digit, decimals, exponent = match.groups()
    if digit is None:
        return match[0]
    if exponent == "5":
        return f"{sign}0.0000{digit}{decimals or ''}"
    return f"{match[0][:-2]}{exponent}"
