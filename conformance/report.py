"""Reports of what is installed and of what was run: matrix, page, JSON lines, and the table of the README."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from pathlib import Path

from .. import __version__
from ..hal.catalog import CATALOG
from ..hal.registry import REGISTRY
from ..ops.spec import SPECS
from .evidence import gather
from .matrix import Matrix, matrix
from .page import page

IN_TREE = ("reference", "cuda", "ascend")


def of_installed(paths: Iterable[Path]) -> Matrix:
    """The matrix of the backends that are installed, with the results and recordings that lie in some places.

    Raises:
        EvidenceError, RecordingError: see `evidence.gather`.
    """
    runs = gather(paths)
    kernels, checked = {}, {}
    for name in IN_TREE:
        backend = CATALOG.get(name)
        try:
            backend.load()
        except ImportError:  # its compiler is not installed: nothing is known of its kernels here
            continue
        kernels[name] = [op for op in SPECS if any(k.backend == name and k.own for k in REGISTRY.kernels(op))]
        checked[name] = backend.checked
    return matrix(runs, kernels, checked)


def write_html(found: Matrix, file: Path) -> None:
    """Write the page."""
    file.parent.mkdir(parents=True, exist_ok=True)
    made = f"deepinfer {__version__}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    file.write_text(page(found, made), encoding="utf-8")


def write_lines(found: Matrix, file: Path) -> None:
    """Write the JSON lines."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in found.records()), encoding="utf-8")
