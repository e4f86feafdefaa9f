"""Lowering in a child process, and the cache of texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend import needs_tilelang
from deepinfer.backends.ascend import lower as lowering
from deepinfer.backends.ascend.sim import build
from deepinfer.hal.errors import InvalidArgumentError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(build, "cache_root", lambda: tmp_path / "cache")
    monkeypatch.setattr(build, "wheel", lambda: ("1.0", None))
    path = tmp_path / "kernels.py"
    path.write_text("def one(): ...\n")
    return path


def test_a_text_is_lowered_once_for_each_content(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str]] = []

    def child(path: Path, name: str, values: str, seconds: float) -> str:
        calls.append((name, values))
        return f"text {len(calls)}"

    monkeypatch.setattr(lowering, "_in_child", child)
    needed = file.with_name("needed.py")
    needed.write_text("1")
    assert lowering.lower(file, "one", needs=[needed]) == lowering.lower(file, "one", needs=[needed]) == "text 1"
    assert lowering.lower(file, "one", {"n": 2}, needs=[needed]) == "text 2"
    needed.write_text("2")
    assert lowering.lower(file, "one", needs=[needed]) == "text 3"
    file.write_text("def one(): return 1\n")
    assert lowering.lower(file, "one", needs=[needed]) == "text 4"
    monkeypatch.setattr(build, "wheel", lambda: ("1.1", None))
    assert lowering.lower(file, "one", needs=[needed]) == "text 5"
    assert calls[1] == ("one", '{"n": 2}')


def test_what_fails_is_not_kept(file: Path) -> None:
    for _ in range(2):
        with pytest.raises(lowering.LoweringError, match="nothing does not lower"):
            lowering.lower(file, "nothing")


def test_what_takes_too_long_is_stopped(file: Path) -> None:
    file.write_text("import time\ntime.sleep(60)\n")
    with pytest.raises(lowering.LoweringError, match="not lowered after"):
        lowering.lower(file, "one", seconds=0.5)


def test_arguments_are_checked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError, match="file"):
        lowering.lower(file.with_name("none.py"), "one")
    with pytest.raises(InvalidArgumentError, match="JSON"):
        lowering.lower(file, "one", {"n": {1}})
    monkeypatch.setattr(build, "wheel", lambda: ("", None))
    with pytest.raises(lowering.LoweringError, match="install the ascend-sim extra"):
        lowering.lower(file, "one")


@needs_tilelang
def test_what_tilelang_refuses_is_said(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text("def two():\n    raise ValueError('no such tile')\n")
    with pytest.raises(lowering.LoweringError, match="two does not lower .*\n(.*\n)*.*no such tile"):
        lowering.lower(file, "two")
