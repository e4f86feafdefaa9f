"""`deepinfer port new`."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from deepinfer.cli.main import main


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["port", "new", *words])
    return done.exit_code, done.output


def test_it_lists_what_it_wrote_and_what_to_do_next(tmp_path: Path) -> None:
    code, text = run("mine", "rms_norm", "--dir", str(tmp_path / "mine"))
    assert code == 0, text
    assert (tmp_path / "mine" / "src" / "deepinfer_mine" / "norm.py").is_file()
    for file in ("pyproject.toml", "__init__.py", "norm.py", "test_norm_conformance.py"):
        assert f"{file}  (made: " in text
    assert "deepinfer conformance run --backend mine --ops rms_norm --suite quick" in text


def test_an_unknown_op_is_one_message(tmp_path: Path) -> None:
    code, text = run("mine", "rms_nrom", "--dir", str(tmp_path))
    assert code == 2 and "OP: got 'rms_nrom'" in text and "Traceback" not in text
