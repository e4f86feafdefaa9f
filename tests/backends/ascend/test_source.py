"""Reading and rewriting of kernel texts."""

from __future__ import annotations

import pytest

from deepinfer.backends.ascend.sim import SourceError, source

KERNEL = """
__simd_vf__ inline void twice(__ubuf__ float* x) { half_of(x); }
// twice(x) in a comment
extern "C" __global__ __mix__(1, 2) void k(__gm__ bfloat16_t* a, const __gm__ float *b, int64_t n) {
  __ubuf__ float* p = (__ubuf__ float*)0;
  twice(
      p);
}
"""


def test_a_signature() -> None:
    found = source.signature(KERNEL)
    assert (found.name, found.kind, found.simt, found.joint) == ("k", "mix", False, False)
    assert [(p.name, p.type, p.pointer) for p in found.parameters] == [
        ("a", "bfloat16_t", True),
        ("b", "const float", True),
        ("n", "int64_t", False),
    ]


BAD = {
    "no kernel": ("void f() {}", "0 functions with __global__"),
    "two kernels": (KERNEL + KERNEL, "2 functions"),
    "no kind": ("__global__ void k(__gm__ float* a) {}", "one of __vector__, __cube__, __mix__"),
    "plain pointer": ("__global__ __cube__ void k(float* a) {}", "parameter a: a pointer is '__gm__ type"),
    "unnamed": ("__global__ __cube__ void k(int32_t) {}", "is not 'type name'"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_launched_is_said(case: str) -> None:
    text, message = BAD[case]
    with pytest.raises(SourceError, match=message):
        source.signature(text)


def test_calls_of_simd_functions_go_to_their_pipe() -> None:
    text = source.defer_simd(KERNEL, {"twice", "half_of"})
    assert 'ascsim::push_simd("twice", [=]() { twice(\n      p); });' in text
    assert "{ half_of(x); }" in text and "// twice(x) in a comment" in text


@pytest.mark.parametrize(
    "text, want",
    [
        ("(__ubuf__ float*)16", "ascsim::Cast<ascsim::Space::ub, float>{}->*16"),
        ("*( __cc__ const int32_t * )p", "*ascsim::Cast<ascsim::Space::l0c, const int32_t>{}->*p"),
        ("reinterpret_cast<__cbuf__ half*>(p)", "ascsim::cast<ascsim::Space::l1, half>(p)"),
        ("(__ca__ T<int> *)(x + 1)", "ascsim::Cast<ascsim::Space::l0a, T<int>>{}->*(x + 1)"),
        ("__ubuf__ float* p", "__ubuf__ float* p"),
        ("(__gm__ float*)p", "(__gm__ float*)p"),
    ],
)
def test_casts_to_on_chip_memory_are_rewritten(text: str, want: str) -> None:
    assert source.rewrite_casts(text) == want


def test_lines_of_the_text_keep_their_numbers() -> None:
    prepared = source.prepared(KERNEL)
    line = KERNEL.count("\n", 0, KERNEL.index("extern")) + 1
    before = prepared[: prepared.index('extern "C" __global__')]
    assert before.rstrip("\n").splitlines()[-1] == f'#line {line} "kernel"' or before.count("#line") == 2
