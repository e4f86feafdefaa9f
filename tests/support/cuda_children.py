"""Child processes in which kernels are compiled: the tests' own process may have Triton's interpreter turned on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[1]


def environment(cache: Path, first: Path | None = None, **changes: str) -> dict[str, str]:
    """The environment of a child: no interpreter, a kernel cache of its own, `first` before all other packages."""
    env = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "PYTHONPATH")}
    places = [*([str(first)] if first else []), str(ROOT / "src"), str(SUPPORT)]
    return {**env, "PYTHONPATH": os.pathsep.join(places), "DEEPINFER_JIT_CACHE_DIR": str(cache), **changes}


def run(script: Path, *args: str, cache: Path, first: Path | None = None) -> Any:
    """What a script of JSON prints."""
    done = subprocess.run(
        [sys.executable, str(script), *args], env=environment(cache, first), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def finish(commands: Sequence[Sequence[str]], environment: dict[str, str], seconds: float) -> None:
    """Run commands side by side; none outlives this call. Raises AssertionError when one fails or takes longer."""
    end = time.monotonic() + seconds
    out = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(c, env=environment, **out) for c in commands]
    try:
        for process in running:
            _, said = process.communicate(timeout=max(0.1, end - time.monotonic()))
            assert process.returncode == 0, said[-3000:]
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{error.cmd} takes longer than {seconds} s") from error
    finally:
        for process in running:
            process.kill()
            process.wait()
