"""Mutants of kernel texts: what they change, and that the model notices them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ascend_samples
from ascend import SOURCES, needs_tilelang, text
from deepinfer.backends.ascend.sample import Sample, differing
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


def unexplained(name: str) -> list[tuple[str, int, str]]:
    """Index and size mutants that no sample betrays and no rule explains."""
    lowered = text(name)
    made = mutate.schemata(lowered)
    given = ascend_samples.samples(name)
    kernel = Kernel(made.text, given[0].blocks)
    left = [m for m in made.mutants if m.kind in mutate.OPERATORS]
    for sample in given:
        assert differing(kernel, sample, schedules(0)) == ""

        def check(mutant: mutate.Mutant, sample: Sample = sample) -> str:
            return differing(kernel, sample, schedules(0), sites=mutant.sites, delta=mutant.delta, seconds=10.0)

        survived = mutate.survivors(mutate.judge(left, check))
        left = [v.mutant for v in survived if not mutate.rule(v.mutant, lowered)]
    return [(m.kind, m.line, lowered[m.at : m.at + 40]) for m in left]


MANY_TILES = ("vecadd", "rmsnorm_simt", "topk", "attention")


@needs_tilelang
@pytest.mark.parametrize("name", ["rmsnorm_simd", *(pytest.param(name, marks=pytest.mark.slow) for name in MANY_TILES)])
def test_no_size_or_index_of_a_kernel_with_many_tiles_goes_unexplained(name: str) -> None:
    assert unexplained(name) == []


def places(kernel: str, kind: str, of: str) -> list[str]:
    """Rules of the mutants of one kind at places where `of` stands."""
    made = mutate.schemata(kernel).mutants
    return [mutate.rule(m, kernel) for m in made if m.kind == kind and kernel[m.at :].startswith(of)]


COPY = """
extern "C" __global__ __vector__ void k(__gm__ float* x, int32_t n) {
  asc_copy_gm2ub_align((__ubuf__ float*)0, x + min(n, 7), BURSTS, min(n, 6), 0, 0, 0, l2, min(n, 4), min(n, 5));
  asc_copy_ub2gm_align(x, (__ubuf__ float*)0, BURSTS, min(n, 6), l2, min(n, 4), min(n, 5));
}
"""


def test_only_the_strides_of_a_single_burst_are_redundant() -> None:
    one, three = COPY.replace("BURSTS", "1"), COPY.replace("BURSTS", "3")
    assert places(one, "clamp", "min(n, 4)") == places(one, "clamp", "min(n, 5)") == ["single burst"] * 2
    assert places(one, "stride", "min") == ["single burst"] * 2
    assert places(one, "clamp", "min(n, 6)") == ["", ""] and places(one, "clamp", "min(n, 7)") == [""]
    assert set(places(three, "clamp", "min")) | set(places(three, "stride", "min")) == {""}


def test_the_clamp_of_a_group_of_tiles_changes_nothing() -> None:
    for tiles in range(1, 40):
        group = max(1, min(8, tiles))
        for x in range(2 * tiles + 16):
            for remainder, factor in ((8, group), (group, 8)):
                number = (x // group) * factor + x % remainder
                assert (number < tiles) == (x < tiles), "the test before the tile"
                assert x >= tiles or number == x
            assert x >= tiles or (x // 8) * group + x % group == x, "addresses, behind that test"
        steps = ((tiles - 1) // group + 1) * group
        assert tiles <= min(steps, ((tiles - 1) // 8 + 1) * group, ((tiles - 1) // group + 1) * 8)
    kernel = COPY.replace("min(n, 7)", "max((int64_t)1, min((int64_t)8, n)) + max(2, min(8, n))")
    assert places(kernel, "clamp", "min((int64_t)8") == ["tile group"] and places(kernel, "clamp", "min(8") == [""]


def test_who_stores_for_a_group_of_threads_is_redundant_only_under_its_test() -> None:
    x = "((int32_t)threadIdx.x)"
    body = f"if (({x} % 8) == 0) {{ y[({x} >> 3)] = 1; y[({x} >> 4)] = 1; }} y[({x} >> 2)] = 1;"
    kernel = COPY.replace("{\n", "{\n" + body, 1)
    found = [mutate.rule(m, kernel) for m in mutate.schemata(kernel).mutants if m.kind == "thread"]
    assert found == ["group leader", "group leader", "", ""]


def test_the_rule_of_the_all_core_barrier() -> None:
    pair = mutate.Mutant("pair", (0,), 0, 1, "PIPE_MTE3->PIPE_MTE2")
    barrier = "asc_sync_inter_arrive(PIPE_MTE3, 0); asc_sync_inter_wait(PIPE_MTE2, 0);"
    assert (mutate.rule(pair, ""), mutate.rule(pair, barrier)) == ("", "all-core barrier")
    assert mutate.rule(replace(pair, text="PIPE_V->PIPE_MTE2"), barrier) == ""


def test_sources_written_by_hand_can_be_mutated() -> None:
    made = mutate.schemata((SOURCES / "mixed.cpp").read_text(encoding="utf-8"))
    assert {"line", "pair", "size", "steps", "pitch", "rows"} <= {mutant.kind for mutant in made.mutants}
