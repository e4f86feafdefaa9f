"""Calls with numbers that are none: NaN and infinities in single elements of what an op reads.

Other elements and rows stay, so that it shows whether a kernel passes a NaN on, and to the right places only. What the
results must be is for the op's class to say, as for any call: oracles compute with NaN as the spec does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..ops.required import TABLES, ids_in, spoilt_args
from ..ops.rows import ROWS, Rows, named, restride
from ..ops.spec import E4M3, OpSpec

NUMBERS = (float("nan"), float("inf"), float("-inf"))
CODE = 0x7F
"""NaN in E4M3."""


def spoil(spec: OpSpec, args: Sequence[Any]) -> tuple[Any, ...]:
    """The call with one element of some rows replaced: NaN, infinity, minus infinity, in turn; all other rows stay."""
    given = named(spec, args)
    made = dict(given)
    for number, name in enumerate(spoilt_args(spec)):
        if isinstance(given[name], Tensor) and given[name].numel():
            made[name] = restride(given[name])
            for turn, row in enumerate(_places(spec, given, name, number)):
                _replace(made[name][row], turn)
    return tuple(made[a.name] for a in spec.args)


def _places(spec: OpSpec, given: dict[str, Any], name: str, number: int) -> list[int]:
    """Up to three rows that count, other ones for each argument, so that its effect shows by itself."""
    count = int(given[name].shape[0])
    live = list(range(count))
    rows = ROWS.get(spec.name)
    if name in TABLES.get(spec.name, ((), ""))[0]:
        ids = ids_in(spec, given[TABLES[spec.name][1]]).flatten().unique().tolist()
        live = [i for i in ids if 0 <= i < count]
    elif "row_seq" in given and given["row_seq"].shape[0] == count:
        live = torch.nonzero(given["row_seq"] >= 0).flatten().tolist()
    elif isinstance(rows, Rows) and rows.usable is not None:
        live = list(range(min(count, rows.usable(given))))
    step = max(1, len(live) // 4)
    return [live[i] for i in range(number % step, len(live), step)][:3]


def _replace(row: Tensor, turn: int) -> None:
    """One element of a row, another for each turn."""
    row = row.view(torch.uint8) if row.dtype == E4M3 else row
    place = np.unravel_index((turn * 7 + 1) % max(1, row.numel()), tuple(row.shape)) if row.ndim else ()
    row[place] = CODE if row.dtype == torch.uint8 else NUMBERS[turn % len(NUMBERS)]
