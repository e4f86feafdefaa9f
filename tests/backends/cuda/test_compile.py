"""Every kernel compiles for SM90 and SM100 with Triton 3.6 and the installed one, without new spills.

`python tests/support/cuda_resources.py` records what the kernels use, in resources.json; `.ci/triton36.sh` installs
Triton 3.6 beside the other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cuda_children
import cuda_resources

pytest.importorskip("triton")

VERSIONS = dict.fromkeys((*cuda_resources.tritons(), *cuda_resources.OTHER))


def recorded(triton: str, arch: str) -> dict[str, list[int]]:
    if triton not in cuda_resources.tritons():
        pytest.skip(f"Triton {triton} is not in {cuda_resources.OTHER[triton]}: .ci/triton36.sh installs it")
    record = json.loads(cuda_resources.RECORD.read_text())
    if triton not in record:
        pytest.skip(f"nothing is recorded for Triton {triton}; recorded are {', '.join(record)}")
    found: dict[str, list[int]] = record[triton][arch]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("arch", cuda_resources.ARCHS)
@pytest.mark.parametrize("triton", VERSIONS)
def test_every_kernel_compiles_and_none_spills_anew(triton: str, arch: str, tmp_path: Path) -> None:
    known = recorded(triton, arch)
    complaints = cuda_resources.complaints(known, cuda_resources.compile_all(triton, arch, tmp_path))
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("triton", VERSIONS)
def test_one_kernel_compiles(triton: str, tmp_path: Path) -> None:
    """What the test above does, on one kernel: quick enough for every run."""
    known = recorded(triton, "sm_90")
    reports = cuda_resources.compile_all(triton, "sm_90", tmp_path, "known_kernel")
    assert [report["name"] for report in reports] == ["known_kernel"]
    assert not cuda_resources.complaints(known, reports, whole=False)
    assert len(list((tmp_path / "triton").iterdir())) == 1


def report(**changes: Any) -> dict[str, Any]:
    return {"name": "a", "registers": 40, "spills": 8, "shared": 1024, "error": "", **changes}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"spills": 0, "registers": 255}, ""),
        ({"spills": 9}, "a spills 9 bytes for each thread; recorded are 8"),
        ({"shared": (227 << 10) + 1}, "a needs 232449 bytes of shared memory"),
        ({"error": "PTXASError: no"}, "a does not compile: PTXASError: no"),
        ({"name": "b"}, "b is not recorded"),
    ],
)
def test_what_is_complained_about(changed: dict[str, Any], said: str) -> None:
    found = cuda_resources.complaints({"a": [40, 8, 1024]}, [report(**changed)], whole=False)
    assert [text.startswith(said) for text in found] == ([True] if said else [])


def test_a_case_that_went_is_complained_about() -> None:
    assert cuda_resources.complaints({"a": [1, 0, 0], "z": [1, 0, 0]}, [report(spills=0)]) == [
        "z is recorded, and no longer compiled"
    ]


def test_the_record_is_as_written() -> None:
    record = json.loads(cuda_resources.RECORD.read_text())
    assert cuda_resources.RECORD.read_text() == cuda_resources.dump(record)
    assert {triton: sorted(archs) for triton, archs in record.items()} == {
        triton: sorted(cuda_resources.ARCHS) for triton in ("3.6", "3.9")
    }


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    import subprocess
    import sys

    for arguments, said in ((["--arch", "sm_80"], "arch: got 'sm_80'; allowed: sm_90, sm_100"),):
        done = subprocess.run(
            [sys.executable, "-m", "deepinfer.backends.cuda.build", *arguments],
            env=cuda_children.environment(tmp_path),
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr.strip(), done.stdout) == (2, said, "")
