"""The texts of the package, and where this machine stands: for who installs and for who writes kernels.

    python -m deepinfer.backends.ascend.build                # lower what changed, say where everything stands
    python -m deepinfer.backends.ascend.build --write        # and keep the texts in lowered/
    python -m deepinfer.backends.ascend.build --self-test    # and try one kernel, on the device or the simulator

Device images, and a comparison of all texts with what the installed tilelang writes, are `deepinfer build --arch
dav-3510`'s (`ahead.py`).
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from time import perf_counter

from ...hal.backend import Unavailable
from ...hal.errors import DeepInferError
from . import backend, versions
from .lower import LoweringError
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


def _lower(program: Program, write: bool) -> str:
    """Lower a program whose kept text is not current; what to say of it."""
    if program.written:
        return "by hand"
    if program.current():
        return "kept text is current"
    begun = perf_counter()
    text = program.lowered()
    took = f"lowered in {perf_counter() - begun:.1f} s"
    if write:
        LOWERED.mkdir(exist_ok=True)
        program.committed.write_text(text, encoding="utf-8")
        return f"{took}, kept"
    return f"{took}, differs from the kept text" if program.committed.is_file() else f"{took}, no text is kept"


def main() -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="keep the texts in the package")
    parser.add_argument("--self-test", action="store_true", help="run the self-test on the first device")
    parser.add_argument("--name", default="", help="only programs whose label contains this")
    given = parser.parse_args()
    print("\n".join(backend.found.lines()), flush=True)
    known, status = programs(), 0
    for program in known:
        if given.name in program.label:
            try:
                said = _lower(program, given.write)
            except LoweringError as error:
                said, status = f"not lowered: {error}", 1
            print(f"{program.label}: {said}", flush=True)
    for path in [] if given.name else orphans(known):
        print(f"{path.name}: belongs to no program{', removed' if given.write else ''}")
        if given.write:
            path.unlink()
    if given.self_test and (refused := _self_test()):
        print(refused)
        return 1
    return status


def _self_test() -> str:
    """Runs the self-test on the first device, and says so; why it could not be run, or what it found, else ""."""
    verdict = backend.probe()
    if isinstance(verdict, Unavailable):
        said_above = backend.found.problem is not None and versions.PROBLEM is None
        return f"no self-test: {'see the problem above' if said_above else verdict}"
    device = backend.devices()[0]
    try:
        backend.self_test(device)
    except DeepInferError as error:
        return str(error)
    print(f"self-test: passed {'on the simulator' if device.type == 'cpu' else f'on {device}'}")
    return ""


if __name__ == "__main__":
    sys.exit(main())
