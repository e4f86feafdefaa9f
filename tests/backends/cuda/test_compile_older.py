"""Every kernel compiles for SM90 and SM100 with Triton 3.6, without new spills: `test_compile.py` says how.

`.ci/triton36.sh` installs it beside the other. A file of its own, so that two workers share what there is to compile.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cuda_resources

pytest.importorskip("triton")

INSTALLED = next(iter(cuda_resources.tritons()))


@pytest.mark.slow
@pytest.mark.parametrize("triton", [v for v in cuda_resources.OTHER if v != INSTALLED])
def test_every_kernel_compiles_and_none_spills_anew(triton: str, tmp_path: Path) -> None:
    if triton not in cuda_resources.tritons():
        pytest.skip(f"Triton {triton} is not in {cuda_resources.OTHER[triton]}: .ci/triton36.sh installs it")
    found = cuda_resources.check(triton, json.loads(cuda_resources.RECORD.read_text()), tmp_path)
    assert not found, "\n".join(found)
