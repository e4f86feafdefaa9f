from pathlib import Path

from click.testing import CliRunner

from deepinfer.cli.main import main


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["checkpoint", "make", *arguments])
    return result.exit_code, result.output


def test_make_writes_and_reports(tmp_path: Path) -> None:
    code, output = run("--preset", "tiny", "--seed", "3", "--shards", "3", str(tmp_path / "new"))
    assert code == 0, output
    assert "preset tiny, seed 3" in output and str(tmp_path / "new") in output
    assert len(list((tmp_path / "new").glob("*.safetensors"))) == 3


def test_full_directory_is_refused_without_force(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    code, output = run(str(tmp_path))
    assert code == 2 and "--force" in output and "Traceback" not in output
    assert [file.name for file in tmp_path.iterdir()] == ["precious.txt"]
    assert run("--force", str(tmp_path))[0] == 0


def test_unknown_preset_names_the_known_ones(tmp_path: Path) -> None:
    code, output = run("--preset", "large", str(tmp_path / "new"))
    assert code == 2 and "tiny, kernel" in output
    assert not (tmp_path / "new").exists()


def test_negative_seed_and_no_shards_are_refused(tmp_path: Path) -> None:
    assert run("--seed=-1", str(tmp_path / "new"))[0] == 2
    assert run("--shards", "0", str(tmp_path / "new"))[0] == 2
