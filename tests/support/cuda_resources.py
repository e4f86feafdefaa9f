"""What the kernels use, recorded: registers, spilled bytes and shared memory for each case, chip and version of Triton.

python tests/support/cuda_resources.py            compile everything, write tests/backends/cuda/resources.json,
                                                  and print what changed
python tests/support/cuda_resources.py --check    the same without writing; exit status 1 if a rule is broken
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cuda_children

RECORD = cuda_children.ROOT / "tests/backends/cuda/resources.json"
ARCHS = ("sm_90", "sm_100")
SHARED_LIMIT = 227 << 10  # bytes of shared memory that a block can have on either chip
OTHER = {"3.6": cuda_children.ROOT / "build/triton-3.6"}

Numbers = list[int]  # registers, spilled bytes, shared bytes
Record = dict[str, dict[str, dict[str, Numbers]]]  # Triton -> chip -> case


def tritons() -> dict[str, Path | None]:
    """Versions of Triton that are here, each with the folder to put first on the path; the installed one first."""
    installed = ".".join(version("triton").split(".")[:2])
    return {installed: None, **{v: path for v, path in OTHER.items() if v != installed and (path / "triton").is_dir()}}


def compile_all(triton: str, arch: str, cache: Path, *names: str) -> list[dict[str, Any]]:
    """The reports of a child process that compiles the cases, or those whose names contain one of `names`."""
    arguments = ["--arch", arch, "--json", *(f"--name={name}" for name in names)]
    if triton in OTHER and tritons()[triton] is not None:
        arguments.append("--quick")
    done = subprocess.run(
        [sys.executable, "-m", "deepinfer.backends.cuda.build", *arguments],
        env=cuda_children.environment(cache, tritons()[triton]),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode in (0, 1) and done.stdout, done.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def numbers(report: dict[str, Any]) -> Numbers:
    return [report["registers"], report["spills"], report["shared"]]


def complaints(recorded: dict[str, Numbers], reports: Sequence[dict[str, Any]], whole: bool = True) -> list[str]:
    """What is wrong with a compilation of one Triton for one chip, in words.

    Args:
        recorded: numbers by case.
        reports: of `compile_all`.
        whole: the reports are of all cases, so that one that is recorded alone is stale.
    """
    found = []
    for report in reports:
        name, known = report["name"], recorded.get(report["name"])
        if report["error"]:
            found.append(f"{name} does not compile: {report['error']}")
            continue
        _, spills, shared = numbers(report)
        if shared > SHARED_LIMIT:
            found.append(f"{name} needs {shared} bytes of shared memory; a block can have {SHARED_LIMIT}")
        if known is None:
            found.append(f"{name} is not recorded; python tests/support/cuda_resources.py does it")
        elif spills > known[1]:
            found.append(f"{name} spills {spills} bytes for each thread; recorded are {known[1]}")
    if whole:
        stale = recorded.keys() - {report["name"] for report in reports}
        found += [f"{name} is recorded, and no longer compiled" for name in sorted(stale)]
    return found


def changes(before: Record, after: Record) -> Iterable[str]:
    """One line for each number that changed."""
    for triton in sorted(before.keys() | after.keys()):
        for arch in ARCHS:
            old, new = before.get(triton, {}).get(arch, {}), after.get(triton, {}).get(arch, {})
            for name in sorted(old.keys() | new.keys()):
                if old.get(name) != new.get(name):
                    yield f"Triton {triton} {arch} {name}: {old.get(name)} -> {new.get(name)}"


def main() -> int:
    cache = cuda_children.ROOT / "build/kernels"
    before: Record = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    after: Record = {v: dict(archs) for v, archs in before.items()}
    wrong = []
    for triton in tritons():
        for arch in ARCHS:
            reports = compile_all(triton, arch, cache)
            made = {report["name"]: numbers(report) for report in reports if not report["error"]}
            known = before.get(triton, {}).get(arch, {})
            wrong += [f"Triton {triton} {arch}: {text}" for text in complaints({**made, **known}, reports, whole=False)]
            after.setdefault(triton, {})[arch] = dict(sorted(made.items()))
    print("\n".join([*changes(before, after), *wrong]))
    if "--check" not in sys.argv:
        RECORD.write_text(dump(after))
    return int(bool(wrong))


def dump(record: Record) -> str:
    """One line for each case."""
    lines = []
    for triton, archs in sorted(record.items()):
        parts = []
        for arch, cases in sorted(archs.items()):
            inner = ",\n".join(f"   {json.dumps(name)}: {json.dumps(found)}" for name, found in sorted(cases.items()))
            parts.append(f"  {json.dumps(arch)}: {{\n{inner}\n  }}")
        lines.append(f" {json.dumps(triton)}: {{\n" + ",\n".join(parts) + "\n }")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
