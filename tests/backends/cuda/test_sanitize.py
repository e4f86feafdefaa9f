"""What the script of compute-sanitizer reads from a tool's output, and which samples it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

import cuda_sanitize
from deepinfer.hal.catalog import CATALOG

SAID = """========= COMPUTE-SANITIZER
@@ begins rope
@@ ended rope 3
@@ begins quant_fp8
========= Invalid __global__ write of size 1 bytes
=========     at quant_fp8_kernel+0x120 in quant.py:40
=========     by thread (31,0,0) in block (0,0,0)
========= Invalid __global__ write of size 1 bytes
@@ ended quant_fp8 2
@@ begins kv
========= Error: Race reported between Write access at pack+0x10
"""


def test_errors_belong_to_the_op_they_came_in() -> None:
    found = dict(cuda_sanitize.read(SAID.splitlines()))
    assert [(op, cell["errors"], cell["samples"]) for op, cell in found.items()] == [
        ("rope", 0, 3),
        ("quant_fp8", 2, 2),
        ("kv", 1, None),
    ]
    assert found["quant_fp8"]["first"] == "Invalid __global__ write of size 1 bytes"


@pytest.mark.parametrize(
    ("lines", "cells"),
    [
        (SAID.splitlines(), {"rope": "ok", "quant_fp8": "2", "kv": "crash", "step": "refused"}),
        (["========= Device not supported"], dict.fromkeys(("rope", "quant_fp8", "kv", "step"), "refused")),
    ],
)
def test_cells(monkeypatch: pytest.MonkeyPatch, lines: list[str], cells: dict[str, str]) -> None:
    """A child that dies costs its op; what comes behind runs in another, which here says nothing."""
    said = iter([lines, []])
    monkeypatch.setattr(cuda_sanitize, "_run", lambda *_: (next(said), "crash"))
    found = cuda_sanitize.run_tool("memcheck", "tool", ["rope", "quant_fp8", "kv", "step"], 10)
    assert {op: cell["cell"] for op, cell in found.items()} == cells
    said_so = cuda_sanitize.table({"memcheck": found})
    assert "op" in said_so.splitlines()[0] and all(op in said_so for op in cells)


def test_the_time_of_a_tool_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cuda_sanitize.run_tool("memcheck", "tool", ["rope"], 0)
    assert found["rope"]["cell"] == "time"


def test_a_child_that_runs_too_long_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text(f"import time; print({cuda_sanitize.MARK!r} + 'rope', flush=True); time.sleep(60)")
    monkeypatch.setattr(cuda_sanitize, "__file__", str(script))
    lines, ended = cuda_sanitize._run("", None, ["rope"], 3)
    assert (lines, ended) == ([f"{cuda_sanitize.MARK}rope"], "time")


def test_samples_are_few_and_small() -> None:
    from deepinfer.ops.required import row_count
    from deepinfer.ops.spec import SPECS

    CATALOG.load("reference")
    found: list[Any] = cuda_sanitize.small_samples("quant_fp8")
    assert 2 <= len(found) <= cuda_sanitize.SAMPLES
    assert all(0 < row_count(SPECS["quant_fp8"], s) <= cuda_sanitize.ROWS for s in found)


def test_a_machine_without_a_tool_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cuda_sanitize, "find_tool", lambda: None)
    assert cuda_sanitize.main([]) == 2
    assert "no compute-sanitizer" in capsys.readouterr().err
