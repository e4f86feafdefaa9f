"""The repository's folder and its files, for the tests of the repository itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def files() -> list[Path]:
    """Files that are committed or would be: new ones count as soon as they are written."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = {ROOT / name for name in listed.split("\0") if name}
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())
