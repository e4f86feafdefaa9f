"""Pages past 2^31 elements: right with 64-bit addresses, and found where id and stride are multiplied in 32 bits."""

from __future__ import annotations

import pytest
import torch

from ascend import needs_compiler, written
from deepinfer.backends.ascend.sim import KernelFault, Schedule, schedules

pytestmark = needs_compiler
STRIDE, WIDTH, PAGES = 73_856, 64, 4
FIRST = 29_076  # the last page that begins below 2^31 elements


def run(
    pages: torch.Tensor, first: int, table: list[int], narrow: int, schedule: Schedule | None = None
) -> torch.Tensor:
    """The rows of `table`, whose ids count from page `first`, where `pages` begins."""
    out = torch.full((len(table), WIDTH), float("nan"), dtype=torch.float16)
    ids = torch.tensor(table, dtype=torch.int32) + first
    given = {"pages": pages, "table": ids, "out": out, "count": len(table), "stride": STRIDE, "width": WIDTH}
    written("paged")(schedule or Schedule(), **given, origin=first * STRIDE, narrow=narrow)
    return out


@pytest.fixture(scope="module")
def pages() -> torch.Tensor:
    return torch.randn(PAGES * STRIDE, generator=torch.Generator().manual_seed(1)).half()


def test_pages_past_two_to_the_31_give_the_bits_of_low_pages(pages: torch.Tensor) -> None:
    assert FIRST * STRIDE < 1 << 31 < (FIRST + 1) * STRIDE
    rows = pages.view(PAGES, STRIDE)[:, :WIDTH]
    for schedule in schedules(1):
        for first in (0, FIRST):
            assert torch.equal(run(pages, first, [1, 0, 3], 0, schedule), rows[[1, 0, 3]]), (schedule, first)


def test_a_product_in_32_bits_is_found(pages: torch.Tensor) -> None:
    for first, table in ((0, [1, 3]), (FIRST, [0])):
        assert torch.equal(run(pages, first, table, 1), run(pages, first, table, 0)), "low pages do not show it"
    with pytest.raises(KernelFault, match=r"asc_copy_gm2ub_align, source: .* outside every argument") as fault:
        run(pages, FIRST, [1], 1)
    assert "kernel paged_kernel, block 0 AIV0, pipe MTE2" in str(fault.value)
