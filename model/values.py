"""Checks of stored values: a weight file that was allocated but never filled must not be served."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# dtype code -> (integer type, mask that drops the sign, first masked value that is not finite, what such a value is)
_NOT_FINITE: dict[str, tuple[Any, int, int, str]] = {
    "F8_E8M0": (np.uint8, 0xFF, 0xFF, "scale byte 255 (NaN)"),
    "F8_E4M3": (np.uint8, 0x7F, 0x7F, "NaN"),
    "BF16": (np.uint16, 0x7FFF, 0x7F80, "NaN or infinity"),
    "F32": (np.uint32, 0x7FFFFFFF, 0x7F800000, "NaN or infinity"),
}


def value_fault(dtype: str, data: npt.NDArray[np.uint8], first: int = 0) -> str | None:
    """Names the first value that is not finite, or None.

    Looks at the bytes as integers; call it with blocks that fit the cache and it costs little beside their read.

    Args:
        dtype: safetensors dtype code; formats without non-finite values are always right.
        data: uint8, whole elements, contiguous.
        first: flat index of the first element, for the message.
    """
    rule = _NOT_FINITE.get(dtype)
    if rule is None or data.size == 0:
        return None
    kind, mask, limit, what = rule
    values = data.view(kind)
    masked = values if mask == 0xFF else values & kind(mask)
    if masked.max() < limit:
        return None
    return f"element {first + int(np.argmax(masked >= limit))} (flat index) is {what}"
