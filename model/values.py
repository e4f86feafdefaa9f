"""Checks of stored values: a weight file that was allocated but never filled must not be served.

Bytes are looked at as integers, in blocks that stay in the cache, so that a check costs little beside the read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_BLOCK = 1 << 18  # bytes

# dtype code -> (integer type, mask that drops the sign, first masked value that is not finite, what such a value is)
_NOT_FINITE: dict[str, tuple[Any, int, int, str]] = {
    "F8_E8M0": (np.uint8, 0xFF, 0xFF, "scale byte 255 (NaN)"),
    "F8_E4M3": (np.uint8, 0x7F, 0x7F, "NaN"),
    "BF16": (np.uint16, 0x7FFF, 0x7F80, "NaN or infinity"),
    "F32": (np.uint32, 0x7FFFFFFF, 0x7F800000, "NaN or infinity"),
}


def value_fault(dtype: str, data: npt.NDArray[np.uint8], *, whole: bool = True) -> str | None:
    """What is wrong with the values of a tensor, or None.

    Every float must be finite. E8M0 scales must not all be 0 (2^-127 everywhere): that is memory nobody wrote.

    Args:
        dtype: safetensors dtype code; formats without non-finite values are always right.
        data: uint8 [nbytes], the stored bytes, contiguous.
        whole: `data` is a whole tensor; the rule on scales that are all 0 applies only then.
    """
    rule = _NOT_FINITE.get(dtype)
    if rule is None or data.size == 0:
        return None
    kind, mask, limit, what = rule
    values = data.view(kind)
    step = _BLOCK // values.itemsize
    for start in range(0, values.size, step):
        block = values[start : start + step]
        masked = block if mask == 0xFF else block & kind(mask)
        if masked.max() >= limit:
            return f"element {start + int(np.argmax(masked >= limit))} (flat index) is {what}"
    if dtype == "F8_E8M0" and whole and not values.any():
        return "every scale byte is 0: the scales were never written"
    return None
