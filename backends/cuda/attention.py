"""Sparse attention in Triton. The kernels are in `attention_kernels.py`; `attention_sm90.py` has one in CUDA C++.

`rows`: a program takes a row and up to 64 of its heads from the first tile of keys to the last, so a row's bits depend
on nothing beside it. `fast`, used where the user gives that up: with few rows their tiles are cut into as many parts as
keep the GPU busy, which a second kernel adds up; with more it is the best of the other kernels.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import gcd
from typing import Any

import torch
from torch import Tensor

from ...hal.registry import REGISTRY, Kernel, Signature
from ...ops.attention import KEY_TILE
from ...ops.layouts import FP4_16, compressed_record, entries_per_page
from ...ops.spec import SPECS
from . import attention_kernels as device
from . import attention_sm90  # noqa: F401  (registers)
from .register import kernel
from .strides import WIDEST, alignment, power_of_two

LOG2E = 1.4426950408889634
HEADS = 64
"""Heads of a program, padded: what SM90's matrix unit takes at once. With fewer the compiler takes an older
instruction, and what it makes of 512 channels spills without end."""
MOST_PARTS = 16
"""Programs that a row's tiles are cut into at most."""
FEW_ITEMS = 8
"""Rows times blocks of heads up to which parts are faster than the kernel in CUDA C++, where that takes the call; seen
with 2 and, not any more, with 32."""
ROWS_OPTIONS = {"num_warps": 8, "num_stages": 1}
JOIN_OPTIONS = {"num_warps": 4, "num_stages": 1}


def widths(signature: Signature) -> str | None:
    """Whole groups of channels, up to 512."""
    d = signature.dims["d"]
    return None if d % 32 == 0 and 0 < d <= 512 else f"d must be a multiple of 32 up to 512, got {d}"


@functools.cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a GPU, those of an H200 where there is none."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 132


def constants_of(d: int, window: int, selected: int, ratio: int, record: str) -> dict[str, Any]:
    """The constants of a launch that its shapes give."""
    tiles = -(-window // KEY_TILE)
    return {
        "D": d,
        "WIDTH": power_of_two(d, least=64),
        "HEADS": HEADS,
        "WINDOW": window,
        "WINDOW_SPAN": power_of_two(tiles * KEY_TILE),
        "SELECTED": selected,
        "SPAN": power_of_two(-(-selected // KEY_TILE) * KEY_TILE) if selected else 1,
        "ENTRIES": entries_per_page(ratio) if selected else 1,
        "RECORD": compressed_record(record).record_bytes(d),
        "FP4": compressed_record(record) is FP4_16,
    }


@dataclass(frozen=True)
class _Shape:
    """What the scratch memory of a call follows from."""

    rows: int
    blocks: int
    tiles: int
    parts: int
    constants: dict[str, Any]

    @property
    def lists(self) -> int:
        """Bytes of the addresses of keys."""
        return self.rows * self.blocks * self.parts * self.tiles * KEY_TILE * 8

    @property
    def tops(self) -> int:
        """Bytes of the parts' maxima and sums."""
        return self.rows * self.blocks * self.parts * HEADS * 8 if self.parts > 1 else 0

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory: addresses, maxima and sums, values."""
        return self.lists + self.tops * (1 + int(self.constants["WIDTH"]) // 2)


def _shape(args: tuple[Any, ...], most_parts: int = 1) -> _Shape:
    """The shape of a call, from its arguments in spec order; in parts, up to so many, as there are processors for."""
    q, indices, window, ratio, record = args[0], args[12], args[13], args[14], args[16]
    rows, heads, d = q.shape
    selected = 0 if indices is None else indices.shape[1]
    constants = constants_of(d, window, selected, ratio, record)
    blocks = -(-heads // HEADS)
    tiles = -(-window // KEY_TILE) + -(-selected // KEY_TILE)
    parts = min(most_parts, tiles, processors(q.device) // max(rows * blocks, 1))
    return _Shape(rows, blocks, tiles, max(parts, 1), constants)


def whole(signature: Signature) -> Kernel:
    """The kernel that `fast` takes where it does not cut rows: in CUDA C++ if that runs the call, else `rows`."""
    ours = {k.name: k for k in REGISTRY.kernels("sparse_attention") if k.backend == "cuda"}
    source = ours["sm90"]
    runs = signature.arch in source.archs and signature.device_type in source.device_types
    return source if runs and source.supports is not None and source.supports(signature) is None else ours["rows"]


def _fast_plan(args: tuple[Any, ...]) -> tuple[_Shape, Kernel]:
    """The parts of a call of `fast`, and the kernel that runs it where that is one."""
    kernel = whole(SPECS["sparse_attention"].signature(*args))
    shape = _shape(args, MOST_PARTS)
    if kernel.name != "rows" and shape.rows * shape.blocks > FEW_ITEMS:
        shape = _shape(args)
    return shape, kernel


def row_scratch(*args: Any) -> int:
    """Scratch of a program per row."""
    return _shape(args).scratch


def fast_scratch(*args: Any) -> int:
    """Scratch of the parts of rows, or of the kernel that is taken instead."""
    shape, kernel = _fast_plan(args)
    if shape.parts > 1:
        return shape.scratch
    return 0 if kernel.workspace is None else kernel.workspace(*args)


@kernel("sparse_attention", version=1, name="rows", supports=widths, workspace=row_scratch)
def sparse_attention(
    q: Tensor,
    fresh: Tensor,
    ring: Tensor,
    sink: Tensor,
    first_key: Tensor,
    last_key: Tensor,
    row_seq: Tensor,
    seq_start: Tensor,
    row_begin: Tensor,
    state_slot: Tensor,
    pages: Tensor | None,
    block_table: Tensor | None,
    indices: Tensor | None,
    window: int,
    ratio: int,
    scale: float,
    record: str,
    out: Tensor | None,
    workspace: Tensor | None = None,
) -> Tensor:
    args = (q, fresh, ring, sink, first_key, last_key, row_seq, seq_start, row_begin, state_slot, pages, block_table,
            indices, window, ratio, scale, record)  # fmt: skip
    return _run(args, _shape(args), out, workspace)


@kernel(
    "sparse_attention", version=1, name="fast", priority=20, supports=widths, workspace=fast_scratch, fast=True
)  # fmt: skip
def fast_attention(
    q: Tensor,
    fresh: Tensor,
    ring: Tensor,
    sink: Tensor,
    first_key: Tensor,
    last_key: Tensor,
    row_seq: Tensor,
    seq_start: Tensor,
    row_begin: Tensor,
    state_slot: Tensor,
    pages: Tensor | None,
    block_table: Tensor | None,
    indices: Tensor | None,
    window: int,
    ratio: int,
    scale: float,
    record: str,
    out: Tensor | None,
    workspace: Tensor | None = None,
) -> Tensor:
    args = (q, fresh, ring, sink, first_key, last_key, row_seq, seq_start, row_begin, state_slot, pages, block_table,
            indices, window, ratio, scale, record)  # fmt: skip
    shape, kernel = _fast_plan(args)
    if shape.parts > 1:
        return _run(args, shape, out, workspace)
    scratch = () if kernel.workspace is None else (workspace,)
    done: Tensor = kernel.fn(*args, out, *scratch)
    return done


def _run(args: tuple[Any, ...], shape: _Shape, out: Tensor | None, workspace: Tensor | None) -> Tensor:
    """Launch over whole rows, or over their parts and then what adds these up."""
    q, fresh, ring, sink, *of_rows, pages, block_table, indices, _, _, scale, _ = args
    if out is None:
        out = torch.empty_like(q)
    if not shape.rows:
        return out
    if workspace is None:
        workspace = torch.empty(shape.scratch, dtype=torch.uint8, device=q.device)
    absent = args[9]  # for a tensor that is not there and not read
    heads = q.shape[1]
    paged = tuple(absent if tensor is None else tensor for tensor in (pages, block_table, indices))
    numbers = (
        heads, ring.shape[1], 0 if block_table is None else block_table.shape[1], scale * LOG2E,
        fresh.stride(0), ring.stride(0), ring.stride(1), 0 if pages is None else pages.stride(0),
    )  # fmt: skip
    constants = {
        **shape.constants,
        "ALIGN": min(_align(fresh, 1), _align(ring, 2)),
        "PAGE_ALIGN": 1 if pages is None else gcd(_align(pages, 1), shape.constants["RECORD"]),
    }
    places = workspace[: shape.lists].view(torch.int64)
    if shape.parts == 1:
        device.sparse_attention_rows[(shape.rows, shape.blocks)](
            q, fresh, ring, sink, *of_rows, *paged, places, out, *numbers, **constants, **ROWS_OPTIONS
        )
        return out
    border = shape.lists + shape.tops
    tops = workspace[shape.lists : border].view(torch.float32)
    sums = workspace[border : shape.scratch].view(torch.float32)
    device.sparse_attention_parts[(shape.rows, shape.blocks, shape.parts)](
        q, fresh, ring, *of_rows, *paged, places, tops, sums, *numbers, **constants, **ROWS_OPTIONS
    )
    sizes = {name: constants[name] for name in ("D", "WIDTH", "HEADS")}
    device.join_parts[(shape.rows, heads)](
        sink, tops, sums, out, shape.parts, **sizes, MOST=MOST_PARTS, **JOIN_OPTIONS
    )  # fmt: skip
    return out


def _align(x: Tensor, dims: int) -> int:
    """Bytes that a tensor's beginning and the strides of its leading dims divide by."""
    return alignment(x, dims) if x.data_ptr() % WIDEST == 0 else 1
