"""Suite `model`: a whole model on a target against the reference on the CPU, at three levels.

See `conformance/levels.py` and `conformance/greedy.py`. A target without kernels for an op falls back, and the notes of
a case list those ops. The preset `tiny` has every feature at the smallest sizes; `kernel` has the released model's
head, index and record widths, which is what kernels support.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ...ops.spec import SPECS, OpSpec
from ..case import Case, Tier
from ..greedy import judge_greedy
from ..levels import judge_layers, judge_ops, judge_replayed
from ..registry import suite

PRESETS: dict[Tier, tuple[tuple[str, int, int], ...]] = {
    "quick": (("tiny", 27, 48),),
    "full": (("tiny", 141, 128), ("kernel", 24, 48)),
    "deep": (("tiny", 141, 1024), ("kernel", 150, 256)),
}
"""Preset, tokens of the long prompt, and sequences that run free. Past 128 tokens a second page begins."""


@suite("model", about="a whole model: ops and layers on recorded inputs, replayed end to end, greedy tokens")
def cases(tier: Tier, ops: Sequence[OpSpec]) -> Iterator[Case]:
    """Four cases per preset; with some ops only, the first alone, over those."""
    for preset, long, count in PRESETS[tier]:
        yield Case("model", preset, "ops on recorded inputs", partial(judge_ops, preset, long, tuple(ops)))
        if {spec.name for spec in ops} >= set(SPECS):
            yield Case("model", preset, "layers on recorded inputs", partial(judge_layers, preset, long))
            yield Case("model", preset, "decisions replayed", partial(judge_replayed, preset, long))
            yield Case("model", preset, "greedy tokens", partial(judge_greedy, preset, count))
