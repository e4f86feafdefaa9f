"""Every mutant of every kernel: noticed, or redundant by a rule; and that the table in docs/ascend.md says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import ascend_mutants
from ascend import needs_compiler, needs_tilelang
from deepinfer.backends.ascend import lower as lowering
from deepinfer.backends.ascend.sim import KernelFault, mutate, redundant
from deepinfer.backends.ascend.sweep import Swept, sweep

pytestmark = needs_compiler
DOCUMENT = Path(__file__).parents[3] / "docs" / "ascend.md"
QUICK = ("cast_simd", "gather", "store_atomic.cpp", "simd_reduce.cpp")
SLOW = ("rmsnorm_simt", "gemm_mx", "grid_sum", "gemm_bias.cpp", "ring.cpp", "simt_scan.cpp")
"""One of each kind of kernel; the others with `--whole`."""


def marked(name: str) -> object:
    return name if name in QUICK else pytest.param(name, marks=pytest.mark.slow if name in SLOW else pytest.mark.whole)


def places(swept: Swept) -> tuple[list[tuple[str, int, str]], list[tuple[str, int, str]]]:
    """Mutants that nothing explains, and those noticed against a rule."""
    return (
        [(m.kind, m.line, m.text) for m in swept.unexplained],
        [(v.mutant.kind, v.mutant.line, v.message) for v in swept.contradicted],
    )


@pytest.mark.parametrize("name", [marked(name) for name in ascend_mutants.NAMES])
def test_every_mutant_of_a_kernel_is_noticed_or_redundant_by_a_rule(name: str) -> None:
    if not name.endswith(".cpp") and lowering.missing():
        pytest.skip(lowering.missing())
    pairs, sizes = ascend_mutants.pairs(name), ascend_mutants.sizes(name)
    assert places(pairs) == places(sizes) == ([], [])
    assert ascend_mutants.row(name, pairs, sizes) in DOCUMENT.read_text(encoding="utf-8").splitlines()


@needs_tilelang
@pytest.mark.parametrize("name", ["gather", "hist", "cast_simd"])
def test_every_single_synchronisation_left_out_is_noticed(name: str) -> None:
    swept = sweep(*ascend_mutants.given(name), ("line", "pair"))
    assert (places(swept), swept.redundant) == (([], []), ())
    assert swept.count == swept.by("error") + swept.by("output") > 2


def test_a_rule_that_does_not_hold_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redundant, "rule", lambda mutant, text: "made up")
    swept = sweep(*ascend_mutants.given("store_atomic.cpp"), ("length", "stride"))
    assert {v.mutant.kind for v in swept.contradicted} == {"length"}
    assert swept.rules() == {"made up": 6} and not swept.noticed and not swept.unexplained


def test_of_a_barrier_only_the_rule_of_races_proves_that_nothing_needs_it() -> None:
    """Where no output is compared, data betrays nothing, and the rule of races still does."""
    text, samples = ascend_mutants.given("simt_scan.cpp")
    swept = sweep(text, samples, ("pair",))
    assert [v.noticed for v in swept.noticed] == ["error"] and "race: " in swept.noticed[0].message
    blind = [replace(s, expected={}, scratch=("y", "z")) for s in samples]
    swept = sweep(text, blind, ("pair",), relaxed=True)
    assert [m.text for m in swept.unexplained] == [] and not swept.redundant
    assert ["race: " in v.message for v in swept.contradicted] == [True]


def test_a_sample_that_fails_by_itself_is_said() -> None:
    text, samples = ascend_mutants.given("store_atomic.cpp")
    wrong = {name: value + 1 for name, value in samples[0].expected.items()}
    with pytest.raises(KernelFault, match="wrong without any mutant: .*elements wrong"):
        sweep(text, [replace(samples[0], expected=wrong)], mutate.OPERATORS)


def test_the_table_has_every_kernel() -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    for name in ascend_mutants.NAMES:
        assert sum(line.startswith(f"| `{name}` |") for line in lines) == 1, name
    assert len(mutate.OPERATORS) >= 8
