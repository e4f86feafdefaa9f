"""Tables and vectors of `docs/numerics.md`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "numerics.md"
F32 = np.float32


@cache
def blocks() -> dict[str, list[list[str]]]:
    """Fenced blocks of the document that start with `table NAME`: their lines, split at blanks, without comments."""
    found = re.findall(r"^```table (\S+)\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.S | re.M)
    return {name: [row.split() for row in body.splitlines() if not row.startswith("#")] for name, body in found}


def number(text: str) -> np.float32:
    """fp32 from its hexadecimal spelling, inf or nan; must be exact."""
    value = float(text) if text.lstrip("+-") in ("inf", "nan") else float.fromhex(text)
    assert np.isnan(value) or float(F32(value)) == value, text
    return F32(value)
