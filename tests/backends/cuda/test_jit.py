"""Kernels of the backend: how they are specialised, launched and refused. Launches go to a fake driver in a child."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
import torch

import cuda_children

pytest.importorskip("triton")

import triton.language as tl

from deepinfer.backends.cuda.jit import INTERPRETED, jit
from deepinfer.hal.errors import InvalidArgumentError

CASES = cuda_children.SUPPORT / "cuda_jit_cases.py"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="module")
def launches(cache: Path) -> Any:
    return cuda_children.run(CASES, "launches", cache=cache)


def test_row_counts_and_strides_share_one_binary(launches: Any) -> None:
    assert launches["one"] == 1


def test_dtype_alignment_constants_and_absent_tensors_do_not(launches: Any) -> None:
    assert launches["all"] == launches["loaded"] == 4


def test_arguments_lie_as_the_kernel_reads_them(launches: Any) -> None:
    grid, threads, stream, data = launches["launched"][2]
    assert (grid, threads, stream) == ([3, 2, 1], 128, 77)
    # two pointers (the absent one takes no room), 32 bits, padding, 64 bits, two pointers of Triton's own
    assert struct.unpack("@PPiqPP", bytes.fromhex(data)) == (4096, 8192, 1, 2**40, 0, 0)
    grid, threads, _, data = launches["launched"][15]
    assert (grid, threads) == ([5, 1, 1], 256)  # a grid that is a function, eight warps
    assert struct.unpack("@PPPiqPP", bytes.fromhex(data)) == (4096, 4096, 8192, 5, 1, 0, 0)


def test_parameters_may_have_any_name_but_the_launchers_own(cache: Path) -> None:
    found = cuda_children.run(CASES, "names", cache=cache)
    assert found["grid"] == [2, 3, 1]
    assert struct.unpack("@P10iqPP", bytes.fromhex(found["data"])) == (4096, *range(1, 11), 2**40, 0, 0)
    assert "parameter _n: names of parameters do not begin with an underscore" in found["refused"]


def test_a_grid_without_blocks_is_not_launched(launches: Any) -> None:
    assert len(launches["launched"]) == 18


def test_a_second_process_loads_and_compiles_nothing(launches: Any, cache: Path) -> None:
    found = cuda_children.run(CASES, "warm", cache=cache)
    assert found == {"compilations": 0, "calls": 0, "loaded": 1, "warnings": []}


def test_nothing_compiles_where_that_is_forbidden(launches: Any, cache: Path) -> None:
    message = cuda_children.run(CASES, "frozen", cache=cache)["message"]
    assert "scale(x_ptr: *fp32, out_ptr: *fp32, n: i32, stride: i64, bias_ptr=None, BLOCK=512)" in message
    assert message.endswith("is not compiled, and the engine serves")


def test_what_cannot_be_is_refused_by_name(launches: Any, cache: Path) -> None:
    said = cuda_children.run(CASES, "refusals", cache=cache)
    assert "x_ptr" in said["cpu"] and "cpu" in said["cpu"]
    assert "n: got 2147483648" in said["range"] and "tl.int64" in said["range"]
    assert "n: got -2147483649" in said["range later"]  # by the launcher, not by the first look at the arguments
    assert "n: got 'a tensor'" in said["number"]
    assert "num_warp: got 4" in said["option"] and "num_warps" in said["option"]
    assert "out_ptr: got 'a tensor on cuda:1'" in said["device"]
    assert "grid (1, 99999, 1)" in said["refused"] and "status 1" in said["refused"]
    assert "status 700" in said["fault"]


# ---- the interpreter follows the same rules ---------------------------------------------------------------------


@jit
def reach(out_ptr, stride: tl.int64, plain, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, at * stride + plain)


interpreted = pytest.mark.skipif(not INTERPRETED, reason="for the interpreter")


@interpreted
def test_annotated_integers_have_64_bits_also_when_small() -> None:
    out = torch.zeros(4, dtype=torch.int64)
    reach[(1,)](out, 2**31 - 1, 7, BLOCK=4)
    assert out.tolist() == [i * (2**31 - 1) + 7 for i in range(4)]


@interpreted
def test_the_interpreter_refuses_what_the_launcher_refuses() -> None:
    out = torch.zeros(4, dtype=torch.int64)
    for arguments, options, name in (
        ((out, 1, 2**31), {}, "plain"),
        ((out, 2**63, 1), {}, "stride"),
        ((out, out, 1), {}, "stride"),
        ((7, 1, 1), {}, "out_ptr"),
        ((out, 1, 1), {"num_warp": 4}, "num_warp"),
    ):
        with pytest.raises(InvalidArgumentError, match=f"reach: {name}: got"):
            reach[(1,)](*arguments, BLOCK=4, **options)
