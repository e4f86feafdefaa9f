"""Samples on which the mutants of ops' kernels are tried besides the op's own: what those do not show.

They are legal calls like any other. They are not among the op's own where no backend is likely to be wrong there and
right everywhere else, since those cost time on every backend.
"""

from __future__ import annotations

from collections.abc import Callable

import ascend_mutant_samples_a
import ascend_mutant_samples_b
from deepinfer.ops.spec import Sample

EXTRA: dict[str, Callable[[], list[Sample]]] = {**ascend_mutant_samples_a.EXTRA, **ascend_mutant_samples_b.EXTRA}
