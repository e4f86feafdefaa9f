"""Every kernel compiles for SM90 and SM100 with the installed Triton, without new spills; rules of that check.

`test_compile_older.py` does the same with Triton 3.6. What is compiled, and what is known from the record, is told in
tests/support/cuda_resources.py, which also makes the record.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cuda_children
import cuda_resources

pytest.importorskip("triton")

INSTALLED = next(iter(cuda_resources.tritons()))
RECORD: cuda_resources.Record = json.loads(cuda_resources.RECORD.read_text())


@pytest.mark.slow
def test_every_kernel_compiles_and_none_spills_anew(tmp_path: Path) -> None:
    if INSTALLED not in RECORD:
        pytest.skip(f"nothing is recorded for Triton {INSTALLED}; recorded are {', '.join(RECORD)}")
    found = cuda_resources.check(INSTALLED, RECORD, tmp_path)
    assert not found, "\n".join(found)


def test_one_kernel_compiles(tmp_path: Path) -> None:
    """What the test above does, on one kernel that nothing is known of: quick enough for every run."""
    reports = cuda_resources.compile_cases(INSTALLED, tmp_path, {}, only="known_kernel")
    assert [(report["name"], report["arch"], report["known"]) for report in reports] == [
        ("known_kernel", arch, False) for arch in cuda_resources.ARCHS
    ]
    for report in reports if INSTALLED in RECORD else ():
        assert not cuda_resources.complaints(RECORD[INSTALLED][report["arch"]], [report], whole=False)
    assert len(list((tmp_path / "triton").iterdir())) == 2


def report(**changes: Any) -> dict[str, Any]:
    given = {"name": "a", "registers": 40, "spills": 8, "shared": 1024, "error": "", "key": "k", "spot": False}
    return {**given, **changes}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"spills": 0, "registers": 255}, ""),
        ({"spills": 9}, "a spills 9 bytes for each thread; recorded are 8"),
        ({"shared": (227 << 10) + 1}, "a needs 232449 bytes of shared memory"),
        ({"error": "PTXASError: no"}, "a does not compile: PTXASError: no"),
        ({"name": "b"}, "b spills 8 bytes for each thread, and is not recorded"),
        ({"name": "b", "spills": 0}, ""),
        ({"spot": True}, ""),
        ({"spot": True, "registers": 41}, "a gives [41, 8, 1024, 'k'], where [40, 8, 1024, 'k'] is recorded"),
    ],
)
def test_what_is_complained_about(changed: dict[str, Any], said: str) -> None:
    found = cuda_resources.complaints({"a": [40, 8, 1024, "k"]}, [report(**changed)], whole=False)
    assert [text.startswith(said) for text in found] == ([True] if said else [])


def test_a_case_that_went_is_complained_about() -> None:
    recorded = {name: [1, 0, 0, ""] for name in "ayz"}
    reports = [report(spills=0), {"name": "y", "arch": "sm_90", "left_out": True}]
    assert cuda_resources.complaints(recorded, reports) == ["z is recorded, and no longer compiled"]


def test_of_a_kernel_so_many_cases_are_known_or_compiled() -> None:
    work = [(listed(f"many[{i}]"), arch) for arch in cuda_resources.ARCHS for i in range(10)]
    work += [(listed(f"few[{i}]"), "sm_90") for i in range(4)]

    def compiled(known: set[tuple[str, str]], most: int = 4) -> list[str]:
        gone = cuda_resources.beyond(work, known, most)
        return [e.name for e, arch in work if arch == "sm_90" and (e.name, arch) not in gone | known]

    spread = [f"many[{i}]" for i in (0, 3, 6, 9)]
    assert compiled(set()) == [*spread, *(f"few[{i}]" for i in range(4))]
    known = {(f"many[{i}]", "sm_90") for i in range(3)} | {(f"few[{i}]", "sm_90") for i in range(4)}
    assert compiled(known) == ["many[3]"]
    assert compiled(known | {("many[9]", "sm_90")}) == []
    assert len(compiled(set(), 99)) == 14


def test_the_record_is_as_written() -> None:
    record = json.loads(cuda_resources.RECORD.read_text())
    assert cuda_resources.RECORD.read_text() == cuda_resources.dump(record)
    assert {triton: sorted(archs) for triton, archs in record.items()} == {
        triton: sorted(cuda_resources.ARCHS) for triton in cuda_resources.VERSIONS
    }


def listed(name: str, archs: tuple[str, ...] = cuda_resources.ARCHS, slow: bool = False) -> Any:
    return SimpleNamespace(name=name, kernel=name.split("[")[0], case=SimpleNamespace(archs=archs, slow=slow))


def test_every_kernel_has_its_turn_and_the_turns_are_shared() -> None:
    entries = [listed(f"kernel{i}[{label}]") for i in range(9) for label in "ab"]
    entries += [listed("one chip", archs=("sm_90",)), listed("kernel0[slow]", slow=True)]
    known = {arch: {f"kernel{i}[a]": [9, 0, 0, ""] for i in range(9)} for arch in cuda_resources.ARCHS}
    known["sm_90"]["kernel3[b]"] = known["sm_100"]["kernel3[b]"] = [99, 0, 0, ""]
    turns = [spot for v in cuda_resources.VERSIONS for spot in cuda_resources.spots_of(entries, v, known, 1)]
    assert sorted(name.split("[")[0] for name, _ in turns) == sorted({e.kernel for e in entries})
    assert ("kernel3[a]", "sm_100") in turns and ("one chip", "sm_90") in turns
    assert {arch for _, arch in turns} == set(cuda_resources.ARCHS)


def test_turns_of_a_share_pass_on_as_the_record_changes() -> None:
    entries = [listed(f"kernel{i:02}") for i in range(32)]
    seen: set[str] = set()
    for digest in map(str, range(40)):
        known = {arch: {e.name: [9, 0, 0, digest] for e in entries} for arch in cuda_resources.ARCHS}
        turns = [spot for v in cuda_resources.VERSIONS for spot in cuda_resources.spots_of(entries, v, known)]
        assert len(turns) == 32 // cuda_resources.SHARE
        seen.update(name for name, _ in turns)
    assert seen == {e.name for e in entries}


def test_a_changed_kernel_is_compiled_anew(tmp_path: Path) -> None:
    """Where the record has another digest; where it has this one it is believed."""
    made = {
        report["arch"]: cuda_resources.entry_of(report)
        for report in cuda_resources.compile_cases(INSTALLED, tmp_path / "one", {}, only="known_kernel")
    }
    known = {"sm_90": {"known_kernel": made["sm_90"]}, "sm_100": {"known_kernel": [*made["sm_100"][:3], "other"]}}
    reports = cuda_resources.compile_cases(INSTALLED, tmp_path / "two", known, only="known_kernel", spot=False)
    assert [report["known"] for report in reports] == [True, False]
    assert [cuda_resources.entry_of(report) for report in reports] == [made["sm_90"], made["sm_100"]]
    assert len(list((tmp_path / "two/triton").iterdir())) == 1


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "deepinfer.backends.cuda.build", "--arch", "sm_80"],
        env=cuda_children.environment(tmp_path),
        capture_output=True,
        text=True,
    )
    said = "arch: got 'sm_80'; allowed: sm_90, sm_100"
    assert (done.returncode, done.stderr.strip(), done.stdout) == (2, said, "")
