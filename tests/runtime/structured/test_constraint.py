"""What a request may say next: at borders, behind drafts, and after it was brought to another point."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from deepinfer.runtime.structured.constraint import Constraint
from grammars import CONTROL, EOS, Compiler, allowed, walk

A, B, C = (3 + ord(char) for char in "abc")
PROPERTIES = {"a": {"enum": ["x", "yy"]}, "n": {"type": "integer"}}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": ["a", "n"]}


def bytes_of(text: str) -> list[int]:
    return [3 + byte for byte in text.encode()]


def test_the_output_is_what_is_allowed_and_then_the_end(compiler: Compiler) -> None:
    held = compiler.constraint(schema_type="regex", schema="ab|c")
    assert allowed(held.masks([])[0]) == [A, C, compiler.vocabulary.pieces.index(b"ab")]
    assert allowed(held.masks([A])[0]) == [B]
    assert allowed(held.masks([A, B])[0]) == [EOS]
    assert allowed(held.masks([A, B, EOS])[0]) == [EOS] and held.error is None
    held.follow([A, B, EOS, A])
    assert held.error == "output token 3, 100, does not fit so_args['schema']"
    assert not held.masks([A, B, EOS, A]).any()


def test_behind_the_end_anything_may_be_said_where_that_ends_nothing(compiler: Compiler) -> None:
    held = compiler.constraint(ignore_eos=True, schema_type="regex", schema="a")
    size = len(compiler.vocabulary.pieces)
    assert allowed(held.masks([A])[0]) == [EOS]
    assert allowed(held.masks([A, EOS])[0]) == list(range(size)), "no bit past the vocabulary"
    assert allowed(held.masks([A, EOS, B, EOS])[0]) == list(range(size))


def test_drafts_are_cut_at_the_first_that_is_not_allowed(compiler: Compiler) -> None:
    held = compiler.constraint(schema_type="regex", schema="abc")
    for drafts, kept in (
        ([], 0),
        ([B], 0),
        ([A, C, B], 1),
        ([A, B, C], 3),
        ([A, B, C, EOS, A], 4),
        ([A, B, C, EOS, EOS], 5),
    ):
        rows = held.masks([], drafts)
        assert len(rows) == 1 + kept == 1 + held.allowed([], drafts)
        for j, row in enumerate(rows):
            alone = compiler.constraint(schema_type="regex", schema="abc")
            assert np.array_equal(row, alone.masks(drafts[:j])[0])
    assert allowed(held.masks([A])[0]) == [B] and held.error is None, "and the state is as it was"


def test_an_end_among_drafts_allows_nothing_but_the_end_behind_it(compiler: Compiler) -> None:
    held = compiler.constraint(schema_type="regex", schema="ab")
    rows = held.masks([A], [B, EOS, EOS, A])
    assert [allowed(row) for row in rows] == [[B], [EOS], [EOS], [EOS]]


def test_free_until_the_trigger_which_may_overlap_itself(compiler: Compiler) -> None:
    held = compiler.constraint(schema_type="regex", schema="c", trigger_token_ids=[A, A, B])
    free = [token for token in range(len(compiler.vocabulary.pieces)) if token != EOS]
    for output in ([], [A], [A, A], [A, A, A], [A, B], [B, 0, 2]):
        assert allowed(held.fresh(held.structure, EOS, False).masks(output)[0]) == free, output
    assert allowed(held.masks([A, A, A, B])[0]) == [C]
    rows = held.masks([], [A, A, B, C, EOS])
    assert [len(allowed(row)) for row in rows] == [len(free)] * 3 + [1, 1, 1]
    assert len(held.masks([], [A, EOS])) == 2, "an end before the structure is none"
    held = compiler.constraint(schema_type="regex", schema="c", trigger_token_ids=[EOS])
    assert EOS in allowed(held.masks([])[0]) and allowed(held.masks([EOS])[0]) == [C]


def test_behind_the_bound_the_trigger_is_forced(compiler: Compiler) -> None:
    held = compiler.constraint(schema_type="regex", schema="c", trigger_token_ids=[A, B], bound_token_id=2)
    assert [allowed(row) for row in held.masks([5, 2], [A, B, C])] == [[A], [B], [C], [EOS]]
    assert held.forced([5, 2], 5) == [A, B] and held.forced([5, 2], 1) == [A]
    assert len(held.masks([5, 2], [B])) == 1
    held = compiler.constraint(schema_type="regex", schema="c", trigger_token_ids=[A, B], bound_token_id=2)
    assert allowed(held.masks([A, B])[0]) == [C], "who says the trigger needs no bound"


def test_control_tokens_are_no_text(compiler: Compiler) -> None:
    held = compiler.of_schema({"type": "string"})
    inside = allowed(held.masks(bytes_of('"'))[0])
    assert not set(CONTROL) & set(inside) and EOS not in inside
    tag = '{"type": "structural_tag", "format": {"type": "const_string", "value": "a</think>b"}}'
    held = compiler.constraint(schema_type="structural_tag", schema=tag)
    assert allowed(held.masks([A])[0]) == [2, 3 + ord("<")]
    assert allowed(held.masks([A, 2])[0]) == [B]


def test_white_space_is_bounded(compiler: Compiler) -> None:
    def longest(**more: Any) -> int:
        held, said = compiler.of_schema(SCHEMA, **more), bytes_of("{")
        space = 3 + ord(" ")
        while space in allowed(held.masks(said)[0]):
            said.append(space)
        return len(said) - 1

    assert longest() == 16 and longest(max_whitespace=2) == 2 and longest(max_whitespace=0) == 0


def test_forced_tokens_are_what_all_outputs_begin_with(compiler: Compiler) -> None:
    held = compiler.of_schema(SCHEMA, max_whitespace=0)
    forced = held.forced([], 99)
    assert compiler.text(forced).startswith('{"a":') and held.forced([], 2) == forced[:2]
    assert held.allowed([], forced) == len(forced)
    assert held.forced(bytes_of('{"a":"'), 99) == [], "x or yy"
    assert compiler.text(held.forced(bytes_of('{"a":"x'), 99)).startswith('","n":')


def test_the_state_can_be_brought_to_any_point(compiler: Compiler) -> None:
    """As when a request is preempted, shares a prefix or begins anew after a failed step."""
    one, other, rng = compiler.of_schema(SCHEMA), compiler.of_schema(SCHEMA), random.Random(3)
    said = walk(one, compiler, rng)
    assert said is not None
    for _ in range(20):
        upto, drafts = rng.randrange(len(said) + 1), rng.randrange(4)
        rows = other.masks(said[:upto], said[upto:][:drafts])
        fresh = compiler.of_schema(SCHEMA).masks(said[:upto])
        assert np.array_equal(rows[0], fresh[0]) and len(rows) == 1 + min(drafts, len(said) - upto)


def test_a_matcher_that_fails_takes_its_request_along_and_nothing_else(compiler: Compiler) -> None:
    held = compiler.constraint(schema_type="regex", schema="abc")

    class Broken:
        def fill_next_token_bitmask(self, *args: Any) -> None:
            raise RuntimeError("lost")

    held._matcher = Broken()
    assert not held.masks([]).any() and held.error == "the grammar failed: lost"
    assert held.forced([], 3) == [] and held.allowed([], [A]) == 0
    held = compiler.constraint(schema_type="regex", schema="abc")
    held._matcher = Broken()
    assert held.forced([], 3) == [] and held.error is not None and "find_jump_forward" in held.error


def test_no_token_may_fit(compiler: Compiler) -> None:
    made = compiler.constraint(schema_type="regex", schema="a")
    held = Constraint(made.structure, made.compiled, made.vocab_size, EOS)
    held._matcher.fill_next_token_bitmask = lambda rows, row: None
    assert not held.masks([]).any() and held.error is not None and "no token" in held.error


def test_strings_hold_no_control_characters(compiler: Compiler) -> None:
    """The compiler takes a string of bounded length for any characters but quotes, backslashes and ends of lines."""
    held = compiler.of_schema({"type": "string", "maxLength": 3})
    inside = [compiler.vocabulary.pieces[token] for token in allowed(held.masks(bytes_of('"'))[0])]
    assert inside and not any(byte < 0x20 for piece in inside for byte in piece)
    assert 3 + 9 in allowed(compiler.constraint(schema_type="regex", schema=".").masks([])[0]), (
        "elsewhere a tab is text"
    )


def test_no_bit_past_the_vocabulary_is_set(compiler: Compiler) -> None:
    assert len(compiler.vocabulary.pieces) % 32
    held = compiler.constraint(schema_type="regex", schema="(?:.|\\n)*")
    assert max(allowed(held.masks([])[0])) < len(compiler.vocabulary.pieces)


def test_an_optional_group_is_there_whole_or_not_at_all(compiler: Compiler) -> None:
    """The compiler takes the repetition at an end of such a group without the rest of it."""
    held = compiler.of_schema({"type": "string", "pattern": "^a(?:b1+)?(?:2+c)?$"})
    assert held.allowed(bytes_of('"a'), bytes_of("1")) == 0
    assert held.allowed(bytes_of('"a'), bytes_of('2"')) == 1
