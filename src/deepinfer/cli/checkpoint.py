"""`deepinfer checkpoint`: make and inspect checkpoint directories."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.group("checkpoint")
def command() -> None:
    """Make and inspect checkpoint directories."""


@command.command("inspect", short_help="Check a checkpoint directory and say what is in it.")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--headers-only", is_flag=True, help="Do not read tensor data to look for values that are not finite.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def inspect_command(directory: Path, headers_only: bool, as_json: bool) -> None:
    """Describe the checkpoint in DIRECTORY and list what is wrong with it.

    Prints layer roles, tensors, dtypes and sizes. Exit status 2 when the checkpoint cannot be used.
    """
    from tqdm import tqdm

    from ..model.inspect import inspect
    from ..model.report import CheckpointReportError

    with tqdm(unit="B", unit_scale=True, desc="values", leave=False, disable=None) as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        result = inspect(directory, values=not headers_only, progress=advance)
    click.echo(json.dumps(result.to_json(), indent=1) if as_json else result.render())
    if result.findings:
        raise CheckpointReportError(str(directory), result.findings)


@command.command("make", short_help="Write a small random model in the released format.")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--preset", default="tiny", show_default=True, help="tiny or kernel.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random weights.")
@click.option("--shards", type=int, default=2, show_default=True, help="Number of safetensors files.")
@click.option("--force", is_flag=True, help="Write into a directory that is not empty.")
def make_command(directory: Path, preset: str, seed: int, shards: int, force: bool) -> None:
    """Write a small random model in the released format, tokenizer included, to DIRECTORY.

    The same preset, seed and number of shards give the same bytes.
    """
    from tqdm import tqdm

    from ..model.presets import make_checkpoint

    with tqdm(unit=" tensors", desc=preset, leave=False, disable=None) as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        made = make_checkpoint(preset, seed, directory, progress=advance, shards=shards, force=force)
    click.echo(f"{made}: preset {preset}, seed {seed}, {sum(f.stat().st_size for f in made.iterdir()):,} bytes")
