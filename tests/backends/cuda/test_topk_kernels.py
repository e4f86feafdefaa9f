"""Top-k and candidate blocks: the Triton kernel, and the CUDA source on the GPU or in an emulator on the CPU."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from cuda_calls import DEVICE, PLAIN, SPOILT, STRIDED, assert_kept, sample
from deepinfer.backends.cuda import topk_kernels as cuda
from deepinfer.backends.cuda.source import FOLDER, digest
from deepinfer.backends.reference import index as reference

NAN, INF = float("nan"), float("inf")
SUPPORT = Path(__file__).parents[2] / "support"
RUN = Path(__file__).parent / "runs" / "topk.json"
F32 = ("small_f32_1", "stream_f32_1", "stream_f32_2")
BLOCKS = ("stream_blocks_1", "stream_blocks_2", "stream_blocks_4")
BF16 = ("small_bf16_1", "stream_bf16_1", "long_bf16_1", "long_bf16_2", "long_bf16_4")


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def few(args: tuple[Any, ...], most: int = 7) -> tuple[Any, ...]:
    """On a CPU, of a call with many rows some: each is a program of its own, and conformance runs them all on a GPU.

    Evenly spaced, so the first and the last, and some of the short ones.
    """
    rows = len(args[0])
    if rows <= most or DEVICE.type != "cpu":
        return args
    chosen = torch.linspace(0, rows - 1, most).long()
    return tuple(a[chosen] if isinstance(a, torch.Tensor) else a for a in args)


# ---- the op, as it is dispatched ------------------------------------------------------------------------------------


SAMPLES = ("no rows", "no lanes", "NaN, inf", "more wanted", "few winners", "equal in", "candidate", "real k, long")


@pytest.mark.parametrize(
    ("label", "variant"),
    [*((label, PLAIN) for label in SAMPLES), ("NaN, inf", STRIDED), ("candidate", SPOILT), ("real k, long", STRIDED)],
)
def test_topk_samples(label: str, variant: str) -> None:
    assert_kept("topk_select", few(sample("topk_select", label).args), variant)


@pytest.mark.parametrize("label", ["no rows", "no lanes", "lengths around", "NaN and", "real block", "real k"])
def test_block_samples(label: str) -> None:
    assert_kept("block_select", few(sample("block_select", label).args))


@pytest.mark.parametrize("seen", [0, 15, 16, 17, 128, 129, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lengths_around_k_and_tiles(seen: int, dtype: torch.dtype) -> None:
    """Lanes past the length are larger than all others, and never read."""
    scores = torch.randn(1, 300, generator=torch.Generator().manual_seed(seen)).to(dtype)
    scores[:, seen:] = INF
    args = scores, ints(seen), 16, None, 8
    got = cuda.topk_select(*(a.to(DEVICE) if isinstance(a, torch.Tensor) else a for a in args), None)
    assert torch.equal(got.cpu(), reference.topk_select(*args, None))


# ---- the CUDA source ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The kernels of topk.cu on the CPU: function of a kernel's name and of a call's arguments."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    path = tmp_path_factory.mktemp("topk") / "topk.so"
    # Some systems' compilers fortify by themselves, and then the fibres' jumps ended the process.
    options = ["-std=c++17", "-O1", "-D_FORTIFY_SOURCE=2", "-ffp-contract=off", "-shared", "-fPIC"]
    command = [compiler, *options, f"-I{SUPPORT}", f"-I{FOLDER}"]
    subprocess.run([*command, "-o", str(path), str(SUPPORT / "topk_emulated.cpp")], check=True)
    library = ctypes.CDLL(str(path))
    library.topk_emulated.restype = ctypes.c_bool

    def run(
        name: str,
        scores: torch.Tensor,
        visible: torch.Tensor,
        k: int,
        blocks: torch.Tensor | None,
        size: int,
        seed: int,
        row_seq: torch.Tensor | None = None,
        chosen: torch.Tensor | None = None,
    ) -> torch.Tensor:
        out = torch.full((scores.shape[0], k), -77, dtype=torch.int32)
        count = 0 if blocks is None else blocks.shape[1]
        pointers = [scores, visible, blocks, row_seq, out, chosen]
        given = [ctypes.c_void_p(0 if p is None else p.data_ptr()) for p in pointers]
        room = cuda._items(k, int(name[-1]))
        assert library.topk_emulated(name.encode(), len(scores), seed, *given, scores.shape[1], k, size, count, room)
        return out

    return run


def moved(x: torch.Tensor, by: int) -> torch.Tensor:
    """The same values at an odd address, between values that must not be read."""
    room = torch.full((x.numel() + by + 9,), 7e37, dtype=x.dtype)
    place = room[by : by + x.numel()].view(x.shape)
    place.copy_(x)
    return place


def adversarial() -> dict[str, tuple[torch.Tensor, int]]:
    draw = torch.Generator().manual_seed(0)
    special = torch.tensor([NAN, -0.0, 0.0, -INF, INF, -NAN, 1.0, 1e-40, -1e-40])
    mostly = torch.full((1, 9001), NAN)
    mostly[0, ::50] = -INF
    return {
        "random": (torch.randn(2, 9001, generator=draw), 512),
        "all equal": (torch.zeros(1, 9001), 512),
        "two values": (torch.randint(0, 2, (1, 9001), generator=draw).float(), 512),
        "ascending": (torch.arange(40000.0)[None], 512),
        "descending": (-torch.arange(40000.0)[None], 512),
        "special values": (special[torch.randint(0, 9, (2, 9001), generator=draw)], 2048),
        "mostly NaN": (mostly, 512),
    }


@pytest.mark.parametrize("case", list(adversarial()))
@pytest.mark.parametrize("name", [*F32, *BF16])
def test_source_on_adversarial_rows(emulated: Any, name: str, case: str) -> None:
    scores, k = adversarial()[case]
    scores = moved(scores.to(torch.float32 if name in F32 else torch.bfloat16), 3)
    visible = ints(*[scores.shape[1] - 13 * i for i in range(len(scores))])
    want = reference.topk_select(scores, visible, k, None, 8, None)
    assert torch.equal(emulated(name, scores, visible, k, None, 8, 1), want)


@pytest.mark.parametrize("label", ["NaN, inf", "more wanted", "few winners", "equal in", "candidate", "real k, many"])
def test_source_on_samples(emulated: Any, label: str) -> None:
    scores, visible, k, blocks, size = few(sample("topk_select", label).args)
    want = reference.topk_select(scores, visible, k, blocks, size, None)
    for name in F32 if scores.dtype == torch.float32 else BF16[:3]:
        assert torch.equal(emulated(name, scores, visible, k, blocks, size, 0), want), name


@pytest.mark.parametrize("label", ["no lanes", "lengths around", "NaN and", "real block", "real k"])
def test_source_on_block_samples(emulated: Any, label: str) -> None:
    scores, visible, size, k = few(sample("block_select", label).args)
    want = reference.block_select(scores, visible, size, k, None)
    for name in BLOCKS:
        assert torch.equal(emulated(name, scores, visible, k, None, size, 2), want), name


def rows_with_scores() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores, what is visible, blocks, sequences: NaN of either sign and both zeros; one row of no sequence."""
    scores = torch.randn(4, 72, generator=torch.Generator().manual_seed(9)).bfloat16()
    scores[0, :9] = torch.tensor([NAN, -0.0, 0.0, -NAN, -INF, INF, -0.0, NAN, 0.0])
    scores[0, 9:] = -0.0
    blocks = torch.arange(9, dtype=torch.int32).repeat(4, 1) * 2
    blocks[2, 5:] = -1
    return scores, ints(144, 139, 144, 3), blocks, ints(0, -1, 1, 2)


def with_scores(select: Any, scores: torch.Tensor, blocks: torch.Tensor | None, k: int) -> None:
    """A selection that gives the scores too: those of the lanes that the reference chooses, with their bits."""
    _, visible, _, row_seq = rows_with_scores()
    chosen = torch.full((4, k), 77.0, dtype=scores.dtype)
    got = select(scores, visible, blocks, row_seq, chosen)
    seen = torch.where(row_seq < 0, 0, visible)
    want = reference.topk_select(scores, seen, k, blocks, 8, None)
    assert torch.equal(got, want)
    lane = torch.where(want < 0, 0, want).long()
    lane = lane if blocks is None else lane // 16 * 8 + lane % 8
    bits = torch.int16 if scores.dtype == torch.bfloat16 else torch.int32
    picked = torch.where(want < 0, torch.tensor(77.0, dtype=scores.dtype), scores.gather(1, lane))
    assert torch.equal(chosen.view(bits), picked.view(bits)), "and nothing where nothing is chosen"


@pytest.mark.parametrize("k", [1, 16, 72, 90])
@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_chosen_scores_and_rows_of_no_sequence(emulated: Any, k: int, compact: bool, dtype: torch.dtype) -> None:
    scores, _, blocks, _ = rows_with_scores()
    scores, some = scores.to(dtype), blocks if compact else None
    for name in F32 if dtype == torch.float32 else BF16[:4]:
        with_scores(lambda s, v, b, r, c, name=name: emulated(name, s, v, k, b, 8, 1, r, c), scores, some, k)


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("source", [False, True])
def test_chosen_scores_as_launched(compact: bool, source: bool) -> None:
    if source and DEVICE.type == "cpu":
        pytest.skip("needs a GPU that torch can use")
    scores, _, blocks, _ = rows_with_scores()

    def select(*args: torch.Tensor | None) -> torch.Tensor:
        s, v, b, r, c = (None if t is None else t.to(DEVICE) for t in args)
        out = torch.empty(4, 16, dtype=torch.int32, device=DEVICE)
        if source:
            cuda.launch_source("bf16", s, v, 16, b, 8, out, r, c)
        else:
            cuda.select(s, v, 16, b, 8, out, r, c)
        args[-1].copy_(c.cpu())
        return out.cpu()

    with_scores(select, scores, blocks if compact else None, 16)


def test_the_recorded_run_is_of_these_sources() -> None:
    """A source that changes has to run on a GPU again."""
    run = json.loads(RUN.read_text())
    assert run["sources"] == {name: digest(name) for name in ("topk.cu", "index_pack.cu")}
    assert "H200" in run["chip"] and run["failed"] == [] and run["passed"] > 0


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(20))
def test_source_on_the_gpu(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(100):
        rows, lanes = int(rng.integers(0, 300)), int(2 ** rng.uniform(0, 16))
        k = int(rng.choice([1, 16, 512, 2048]))
        draw = torch.randn(rows, lanes, device="cuda") * float(rng.choice([0.5, 2, 1e-38]))
        scores = (draw.round() if rng.integers(2) else draw).to(torch.bfloat16 if rng.integers(2) else torch.float32)
        visible = torch.randint(0, lanes + 9, (rows,), dtype=torch.int32, device="cuda")
        want = reference.topk_select(scores, visible, k, None, 8, None)
        assert torch.equal(cuda.topk_select_source(scores, visible, k, None, 8, None), want)
        best = scores.bfloat16()
        assert torch.equal(
            cuda.block_select_source(best, visible, 8, k, None), reference.block_select(best, visible, 8, k, None)
        )


@pytest.mark.gpu
def test_rows_past_two_to_the_24_lanes() -> None:
    scores = torch.zeros(2, 2**24 + 1, device="cuda")
    scores[1, -1] = scores[1, 5] = 1
    scores[1, 7] = NAN
    got = cuda.topk_select_source(scores, torch.full((2,), 2**24 + 1, device="cuda").int(), 4, None, 8, None)
    assert got.tolist() == [[0, 1, 2, 3], [0, 1, 5, 2**24]]
