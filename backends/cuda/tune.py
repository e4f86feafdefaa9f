"""Measures the launches that kernels have a choice of on this machine's GPU, and writes the table of its chip.

    python -m deepinfer.backends.cuda.tune                  everything that has a choice
    python -m deepinfer.backends.cuda.tune --only rope      one of them; what else the table has stays
    python -m deepinfer.backends.cuda.tune --list           what holds now on each chip; needs no GPU

A candidate is refused where its bits differ from the default's for any row count. The best has the smallest geometric
mean of its times over the default's; it replaces the default if that is below 0.97, and if it is nowhere slower by more
than 3 %. Other programs on the GPU spoil the measurement.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import torch

from ...hal.errors import BackendError, DeepInferError, InvalidArgumentError, NotSupportedError
from . import backend, tuning
from .register import ARCHS
from .tuning import Launch, Shape, Trial

LEAST_GAIN = 0.03
Timer = Callable[[Callable[[], object]], float]


def trials() -> dict[str, Trial]:
    """Everything that has a choice, by name: `TUNES` of each module `<family>_tunes`."""
    backend.load()
    here = Path(__file__).parent
    modules = [import_module(f".{path.stem}", __package__) for path in sorted(here.glob("*_tunes.py"))]
    return {found.tunable.name: found for module in modules for found in module.TUNES}


def run_with(trial: Trial, inputs: Any, launch: Launch) -> Sequence[torch.Tensor]:
    """What a launch writes."""
    with trial.tunable.pinned(launch):
        return trial.run(inputs)


def equal_bits(
    trial: Trial, shape: Shape, rows: Sequence[int], device: torch.device, candidates: Sequence[Launch]
) -> list[Launch]:
    """Those of the candidates that give the default's bits for all of these row counts."""
    kept = list(candidates)
    for count in rows:
        inputs = trial.inputs(shape, count, device)
        default = trial.tunable.default(shape)
        _taken(run_with(trial, inputs, default))  # what is not written holds the same from now on
        want = _taken(run_with(trial, inputs, default))
        kept = [c for c in kept if all(map(torch.equal, _taken(run_with(trial, inputs, c)), want))]
    return kept


def _taken(outs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The bytes of outputs, which are then overwritten: the next run may write to the same place, or not at all."""
    found = [out.contiguous().view(torch.uint8).clone() for out in outs]
    for out in outs:
        out.view(torch.uint8).fill_(0xA5)
    return found


def best(trial: Trial, shape: Shape, device: torch.device, time: Timer) -> tuple[Launch, float, list[Launch]]:
    """The launch to use, the geometric mean of its times over the default's, and the candidates whose bits differ."""
    candidates = trial.tunable.candidates(shape)
    allowed = equal_bits(trial, shape, trial.rows, device, candidates)
    default = trial.tunable.default(shape)
    refused = [c for c in candidates if c not in allowed]
    tried = [default, *(c for c in allowed if c != default)]
    ratios: list[list[float]] = [[] for _ in tried]
    for count in trial.rows:
        inputs = trial.inputs(shape, count, device)
        times = [time(partial(run_with, trial, inputs, launch)) for launch in tried]
        for taken, found in zip(times, ratios, strict=True):
            found.append(taken / times[0])
    means = [math.exp(sum(map(math.log, found)) / len(found)) for found in ratios]
    sound = [i for i, found in enumerate(ratios) if max(found) <= 1 + LEAST_GAIN and means[i] <= 1 - LEAST_GAIN]
    chosen = min(sound, key=means.__getitem__, default=0)
    return tried[chosen], means[chosen], refused


def replay_us(call: Callable[[], object]) -> float:
    """Microseconds of a call: ten in a graph, median of replays."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            call()
    times = []
    for _ in range(9):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 100)
    return float(median(times[2:]))


def tune(chosen: Sequence[Trial], arch: str, device: torch.device, time: Timer, *, write: bool = True) -> Iterator[str]:
    """Measure every shape, write the table, and say what was found as it comes.

    Args:
        chosen: what to measure. arch: chip of the device. time: microseconds of a call. write: keep the result.
    """
    launches = dict(tuning.table(arch))
    for trial in chosen:
        tunable, found = trial.tunable, {}
        for shape in trial.shapes:
            launch, ratio, refused = best(trial, shape, device, time)
            kept = "the default" if launch == tunable.default(shape) else f"{ratio:.2f} of the default's time"
            yield f"{tunable.name} {tunable.key(shape)}: {spelled(launch)}, {kept}"
            yield from (f"  {spelled(other)} gives other bits and is refused" for other in refused)
            found[tunable.key(shape)] = launch
        launches[tunable.name] = found
    if write:
        import triton

        made = {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
            "triton": triton.__version__,
            "date": datetime.date.today().isoformat(),
            "launches": dict(sorted(launches.items())),
        }
        tuning.path(arch).write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        tuning.table.cache_clear()
        yield f"written: {tuning.path(arch)}"


def spelled(launch: Launch) -> str:
    return " ".join(f"{name}={value}" for name, value in launch.items())


def listing(known: Sequence[Trial]) -> Iterator[str]:
    """One line for each shape: the launch of each chip, and whether it was measured."""
    for arch in ARCHS:
        if not tuning.table(arch):
            yield f"{arch}: nothing was measured on this chip; the defaults hold"
    for trial in known:
        tunable = trial.tunable
        for shape in trial.shapes:
            said = [
                f"{arch} {spelled(tunable.on_chip(arch, *shape))}"
                + ("" if tunable.measured(arch, *shape) else " (default, not measured)")
                for arch in ARCHS
            ]
            yield f"{tunable.name} {tunable.key(shape)}: {'; '.join(said)}"


def compile_part(chosen: Sequence[Trial], device: torch.device, part: int, parts: int) -> None:
    """Launch each `parts`-th candidate once, so that it is in the cache of binaries."""
    work = [(t, s, c) for t in chosen for s in t.shapes for c in (*t.tunable.candidates(s), t.tunable.default(s))]
    for trial, shape, launch in work[part::parts]:
        run_with(trial, trial.inputs(shape, 1, device), launch)


def _compile_in_children(names: Sequence[str], jobs: int) -> None:
    """`compile_part` in several processes: a compilation keeps one processor busy for about a second."""
    command = [sys.executable, "-m", "deepinfer.backends.cuda.tune", *(f"--only={name}" for name in names)]
    children = [subprocess.Popen([*command, f"--compile={part}/{jobs}"]) for part in range(jobs)]
    failed = [child.wait() for child in children]  # of all, not up to the first
    if any(failed):
        raise BackendError("a candidate cannot be launched; see above")


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = argparse.ArgumentParser(
        prog="python -m deepinfer.backends.cuda.tune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--only", action="append", metavar="NAME", help="measure this alone; may be repeated")
    made.add_argument("--dry-run", action="store_true", help="print, and write nothing")
    made.add_argument("--list", action="store_true", help="print what holds now, and measure nothing")
    made.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that compile [%(default)s]")
    made.add_argument("--compile", metavar="PART/PARTS", help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    try:
        known = trials()
        for name in given.only or ():
            if name not in known:
                raise InvalidArgumentError("only", name, ", ".join(sorted(known)))
        chosen = [known[name] for name in sorted(given.only or known)]
        _main(given, chosen)
    except DeepInferError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _main(given: Any, chosen: Sequence[Trial]) -> None:
    if given.list:
        print("\n".join(listing(chosen)))
        return
    if not torch.cuda.is_available():
        raise NotSupportedError("tuning without a GPU", "run it on a machine with the chip that it is for")
    device = backend.devices()[0]
    if given.compile:
        part, parts = map(int, given.compile.split("/"))
        compile_part(chosen, device.torch, part, parts)
        return
    if given.jobs > 1:
        print(f"compiling the candidates in {given.jobs} processes", file=sys.stderr, flush=True)
        _compile_in_children([trial.tunable.name for trial in chosen], given.jobs)
    arch = backend.capability(device).arch
    total = sum(len(trial.shapes) for trial in chosen)
    done = 0
    for line in tune(chosen, arch, device.torch, replay_us, write=not given.dry_run):
        print(line, flush=True)
        if not line.startswith((" ", "written")):
            done += 1
            print(f"[{done} of {total}]", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
