"""`deepinfer port`: start a kernel of your own."""

from __future__ import annotations

from pathlib import Path

import click


@click.group("port")
def command() -> None:
    """Write the files that a new kernel starts from."""


@command.command("new", short_help="Scaffold kernel, registration and test of one op.")
@click.argument("backend")
@click.argument("op")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of a project of its own (made or added to). Without it the files go into this repository.",
)
def new_command(backend: str, op: str, directory: Path | None) -> None:
    """Write the kernel of OP for BACKEND, its registration and its test.

    BACKEND is a new name or a backend that exists; OP is one of `deepinfer ops list`. Files that exist are added to,
    never overwritten. The kernel raises until you write it; docs/porting.md leads through it.
    """
    from .. import ops  # noqa: F401 - defines the specs
    from ..conformance import port
    from ..hal.catalog import CATALOG
    from ..hal.errors import InvalidArgumentError

    root = port.repository()
    if directory is None and root is None:
        raise InvalidArgumentError("--dir", None, "a folder: this is an installed package, not the repository")
    place = port.inside(root, backend) if directory is None and root else port.outside(Path(directory or "."), backend)
    for written in port.new(backend, op, place):
        click.echo(f"{_shown(written.path)}  ({written.what})")
    click.echo("\nNext:")
    for number, step in enumerate(port.next_steps(backend, op, place, CATALOG.entries().__contains__), 1):
        click.echo(f"  {number}. {step}")


def _shown(path: Path) -> Path:
    """A path from the working directory, where that is shorter."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
