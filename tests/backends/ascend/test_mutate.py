"""Mutants of kernel texts: what they change."""

from __future__ import annotations

from ascend import SOURCES
from deepinfer.backends.ascend.sim import mutate, source

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
    wanted = {"line", "pair", "bursts", "length", "source", "destination", "stride", "clamp", "loop", "event"}
    assert kinds == wanted | {"subscript"}
    [pair] = [mutant for mutant in mutants if mutant.kind == "pair"]
    assert (pair.text, len(pair.sites), pair.line) == ("PIPE_MTE2->PIPE_V", 2, 5)
    [loop] = [mutant for mutant in mutants if mutant.kind == "loop"]
    assert (loop.line, loop.delta) == (3, -1) and "for (int32_t w" in loop.text


def test_there_are_more_than_eight_operators_on_indices_and_sizes() -> None:
    assert len(mutate.OPERATORS) >= 8


def test_sources_written_by_hand_can_be_mutated() -> None:
    made = mutate.schemata((SOURCES / "mixed.cpp").read_text(encoding="utf-8"))
    assert {"line", "pair", "size", "steps", "pitch", "rows"} <= {mutant.kind for mutant in made.mutants}


def test_a_parameter_of_the_name_block_idx_is_declared_as_it_was() -> None:
    vector = "__simd_vf__ inline void f(int32_t block_idx) {\n  g(((int32_t)block_idx), block_idx);\n}\n"
    made = mutate.schemata(vector + KERNEL)
    places = [m.at for m in made.mutants if m.kind == "block"]
    assert places == [vector.index("block_idx), b"), vector.index("block_idx);")]
    assert "(int32_t block_idx)" in made.text


def test_a_list_of_a_fill_is_found_by_its_name_and_changed_once() -> None:
    kernel = KERNEL.replace(
        "{\n",
        """{
  const asc_fill_value_config xs = {1, uint64_t(n) * 16, 2}, ws = {2, 3, 4};
  asc_fill_l1(b, 0u, ws);
  asc_fill_l1(b + 64, 0u, ws);
  asc_fill_l1(b, 0u, {5, 6, 7});
""",
        1,
    )
    made = mutate.schemata(kernel)
    places = [m.at for m in made.mutants if m.kind == "fill"]
    assert places == [kernel.index(x) for x in ("2, 3", "3, 4", "4}", "5, 6", "6, 7", "7}")]
    assert "xs = {1, uint64_t(n) * 16, 2}" in made.text


def test_a_synchronisation_under_a_condition_in_its_line_is_one_like_any_other() -> None:
    wait = "    asc_sync_wait(PIPE_MTE2"
    kernel = KERNEL.replace(wait, "    if (f(w) == 0) asc_sync_wait(PIPE_MTE2")
    made = mutate.schemata(kernel)
    assert [m.kind for m in made.mutants].count("line") == 2
    assert "if (f(w) == 0) if (ascsim::keep(1)) asc_sync_wait(" in made.text


def test_a_count_is_one_value_and_no_constant_of_the_compiler() -> None:
    line = "uint32_t left = f(g(n), 1), right = 2;"
    made = mutate.schemata("constexpr uint32_t A = 1;\n" + KERNEL.replace("{\n", f"{{\n  {line}\n", 1))
    assert [m.text for m in made.mutants if m.kind == "count"] == [line]
    assert "(f(g(n), 1))), right = 2;" in made.text and "A = 1;" in made.text


def test_arrays_that_are_declared_and_gathers_from_a_register_are_no_places() -> None:
    lines = "uint32_t a[N], low[N];\n  asc_gather(v, low, w);\n  asc_gather(v, low, w, all);\n  return low[n];\n"
    names = "inline void f(__ubuf__ uint32_t* low, __ubuf__ uint32_t* a) {\n  " + lines + "}\n"
    made = mutate.schemata(names + KERNEL)
    places = [names[m.at :][:7] for m in made.mutants if 0 <= m.at < len(names)]
    assert sorted(places) == ["low, w,", "n];\n}\n"]


def test_a_mutant_knows_its_function() -> None:
    simt = "__simt_vf__ __launch_bounds__(256) inline void f(__ubuf__ float* x,\n    int32_t n) {\n  x[n] = 1;\n}\n"
    plain = "inline int32_t least(int32_t a) { return min(a, 1); }\n"
    functions = [(m.function, m.kind) for m in mutate.schemata(simt + plain + KERNEL).mutants if m.at >= 0]
    assert ("f", "subscript") in functions and ("least", "clamp") in functions and ("k", "loop") in functions
    assert {kind for function, kind in functions if function == "f"} == {"subscript"}


def test_the_column_of_a_mutant_is_its_place_in_the_line() -> None:
    for m in mutate.schemata(KERNEL).mutants:
        assert m.column < 0 if m.at < 0 else KERNEL[m.at :].startswith(m.text[m.column :])


def test_a_loop_loses_its_last_round_by_what_its_step_is() -> None:
    for step, delta in (("w += 64", -64), ("w += B, ++n", -32), ("w += n", -1), ("w += NONE", -1), ("++w", -1)):
        kernel = "constexpr int32_t A = 16, B = 32;\n" + KERNEL.replace("++w", step)
        assert [m.delta for m in mutate.schemata(kernel).mutants if m.kind == "loop"] == [delta]
