"""Reports: what is read, what a matrix makes of it, the page and its lines, the table of the README."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from deepinfer.cli.main import main
from deepinfer.conformance import report
from deepinfer.conformance.evidence import CaseResult, EvidenceError, Run, gather, of_results
from deepinfer.conformance.matrix import Matrix, matrix
from deepinfer.conformance.page import page
from deepinfer.conformance.results import FILE, FORMAT, KIND
from deepinfer.conformance.support import renewed, support
from deepinfer.hal.catalog import Catalog, PluginWarning
from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.ops.spec import SPECS
from recordings import edit

HEAD = {
    "record": "header",
    "format": FORMAT,
    "kind": KIND,
    "backend": "cuda",
    "level": "device",
    "tier": "quick",
    "capability": {"name": "Chip <9>"},
    "started": "2026-11-30T20:00:00+00:00",
    "torch": "2",
    "python": "3",
}


def line(name: str, status: str = "passed", worst: float | None = None, **more: Any) -> dict[str, Any]:
    empty = {"findings": [], "skipped": "", "notes": []}
    return {"record": "case", "id": name, "status": status, "seconds": 0.5, "worst": worst, **empty, **more}


LINES = [
    line("ops/rms_norm/a/b", worst=0.3),
    line("ops/rms_norm/c", "failed", 7.0, findings=[{"check": "limit", "message": "y[0]: <script>alert(1)</script>"}]),
    line("invariance/rms_norm/a", "skipped", skipped="declared unsupported: no & never"),
    line("model/tiny/greedy tokens", "fallback", notes=["12 % qualify"]),
]


def results(folder: Path, *lines: Any, end: str = "\n") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / FILE).write_text("\n".join(json.dumps(each) for each in lines) + end)
    return folder


@pytest.fixture
def found(tmp_path: Path) -> Matrix:
    runs = gather([results(tmp_path / "run", HEAD, *LINES, {"record": "verdict"})])
    sim = Run("ascend", "simulated", "CPU", "", "", (), frozenset({"rope"}))
    kernels = {"reference": list(SPECS), "cuda": ["rms_norm", "rope"], "ascend": ["rms_norm"]}
    checked = {"reference": ["reference"], "cuda": ["cross-compiled", "interpreted"], "ascend": ["lowered"]}
    return matrix([*runs, sim], kernels, checked)


def test_levels_are_those_reached_and_the_furthest_counts(found: Matrix) -> None:
    assert found.cells["rms_norm", "cuda"].levels == ("cross-compiled", "interpreted", "run on Chip <9>")
    assert found.cells["rms_norm", "cuda"].level == "device"
    assert found.cells["rope", "cuda"].levels == ("cross-compiled", "interpreted")
    assert found.cells["rope", "ascend"].levels == ("simulated",)
    assert found.cells["quant_fp8", "cuda"].levels == ("specified",)
    assert found.counts("cuda") == {"specified": len(SPECS) - 2, "interpreted": 1, "device": 1}
    assert found.counts("reference") == {"reference": len(SPECS)}


def test_cases_are_counted_by_suite_and_by_share(found: Matrix) -> None:
    cell = found.cells["rms_norm", "cuda"]
    assert cell.cases[0].label == "a/b" and cell.cases[0].id == "ops/rms_norm/a/b"
    assert cell.suites()["ops"] == {"passed": 1, "failed": 1, "skipped": 0, "fallback": 0, "seconds": 1.0}
    assert cell.suites()["invariance"]["skipped"] == 1
    assert cell.histogram() == [0, 0, 0, 0, 0, 1, 0, 0, 1] and [c.label for c in cell.worst()] == ["c", "a/b"]
    assert [case.id for case in found.whole["cuda"]] == ["model/tiny/greedy tokens"]


def test_a_case_that_only_was_skipped_proves_no_level(tmp_path: Path) -> None:
    (run,) = gather([results(tmp_path, HEAD, LINES[2])])
    assert not run.ops and not run.whole


def test_shares_at_an_edge_belong_to_it() -> None:
    cases = tuple(CaseResult("ops", "rope", "x", "passed", 0.0, worst) for worst in (0.0, 1.0, 1.0001, 0.5))
    run = Run("cuda", "device", "X", "", "", cases, frozenset({"rope"}))
    assert matrix([run], {}, {}).cells["rope", "cuda"].histogram() == [1, 0, 0, 0, 0, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("checked", "got"),
    [(["lowered", "moon"], "'moon'"), ("simulated", "'simulated'"), (None, "None"), ([["device"]], r"\['device'\]")],
)
def test_a_backend_that_is_checked_at_no_level_is_named(checked: Any, got: str) -> None:
    said = f"checked of backend 'acme': got {got}; allowed: a list of any of specified, reference, .*, device$"
    with pytest.raises(InvalidArgumentError, match=said):
        matrix([], {"acme": ["rope"]}, {"acme": checked})


def test_a_recording_of_no_level_is_refused(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[1] / "recordings" / "h200", tmp_path / "x")
    edit(tmp_path / "x", lambda facts: facts.update(level="moon"))
    with pytest.raises(EvidenceError, match="has level 'moon'; allowed: specified, .*, device"):
        gather([tmp_path / "x"])


def test_backends_of_plug_ins_are_listed_and_refused_ones_named(mutant: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    broken = tmp_path / "site" / "broken-1.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (broken / "entry_points.txt").write_text("[deepinfer.backends]\nbroken = no_such_module:backend\n")
    mutant.setattr(report, "CATALOG", Catalog())
    for _ in range(2):  # a plug-in's kernels are registered once
        with pytest.warns(PluginWarning, match="not in the report: 'broken' .* of broken.* is refused: import failed"):
            made = report.of_installed([])
        assert made.backends == ("reference", "cuda", "ascend", "mutant")
        assert made.cells["rope", "mutant"].level == "specified"
    assert report.of_installed([], report.IN_TREE).backends == report.IN_TREE


def test_a_plug_in_stands_at_the_levels_of_its_own_tests(mutant: pytest.MonkeyPatch) -> None:
    mutant.setattr(report, "CATALOG", Catalog())
    backend = report.CATALOG.get("mutant")
    mutant.setattr(type(backend), "checked", ("interpreted",))
    assert report.of_installed([], ["mutant"]).counts("mutant") == {"specified": len(SPECS) - 1, "interpreted": 1}
    mutant.setattr(type(backend), "checked", ("moon",))
    done = CliRunner().invoke(main, ["conformance", "report"])
    assert done.exit_code == 2 and "checked of backend 'mutant': got 'moon'; allowed: " in done.output


def test_every_line_of_the_report_is_json(found: Matrix) -> None:
    lines = [json.loads(json.dumps(each, allow_nan=False)) for each in found.records()]
    assert lines[0]["kind"] == "deepinfer conformance report" and lines[0]["format"] == 1
    cells = [each for each in lines if each["record"] == "cell"]
    assert len(cells) == 3 * len(SPECS)
    assert {each["record"] for each in lines} == {"header", "run", "cell", "case"}


class Elements(HTMLParser):
    """Tags that are open, and attributes that would load something."""

    VOID = ("meta", "input", "rect", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "srcset", "data")]
        self.loads += [tag] * (tag in ("link", "iframe", "img", "object"))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


def test_the_page_is_whole_escaped_and_loads_nothing(found: Matrix) -> None:
    text = page(found, "now")
    parsed = Elements()
    parsed.feed(text)
    parsed.close()
    assert not parsed.open and not parsed.loads
    assert "url(" not in text and "@import" not in text and "fetch(" not in text and "http" not in text
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)" in text and "Chip &lt;9&gt;" in text
    assert "no &amp; never" in text and "12 % qualify" in text and "1/2 ✗" in text
    assert all(f'data-op="{op}"' in text for op in SPECS)


@pytest.mark.parametrize(
    ("lines", "end", "said"),
    [
        ((), "", "first line must say"),
        (({"record": "header"},), "\n", "first line must say"),
        (({**HEAD, "format": 9},), "\n", f"format 9; this version reads {FORMAT}"),
        (({**HEAD, "level": "moon"},), "\n", "has level 'moon'; allowed: specified, "),
        (({**HEAD, "capability": None},), "\n", "is damaged"),
        ((HEAD, [1]), "\n", "line 2 is no record"),
        ((HEAD, line("no-slash")), "\n", "is damaged"),
        ((HEAD, line("a/b/c", "odd")), "\n", "status 'odd'"),
        ((HEAD, {"record": "case"}), "\n", "is damaged"),
        ((HEAD,), "\n{half\n", "line 2 is no JSON"),
    ],
)
def test_what_are_no_results_is_refused(tmp_path: Path, lines: tuple[Any, ...], end: str, said: str) -> None:
    with pytest.raises(EvidenceError, match=said):
        of_results(results(tmp_path / "x", *lines, end=end) / FILE)


def test_a_run_that_was_killed_while_it_wrote_is_read_up_to_there(tmp_path: Path) -> None:
    run = of_results(results(tmp_path / "x", HEAD, *LINES, end='\n{"record": "ca') / FILE)
    assert len(run.cases) == len(LINES) and not run.whole


def test_a_folder_of_neither_kind_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["conformance", "report", str(tmp_path)])
    assert done.exit_code == 2 and "has neither results.jsonl nor recording.json" in done.output


def test_the_table_has_a_row_per_family(found: Matrix) -> None:
    rows = support(found).splitlines()
    assert "| norm | 1 | reference | run on Chip <9> | lowered |" in rows
    assert rows[-1].startswith(f"| all | {len(SPECS)} | reference | {len(SPECS) - 2} specified, ")
    with pytest.raises(EvidenceError, match="no lines"):
        renewed("a page", "a table")


def test_the_readme_and_the_terminal_say_what_is_registered_and_recorded(tmp_path: Path) -> None:
    """`python -m deepinfer.conformance.support README.md tests/recordings/*/`"""
    pytest.importorskip("triton")
    root = Path(__file__).parents[2]
    kept = sorted(path.parent for path in (root / "tests" / "recordings").glob("*/recording.json"))
    files = ["--html", str(tmp_path / "out" / "x.html"), "--jsonl", str(tmp_path / "out" / "x.jsonl")]
    done = CliRunner().invoke(main, ["conformance", "report", *map(str, kept), *files])
    assert done.exit_code == 0, done.output
    last = dict(re.findall(r"^(\w+): (.*)$", done.output, flags=re.MULTILINE))
    assert last["reference"] == f"{len(SPECS)} reference" and "device" in last["cuda"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["x.html", "x.jsonl"]
    text = (root / "README.md").read_text(encoding="utf-8")
    assert renewed(text, support(report.of_installed(kept, report.IN_TREE))) == text
