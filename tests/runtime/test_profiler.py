"""Profiles on demand, and who may ask for them."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime import profiler as module
from deepinfer.runtime.params import SamplingParams
from deepinfer.runtime.profiler import ProfileError, Profiler, ProfilerServer
from engines import FREE, build_engine, drain


@contextmanager
def busy(engine: Any) -> Iterator[None]:
    """The engine decodes in a thread until the block ends."""
    over = threading.Event()

    def work() -> None:
        key = 0
        while not over.wait(0.001):
            engine.add_request(None, key, SamplingParams(max_tokens=9, **FREE), [5])
            drain(engine)
            key += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Fake:
    """In the place of torch's profiler: notes its thread, and writes its name."""

    made: list[Fake] = []

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        Fake.made.append(self)

    def start(self) -> None:
        self.calls.append(("start", threading.get_ident()))

    def stop(self) -> None:
        self.calls.append(("stop", threading.get_ident()))

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text("{}")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[Fake]:
    Fake.made = []
    monkeypatch.setattr(module, "_profile", Fake)
    return Fake.made


def ask(port: int, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_a_profile_of_some_steps_in_the_engines_thread(tmp_path: Path, fake: list[Fake]) -> None:
    engine = build_engine()
    profiler = Profiler(engine, tmp_path, device=3, rank=2)
    with busy(engine):
        paths = [profiler.run(4), profiler.run(1)]
    assert len(set(paths)) == 2 and all(path.parent == tmp_path and path.exists() for path in paths)
    assert all(path.name.startswith("profile-127.0.0.1-gpu3-rank2-") for path in paths)
    for one in fake:
        assert [name for name, _ in one.calls] == ["start", "stop"]
        assert len({thread for _, thread in one.calls}) == 1 and one.calls[0][1] != threading.get_ident()
    assert profiler.state == "idle"


def test_torch_writes_a_trace(tmp_path: Path) -> None:
    import torch

    engine = build_engine()
    run = engine.executor.run

    def computing(work: Any) -> Any:
        torch.ones(3) + torch.ones(3)
        return run(work)

    engine.executor.run = computing
    profiler = Profiler(engine, tmp_path)
    with busy(engine):
        path = profiler.run(2)
    assert any(event.get("name") == "aten::add" for event in json.loads(path.read_text())["traceEvents"])


def test_without_steps_it_is_cancelled_and_can_be_asked_again(tmp_path: Path, fake: list[Fake]) -> None:
    engine = build_engine()
    profiler = Profiler(engine, tmp_path, pick_up=0.05)
    with pytest.raises(ProfileError, match="began no step within 0.05 s") as caught:
        profiler.run(3)
    assert caught.value.status == 503 and profiler.state == "idle" and not fake
    profiler._pick_up = 10
    with busy(engine):
        assert profiler.run(1).exists()


def test_one_at_a_time_and_start_and_stop(tmp_path: Path, fake: list[Fake]) -> None:
    engine = build_engine()
    profiler = Profiler(engine, tmp_path)
    with pytest.raises(ProfileError, match="no profile is running"):
        profiler.stop()
    with busy(engine):
        profiler.start()
        for call in (profiler.start, profiler.run):
            with pytest.raises(ProfileError) as caught:
                call()
            assert caught.value.status == 409
        assert profiler.stop().exists() and profiler.state == "idle"
    assert len(fake) == 1


def test_a_profiler_that_fails_breaks_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise RuntimeError("no such thing here")

    monkeypatch.setattr(module, "_profile", broken)
    engine = build_engine()
    profiler = Profiler(engine, tmp_path)
    with busy(engine), pytest.raises(ProfileError, match="no such thing here"):
        profiler.run(2)
    assert profiler.state == "idle" and profiler in list(engine.observers)


@pytest.mark.parametrize("steps", [0, 51, 2.0, True, "3"])
def test_steps_have_limits(tmp_path: Path, steps: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="num_steps"):
        Profiler(build_engine(), tmp_path).run(steps)


@pytest.mark.parametrize("host", ["0.0.0.0", "", "192.168.1.4", "::", "example.com", "10.0.0.1", None, "127.0.0.1.nip"])
def test_other_machines_are_refused(tmp_path: Path, host: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="loopback"):
        ProfilerServer(Profiler(build_engine(), tmp_path), 0, host)


def test_over_http(tmp_path: Path, fake: list[Fake]) -> None:
    engine = build_engine()
    server = ProfilerServer(Profiler(engine, tmp_path / "new", pick_up=5), 0)
    try:
        port = server.port
        assert server._server.server_address[0] == "127.0.0.1"
        with busy(engine):
            status, answer = ask(port, "POST", "/profile?num_steps=2")
            assert status == 200 and Path(answer["path"]).parent == tmp_path / "new"
            status, answer = ask(port, "POST", "/profile", '{"num_steps": 1}')
            assert status == 200
            assert ask(port, "POST", "/profile/start") == (200, {"started": True})
            assert ask(port, "POST", "/profile")[0] == 409
            assert ask(port, "POST", "/profile/stop")[0] == 200
        assert ask(port, "GET", "/profile") == (200, {"state": "idle"})
        for bad in ("/profile?num_steps=0", "/profile?num_steps=x", "/profile?output_dir=%2Fetc", "/profile/start?a=1"):
            status, answer = ask(port, "POST", bad)
            assert status == 400, bad
        assert ask(port, "POST", "/profile", "[1")[0] == 400 and ask(port, "POST", "/profile", '"x"')[0] == 400
        assert ask(port, "GET", "/profile/start")[0] == 404, "reading starts nothing"
        made = len(fake)
        assert ask(port, "POST", "/profile", Origin="http://evil.example")[0] == 403
        assert ask(port, "POST", "/profile", Host="evil.example")[0] == 403
        assert ask(port, "GET", "/profile", Host=f"localhost:{port}")[0] == 200
        assert len(fake) == made
        with pytest.raises(InvalidArgumentError, match="profiler port"):
            ProfilerServer(Profiler(engine, tmp_path), port)
    finally:
        server.close()


def test_closing_the_engine_ends_a_profile(tmp_path: Path, fake: list[Fake]) -> None:
    engine = build_engine()
    profiler = Profiler(engine, tmp_path)
    with busy(engine):
        profiler.start()
    engine.close()
    assert [name for name, _ in fake[0].calls] == ["start", "stop"] and profiler.stop().exists()
