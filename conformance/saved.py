"""Sizes that failed: kept from run to run, so that they are tried first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..model.presets.cache import cache_directory

FILE = "failing_shapes.jsonl"
MOST = 200
"""Entries read per op; the newest."""


def default_folder() -> Path:
    """Where failing sizes are kept whatever `--out` is: the user's cache folder."""
    return cache_directory() / "conformance"


@dataclass(frozen=True)
class Failing:
    """Sizes of a call that failed once, and the seed of its values."""

    op: str
    sizes: Mapping[str, Any]
    seed: int


class Saved:
    """The failing sizes of some folders. A folder that cannot be read or written is left out."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self.keep_in(*folders)

    def keep_in(self, *folders: Path) -> None:
        """Read and write these folders from now on."""
        self._files = [folder / FILE for folder in dict.fromkeys(folders)]

    def of(self, op: str) -> list[Failing]:
        """Entries of an op, oldest first, each once."""
        found: dict[str, Failing] = {}
        for file in self._files:
            try:
                lines = file.read_text(encoding="utf-8").splitlines()
            except OSError:
                continue
            for line in lines:
                try:
                    entry = json.loads(line)
                    if entry["op"] == op:
                        found[json.dumps(entry, sort_keys=True)] = Failing(op, dict(entry["sizes"]), int(entry["seed"]))
                except (ValueError, KeyError, TypeError):
                    continue  # a line cut off by a full disk, or of another version
        return list(found.values())[-MOST:]

    def add(self, failing: Failing) -> None:
        """Append an entry that is not there yet."""
        entry = {"op": failing.op, "sizes": dict(failing.sizes), "seed": failing.seed}
        for file in self._files:
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                if any(json.dumps(entry) == line for line in _lines(file)):
                    continue
                with file.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(entry) + "\n")
            except OSError:
                continue


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []


SAVED = Saved()
"""What this process replays and adds to; a run sets it."""


def use(*folders: Path) -> None:
    """Keep failing sizes in these folders from now on."""
    SAVED.keep_in(*folders)
