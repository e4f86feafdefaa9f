"""The mutant backend, announced by an entry point as a plug-in would be; nothing of it stays behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import deepinfer.ops  # noqa: F401 - defines the specs
import mutant_backend
from deepinfer.conformance import run, saved
from deepinfer.hal import catalog
from deepinfer.hal.registry import REGISTRY


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPINFER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(saved, "SAVED", saved.Saved())


@pytest.fixture
def mutant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Announces the backend; set MUTANT through what this gives."""
    mutant_backend.install(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(run, "CATALOG", catalog.Catalog())
    monkeypatch.delenv("MUTANT", raising=False)
    catalog.CATALOG.load("reference")
    active = REGISTRY.active, REGISTRY.arch
    yield monkeypatch
    for kernel in REGISTRY.kernels():
        if kernel.backend == mutant_backend.NAME:
            REGISTRY.remove(kernel)
    REGISTRY.activate(*active)
