"""How processor time grows with the size of an input, told apart from a busy machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

TRIES = 6
FLOOR = 0.02
"""Seconds: below it a time is mostly that of the clock and of what starts the call."""


def seconds(run: Callable[[], Any]) -> float:
    """Processor seconds of one call, without collections of garbage: their length is that of the whole process."""
    gc.disable()
    try:
        begin = time.process_time()
        run()
        return time.process_time() - begin
    finally:
        gc.enable()


def growth(small: Callable[[], Any], large: Callable[[], Any], enough: float) -> float:
    """The least time of `large` over the least of `small`, each of several tries that end once it is under `enough`.

    Other load only ever adds to a time, so the least of several is nearest to what the code takes.
    """
    least, most = float("inf"), float("inf")
    for _ in range(TRIES):
        least, most = min(least, seconds(small)), min(most, seconds(large))
        if most < enough * max(least, FLOOR):
            break
    return most / max(least, FLOOR)
