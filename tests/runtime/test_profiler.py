"""Profiles on demand, and who may ask for them."""

from __future__ import annotations

import http.client
import json
import threading
import time
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


def test_after_steps_that_did_not_come_another_one_can_be_made(tmp_path: Path, fake: list[Fake]) -> None:
    engine = build_engine()
    profiler = Profiler(engine, tmp_path, pick_up=0.2, finish=0.05)
    engine.add_request(None, 0, SamplingParams(max_tokens=9, **FREE), [5])
    stepping = threading.Timer(0.05, engine.step)
    stepping.start()
    with pytest.raises(ProfileError) as caught:
        profiler.run(20)  # one step comes
    stepping.join()
    assert caught.value.status == 504
    profiler._pick_up = profiler._finish = 10
    drain(engine)
    assert profiler.state == "idle" and len(fake) == 1 and not list(tmp_path.iterdir())
    with busy(engine):
        assert profiler.run(1).exists()


def test_stop_leaves_a_profile_of_some_steps_alone_and_is_answered_once(tmp_path: Path, fake: list[Fake]) -> None:
    engine = build_engine()
    profiler = Profiler(engine, tmp_path, pick_up=10, finish=10)
    engine.add_request(None, 0, SamplingParams(max_tokens=30, **FREE), [5])
    found: list[Any] = []

    def call(what: Any) -> None:
        try:
            found.append(what())
        except ProfileError as error:
            found.append(error.status)

    def until(state: str) -> None:
        while profiler.state != state:
            time.sleep(0.001)

    running = threading.Thread(target=call, args=(lambda: profiler.run(3),))
    running.start()
    until("asked")
    engine.step()
    with pytest.raises(ProfileError) as caught:
        profiler.stop()
    assert caught.value.status == 409
    engine.step()
    engine.step()
    running.join(20)
    assert isinstance(found[0], Path)
    # Two that stop the same profile, of which the second comes when it has ended and the first has not seen that yet.
    starting = threading.Thread(target=call, args=(profiler.start,))
    starting.start()
    until("asked")
    engine.step()
    starting.join(20)
    stopping = threading.Thread(target=call, args=(profiler.stop,))
    with profiler._changed:
        stopping.start()
    until("stopping")
    with profiler._changed:
        engine.step()
        assert profiler.state == "done" and profiler.stop().exists()
    stopping.join(5)
    assert found[-1] == 409 and profiler.state == "idle"


def test_traces_follow_no_links_and_cannot_be_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []

    class Looking(Fake):
        def export_chrome_trace(self, path: str) -> None:
            folders.append(Path(path).parent)
            assert folders[-1].stat().st_mode & 0o777 == 0o700
            super().export_chrome_trace(path)

    monkeypatch.setattr(module, "_profile", Looking)
    monkeypatch.setattr(module.time, "strftime", lambda *how: "now")
    engine, other = build_engine(), tmp_path / "other"
    directory = tmp_path / "traces"
    directory.mkdir()
    for number in range(9):
        (directory / f"profile-127.0.0.1-gpu0-rank0-now-{number}.json").symlink_to(other)
    with busy(engine):
        path = Profiler(engine, directory).run(1)
    assert path.read_text() == "{}" and not path.is_symlink() and not other.exists()
    assert not folders[0].exists()


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
        for body in ('["num_steps"]', "[]", "7", "[" * 4000):
            assert ask(port, "POST", "/profile", body)[0] == 400, body
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
