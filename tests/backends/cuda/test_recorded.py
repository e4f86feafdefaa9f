"""Exact ops of this backend, here, against what a GPU gave: by digest."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton")

from cuda_calls import TARGET, on_cuda
from deepinfer.conformance.recording import check
from deepinfer.conformance.recording_format import FACTS

FOLDERS = sorted(path.parent for path in (Path(__file__).parents[2] / "recordings").glob(f"*/{FACTS}"))
OPS = (
    "copy_slots",
    "index_query_pack",
    "load_records",
    "mask_rows",
    "moe_pack",
    "quant_fp8",
    "step_tokens",
    "window_pack",
)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_it_gives_the_recorded_bits(folder: Path) -> None:
    with on_cuda():
        found = check(folder, OPS, TARGET)
    assert not found.findings, "\n".join(map(str, found.findings))
    assert found.equal > 50 and not found.within and not found.passed_over
