"""`deepinfer build`: which backend a chip belongs to, and what is said of kernels for Ascend; with fake tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from deepinfer.backends.ascend import ahead, program
from deepinfer.backends.ascend.sim import build
from deepinfer.cli.main import main

OK = '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho image >"$2"\n'
REFUSES = "#!/bin/sh\necho 'kernel.asc:3: error: no such call' >&2\nexit 1\n"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One program of TileLang, and one by hand; no compiler."""
    known = {p.label: p for p in ahead.programs()}
    hand = next(p for p in known.values() if p.written)
    monkeypatch.setattr(ahead, "programs", lambda: [known["self_test"], hand])
    monkeypatch.setenv("BISHENG_HOME", "/nowhere")


def tools(folder: Path, monkeypatch: pytest.MonkeyPatch, compiler: str) -> None:
    """A folder with a compiler and a linker, named in BISHENG_HOME."""
    (folder / "bin").mkdir()
    for name, text in (("bisheng", compiler), ("ld.lld", OK)):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("BISHENG_HOME", str(folder))


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["build", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_texts_are_written_where_there_is_no_compiler(tmp_path: Path) -> None:
    status, said, _ = invoke("--arch", "dav-3510", "--out", str(tmp_path / "texts"))
    assert status == 0 and "2 of 2 texts for dav-3510" in said and "1 kept, 1 by hand" in said and "no bisheng" in said
    known = program.Program("self_test_kernels.py", "self_test")
    written = sorted(path.name for path in (tmp_path / "texts").iterdir())
    assert len(written) == 2 and "self_test.cpp" in written
    assert (tmp_path / "texts" / "self_test.cpp").read_text() == known.committed.read_text()


def test_texts_go_to_the_cache_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "cache_root", lambda: tmp_path / "ascend")
    assert invoke("--arch", "dav-3510")[0] == 0
    assert (tmp_path / "ascend" / "dav-3510" / "self_test.cpp").is_file()


def test_images_are_compiled_where_bisheng_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools(tmp_path, monkeypatch, OK)
    status, said, _ = invoke("--arch", "dav-3510", "--out", str(tmp_path / "made"), "--json")
    found = json.loads(said)
    assert status == 0 and [one["error"] for one in found] == ["", ""]
    assert all(Path(one["image"]).read_text() == "image\n" and Path(one["text"]).is_file() for one in found)
    assert not list((tmp_path / "made").glob("*.o"))


def test_a_kernel_that_the_compiler_refuses_is_named_and_keeps_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools(tmp_path, monkeypatch, REFUSES)
    status, said, _ = invoke("--arch", "dav-3510", "--out", str(tmp_path / "made"))
    assert status == 1 and said.count("no such call") == 2 and "self_test: " in said and "0 images" in said


def test_check_lowers_anew_and_tells_a_text_that_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = program.Program("self_test_kernels.py", "self_test").committed.read_text()
    out = ("--arch", "dav-3510", "--out", str(tmp_path), "--check")
    monkeypatch.setattr(program.Program, "lowered", lambda self: kept)
    status, said, _ = invoke(*out)
    assert status == 0 and "self_test: lowered in" in said and "differs" not in said
    monkeypatch.setattr(program.Program, "lowered", lambda self: kept + "// newer\n")
    status, said, _ = invoke(*out)
    assert status == 1 and "self_test: lowered in" in said and "differs from the text of the package" in said
    assert (tmp_path / "self_test.cpp").read_text().endswith("// newer\n"), "the new text is there to be compared"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--arch", "sm_70"), ["arch", "sm_70", "sm_90, sm_100, dav-3510"]),
        (("--arch", "sm_90,dav-3510"), ["arch", "dav-3510 alone"]),
        (("--check",), ["check", "--arch dav-3510 only"]),
        (("--out", "x"), ["out", "--arch dav-3510 only"]),
        (("--arch", "dav-3510", "--op", "nothing"), ["op", "nothing", "rms_norm"]),
    ],
)
def test_a_wrong_argument_is_one_message(arguments: tuple[str, ...], words: list[str]) -> None:
    status, said, complaint = invoke(*arguments)
    assert status == 2 and not said and all(word in complaint for word in words) and "Traceback" not in complaint


def test_an_op_chooses_the_programs_of_its_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    labels = [p.label for p in ahead.chosen(["rms_norm", "rope"])]
    assert len(labels) >= 2 and all(label.startswith(("rms_norm", "rope")) for label in labels)


def test_help_names_the_chips() -> None:
    status, said, _ = invoke("--help")
    assert status == 0 and "dav-3510 (Ascend 950)" in " ".join(said.split()) and "bisheng" in said
