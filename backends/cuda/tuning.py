"""Launches that were measured: block sizes and warps, by kernel, static shape and chip.

A launcher with such choices has a `Tunable` and asks its `choose`. The tables are `tuning_<arch>.json`, made on that
chip by `python -m deepinfer.backends.cuda.tune`; where they say nothing the default holds, and for a chip without a
table it always does. How a kernel is measured is in `<family>_tunes.py`, a list `TUNES` of `Trial`.

A table never knows row counts, and a choice must give the bits of the default: no candidate changes the order of a sum.
The script sees to that on the chip; `tests/backends/cuda/test_tuning.py` in the interpreter, for every candidate.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ...hal.errors import BackendError
from .register import ARCHS

FOLDER = Path(__file__).parent
"""Where the tables lie."""

Launch = dict[str, int]
Shape = tuple[int, ...]


@dataclass(eq=False)
class Tunable:
    """A kernel that can be launched in several ways.

    Attributes:
        name: in the tables: the op's, or of what several ops share.
        dims: names of the static sizes that a choice may depend on.
        default: the launch of a shape where no table says otherwise.
        candidates: the launches to try for a shape, the default among them.
    """

    name: str
    dims: tuple[str, ...]
    default: Callable[[Shape], Launch]
    candidates: Callable[[Shape], Sequence[Launch]]
    _chosen: dict[Any, Launch] = field(default_factory=dict, repr=False)
    _pinned: Launch | None = None

    def choose(self, device: torch.device, *shape: int) -> Launch:
        """The launch of a shape on a device: what was measured on its chip, else the default. Not to be changed."""
        found = self._pinned or self._chosen.get((device, shape))
        return found or self._look(device, shape)

    def _look(self, device: torch.device, shape: Shape) -> Launch:
        found = self.default(shape)
        if device.type == "cuda":
            from . import launch

            index = torch.cuda.current_device() if device.index is None else device.index
            found = self.on_chip(f"sm_{launch.arch(index)}", *shape)
        self._chosen[device, shape] = found
        return found

    @contextmanager
    def pinned(self, launch: Launch) -> Iterator[None]:
        """In a with block every shape is launched so: how candidates are tried. Not for several threads."""
        before, self._pinned = self._pinned, launch
        try:
            yield
        finally:
            self._pinned = before

    def key(self, shape: Shape) -> str:
        """A shape as tables spell it: 'K=5120' or 'D=512,BYTES=288'."""
        return ",".join(f"{name}={size}" for name, size in zip(self.dims, shape, strict=True))

    def measured(self, arch: str, *shape: int) -> Launch | None:
        """What the table of a chip says; None where it says nothing of the shape."""
        return table(arch).get(self.name, {}).get(self.key(shape))

    def on_chip(self, arch: str, *shape: int) -> Launch:
        """The launch of a shape on a chip.

        Raises:
            BackendError: the table is broken, or has a launch that is no candidate, such as one of an older kernel.
        """
        found = self.measured(arch, *shape)
        if found is None:
            return self.default(shape)
        if found not in self.candidates(shape):
            raise BackendError(
                f"{path(arch)} has {found} for {self.name} {self.key(shape)}, which is no candidate; "
                f"python -m deepinfer.backends.cuda.tune --only {self.name} measures anew"
            )
        return found

    def launches(self, *shape: int) -> list[tuple[tuple[str, ...], Launch]]:
        """The launches of a shape, each with the chips that it is for: what lists of compilations ask."""
        found: list[tuple[tuple[str, ...], Launch]] = []
        for arch in ARCHS:
            chosen = self.on_chip(arch, *shape)
            known = next((i for i, (_, other) in enumerate(found) if other == chosen), None)
            if known is None:
                found.append(((arch,), chosen))
            else:
                found[known] = ((*found[known][0], arch), chosen)
        return found


@dataclass(frozen=True)
class Trial:
    """How the launches of a kernel are measured and compared.

    Attributes:
        tunable: what has the choice.
        shapes: the sizes to measure, those of V4.1-Flash.
        small: sizes and a row count for the interpreter, with a tail in every dim that is cut into blocks.
        inputs: arguments of `run` for a shape, a row count and a device: random, the same each time.
        run: launches, and returns what was written.
        rows: row counts to measure; a choice is judged by all of them.
    """

    tunable: Tunable
    shapes: Sequence[Shape]
    small: tuple[Shape, int]
    inputs: Callable[[Shape, int, torch.device], Any]
    run: Callable[[Any], Sequence[torch.Tensor]]
    rows: tuple[int, ...] = (1, 64, 4096)


def path(arch: str) -> Path:
    """The table of a chip."""
    return FOLDER / f"tuning_{arch}.json"


@functools.cache
def table(arch: str) -> dict[str, dict[str, Launch]]:
    """Launches of a chip by name and shape; empty where nothing was measured.

    Raises:
        BackendError: the file cannot be read.
    """
    try:
        found = json.loads(path(arch).read_text(encoding="utf-8"))["launches"]
        return {name: dict(shapes) for name, shapes in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise BackendError(f"{path(arch)} cannot be read: {error!r}") from error


def blocks(width: int, name: str = "BLOCK") -> list[Launch]:
    """Candidates of a kernel that takes rows of `width` elements whole: rows of a tile, and warps."""
    sizes = sorted({max(1, elements // width) for elements in (512, 1024, 2048, 4096, 8192)})
    return [{name: block, "num_warps": warps} for block in sizes for warps in (1, 2, 4, 8)]


def label(text: str, archs: tuple[str, ...]) -> str:
    """Label of a compilation that differs by chip: 'text, sm_90'; as it is where all chips share it."""
    return text if archs == ARCHS else ", ".join([*([text] if text else []), *archs])
