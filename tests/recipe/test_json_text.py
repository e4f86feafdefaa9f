"""JSON text is read and printed by the rules of the codec, in bounded time, whatever it holds."""

from __future__ import annotations

import json
from contextlib import suppress
from enum import IntEnum
from types import ModuleType
from typing import Any

import pytest

from deepinfer.recipe.errors import (
    InvalidArgumentError,
    InvalidJsonError,
    InvalidTypeError,
    JsonDepthError,
    JsonRangeError,
)
from deepinfer.recipe.json_text import from_python, parse_json, print_json
from recipe_conversations import Generator
from timing import seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("-1", -1), ("9223372036854775807", 2**63 - 1), ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)), ("18446744073709551616", 2.0**64), ("-9223372036854775809", -(2.0**63)),
        ("1.50", 1.5), ("1E+2", 100.0), ("0e999999", 0.0), ("1e-400", 0.0), ("0.1", 0.1),
        ('{"a":1,"b":2,"a":3}', {"a": 3, "b": 2}), ('"\\ud83d\\ude00"', "😀"), ('"\\\\ud800"', "\\ud800"),
        ('"\x7f\u2028/"', "\x7f\u2028/"), (' \t\r\n[ ]\n', []), ('"\\u0000"', "\0"), (b'"\xc3\xa9"', "é"),
    ],
)  # fmt: skip
def test_values(text: str | bytes, value: object) -> None:
    got = parse_json(text)
    assert got == value and type(got) is type(value)


def test_minus_zero_is_a_double_and_order_is_that_of_first_keys() -> None:
    assert print_json(parse_json("[-0, -0.0, 0]")) == "[-0.0, -0.0, 0]"
    assert list(parse_json('{"a":1,"b":2,"a":3}')) == ["a", "b"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "", "01", "1.", ".5", "+1", "-", "NaN", "Infinity", "-Infinity", "tru", "[1,]", '{"a":1,}', "{} x", "'a'",
        "1e400", "-1e400", "1" * 400, '"\t"', '"\\x"', '"\\ud800"', '"\\udc00\\ud800"', '"\\ud800\\u0041"', '"',
        '{"a":"\\ud800","a":1}', '{"\\udfff":1}', "\ufeff1", "\u00a01", "\x0b1", b'"\xff"', b"\xef\xbb\xbf1", "\\u0031",
        "١", "1_0",
    ],
)  # fmt: skip
def test_errors(text: str | bytes) -> None:
    with pytest.raises(InvalidJsonError):
        parse_json(text)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"]":[1,', "]}]")])
def test_depth(opening: str, closing: str) -> None:
    each = sum(opening.count(bracket) for bracket in "[{")
    fits = 127 // each
    parse_json(opening * fits + "1" + closing * fits)
    too_deep = opening * (fits + 1) + "1" + closing * (fits + 1)
    with pytest.raises(InvalidJsonError, match="recursion limit exceeded"):
        parse_json(too_deep)


def test_brackets_in_strings_do_not_count_and_width_is_not_depth() -> None:
    parse_json(json.dumps(["[" * 500, '"[{\\' * 100]))
    parse_json("[" + "[]," * 1000 + "{}]")
    with pytest.raises(InvalidJsonError, match="Extra data"):
        parse_json("[]" * 200)


@pytest.mark.parametrize(
    "text",
    [
        '"' + '\\"' * 500_000, "[" * 200 + '"' + '\\"' * 500_000, "[" * 1_000_000, "]" * 1_000_000, "1" * 1_000_000,
        "[" + ("[" * 126 + "]" * 126 + ",") * 2000 + "1]", "[" * 127 + "[]," * 300_000,
        '"' + "\\ud83d\\ude00" * 100_000 + '"',
    ],
    ids=["quotes", "quotes-in-brackets", "open", "closed", "digits", "deep-and-wide", "wide", "pairs"],
)  # fmt: skip
def test_hostile_text_takes_linear_time(text: str) -> None:
    def parsed() -> None:
        with suppress(InvalidJsonError):
            parse_json(text)

    assert seconds(parsed) < 3


@pytest.mark.parametrize(
    ("value", "plain", "python"),
    [
        (1e-5, "0.00001", "1e-05"), (1.23e-5, "0.0000123", "1.23e-05"), (9.9e-5, "0.000099", "9.9e-05"),
        (1e-4, "0.0001", "0.0001"), (1e-6, "1e-6", "1e-06"), (-1.5e-7, "-1.5e-7", "-1.5e-07"),
        (1e-10, "1e-10", "1e-10"),
        (5e-324, "5e-324", "5e-324"), (1e15, "1000000000000000.0", "1000000000000000.0"), (1e16, "1e+16", "1e+16"),
        (1.5e17, "1.5e+17", "1.5e+17"), (-0.0, "-0.0", "-0.0"),
        (100.0, "100.0", "100.0"), (2**64 - 1, "18446744073709551615", "18446744073709551615"),
    ],
)  # fmt: skip
def test_doubles(value: float, plain: str, python: str) -> None:
    assert print_json([value, value]) == f"[{plain}, {plain}]"
    assert print_json({"a": value}, compact=True) == f'{{"a":{plain}}}'
    assert print_json([value], python_floats=True) == f"[{python}]"


def test_strings() -> None:
    text = '1e-05"\\/\x08\x0c\n\r\t\x00\x1f\x7f\u2028é😀'
    expected = '"1e-05\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\u2028é😀"'
    assert print_json(text) == expected
    assert print_json([text, 1e-5]) == f"[{expected}, 0.00001]"  # the doubles are corrected around the strings


class Number(IntEnum):
    ONE = 1


def test_python_values() -> None:
    shared: list[Any] = []
    value = from_python({"a": (1, Number.ONE, True, None, 1.5), "b": [shared, shared]})
    assert value == {"a": [1, 1, True, None, 1.5], "b": [[], []]}
    assert type(value["a"][1]) is int and value["a"][2] is True  # type: ignore[index, call-overload]


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


CYCLE: list[Any] = []
CYCLE.append({"a": CYCLE})


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (float("nan"), InvalidArgumentError, "NaN is not a finite JSON number"),
        ([float("inf")], InvalidArgumentError, "not a finite JSON number"),
        (1 << 64, JsonRangeError, "integer is outside the JSON number range"),
        (-(1 << 63) - 1, JsonRangeError, "integer is outside"),
        ({1}, InvalidTypeError, "set is not a JSON value"),
        ({1: 2}, InvalidTypeError, "JSON object keys must be str"),
        ({"a": ["\ud800"]}, InvalidArgumentError, "lone surrogate"),
        ({"\udfff": 1}, InvalidArgumentError, "lone surrogate"),
        (CYCLE, InvalidArgumentError, "circular reference in JSON input"),
        (nested(129), JsonDepthError, "maximum nesting depth of 128"),
        (nested(100_000), JsonDepthError, "maximum nesting depth of 128"),
    ],
    ids=range(11),
)
def test_python_values_that_are_not_json(value: object, error: type[Exception], message: str) -> None:
    from_python(nested(128))
    with pytest.raises(error, match=message):
        from_python(value)


def test_numbers_are_those_of_the_wheel(wheel: ModuleType) -> None:
    """Digits of any length and exponent, read and printed by both."""
    generator = Generator(7)
    encoding = wheel.DeepseekV4Encoding()
    for _ in range(3000):
        numbers = [generator.number() for _ in range(8)]
        for text in (f'{{"v": [{", ".join(numbers)}]}}', f'{{"v": [{numbers[0]}]}}'):
            call = wheel.ToolCall("c", "f", text)
            prompt = encoding.render_conversation(wheel.Conversation([wheel.AssistantMessage("", None, [call])])).prompt
            try:
                expected = print_json(parse_json(text)["v"])  # type: ignore[index, call-overload, arg-type]
            except InvalidJsonError:
                assert 'name="arguments"' in prompt, text
            else:
                assert f'name="v" string="false">{expected}</' in prompt, text


def test_round_trip() -> None:
    generator = Generator(3)
    for _ in range(300):
        value = generator.json_value()
        for compact in (False, True):
            text = print_json(value, compact=compact)
            assert parse_json(text) == value
            assert json.loads(text) == value
