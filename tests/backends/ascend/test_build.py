"""What a build is keyed by, and what is said when there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ascend import SOURCES, needs_compiler
from deepinfer.backends import ascend
from deepinfer.backends.ascend import discovery
from deepinfer.backends.ascend.sim import BuildError, Kernel, build
from deepinfer.hal.backend import Unavailable
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
    assert count == len(build.UNITS) + 3  # the precompiled headers, the kernel, and linking
    assert build.build(PIPES) == first and len(commands) == count


def test_every_file_of_the_runtime_is_in_one_unit() -> None:
    files = sorted(path.stem for path in (build.HERE / "runtime").glob("*.cpp"))
    assert sorted(name for unit in build.UNITS for name in unit) == files


def test_what_all_kernels_need_is_made_once_by_threads_that_begin_together(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = build._compile

    def slowly(command: list[str], what: str) -> None:
        time.sleep(0.02)
        made(command, what)

    monkeypatch.setattr(build, "_compile", slowly)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(build.build, [f"{PIPES}\n// {i}" for i in range(4)]))
    assert len(commands) == len(build.UNITS) + 1 + 4 * 2


def test_flags_keep_the_roundings_and_any_machine(commands: list[list[str]]) -> None:
    build.build(PIPES)
    for command in commands:
        if "-shared" not in command:
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


WANTED = "wanted: from 12 on and below 100; install g++ 12 or later, or name one in CXX"
FSF = "Copyright (C) 2022 Free Software Foundation, Inc."
COMPILERS = {
    "older": (f"g++ (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0\n{FSF}", f"g++ is 11.4.0; {WANTED}"),
    "of Red Hat": (f"g++ (GCC) 11.4.1 20230605 (Red Hat 11.4.1-2)\n{FSF}", f"g++ is 11.4.1; {WANTED}"),
    "clang": ("Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu", f"14.0.6, not g++; {WANTED}"),
    "another's g++": ("Apple clang version 15.0.0 (clang-1500.3.9.4)", f"(clang-1500.3.9.4), not g++; {WANTED}"),
    "without a number": (f"g++ (built here)\n{FSF}", f"which has no number; {WANTED}"),
    "silent": ("", f"is of no version, not g++; {WANTED}"),
    "fit": (f"g++ (Debian 12.2.0-14+deb12u1) 12.2.0\n{FSF}", ""),
    "under another name": (f"x86_64-linux-gnu-g++-14 (Debian 14.2.0-19) 14.2.0\n{FSF}", ""),
}


@pytest.mark.parametrize("what", COMPILERS)
def test_a_compiler_outside_the_matrix_is_named(what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where a kernel is built, and in what the backend says of this machine."""
    said, message = COMPILERS[what]
    script = tmp_path / "compiler"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setattr(build, "processor", lambda: "")
    monkeypatch.setattr(build, "cache_root", lambda: tmp_path / "cache")
    build.compiler.cache_clear()
    try:
        reason = build.missing()
        if not message:
            assert reason == "" and build.compiler() == (str(script), f"{said}\n")
            return
        assert reason.startswith(f"the C++ compiler {script}") and reason.endswith(message) and "\n" not in reason
        with pytest.raises(BuildError) as refused:
            Kernel(PIPES, 1)
        assert str(refused.value) == reason
        found = discovery.discover()
        assert f"simulator: no, because: {reason}" in found.lines()
        if found.level < discovery.Level.CANN:
            verdict = ascend.verdict(found)
            assert isinstance(verdict, Unavailable) and reason in verdict.reason
    finally:
        build.compiler.cache_clear()


def test_a_compiler_that_cannot_be_run_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "compiler").write_text("")
    (tmp_path / "compiler").chmod(0o755)
    monkeypatch.setenv("CXX", str(tmp_path / "compiler"))
    build.compiler.cache_clear()
    try:
        with pytest.raises(BuildError, match="compiler cannot be run: Exec format error; install g"):
            build.build(PIPES)
    finally:
        build.compiler.cache_clear()


@needs_compiler
@pytest.mark.parametrize(
    "machine, flags, message",
    [
        (
            "x86_64",
            "fpu sse4_2 avx bmi1 bmi2 f16c fma movbe",
            "this processor lacks abm, avx2: builds are for x86-64-v3",
        ),
        ("aarch64", "", "this processor is aarch64: builds are for x86-64-v3"),
    ],
)
def test_a_processor_that_cannot_run_the_builds_is_named(
    machine: str, flags: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before the library is loaded, not by an illegal instruction; also where another machine has built it."""
    assert build.processor() == ""
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags\t\t: {flags}\n")
    monkeypatch.setattr(build, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(build.platform, "machine", lambda: machine)
    assert build.missing() == message
    with pytest.raises(BuildError, match=message):
        Kernel(PIPES, 1)


def test_an_unknown_sanitizer_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="sanitize"):
        build.build(PIPES, "thread")


@needs_compiler
def test_what_the_compiler_rejects_is_named_with_its_line() -> None:
    text = 'extern "C" __global__ __vector__ void k(__gm__ float* x) {\n  no_such_call(x);\n}\n'
    with pytest.raises(BuildError, match=r"kernel:2:3: error: .*no_such_call"):
        Kernel(text, 1)


PLANTED = {  # statements, what the second run passes, and what the sanitizer says
    "overflow": ("undefined", "asc_store_dev(x, x[0] + n);", 2147483647, "signed integer overflow"),
    "shift": ("undefined", "asc_store_dev(x, x[0] << n);", 32, "shift exponent 32 is too large"),
    "bounds": (
        "address", "int32_t a[4] = {x[0], 2, 3, 4}; asc_store_dev(x, a[n] + 1);", 4, "stack-buffer-overflow",
    ),
    "one behind an argument": ("address", "asc_store_dev(x, x[n - 2]);", 3, "use-after-poison"),
    "one before an argument": ("address", "asc_store_dev(x, x[n - 2]);", 1, "use-after-poison"),
    "a store of one behind": ("address", "x[n - 2] = 5;", 3, "use-after-poison"),
    "one behind an argument, without": ("undefined", "asc_store_dev(x, x[n - 2]);", 3, "outside every memory"),
}  # fmt: skip


def library(sanitizer: str) -> str:
    """The compiler's library of a sanitizer; only its name where there is none."""
    name = {"undefined": "libubsan.so", "address": "libasan.so"}[sanitizer]
    command = [build.compiler()[0], f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("what", PLANTED)
def test_a_sanitized_build_runs_and_stops_at_a_planted_fault(what: str) -> None:
    sanitizer, body, wrong, message = PLANTED[what]
    found = library(sanitizer)
    if not os.path.isabs(found):
        pytest.skip(f"the compiler has no {found}")
    code = (
        "import torch; from deepinfer.backends.ascend.sim import Kernel\n"
        f"k = Kernel('extern \"C\" __global__ __vector__ void k(__gm__ int32_t* x, int32_t n) {{ {body} }}', 1, "
        f"'{sanitizer}')\n"
        "k(x=torch.tensor([1], dtype=torch.int32), n=2)\n"
        f"print('ran', flush=True); k(x=torch.tensor([1], dtype=torch.int32), n={wrong}); print('unnoticed')\n"
    )
    environment = {**os.environ}
    if sanitizer == "address":  # the runtime has signal stacks of its own
        environment |= {"LD_PRELOAD": found, "ASAN_OPTIONS": "detect_leaks=0:use_sigaltstack=0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout == "ran\n" and done.returncode, done.stderr
    assert message in done.stderr
