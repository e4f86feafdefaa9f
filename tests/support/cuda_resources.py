"""What the kernels use, recorded: registers, spilled bytes and shared memory for each case, chip and version of Triton.

python tests/support/cuda_resources.py            compile what changed, write tests/backends/cuda/resources.json,
                                                  and print what is other than before
python tests/support/cuda_resources.py --all      compile everything
python tests/support/cuda_resources.py --check    write nothing; exit status 1 if a rule is broken
--triton=3.9                                      with that version alone, of those that are here
--jobs=8                                          in so many processes at once; 1 where it is not said
--most=4                                          only until so many cases of a kernel are known; all by default

Each record holds a digest of what its binary was made from: the kernel's source and its helpers', types, constants,
options, chip and the compiler's version. A case with the recorded digest has been compiled as it stands. A check
compiles others until of each kernel `MOST` cases are known for each chip, or all. One case of every fourth kernel
(`SHARE`) is compiled all the same, each with one of the Tritons for one of the chips in turn, and has to give the
recorded numbers again; which kernels these are changes with the record.
What is not recorded may not spill at all.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
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
MOST = 4
"""Cases of a kernel that a check knows or compiles for a chip; they differ in widths. The record has all."""
SHARE = 4
"""A check compiles one in so many kernels whose cases are all known."""


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
    most: int = MOST,
    only: str = "",
    jobs: int = 1,
) -> list[dict[str, Any]]:
    """Reports of child processes on all cases, of those that contain `only`: for both chips, with one Triton.

    Args:
        known: records by chip. A case with its digest is not compiled, and its report says `known`.
        spot: compile one case of each kernel whose turn it is also where it is known; its report says `spot`.
        most: cases of a kernel that are known or compiled for a chip; further ones that are not known are left out.
        jobs: processes at once.
    """

    def reports(part: int) -> list[dict[str, Any]]:
        wanted = {"triton": triton, "known": known, "spot": spot, "only": only, "most": most}
        wanted |= {"part": part, "parts": jobs}
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
    known = {(e.name, arch): wanted["known"].get(arch, {}).get(e.name) for e, arch in work}
    keys = {(e.name, arch): e.key(arch) for e, arch in work}
    same = {place for place, record in known.items() if record is not None and record[DIGEST] == keys[place]}
    left_out = beyond(work, same, wanted["most"])
    for entry, arch in work[wanted["part"] :: wanted["parts"]]:
        place = (entry.name, arch)
        if place in left_out:
            reports.append({"name": entry.name, "arch": arch, "left_out": True})
            continue
        if place in same and place not in spots:
            numbers = dict(zip(("registers", "spills", "shared"), known[place]))
            report = {"name": entry.name, "arch": arch, "error": "", **numbers}
        else:
            report = asdict(build.build_one(entry, arch))
        reports.append({**report, "key": keys[place], "known": place in same, "spot": place in same and place in spots})
    print(json.dumps(reports))


def beyond(work: Sequence[tuple[Any, str]], known: set[tuple[str, str]], most: int) -> set[tuple[str, str]]:
    """Cases, by name and chip, that are not known, and of whose kernel `most` others are known or compiled.

    Those that are compiled are spread over the kernel's list.
    """
    kernels: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for entry, arch in work:
        kernels.setdefault((entry.kernel, arch), []).append((entry.name, arch))
    found = set()
    for cases in kernels.values():
        new = [case for case in cases if case not in known]
        count = max(0, min(len(new), most - (len(cases) - len(new))))
        stay = {new[i * (len(new) - 1) // max(1, count - 1)] for i in range(count)}
        found |= set(new) - stay
    return found


def spots_of(
    entries: Sequence[Any], triton: str, known: Mapping[str, Mapping[str, Entry]], share: int = SHARE
) -> set[tuple[str, str]]:
    """Cases to compile though they are known: each kernel has its turn with one Triton and chip, one in `share` now.

    Of a kernel's cases the one of the fewest registers is taken, which mostly compiles the fastest.
    """
    kernels: dict[str, list[Any]] = {}
    for entry in entries:
        if not getattr(entry.case, "slow", False):
            kernels.setdefault(entry.kernel, []).append(entry)
    digests = sorted(str(entry[DIGEST]) for records in known.values() for entry in records.values())
    now = zlib.crc32("".join(digests).encode()) % share
    found = set()
    for turn, (_, cases) in enumerate(sorted(kernels.items())):
        places = [(v, arch) for arch in ARCHS for v in VERSIONS if any(arch in entry.case.archs for entry in cases)]
        v, arch = places[turn % len(places)]
        if v == triton and turn // len(places) % share == now:
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
        whole: the reports are of all recorded cases that there are, so that one that is recorded alone is stale.
    """
    found = []
    for report in reports:
        if report.get("left_out"):
            continue
        name, known = report["name"], recorded.get(report["name"])
        if report["error"]:
            found.append(f"{name} does not compile: {report['error']}")
            continue
        made = entry_of(report)
        if made[2] > SHARED_LIMIT:
            found.append(f"{name} needs {made[2]} bytes of shared memory; a block can have {SHARED_LIMIT}")
        if known is None:
            if made[1]:
                found.append(f"{name} spills {made[1]} bytes for each thread, and is not recorded")
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
    jobs, most = int(options.get("jobs", 1)), int(options.get("most", sys.maxsize))
    for triton in [options["triton"]] if "triton" in options else tritons():
        known = {} if "all" in options else before.get(triton, {})
        reports = compile_cases(triton, cache, known, spot=False, most=most, jobs=jobs)
        for arch in ARCHS:
            here = [report for report in reports if report["arch"] == arch]
            old = before.get(triton, {}).get(arch, {})
            made = {
                report["name"]: old[report["name"]] for report in here if "left_out" in report and report["name"] in old
            }
            made |= {report["name"]: entry_of(report) for report in here if not report.get("error", True)}
            recorded = {**made, **old}
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
