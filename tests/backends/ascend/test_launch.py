"""Arguments of launches, and what a report holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ascend import SOURCES, needs_compiler, written
from deepinfer.backends.ascend.sim import Event, Kernel, Schedule
from deepinfer.hal.errors import InvalidArgumentError

pytestmark = needs_compiler


def arguments(**other: Any) -> dict[str, Any]:
    return {"x": torch.arange(48.0), "y": torch.full((24,), float("nan")), "what": 0, "n": 24, **other}


WRONG = {
    "missing": ({"n": ...}, "n: got None; allowed: int32_t, a parameter of the kernel"),
    "unknown": ({"z": 1}, "z: got 1; allowed: kernel parameters: x, y, what, n"),
    "no tensor": ({"x": [1.0]}, "x: got .* allowed: a tensor"),
    "dtype": ({"x": torch.zeros(48, dtype=torch.float64)}, "x: got torch.float64; allowed: torch.float32"),
    "strides": ({"x": torch.zeros(96)[::2]}, "not contiguous.* allowed: a contiguous CPU tensor"),
    "device": ({"x": torch.zeros(48, device="meta")}, "a contiguous CPU tensor"),
    "float for int": ({"n": 24.0}, "n: got 24.0; allowed: an integer from -2147483648 to 2147483647"),
    "range": ({"n": 1 << 31}, "n: got 2147483648"),
    "tensor for int": ({"n": torch.tensor(24)}, "n: got"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_named(case: str) -> None:
    other, message = WRONG[case]
    given = {name: value for name, value in arguments(**other).items() if value is not ...}
    with pytest.raises(InvalidArgumentError, match=message):
        written("pipes")(**given)


def test_two_parameters_of_different_sizes_do_not_share_memory() -> None:
    x = torch.zeros(48)
    with pytest.raises(InvalidArgumentError, match="y: got '96 bytes at the memory of x, which has 192'"):
        written("pipes")(**arguments(x=x, y=x[:24]))


def test_two_parameters_of_the_same_bytes_are_an_operation_in_place() -> None:
    x = torch.arange(48.0)
    report = written("pipes")(**arguments(x=x, y=x, what=8))  # y[:24] = x[:24], then x[24:]
    assert torch.equal(x, torch.arange(24.0, 48.0).repeat(2))
    assert report.touched == {"x": 192, "y": 0}


@pytest.mark.parametrize("blocks", [0, -1, 1025, 1.0, True])
def test_the_number_of_blocks_is_checked(blocks: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="blocks"):
        Kernel((SOURCES / "pipes.cpp").read_text(), blocks)


def test_seconds_are_checked() -> None:
    with pytest.raises(InvalidArgumentError, match="seconds"):
        written("pipes")(seconds=0.0, **arguments())


def test_a_report_counts_what_moved_and_how_far_memories_were_used() -> None:
    report = written("pipes")(Schedule("lazy"), trace=True, **arguments())
    assert report.instructions == {"V": 0, "M": 0, "MTE1": 0, "MTE2": 1, "MTE3": 1, "FIX": 0}
    assert report.bytes["MTE2"] == report.bytes["MTE3"] == 96 and report.moved == 192
    assert report.high == {"UB": 96, "L1": 0, "L0A": 0, "L0B": 0, "L0C": 0}
    assert report.touched == {"x": 96, "y": 96}
    names = ["asc_copy_gm2ub_align", "asc_sync_notify", "asc_sync_wait", "asc_copy_ub2gm_align"]
    assert [event.name for event in report.events] == names
    assert report.events[0] == Event(0, "AIV0", "MTE2", "asc_copy_gm2ub_align", 1)


def test_without_trace_no_events() -> None:
    assert written("pipes")(**arguments()).events == ()


def test_an_input_is_not_written() -> None:
    given = arguments()
    before = given["x"].clone()
    written("pipes")(**given)
    assert torch.equal(given["x"], before)
