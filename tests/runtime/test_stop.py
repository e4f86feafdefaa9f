"""Stop strings over streamed text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepinfer.runtime.stop import StopStrings


def feed(stops: list[str], pieces: list[str]) -> tuple[str, str | None, list[str]]:
    checker = StopStrings(stops)
    parts = [checker.push(piece) for piece in pieces]
    if checker.matched is None:
        parts.append(checker.finish())
    return "".join(parts), checker.matched, parts


def test_no_stop_strings_hold_nothing_back() -> None:
    assert feed([], ["ab", "", "c"]) == ("abc", None, ["ab", "", "c", ""])


@pytest.mark.parametrize(
    ("stops", "text", "shown", "matched"),
    [
        (["END"], "text ENDing", "text ", "END"),
        (["END"], "text EN", "text EN", None),
        (["aab"], "aaab", "a", "aab"),
        (["abcd", "bc"], "xabcd", "xa", "bc"),  # ends first
        (["c", "abc"], "xabcd", "x", "abc"),  # ends together: begins first
        (["é\n"], "caf\u00e9\n", "caf", "é\n"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_what_is_shown_does_not_depend_on_the_pieces(
    stops: list[str], text: str, shown: str, matched: str | None, size: int
) -> None:
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert feed(stops, pieces)[:2] == (shown, matched)


def test_text_is_released_as_soon_as_no_match_can_begin_in_it() -> None:
    checker = StopStrings(["STOP"])
    assert [checker.push(piece) for piece in ["a", "S", "T", "A", "ST"]] == ["a", "", "", "STA", ""]
    assert checker.finish() == "ST"


def test_nothing_comes_after_a_match() -> None:
    checker = StopStrings(["x"])
    assert checker.push("axb") == "a" and checker.push("more") == "" and checker.finish() == ""


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    st.text("abc", max_size=12),
    st.lists(st.integers(1, 4), min_size=1, max_size=12),
)
def test_any_cut_equals_the_search_in_the_whole_text(stops: list[str], text: str, sizes: list[int]) -> None:
    ends = [(i + len(s), i, s) for s in stops for i in range(len(text)) if text.startswith(s, i)]
    expected = (text[: min(ends)[1]], min(ends)[2]) if ends else (text, None)
    pieces, rest = [], text
    while rest:
        size = sizes[len(pieces) % len(sizes)]
        pieces, rest = [*pieces, rest[:size]], rest[size:]
    assert feed(stops, pieces)[:2] == expected
