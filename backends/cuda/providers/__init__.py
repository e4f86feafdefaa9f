"""Kernels of other libraries behind the contract's ops, where such a library is installed. docs/cuda.md says which ops
of which library can stand for one of ours, and which cannot.

A provider registers like any kernel, below all of ours in priority, as `fast` (nobody has shown that its rows keep
their bits in any batch) and as a wrapper (`source="torch"`), which does not count as a kernel of this backend. So it
runs where somebody pins it and gives batch invariance up: `DEEPINFER_PIN=rms_norm=cuda:flashinfer` and
`DEEPINFER_BATCH_INVARIANT=0`. The library is imported by the first call.
"""

from __future__ import annotations

from importlib.util import find_spec

PROVIDERS = ("flashinfer",)
"""Modules here, each named as the package it wraps."""


def installed() -> tuple[str, ...]:
    """The modules whose packages are there; none is imported."""
    return tuple(f".providers.{name}" for name in PROVIDERS if find_spec(name) is not None)
