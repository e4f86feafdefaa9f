"""The versions that this backend is made for, in one table, and what is installed beside it.

The table is checked when the backend is imported: `PROBLEM` is the first thing that does not fit, or None. Packages are
looked up by their metadata; nothing of them is imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

from .errors import VersionError

CHIPS = ("ascend950", "ascend910_95")
"""Beginnings of the device's name, in lower case; the second is how older drivers name the same chip."""
ARCH = "dav-3510"
"""What CANN's compiler calls the chip."""


@dataclass(frozen=True)
class Row:
    """One line of the matrix.

    Attributes:
        what: the package, or the software that is no Python package.
        lowest, below: versions from `lowest` on and below `below`.
        needed_for: the level that needs it.
        package: whether it is a Python package, found by its metadata.
        like: a package whose major and minor version it must share, "" for none.
    """

    what: str
    lowest: str
    below: str
    needed_for: str
    package: bool = True
    like: str = ""

    @property
    def allowed(self) -> str:
        """The versions in words."""
        same = f", and that of {self.like} in its first two numbers" if self.like else ""
        return f"from {self.lowest} on and below {self.below}{same}"


# The wheel emits calls that only CANN 9.2 has; torch_npu follows torch's numbers.
MATRIX: tuple[Row, ...] = (
    Row("torch", "2.7", "3", "every level"),
    Row("tilelang", "0.1.15", "0.1.16", "lowering, and the simulator's headers"),
    Row("g++", "12", "100", "the simulator", package=False),
    Row("CANN", "9.2", "10", "compiling for and running on a device", package=False),
    Row("torch_npu", "2.7", "3", "running on a device", like="torch"),
)


def row(what: str) -> Row:
    """The line of the matrix for a package or software."""
    return next(r for r in MATRIX if r.what == what)


def numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: '9.2.RC1' gives (9, 2), '2.13.0+cpu' (2, 13, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(n) for n in found[0].split(".")) if found else ()


def unfit(what: str, found: str, other: Callable[[str], str | None] | None = None) -> str:
    """Why a version does not fit its line, or "".

    Args:
        what: a line of the matrix.
        found: the version that is there.
        other: versions of packages, for lines that follow another package.
    """
    line, have = row(what), numbers(found)
    if not have:
        return f"{what} has the version {found!r}, which has no number; wanted: {line.allowed}"
    if not numbers(line.lowest) <= have or have >= numbers(line.below):
        return f"{what} is {found}; wanted: {line.allowed}"
    like = other(line.like) if line.like and other is not None else None
    if like is not None and numbers(like)[:2] != have[:2]:
        return f"{what} is {found} beside {line.like} {like}; wanted: {line.allowed}"
    return ""


def package_version(name: str) -> str | None:
    """Version of an installed package, None without it."""
    try:
        return installed_version(name)
    except PackageNotFoundError:
        return None


def problem(version: Callable[[str], str | None] = package_version) -> VersionError | None:
    """The first installed package that does not fit the matrix. What is missing is no problem here."""
    for line in MATRIX:
        found = version(line.what) if line.package else None
        if found is not None and (reason := unfit(line.what, found, version)):
            return VersionError(reason, remedy(line.what, version))
    return None


def remedy(what: str, version: Callable[[str], str | None] = package_version) -> str:
    """The command that installs a package in a version that fits."""
    line = row(what)
    like = numbers(version(line.like) or "") if line.like else ()
    wanted = f"=={like[0]}.{like[1]}.*" if len(like) > 1 else f">={line.lowest},<{line.below}"
    return f"pip install '{what}{wanted}'"


PROBLEM = problem()
