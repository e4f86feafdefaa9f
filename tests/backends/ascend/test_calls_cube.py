"""Copies to L1 and L0, products and copies out of L0C: each rule and limit of their documentation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ascend import needs_compiler
from ascend_calls import Calls
from deepinfer.backends.ascend.sim import KernelFault

pytestmark = needs_compiler
TO_MTE1, TO_M, TO_FIX = "FLAG(PIPE_MTE2, PIPE_MTE1, 0);", "FLAG(PIPE_MTE1, PIPE_M, 0);", "FLAG(PIPE_M, PIPE_FIX, 0);"
ND = "asc_copy_gm2l1_nd2nz({}, {}, {}, LOAD, {}, {}, 0, false); "


def nz(rows: int, step: int = 1, count: int = 1, apart: int = 0) -> str:
    return f"asc_set_gm2l1_nz_para({count}, {step}, {rows}, {apart}); "


def store(
    n: int = 16,
    m: int = 16,
    *,
    into: str = "c",
    pitch: int = 16,
    source: int = 16,
    quant: int = 0,
    relu: int = 0,
    unit: int = 0,
    split: str = "false",
    nd: str = "true",
    dn: str = "false",
    clip: str = "false",
) -> str:
    return (
        f"asc_set_l0c_copy_nz_para(1, 0, 0); asc_copy_l0c2gm({into}, "
        f"l0c, {n}, {m}, {pitch}, {source}, STORE, UNIT({unit}), "
        f"QUANT({quant}), RELU({relu}), {split}, {nd}, {dn}, {clip});"
    )


def product(
    kind: str,
    m: int = 16,
    k: int = 16,
    n: int = 16,
    unit: int = 0,
    zero: str = "true",
    bias: str = "false",
    gemv: str = "true",
    call: str = "asc_mmad",
) -> str:
    return f"{call}(l0c, (__ca__ {kind}*)0, (__cb__ {kind}*)0, {m}, {k}, {n}, {unit}, {gemv}, {bias}, {zero}); "


def loads(kind: str, lines: int, k: int = 16) -> str:
    """Fractals of 16 rows and 32 bytes from L1 addresses 0 and 65536, k columns."""
    size = {"half": 2, "float": 4, "float8_e4m3_t": 1}[kind]
    return (
        nz(16)
        + ND.format(f"(__cbuf__ {kind}*)0", f"(__gm__ {kind}*)a", k * size, 16, k)
        + ND.format(f"(__cbuf__ {kind}*)65536", f"(__gm__ {kind}*)b", k * size, 16, k)
        + TO_MTE1
        + f"asc_copy_l12l0a((__ca__ {kind}*)0, (__cbuf__ {kind}*)0, 0, 0, 1, {lines}, 1, 1); "
        f"asc_copy_l12l0b((__cb__ {kind}*)0, (__cbuf__ {kind}*)65536, 0, 0, 1, {lines}, 1, 1); " + TO_M
    )


HALF = loads("half", 1)
TURN = (
    "__cbuf__ {0}* l1 = (__cbuf__ {0}*)0; "
    + nz(32)
    + ND.format("l1", "(__gm__ {0}*)a", "32 * sizeof({0})", 32, 32)
    + ND.format("(__cbuf__ {0}*)65536", "(__gm__ {0}*)b", "32 * sizeof({0})", 32, 32)
    + TO_MTE1
    + "asc_copy_l12l0a_transpose((__ca__ {0}*)0, l1, 0, 0, 2, {1}, 2, 2); "
    "asc_copy_l12l0b_transpose((__cb__ {0}*)0, (__cbuf__ {0}*)65536, 0, 0, 2, {1}, 2, 2); " + TO_M
)
# One block of 16 rows and 64 columns: the scales of a, two for each row, and then those of b.
SCALED = (
    loads("float8_e4m3_t", 2, 64)
    + nz(2)
    + ND.format("(__cbuf__ uint8_t*)131072", "e", 32, 2, 32)
    + TO_MTE1
    + "asc_copy_l12l0a_mx(uint64_t(0), (__cbuf__ fp8_e8m0_t*)131072, 0, 0, 1, 1, 1, 1); "
    "asc_copy_l12l0b_mx(uint64_t(0), (__cbuf__ fp8_e8m0_t*)131072, 1, 0, 1, 1, 1, 1); " + TO_M
)
STATEMENTS = {
    "scaled": SCALED + product("float8_e4m3_t", k=64, call="asc_mmad_mx") + TO_FIX + store(),
    "scaled, ragged": SCALED + product("float8_e4m3_t", k=37, call="asc_mmad_mx") + TO_FIX + store(),
    "no scales": loads("float8_e4m3_t", 1, 32) + product("float8_e4m3_t", k=32, call="asc_mmad_mx"),
    "twice to one fractal": "asc_copy_l12l0a((__ca__ half*)0, (__cbuf__ half*)0, 0, 0, 2, 2, 2, 1);",
    "turned, twice to one fractal": "asc_copy_l12l0b_transpose((__cb__ half*)0, (__cbuf__ half*)0, 0, 0, 2, 2, 2, 1);",
    "scales twice to one fractal": "asc_copy_l12l0a_mx(uint64_t(0), (__cbuf__ fp8_e8m0_t*)0, 0, 0, 2, 2, 2, 1);",
    "half": HALF + product("half") + TO_FIX + store(),
    "float": loads("float", 2) + product("float") + TO_FIX + store(),
    "e4m3": loads("float8_e4m3_t", 1, 32) + product("float8_e4m3_t", k=32) + TO_FIX + store(),
    "e4m3 ragged": loads("float8_e4m3_t", 1, 19) + product("float8_e4m3_t", k=19) + TO_FIX + store(),
    "zero rows": HALF
    + product("half")
    + product("half", m=0)
    + product("half", k=0)
    + product("half", n=0)
    + TO_FIX
    + store(),
    "twice": HALF + product("half") + product("half", zero="false") + TO_FIX + store(),
    "unit flag": HALF + product("half", unit=2) + product("half", unit=3, zero="false") + TO_FIX + store(unit=3),
    "one row": HALF + product("half", m=1, gemv="false") + TO_FIX + store(m=1),
    "interleaved rows": nz(32, 2)
    + ND.format("(__cbuf__ half*)0", "(__gm__ half*)a", 32, 16, 16)
    + ND.format("(__cbuf__ half*)32", "(__gm__ half*)b", 32, 16, 16)
    + nz(16)
    + ND.format("(__cbuf__ half*)65536", "(__gm__ half*)e", 32, 16, 16)
    + TO_MTE1
    + "asc_copy_l12l0a((__ca__ half*)0, (__cbuf__ half*)0, 0, 0, 2, 1, 2, 2); "
    "asc_copy_l12l0b((__cb__ half*)0, (__cbuf__ half*)65536, 0, 0, 1, 1, 1, 1); "
    + TO_M
    + product("half", m=32)
    + TO_FIX
    + store(m=32, source=32),
    "start": nz(32)
    + ND.format("(__cbuf__ half*)0", "(__gm__ half*)a", 64, 32, 32)
    + nz(16)
    + ND.format("(__cbuf__ half*)65536", "(__gm__ half*)e", 32, 16, 16)
    + TO_MTE1
    + "asc_copy_l12l0a((__ca__ half*)0, (__cbuf__ half*)0, 1, 1, 1, 1, 2, 1); "
    "asc_copy_l12l0b((__cb__ half*)0, (__cbuf__ half*)65536, 0, 0, 1, 1, 1, 1); "
    + TO_M
    + product("half")
    + TO_FIX
    + store(),
    "columns, float": nz(16)
    + "asc_copy_gm2l1_dn2nz((__cbuf__ float*)0, (__gm__ float*)a, 64, LOAD, 16, 16, 0, false); "
    "asc_copy_gm2l1_dn2nz((__cbuf__ float*)65536, (__gm__ float*)b, 64, LOAD, 16, 16, 0, false); "
    + TO_MTE1
    + "asc_copy_l12l0a((__ca__ float*)0, (__cbuf__ float*)0, 0, 0, 1, 2, 1, 1); "
    "asc_copy_l12l0b((__cb__ float*)0, (__cbuf__ float*)65536, 0, 0, 1, 2, 1, 1); "
    + TO_M
    + product("float")
    + TO_FIX
    + store(),
    "columns, e4m3": nz(16)
    + "asc_copy_gm2l1_dn2nz((__cbuf__ uint8_t*)0, (__gm__ uint8_t*)a, 16, LOAD, 16, 32, 0, false); "
    "asc_copy_gm2l1_dn2nz((__cbuf__ uint8_t*)65536, (__gm__ uint8_t*)b, 16, LOAD, 16, 32, 0, false); "
    + TO_MTE1
    + "asc_copy_l12l0a((__ca__ float8_e4m3_t*)0, (__cbuf__ float8_e4m3_t*)0, 0, 0, 1, 1, 1, 1); "
    "asc_copy_l12l0b((__cb__ float8_e4m3_t*)0, (__cbuf__ float8_e4m3_t*)65536, 0, 0, 1, 1, 1, 1); "
    + TO_M
    + product("float8_e4m3_t", k=32)
    + TO_FIX
    + store(),
    "turned, half": TURN.format("half", 2)
    + product("half", m=32, n=32, k=32)
    + TO_FIX
    + store(n=32, m=32, pitch=32, source=32),
    "turned, e4m3": TURN.format("float8_e4m3_t", 1)
    + product("float8_e4m3_t", m=32, n=32, k=32)
    + TO_FIX
    + store(n=32, m=32, pitch=32, source=32),
    "turned, float": TURN.format("float", 4)
    + product("float", m=32, n=32, k=32)
    + TO_FIX
    + store(n=32, m=32, pitch=32, source=32),
    "fill": "asc_fill_l1((__cbuf__ half*)0, half(1.5f), {1, 16, 0}); "
    "asc_fill_l1((__cbuf__ half*)65536, uint32_t(0x3c00), {2, 4, 4}); asc_fill_l1((__cbuf__ half*)65664, half(2.0f), "
    "{2, 4, 4}); " + TO_MTE1 + "asc_copy_l12l0a((__ca__ half*)0, (__cbuf__ half*)0, 0, 0, 1, 1, 1, 1); "
    "asc_copy_l12l0b((__cb__ half*)0, (__cbuf__ half*)65536, 0, 0, 1, 1, 1, 1); "
    + TO_M
    + product("half")
    + TO_FIX
    + store(),
    "bias": HALF
    + nz(1)
    + ND.format("(__cbuf__ float*)131072", "(__gm__ float*)e", 64, 1, 16)
    + TO_MTE1
    + "asc_copy_l12bt(uint64_t(0), (__cbuf__ float*)131072, false, 1, 1, 0, 0); "
    + TO_M
    + product("half", zero="false", bias="true")
    + TO_FIX
    + store(),
    "fp16": HALF + product("half") + TO_FIX + store(into="(__gm__ half*)c", quant=1),
    "bf16": HALF + product("half") + TO_FIX + store(into="(__gm__ bfloat16_t*)c", quant=16),
    "relu": HALF + product("half") + TO_FIX + store(relu=1),
    "part": HALF + product("half") + TO_FIX + store(n=5, m=3, pitch=20),
    "two matrices": nz(32, 1, 2, 16)
    + "asc_copy_gm2l1_nd2nz((__cbuf__ half*)0, (__gm__ half*)a, 32, LOAD, 16, 16, 1536, false); "
    + nz(16, count=0)
    + ND.format("(__cbuf__ half*)0", "(__gm__ half*)b", 32, 16, 16)
    + nz(16)
    + ND.format("(__cbuf__ half*)65536", "(__gm__ half*)e", 32, 16, 16)
    + TO_MTE1
    + "asc_copy_l12l0a((__ca__ half*)0, (__cbuf__ half*)0, 0, 0, 2, 1, 2, 2); "
    "asc_copy_l12l0b((__cb__ half*)0, (__cbuf__ half*)65536, 0, 0, 1, 1, 1, 1); "
    + TO_M
    + product("half", m=32)
    + TO_FIX
    + store(m=32, source=32),
    "L1 address": nz(16) + ND.format("(__cbuf__ half*)16", "(__gm__ half*)a", 32, 16, 16),
    "behind L1": nz(16) + ND.format("(__cbuf__ half*)(512 * 1024 - 256)", "(__gm__ half*)a", 32, 16, 16),
    "rows behind GM": nz(16) + ND.format("(__cbuf__ half*)0", "(__gm__ half*)a", 2048, 16, 16),
    "columns behind GM": nz(16)
    + "asc_copy_gm2l1_dn2nz((__cbuf__ half*)0, (__gm__ half*)a, 2048, LOAD, 16, 16, 0, false);",
    "L0A address": "asc_copy_l12l0a((__ca__ half*)256, (__cbuf__ half*)0, 0, 0, 1, 1, 1, 1);",
    "behind L0A": "asc_copy_l12l0a((__ca__ half*)0, (__cbuf__ half*)0, 0, 0, 16, 9, 16, 16);",
    "behind L0B": "asc_copy_l12l0b((__cb__ half*)65024, (__cbuf__ half*)0, 0, 0, 2, 1, 2, 2);",
    "source behind L1": "asc_copy_l12l0a((__ca__ half*)0, (__cbuf__ half*)0, 0, 1024, 1, 1, 1, 1);",
    "odd turn of bytes": "asc_copy_l12l0a_transpose((__ca__ float8_e4m3_t*)0, "
    "(__cbuf__ float8_e4m3_t*)0, 0, 0, 1, 1, 1, "
    "2);",
    "odd turn of words": "asc_copy_l12l0b_transpose((__cb__ float*)0, (__cbuf__ float*)0, 0, 0, 1, 1, 1, 1);",
    "rows past 4095": product("half", m=4096),
    "product behind L0A": product("half", m=4080, k=16, n=16),
    "product behind L0C": product("half", m=16, k=16, n=4080),
    "L0C address": "asc_mmad((__cc__ float*)32, (__ca__ half*)0, (__cb__ half*)0, 16, 16, 16, 0, true, false, true);",
    "gemv of rows": HALF + product("half", m=16, gemv="false"),
    "scales past L0": "asc_copy_l12l0a_mx(uint64_t(uintptr_t((__ca__ uint8_t*)65536)) / 16, "
    "(__cbuf__ fp8_e8m0_t*)0, 0, 0, 1, 1, 1, 1);",
    "scale address": "asc_copy_l12l0b_mx(uint64_t(uintptr_t((__cb__ uint8_t*)0)) / 16, "
    "(__cbuf__ fp8_e8m0_t*)16, 0, 0, 1, 1, 1, 1);",
    "bias past its table": "asc_copy_l12bt(uint64_t(4096), (__cbuf__ float*)0, false, 1, 1, 0, 0);",
    "fill past L1": "asc_fill_l1((__cbuf__ half*)(512 * 1024 - 32), half(0.0f), {1, 2, 0});",
    "fractals out": HALF + product("half") + TO_FIX + store(nd="false"),
    "columns out": HALF + product("half") + TO_FIX + store(nd="false", dn="true"),
    "split": HALF + product("half") + TO_FIX + store(split="true", nd="false"),
    "integers out": HALF + product("half") + TO_FIX + store(quant=24),
    "type and conversion": HALF + product("half") + TO_FIX + store(quant=1),
    "store behind GM": HALF + product("half") + TO_FIX + store(pitch=1 << 20),
    "store behind L0C": store(source=4096, n=4080, pitch=4080),
    "pitch 0": HALF + product("half") + TO_FIX + store(pitch=0),
    "rows that overlap": HALF + product("half") + TO_FIX + store(pitch=15),
    "in any order": "asc_set_mmad_direction_n(); "
    + HALF
    + product("half")
    + TO_FIX
    + store()
    + "asc_set_mmad_direction_m();",
    "hf32": "asc_enable_hf32();",
    "hf32 off": "asc_disable_hf32(); " + loads("float", 2) + product("float") + TO_FIX + store(),
}
CALLS = Calls(
    "__cube__",
    "__gm__ uint8_t* a, __gm__ uint8_t* b, __gm__ uint8_t* e, __gm__ float* c",
    STATEMENTS,
    before="__cc__ float* l0c = (__cc__ float*)0; __gm__ uint8_t* d = (__gm__ uint8_t*)c; (void)d;",
)
F8 = torch.float8_e4m3fn


def operand(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def run(name: str, a: torch.Tensor, b: torch.Tensor, e: torch.Tensor | None = None, size: int = 1024) -> torch.Tensor:
    c = torch.full((size,), float("nan"))
    raw = [t.contiguous().view(torch.uint8).flatten() for t in (a, b.clone(), torch.zeros(4) if e is None else e)]
    CALLS(name, a=raw[0], b=raw[1], e=raw[2], c=c)
    return c


def square(name: str, dtype: torch.dtype = torch.float16, k: int = 16) -> tuple[torch.Tensor, np.ndarray]:
    a, b = operand((16, k), dtype, 1), operand((16, k), dtype, 2)
    return run(name, a, b), a.double().numpy() @ b.double().numpy().T


@pytest.mark.parametrize(
    "name, dtype, k",
    [
        ("half", torch.float16, 16),
        ("float", torch.float32, 16),
        ("e4m3", F8, 32),
        ("e4m3 ragged", F8, 19),
        ("zero rows", torch.float16, 16),
        ("unit flag", torch.float16, 16),
        ("in any order", torch.float16, 16),
        ("hf32 off", torch.float32, 16),
    ],
)
def test_a_product(name: str, dtype: torch.dtype, k: int) -> None:
    c, want = square(name, dtype, k)
    want = want * (2 if name == "unit flag" else 1)
    np.testing.assert_array_equal(c[:256].view(16, 16), want)
    assert c[256:].isnan().all()


def test_a_product_goes_on_from_what_is_there() -> None:
    c, want = square("twice")
    np.testing.assert_array_equal(c[:256].view(16, 16), 2 * want)


@pytest.mark.parametrize("name, k", [("scaled", 64), ("scaled, ragged", 37)])
def test_a_product_of_scaled_operands(name: str, k: int) -> None:
    """A scale of 2^(code - 127) for 32 of K, the two of a row side by side."""
    a, b = operand((16, 64), F8, 1), operand((16, 64), F8, 2)
    codes = torch.randint(125, 130, (2, 16, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    left, right = (
        x.double().numpy()[:, :k] * 2.0 ** (np.repeat(code.numpy().astype(float), 32, 1)[:, :k] - 127)
        for x, code in zip((a, b), codes)
    )
    c = run(name, a, b, codes)
    np.testing.assert_array_equal(c[:256].view(16, 16), left @ right.T)


def test_one_row_as_a_vector() -> None:
    c, want = square("one row")
    np.testing.assert_array_equal(c[:16], want[0])
    assert c[16:].isnan().all()


EYE = torch.eye(16, dtype=torch.float16)


def test_rows_may_lie_steps_apart() -> None:
    a, b = operand((16, 16), torch.float16, 1), operand((16, 16), torch.float16, 2)
    c = run("interleaved rows", a, b, EYE)
    assert torch.equal(c[:512].view(32, 16), torch.stack([a, b], 1).view(32, 16).float())


def test_several_matrices_a_copy() -> None:
    """Sources 1536 bytes apart, destinations 16 lines; a number of 0 copies nothing."""
    a = operand((64, 16), torch.float16, 4)
    c = run("two matrices", a, a, EYE)
    assert torch.equal(c[:512].view(32, 16), torch.cat([a[:16], a[48:]]).float())


def test_a_copy_starts_at_a_fractal() -> None:
    a = operand((32, 32), torch.float16, 3)
    c = run("start", a, a, EYE)
    assert torch.equal(c[:256].view(16, 16), a[16:, 16:].float())


@pytest.mark.parametrize("name, dtype, k", [("columns, float", torch.float32, 16), ("columns, e4m3", F8, 32)])
def test_columns_become_rows(name: str, dtype: torch.dtype, k: int) -> None:
    a, b = operand((k, 16), dtype, 1), operand((k, 16), dtype, 2)
    c = run(name, a, b)
    np.testing.assert_array_equal(c[:256].view(16, 16), a.double().numpy().T @ b.double().numpy())


@pytest.mark.parametrize("kind, dtype", [("half", torch.float16), ("e4m3", F8), ("float", torch.float32)])
def test_a_turned_copy_exchanges_rows_and_columns(kind: str, dtype: torch.dtype) -> None:
    a, b = operand((32, 32), dtype, 1), operand((32, 32), dtype, 2)
    c = run(f"turned, {kind}", a, b)
    np.testing.assert_array_equal(c.view(32, 32), a.double().numpy().T @ b.double().numpy())


def test_a_fill_has_repeats_and_gaps() -> None:
    b = np.where(np.arange(16) % 8 < 4, 1.0, 2.0)  # rows of B: 4 with bits, 4 with a value, and again
    c = run("fill", EYE, EYE)
    np.testing.assert_array_equal(c[:256].view(16, 16), np.tile(16 * 1.5 * b, (16, 1)))


def test_a_product_starts_from_the_bias() -> None:
    a, b = operand((16, 16), torch.float16, 1), operand((16, 16), torch.float16, 2)
    bias = torch.arange(16.0)
    c = run("bias", a, b, bias)
    np.testing.assert_array_equal(c[:256].view(16, 16), a.double().numpy() @ b.double().numpy().T + bias.numpy())


@pytest.mark.parametrize("name, dtype", [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_conversions_round_to_the_nearest_even(name: str, dtype: torch.dtype) -> None:
    """Row 0 of A and column 0 of B make 2049 = 2048 + 1, 2051 and their like: ties of fp16 and bf16."""
    a = torch.zeros(16, 16, dtype=torch.float16)
    a[:, 0], a[:, 1] = torch.arange(16) * 256 + 2048, torch.arange(16)
    b = torch.ones(16, 16, dtype=torch.float16)
    c = run(name, a, b).view(dtype)[:256].view(16, 16)
    want = torch.from_numpy(a.double().numpy() @ b.double().numpy().T).to(dtype)
    assert torch.equal(c, want)


def test_fp16_of_what_is_too_large_is_infinite() -> None:
    a, b = torch.full((16, 16), 255.0).half(), torch.full((16, 16), 255.0).half()
    assert run("fp16", a, b).view(torch.float16)[:256].isposinf().all()


def test_relu_takes_negatives_to_zero() -> None:
    c, want = square("relu")
    np.testing.assert_array_equal(c[:256].view(16, 16), np.maximum(want, 0))


def test_part_of_a_tile_with_a_pitch() -> None:
    c, want = square("part")
    rows = c[:60].view(3, 20)
    np.testing.assert_array_equal(rows[:, :5], want[:3, :5])
    assert rows[:, 5:].isnan().all() and c[60:].isnan().all()


FAULTS = {
    "no scales": "no scales loaded for L0A",
    "twice to one fractal": "2 fractals in a run exceed the destination's stride of 1",
    "turned, twice to one fractal": "2 fractals in a run exceed the destination's stride of 1",
    "scales twice to one fractal": "2 fractals in a run exceed the destination's stride of 1",
    "L1 address": "multiple of 32",
    "behind L1": "outside the 512 KiB of L1",
    "rows behind GM": "outside every argument",
    "columns behind GM": "outside every argument",
    "L0A address": "multiple of 512",
    "behind L0A": "outside the 64 KiB of L0A",
    "behind L0B": "outside the 64 KiB of L0B",
    "source behind L1": "outside the 512 KiB of L1",
    "odd turn of bytes": "even|multiple of 2",
    "odd turn of words": "even|multiple of 2",
    "rows past 4095": "4095",
    "product behind L0A": "outside the 64 KiB of L0A",
    "product behind L0C": "outside the (64|256) KiB of L0(B|C)",
    "L0C address": "multiple of 64",
    "gemv of rows": "gemv|GEMV|one row|1 row",
    "scales past L0": "L0A",
    "scale address": "multiple of 32",
    "bias past its table": "bias table|BT|4 KiB",
    "fill past L1": "outside the 512 KiB of L1",
    "fractals out": "only row-major output .nz2nd. is modelled",
    "columns out": "only row-major output .nz2nd. is modelled",
    "split": "only row-major output .nz2nd. is modelled",
    "integers out": "quant",
    "type and conversion": "quant|float|half|f16",
    "store behind GM": "outside every argument",
    "store behind L0C": "outside the 256 KiB of L0C",
    "hf32": "asc_enable_hf32: HF32 rounding is not modelled",
    "pitch 0": "pitch|stride| 0",
    "rows that overlap": "16 columns exceed the row pitch of 15: rows overlap",
}


@pytest.mark.parametrize("name", FAULTS)
def test_misuse_is_named(name: str) -> None:
    a = operand((16, 16), torch.float16, 1)
    with pytest.raises(KernelFault, match=FAULTS[name]) as fault:
        run(name, a, a)
    assert "asc_" in str(fault.value) and "kernel calls, block 0 AIC" in str(fault.value)
