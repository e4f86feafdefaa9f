"""Suite `ops`: every required call of every op lies in the op's numerics class, in every calling form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ...ops.required import SHAPES_LABEL, calls
from ...ops.shapes import SHAPES, load_shapes
from ...ops.spec import OpSpec
from ..calls import samples
from ..case import Case, Outcome, Target, Tier
from ..judge import judge
from ..registry import suite
from ..shapes import judge_shapes


@suite("ops", about="samples and generated shapes against the oracle, out buffers, guards, strides, aliases")
def cases(tier: Tier, ops: Sequence[OpSpec]) -> Iterator[Case]:
    """A case per required call (`ops/required.py`), and one of generated shapes."""
    load_shapes()
    for spec in ops:
        for call in calls(spec, tier, samples(spec)):
            run = partial(_run, spec, call.sample.args, call.variant)
            yield Case("ops", spec.name, call.label, run)
        if spec.name in SHAPES:
            yield Case("ops", spec.name, SHAPES_LABEL, partial(judge_shapes, spec, SHAPES[spec.name], tier))


def _run(spec: OpSpec, args: tuple[Any, ...], variant: str, target: Target) -> Outcome:
    return judge(spec, args, target, variant)
