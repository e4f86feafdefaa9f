"""The command group: finds subcommands without importing them, and turns user errors into exit code 2.

A subcommand `deepinfer NAME` is the click command called `command` in `deepinfer.cli.NAME`. Its module is imported
when the subcommand is called, so that `deepinfer --help` and `deepinfer --version` load no torch.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from importlib import import_module
from typing import Any

import click

from .. import __version__

# name -> what `deepinfer --help` says of it
SUBCOMMANDS = {
    "generate": "Generate text from a prompt.",
    "checkpoint": "Make and inspect checkpoint directories.",
    "ops": "The op contract: list, show, support status, and why a kernel was chosen.",
    "port": "Start a kernel of your own: scaffold kernel, registration and test.",
    "conformance": "Judge a backend by the op contract.",
    "build": "Compile kernels ahead of time: CUDA, or AscendC texts and images.",
    "ascend": "AscendC kernels without a device: their text, and a run on the simulator.",
    "bench": "Measure an engine: throughput, latency, sweeps, Pareto plots.",
    "top": "Watch an engine that serves metrics.",
    "replay": "Plan the steps of a recorded run again, without a device.",
    "recipe": "Requests as prompts and token ids, output as responses; a page to try them.",
    "env": "The environment variables, their meanings, defaults and present values.",
}


class UserError(click.ClickException):
    """A typed error of the package, shown as one message on stderr."""

    exit_code = 2


class LazyGroup(click.Group):
    """A group whose subcommands live in modules of their own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return None
        command = import_module(f".{cmd_name}", __package__).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(SUBCOMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            # A full disk, a directory that may not be written. A closed pipe is nobody's error: click ends quietly.
            if error.errno == errno.EPIPE:
                raise
            raise UserError(str(error)) from error
        except Exception as error:
            if _is_user_error(error):
                raise UserError(str(error)) from error
            raise


_format_warning = warnings.formatwarning


def _plain_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning of the package without the line of code that gave it; others as Python shows them."""
    if category.__module__.startswith("deepinfer."):
        return f"Warning: {message}\n"
    return _format_warning(message, category, filename, lineno, line)


def _is_user_error(error: Exception) -> bool:
    from ..hal.errors import DeepInferError

    return isinstance(error, DeepInferError)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="'deepinfer COMMAND --help' describes a command. Errors you can act on end with exit status 2.",
)
@click.version_option(__version__, "--version", prog_name="deepinfer", message="%(prog)s %(version)s")
def main() -> None:
    """Run DeepSeek-V4.1-Flash through a versioned op contract.

    \b
    deepinfer generate "Once upon a time"              the embedded checkpoint, made on first use
    deepinfer generate --model PATH_OR_ID "A prompt"   a Hugging Face directory or hub id
    """
    # Read by OpenMP when torch is loaded. By default its idle threads spin, and on a busy machine small ops then take
    # ten times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    warnings.formatwarning = _plain_warning
    # What a model writes, or a broken file is named after, need not have characters of the terminal's encoding.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
