"""JSON Schemas of requests, their strict form, patterns, and data URLs."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from deepinfer.recipe.errors import ConversionError
from deepinfer.recipe.requests.data_urls import read_data_url
from deepinfer.recipe.requests.images import quoted
from deepinfer.recipe.requests.regex_check import is_ecma_regex
from deepinfer.recipe.requests.schema_check import SchemaError, check_schema
from deepinfer.recipe.requests.strict_schema import strict_format, strict_parameters
from timing import growth, seconds

DRAFT_4, DRAFT_7 = "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": ["string", "null"], "enum": []},
        {"minLength": 1.0},
        {"$schema": DRAFT_7, "items": [{}]},
        {"$schema": DRAFT_4, "exclusiveMinimum": True, "minimum": 1},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {}}},
        {"$ref": "#here", "$defs": {"a": {"$anchor": "here"}}},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$defs": {"a": {"$ref": "#/nowhere"}}},  # nothing leads there
        {"const": {"$ref": "#/nowhere"}},
        {"x-unknown": {"type": "bogus"}},
        {"$id": "http://h/x", "$ref": "x#/$defs/a", "$defs": {"a": {}}},
    ],
)
def test_schemas(schema: Any) -> None:
    check_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        5,
        {"type": "bogus"},
        {"type": []},
        {"minLength": -1},
        {"minLength": 1.5},
        {"required": ["a", "a"]},
        {"properties": {"a": 5}},
        {"items": [{}]},
        {"exclusiveMinimum": True},
        {"pattern": "["},
        {"patternProperties": {"[": {}}},
        {"$schema": "bogus"},
        {"$schema": DRAFT_4, "required": []},
        {"$schema": DRAFT_4, "minLength": 1.0},
        {"$ref": "#/nowhere"},
        {"properties": {"a": {"$ref": "#nowhere"}}},
        {"$ref": "http://x.invalid/s"},
        {"$ref": "file:///etc/passwd"},
        {"$defs": {"a": {"$ref": "http://x.invalid/s"}}},
        {"$ref": "#/unknown", "unknown": {"type": "bogus"}},
        {"$id": "#a"},
    ],
)
def test_values_that_are_no_schemas(schema: Any) -> None:
    with pytest.raises(SchemaError):
        check_schema(schema)


def test_deep_and_wide_schemas_are_read_in_time() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(120):
        deep = {"type": "object", "properties": {"a": deep, "b": {"$ref": "#"}}}
    check_schema(deep)
    check_schema(
        {"$ref": "#/$defs/a0", "$defs": {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(400)} | {"a400": {}}}
    )


def test_strict_parameters() -> None:
    schema: Any = {
        "type": "object",
        "title": "gone",
        "properties": {
            "s": {"type": "string", "minLength": 1, "enum": ["x"], "description": "d", "format": "email"},
            "n": {"type": "number", "const": 1, "maximum": 2.5, "description": "d"},
            "l": {"type": "array", "items": {"$ref": "#", "title": "gone"}, "minItems": 1},
            "u": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"k": {"type": ["string", "null"]}}}]},
        },
    }
    strict: Any = strict_parameters(schema)
    assert list(strict) == ["type", "properties", "additionalProperties", "required"]
    assert strict["required"] == ["s", "n", "l", "u"] and strict["additionalProperties"] is False
    fields = strict["properties"]
    assert list(fields["s"].items()) == [("type", "string"), ("description", "d"), ("format", "email"), ("enum", ["x"])]
    assert list(fields["n"]) == ["type", "description", "const", "maximum"]
    assert fields["l"] == {"type": "array", "items": {"$ref": "#"}}
    assert fields["u"]["anyOf"][1]["required"] == ["k"]
    assert strict_parameters({"type": "object"}) == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
        "required": [],
    }


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object"}, "An object with no properties is not allowed."),
        ({"type": "string"}, "The top level of the json schema must be an object."),
        ({"type": "object", "properties": {"a": {}}}, "Invalid json schema: properties.a: one of `type`"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "properties.a.items: required field is missing"),
        (
            {"type": "object", "properties": {"a": {"type": "null"}}, "required": []},
            "Required properties must match all",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b"]},
            "Required property 'b' not found",
        ),
        ({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a", "a"]}, "Duplicate required"),
        ({"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": True}, "should not be true"),
    ],
)
def test_formats_without_a_strict_form(schema: Any, message: str) -> None:
    with pytest.raises(ConversionError) as raised:
        strict_format(schema)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        *(("a{%d}", 327_673), ("é{%d}", 163_836), ("(?:ab){%d}", 163_836), ("(a){%d}", 109_224), (".{%d}", 10_485)),
        *(("[a-z]{%d}", 145_632), ("[a-z]{1,%d}", 93_621), ("a{0,%d}", 145_631), (r"\d{%d}", 145_632)),
        *(("[^a]{%d}", 10_485), ("[à-ÿ]{%d}", 79_436), ("[^à-ÿ]{%d}", 9_532)),
    ],
)
def test_how_large_a_pattern_may_become(pattern: str, most: int, wheel: ModuleType) -> None:
    """The original's engine refuses what it compiles to more than 10 MiB."""
    for count, fits in ((most, True), (most + 1, False)):
        assert is_ecma_regex(pattern % count) == fits == is_schema_there(wheel, {"pattern": pattern % count})


@pytest.mark.parametrize("pattern", ["", "^[a-z]+$", r"\d{2,}", "(?<n>a)", "(?=a)", r"\u{41}", r"\p{Lu}", "[{]", "a|b"])
def test_patterns(pattern: str) -> None:
    assert is_ecma_regex(pattern)


@pytest.mark.parametrize("pattern", ["[", "(", "a{2,1}", "{", "*", r"\k<n>", r"\Z", r"\0", "[z-a]", "(?>a)", "(?#c)"])
def test_texts_that_are_no_patterns(pattern: str) -> None:
    assert not is_ecma_regex(pattern)


def test_a_long_base_is_not_repeated_for_every_part() -> None:
    """500,000 characters, and 5,000 URIs below them: 2.5 GB if each were written out."""
    parts: Any = [{"$id": f"part-{number}"} for number in range(5000)]
    schema: Any = {"$id": "http://schemas.example/" + "x" * 500_000 + "/", "anyOf": [*parts, {"$ref": "part-4999"}]}
    tracemalloc.start()
    try:
        check_schema(schema)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    schema["anyOf"][-1] = {"$ref": "part-5000"}
    with pytest.raises(SchemaError, match="part-5000"):
        check_schema(schema)


URIS = (
    *("http://h/x", "http://h/x/y", "http://h", "x", "a/b", "../x", "/x", "//h/x", "?q", "urn:a", "HTTP://H/x", "x#"),
    *("..", "", "/", "a/./x", "http://h/a/../x", "http://h:80/x", "%78", "x y", "é", "[", "http://[::1]/x", "1:x"),
)


def test_uris_equal_the_other_codec(wheel: ModuleType) -> None:
    """What refers to what, in small schemas with two URIs and a reference."""
    rng = random.Random(5)
    seen = Counter[bool]()
    for _ in range(700):
        ids, base = rng.sample(URIS, 2), rng.choice((*URIS, "a/", "a/b/c", "../a/b", None, None))
        schema: Any = {"$ref": rng.choice(URIS) + rng.choice(("", "#", "#/$defs/a"))}
        schema |= {"$defs": {"a": {"$id": ids[0]}, "b": {"$id": ids[1], "$defs": {"a": {}}}}}
        schema |= {"$id": base} if base is not None else {}
        assert is_schema(schema) == is_schema_there(wheel, schema), schema
        seen[is_schema(schema)] += 1
    assert min(seen.values()) > 40


NAMES = (*(uri for uri in URIS if "[" not in uri), "a/", "a/b/c", "../b", "b", ".")
DRAFTS = tuple(f"http://json-schema.org/draft-0{number}/schema#" for number in (6, 7))


def random_resource(rng: random.Random, definitions: str, depth: int = 0) -> dict[str, Any]:
    """A schema of identifiers, anchors, references and definitions; before 2019 an anchor is an identifier."""
    schema: dict[str, Any] = {}
    if rng.random() < 0.5:
        schema["$id"] = rng.choice(NAMES)
    if rng.random() < 0.4:
        name = rng.choice("kl")
        schema |= {"$id": f"#{name}"} if definitions == "definitions" else {"$anchor": name}
    if rng.random() < 0.2:
        schema["$ref"] = random_reference(rng, definitions)
    if depth < 2 and rng.random() < 0.6:
        schema[definitions] = {
            name: random_resource(rng, definitions, depth + 1) for name in rng.sample("ab", rng.randint(1, 2))
        }
    return schema


def random_reference(rng: random.Random, definitions: str) -> str:
    return rng.choice(NAMES) + rng.choice(("", "#", "#k", "#l", f"#/{definitions}/a"))


def test_references_equal_the_other_codec(wheel: ModuleType) -> None:
    """Anchors, identifiers beside references, and parts that are reached by one of two URIs of the root."""
    rng = random.Random(7)
    seen = Counter[bool]()
    for _ in range(2500):
        draft = rng.choice((None, None, *DRAFTS))
        definitions = "$defs" if draft is None else "definitions"
        schema = random_resource(rng, definitions) | ({} if draft is None else {"$schema": draft})
        schema["allOf"] = [{"$ref": random_reference(rng, definitions)}]
        assert is_schema(schema) == is_schema_there(wheel, schema), schema
        seen[is_schema(schema)] += 1
    assert min(seen.values()) > 100


OUTWARD = {"$ref": "http://q/zz"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$id": "a/b", "$ref": "../b"},
        {"$id": "a/", "$ref": ".."},
        {"$id": "a/", "allOf": [{"$ref": ".."}]},
        {"$id": "a/", "properties": {"x": {"$ref": "../#/$defs/k"}}, "$defs": {"k": {"$ref": "../#/$defs/m"}, "m": {}}},
        {"$id": "a/", "properties": {"x": {"$ref": "../#/$defs/k"}}, "$defs": {"k": {"$ref": "#/$defs/m"}, "m": {}}},
        {"$schema": DRAFTS[1], "$ref": "#", "allOf": [OUTWARD]},
        {"$schema": DRAFTS[1], "allOf": [{"$ref": "#", "definitions": {"x": OUTWARD}}]},
        {"$schema": DRAFTS[1], "$ref": "#", "allOf": [{"$ref": "#/nowhere"}]},
        {"$schema": DRAFTS[1], "definitions": {"a": {"$id": "#l", "$ref": "#"}}, "allOf": [{"$ref": "#l"}]},
        {"$defs": {"a": {"$anchor": "l", "$ref": "#/nowhere"}}, "$ref": "#l"},
    ],
)
def test_corners_of_references_equal_the_other_codec(schema: Any, wheel: ModuleType) -> None:
    assert is_schema(schema) == is_schema_there(wheel, schema)


def is_schema(schema: Any) -> bool:
    try:
        check_schema(schema)
    except SchemaError:
        return False
    return True


def is_schema_there(wheel: ModuleType, schema: Any) -> bool:
    format = {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}
    body = {"model": "DeepSeek-V4-Pro", "messages": [{"role": "user", "content": "q"}], "response_format": format}
    try:
        wheel.ChatCompletionRequest(body).convert(wheel.ConversionOptions())
    except wheel.ConversionError:
        return False
    return True


PIECES = (
    *(
        "a",
        "é",
        ".",
        "^",
        "$",
        "|",
        "(",
        ")",
        ")",
        "(?:",
        "(?=",
        "(?<=",
        "(?<!",
        "(?>",
        "(?<n>",
        "(?i)",
        "(?x)",
        "*",
        "+",
    ),
    *("+", "?", "{2}", "{1,2}", "{", "*+", r"\d", r"\b", r"\1", r"\k<n>", r"\p{L}", r"\p{Foo}", r"\P{^sc=Greek}"),
    *(
        r"\cA",
        r"\x41",
        r"\u{41}",
        r"\ud800",
        r"\A",
        r"\Z",
        r"\R",
        r"\-",
        "[a-z]",
        "[^",
        "]",
        "[",
        "-",
        "&&",
        "[z-a]",
        " #",
    ),
)


def test_patterns_equal_the_other_codec(wheel: ModuleType) -> None:
    rng = random.Random(6)
    seen = Counter[bool]()
    for _ in range(2500):
        pattern = "".join(rng.choice(PIECES) for _ in range(rng.choice((1, 2, 3, 3, 4, 5))))
        expected = is_schema_there(wheel, {"pattern": pattern})
        assert is_ecma_regex(pattern) == expected, pattern
        seen[expected] += 1
    assert min(seen.values()) > 400


CALLS = (
    *(
        "(?~",
        "(?(1)",
        "(?(<n>)",
        "(?P<n>",
        "(?'n'",
        "(?i:",
        "(?-x:",
        "(*FAIL)",
        "(?#c)",
        "(",
        "(",
        ")",
        ")",
        "*?",
        "{,2}",
    ),
    *(
        r"\g<1>",
        r"\g<n>",
        r"\g<-1>",
        r"\g<0>",
        r"\g<+1>",
        r"\g<-2>",
        "(?P>n)",
        "(?P=n)",
        r"\2",
        r"\k<-1>",
        r"\K",
        r"\O",
    ),
)


def test_calls_in_patterns_equal_the_other_codec(wheel: ModuleType) -> None:
    rng = random.Random(8)
    seen = Counter[bool]()
    for _ in range(2500):
        pattern = "(?=)" + "".join(rng.choice((*PIECES, *CALLS, *CALLS)) for _ in range(rng.randint(2, 7)))
        pattern += ")" * max(0, pattern.count("(") - pattern.count(")"))
        expected = is_schema_there(wheel, {"pattern": pattern})
        assert is_ecma_regex(pattern) == expected, pattern
        seen[expected] += 1
    assert min(seen.values()) > 200


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(a\g<1>)", r"(a\g<1>?)", r"(a|b\g<1>)", r"(a\g<2>)(b\g<1>)", r"(d\g<2>|c)(a\g<1>)", r"|(a\g<1>)"),
        *(
            r"(\g<1>|a)",
            r"((\g<1>|a))",
            r"((\g<2>|a))",
            r"((\g<2>|a))\g<2>",
            r"(a*\g<1>|b)",
            r"(a+\g<1>|b)",
            r"a|\g<0>",
        ),
        *(
            r"(\g<2>|c)(\g<3>|a)(\g<1>|a)",
            r"(\2\g<1>|b)()",
            r"(\g<1>{0}a)",
            r"\g<2>{0}(a)",
            r"(?(a\g<0>)b|c)",
            r"\g<0>{0}",
        ),
        *(
            r"(?<=\g<1>)(\g<2>)(b)",
            r"(?<=\g<1>)(\g<2>)(b*)",
            r"(?<=\g<1>{2})(b)",
            r"((?<=\g<1>)|a)",
            r"(?<=\g<1>)(a\2)(b)",
        ),
        *("(?~(?~a))", "(?~(?=(?~a)))", "(?~a)(?~b)", r"(?~\g<1>)((?~a))", r"(?~a\g<0>)|b"),
        *(r"(?<n>a)\k<n>(?<n>)", r"(?<n>(?<n>)\k<n>)", "(?(<n>)a)(?<n>b)", "(?(<n>)a)", r"(?<n>a\g<n>)(?<n>b)"),
        *(r"\g<-2>", r"(a)\g<-3>", r"\g<+1>(a)", r"\k<+1>(a)", r"\g<+1>", "(?(+1)a|b)(c)", r"\k<-1>"),
    ],
)
def test_corners_of_calls_equal_the_other_codec(pattern: str, wheel: ModuleType) -> None:
    for whole in (pattern + r"\K", "(?=)" + pattern):
        assert is_ecma_regex(whole) == is_schema_there(wheel, {"pattern": whole}), whole


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            r"\p{" + " " * 100_000 + "L}",
            r"\p{ ^L}",
            r"\p{isGreek}",
            r"\p{age=6.0}",
            r"\p{gc!=L}",
            r"\p{alpha=y}",
            r"\pé",
        ),
        *(
            r"\pé",
            "(?<=a*)b",
            "(?<=a*(?=b))c",
            r"(?<=(?:a(?=b))*)",
            "(?<=a*+)",
            r"()(?<=\1)",
            r"(?<=\1)()",
            "^*",
            "(?=a)*",
        ),
        *("(" * 63 + ")" * 63, "(" * 64 + ")" * 64, "(a{1000}){1000}", "(a{500}){200}", r"\p{L}{200}", r"\p{L}{300}"),
        *("(?x)(?=a) # (", "(?x)(?-x)#(", "(?x)[ ]", "[--]", "[+--]", "[a--]", "[a-b-c]", "[[:alpha:]]", r"[\cA-\cC]"),
    ],
)
def test_corners_of_patterns_equal_the_other_codec(pattern: str, wheel: ModuleType) -> None:
    assert is_ecma_regex(pattern) == is_schema_there(wheel, {"pattern": pattern})


def test_long_patterns_take_linear_time() -> None:
    for make in (
        *(
            lambda n: r"\p{" * n + "}",
            lambda n: "[" + r"\p{L}" * n,
            lambda n: "a{" + " " * n + "1",
            lambda n: "(a|b)*" * n,
        ),
        *(
            lambda n: "(?=)" + "".join(rf"(a\g<{i + 2}>)" for i in range(n // 8)) + "(b)",
            lambda n: "(?=)" + r"(a\g<1>?)" * n,
        ),
        *(lambda n: "(?=)" + "".join(rf"(\g<{n // 8 - i}>?)" for i in range(n // 8)), lambda n: r"(?=)((a)\g<2>)" * n),
        *(lambda n: "(?=a)" * n, lambda n: "(?=)(?x)" + "#a\n" * n, lambda n: "()" + r"\1" * n, lambda n: "a{ " * n),
    ):
        small, large = make(1_000), make(4_000)
        assert growth(partial(is_ecma_regex, small), partial(is_ecma_regex, large), 10) < 10, make(1)  # quadratic: 16


def test_calls_take_linear_time() -> None:
    for make in (
        lambda n: "(?=)" + "".join(rf"(a\g<{number + 2}>)" for number in range(n)) + "(b)",
        lambda n: "(?=)" + "".join(rf"(a\g<{n - number}>?)" for number in range(n)),
        lambda n: "(?=)" + r"((a)\g<2>|\g<1>)" * n,
    ):
        small, large = make(400), make(1_600)
        assert growth(partial(is_ecma_regex, small), partial(is_ecma_regex, large), 10) < 10, make(1)  # quadratic: 16


def test_an_index_of_more_digits_than_python_reads() -> None:
    with pytest.raises(SchemaError, match="does not lead to a part"):
        check_schema({"$ref": "#/anyOf/" + "1" * 5000, "anyOf": [{}]})


@pytest.mark.parametrize(
    "pattern",
    [
        "[" + r"\p{a}" * 60,  # each could be read in two ways
        "[" + r"\x41" * 60,
        "[" * 100_000,
        "[" + r"\p{" * 30_000 + "]",
        "a{" + "1" * 5000 + "}",  # more digits than Python reads
    ],
    ids=["properties", "bytes", "sets", "braces", "digits"],
)
def test_patterns_that_are_made_to_be_slow_are_judged_at_once(pattern: str) -> None:
    def refused() -> None:
        with pytest.raises(SchemaError, match="is not a regular expression"):
            check_schema({"pattern": pattern})

    assert seconds(refused) < 5


@pytest.mark.parametrize(
    ("url", "media_type", "data"),
    [
        ("data:image/png;base64,aGk=", "image/png", b"hi"),
        ("DATA:image/PNG;charset=x;base64,aG k#fragment", "image/png", b"hi"),
        ("data:image/gif;base64,aGk%3D", "image/gif", b"hi"),
        (" data:im\nage/gif,a%20b\t", "image/gif", b"a b"),
        ("data:,x", "text/plain", b"x"),
        ("data:image/png;base64,aGk=x", "image/png", None),
        ("data:image/png;base64,a", "image/png", None),
        ("data:image/png;base64,aG=", "image/png", None),
    ],
)
def test_data_urls(url: str, media_type: str, data: bytes | None) -> None:
    read = read_data_url(url)
    assert read is not None and read.media_type == media_type
    assert read.decode() == data and read.is_decodable() == (data is not None)


@pytest.mark.parametrize("url", ["", "http://x", "data:image/png", "data:image/png#,a", "ſdata:,a"])
def test_texts_that_are_no_data_urls(url: str) -> None:
    assert read_data_url(url) is None


def test_quoting() -> None:
    assert quoted('a"b\\\n\0é\u202e') == '"a\\"b\\\\\\n\\0é\\u{202e}"'
