"""The experts' linear layers: the class, the list of tiles, equal bits of a row whatever its expert's rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import numpy as np

from cuda_calls import DEVICE, PLAIN, SPOILT, STRIDED, assert_kept, every_call, on_cuda, run, sample
from deepinfer.backends.cuda import grouped
from deepinfer.ops.layer_samples import activations, ints, scales
from deepinfer.ops.spec import SPECS

CPU = torch.device("cpu")
OP = "grouped_linear"


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int16)


def weights(rng: np.random.Generator, experts: int, n: int, k: int, device: torch.device = CPU) -> Any:
    sample(OP, "")  # loads the reference
    code = torch.from_numpy(rng.integers(0, 256, (experts, n, k // 2), dtype=np.uint8)).to(device)
    return SPECS[OP].prepare(code, scales(rng, device, experts, n, k // 32))


def bounds(*counts: int) -> torch.Tensor:
    return ints(np.cumsum((0, *counts)), CPU)


@pytest.mark.parametrize("counts", [(0, 0, 0), (1,), (0, 16, 17, 0, 1), (300, 0, 0, 2), (0,) * 40 + (5,), (33,) * 7])
def test_tiles_cover_each_row_once_and_no_empty_expert(counts: tuple[int, ...]) -> None:
    rows, experts = sum(counts) + 3, len(counts)
    offsets, tile = bounds(*counts), grouped.row_tile(rows, experts)
    most = grouped.tiles_of(rows, experts, tile)
    plan = torch.full((1 + 2 * most,), -7, dtype=torch.int32, device=DEVICE)
    grouped.plan_launch(rows, experts)(offsets.to(DEVICE), plan)
    used, listed = int(plan[0]), plan[1:].view(-1, 2).tolist()
    want = [(e, b + i) for e, (b, c) in enumerate(zip(offsets.tolist(), counts)) for i in range(0, c, tile)]
    assert [tuple(x) for x in listed[:used]] == want
    assert used <= most
    assert listed[used:] == [[-7, -7]] * (most - used)


@pytest.mark.parametrize("variant", [PLAIN, STRIDED, SPOILT])
def test_small_calls_in_every_form(variant: str) -> None:
    assert_kept(OP, sample(OP, "empty groups, tail of unused rows, gathered").args, variant)


@pytest.mark.parametrize(
    "label",
    ["no rows, g", "no rows, p", "no local rows, g", "no local rows, p", "one row, g", "one row, p",
     "empty groups, tail of unused rows, p", "two tiles and a tail, g", "many rows, g",
     "tails in outputs and channels, p"],
)  # fmt: skip
def test_samples(label: str) -> None:
    assert_kept(OP, sample(OP, label).args)


def test_rows_of_an_expert_alone_and_beside_many() -> None:
    """Tiles of 16 that unpack rows themselves, and larger ones over rows unpacked before."""
    rng = np.random.default_rng(1)
    handle = weights(rng, 2, 72, 160)
    xq, xs = activations(rng, CPU, 290, 160)
    assert {grouped.row_tile(n, 2) for n in (3, 80, 180, 290)} == {16, 32, 64, 128}
    (many,) = run(OP, xq, xs, handle, None, bounds(270, 20))
    for first, count in ((0, 3), (17, 80)):
        part = slice(first, first + count)
        (some,) = run(OP, xq[part], xs[part], handle, None, bounds(count, 0))
        assert torch.equal(bits(some), bits(many[part])), (first, count)


def test_gathered_rows_have_the_bits_of_packed_ones() -> None:
    rng = np.random.default_rng(2)
    handle = weights(rng, 3, 40, 64)
    xq, xs = activations(rng, CPU, 9, 64)
    source = ints([8, 0, 0, 3, 7, 8, 1], CPU)
    at = source.long()
    (packed,) = run(OP, xq.view(torch.uint8)[at].view(xq.dtype), xs[at], handle, None, bounds(2, 0, 5))
    (gathered,) = run(OP, xq, xs, handle, source, bounds(2, 0, 5))
    assert torch.equal(bits(packed), bits(gathered))


def test_weights_in_blocks_of_codes_and_scales() -> None:
    """Two blocks of outputs; two of scales, which are eight of codes."""
    rng = np.random.default_rng(4)
    n, k = 128, 512
    assert grouped.blocked(n, k)
    handle = weights(rng, 2, n, k)
    xq, xs = activations(rng, CPU, 40, k)
    assert_kept(OP, (xq[:5], xs[:5], handle, None, bounds(2, 3)))
    (many,) = run(OP, xq, xs, handle, None, bounds(0, 40))
    (some,) = run(OP, xq[30:33], xs[30:33], handle, None, bounds(0, 3))
    assert torch.equal(bits(some), bits(many[30:33]))


@pytest.mark.skipif(DEVICE.type != "cpu", reason="needs a matrix unit with block scales")
@pytest.mark.parametrize("label", ["empty groups, tail of unused rows, g", "tails in outputs and channels, p"])
def test_the_native_kernel_by_its_formula(label: str) -> None:
    """Beside the other kernel, whose sums take the channels in another order; rows of no expert stay as they are."""
    args = sample(OP, label).args
    used = int(args[4][-1])
    out = torch.full((used + 9, args[2].tensors[0].shape[1]), 7.0, dtype=torch.bfloat16)
    rows = (args[0] if args[3] is None else args[3]).shape[0]
    got, want = grouped.grouped_linear_native(*args, out[:rows]), run(OP, *args)[0]
    torch.testing.assert_close(got[:used], want[:used], rtol=2.0**-7, atol=1e-5)
    assert (out[used:] == 7.0).all()


@pytest.mark.gpu
def test_every_required_call() -> None:
    for label, args, variant in every_call(OP):
        try:
            assert_kept(OP, args, variant)
        except AssertionError as error:
            raise AssertionError(f"{label}: {error}") from None


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "k"), [(4608, 5120), (5120, 2304)])
def test_bits_at_released_sizes_over_the_tiles(n: int, k: int) -> None:
    """An expert's rows alone and with 1 to 300 others, at other places, under every tile."""
    rng = np.random.default_rng(3)
    with on_cuda():
        handle = weights(rng, 4, n, k, DEVICE)
        xq, xs = (t.to(DEVICE) for t in activations(rng, CPU, 300, k))
        xs = torch.from_numpy(rng.integers(100, 130, xs.shape, dtype=np.uint8)).to(DEVICE)
        run_op = SPECS[OP].run
        many = run_op(xq, xs, handle, None, bounds(0, 300, 0, 0).to(DEVICE))
        tiles = set()
        for first, count in ((0, 1), (5, 2), (3, 17), (100, 50), (40, 130), (0, 200), (20, 260), (299, 1), (1, 299)):
            part = slice(first, first + count)
            tiles.add(grouped.row_tile(count, 4))
            some = run_op(xq[part].contiguous(), xs[part].contiguous(), handle, None, bounds(0, count, 0, 0).to(DEVICE))
            assert torch.equal(bits(some), bits(many[part])), (first, count)
        for times in (2, 3):
            source = torch.arange(300, dtype=torch.int32, device=DEVICE).repeat(times)
            wide = run_op(xq, xs, handle, source, bounds(0, 300 * times, 0, 0).to(DEVICE))
            tiles.add(grouped.row_tile(300 * times, 4))
            for turn in range(times):
                assert torch.equal(bits(wide[turn * 300 : turn * 300 + 300]), bits(many))
        assert tiles == {16, 32, 64, 128, 256}
