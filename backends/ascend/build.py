"""Lowering ahead of time: the texts of all kernels, and device images where CANN's compiler is.

    python -m deepinfer.backends.ascend.build                # lower what changed, say where everything stands
    python -m deepinfer.backends.ascend.build --write        # and keep the texts in lowered/
    python -m deepinfer.backends.ascend.build --check        # lower everything anew: exit status 1 if a text differs
    python -m deepinfer.backends.ascend.build --compile DIR  # images for dav-3510, with bisheng
    python -m deepinfer.backends.ascend.build --self-test    # and try one kernel, on the device or the simulator

A kept text that differs from what the installed tilelang writes shows a change of the wheel as a diff.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from time import perf_counter

from ...hal.backend import Unavailable
from ...hal.errors import DeepInferError
from . import backend, discovery, driver
from .program import LOWERED, Program


def programs() -> list[Program]:
    """Every program of the backend, by label: the module-level ones of all families, and the self-test's."""
    from ... import ops  # noqa: F401  (families name the specs)

    found: dict[str, Program] = {}
    for name in (*backend.kernel_modules, ".self_test"):
        module = importlib.import_module(name, backend.package)
        for value in vars(module).values():
            for program in value.values() if isinstance(value, dict) else (value,):
                if isinstance(program, Program):
                    found[program.label] = program
    return [found[label] for label in sorted(found)]


def orphans(known: list[Program]) -> list[Path]:
    """Kept texts that belong to no program."""
    return sorted(set(LOWERED.glob("*.cpp")) - {program.committed for program in known})


def _lower(program: Program, write: bool, check: bool) -> tuple[str, bool]:
    """What to say of a program, and whether its kept text is as it should be."""
    if program.written:
        return "by hand", True
    if program.current() and not check:
        return "kept text is current", True
    begun = perf_counter()
    text = program.lowered()
    took = f"lowered in {perf_counter() - begun:.1f} s"
    kept = program.committed.read_text(encoding="utf-8") if program.committed.is_file() else ""
    if text == kept:
        return f"{took}, equal to the kept text", True
    if write:
        LOWERED.mkdir(exist_ok=True)
        program.committed.write_text(text, encoding="utf-8")
        return f"{took}, kept", True
    return f"{took}, differs from the kept text" if kept else f"{took}, no text is kept", False


def main() -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="keep the texts in the package")
    parser.add_argument("--check", action="store_true", help="lower everything anew and compare with the kept texts")
    parser.add_argument("--compile", type=Path, metavar="DIR", help="compile images into DIR")
    parser.add_argument("--self-test", action="store_true", help="run the self-test on the first device")
    parser.add_argument("--name", default="", help="only programs whose label contains this")
    given = parser.parse_args()
    print("\n".join(discovery.discover().lines()), flush=True)
    known = programs()
    fine = True
    for program in known:
        if given.name not in program.label:
            continue
        said, good = _lower(program, given.write, given.check)
        fine = fine and good
        if given.compile:
            given.compile.mkdir(parents=True, exist_ok=True)
            said += f", compiled to {driver.compile_image(program.text(), given.compile / f'{program.label}.aibin')}"
        print(f"{program.label}: {said}", flush=True)
    for path in [] if given.name else orphans(known):
        print(f"{path.name}: belongs to no program{', removed' if given.write else ''}")
        if given.write:
            path.unlink()
        fine = fine and given.write
    if given.self_test and (refused := _self_test()):
        print(refused)
        return 1
    return 0 if fine or not given.check else 1


def _self_test() -> str:
    """Runs the self-test on the first device, and says so; why it could not be run, or what it found, else ""."""
    verdict = backend.probe()
    if isinstance(verdict, Unavailable):
        return f"no self-test: {verdict}"
    device = backend.devices()[0]
    try:
        backend.self_test(device)
    except DeepInferError as error:
        return str(error)
    print(f"self-test: passed {'on the simulator' if device.type == 'cpu' else f'on {device}'}")
    return ""


if __name__ == "__main__":
    sys.exit(main())
