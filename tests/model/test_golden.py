"""The text model against an independent float64 implementation (`tests/model/golden`).

`compare_model.py` there reads those files; how to read its result stands in its docstring. Whole forwards of a random
network are chaotic at rounding level, so the teacher-forced layer pieces are the sharp instrument: each must stay at
or below a tenth of its limit.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import golden_adapter

GOLDEN = Path(__file__).parent / "golden"
TENTH = 0.1


@pytest.fixture(scope="module")
def compare() -> Any:
    sys.path.insert(0, str(GOLDEN))
    try:
        import compare_model
    finally:
        sys.path.remove(str(GOLDEN))
    return compare_model


@pytest.fixture(scope="module")
def adapter() -> golden_adapter.Adapter:
    return golden_adapter.factory(str(GOLDEN / "checkpoint"))


@pytest.mark.parametrize("part", ["logits", "greedy", "draft", "index", "records"])
def test_free_running(part: str, compare: Any, adapter: Any, capsys: pytest.CaptureFixture[str]) -> None:
    if part == "logits":
        pytest.importorskip("PIL", reason="needs the images extra")
    result = compare.run(adapter, str(GOLDEN), [part])
    printed = capsys.readouterr().out
    assert result == {part: "PASS"}, printed
    if part == "draft":
        assert re.findall(r"drafts agree (\d)/(\d)", printed) == [("5", "5")] * 3
        # No code flips on the way to the first prompt's drafts, so they are compared at rounding level; a tap taken
        # behind its layer instead of before it moves them by 0.1, which the other prompts' noise would hide.
        first = re.search(r"confidence diff ([\d.]+), logits max abs ([\d.]+)", printed)
        assert float(first[1]) <= 0.0002 and float(first[2]) <= 0.002, printed
    if part == "logits":
        compared, skipped = map(
            int, re.search(r"compared (\d+), skipped \(NotImplementedError\) (\d+)", printed).groups()
        )
        assert (compared, skipped) == (17, 0), "every sequence takes part, those with images and truncated ones too"


def test_kept_rows_of_compact_truncation(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The golden files hold mode mask; mode compact gives the same bits at the positions that it keeps."""
    golden = json.loads((GOLDEN / "golden.json").read_text())
    truncated = [s for s in golden["sequences"] if s["keep_tokens"] is not None and s["keep_tokens"] < len(s["ids"])]
    assert len(truncated) == 2
    for sequence in truncated:
        ids, keep = sequence["ids"], sequence["keep_tokens"]
        positions = [p for p in sequence["positions"] if p >= len(ids) - keep]
        assert len(positions) == len(sequence["positions"]) - 1
        mask = adapter.logits(ids, [], positions, keep)
        monkeypatch.setattr(adapter, "mode", "compact")
        assert np.array_equal(adapter.logits(ids, [], positions, keep), mask)
        monkeypatch.undo()


def test_layer_pieces_stay_below_a_tenth_of_their_limits(
    compare: Any, adapter: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    result = compare.run(adapter, str(GOLDEN), ["layers"])
    printed = capsys.readouterr().out
    assert result == {"layers": "PASS"}, printed
    worst = {k: float(v) for k, v in re.findall(r"(\w[\w ]*?) (\d+\.\d+)", printed.split("worst error / limit: ")[1])}
    assert set(worst) == {"engram", "collapse_norm", "attention", "ffn", "mix X", "mix p"}
    assert all(value <= TENTH for value in worst.values()), worst
    lists = re.findall(r"layer (\d+): rows equal (\d+)/(\d+), violations (\d+)", printed)
    assert [int(row[0]) for row in lists] == [2, 4, 6, 8]
    assert all(int(row[3]) == 0 for row in lists), lists
