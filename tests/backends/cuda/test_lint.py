"""Rules for device code, on its syntax tree and in the interpreter; each is planted once and seen.

The rules of `tests/support/cuda_lint.py` keep out what only a GPU would show; `backends.cuda.interpreter` refuses at
run time what the syntax does not show.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import cuda_children
import cuda_lint

pytest.importorskip("triton")

import triton.language as tl

from deepinfer.backends.cuda import portable, self_test_kernels
from deepinfer.backends.cuda.jit import INTERPRETED, jit
from deepinfer.hal.device import Device
from deepinfer.hal.errors import SelfTestError

KERNEL = """
@jit
def kernel(x_ptr, ids_ptr, out_ptr, n, width, stride: tl.int64, BLOCK: tl.constexpr, D: tl.constexpr):
    row = tl.program_id(0)
    at = row * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    page = tl.load(ids_ptr + row)
    {line}
    tl.store(out_ptr + at, x)
"""


def check(line: str, name: str = "some_kernels.py") -> list[str]:
    """Rules that the kernel breaks with a line put in."""
    found = cuda_lint.check(KERNEL.replace("{line}", line), name)
    return [text.split(": ")[1] for text in found]


def test_the_kernels_of_the_backend_keep_the_rules() -> None:
    assert not cuda_lint.check_folder(cuda_children.ROOT / "backends/cuda")


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("x = x.to(tl.bfloat16)", "cast"),
        ("x = x.to(tl.float8e4nv, fp_downcast_rounding='rtne')", "cast"),
        ("x = tl.cast(x, tl.bfloat16)", "cast"),
        ("x = x.to(out_ptr.dtype.element_ty)", "cast"),
        ("x = tl.dot(x, x)", "dot"),
        ("x = tl.dot_scaled(x, s, 'e2m1', x, s, 'e4m3')", "dot"),
        ("x = tl.inline_asm_elementwise('', '=r', [x], tl.int32, True, 1)", "asm"),
        ("x = triton.language.inline_asm_elementwise('', '=r', [x], tl.int32, True, 1)", "asm"),
        ("f = triton.jit(g)", "jit"),
        ("f = triton.autotune([], [])(g)", "jit"),
        ("from triton import jit", "jit"),
        ("x = tl.load(x_ptr + page * D)", "address"),
        ("x = tl.load(x_ptr + row * width)", "address"),
        ("tl.store(x_ptr + row * D + at, x)", "address"),
        ("base = page * D\n    x = tl.load(x_ptr + base + at)", "address"),
        ("base_ptr = x_ptr + n * D", "address"),
        ("x = tl.load(x_ptr + (page << 8))", "address"),
        ("for i in range(n):\n        x += tl.load(x_ptr + i * D)", "address"),
        ("tl.atomic_add(x_ptr + page * D, 1)", "address"),
    ],
)
def test_a_planted_fault_is_seen(line: str, rule: str) -> None:
    assert check(line) == [rule]


@pytest.mark.parametrize(
    "line",
    [
        "x = to_bf16(x)",
        "x = x.to(tl.bfloat16, bitcast=True)",
        "x = x.to(tl.float32)",
        "x = dot(x, x, x)",
        "if INTERPRETED:\n        x = x + 1\n    else:\n        x = tl.inline_asm_elementwise('', '', [x], i, True, 1)",
        "x = tl.load(x_ptr + page.to(tl.int64) * D)",
        "page = page.to(tl.int64)\n    x = tl.load(x_ptr + page * D)",
        "x = tl.load(x_ptr + row * stride)",
        "x = tl.load(x_ptr + tl.arange(0, BLOCK)[:, None] * D)",
        "x = tl.load(x_ptr + (page % D) * D)",
        "x = tl.load(x_ptr + page * D)  # lint: address, because a page's number is below 100",
    ],
)
def test_what_is_right_is_not_complained_about(line: str) -> None:
    assert check(line) == []


def test_the_modules_that_may_are_let() -> None:
    assert check("x = x.to(tl.bfloat16)\n    x = tl.dot(x, x)", "portable_more.py") == []
    assert check("x = x.to(tl.bfloat16)", "reportable.py") == ["cast"]
    assert check("f = triton.jit(g)", "jit.py") == []


# ---- without `portable` a run fails -----------------------------------------------------------------------------

interpreted = pytest.mark.skipif(not INTERPRETED, reason="of the interpreter")


@jit
def raw_to_bf16(x):
    return x.to(tl.bfloat16)


@jit
def raw_to_e4m3(x):
    return x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)


@jit
def raw_e4m3_to_f32(code):
    return code.to(tl.float8e4nv, bitcast=True).to(tl.float32)


@jit
def raw_dot(a, b, acc):
    return tl.dot(a, b, acc)


@interpreted
@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("to_bf16", raw_to_bf16),
        ("to_e4m3", raw_to_e4m3),
        ("e4m3_to_f32", raw_e4m3_to_f32),
        ("dot", raw_dot),
    ],
)
def test_a_run_without_portable_fails(monkeypatch: pytest.MonkeyPatch, name: str, raw: Any) -> None:
    from triton.runtime.errors import InterpreterError

    x = self_test_kernels.inputs()
    x[5, 1] = 1.001953125  # needs rounding to bf16
    monkeypatch.setattr(self_test_kernels, "inputs", lambda: x)
    monkeypatch.setitem(self_test_kernels.known_kernel.fn.__globals__, name, raw)
    with pytest.raises((InterpreterError, SelfTestError), match="portable"):
        self_test_kernels.run(Device("cpu"), "x86_64")


@jit
def store_rounded(x_ptr, out_ptr):
    i = tl.arange(0, 4)
    tl.store(out_ptr + i, tl.load(x_ptr + i))


@jit
def add(x_ptr, out_ptr):
    i = tl.arange(0, 4)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, x + x)


@jit
def from_integer(x_ptr, out_ptr):
    i = tl.arange(0, 4)
    tl.store(out_ptr + i, i.to(tl.bfloat16))  # lint: cast, because it is refused


@interpreted
@pytest.mark.parametrize(
    ("kernel", "dtype", "value"),
    [
        (store_rounded, torch.float32, 1.001953125),
        (add, torch.bfloat16, 1.0),
        (from_integer, torch.float32, 0.0),
        (store_rounded, torch.float32, 1e-40),
    ],
)
def test_what_the_interpreter_computes_wrongly_is_an_error(kernel: Any, dtype: torch.dtype, value: float) -> None:
    from triton.runtime.errors import InterpreterError

    x, out = torch.full((4,), value, dtype=dtype), torch.zeros(4, dtype=torch.bfloat16)
    with pytest.raises(InterpreterError, match="portable"):
        kernel[(1,)](x, out)


@interpreted
def test_what_it_computes_rightly_is_not() -> None:
    out = torch.zeros(4, dtype=torch.bfloat16)
    store_rounded[(1,)](torch.tensor([1.5, -0.0, float("inf"), 0.0]), out)
    assert out.tolist() == [1.5, 0.0, float("inf"), 0.0]
    assert portable.INTERPRETED.value
