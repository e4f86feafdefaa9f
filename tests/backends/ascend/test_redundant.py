"""Rules by which a mutant changes nothing: where they hold, and where they do not."""

from __future__ import annotations

from dataclasses import replace

from deepinfer.backends.ascend.sim import mutate, redundant


def places(kernel: str, kind: str, of: str) -> list[str]:
    """Rules of the mutants of one kind at places where `of` stands."""
    made = mutate.schemata(kernel).mutants
    return [redundant.rule(m, kernel) for m in made if m.kind == kind and kernel[m.at :].startswith(of)]


COPY = """
extern "C" __global__ __vector__ void k(__gm__ float* x, int32_t n) {
  asc_copy_gm2ub_align((__ubuf__ float*)0, x + min(n, 7), BURSTS, min(n, 6), 0, 0, 0, l2, min(n, 4), min(n, 5));
  asc_copy_ub2gm_align(x, (__ubuf__ float*)0, BURSTS, min(n, 6), l2, min(n, 4), min(n, 5));
}
"""


def test_only_the_strides_of_a_single_burst_are_redundant() -> None:
    one, three = COPY.replace("BURSTS", "1"), COPY.replace("BURSTS", "3")
    assert places(one, "clamp", "min(n, 4)") == places(one, "clamp", "min(n, 5)") == ["single burst"] * 2
    assert places(one, "stride", "min") == ["single burst"] * 4
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
    found = [redundant.rule(m, kernel) for m in mutate.schemata(kernel).mutants if m.kind == "thread"]
    assert found == ["group leader", "group leader", "", ""]


def test_the_rule_of_the_all_core_barrier() -> None:
    pair = mutate.Mutant("pair", (0,), 0, 1, "PIPE_MTE3->PIPE_MTE2")
    barrier = "asc_sync_inter_arrive(PIPE_MTE3, 0); asc_sync_inter_wait(PIPE_MTE2, 0);"
    assert (redundant.rule(pair, ""), redundant.rule(pair, barrier)) == ("", "all-core barrier")
    assert redundant.rule(replace(pair, text="PIPE_V->PIPE_MTE2"), barrier) == ""


def test_what_says_where_a_second_row_or_run_lies_is_redundant_for_one() -> None:
    kernel = COPY.replace(
        "{\n",
        """{
  asc_set_gm2l1_nz_para(1, 1, 8, 0);
  asc_copy_gm2l1_nd2nz(b, x, 64, l2, ROWS, n, 0, false);
  asc_fill_l1(b, 0u, {ROWS, uint64_t(n), 3});
""",
        1,
    )
    for rows, want in (("1", "single burst"), ("n", "")):
        of = kernel.replace("ROWS", rows)
        assert places(of, "pitch", "1, 8") == [want] and places(of, "pitch", "8, 0") == [""]
        assert places(of, "stride", "64, l2") == [want]
        named = of.replace("asc_fill_l1(b, 0u, {", "const asc_fill_value_config w = {").replace(
            "3});", "3};\n  asc_fill_l1(b, 0u, w);"
        )
        for text in (of, named):
            fills = [redundant.rule(m, text) for m in mutate.schemata(text).mutants if m.kind == "fill"]
            assert fills == ["", "", want]


def test_the_core_of_a_copy_to_both_is_redundant() -> None:
    for dual, want in ((0, ""), (1, "both cores"), (2, "both cores")):
        kernel = COPY.replace(
            "{\n", f"{{\n  asc_copy_l0c2ub(u, c, n, m, 8, 8, 0, static_cast<asc_dual_dst_mode>({dual}), a, b);\n", 1
        )
        assert places(kernel, "core", "0, static") == [want]


THREADS = """
__simt_vf__ __launch_bounds__(256) inline void scale(__ubuf__ float* x, int32_t n) {
  for (int32_t i = threadIdx.x; i < n; i += blockDim.x) x[i] = MORE;
}
extern "C" __global__ __vector__ void k(__gm__ float* x, int32_t n) {
  asc_vf_call<scale>(cce::dim3(256), u, n);
}
"""


def test_the_number_of_threads_is_redundant_where_they_only_share_a_loop() -> None:
    assert places(THREADS.replace("MORE", "2"), "threads", "256)") == ["any threads"]
    for more in ("threadIdx.x", "asc_reduce_add(x[i])", "blockDim.x"):
        assert places(THREADS.replace("MORE", more), "threads", "256)") == [""]
    assert places(THREADS.replace("blockDim.x)", "256)").replace("MORE", "2"), "threads", "256)") == [""]


def test_the_scratch_of_a_reduction_and_what_is_not_stored() -> None:
    body = """
  y = tl::AscendAllReduce<tl::SumOp, 64, 1, 0>::run(y, (&(((__ubuf__ float*)u)[1152])));
  ((__ubuf__ float*)u)[1152] = y;
  asc_fill_l1(b + (min(32, n) * 32), 0u, {2, uint64_t(n), 0});
  asc_fill_l1(b + (n * 32), 0u, {2, uint64_t(n), 0});
  asc_copy_l0c2gm(x, c, 32, min(32, n), 32, 32, l2, 0, 0, 0, 0, 1, 0, 0);
"""
    kernel = COPY.replace("{\n", "{\n" + body, 1)
    assert places(kernel, "subscript", "1152") == ["scratch", ""]
    fills = [redundant.rule(m, kernel) for m in mutate.schemata(kernel).mutants if m.kind == "fill"]
    assert fills == ["not stored", "", "", "", "", ""]


def test_a_barrier_between_threads_is_redundant_where_runs_with_the_rule_of_races_raise_nothing() -> None:
    kernel = COPY.replace("{\n", "{\n  asc_syncthreads();\n", 1)
    made = mutate.schemata(kernel).mutants
    assert {redundant.rule(m, kernel) for m in made if m.kind in ("line", "pair")} == {redundant.RACE_FREE}


def test_a_barrier_after_a_reduction_of_a_warp_is_redundant_for_one_thread_of_it() -> None:
    def found(size: int, leader: int, more: str = "") -> set[str]:
        body = (
            f"  for (;;) {{ y = tl::AscendAllReduce<tl::SumOp, {size}, 1, 0>::run(y); }}\n  asc_syncthreads();\n"
            f"  if ((((int32_t)threadIdx.x) % {leader}) == 0) {{ z = y; }}\n{more}"
        )
        kernel = COPY.replace("{\n", "{\n" + body, 1)
        return {redundant.rule(m, kernel) for m in mutate.schemata(kernel).mutants if m.kind == "pair"}

    assert found(8, 8) == {"warp in step"}
    assert found(64, 64) == found(8, 16) == found(8, 8, "  asc_syncthreads();\n") == {redundant.RACE_FREE}


def test_of_a_remainder_that_corrects_a_quotient_only_the_sign_counts() -> None:
    a = "(((m + cores) - ((int32_t)block_idx)) - 1)"
    rounds = f"int32_t r = (({a} / cores) + (({a} % cores) >> 31)); int32_t s = (({a} % cores) + 31); f(r, s);"
    kernel = COPY.replace("{\n", "{\n" + rounds, 1)
    found = [redundant.rule(m, kernel) for m in mutate.schemata(kernel).mutants if m.kind == "block"]
    assert found == ["", "sign of a remainder", ""]
    for rows in range(1, 20):
        for cores in range(1, min(rows, 6) + 1):
            for core in range(cores):
                assert rows + cores - (core + 1) - 1 >= 0


def test_what_is_set_to_a_name_that_nothing_reads_is_redundant() -> None:
    b = "((int32_t)block_idx)"
    body = f"int32_t p = 0;\n  if (n) {{\n    p = (min({b}, 3) + n);\n  }}\n  int64_t q = {b};\n  q = (q + {b});\n"
    kernel = COPY.replace("{\n", "{\n  " + body + f"  int32_t r = x[{b}];\n  int32_t s = f({b});\n", 1)

    def found(text: str) -> list[str]:
        return [redundant.rule(m, text) for m in mutate.schemata(text).mutants if m.kind in ("block", "clamp")][:5]

    assert found(kernel) == ["never read", "", "", "", ""] and places(kernel, "clamp", "min(((") == ["never read"]
    for more in ("  y[p] = 1;\n", "  y = p;\n", "  p += 1;\n", "  f(p);\n"):
        assert set(found(kernel.replace("  int32_t r", more + "  int32_t r"))) == {""}


ANEW = """
extern "C" __global__ __vector__ void k(__gm__ int32_t* x, int32_t n) {
  for (int32_t i = 0; i < n; ++i) {
    uint32_t bits = 0;
    if (i < s.n) bits = f(i);
    g(i);
    if (i < s.n) h(bits, i);
  }
  uint32_t bits = 1;
  g(bits);
}
"""


def test_what_a_variable_begins_with_is_redundant_where_it_is_set_anew_before_each_use() -> None:
    def found(old: str = "", new: str = "") -> list[str]:
        assert old in ANEW
        kernel = ANEW.replace(old, new, 1) if old else ANEW
        return [redundant.rule(m, kernel) for m in mutate.schemata(kernel).mutants if m.kind == "count"]

    assert found() == ["set anew", ""]
    assert found("if (i < s.n) h", "if (i < s.m) h") == found("    g(i);", "    g(bits);") == ["", ""]
    assert found("    if (i < s.n) bits = f(i);\n", "") == found("bits = f(i)", "bits |= f(i)") == ["", ""]
    assert found("f(i)", "f(bits)") == found("if (i < s.n) h", "h") == ["", ""]
    for change in ("i += 1;", "s.n = 3;", "++s.n;", "i++;", "f(&i);", "if (i < s.n) i = 2;"):
        assert found("    g(i);", f"    {change}") == ["", ""]
    assert found("    g(i);", "    m = i;") == found("if (i < s.n) bits", "bits") == ["set anew", ""]
    assert found("  uint32_t bits = 1;\n", "  uint32_t bits = (uint32_t)1;\n  bits = x[n];\n") == [
        "set anew",
        "set anew",
    ]
    assert found("  uint32_t bits = 1;\n", "  uint32_t bits = 1;\n  bits = bits + 1;\n") == ["set anew", ""]


LANES = """
__simd_vf__ inline void f(__ubuf__ float* u, int32_t n) {
  vector_f32 sum;
  for (int32_t c = 0; c < ((min(4096, (n - 7)) + 63) >> 6); ++c) {
    auto some = simd_inst::update_mask_b32((min(4096, (n - 7)) - (c * 64)));
    sum = simd_inst::vadd(simd_inst::vlds_norm<float>(&(u[(c * 64)]), 0), x, some, MODE_ZEROING);
    for (int32_t j = 0; j < n; ++j) {
      sum = simd_inst::vmul(sum, x, some, MODE_ZEROING);
    }
    simd_inst::vsts_norm(sum, &(u[((c * 64) + 4096)]), 0, some);
  }
}
"""


def test_lanes_behind_the_tail_are_redundant_where_each_lane_stays_by_itself() -> None:
    def found(*change: str) -> list[str]:
        return places(COPY + LANES.replace(*change), "clamp", "min(")[-2:]

    assert found("", "") == ["behind the tail"] * 2
    for old, new in (
        ("vmul(sum", "vcadd(sum"),
        ("vlds_norm<float>(&(u[(c * 64)", "vgather2<float>(&(u[(c * 64)"),
        ("u[((c * 64) + 4096)]", "u[4096]"),
        ("    sum = simd_inst::vadd(", "    sum = simd_inst::vadd(sum, "),
        ("    sum = simd_inst::vadd(", "    if (c == 0) sum = simd_inst::vadd("),
        ("    auto some", "    y = sum;\n    auto some"),
        ("4096, (n", "100, (n"),
        ("63) >> 6", "127) >> 7"),
    ):
        assert set(found(old, new)) == {""}, new
    assert found("update_mask_b32((min(4096, (n - 7)) - (c", "update_mask_b32((min(4096, (n - 8)) - (c") == [
        "behind the tail",
        "",
    ]
    assert found("update_mask_b32", "update_mask_b16") == found("- (c * 64)", "- (d * 64)") == ["behind the tail", ""]
