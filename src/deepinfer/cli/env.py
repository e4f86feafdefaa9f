"""`deepinfer env`: the environment variables, their meanings, defaults and present values."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import click


@click.command("env")
@click.argument("names", nargs=-1)
@click.option("--set", "only_set", is_flag=True, help="Only the variables that are set.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.option("--check", "check", is_flag=True, help="Only check what is set; exit status 2 when something is wrong.")
def command(names: tuple[str, ...], only_set: bool, as_json: bool, check: bool) -> None:
    """Describe the environment variables, all or those in NAMES (the prefix DEEPINFER_ may be left out)."""
    from ..hal import env
    from ..hal.env_types import PREFIX

    if check:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", env.UnknownVariableWarning)
            messages = env.check()
        for message in messages:
            click.echo(message, err=True)
        click.echo("the environment is in order" if not messages else "nothing is refused")
        return
    wanted = {env.variable(n if n.startswith(PREFIX) else PREFIX + n).name for n in (name.upper() for name in names)}
    rows = [
        row
        for row in env.describe()
        if (not wanted or row["name"] in wanted) and (not only_set or row["set"] is not None)
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=1, default=str))
        return
    for row in rows:
        click.echo(_entry(row))


def _entry(row: dict[str, Any]) -> str:
    value = "" if row["set"] is None else f"   now {row['set']!r}"
    state = "" if row["brought_by"] is None else f" Refused until there is: {row['brought_by']}."
    text = f"{row['doc']} Allowed: {row['allowed']}.{state}"
    head = f"{row['name']} = {row['default']} ({row['type']}){value}"
    return head + "\n" + textwrap.fill(text, 100, initial_indent="    ", subsequent_indent="    ")
