"""Which calls the suites take that compare a backend with itself, and which faults it has to refuse.

Part of the required set (`ops/required.py`): the suites ask here, and cannot ask for less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from torch import Tensor

from .rows import Rows
from .spec import OpSpec, Sample

Tier = Literal["quick", "full", "deep"]

MODEST_ROWS = 100
"""Rows of the samples that suite `invariance` takes in `quick`, at most."""
FORMS = 6
"""Forms of call that it takes: with and without optional arguments, other widths of a window or a list."""
DRAWS: dict[Tier, int] = {"quick": 1, "full": 1, "deep": 3}
"""Draws of every sample that it takes."""

FAULTS = ("dtype", "rank", "dims", "layout", "device", "missing", "scalar", "handle", "out", "alias")
"""Kinds of bad calls that follow from a spec, for every op."""
MISUSES: dict[str, tuple[str, ...]] = {
    "adjust_logits": ("half of a group",),
    "compressed_store": ("another page size", "another record"),
    "grouped_linear": ("more outputs than rows",),
    "index_key_store": ("another page size",),
    "index_score": ("scores wider than the block table", "another page size"),
    "index_score_blocks": ("another page size",),
    "sparse_attention": (
        "pages without indices",
        "a window longer than the ring",
        "another page size",
        "another record",
        "a ratio that pages do not have",
    ),
    "swiglu_quant": ("a limit of zero",),
    "topk_select": ("scores not as wide as the blocks",),
}
"""Bad calls that specs forbid in words alone."""


SAMPLED: dict[str, tuple[str, ...]] = {
    "sample_draw": (
        "no filter, over positions",
        "no filter, over seeds",
        "temperature 0.3, top-k 20, top-p 0.95",
        "temperature 1.5, top-k 12, top-p 0.9, min-p 0.05",
    ),
    "verify_drafts": ("drafts of another distribution", "drafts that were certain"),
}
"""Cases of the suite `sampling`: distributions that are drawn from."""


def repeated(tier: Tier, samples: Iterable[Sample]) -> Iterator[Sample]:
    """Samples of suite `determinism`: all; `quick` takes the first at real widths and the two largest before it."""
    small: list[Sample] = []
    for sample in samples:
        if tier != "quick":
            yield sample
        elif sample.label.startswith("real"):
            yield sample
            break
        else:
            small.append(sample)
    yield from sorted(small, key=lambda s: -_size(s))[:2]


def in_rows(spec: OpSpec, rows: Rows, tier: Tier, samples: Iterable[Sample], draw: int = 0) -> Iterator[Sample]:
    """Samples of suite `invariance`: those with two rows and more; `quick` takes a modest one per form of call, and
    one at real widths.

    Args:
        draw: which of `DRAWS` the samples are; it is part of their labels.
    """
    modest: dict[Any, Sample] = {}
    for sample in samples:
        count, form = rows.count(spec, sample.args), _form(sample)
        if count < 2:
            continue
        if tier != "quick":
            yield Sample(f"{sample.label}, draw {draw}", sample.args) if draw else sample
        elif sample.label.startswith("real"):
            yield sample
            break
        elif count <= MODEST_ROWS and (form not in modest or count > rows.count(spec, modest[form].args)):
            modest[form] = sample
    yield from sorted(modest.values(), key=lambda s: -rows.count(spec, s.args))[:FORMS]


def _size(sample: Sample) -> int:
    return sum(value.numel() for value in sample.args if isinstance(value, Tensor))


def _form(sample: Sample) -> tuple[Any, ...]:
    """Which arguments are there, and the scalars that select a path through a kernel."""
    return tuple(v if isinstance(v, int | str) else v is None for v in sample.args)
