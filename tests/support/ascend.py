"""What the tests of the Ascend simulator share: reasons to skip, texts of kernels, and kernels built once.

    python tests/support/ascend.py --write      # keep the texts of ascend_kernels.py, lowered where the source changed
    python tests/support/ascend.py --check      # lower all anew: exit status 1 if a text differs

A lowering takes seconds, so the texts are kept in tests/backends/ascend/lowered, as those of the package are; each says
which source it came from. With another version of tilelang, --check shows what it writes differently.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

from deepinfer.backends.ascend import lower as lowering
from deepinfer.backends.ascend import program
from deepinfer.backends.ascend.sim import Kernel, build

SUPPORT = Path(__file__).parent
SOURCES = SUPPORT.parent / "backends" / "ascend" / "kernels"
LOWERED = SUPPORT.parent / "backends" / "ascend" / "lowered"
WRITTEN_IN = SUPPORT / "ascend_kernels.py"
CAPACITIES = ("ub", "simt", "threads", "l1", "l0c")

needs_compiler = pytest.mark.skipif(bool(build.missing()), reason=build.missing() or "")
needs_tilelang = pytest.mark.skipif(
    bool(build.missing() or lowering.missing()), reason=build.missing() or lowering.missing()
)


def kept(name: str, what: str = "") -> Path:
    """Where the text of a kernel lies."""
    return LOWERED / f"{name}{what and '-'}{what}.cpp"


@cache
def head(name: str, what: str = "") -> str:
    """The first line of a kept text: what it came from, without comments and other functions of the file."""
    code = program._code(WRITTEN_IN.read_text(encoding="utf-8"), name)
    return f"// Lowered from {WRITTEN_IN.name}: {name}({what}), source {build.digest([name, what, code])}.\n"


def current(name: str, what: str = "") -> bool:
    """Whether the kept text came from the source as it is now."""
    path = kept(name, what)
    return path.is_file() and path.read_text(encoding="utf-8").startswith(head(name, what))


@cache
def text(name: str, what: str = "") -> str:
    """AscendC text of a kernel of ascend_kernels.py: the kept one, or lowered now where its source has changed."""
    if current(name, what):
        return kept(name, what).read_text(encoding="utf-8").partition("\n")[2]
    return lowered(name, what)


def lowered(name: str, what: str = "") -> str:
    """The text as tilelang writes it, through the cache."""
    return lowering.lower(WRITTEN_IN, name, {"what": what} if what else {})


@cache
def written(name: str, blocks: int = 1, sanitize: str = "") -> Kernel:
    """A kernel of tests/backends/ascend/kernels."""
    return Kernel((SOURCES / f"{name}.cpp").read_text(encoding="utf-8"), blocks, sanitize)


def every() -> list[tuple[str, str]]:
    """The kernels of ascend_kernels.py, and what each of them is asked for."""
    from ascend_samples import SAMPLES

    return [(name, what) for name in SAMPLES for what in (CAPACITIES if name == "over_capacity" else ("",))]


def main(arguments: list[str]) -> int:
    wrong = 0
    for name, what in every():
        path, made = kept(name, what), None
        if "--check" in arguments or not current(name, what):
            made = head(name, what) + lowered(name, what)
        if made is not None and (not path.is_file() or made != path.read_text(encoding="utf-8")):
            print(f"{path.name}: {'written' if '--write' in arguments else 'differs'}", flush=True)
            if "--write" in arguments:
                LOWERED.mkdir(exist_ok=True)
                path.write_text(made, encoding="utf-8")
            else:
                wrong += 1
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
