"""What the tests of the Ascend simulator share: reasons to skip, and kernels built once for the session."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from deepinfer.backends.ascend import lower as lowering
from deepinfer.backends.ascend.sim import Kernel, build

SUPPORT = Path(__file__).parent
SOURCES = SUPPORT.parent / "backends" / "ascend" / "kernels"

needs_compiler = pytest.mark.skipif(bool(build.missing()), reason=build.missing() or "")
needs_tilelang = pytest.mark.skipif(
    bool(build.missing() or lowering.missing()), reason=build.missing() or lowering.missing()
)


@cache
def text(name: str, what: str = "") -> str:
    """AscendC text of a kernel of ascend_kernels.py."""
    return lowering.lower(SUPPORT / "ascend_kernels.py", name, {"what": what} if what else {})


@cache
def written(name: str, blocks: int = 1, sanitize: str = "") -> Kernel:
    """A kernel of tests/backends/ascend/kernels."""
    return Kernel((SOURCES / f"{name}.cpp").read_text(encoding="utf-8"), blocks, sanitize)
