"""Profiles on demand: torch's profiler around some steps of an engine, started over HTTP from this machine alone.

    POST /profile?num_steps=20   profiles so many steps and answers when the trace has been written
    POST /profile/start, /stop   the same from one call to the other
    GET  /profile                what it does at the moment

The engine's thread starts and stops the profiler between two steps, for torch records the thread that asks it to. The
server listens at a loopback address and no other, writes into one directory that no request can choose, and answers no
web page (see `_Handler`). One profile at a time.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import secrets
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from ..hal.errors import DeepInferError, InvalidArgumentError
from .checks import check_int
from .observe import Observer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .engine import LLMEngine
    from .execute import Work
    from .queues import Queues

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
MOST_STEPS, DEFAULT_STEPS = 50, 20
PICK_UP_SECONDS, FINISH_SECONDS = 30.0, 600.0
MOST_BODY = 4096
IDLE, ASKED, RUNNING, STOPPING, DONE = "idle", "asked", "running", "stopping", "done"


class ProfileError(DeepInferError):
    """A profile cannot be made now. `status` is the HTTP status that says so."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.status, str(self)))


class Profiler(Observer):
    """Profiles steps of one engine, one profile at a time. Any thread may ask.

    Args:
        engine: observed from now on.
        directory: where traces are written.
        device, rank: that stand in their names.
        pick_up, finish: seconds until a profile must have begun, and ended.
    """

    def __init__(
        self,
        engine: LLMEngine,
        directory: str | Path,
        device: int = 0,
        rank: int = 0,
        pick_up: float = PICK_UP_SECONDS,
        finish: float = FINISH_SECONDS,
    ) -> None:
        self._directory = Path(directory)
        self._name = f"profile-{LOOPBACK}-gpu{device}-rank{rank}"
        self._pick_up, self._finish = pick_up, finish
        self._changed = threading.Condition()
        self._state, self._left = IDLE, 0
        self._serial = 0  # of the profile
        self._by_run = self._abandoned = False  # it ends after so many steps; nobody will come for it
        self._profile: Any = None
        self._error: Exception | None = None
        engine.observers.add(self)

    @property
    def state(self) -> str:
        """idle, asked, running, stopping, or done: not written yet."""
        return self._state

    # ---- from any thread

    def run(self, num_steps: Any = DEFAULT_STEPS) -> Path:
        """Profile the next steps; returns the trace.

        Raises:
            InvalidArgumentError: num_steps.
            ProfileError: another profile is under way (409), no step began in time (503) or not enough ended (504).
        """
        steps = check_int("num_steps", num_steps, 1, MOST_STEPS)
        self._begin(steps, by_run=True)
        with self._changed:
            if not self._changed.wait_for(lambda: self._state == DONE, self._finish):
                self._state = STOPPING
                self._changed.wait_for(lambda: self._state == DONE, self._pick_up)
                if self._state != DONE:
                    self._abandoned = True
                    raise ProfileError(504, f"{self._left} of {steps} steps did not come within {self._finish:g} s")
            profile = self._take()
        return self._write(profile)

    def start(self) -> None:
        """Profile from the next step on, until `stop`, or for at most `MOST_STEPS` steps.

        Raises:
            ProfileError: another profile is under way (409), or no step began in time (503).
        """
        self._begin(MOST_STEPS, by_run=False)

    def stop(self) -> Path:
        """End the profile that `start` began; returns the trace.

        Raises:
            ProfileError: there is none, or it is one of `run`, which ends by itself (409), or the engine's step does
                not end (504).
        """
        with self._changed:
            if self._state not in (RUNNING, DONE) or self._by_run:
                what = "no profile is running that /profile/start began"
                raise ProfileError(409, f"{what}; the profiler is {self._state}")
            if self._state == RUNNING:
                self._state = STOPPING
            serial = self._serial
            self._changed.wait_for(lambda: self._state != STOPPING or self._serial != serial, self._pick_up)
            if self._serial != serial or self._state not in (STOPPING, DONE):
                raise ProfileError(409, "another call has stopped this profile, and has its trace")
            if self._state != DONE:
                raise ProfileError(504, f"no step ended within {self._pick_up:g} s; it stops when the next one begins")
            profile = self._take()
        return self._write(profile)

    def _begin(self, steps: int, by_run: bool) -> None:
        with self._changed:
            if self._state != IDLE:
                raise ProfileError(409, f"another profile is under way: the profiler is {self._state}")
            self._state, self._left, self._error = ASKED, steps, None
            self._serial, self._by_run, self._abandoned = self._serial + 1, by_run, False
            if not self._changed.wait_for(lambda: self._state != ASKED, self._pick_up):
                self._state = IDLE
                raise ProfileError(
                    503, f"the engine began no step within {self._pick_up:g} s; the profile is cancelled"
                )

    def _take(self) -> Any:
        """What is done, once: the next profile may begin."""
        profile, self._profile = self._profile, None
        error, self._error = self._error, None
        self._state = IDLE
        self._changed.notify_all()
        if error is not None:
            raise ProfileError(500, f"the profiler failed: {type(error).__name__}: {error}") from error
        return profile

    def _write(self, profile: Any) -> Path:
        # The directory may be everybody's. Nobody can put a link where this writes: the folder is ours alone, the name
        # cannot be foreseen, and moving a file follows no link.
        stamp = time.strftime("%Y%m%d-%H%M%S")
        path = self._directory / f"{self._name}-{stamp}-{secrets.token_hex(8)}.json"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".profile-", dir=self._directory) as folder:
                made = Path(folder) / "trace.json"
                profile.export_chrome_trace(str(made))
                made.rename(path)
        except (OSError, RuntimeError) as failure:
            raise ProfileError(500, f"{path} cannot be written: {failure}") from failure
        return path

    # ---- from the engine's thread, between steps

    def before_step(self, queues: Queues) -> None:
        if self._state in (ASKED, STOPPING):
            self._move()

    def ran(self, work: Sequence[Work], began: float, ended: float, queues: Queues, launched: float) -> None:
        if self._state == RUNNING:
            with self._changed:
                self._left -= 1
                if self._left <= 0:
                    self._state = STOPPING
        if self._state == STOPPING:
            self._move()

    def closed(self) -> None:
        with self._changed:
            if self._state in (RUNNING, STOPPING):
                self._end()

    def _move(self) -> None:
        with self._changed:
            if self._state == ASKED:
                try:
                    self._profile = _profile()
                    self._profile.start()
                    self._state = RUNNING
                except Exception as error:
                    self._error, self._state = error, DONE
                self._changed.notify_all()
            elif self._state == STOPPING:
                self._end()

    def _end(self) -> None:
        try:
            self._profile.stop()
        except Exception as error:
            self._error = error
        self._state = DONE
        if self._abandoned:
            self._state, self._profile, self._error = IDLE, None, None
        self._changed.notify_all()


def _profile() -> Any:
    import torch.profiler

    return torch.profiler.profile(activities=torch.profiler.supported_activities())


class ProfilerServer:
    """Takes requests for profiles over HTTP until it is closed.

    Args:
        profiler: of one engine.
        port: 0 takes a free one.
        host: a loopback address.

    Attributes:
        port: that it listens at.

    Raises:
        InvalidArgumentError: an address that other machines reach, or a port that cannot be had.
    """

    def __init__(self, profiler: Profiler, port: int, host: str = LOOPBACK) -> None:
        check_loopback(host)
        try:
            self._server = _Server((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InvalidArgumentError("profiler port", port, f"a free port of {host} ({error})") from None
        self._server.profiler = profiler
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="deepinfer profiler", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Calling it again does no harm."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def check_loopback(host: Any) -> None:
    """Raises InvalidArgumentError unless only this machine reaches the address."""
    allowed = "a loopback address such as 127.0.0.1: whoever reaches the profiler can slow the engine down"
    try:
        local = ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        local = False
    if not local:
        raise InvalidArgumentError("profiler host", host, allowed)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    profiler: Profiler


class _Handler(BaseHTTPRequestHandler):
    """A page of a browser on this machine may send requests here, too: with an Origin, or for a name of its own that
    it has pointed at this machine. Neither is answered."""

    server: _Server
    timeout = 30

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        try:
            status, answer = self._do(method)
        except InvalidArgumentError as error:
            status, answer = 400, {"error": str(error)}
        except ProfileError as error:
            status, answer = error.status, {"error": str(error)}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _do(self, method: str) -> tuple[int, dict[str, Any]]:
        name = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        if self.headers.get("Origin") is not None or not _is_local(name):
            return 403, {"error": "only programs of this machine are answered, no web pages"}
        url = urlsplit(self.path)
        profiler = self.server.profiler
        if method == "GET" and url.path == "/profile":
            return 200, {"state": profiler.state}
        asked = self._arguments(url.query) if method == "POST" else {}
        if method == "POST" and url.path == "/profile":
            return 200, {"path": str(profiler.run(asked.get("num_steps", DEFAULT_STEPS)))}
        if asked:
            raise InvalidArgumentError("arguments", sorted(asked), "none here")
        if method == "POST" and url.path == "/profile/start":
            profiler.start()
            return 200, {"started": True}
        if method == "POST" and url.path == "/profile/stop":
            return 200, {"path": str(profiler.stop())}
        return 404, {"error": "POST /profile, /profile/start or /profile/stop; GET /profile"}

    def _arguments(self, query: str) -> dict[str, Any]:
        """num_steps of the query or of a JSON body."""
        try:
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 <= length <= MOST_BODY:
                raise ValueError
            body = json.loads(self.rfile.read(length)) if length else {}
            if not isinstance(body, dict):
                raise ValueError
            found = {name: int(values[-1]) for name, values in parse_qs(query).items() if name == "num_steps"}
            others = [name for name in [*parse_qs(query), *body] if name != "num_steps"]
        except (ValueError, RecursionError):
            raise InvalidArgumentError("body", "something else", f"num_steps=1..{MOST_STEPS}, or it as JSON") from None
        if others:
            raise InvalidArgumentError("arguments", others, "num_steps; the directory is the engine's alone")
        return {**body, **found}

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


def _is_local(name: str | None) -> bool:
    if name == "localhost":
        return True
    try:
        return name is not None and ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
