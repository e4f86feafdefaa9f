"""65 to 256 rows on SM90 in CUDA C++: its whole launches on the CPU in an emulator, and on a GPU the bits of the Triton
kernels."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import DEVICE, on_cuda, sample
from cuda_resources import RECORD
from deepinfer.backends.cuda import grouped, linear_fp8, linear_sm90, source
from deepinfer.backends.cuda import linear_wide_sm90 as wide
from deepinfer.backends.cuda.linear_compiles import FP8
from deepinfer.backends.reference import formats
from deepinfer.hal.registry import REGISTRY
from deepinfer.ops.layer_samples import fp8_codes, ints, scales
from deepinfer.ops.spec import SPECS

SUPPORT = Path(__file__).parents[2] / "support"
RUN = Path(__file__).parent / "runs" / "linear_wide_sm90.json"
CPU = torch.device("cpu")
NAME = "cuda:sm90_wide"
Library = Callable[[dict[str, int]], Any]


def test_it_comes_before_the_kernels_that_it_passes_calls_on_to() -> None:
    for op in ("linear_fp8", "linear_fp8_grouped", "grouped_linear"):
        found = {kernel.name: kernel.priority for kernel in REGISTRY.kernels(op) if kernel.backend == "cuda"}
        assert found["sm90_wide"] > max(priority for name, priority in found.items() if name != "sm90_wide")


@pytest.mark.parametrize("name", FP8)
def test_tiles_cover_rows_and_outputs(name: str) -> None:
    groups, n, k = FP8[name]
    for rows in (65, 96, 97, 128, 129, 192, 193, 256):
        tile = wide.tile_of(rows, groups, n, k)
        assert n % tile.outputs == 0 and wide.source(tile) in wide.SOURCES, "compiled ahead"
        assert 0 <= tile.down(rows) * tile.rows - rows < tile.rows
        assert tile.stages >= 4 and tile.shared <= 232448


def test_which_rows_it_takes() -> None:
    codes = torch.zeros((128, 128), dtype=torch.uint8).view(torch.float8_e4m3fn)
    clean = linear_fp8.fp8_prepare(codes, torch.full((4, 4), 120, dtype=torch.uint8))
    assert [wide.takes(rows, clean) for rows in (64, 65, 256, 257)] == [False, True, True, False]
    assert not wide.takes(128, linear_fp8.fp8_prepare(codes, torch.full((4, 4), 135, dtype=torch.uint8)))
    experts = torch.zeros((8, 64, 128), dtype=torch.uint8)
    weights = grouped.prepare(experts, torch.full((8, 64, 8), 120, dtype=torch.uint8))
    taken = [wide.takes_experts(rows, weights) for rows in (8 * 16, 8 * 16 + 1, 8 * 192, 8 * 192 + 1)]
    assert taken == [False, True, True, False]


# ---- in the emulator ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The kernels on the CPU, for defines."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    folder, made = tmp_path_factory.mktemp("wide"), {}

    def library(defines: dict[str, int]) -> Any:
        key = "_".join(f"{name}{value}" for name, value in defines.items())
        if key not in made:
            path = folder / f"{key}.so"
            options = ["-std=c++17", "-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC"]
            options += [f"-I{SUPPORT}", f"-I{source.FOLDER}", *(f"-D{name}={value}" for name, value in defines.items())]
            subprocess.run([compiler, *options, "-o", str(path), str(SUPPORT / "linear_wide_emulated.cpp")], check=True)
            made[key] = ctypes.CDLL(str(path))
        return made[key]

    return library


def at(x: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(0 if x is None else x.data_ptr())


def room(shape: tuple[int, ...], dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    """Garbage, on a line of the cache."""
    count = int(np.prod(shape)) * dtype.itemsize
    memory = torch.full((count + 128,), 0x7F, dtype=torch.uint8)
    begin = -memory.data_ptr() % 128
    return memory[begin : begin + count].view(dtype).view(shape)


def aligned(x: torch.Tensor) -> torch.Tensor:
    kept = room(tuple(x.shape), x.dtype)
    kept.view(torch.uint8).copy_(x.contiguous().view(torch.uint8))
    return kept


def close(got: torch.Tensor, want: torch.Tensor, terms: torch.Tensor) -> None:
    """Within an ulp of bf16, and the fp32 roundings of the terms."""
    assert got.dtype == torch.bfloat16
    error = (got.double() - want).abs()
    assert (error <= want.abs() * 2.0**-8 + terms * 2.0**-20).all(), float((error / (want.abs() + 1e-30)).max())


def fp8_values(code: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """fp64 of rows with a scale for each 32."""
    return formats.dequantize_fp8(code.view(torch.float8_e4m3fn), scale).double()


def small_codes(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    """Any E4M3 code but NaN."""
    code = rng.integers(0, 256, shape, dtype=np.uint8)
    return torch.from_numpy(np.where(code & 0x7F == 0x7F, code - 1, code).astype(np.uint8))


def bytes_between(rng: np.random.Generator, low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.integers(low, high + 1, shape).astype(np.uint8))


LINEAR = {
    "one tile, padded": (wide.Tile(2, 64), 37, 1, 128, 192, 192, 1),
    "rows share weights, blocks stay": (wide.Tile(2, 64), 100, 2, 256, 128, 128, 3),
    "four warpgroups": (wide.Tile(4, 64), 96, 1, 256, 320, 320, 1),
    "parts": (wide.Tile(2, 128), 130, 1, 256, 448, 128, 2),
}


def test_a_block_has_the_registers_that_its_warpgroups_ask_for() -> None:
    """Where they would not be there, `setmaxnreg.inc` waits for ever, which no emulator sees."""
    text = (source.FOLDER / "linear_wide_sm90.cu").read_text()
    few, many = (int(re.search(rf"setmaxnreg\.{way}\.sync\.aligned\.u32 (\d+)", text)[1]) for way in ("dec", "inc"))
    recorded = json.loads(RECORD.read_text())["3.9"]["sm_90"]
    found = {
        name: entry[0] for name, entry in recorded.items()
        if name.startswith("linear_wide_sm90.cu:") and "WARPGROUPS=4" in name
    }  # fmt: skip
    assert len(found) == sum(tile.warpgroups == 4 for tile in (*wide.TILES, wide.FEW_EXPERT_ROWS))
    assert all(few + 4 * many <= 5 * registers for registers in found.values()), found


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("seed", [0, 3])
def test_fp8_in_the_emulator(name: str, seed: int, emulated: Library) -> None:
    """Addresses, fragments, stages and barriers of a launch, with threads in two orders; nothing else is written."""
    tile, rows, groups, n, k, part, grid = LINEAR[name]
    rng = np.random.default_rng(seed)
    x, xs = small_codes(rng, rows, groups, k), bytes_between(rng, 118, 126, rows, groups, k // 32)
    code, scale = small_codes(rng, groups, n, k), bytes_between(rng, 118, 126, groups, n // 32, k // 32)
    w, ws = linear_fp8.fp8_prepare(code.view(torch.float8_e4m3fn), scale)
    w, ws = aligned(w.view(torch.uint8)), aligned(ws.view(torch.uint8))
    lines = tile.down(rows) * tile.rows
    image, memory = room((groups, k // 64, lines, 128)), room((rows + 2, groups, n), torch.bfloat16)
    library = emulated({"ROWS": tile.rows, "WARPGROUPS": tile.warpgroups, "STAGES": 3})
    library.linear_wide(
        at(x), at(xs), at(w), at(ws), at(memory[1:]), at(image), rows, lines, groups, n, k, part, -(-k // part), grid,
        ctypes.c_uint(seed),
    )  # fmt: skip
    wide_x, wide_w = fp8_values(x, xs), fp8_values(code, scale.repeat_interleave(32, 1))
    want = torch.einsum("rgk,gnk->rgn", wide_x, wide_w)
    close(memory[1:-1], want, torch.einsum("rgk,gnk->rgn", wide_x.abs(), wide_w.abs()))
    assert (memory[[0, -1]].view(torch.uint8) == 0x7F).all()


@pytest.mark.parametrize(("tile", "sourced"), [(wide.FEW_EXPERT_ROWS, True), (wide.MANY_EXPERT_ROWS, False)])
def test_experts_in_the_emulator(tile: wide.Tile, sourced: bool, emulated: Library) -> None:
    """Experts without rows, with few, with some tiles; each tile size; rows by source or packed."""
    counts = [0, 5, 40, 0, 70, 150, 33]
    n, k, lines_of_x = 256, 256, 50
    rng = np.random.default_rng(7)
    rows, experts, spare = sum(counts), len(counts), 9  # rows behind the last expert's name no line
    offsets = torch.tensor(np.cumsum([0, *counts]), dtype=torch.int32)
    chosen = (
        torch.from_numpy(np.append(rng.integers(0, lines_of_x, rows), [2**30] * spare).astype(np.int32))
        if sourced
        else None
    )
    x = small_codes(rng, lines_of_x if sourced else rows + spare, k)
    xs = bytes_between(rng, 118, 126, x.shape[0], k // 32)
    code, scale = bytes_between(rng, 0, 255, experts, n, k // 2), bytes_between(rng, 118, 126, experts, n, k // 32)
    w, ws = grouped.prepare(code, scale)
    w, ws = aligned(w.view(torch.uint8)), aligned(ws.view(torch.uint8))
    lines = wide.expert_lines(rows + spare)
    image, memory = room((k // 64, lines, 128)), room((rows + spare + 2, n), torch.bfloat16)
    library = emulated({"FP4": 1, "ROWS": tile.rows, "WARPGROUPS": tile.warpgroups, "STAGES": 3})
    library.grouped_wide(
        at(x), at(xs), at(w), at(ws), at(chosen), at(offsets), at(memory[1:]), at(image), rows + spare, lines, experts,
        n, k, 3, ctypes.c_uint(5),
    )  # fmt: skip
    wide_x, wide_w = fp8_values(x, xs), formats.dequantize_fp4_pow2(code, scale).double()
    taken = wide_x[:rows] if chosen is None else wide_x[chosen[:rows].long()]
    owner = torch.repeat_interleave(torch.arange(experts), torch.tensor(counts))
    want = torch.stack([wide_w[e] @ row for e, row in zip(owner.tolist(), taken, strict=True)])
    size = torch.stack([wide_w[e].abs() @ row.abs() for e, row in zip(owner.tolist(), taken, strict=True)])
    close(memory[1 : 1 + rows], want, size)
    assert (memory[[0, *range(1 + rows, rows + spare + 2)]].view(torch.uint8) == 0x7F).all()


def test_a_gpu_has_passed_this_source() -> None:
    run = json.loads(RUN.read_text())
    assert run["source"] == source.digest("linear_wide_sm90.cu")
    assert "H200" in run["chip"] and run["failed"] == [] and run["passed"] > 0


# ---- on a GPU -------------------------------------------------------------------------------------------------------


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int16)


@pytest.mark.gpu
@pytest.mark.parametrize("name", FP8)
def test_bits_of_the_ways_beside_it(name: str) -> None:
    """Every released weight: 65 to 256 rows, of the Triton kernels and, row by row, of the few-row kernels."""
    groups, n, k = FP8[name]
    op, shape = ("linear_fp8_grouped", (groups,)) if groups > 1 else ("linear_fp8", ())
    rng, far = np.random.default_rng(5), {"low": 100, "high": 130}
    sample("linear_fp8", "")
    with on_cuda():
        handle = SPECS[op].prepare(
            fp8_codes(rng, DEVICE, *shape, n, k), scales(rng, DEVICE, *shape, n // 32, k // 32, **far)
        )
        x, xs = fp8_codes(rng, DEVICE, 256, *shape, k), scales(rng, DEVICE, 256, *shape, k // 32, **far)
        want = torch.empty((256, *shape, n), dtype=torch.bfloat16, device=DEVICE)
        linear_fp8.run(x, xs, handle.tensors, want, None, groups)
        few = torch.empty_like(want[:64])
        linear_sm90.run(x[:64].contiguous(), xs[:64].contiguous(), handle.tensors, few, None, groups)
        assert torch.equal(bits(few), bits(want[:64]))
        with REGISTRY.pin(op, NAME):
            for rows in (65, 66, 95, 96, 97, 127, 128, 129, 191, 192, 193, 255, 256):
                for first in {0, 256 - rows}:
                    given = x[first : first + rows].contiguous(), xs[first : first + rows].contiguous(), handle
                    size = SPECS[op].workspace(*given)
                    scratch = torch.full((size + 1,), 255, dtype=torch.uint8, device=DEVICE)[1:]
                    out = torch.full_like(want[:rows], 7.0)
                    SPECS[op].run(*given, out, scratch)
                    assert torch.equal(bits(out), bits(want[first : first + rows])), (rows, first)
            broken = x[:70].clone()
            broken.view(torch.uint8)[1].view(-1)[77] = 0x7F
            got = SPECS[op].run(broken, xs[:70].contiguous(), handle)
            assert got[1].flatten()[:n].isnan().all() and not got[[0, *range(2, 70)]].isnan().any()


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "k"), [(4608, 5120), (5120, 2304)])
def test_bits_of_the_experts_triton_kernel(n: int, k: int) -> None:
    rng = np.random.default_rng(6)
    sample("grouped_linear", "")
    with on_cuda():
        experts = 16
        code = torch.from_numpy(rng.integers(0, 256, (experts, n, k // 2), dtype=np.uint8)).to(DEVICE)
        handle = SPECS["grouped_linear"].prepare(code, scales(rng, DEVICE, experts, n, k // 32, low=100, high=129))
        x, xs = fp8_codes(rng, DEVICE, 600, k), scales(rng, DEVICE, 600, k // 32, low=100, high=130)
        for counts in ([17] * 16, [0, 300, 1, 31, 32, 33, 64, 65, 96, 97, 128, 129, 0, 256, 257, 5], [192] * 16):
            rows = sum(counts)
            offsets = torch.tensor(np.cumsum([0, *counts]), dtype=torch.int32, device=DEVICE)
            chosen = ints(rng.integers(0, 600, rows), DEVICE)
            args = (x, xs, handle, chosen, offsets)
            want = grouped.grouped_linear(*args, None)
            with REGISTRY.pin("grouped_linear", NAME):
                size = SPECS["grouped_linear"].workspace(*args)
                scratch = torch.full((size + 1,), 255, dtype=torch.uint8, device=DEVICE)[1:]
                got = SPECS["grouped_linear"].run(*args, torch.full_like(want, 7.0), scratch)
            assert torch.equal(bits(got), bits(want)), counts
