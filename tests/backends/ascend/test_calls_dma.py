"""Copies between GM and UB, each rule and limit of their documentation."""

from __future__ import annotations

import pytest
import torch

from ascend import needs_compiler
from ascend_calls import Calls, bytes_of
from deepinfer.backends.ascend.sim import KernelFault

pytestmark = needs_compiler
PADS = {
    "half": torch.float16,
    "bfloat16_t": torch.bfloat16,
    "float": torch.float32,
    "int8_t": torch.int8,
    "uint8_t": torch.uint8,
    "int16_t": torch.int16,
    "int32_t": torch.int32,
}
TYPES = {
    "float": "float",
    "float16": "half",
    "bfloat16": "bfloat16_t",
    "int": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
}
IN = "asc_copy_gm2ub_align(in, x, "
STATEMENTS = {
    "bursts": IN + "3, 64, 0, 0, false, LOAD, 100, 96);",
    "compact": IN + "3, 20, 0, 0, false, LOAD, 30, 20);",
    "one": IN + "1, 1, 0, 0, false, LOAD, 1, 1);",
    "left": IN + "2, 30, 2, 0, false, LOAD, 40, 32);",
    **{
        f"pad {kind}": f"asc_set_copy_pad_val({kind}(3)); "
        f"asc_copy_gm2ub_align((__ubuf__ {kind}*)in, (__gm__ {kind}*)x, 2, "
        f"32, 32 / sizeof({kind}), 32 / sizeof({kind}), true, LOAD, 40, 96);"
        for kind in PADS
    },
    "bursts 4095": IN + "4095, 1, 0, 0, false, LOAD, 0, 1);",
    "bursts 4096": IN + "4096, 1, 0, 0, false, LOAD, 0, 1);",
    "length 2097152": IN + "1, 2097152, 0, 0, false, LOAD, 0, 2097152);",
    "pad of 33 bytes": IN + "1, 31, 33, 0, false, LOAD, 0, 64);",
    "pad of 34 bytes": "asc_copy_gm2ub_align((__ubuf__ half*)in, (__gm__ half*)x, 1, 30, 0, 17, false, LOAD, 0, 64);",
    "UB address": "asc_copy_gm2ub_align(in + 16, x, 1, 16, 0, 0, false, LOAD, 16, 16);",
    "UB stride": IN + "2, 16, 0, 0, false, LOAD, 16, 48);",
    "behind GM": IN + "2, 64, 0, 0, false, LOAD, 1024, 64);",
    "GM address of the element": "asc_copy_gm2ub_align((__ubuf__ half*)in, (__gm__ half*)(x + 1), 1, 32, 0, 0, false, "
    "LOAD, 32, 32);",
    "out bursts": "asc_copy_ub2gm_align(y, out, 2, 20, STORE, 50, 32);",
    "out compact": "asc_copy_ub2gm_align(y + 1, out, 3, 20, STORE, 21, 20);",
    "out bursts 4096": "asc_copy_ub2gm_align(y, out, 4096, 1, STORE, 0, 1);",
    "out UB address": "asc_copy_ub2gm_align(y, out + 8, 1, 8, STORE, 8, 8);",
    "out UB stride": "asc_copy_ub2gm_align(y, out, 2, 8, STORE, 8, 40);",
    "out behind GM": "asc_copy_ub2gm_align(y + 1020, out, 1, 8, STORE, 8, 8);",
    "out into another": "asc_copy_ub2gm_align(y, out, 2, 8, STORE, 1 << 20, 32);",
    "out behind UB": "asc_copy_ub2gm_align(y, in + 248 * 1024 - 32, 1, 64, STORE, 64, 64);",
    **{
        f"atomic {combine}_{name}": f"asc_set_atomic_{combine}_{name}(); asc_copy_ub2gm_align((__gm__ {kind}*)y, "
        f"(__ubuf__ {kind}*)out, 1, 64, STORE, 64, 64); asc_set_atomic_none();"
        for combine in ("add", "max", "min")
        for name, kind in TYPES.items()
    },
    "none": "asc_set_atomic_add_float(); asc_set_atomic_none(); "
    "asc_copy_ub2gm_align((__gm__ float*)y, (__ubuf__ float*)out, 1, 64, STORE, 64, 64);",
}
CALLS = Calls(
    "__vector__",
    "__gm__ uint8_t* x, __gm__ uint8_t* y",
    STATEMENTS,
    before="__ubuf__ uint8_t* in = (__ubuf__ uint8_t*)0; __ubuf__ uint8_t* out = (__ubuf__ uint8_t*)32768; "
    "asc_copy_gm2ub_align(in, y, 1, 1024, 0, 0, false, LOAD, 1024, 1024); asc_copy_gm2ub_align(out, x, 1, 1024, 0, 0, "
    "false, LOAD, 1024, 1024); asc_sync_pipe(PIPE_MTE2); FLAG(PIPE_MTE2, PIPE_MTE3, 0);",
    after="if (what < 12) { FLAG(PIPE_MTE2, PIPE_MTE3, 1); asc_copy_ub2gm_align(y, in, 1, 1024, STORE, 1024, 1024); }",
)
X = (torch.arange(1024) * 7 % 251).to(torch.uint8)
Y = torch.full((1024,), 0xAA, dtype=torch.uint8)


def run(name: str, x: torch.Tensor = X, y: torch.Tensor = Y) -> torch.Tensor:
    y = y.clone()
    CALLS(name, x=x.clone(), y=y)
    return y


def placed(*bursts: tuple[int, torch.Tensor]) -> torch.Tensor:
    """What was there, with bytes at places."""
    found = Y.clone()
    for place, values in bursts:
        found[place : place + len(values)] = values
    return found


def test_bursts_lie_strides_apart_and_what_is_between_stays() -> None:
    assert torch.equal(run("bursts"), placed(*((96 * i, X[100 * i : 100 * i + 64]) for i in range(3))))


def test_bursts_of_any_length_may_lie_one_behind_the_other() -> None:
    assert torch.equal(run("compact")[:60], torch.cat([X[30 * i : 30 * i + 20] for i in range(3)]))


def test_one_byte() -> None:
    assert run("one")[0] == X[0]


def test_without_a_constant_the_first_element_is_the_padding() -> None:
    row = [torch.cat([X[40 * i : 40 * i + 1].repeat(2), X[40 * i : 40 * i + 30]]) for i in range(2)]
    assert torch.equal(run("left"), placed((0, row[0]), (32, row[1])))


@pytest.mark.parametrize("kind", PADS)
def test_the_padding_is_the_value_that_was_set_in_its_type(kind: str) -> None:
    dtype = PADS[kind]
    pad = bytes_of(torch.full((32 // dtype.itemsize,), 3, dtype=dtype))
    rows = [torch.cat([pad, X[40 * i : 40 * i + 32], pad]) for i in range(2)]
    assert torch.equal(run(f"pad {kind}"), placed((0, rows[0]), (96, rows[1])))


def test_the_largest_number_of_bursts() -> None:
    assert (run("bursts 4095")[:1024] == X[0]).all()


FAULTS = {
    "bursts 4096": "4096.* 4095",
    "length 2097152": "2097152.* 2097151",
    "pad of 33 bytes": "33.* 32",
    "pad of 34 bytes": "(17|34).* 32",
    "UB address": "offset 16 is not a multiple of 32",
    "UB stride": "48 .*multiple of 32",
    "behind GM": "outside every argument",
    "GM address of the element": "(align|multiple of 2)",
    "out bursts 4096": "4096.* 4095",
    "out UB address": "multiple of 32",
    "out UB stride": "40 .*multiple of 32",
    "out behind GM": "outside every argument",
    "out into another": "outside every argument",
    "out behind UB": "outside the 248 KiB of UB",
}


@pytest.mark.parametrize("name", FAULTS)
def test_misuse_is_named(name: str) -> None:
    with pytest.raises(KernelFault, match=FAULTS[name]) as fault:
        run(name)
    assert "asc_copy_ub2gm_align" in str(fault.value) if name.startswith("out") else "asc_copy_gm2ub_align"


def test_stores_with_strides_and_one_behind_the_other() -> None:
    assert torch.equal(run("out bursts"), placed((0, X[:20]), (50, X[32:52])))
    assert torch.equal(run("out compact"), placed(*((1 + 21 * i, X[20 * i : 20 * i + 20]) for i in range(3))))


COMBINE = {"add": torch.add, "max": torch.maximum, "min": torch.minimum}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("how", COMBINE)
def test_stores_combine_with_what_is_there(how: str, name: str) -> None:
    dtype, combine = PADS[TYPES[name]], COMBINE[how]
    torch.manual_seed(1)
    a, b = (torch.randint(-9, 9, (1024 // dtype.itemsize,)).to(dtype) for _ in range(2))
    got = run(f"atomic {how}_{name}", bytes_of(a), bytes_of(b)).view(dtype)
    lanes = 64 // dtype.itemsize
    assert torch.equal(got[:lanes], combine(a, b)[:lanes]) and torch.equal(got[lanes:], b[lanes:])


def test_after_none_stores_overwrite() -> None:
    assert torch.equal(run("none"), placed((0, X[:64])))
