"""`deepinfer ascend`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ascend import SOURCES, needs_compiler
from deepinfer.backends.ascend.sim import report, schedules
from deepinfer.cli.main import main

SAMPLE = """
import torch
from deepinfer.backends.ascend.sample import Sample

def sample(what=0, want=None):
    x = torch.arange(48.0)
    y = torch.full((24,), float("nan"))
    return Sample(1, {"x": x, "y": y, "what": what, "n": 24}, {"y": x[:24] if want is None else want})

def unsynchronised(): return sample(1)
def wrong(): return sample(0, torch.zeros(24))
def deadlock(): return sample(2)
def nothing(): return None
"""


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    (tmp_path / "pipes.cpp").write_text((SOURCES / "pipes.cpp").read_text())
    (tmp_path / "pipes.py").write_text(SAMPLE)
    return str(tmp_path / "pipes.cpp")


def invoke(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["ascend", *arguments])
    return done.exit_code, done.output


@needs_compiler
def test_a_run_prints_order_occupancy_estimate_and_what_it_proves(kernel: str) -> None:
    code, output = invoke("sim", kernel, "--schedule", "lazy")
    assert code == 0, output
    assert "block 0 AIV0: order of execution, not time" in output
    lines = [line for line in output.splitlines() if "copy_" in line]
    assert lines[0].strip() == "copy_gm2ub_align 1" and lines[1].strip() == "copy_ub2gm_align 2"
    assert lines[0].index("copy") < lines[1].index("copy")
    assert "UB       0.1 of 248 KiB" in output
    assert "estimate, from counts and documented rates; not measured" in output
    assert " ".join(report.CAVEAT.split()) in " ".join(output.split())
    assert output.rstrip().endswith("outputs as expected")


@needs_compiler
def test_wrong_output_and_faults_have_exit_codes_of_their_own(kernel: str) -> None:
    of = kernel.replace(".cpp", ".py")
    code, output = invoke("sim", kernel, "--sample", f"{of}:wrong")
    assert code == 1 and "wrong: y: 23 of 24 elements wrong, the first at [1]: got 1, want 0" in output
    code, output = invoke("sim", kernel, "--sample", f"{of}:deadlock")
    assert code == 2 and "deadlock" in output and "Traceback" not in output
    assert " ".join(report.CAVEAT.split()) in " ".join(output.split()), "a fault is a report as well"
    code, output = invoke("sim", kernel, "--sample", f"{of}:unsynchronised", "--all-schedules")
    assert code == 1 and "wrong: y: " in output


@needs_compiler
def test_mutants_that_nothing_betrays_are_printed(kernel: str) -> None:
    code, output = invoke("mutate", kernel, "--kind", "line", "--seeds", "0")
    assert code == 1  # the source has cases that the sample does not reach: nothing can notice those
    assert (
        f"mutants under up to {len(schedules(0))} schedules" in output
        and "not noticed (no rule): line in line" in output
    )
    assert "asc_sync_wait(PIPE_MTE2, PIPE_MTE3, static_cast<event_t>(3))" not in output
    code, output = invoke("mutate", kernel, "--kind", "nothing")
    assert code == 2 and "line, pair, bursts" in output


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["sim", "none.cpp"], "--sample"),
        (["lower", "kernels.txt"], "FILE.py:FUNCTION or FILE.cpp"),
        (["lower", "kernels.py:f", "-p", "n"], "NAME=VALUE"),
        (["lower", "none.py:f"], "a Python file with TileLang kernels"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], message: str) -> None:
    code, output = invoke(*arguments)
    assert code == 2 and message in output


def test_a_sample_must_be_one(kernel: str) -> None:
    code, output = invoke("sim", kernel, "--sample", kernel.replace(".cpp", ".py:nothing"))
    assert code == 2 and "a function that returns a Sample" in output


def test_a_source_is_printed_as_it_is(kernel: str) -> None:
    assert invoke("lower", kernel) == (0, Path(kernel).read_text())


def test_the_package_loads_without_tilelang() -> None:
    assert "tilelang" not in sys.modules
