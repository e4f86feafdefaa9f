"""What the kernels use, recorded: registers, spilled bytes and shared memory for each case, chip and version of Triton.

python tests/support/cuda_resources.py            compile what changed, write tests/backends/cuda/resources.json,
                                                  and print what is other than before
python tests/support/cuda_resources.py --all      compile everything
python tests/support/cuda_resources.py --check    write nothing; exit status 1 if a rule is broken
--triton=3.9                                      with that version alone, of those that are here
--jobs=8                                          in so many processes at once; 1 where it is not said

Each record holds a digest of what its binary was made from: the kernel's source and its helpers', types, constants,
options, chip and the compiler's version. A case with the recorded digest has been compiled as it stands. A check
compiles the others, and one case of every kernel all the same, each with one of the Tritons for one of the chips in
turn, which has to give the recorded numbers again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cuda_children

RECORD = cuda_children.ROOT / "tests/backends/cuda/resources.json"
ARCHS = ("sm_90", "sm_100")
VERSIONS = ("3.6", "3.9")
SHARED_LIMIT = 227 << 10  # bytes of shared memory that a block can have on either chip
OTHER = {"3.6": cuda_children.ROOT / "build/triton-3.6"}

Entry = list[Any]  # registers, spilled bytes, shared bytes, digest
Record = dict[str, dict[str, dict[str, Entry]]]  # Triton -> chip -> case
DIGEST = 3


def tritons() -> dict[str, Path | None]:
    """Versions of Triton that are here, each with the folder to put first on the path; the installed one first."""
    installed = ".".join(version("triton").split(".")[:2])
    return {installed: None, **{v: path for v, path in OTHER.items() if v != installed and (path / "triton").is_dir()}}


def compile_cases(
    triton: str,
    cache: Path,
    known: Mapping[str, Mapping[str, Entry]],
    *,
    spot: bool = True,
    only: str = "",
    jobs: int = 1,
) -> list[dict[str, Any]]:
    """Reports of child processes on all cases, of those that contain `only`: for both chips, with one Triton.

    Args:
        known: records by chip. A case with its digest is not compiled, and its report says `known`.
        spot: compile one case of each kernel whose turn it is also where it is known; its report says `spot`.
        jobs: processes at once.
    """

    def reports(part: int) -> list[dict[str, Any]]:
        wanted = {"triton": triton, "known": known, "spot": spot, "only": only, "part": part, "parts": jobs}
        done = subprocess.run(
            [sys.executable, __file__, "child"],
            env=cuda_children.environment(cache, tritons()[triton]),
            input=json.dumps(wanted),
            capture_output=True,
            text=True,
            timeout=1800,
        )
        assert done.returncode == 0 and done.stdout, done.stderr[-3000:]
        found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
        return found

    with ThreadPoolExecutor(jobs) as pool:
        return [report for found in pool.map(reports, range(jobs)) for report in found]


def child() -> None:
    """What runs with the Triton that is asked for."""
    from dataclasses import asdict

    from deepinfer.backends.cuda import backend, build, compile_list

    wanted = json.load(sys.stdin)
    backend.load()
    entries = compile_list.listed()
    spots = spots_of(entries, wanted["triton"], wanted["known"]) if wanted["spot"] else set()
    reports = []
    work = [(e, arch) for e in entries for arch in ARCHS if arch in e.case.archs and wanted["only"] in e.name]
    for entry, arch in work[wanted["part"] :: wanted["parts"]]:
        key, record = entry.key(arch), wanted["known"].get(arch, {}).get(entry.name)
        same, spot = record is not None and record[DIGEST] == key, (entry.name, arch) in spots
        if same and not spot:
            numbers = dict(zip(("registers", "spills", "shared"), record))
            report = {"name": entry.name, "arch": arch, "error": "", **numbers}
        else:
            report = asdict(build.build_one(entry, arch))
        reports.append({**report, "key": key, "known": same, "spot": same and spot})
    print(json.dumps(reports))


def spots_of(entries: Sequence[Any], triton: str, known: Mapping[str, Mapping[str, Entry]]) -> set[tuple[str, str]]:
    """Cases to compile though they are known: each kernel has its turn with one Triton and chip.

    Of a kernel's cases the one of the fewest registers is taken, which mostly compiles the fastest.
    """
    kernels: dict[str, list[Any]] = {}
    for entry in entries:
        if not getattr(entry.case, "slow", False):
            kernels.setdefault(entry.kernel, []).append(entry)
    found = set()
    for turn, (_, cases) in enumerate(sorted(kernels.items())):
        places = [(v, arch) for arch in ARCHS for v in VERSIONS if any(arch in entry.case.archs for entry in cases)]
        v, arch = places[turn % len(places)]
        if v == triton:
            here = [(known.get(arch, {}).get(e.name, [0])[0], e.name) for e in cases if arch in e.case.archs]
            found.add((min(here)[1], arch))
    return found


def entry_of(report: Mapping[str, Any]) -> Entry:
    return [report["registers"], report["spills"], report["shared"], report["key"]]


def complaints(recorded: Mapping[str, Entry], reports: Sequence[dict[str, Any]], whole: bool = True) -> list[str]:
    """What is wrong with a compilation of one Triton for one chip, in words.

    Args:
        recorded: entries by case.
        reports: of `compile_cases`, for the chip.
        whole: the reports are of all cases, so that one that is recorded alone is stale.
    """
    found = []
    for report in reports:
        name, known = report["name"], recorded.get(report["name"])
        if report["error"]:
            found.append(f"{name} does not compile: {report['error']}")
            continue
        made = entry_of(report)
        if made[2] > SHARED_LIMIT:
            found.append(f"{name} needs {made[2]} bytes of shared memory; a block can have {SHARED_LIMIT}")
        if known is None:
            found.append(f"{name} is not recorded; python tests/support/cuda_resources.py does it")
        elif made[1] > known[1]:
            found.append(f"{name} spills {made[1]} bytes for each thread; recorded are {known[1]}")
        elif report["spot"] and made != known:
            found.append(f"{name} gives {made}, where {known} is recorded of the same source and compiler")
    if whole:
        stale = recorded.keys() - {report["name"] for report in reports}
        found += [f"{name} is recorded, and no longer compiled" for name in sorted(stale)]
    return found


def check(triton: str, record: Record, cache: Path) -> list[str]:
    """The complaints of one Triton, for both chips."""
    reports = compile_cases(triton, cache, record[triton])
    return [
        f"{arch}: {text}"
        for arch in ARCHS
        for text in complaints(record[triton][arch], [report for report in reports if report["arch"] == arch])
    ]


def changes(before: Record, after: Record) -> Iterable[str]:
    """One line for each number that changed."""
    for triton in sorted(before.keys() | after.keys()):
        for arch in ARCHS:
            old, new = before.get(triton, {}).get(arch, {}), after.get(triton, {}).get(arch, {})
            for name in sorted(old.keys() | new.keys()):
                was, now = (entries.get(name, [None])[:DIGEST] for entries in (old, new))
                if was != now:
                    yield f"Triton {triton} {arch} {name}: {was} -> {now}"


def main(arguments: Sequence[str]) -> int:
    cache = cuda_children.ROOT / "build/kernels"
    before: Record = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    after: Record = {v: dict(archs) for v, archs in before.items()}
    wrong = []
    options = dict(word.removeprefix("--").partition("=")[::2] for word in arguments)
    jobs = int(options.get("jobs", 1))
    for triton in [options["triton"]] if "triton" in options else tritons():
        known = {} if "all" in options else before.get(triton, {})
        reports = compile_cases(triton, cache, known, spot=False, jobs=jobs)
        for arch in ARCHS:
            here = [report for report in reports if report["arch"] == arch]
            made = {report["name"]: entry_of(report) for report in here if not report["error"]}
            recorded = {**made, **before.get(triton, {}).get(arch, {})}
            wrong += [f"Triton {triton} {arch}: {text}" for text in complaints(recorded, here, whole=False)]
            after.setdefault(triton, {})[arch] = made
    print("\n".join([*changes(before, after), *wrong]))
    if "check" not in options:
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
    sys.exit(child() if sys.argv[1:] == ["child"] else main(sys.argv[1:]))
