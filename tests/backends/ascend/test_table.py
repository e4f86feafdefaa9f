"""The page of ops: what kernels decline, found by asking them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ascend_ops import ops
from deepinfer.backends.ascend import table
from deepinfer.hal.registry import REGISTRY, Kernel, Signature
from deepinfer.ops.spec import SPECS

OPS = ops()


def own(op: str) -> Kernel:
    return next(kernel for kernel in REGISTRY.kernels(op) if kernel.backend == "ascend")


def test_every_reason_is_found() -> None:
    found = table.limits(SPECS["rope"], own("rope"))
    assert sorted(found) == [
        "d in multiples of 16 and F of 8, 0 < 2F <= d",
        "h * d up to 40960 and F up to 256",
    ]
    assert "blocks of a power of two of entries, 4 to 8192" in table.limits(SPECS["topk_select"], own("topk_select"))


def test_what_declines_nothing_takes_all() -> None:
    assert table.limits(SPECS["sample_draw"], own("sample_draw")) == []


@pytest.mark.parametrize("what", ["dims", "scalars"])
def test_a_reason_is_found_by_one_size_or_number(what: str) -> None:
    """Too large, or one more than what is taken: each has to be asked for by itself."""

    def picky(signature: Signature) -> str | None:
        values = getattr(signature, what)
        name = min(n for n, v in values.items() if type(v) is int)
        return f"{name} below 8000000, got more" if values[name] > 8_000_000 else None

    kernel = replace(own("index_score_blocks"), supports=picky)
    (found,) = table.limits(SPECS["index_score_blocks"], kernel)
    assert found.endswith(" below 8000000")
