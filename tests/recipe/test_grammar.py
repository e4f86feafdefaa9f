"""What a grammar lets through parses back to what was asked."""

from __future__ import annotations

import json
import random
import re
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepinfer.recipe.errors import InvalidArgumentError
from deepinfer.recipe.events.side import event_side
from deepinfer.recipe.grammar import structural_tag
from deepinfer.recipe.grammar.parameters import Text, read_parameters
from deepinfer.recipe.json_text import print_json
from deepinfer.recipe.options import OutputConstraint
from deepinfer.recipe.protocols import protocol
from deepinfer.recipe.stream.chunks import FinishChunk, FinishReason, TextChunk
from deepinfer.recipe.stream.parser import StreamProcessor
from deepinfer.recipe.stream.usage import NO_PROMPT_USAGE
from deepinfer.recipe.versions import model_version
from recipe_cases import VERSIONS
from recipe_grammar import Writer, vocabulary

D = "｜DSML｜"
SPELLING = {"v4": ("tool_calls", "invoke", "parameter"), "v4.1": (" calls", " invoke", " parameter")}
TOOLS: dict[str, Any] = {
    "typed": {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "n": {"type": "integer"},
            "u": {"anyOf": [{"type": "string"}, {"type": "boolean"}]},
            "e": {"enum": ["x", 1]},
            "l": {"type": "array", "items": {"$ref": "#/$defs/d"}},
        },
        "required": ["a"],
        "$defs": {"d": {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]}},
    },
    "open": {},
    "bare": {"type": "object", "properties": {}, "additionalProperties": False},
    "optional": {"type": "object", "properties": {"b": {"type": ["boolean", "null"]}}},
}


def request(version: str, **fields: Any) -> Any:
    listed = [
        {"type": "function", "function": {"name": name, **({"parameters": schema} if schema else {})}}
        for name, schema in TOOLS.items()
    ]
    body = {"model": model_version(version).model_name, "messages": [{"role": "user", "content": "json"}]}
    return protocol("chat").convert({**body, "thinking": {"type": "disabled"}, "tools": listed, **fields})


@cache
def writer(version: str, kind: str) -> Writer:
    pytest.importorskip("xgrammar", reason="needs xgrammar: install the grammar-test extra")
    calls, invoke, parameter = SPELLING[version]
    tags = [f"<{D}{calls}>\n", f"</{D}{calls}>", f"</{D}{invoke}>\n", f"</{D}{parameter}>\n"]
    tags += [f'<{D}{invoke} name="', f'<{D}{parameter} name="', '" string="true">', '" string="false">']
    choice = {"tool_choice": "required"} if kind == "tool_call_required" else {}
    converted = request(version, **choice)
    constraint = converted.inference_options.output_constraint
    assert constraint.kind == kind
    return Writer(vocabulary(tags), structural_tag(constraint, model_version(version)))


def parse(converted: Any, output: str, rng: random.Random) -> Any:
    """The message that the parser makes of an output, cut somewhere."""
    side = event_side("chat")
    processor = StreamProcessor(side.generator(converted, "i", "m"), converted.parsing_options)
    response = side.response("i", "m", 0, NO_PROMPT_USAGE)
    cut = rng.randrange(len(output) + 1)
    for chunk in (TextChunk(output[:cut], 1), TextChunk(output[cut:], 1), FinishChunk(FinishReason.STOP)):
        for event in processor.push(chunk):
            response.accumulate(event)
    return json.loads(response.to_json())["choices"][0]["message"]


def asked(output: str, version: str) -> list[tuple[str, dict[str, Any]]]:
    """The calls in an output, read with plain patterns."""
    _, invoke, parameter = SPELLING[version]
    found = []
    for name, inside in re.findall(rf'<{D}{invoke} name="([^"]*)">\n(.*?)</{D}{invoke}>\n', output, re.DOTALL):
        pattern = rf'<{D}{parameter} name="([^"]*)" string="(true|false)">(.*?)</{D}{parameter}>\n'
        values = {
            key: value if is_string == "true" else json.loads(value)
            for key, is_string, value in re.findall(pattern, inside, re.DOTALL)
        }
        found.append((name, values))
    return found


@pytest.mark.parametrize("kind", ["tool_call", "tool_call_required"])
@pytest.mark.parametrize("version", VERSIONS)
def test_calls_parse_back(version: str, kind: str) -> None:
    write = writer(version, kind)
    converted = request(version, **({"tool_choice": "required"} if kind == "tool_call_required" else {}))
    seen = 0
    for seed in range(200):
        rng = random.Random(seed)
        output = write.write(rng)
        if output is None:
            continue
        message = parse(converted, output, rng)
        got = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", [])]
        want = asked(output, version)
        assert [(name, json.loads(arguments)) for name, arguments in got] == want, output
        seen += bool(want)
        for name, arguments in want:
            check_arguments(TOOLS[name], arguments)
    assert seen >= 30


def check_arguments(schema: Any, arguments: dict[str, Any]) -> None:
    """Arguments are of the types of their schema."""
    properties = schema.get("properties")
    if properties is None:
        return
    assert set(schema.get("required", ())) <= set(arguments) <= set(properties)
    kinds: dict[str, Any] = {"a": str, "n": int, "u": (str, bool), "e": (str, int), "l": list, "b": (bool, type(None))}
    for name, value in arguments.items():
        assert isinstance(value, kinds[name]), (name, value)
    assert all(isinstance(item["k"], str) for item in arguments.get("l", ()))


@pytest.mark.parametrize("version", VERSIONS)
def test_free_text_before_calls(version: str) -> None:
    """Text, a block after it, and nothing between tags but what the markup has."""
    xgrammar = pytest.importorskip("xgrammar", reason="needs xgrammar: install the grammar-test extra")
    from xgrammar.testing import _is_grammar_accept_string as accepts

    calls, invoke, parameter = SPELLING[version]
    constraint = request(version).inference_options.output_constraint
    grammar = xgrammar.Grammar.from_structural_tag(structural_tag(constraint, model_version(version)))
    value = f'<{D}{parameter} name="a" string="true">say "x" </b>\n</{D}{parameter}>\n'
    call = f'<{D}{invoke} name="typed">\n{value}</{D}{invoke}>\n'
    block = f"<{D}{calls}>\n{call}</{D}{calls}>"
    for accepted in (
        "",
        "just text < <b>\n\n",
        f"text\n\n{block}",
        block,
        f"x\n\n<{D}{calls}>\n{call}{call}</{D}{calls}>",
    ):
        assert accepts(grammar, accepted), accepted
    for refused in (
        f"text\n\n<{D}{calls}>\n",
        f"{block} more",
        f"<{D}{calls}>\n</{D}{calls}>",
        block.replace(value, ""),
        block.replace("typed", "other"),
        block.replace('string="true"', 'string="false"'),
    ):
        assert not accepts(grammar, refused), refused
    message = parse(request(version), f"text\n\n{block}", random.Random(0))
    assert message["content"] == "text"
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"a": 'say "x" </b>\n'}


def test_values_reasoning_and_kinds() -> None:
    xgrammar = pytest.importorskip("xgrammar", reason="needs xgrammar: install the grammar-test extra")
    from xgrammar.testing import _is_grammar_accept_string as accepts

    def grammar(kind: Any, schema: str, **options: bool) -> Any:
        tag = structural_tag(OutputConstraint(kind, schema), model_version("v4.1"), **options)
        return xgrammar.Grammar.from_structural_tag(tag)

    any_json = grammar("json", "")
    assert [accepts(any_json, text) for text in ('{"a": [1]}', "[]", "5", "{} x")] == [True, True, False, False]
    number = grammar("json", '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}')
    assert [accepts(number, text) for text in ('{"a": 1}', "{}", '{"a": "x"}')] == [True, False, False]
    pattern = grammar("regex", "[a-z]+\\d?")
    assert [accepts(pattern, text) for text in ("ab1", "AB", "")] == [True, False, False]
    thinking = grammar("regex", "yes|no", reasoning=True)
    assert [accepts(thinking, text) for text in ("hm <x></think>yes", "yes", "a</think>maybe")] == [True, False, False]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="kind of the constraint is 'lark'"):
        structural_tag(OutputConstraint("lark", ""), model_version("v4"))  # type: ignore[arg-type]


def test_parameters_that_are_text_json_or_both() -> None:
    parameters = read_parameters(TOOLS["typed"])
    by_name = {parameter.name: parameter for parameter in parameters.known}
    assert by_name["a"].text == Text() and not by_name["a"].others and by_name["a"].required
    assert by_name["n"].text is None and by_name["n"].others == ({"type": "integer"},)
    assert by_name["u"].text == Text() and by_name["u"].others == ({"type": "boolean"},)
    assert by_name["e"].text == Text(("x",)) and by_name["e"].others == ({"enum": [1]},)
    assert "$defs" in by_name["l"].others[0]  # type: ignore[operator]
    assert not parameters.open and read_parameters({}).open and not read_parameters(TOOLS["bare"]).open


def test_references_that_lead_to_themselves() -> None:
    both = {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}, {"type": "string"}]}
    schema: Any = {"properties": {"p": {"$ref": "#/$defs/a"}}, "$defs": {"a": both, "b": both}}
    (parameter,) = read_parameters(schema).known
    assert parameter.text == Text() and not parameter.others


def test_a_chain_of_references() -> None:
    chain: Any = {f"d{number}": {"anyOf": [{"$ref": f"#/$defs/d{number + 1}"}]} for number in range(3000)}
    schema: Any = {"properties": {"p": {"$ref": "#/$defs/d0"}}, "$defs": {**chain, "d3000": {"type": "string"}}}
    (parameter,) = read_parameters(schema).known
    assert parameter.text == Text() and not parameter.others


def test_references_do_not_grow_without_bound() -> None:
    def schema(size: int) -> Any:
        part = {"type": "array", "items": {"$ref": "#/$defs/d0"}}
        definitions = {f"d{number}": {"type": "string"} for number in range(size)}
        return {"properties": {f"p{number}": part for number in range(size)}, "$defs": definitions}

    (first, *_) = read_parameters(schema(1000)).known
    assert first.others == ({"type": "array", "items": {"$ref": "#/$defs/d0"}, "$defs": {"d0": {"type": "string"}}},)
    with pytest.raises(InvalidArgumentError, match="grow to more than 1000 characters"):
        read_parameters(schema(100), 1000)


def test_four_hundred_parameters_that_need_one_another() -> None:
    """A tool of 35 KB. Of the bound on what it grows to there is enough left, and a caller may set another."""
    properties: Any = {
        f"p{number}": {"type": "object", "properties": {"next": {"$ref": f"#/$defs/d{number}"}}}
        for number in range(400)
    }
    definitions: Any = {
        f"d{number}": {"type": "array", "items": {"$ref": f"#/$defs/d{number + 1}"}} for number in range(400)
    }
    schema: Any = {"type": "object", "properties": properties, "$defs": {**definitions, "d400": {"type": "string"}}}
    parameters = read_parameters(schema)
    sizes = [len(parameter.others[0]["$defs"]) for parameter in parameters.known]  # type: ignore[index, call-overload, arg-type]
    assert sizes == list(range(401, 1, -1))
    listed = print_json([{"type": "function", "function": {"name": "f", "parameters": schema}}], compact=True)
    tag = structural_tag(OutputConstraint("tool_call", listed), model_version("v4"))
    assert 4 << 20 < len(tag) < 16 << 20
    with pytest.raises(InvalidArgumentError, match="grow to more than"):
        structural_tag(OutputConstraint("tool_call", listed), model_version("v4"), max_expanded=4 << 20)


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({'a"b': {"type": "string"}}, '"'),
        ({"a\nb": {"type": "string"}}, "\\n"),
        ({f"a</{D}": {"type": "string"}}, f"</{D}"),
        ({f"<{D}b": {"type": "integer"}}, f"<{D}"),
        ({"a": {"enum": ["x", f"y</{D} parameter>"]}}, f"</{D}"),
        ({"a": {"type": "array", "items": {"const": f"</{D}"}}}, f"</{D}"),
    ],
)
def test_what_the_markup_cannot_write_is_refused_by_name(properties: Any, found: str) -> None:
    schema = {"type": "object", "properties": properties}
    listed = print_json([{"type": "function", "function": {"name": "f", "parameters": schema}}], compact=True)
    with pytest.raises(InvalidArgumentError, match=f"tool 'f': .* holds .*{re.escape(found)}"):
        structural_tag(OutputConstraint("tool_call", listed), model_version("v4.1"))


def test_a_grammar_as_ebnf_says_the_same() -> None:
    """Who wants EBNF gets it from xgrammar, which prints what it makes of a tag."""
    xgrammar = pytest.importorskip("xgrammar", reason="needs xgrammar: install the grammar-test extra")
    from xgrammar.testing import _is_grammar_accept_string as accepts

    for constraint, good, bad in (
        (OutputConstraint("json", ""), '{"a": [1]}', "5"),
        (OutputConstraint("json", '{"type":"object","properties":{"a":{"type":"integer"}}}'), '{"a": 1}', '{"a": "x"}'),
        (OutputConstraint("regex", "[a-z]+"), "ab", "A"),
    ):
        tag = structural_tag(constraint, model_version("v4.1"))
        ebnf = xgrammar.Grammar.from_ebnf(str(xgrammar.Grammar.from_structural_tag(tag)))
        assert accepts(ebnf, good) and not accepts(ebnf, bad)


@pytest.mark.parametrize("schema", ["{}", "[1]", "[{}]", '[{"function":{}}]', '[{"function":{"name":1}}]'])
def test_tools_that_are_none(schema: str) -> None:
    with pytest.raises(InvalidArgumentError, match="no list of functions"):
        structural_tag(OutputConstraint("tool_call", schema), model_version("v4"))


SCHEMAS = st.recursive(
    st.sampled_from(
        [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"enum": ["x", "y z", 1]}, {"const": "k"}]
    ),
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(lambda item: {"type": "object", "properties": {"k": item}, "required": ["k"]}, inner)
        | st.builds(lambda one: {"anyOf": [one, {"type": "null"}]}, inner)
    ),
    max_leaves=3,
)
NAMES = st.text("abcXYZ_é -.", min_size=1, max_size=6).filter(lambda name: name.strip() == name)


@pytest.mark.parametrize("version", VERSIONS)
def test_calls_of_any_tool_parse_back(version: str) -> None:
    pytest.importorskip("xgrammar", reason="needs xgrammar: install the grammar-test extra")
    calls, invoke, parameter = SPELLING[version]
    tags = [f"</{D}{calls}>", f"</{D}{invoke}>\n", f"</{D}{parameter}>\n", f'<{D}{invoke} name="']
    tags += [f'<{D}{parameter} name="', '" string="true">', '" string="false">']
    seen = []

    @settings(deadline=None, max_examples=12)
    @given(st.dictionaries(NAMES, SCHEMAS, min_size=1, max_size=3), st.randoms(use_true_random=False))
    def check(properties: dict[str, Any], rng: random.Random) -> None:
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        body = {"model": model_version(version).model_name, "messages": [{"role": "user", "content": "q"}]}
        body |= {"tools": [tool], "tool_choice": "required", "thinking": {"type": "disabled"}}
        converted = protocol("chat").convert(body)
        constraint = converted.inference_options.output_constraint
        assert constraint is not None
        output = Writer(vocabulary(tags), structural_tag(constraint, model_version(version))).write(rng)
        if output is None:
            return
        message = parse(converted, output, rng)
        got = [json.loads(call["function"]["arguments"]) for call in message["tool_calls"]]
        assert got == [arguments for _, arguments in asked(output, version)], output
        assert all(set(arguments) == set(properties) for arguments in got)
        seen.append(output)

    check()
    assert seen
