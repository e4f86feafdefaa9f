"""The `DEEPINFER_*` environment variables: typed, read once, checked.

`get("DEEPINFER_X")` parses a variable at its first use and keeps the value; `rearm` allows another read. `check` is
called once at the start of a program: it parses everything that is set, refuses what would have no effect, and warns
of names it does not know.
"""

from __future__ import annotations

import difflib
import os
import threading
import warnings
from collections.abc import Mapping
from typing import Any

from .env_table import VARIABLES
from .env_types import PREFIX, Variable
from .errors import InvalidArgumentError, NotSupportedError

_lock = threading.RLock()
_values: dict[str, Any] = {}
_defaults: dict[str, Any] = {}


class UnknownVariableWarning(UserWarning):
    """A `DEEPINFER_*` variable is set that nothing reads."""


def variable(name: str) -> Variable:
    """The record of a variable by its full name.

    Raises:
        InvalidArgumentError: no such variable; names a close one where there is one.
    """
    try:
        return VARIABLES[name]
    except KeyError:
        raise InvalidArgumentError("environment variable", name, f"a known name; {_closest(name)}") from None


def get(name: str) -> Any:
    """The value of a variable: the parsed text where it is set, else its default. Read once, then cached.

    Raises:
        InvalidArgumentError: unknown name, or a text that does not parse; names the variable.
    """
    with _lock:
        if name not in _values:
            record = variable(name)
            text = os.environ.get(name)
            _values[name] = _defaults.get(name, record.default) if text is None else record.parse(text)
        return _values[name]


def is_set(name: str) -> bool:
    """Whether the environment holds the variable at all."""
    return variable(name).name in os.environ


def set_default(name: str, value: Any) -> None:
    """Replace the default, for a program that knows better (an engine's arguments). The environment still wins."""
    with _lock:
        _defaults[variable(name).name] = value
        _values.pop(name, None)


def rearm(name: str | None = None) -> None:
    """Forget the cached value of one variable, or of all, so that the next `get` reads the environment again.

    Defaults set by `set_default` stay.
    """
    with _lock:
        if name is None:
            _values.clear()
        else:
            _values.pop(variable(name).name, None)


def check(environ: Mapping[str, str] | None = None) -> list[str]:
    """Check every `DEEPINFER_*` variable that is set.

    Returns:
        One warning per unknown variable; each is also issued as an `UnknownVariableWarning`.

    Raises:
        InvalidArgumentError: a text does not parse.
        NotSupportedError: a planned variable is set to a value that would have no effect.
    """
    environ = os.environ if environ is None else environ
    messages = []
    for name in sorted(environ):
        if not name.startswith(PREFIX):
            continue
        record = VARIABLES.get(name)
        if record is None:
            messages.append(f"environment variable {name} is not known and has no effect; {_closest(name)}")
            continue
        value = record.parse(environ[name])
        if record.brought_by is not None and value not in record.accepts:
            raise NotSupportedError(f"{name}={environ[name]}", f"it acts once {record.brought_by} is there; unset it")
    for message in messages:
        warnings.warn(message, UnknownVariableWarning, stacklevel=2)
    return messages


def describe() -> list[dict[str, Any]]:
    """One row per variable: name, type, allowed, default, status, brought_by, upstream, doc, set (text or None)."""
    return [
        {
            "name": record.name,
            "type": record.kind.name,
            "allowed": record.kind.allowed,
            "default": record.describe_default(),
            "status": record.status,
            "brought_by": record.brought_by,
            "upstream": record.upstream,
            "doc": record.doc,
            "set": os.environ.get(record.name),
        }
        for record in VARIABLES.values()
    ]


def _closest(name: str) -> str:
    # Compared without the prefix, which alone makes all names alike.
    stem = name.removeprefix(PREFIX)
    stems = [known.removeprefix(PREFIX) for known in VARIABLES]
    near = difflib.get_close_matches(stem, stems, n=1) or [known for known in stems if stem and stem in known]
    return f"the closest known name is {PREFIX}{near[0]}" if near else "`deepinfer env` lists the known names"
