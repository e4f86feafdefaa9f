"""Mutants of kernel texts: what they change, and that the model notices them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ascend_samples
from ascend import SOURCES, needs_tilelang, text
from deepinfer.backends.ascend.sample import differing
from deepinfer.backends.ascend.sim import Kernel, mutate, schedules, source

KERNEL = """
extern "C" __global__ __vector__ void k(__gm__ float* x, int32_t n) {
  for (int32_t w = 0; w < n; ++w) {
    asc_copy_gm2ub_align((__ubuf__ float*)0, (&(x[min(n, 4)])), 1, (min(n, max(w, 2)) * 4), 0, 0, 0, l2, 4, 4);
    asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
    asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>((w & 1)));
  }
}
"""


def test_what_the_text_becomes() -> None:
    made = mutate.schemata(KERNEL)
    code = source.without_comments(made.text)
    assert code.count("if (ascsim::keep(") == 2
    assert "asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(ascsim::mutant(" in code
    assert "int((w & 1))" in code
    assert code.count("ascsim::unclamped(") == 2 and "min(" not in code.replace("max(", "")
    for opening, closing in ("()", "[]", "{}"):
        assert code.count(opening) == code.count(closing)


def test_mutants_name_their_place() -> None:
    mutants = mutate.schemata(KERNEL).mutants
    kinds = {mutant.kind for mutant in mutants}
    assert {"line", "pair", "bursts", "length", "source", "destination", "stride", "clamp", "loop", "event"} == kinds
    [pair] = [mutant for mutant in mutants if mutant.kind == "pair"]
    assert (pair.text, len(pair.sites), pair.line) == ("PIPE_MTE2->PIPE_V", 2, 5)
    [loop] = [mutant for mutant in mutants if mutant.kind == "loop"]
    assert (loop.line, loop.delta) == (3, -1) and "for (int32_t w" in loop.text


def test_there_are_more_than_eight_operators_on_indices_and_sizes() -> None:
    assert len(mutate.OPERATORS) >= 8


def tried(name: str, seeds: int, relaxed: bool = False, kinds: tuple[str, ...] = ()) -> list[mutate.Verdict]:
    made = mutate.schemata(text(name))
    sample = ascend_samples.sample(name)
    kernel = Kernel(made.text, sample.blocks)
    chosen = schedules(seeds)
    assert differing(kernel, sample, chosen) == "", "without a mutant the kernel is right"

    def check(mutant: mutate.Mutant) -> str:
        options = {"relaxed": relaxed, "sites": mutant.sites, "delta": mutant.delta, "seconds": 10.0}
        return differing(kernel, sample, chosen, **options)

    return mutate.judge([m for m in made.mutants if not kinds or m.kind in kinds], check)


SLICE = ("gather", "hist", "cast_simd")


@needs_tilelang
@pytest.mark.parametrize("name", SLICE)
def test_every_synchronisation_left_out_is_noticed(name: str) -> None:
    left = mutate.survivors(tried(name, 0, kinds=("line", "pair")))
    assert [(v.mutant.kind, v.mutant.line, v.mutant.text) for v in left] == []


@needs_tilelang
def test_sizes_and_indices_are_noticed_or_redundant_by_a_rule() -> None:
    left = mutate.survivors(tried("cast_simd", 0, kinds=mutate.OPERATORS))
    assert {mutate.rule(v.mutant, text("cast_simd")) for v in left} == {"single burst"}
    assert mutate.survivors(tried("gemm_fp8", 0, kinds=mutate.OPERATORS)) == []


@needs_tilelang
@pytest.mark.parametrize("name", SLICE)
def test_every_pair_left_out_is_noticed_by_data_alone(name: str) -> None:
    left = mutate.survivors(tried(name, 2, relaxed=True, kinds=("pair",)))
    assert [(v.mutant.line, v.mutant.text) for v in left] == []


def test_rules() -> None:
    stride = mutate.Mutant("stride", (0,), 32, 1, "asc_copy_gm2ub_align(a(1, 2), (b), 1, 8, 0, 0, 0, 0, 8, 8);")
    assert mutate.rule(stride, "") == "single burst"
    assert mutate.rule(replace(stride, text=stride.text.replace(" 1, 8", " 3, 8")), "") == ""
    pair = mutate.Mutant("pair", (0,), 0, 1, "PIPE_MTE3->PIPE_MTE2")
    barrier = "asc_sync_inter_arrive(PIPE_MTE3, 0); asc_sync_inter_wait(PIPE_MTE2, 0);"
    assert (mutate.rule(pair, ""), mutate.rule(pair, barrier)) == ("", "all-core barrier")
    assert mutate.rule(replace(pair, text="PIPE_V->PIPE_MTE2"), barrier) == ""


def test_sources_written_by_hand_can_be_mutated() -> None:
    made = mutate.schemata((SOURCES / "mixed.cpp").read_text(encoding="utf-8"))
    assert {"line", "pair", "size", "steps", "pitch", "rows"} <= {mutant.kind for mutant in made.mutants}
