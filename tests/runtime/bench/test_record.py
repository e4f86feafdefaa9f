"""Records: what makes two runs the same, files that are gone on with, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepinfer.runtime.bench.measure import ACCOUNTING, AccountingError
from deepinfer.runtime.bench.record import (
    MixedVerificationError,
    RecordError,
    RecordFile,
    check_curve,
    read_records,
    record,
    verification_of,
)
from engines import build_engine


def made(value: int = 1, label: str = "a", verification: str = "fixed", **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "mode": "sweep",
        "label": label,
        "system": {"model": "tiny"},
        "workload": {"seed": 0},
        "verification": {"verification": verification, "drafts": 5},
        "warmup": 2,
        "results": {"output_tokens_per_s": 1.0 * value},
        "point": {"concurrency": value},
    }
    return record(**values | more)


def test_keys_name_runs_and_curves() -> None:
    one = made()
    assert one["key"] == made(results={"output_tokens_per_s": 9.0})["key"], "not what came out"
    assert one["key"] != made(2)["key"] and one["curve"] == made(2)["curve"]
    for other in ({"system": {"model": "big"}}, {"workload": {"seed": 1}}, {"warmup": 3}, {"mode": "latency"}):
        assert made(**other)["curve"] != one["curve"], other
    assert one["accounting"] == ACCOUNTING and one["warmup"] == {"requests": 2, "counted": False}


def test_a_file_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    file = RecordFile(path)
    file.add(made(1))
    file.add(made(2))
    again = RecordFile(path)
    assert again.has(made(2)["key"]) and not again.has(made(3)["key"])
    with open(path, "ab") as raw:
        raw.write(json.dumps(made(3)).encode().replace(b'", "', b'","')[:0] + b'{"kind":"deepinfer-bench","ver')
    cut = RecordFile(path)  # the run was killed in the middle of a line
    assert len(cut.records) == 2
    cut.add(made(4))
    assert [one["point"]["concurrency"] for one in read_records(path)] == [1, 2, 4]


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    for text in ("remember the milk", "remember\nthe milk\n", '{"a": 1}\n', "\x00"):
        path.write_text(text)
        with pytest.raises(RecordError, match=r"notes.txt, line 1"):
            RecordFile(path)
        assert path.read_text() == text
    with pytest.raises(RecordError, match="cannot be read"):
        read_records(tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"label": 3}, {"results": None}, {"verification": {"verification": "maybe"}}, {"accounting": 1}],
)
def test_damaged_records_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(made()) + "\n" + json.dumps({**made(2), **change}) + "\n")
    with pytest.raises(RecordError, match=r"x.jsonl, line 2"):
        read_records(path)


def test_drafted_tokens_are_no_output(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    one = made()
    one["accounting"] = {**ACCOUNTING, "output_tokens": "drafted"}
    path.write_text(json.dumps(one) + "\n")
    with pytest.raises(AccountingError, match="counts 'drafted' tokens as output"):
        read_records(path)


def test_fixed_and_variable_verification_are_no_curve(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "x.jsonl")
    file.add(made(1))
    with pytest.raises(MixedVerificationError, match="'a' would mix verification fixed and variable"):
        file.add(made(2, verification="variable"))
    assert len(read_records(file.path)) == 1, "refused before it is written"
    file.add(made(2, "b", verification="variable"))
    check_curve(read_records(file.path))
    with pytest.raises(MixedVerificationError):
        check_curve([made(1), made(2, verification="off")])


def test_how_an_engine_verifies() -> None:
    assert verification_of(build_engine()) == {"verification": "off", "drafts": 0}
    assert verification_of(build_engine(max_drafts=1)) == {"verification": "fixed", "drafts": 1}
