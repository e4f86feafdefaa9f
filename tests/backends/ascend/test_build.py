"""What a build is keyed by, and what is said when there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ascend import SOURCES, needs_compiler
from deepinfer.backends.ascend.sim import BuildError, Kernel, build
from deepinfer.hal.errors import InvalidArgumentError

PIPES = (SOURCES / "pipes.cpp").read_text(encoding="utf-8")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Compiler calls, none of which runs; with a cache of the test's own."""
    found: list[list[str]] = []
    monkeypatch.setattr(build, "cache_root", lambda: tmp_path)
    monkeypatch.setattr(build, "compiler", lambda: ("/compiler", "version 1"))

    def compiled(command: list[str], what: str) -> None:
        found.append(command)
        Path(command[command.index("-o") + 1]).write_text(what)

    monkeypatch.setattr(build, "_compile", compiled)
    return found


def test_nothing_is_built_twice(commands: list[list[str]]) -> None:
    first = build.build(PIPES)
    count = len(commands)
    assert count == len(list((build.HERE / "runtime").glob("*.cpp"))) + 2
    assert build.build(PIPES) == first and len(commands) == count


def test_flags_keep_the_roundings_and_any_machine(commands: list[list[str]]) -> None:
    build.build(PIPES)
    for command in commands:
        if "-c" in command:
            assert {"-ffp-contract=off", "-march=x86-64-v3"} <= set(command)
            assert not any("native" in part or "fast-math" in part for part in command)


TEMPLATES = '#include "tl_templates/ascend/common.h"\n' + PIPES


@pytest.mark.parametrize("what", ["text", "header", "wheel", "template", "compiler", "flags", "sanitize"])
def test_whatever_changes_makes_another_build(
    what: str, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "wheel", lambda: ("1.0", None))
    monkeypatch.setattr(build, "_template_texts", lambda: {"tl_templates/ascend/common.h": "// 1"})
    before = build.build(TEMPLATES)
    text, sanitize = TEMPLATES, ""
    match what:
        case "text":
            text += "\n// changed"
        case "header":
            monkeypatch.setattr(build, "_header_key", lambda: "another")
        case "wheel":
            monkeypatch.setattr(build, "wheel", lambda: ("1.1", None))
        case "template":
            monkeypatch.setattr(build, "_template_texts", lambda: {"tl_templates/ascend/common.h": "// 2"})
        case "compiler":
            monkeypatch.setattr(build, "compiler", lambda: ("/compiler", "version 2"))
        case "flags":
            monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-g"))
        case "sanitize":
            sanitize = "undefined"
    after = build.build(text, sanitize)
    assert after != before and after.exists()
    if what == "template":  # the patched headers are of this wheel, not of the one before
        folder = next(p for p in reversed(commands) if "-c" in p)
        [included] = [part for part in folder if part.startswith(f"-I{build.cache_root()}")]
        assert (Path(included[2:]) / "tl_templates/ascend/common.h").read_text() == "// 2"


def test_the_header_key_is_of_the_contents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "HERE", tmp_path)
    (tmp_path / "a.h").write_text("1")
    one = build._header_key.__wrapped__()
    (tmp_path / "a.h").write_text("2")
    two = build._header_key.__wrapped__()
    (tmp_path / "a.h").rename(tmp_path / "b.h")
    assert len({one, two, build._header_key.__wrapped__()}) == 3


def test_without_a_compiler_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    build.compiler.cache_clear()
    try:
        assert "no C++ compiler 'no-such-compiler'" in build.missing()
        with pytest.raises(BuildError, match="install g"):
            build.build(PIPES)
    finally:
        build.compiler.cache_clear()


def test_an_unknown_sanitizer_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="sanitize"):
        build.build(PIPES, "thread")


@needs_compiler
def test_what_the_compiler_rejects_is_named_with_its_line() -> None:
    text = 'extern "C" __global__ __vector__ void k(__gm__ float* x) {\n  no_such_call(x);\n}\n'
    with pytest.raises(BuildError, match=r"kernel:2:3: error: .*no_such_call"):
        Kernel(text, 1)


@needs_compiler
@pytest.mark.slow
def test_a_sanitized_build_runs_and_stops_at_a_fault_of_arithmetic() -> None:
    import subprocess
    import sys

    code = (
        "import torch; from deepinfer.backends.ascend.sim import Kernel\n"
        'k = Kernel(\'extern "C" __global__ __vector__ void k(__gm__ int32_t* x, int32_t n) '
        "{ asc_store_dev(x, x[0] + n); }', 1, 'undefined')\n"
        "x = torch.tensor([1], dtype=torch.int32); k(x=x, n=2); assert x.item() == 3, x\n"
        "print('ran', flush=True); k(x=x, n=2147483647)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert done.stdout == "ran\n" and done.returncode
    assert "signed integer overflow" in done.stderr
