"""`deepinfer conformance`: what it prints, and how it exits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deepinfer.cli.main import main
from deepinfer.conformance import run, saved
from deepinfer.conformance.case import Case, Finding, Outcome, skip
from deepinfer.conformance.registry import SUITES, Suite, load_suites
from deepinfer.ops import required
from deepinfer.ops.chosen import FAULTS
from deepinfer.ops.required import Requirement
from recordings import edit, first


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPINFER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(saved, "SAVED", saved.Saved())


def invoke(*args: str) -> Result:
    return CliRunner().invoke(main, ["conformance", "run", *args])


def test_one_case_passes_and_leaves_results(tmp_path: Path) -> None:
    done = invoke("--backend", "cpu", "--case", "ops/rms_norm/37 rows", "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1] == "passed 1 of 1 required"
    assert (tmp_path / "out" / "results.jsonl").is_file()


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two suites of one required case each: a failure and a skip."""

    def fails(*_: Any) -> Iterator[Case]:
        yield Case("determinism", "rms_norm", "it's wrong", lambda target: Outcome((Finding("bits", "y[0] differs"),)))

    def skips(*_: Any) -> Iterator[Case]:
        yield Case("faults", "rms_norm", "small", lambda target: skip("unavailable", "no such unit here"))

    load_suites()
    monkeypatch.setitem(SUITES, "determinism", Suite("determinism", "", fails))
    monkeypatch.setitem(SUITES, "faults", Suite("faults", "", skips))
    needs = [Requirement("determinism", "rms_norm", ("it's wrong",)), Requirement("faults", "rms_norm", ("small",))]
    monkeypatch.setattr(required, "requirements", lambda *_: needs)


@pytest.mark.usefixtures("failing")
def test_a_skip_fails_only_where_all_is_required() -> None:
    words = ("--backend", "reference", "--ops", "rms_norm", "--only", "faults")
    done = invoke(*words)
    assert done.exit_code == 0 and done.output.splitlines()[-1] == "passed 0 of 1 required, 1 skipped"
    assert invoke(*words, "--require-all").exit_code == 1


def test_a_model_with_ops_on_fallback_is_named_and_not_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def borrows(*_: Any) -> Iterator[Case]:
        found = Outcome(notes=("41.0% of 10 positions qualify",), borrowed=("embed", "rope"))
        yield Case(
            "model", "tiny", "greedy tokens", lambda target: found if target.fallback else skip("unavailable", "")
        )

    load_suites()
    monkeypatch.setitem(SUITES, "model", Suite("model", "", borrows))
    monkeypatch.setattr(required, "requirements", lambda *_: [Requirement("model", "tiny", ("greedy tokens",))])
    words = ("--backend", "reference", "--only", "model", "--fallback", "reference", "--out", str(tmp_path))
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1] == "passed 0 of 1 required, 1 passed with ops on fallback"
    assert "model/tiny/greedy tokens; 41.0% of 10 positions qualify" in done.output
    assert "on the reference's kernels: embed, rope" in done.output
    assert invoke(*words, "--require-all").exit_code == 1
    assert '"status": "fallback"' in (tmp_path / "results.jsonl").read_text()
    assert invoke(*words[:4]).output.splitlines()[-1] == "passed 0 of 1 required, 1 skipped"
    assert invoke(*words[:4], "--fallback", "other").exit_code == 2


@pytest.mark.usefixtures("failing")
def test_a_failure_says_how_to_run_it_alone_and_exits_with_1() -> None:
    done = invoke("--backend", "reference", "--ops", "rms_norm", "--only", "determinism", "--only", "faults")
    assert done.exit_code == 1
    assert done.output.splitlines()[-1] == "passed 0 of 2 required, 1 failed, 1 skipped"
    assert "FAILED determinism/rms_norm/it's wrong" in done.output and "    bits: y[0] differs" in done.output
    assert "skipped 1: unavailable: no such unit here" in done.output
    assert """--backend reference --suite quick --case 'determinism/rms_norm/it'"'"'s wrong'""" in done.output


def test_a_requirement_that_no_suite_answers_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    load_suites()
    monkeypatch.setitem(SUITES, "faults", Suite("faults", "", lambda tier, ops: iter(())))
    done = invoke("--backend", "reference", "--ops", "rms_norm", "--only", "faults")
    assert done.exit_code == 1 and "FAILED faults/rms_norm/dtype" in done.output
    assert f"passed 0 of {len(FAULTS)} required, {len(FAULTS)} failed" in done.output


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--backend", "nope"), "'nope' is not part of this installation"),
        (("--backend", "reference", "--ops", "rms_norms"), "ops: got 'rms_norms'"),
        (("--backend", "reference", "--only", "speed"), "only: got 'speed'; allowed: "),
        (("--backend", "reference", "--case", "ops/rms_norm/38 rows"), "case: got 'ops/rms_norm/38 rows'"),
        (("--backend", "reference", "--device", "tpu"), "device: got 'tpu'"),
        (("--backend", "reference", "--suite", "ops"), "'quick', 'full', 'deep'"),
        (("--backend", "reference", "--timeout", "0"), "--timeout"),
        ((), "--backend"),
    ],
)
def test_user_errors_exit_with_2_and_one_message(args: tuple[str, ...], says: str) -> None:
    done = invoke(*args)
    assert done.exit_code == 2 and says in done.output and "Traceback" not in done.output


@pytest.mark.usefixtures("failing")
def test_a_run_that_is_broken_off_says_how_far_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any) -> Iterator[Case]:
        def case(target: Any) -> Outcome:
            raise KeyboardInterrupt

        yield Case("faults", "rms_norm", "small", case)

    monkeypatch.setitem(SUITES, "faults", Suite("faults", "", breaks))
    words = ("--backend", "reference", "--ops", "rms_norm", "--only", "determinism", "--only", "faults")
    done = invoke(*words, "--out", str(tmp_path / "out"))
    assert done.exit_code == 130
    assert "interrupted after 1 of 2 cases, 1 failed; no verdict" in done.output
    assert f"results so far: {tmp_path / 'out' / 'results.jsonl'}" in done.output


def test_wrappers_are_named_for_the_ops_of_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(run, "wrappers", lambda backend, ops=(): asked.append(ops) or [])
    assert invoke("--backend", "reference", "--case", "ops/rms_norm/0 rows").exit_code == 0
    assert asked == [("rms_norm",)]


def test_every_line_of_a_finding_is_indented(monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: Any) -> Iterator[Case]:
        yield Case("faults", "rms_norm", "x", lambda target: Outcome((Finding("crash", "ended\nFile 1\nFile 2"),)))

    load_suites()
    monkeypatch.setitem(SUITES, "faults", Suite("faults", "", dies))
    done = invoke("--backend", "reference", "--ops", "rms_norm", "--only", "faults")
    assert "\n    crash: ended\n    File 1\n    File 2\n    to run it alone: deepinfer conformance run" in done.output


def test_list_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "run_case", None)
    done = invoke("--backend", "reference", "--ops", "rms_norm", "--only", "ops", "--list")
    assert done.exit_code == 0, done.output
    assert "ops/rms_norm/37 rows\n" in done.output and done.output.startswith("ops: ")


def test_help_names_every_option_and_the_exit_statuses() -> None:
    done = invoke("--help")
    for word in ("--backend", "--device", "--ops", "--suite", "--only", "--case", "--out", "--isolate", "--list"):
        assert word in done.output
    assert "Exit status: 0" in done.output and "passed N of M required" in " ".join(done.output.split())


def test_a_recording_is_made(tmp_path: Path) -> None:
    words = ["conformance", "record", str(tmp_path / "kept"), "--backend", "reference", "--ops", "rms_norm"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert " calls of 1 ops on " in done.output
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["outputs.safetensors", "recording.json"]
    assert CliRunner().invoke(main, [*words[:-1], "no_such"]).exit_code == 2


def test_recordings_are_compared(tmp_path: Path) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    for folder in (a, b):
        words = ["conformance", "record", folder, "--backend", "reference", "--ops", "moe_pack", "--commit", "abc"]
        assert CliRunner().invoke(main, words).exit_code == 0
    words = ["conformance", "compare", a, b, "--oracle", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert "commit abc" in done.output and "same" in done.output
    assert done.output.splitlines()[-1] == f"comparison: {tmp_path / 'out' / 'comparison.jsonl'}"
    edit(tmp_path / "b", lambda facts: first(facts, "moe_pack")[1]["outputs"][0].update(digest="0" * 64))
    done = CliRunner().invoke(main, words[:4])
    assert done.exit_code == 1 and "OUTSIDE bits: moe_pack, " in done.output
    assert done.output.splitlines()[-1].endswith(" 0 within their class, 1 outside")
    (tmp_path / "b" / "recording.json").write_text("{")
    done = CliRunner().invoke(main, words[:4])
    assert done.exit_code == 2 and "damaged: no JSON" in done.output and "Traceback" not in done.output
