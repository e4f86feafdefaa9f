"""The command group: lazy subcommands, user errors, and errors that are ours."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from deepinfer.cli import main as cli
from deepinfer.hal.errors import InvalidArgumentError


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception]:
    """A subcommand `probe` that raises what the test puts in."""
    raises: dict[str, Exception] = {}

    @click.command()
    def command() -> None:
        if raises:
            raise raises["error"]
        click.echo("ran")

    module = type(sys)("deepinfer.cli.probe")
    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "deepinfer.cli.probe", module)
    monkeypatch.setitem(cli.SUBCOMMANDS, "probe", "A probe.")
    return raises


@pytest.mark.parametrize("name", sorted(cli.SUBCOMMANDS))
def test_every_subcommand_has_a_module_and_help(name: str) -> None:
    result = CliRunner().invoke(cli.main, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage: " in result.output


def test_help_lists_the_subcommands_and_loads_none(probe: dict[str, Exception]) -> None:
    before = set(sys.modules)
    result = CliRunner().invoke(cli.main, ["--help"])
    assert result.exit_code == 0
    for name, meaning in cli.SUBCOMMANDS.items():
        assert name in result.output
        assert meaning.split()[0] in result.output
    assert not {name for name in set(sys.modules) - before if name.startswith("deepinfer.cli.")}


def test_a_subcommand_runs(probe: dict[str, Exception]) -> None:
    result = CliRunner().invoke(cli.main, ["probe"])
    assert (result.exit_code, result.output) == (0, "ran\n")


def test_a_warning_of_the_package_is_one_line_and_others_are_as_python_shows_them() -> None:
    code = (
        "import warnings; from deepinfer.cli import main as cli; from deepinfer.hal import env\n"
        "try: cli.main(['env', '--set'])\n"
        "except SystemExit: pass\n"
        "warnings.warn('ours', env.UnknownVariableWarning); warnings.warn('of others', UserWarning)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr.startswith("Warning: ours\n")
    assert "UserWarning: of others" in run.stderr


def test_a_user_error_is_one_message_and_exit_status_2(probe: dict[str, Exception]) -> None:
    probe["error"] = InvalidArgumentError("top_p", 1.5, "0 < top_p <= 1")
    result = CliRunner().invoke(cli.main, ["probe"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == "Error: top_p: got 1.5; allowed: 0 < top_p <= 1\n"


def test_an_error_of_ours_is_not_hidden(probe: dict[str, Exception]) -> None:
    probe["error"] = ZeroDivisionError("a defect")
    result = CliRunner().invoke(cli.main, ["probe"])
    assert isinstance(result.exception, ZeroDivisionError)


@pytest.mark.parametrize(("given", "want"), [(None, "passive"), ("active", "active")])
def test_idle_threads_wait_passively_unless_told_otherwise(
    probe: dict[str, Exception], monkeypatch: pytest.MonkeyPatch, given: str | None, want: str
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    CliRunner().invoke(cli.main, ["probe"])
    assert os.environ["OMP_WAIT_POLICY"] == want


def test_an_unknown_subcommand_is_refused() -> None:
    done = subprocess.run([sys.executable, "-m", "deepinfer", "generat"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "generat" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_of_the_operating_system_is_a_message(probe: dict[str, Exception]) -> None:
    probe["error"] = OSError(28, "No space left on device")
    result = CliRunner().invoke(cli.main, ["probe"])
    assert result.exit_code == 2 and "No space left on device" in result.stderr
    assert isinstance(result.exception, SystemExit)


def test_a_closed_pipe_is_not_a_message(probe: dict[str, Exception]) -> None:
    probe["error"] = BrokenPipeError(32, "Broken pipe")
    result = CliRunner().invoke(cli.main, ["probe"])
    assert result.exit_code == 1 and not result.stderr


def test_characters_that_the_terminal_lacks_are_escaped() -> None:
    program = (
        "import sys, types, click; from deepinfer.cli import main as cli; m = types.ModuleType('x');"
        "m.command = click.Command('p', callback=lambda: click.echo('\\ufffd\\ud800'));"
        "sys.modules['deepinfer.cli.p'] = m; cli.SUBCOMMANDS['p'] = ''; cli.main(['p'])"
    )
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, timeout=60, check=True)
    assert done.stdout == b"\\ufffd\\ud800\n"
