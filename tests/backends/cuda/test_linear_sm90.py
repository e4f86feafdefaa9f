"""Few rows on SM90 in CUDA C++: which way a call goes, and on a GPU the bits of the Triton kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import numpy as np

from cuda_calls import DEVICE, on_cuda, sample
from deepinfer.backends.cuda import grouped, grouped_sm90, linear_fp8, linear_sm90, source
from deepinfer.backends.cuda import linear_launches as launches
from deepinfer.backends.cuda.linear_compiles import FP8
from deepinfer.ops.layer_samples import fp8_codes, ints, scales
from deepinfer.ops.spec import SPECS

CPU = torch.device("cpu")
RUN = Path(__file__).parent / "runs" / "linear_sm90.json"


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int16)


def test_every_released_weight_is_taken() -> None:
    for name, (groups, n, k) in FP8.items():
        assert linear_sm90.supported(groups, n, k) is None, name
    assert "multiple of 128" in str(linear_sm90.supported(1, 192, 1024))
    assert "one of 64" in str(linear_sm90.supported(1, 128, 1056))
    assert "not cut" in str(linear_sm90.supported(1, 32768, 8192 + 64))


# Groups of a half, or two and a half, of the broadest block: together they are whole ones.
ODD_GROUPS = {"many narrow groups": (80, 128, 1024), "groups of 640": (16, 640, 1024)}


@pytest.mark.parametrize(("name", "size"), (FP8 | ODD_GROUPS).items())
def test_blocks_cover_outputs_and_channels(name: str, size: tuple[int, int, int]) -> None:
    groups, n, k = size
    part, parts = launches.part_of(groups * n, k), linear_sm90.parts_of(groups, n, k)
    assert (parts - 1) * part < k <= parts * part
    assert part % 64 == 0
    assert parts <= launches.MOST_PARTS
    for tile in linear_sm90.ROWS:
        count = linear_sm90.warpgroups_of(tile, groups, n, parts)
        assert n % (64 * count) == 0, (name, tile)
        known = linear_sm90.source(tile, count, linear_sm90.images(tile, parts))
        assert known in linear_sm90.SOURCES, "compiled ahead"
        space = known.shared - linear_sm90._FACTORS - linear_sm90._BARRIERS
        assert tile * (64 * count + 4) * 4 <= space, "sums lie where rows lay"
        assert part // 32 * 2 * count * 4 <= linear_sm90._FACTORS, "scales of all channels of a part"


def test_an_image_has_room_for_whole_tiles() -> None:
    assert linear_sm90.image_bytes(8, 1, 32768, 1280) == 0
    assert linear_sm90.image_bytes(9, 1, 32768, 1280) == 16 * 1280 * 2 + 128
    assert linear_sm90.image_bytes(33, 8, 1024, 4096) == 64 * 8 * 4096 * 2 + 128
    assert linear_sm90.image_bytes(16, 1, 5120, 8192) == 0
    assert linear_sm90.image_bytes(17, 1, 5120, 8192) == 32 * 8192 * 2 + 128


def test_weights_that_are_not_clean_and_many_rows_go_another_way() -> None:
    code, scale = torch.zeros((8, 128, 128), dtype=torch.uint8), torch.full((8, 128, 8), 120, dtype=torch.uint8)
    clean, broken = grouped.prepare(code, scale), grouped.prepare(code, scale + 9)
    assert grouped_sm90.takes(8 * grouped_sm90.MEAN, clean)
    assert not grouped_sm90.takes(8 * grouped_sm90.MEAN + 1, clean)
    assert not grouped_sm90.takes(1, broken)
    fp8 = torch.zeros((128, 128), dtype=torch.uint8).view(torch.float8_e4m3fn)
    assert linear_sm90.takes(64, linear_fp8.fp8_prepare(fp8, torch.full((4, 4), 120, dtype=torch.uint8)))
    assert not linear_sm90.takes(65, linear_fp8.fp8_prepare(fp8, torch.full((4, 4), 120, dtype=torch.uint8)))
    assert not linear_sm90.takes(1, linear_fp8.fp8_prepare(fp8, torch.full((4, 4), 135, dtype=torch.uint8)))


def test_the_recorded_run_is_of_this_source() -> None:
    """A kernel in CUDA source counts only with a run of the same source on its chip."""
    run = json.loads(RUN.read_text())
    assert run["source"] == source.digest("linear_sm90.cu")
    assert "H200" in run["chip"] and run["failed"] == [] and run["passed"] > 0


# ---- on a GPU -------------------------------------------------------------------------------------------------------


def fp8_call(rng: np.random.Generator, groups: int, n: int, k: int) -> tuple[str, list[Any]]:
    op, shape = ("linear_fp8_grouped", (groups,)) if groups > 1 else ("linear_fp8", ())
    far: dict[str, int] = {"low": 100, "high": 130}
    handle = SPECS[op].prepare(
        fp8_codes(rng, DEVICE, *shape, n, k), scales(rng, DEVICE, *shape, n // 32, k // 32, **far)
    )
    return op, [fp8_codes(rng, DEVICE, 64, *shape, k), scales(rng, DEVICE, 64, *shape, k // 32, **far), handle]


@pytest.mark.gpu
@pytest.mark.parametrize("name", FP8 | ODD_GROUPS)
def test_bits_of_the_triton_kernels(name: str) -> None:
    """Every tile, full and not; rows at odd addresses; a NaN code; outputs at odd addresses; garbage in scratch."""
    groups, n, k = (FP8 | ODD_GROUPS)[name]
    rng = np.random.default_rng(5)
    sample("linear_fp8", "")
    with on_cuda():
        op, (x, xs, handle) = fp8_call(rng, groups, n, k)
        shape = (64, groups, n) if groups > 1 else (64, n)
        want = torch.empty(shape, dtype=torch.bfloat16, device=DEVICE)
        linear_fp8.run(x, xs, handle.tensors, want, None, groups)
        for rows in (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64):
            for first in {0, 64 - rows}:
                part = slice(first, first + rows)
                odd = torch.empty(x[part].numel() + 3, dtype=torch.uint8, device=DEVICE)[3:].view(x[part].shape)
                odd.copy_(x[part].view(torch.uint8))
                memory = torch.full((want[part].numel() + 1,), 7.0, dtype=torch.bfloat16, device=DEVICE)
                for at in (x[part].contiguous(), odd.view(x.dtype)):
                    for out in (torch.full_like(want[part], 7.0), memory[1:].view(want[part].shape)):
                        size = SPECS[op].workspace(at, xs[part].contiguous(), handle)
                        scratch = torch.full((size + 1,), 255, dtype=torch.uint8, device=DEVICE)[1:]
                        SPECS[op].run(at, xs[part].contiguous(), handle, out, scratch)
                        assert torch.equal(bits(out), bits(want[part])), (rows, first)
        broken = x[:4].clone()
        broken.view(torch.uint8)[1].view(-1)[77] = 0x7F
        got = SPECS[op].run(broken, xs[:4].contiguous(), handle)
        assert got[1].flatten()[:n].isnan().all()
        assert not got[[0, 2, 3]].isnan().any()


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "k"), [(4608, 5120), (5120, 2304)])
def test_bits_of_the_experts_triton_kernel(n: int, k: int) -> None:
    rng = np.random.default_rng(6)
    sample("grouped_linear", "")
    with on_cuda():
        code = torch.from_numpy(rng.integers(0, 256, (40, n, k // 2), dtype=np.uint8)).to(DEVICE)
        scale = scales(rng, DEVICE, 40, n, k // 32, low=100, high=129)
        handle = SPECS["grouped_linear"].prepare(code, scale)
        x, xs = fp8_codes(rng, DEVICE, 300, k), scales(rng, DEVICE, 300, k // 32, low=100, high=130)
        one = np.eye(40, dtype=int)
        draws = rng.multinomial(250, rng.dirichlet(np.full(40, 0.3))), one[39], one[0] * 200
        for counts in draws:
            offsets = ints(np.cumsum((0, *counts)), CPU).to(DEVICE)
            token = torch.from_numpy(rng.integers(0, 300, int(offsets[-1]) + 5, dtype=np.int32)).to(DEVICE)
            for gathered in (token, None):
                rows = 300 if gathered is None else len(token)
                assert grouped_sm90.takes(rows, handle.tensors)
                want, got = (torch.full((rows, n), 7.0, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
                grouped.grouped_linear(x, xs, handle, gathered, offsets, want)
                grouped_sm90.grouped_linear(x, xs, handle, gathered, offsets, got)
                assert torch.equal(bits(got), bits(want)), counts
