"""Records of benchmarks: one JSON object per run, in files of lines that can be gone on with."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...hal import env
from ...hal.errors import DeepInferError, InvalidArgumentError
from ..engine import LLMEngine
from .measure import ACCOUNTING, AccountingError

KIND, VERSION = "deepinfer-bench", 1
_BEGIN = f'{{"kind":"{KIND}",'
VERIFICATIONS = ("off", "fixed", "variable")


class RecordError(DeepInferError):
    """A file of records that cannot be used. Names the file and the line."""

    def __init__(self, path: Path, line: int, what: str) -> None:
        self.path, self.line, self.what = path, line, what
        super().__init__(f"{path}, line {line}: {what}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.path, self.line, self.what))


class MixedVerificationError(DeepInferError):
    """One curve would hold runs with different verification of drafts, which are no points of one curve.

    With a fixed number of verified drafts every step of a sample has as many rows; with a variable one the scheduler
    takes rows from some for others, and throughput is bought with other samples' speed.
    """

    def __init__(self, curve: str, found: Iterable[str]) -> None:
        self.curve, self.found = curve, sorted(found)
        super().__init__(
            f"curve {curve!r} would mix verification {' and '.join(self.found)}: give the runs different labels, or "
            "different files"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.curve, self.found))


def verification_of(engine: LLMEngine) -> dict[str, Any]:
    """How an engine verifies drafts: off, a fixed number of them, or a variable one."""
    drafts = engine.config.limits.max_drafts
    variable = bool(drafts) and bool(env.get("DEEPINFER_ENABLE_MTP_VARLEN"))
    return {"verification": "variable" if variable else "fixed" if drafts else "off", "drafts": drafts}


def record(
    *,
    mode: str,
    label: str,
    system: Mapping[str, Any],
    workload: Mapping[str, Any],
    verification: Mapping[str, Any],
    warmup: int,
    results: Mapping[str, Any],
    point: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A record. `point` is what a sweep varied, with its value; `key` names the run, `curve` all but the point."""
    curve = {
        "mode": mode,
        "label": label,
        "system": dict(system),
        "workload": dict(workload),
        "verification": dict(verification),
        "warmup": {"requests": warmup, "counted": False},
    }
    return {
        "kind": KIND,
        "version": VERSION,
        **curve,
        "point": dict(point or {}),
        "curve": _digest(curve),
        "key": _digest({**curve, "point": dict(point or {})}),
        "accounting": ACCOUNTING,
        "results": dict(results),
    }


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def read_records(path: str | Path) -> list[dict[str, Any]]:
    """The records of a file. A last line without an end is what a killed run left, and is passed over.

    Raises:
        RecordError: it cannot be read, or a line is no record.
        AccountingError: a record counts something else than committed tokens as output.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(path, 1, f"cannot be read: {error}") from None
    cut = min(len(lines[-1]), len(_BEGIN))
    if lines[-1][:cut] != _BEGIN[:cut]:  # nothing of ours: adding to it would destroy it
        raise RecordError(path, len(lines), "this is no record of a benchmark")
    return [_checked(path, number, line) for number, line in enumerate(lines[:-1], 1) if line.strip()]


def _checked(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        one = json.loads(line)
    except ValueError:
        raise RecordError(path, number, "not JSON") from None
    if not isinstance(one, dict) or one.get("kind") != KIND:
        raise RecordError(path, number, "this is no record of a benchmark")
    if one.get("version") != VERSION:
        raise RecordError(path, number, f"version {one.get('version')!r}; this release reads version {VERSION}")
    for name in ("label", "key", "curve"):
        if not isinstance(one.get(name), str):
            raise RecordError(path, number, f"it has no {name}")
    for name in ("results", "accounting", "verification", "point"):
        if not isinstance(one.get(name), dict):
            raise RecordError(path, number, f"it has no {name}")
    if one["verification"].get("verification") not in VERIFICATIONS:
        raise RecordError(path, number, f"verification is none of {', '.join(VERIFICATIONS)}")
    counts = one["accounting"].get("output_tokens")
    if counts != ACCOUNTING["output_tokens"]:
        raise AccountingError(
            f"{path}, line {number}: it counts {counts!r} tokens as output; only committed ones are: drafts are none "
            "unless they were accepted"
        )
    return one


def check_curve(records: Sequence[Mapping[str, Any]]) -> None:
    """Raises MixedVerificationError if records of one label differ in how drafts were verified."""
    found: dict[str, set[str]] = {}
    for one in records:
        found.setdefault(one["label"], set()).add(one["verification"]["verification"])
    for label, kinds in found.items():
        if len(kinds) > 1:
            raise MixedVerificationError(label, kinds)


class RecordFile:
    """A file of records that a run adds to, and that can be gone on with after it was killed.

    Args:
        path: made when the first record is written.

    Raises:
        RecordError, AccountingError: a file that exists is none of ours.
        InvalidArgumentError: there is no such directory.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.records = read_records(self.path) if self.path.exists() else []
        if not self.path.parent.is_dir():  # told before a run, not behind it
            raise InvalidArgumentError("--out", str(path), "a file in a directory that exists")

    def has(self, key: str) -> bool:
        """Whether the run of this key is in it."""
        return any(one["key"] == key for one in self.records)

    def add(self, one: dict[str, Any]) -> None:
        """Write a record at once, behind the last whole line.

        Raises:
            MixedVerificationError: the file has runs of this label with another verification.
            InvalidArgumentError: the file cannot be written.
        """
        check_curve([*self.records, one])
        try:
            with open(self.path, "a+b") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(0, end - (1 << 24)))
                tail = file.read()
                file.truncate(end - (len(tail) - tail.rfind(b"\n") - 1))
                file.write(json.dumps(one, separators=(",", ":")).encode() + b"\n")
                file.flush()
        except OSError as error:
            raise InvalidArgumentError(
                "--out", str(self.path), f"a file that can be written ({error.strerror})"
            ) from None
        self.records.append(one)
