"""Cases in a child process: a segmentation fault, an `os._exit` or a case that never ends is a failed case.

A child runs the cases in order and says before each which one it is; when it dies, that case has failed and another
child goes on behind it. So a backend that never crashes pays for one child only.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from .case import Finding, Outcome
from .results import outcome_dict, outcome_of

if TYPE_CHECKING:
    from .run import Request

START_SECONDS = 600.0
"""Seconds that a child may take to start and to reach its first case."""
TAIL = 600
"""Characters of a dead child's error output that its finding shows."""


def outcomes(request: Request, ids: Sequence[str]) -> Iterator[tuple[str, Outcome, float]]:
    """Outcomes of the cases in order, whatever happens to the processes that run them."""
    done = 0
    while done < len(ids):
        child = _Child(request, done)
        try:
            for name, outcome, seconds in child.outcomes(ids, done):
                yield name, outcome, seconds
                done += 1
        finally:
            child.stop()


class _Child:
    """One child process."""

    def __init__(self, request: Request, first: int) -> None:
        self._timeout = request.timeout
        reading, writing = os.pipe()
        self._pipe = os.fdopen(reading, "rb", buffering=0)
        self._rest = b""
        self._errors: BinaryIO = tempfile.TemporaryFile()
        job = json.dumps({"request": asdict(request), "first": first, "pipe": writing})
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", f"{__package__}.isolate"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=(writing,),
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        os.close(writing)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(job.encode())
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it died while it started; the next read says how

    def outcomes(self, ids: Sequence[str], first: int) -> Iterator[tuple[str, Outcome, float]]:
        """Outcomes from the case `first` on; the last one is that of the case in which the child ended, if any."""
        for name in ids[first:]:
            begun = time.perf_counter()
            started = self._message(START_SECONDS)
            if isinstance(started, str) or started.get("start") != name:
                said = started if isinstance(started, str) else f"the child runs {started.get('start')!r} instead"
                yield name, Outcome((Finding("crash", f"before the case began: {said}"),)), time.perf_counter() - begun
                return
            begun = time.perf_counter()
            ended = self._message(self._timeout)
            seconds = time.perf_counter() - begun
            if isinstance(ended, str):
                check = "timeout" if ended.startswith("no end") else "crash"
                yield name, Outcome((Finding(check, ended),)), seconds
                return
            yield name, outcome_of(ended), seconds

    def _message(self, seconds: float) -> dict[str, Any] | str:
        """The child's next message, or what became of it."""
        end = time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._pipe], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return f"no end within {seconds:g} s"
            part = self._pipe.read(65536)
            if not part:
                return self._death()
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _death(self) -> str:
        """How the child ended, and the end of what it said."""
        code = self._process.wait()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()
        fatal = said.rfind("Fatal Python error")
        # Of a dump of the stack the top says most; whole lines of it.
        shown = said[-TAIL:] if fatal < 0 else said[fatal:] if len(said) - fatal <= TAIL else _lines(said[fatal:])
        return f"the process ended: {how}" + (f"; {shown}" if said else "")

    def stop(self) -> None:
        """End the child and free what it held."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()
        self._errors.close()


def _lines(text: str) -> str:
    """The first lines of a text, as many as TAIL characters hold."""
    head, cut, _ = text[:TAIL].rpartition("\n")
    return head if cut else text[:TAIL]


def main() -> None:
    """The child: reads a job from stdin, writes messages to the pipe that it names."""
    job = json.loads(sys.stdin.buffer.read())
    stream = os.fdopen(job["pipe"], "w", encoding="utf-8")

    def say(message: dict[str, Any]) -> None:
        stream.write(json.dumps(message) + "\n")
        stream.flush()

    from . import run as runner
    from . import saved

    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in job["request"].items()}
    request = runner.Request(**fields)
    saved.use(*([Path(request.out)] if request.out else []), saved.default_folder())
    with runner.invariant_kernels():
        planned = runner.plan(request)
        for number, case in enumerate(planned.cases()):
            if number >= job["first"]:
                say({"start": case.id})
                outcome, _ = runner.run_case(case, planned.target)
                say(outcome_dict(outcome))


if __name__ == "__main__":
    main()
