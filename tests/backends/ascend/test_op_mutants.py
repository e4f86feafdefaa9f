"""The table of docs/ascend_mutants.md: its rows are of the present texts, leave nothing, and are what a sweep finds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

import ascend_equivalent
import ascend_op_mutants
from ascend import needs_compiler
from ascend_equivalent import PLACE, Equivalent
from ascend_mutant_log import Found, Logged, read
from deepinfer.backends.ascend.build import programs
from deepinfer.backends.ascend.program import Program
from deepinfer.backends.ascend.sim import mutate
from deepinfer.backends.ascend.sim.mutate import Verdict
from deepinfer.backends.ascend.sweep import Swept, sweep_mutants

BY_LABEL = {program.label: program for program in programs()}
LIVE = "rms_norm-most_8192"
"""Swept in part in every run; all programs whole with `--whole`."""
ELSEWHERE = {"self_test"}
"""Programs of no op."""
NOT_SWEPT = {"select_tokens", "token_weights", "verify_drafts"}
"""Programs that have no row yet; one that has one is to be taken out."""
LOG = """\
| `a-n_1` | `0123abcd` | `one`, `two` | 3 | 1 race-free | 1 | 9 | 2 | 3 | 1 at most so, 2 single burst | 1 |
  left: pair line 7 at -1: asc_sync_pipe
  left: clamp line 5 at 450: for (;;) >>>min(1, x)
# a-n_1 11 s
| `b` | `0123abce` | `one` | 0 | 0 | 0 | 1 | 1 | 0 | 0 | 0 |
  against a rule: stride line 3 at 9: 1 of 2 elements differ
"""


def program() -> Program:
    return BY_LABEL[LIVE]


@needs_compiler
@pytest.mark.whole
@pytest.mark.parametrize("label", sorted(label for label, _ in ascend_op_mutants.rows()))
def test_a_sweep_of_all_mutants_prints_the_row(label: str) -> None:
    swept = BY_LABEL[label]
    found = ascend_op_mutants.parts(swept)
    assert [p.left for p in found] == [(), ()] and [p.contrary for p in found] == [(), ()]
    row = ascend_op_mutants.row(swept, ascend_op_mutants.launching(swept), *found)
    assert row == ascend_op_mutants.rows()[label, ascend_op_mutants.digest(swept)]


@needs_compiler
def test_one_sample_betrays_what_it_should_of_a_small_kernel() -> None:
    """A share of its sweep in every run: all pairs, and who does how many rows."""
    ascend_op_mutants.ops()  # loads the kernels
    text = ascend_op_mutants.Text(program())
    sample = next(s for s in ascend_op_mutants.chosen("rms_norm") if s.label == "37 rows")
    tries, mutants = [ascend_op_mutants.tried("rms_norm", sample, text)], text.made.mutants
    pairs = sweep_mutants(text.text, mutants, tries, ("pair",), relaxed=True)
    assert (pairs.count, pairs.by("output"), pairs.redundant, pairs.unexplained) == (4, 4, (), ())
    shared = sweep_mutants(text.text, mutants, tries, ("block", "loop"))
    assert (shared.unexplained, shared.contradicted) == ((), ()) and shared.rules() == {"sign of a remainder": 1}


def test_rows_are_of_the_present_texts_and_leave_nothing() -> None:
    rows = ascend_op_mutants.rows()
    for (label, digest), row in rows.items():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert (cells[5], cells[10]) == ("0", "0"), f"{label}: nothing betrays a mutant, and nobody says why"
        assert digest == ascend_op_mutants.digest(BY_LABEL[label]), f"{label}: its text has changed; sweep it again"
    assert set(BY_LABEL) - {label for label, _ in rows} <= ELSEWHERE | NOT_SWEPT


@pytest.mark.whole
def test_rows_name_the_rules_and_reasons_of_now() -> None:
    """Without a run: what is betrayed is taken from the row."""
    for (label, _), row in ascend_op_mutants.rows().items():
        logged, swept = read(row)[label], BY_LABEL[label]
        every = mutate.schemata(swept.text()).mutants
        sizes = [m for m in every if m.kind in mutate.OPERATORS]
        why = Counter(filter(None, (ascend_op_mutants.explained(swept, m) for m in sizes)))
        assert (dict(why), len(sizes)) == (logged.sizes.redundant, logged.sizes.count), label
        assert logged.sizes.errors + logged.sizes.outputs + why.total() == len(sizes), label


def test_a_reason_that_does_not_hold_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    clamp = next(m for m in mutate.schemata(program().text()).mutants if m.kind == "length")
    betrayed = Swept((Verdict(clamp, "output", "3 elements differ"),), (), (), ())
    assert ascend_op_mutants.part(program(), betrayed).contrary == ()
    left = ascend_op_mutants.part(program(), Swept((), (), (clamp,), ()))
    assert (left.redundant, left.left) == ({}, (clamp,))
    monkeypatch.setattr(ascend_equivalent, "KNOWN", (Equivalent("rms_norm-.*", "length", PLACE, "made up"),))
    assert ascend_op_mutants.part(program(), betrayed).contrary == (("a reason", betrayed.noticed[0]),)
    left = ascend_op_mutants.part(program(), Swept((), (), (clamp,), ()))
    assert (left.redundant, left.left) == ({"made up": 1}, ())


def test_a_log_is_read_as_it_was_printed() -> None:
    found = read(LOG)
    pairs = Found(3, 0, 0, {"race-free": 1})
    sizes = Found(9, 2, 3, {"at most so": 1, "single burst": 2})
    left = frozenset({("pair", 7, -1, "asc_sync_pipe"), ("clamp", 5, 450, "")})
    assert found["a-n_1"] == Logged("0123abcd", ("one", "two"), pairs, sizes, left, False)
    assert found["b"].contrary and not found["b"].left and found["b"].sizes == Found(1, 1, 0, {})


def test_a_row_that_rules_of_now_do_not_fit_has_to_be_swept_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ascend_op_mutants, "EXTRA", {})
    ascend_op_mutants.extra.cache_clear()
    swept, row = program(), ascend_op_mutants.rows()[LIVE, ascend_op_mutants.digest(program())]
    logged = read(row)[LIVE]
    assert ascend_op_mutants.row(swept, logged.ops, *ascend_op_mutants.parts_now(swept, logged)) == row
    fewer = replace(logged.sizes, redundant={**logged.sizes.redundant, "single burst": 1})
    unknown = frozenset({("clamp", 1, 1, "")})
    for wrong in ({"digest": "0" * 8}, {"contrary": True}, {"sizes": fewer}, {"left": unknown}):
        with pytest.raises(ascend_op_mutants.SweepAgainError):
            ascend_op_mutants.parts_now(swept, replace(logged, **wrong))
    ascend_op_mutants.extra.cache_clear()
