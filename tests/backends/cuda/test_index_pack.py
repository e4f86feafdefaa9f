"""The CUDA source that packs index queries: the reference's bits, in an emulator on the CPU and on a GPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import DEVICE
from deepinfer.backends.cuda import index
from deepinfer.backends.cuda.source import FOLDER
from deepinfer.backends.reference import index as reference
from deepinfer.hal.registry import Signature

SUPPORT = Path(__file__).parents[2] / "support"
Pack = Callable[..., torch.Tensor]
SHAPES = [(128, 32, 32), (128, 5, 20), (256, 4, 128), (512, 1, 0)]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int, int], Any]:
    """The kernel on the CPU for a width, heads and turned pairs."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    folder, made = tmp_path_factory.mktemp("pack"), {}

    def library(width: int, heads: int, pairs: int) -> Any:
        key = width, heads, pairs
        if key not in made:
            path = folder / ("_".join(map(str, key)) + ".so")
            options = ["-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", f"-I{SUPPORT}", f"-I{FOLDER}"]
            defines = [f"-DWIDTH={width}", f"-DHEADS={heads}", f"-DPAIRS={pairs}"]
            command = [compiler, *options, *defines, "-o", str(path), str(SUPPORT / "index_pack_emulated.cpp")]
            subprocess.run(command, check=True)
            made[key] = ctypes.CDLL(str(path))
        return made[key]

    return library


@pytest.fixture(params=["emulated", pytest.param("gpu", marks=pytest.mark.gpu)])
def pack(request: pytest.FixtureRequest) -> Pack:
    if request.param == "gpu":
        return lambda *args: index.index_query_pack_source(*(t.to(DEVICE) for t in args[:3]), None).cpu()
    library = request.getfixturevalue("emulated")

    def run(q: torch.Tensor, positions: torch.Tensor, table: torch.Tensor, seed: int = 1) -> torch.Tensor:
        rows, heads, width = q.shape
        record = width * 17 // 32
        room = torch.full((rows * heads * record + 48,), 0xA5, dtype=torch.uint8)
        begin = -room.data_ptr() % 16 + (seed % 2)  # an aligned one, or an odd one
        out = room[begin : begin + rows * heads * record]
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (q, positions, table, out)]
        lib = library(width, heads, table.shape[1])
        lib.index_pack_emulated(*pointers, ctypes.c_longlong(rows * heads), ctypes.c_uint(seed))
        assert (room[:begin] == 0xA5).all() and (room[begin + len(out) :] == 0xA5).all()
        return out.view(rows, heads, record)

    return run


def table(pairs: int, seed: int = 3) -> torch.Tensor:
    angle = torch.rand(50, pairs, generator=torch.Generator().manual_seed(seed)) * 6.3
    return torch.stack((angle.cos(), angle.sin()), dim=-1).contiguous()


def places(rows: int) -> torch.Tensor:
    return (torch.arange(rows, dtype=torch.int32) * 7 + 1) % 50


def check(pack: Pack, q: torch.Tensor, pairs: int, **options: int) -> torch.Tensor:
    args = q, places(len(q)), table(pairs)
    got = pack(*args, **options)
    want = reference.index_query_pack(*args, None)
    assert torch.equal(got, want), f"{int((got != want).sum())} bytes of {want.numel()} differ"
    return got


@pytest.mark.parametrize(("width", "heads", "pairs"), SHAPES)
def test_widths_and_tails(pack: Pack, width: int, heads: int, pairs: int) -> None:
    """Blocks that are not full, heads that are no power of two, no turned channels and all of them."""
    draw = torch.Generator().manual_seed(width + heads)
    check(pack, torch.randn(3, heads, width, generator=draw).bfloat16() * 3, pairs)


def test_every_magnitude(pack: Pack) -> None:
    """From subnormal numbers to the largest, a power of two for each head."""
    draw = torch.Generator().manual_seed(4)
    exponents = torch.linspace(-134, 127, 9 * 32).round().view(9, 32, 1)
    q = torch.randn(9, 32, 128, generator=draw, dtype=torch.float64) * 2.0**exponents
    check(pack, q.clamp(-3.3e38, 3.3e38).bfloat16(), 32)


def test_ties_and_steps(pack: Pack) -> None:
    """Multiples of 1/8 up to 6 of either sign, with a largest of 6 times some power of two: all ties and all codes."""
    grid = torch.arange(-48, 49).float() / 8
    rows = torch.stack([torch.roll(grid, 31 * i)[:64] for i in range(16)])
    q = torch.zeros(2, 32, 128)
    q[:, :16, :64] = rows
    q[:, 16:, :64] = torch.nextafter(rows, torch.full_like(rows, torch.inf)) * 2.0**-9
    q[..., 0], q[..., 32] = 6.0, -6.0
    q[:, 16:, 0:33:32] *= 2.0**-9
    got = check(pack, q.bfloat16(), 32)
    codes = got[..., :32]
    assert len(torch.cat((codes & 15, codes >> 4)).unique()) == 16


def test_groups_that_are_not_finite_stay_by_themselves(pack: Pack) -> None:
    q = torch.randn(2, 32, 128, generator=torch.Generator().manual_seed(5)).bfloat16()
    q[0, 0, 5], q[0, 1, 40], q[0, 2, 70], q[1, 3, 127] = torch.nan, torch.inf, -torch.inf, -torch.nan
    q[1, 4] = -0.0
    q[1, 5] = 0.0
    got = check(pack, q, 32)
    assert got[0, 0, 64:].tolist()[0] == 255 and got[0, 0, 64:].tolist()[1] < 255


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_any_order_of_threads_and_any_address(emulated: Any, pack: Pack, seed: int) -> None:
    q = torch.randn(2, 32, 128, generator=torch.Generator().manual_seed(6)).bfloat16()
    room = torch.zeros(q.numel() + 16, dtype=torch.bfloat16)
    begin = seed * 3
    moved = room[begin : begin + q.numel()].view(q.shape)
    moved.copy_(q)
    if DEVICE.type == "cpu":
        check(pack, moved, 32, seed=seed)


def test_what_it_does_not_do_is_declined_in_words() -> None:
    def verdict(di: int, pairs: int) -> str | None:
        return index.whole_lines(Signature("index_query_pack", 0, "cuda", dims={"di": di, "F": pairs}))

    assert verdict(128, 32) is None and verdict(512, 0) is None
    assert "di must be one of 128, 256, 512, got 96" in str(verdict(96, 8))
    assert "F must be a multiple of 4 up to 64, got 6" in str(verdict(128, 6))
