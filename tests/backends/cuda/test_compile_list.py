"""Cases of the compile list say what launches give, and say so when they do not."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton")

import triton.language as tl

from deepinfer.backends.cuda import backend, compile_list
from deepinfer.backends.cuda.compile_list import CompileCase
from deepinfer.backends.cuda.jit import jit
from deepinfer.hal.errors import InvalidArgumentError


@jit
def sample(x_ptr, bias_ptr, n, stride: tl.int64, BLOCK: tl.constexpr, FAST: tl.constexpr = False):
    tl.store(x_ptr + n * stride, BLOCK)


SIGNATURE: dict[str, str | None] = {"x_ptr": "*bf16", "bias_ptr": None, "n": "i32", "stride": "i64"}


def test_a_case_gives_what_a_launch_gives() -> None:
    types, constants, options = CompileCase(sample, SIGNATURE, {"BLOCK": 8}, 8, 2, options={"maxnreg": 64}).arguments()
    assert list(types.items()) == [("x_ptr", "*bf16"), ("n", "i32"), ("stride", "i64")]
    assert list(constants.items()) == [("bias_ptr", None), ("BLOCK", 8), ("FAST", False)]
    assert options == {"num_warps": 8, "num_stages": 2, "maxnreg": 64}


@pytest.mark.parametrize(
    ("signature", "constexprs", "said"),
    [
        ({**SIGNATURE}, {}, "sample: BLOCK: got 'nothing'"),
        ({k: v for k, v in SIGNATURE.items() if k != "n"}, {"BLOCK": 8}, "sample: n: got 'nothing'"),
        ({**SIGNATURE, "n": "i64"}, {"BLOCK": 8}, "sample: n: got 'i64'; allowed: i32"),
        ({**SIGNATURE, "stride": "i32"}, {"BLOCK": 8}, "sample: stride: got 'i32'; allowed: i64"),
        ({**SIGNATURE, "rows": "i32"}, {"BLOCK": 8}, "sample: rows"),
        ({**SIGNATURE, "BLOCK": "i32"}, {"BLOCK": 8}, "sample: BLOCK"),
        (SIGNATURE, {"BLOCK": 8, "bias_ptr": None}, "sample: bias_ptr"),
    ],
)
def test_a_case_that_no_launch_has_is_refused(signature: Any, constexprs: Any, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        CompileCase(sample, signature, constexprs).arguments()


def test_every_listed_case_is_complete_and_has_a_name_of_its_own() -> None:
    backend.load()
    entries = compile_list.listed()
    assert "known_kernel" in {entry.name for entry in entries}
    for entry in entries:
        if isinstance(entry.case, CompileCase):
            entry.case.arguments()


def test_an_op_without_kernels_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgumentError, match="op: got 'nothing'"):
        compile_list.of_op([], "nothing")


def test_an_ops_entries_are_those_of_its_family() -> None:
    assert compile_list._same_family("index", "index") and compile_list._same_family("index_kernels", "index")
    assert not compile_list._same_family("index_kernels", "sampling")


def test_what_is_built_for_some_ops_lets_a_process_begin() -> None:
    """Every process begins with the self-test, and one that may compile nothing would end there."""
    backend.load()
    case = CompileCase(sample, SIGNATURE, {"BLOCK": 8})
    modules = ("norm_kernels", "self_test_kernels", "sampling_kernels")
    entries = [compile_list.Listed(module, f"one of {module}", case) for module in modules]
    found = compile_list.for_ops(entries, ["rms_norm"])
    assert [entry.module for entry in found] == ["norm_kernels", "self_test_kernels"]
    with pytest.raises(InvalidArgumentError, match="op: got 'nothing'"):
        compile_list.for_ops(entries, ["rms_norm", "nothing"])
