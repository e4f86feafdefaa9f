"""Reports of what is installed and of what was run: matrix, page, JSON lines, and the table of the README."""

from __future__ import annotations

import datetime
import json
import warnings
from collections.abc import Iterable
from pathlib import Path

from .. import __version__
from ..hal.catalog import CATALOG, PluginWarning
from ..hal.errors import BackendError
from ..hal.registry import REGISTRY
from ..ops.spec import SPECS
from .evidence import gather
from .matrix import Matrix, matrix
from .page import page

IN_TREE = ("reference", "cuda", "ascend")


def of_installed(paths: Iterable[Path], backends: Iterable[str] | None = None) -> Matrix:
    """The matrix of the backends that are installed, with the results and recordings that lie in some places.

    A backend whose kernels cannot be registered (its compiler is not installed, it is refused) is left out with a
    warning, since nothing is known of its kernels here.

    Args:
        backends: names; by default this repository's and those of plug-ins.

    Raises:
        EvidenceError, RecordingError: see `evidence.gather`.
        InvalidArgumentError: see `matrix`.
    """
    runs = gather(paths)
    kernels, checked = {}, {}
    for name in dict.fromkeys((*IN_TREE, *CATALOG.entries())) if backends is None else backends:
        try:
            backend = CATALOG.register(name)
        except BackendError as error:
            warnings.warn(f"not in the report: {error}", PluginWarning, 2)
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
