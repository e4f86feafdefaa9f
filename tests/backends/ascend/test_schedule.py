"""Names of schedules, and which there are."""

from __future__ import annotations

import pytest

from deepinfer.backends.ascend.sim import Schedule, deterministic, parse, schedules
from deepinfer.hal.errors import InvalidArgumentError


def test_every_schedule_is_read_back_from_its_name() -> None:
    found = schedules(8)
    assert len(set(found)) == len(found) == len(deterministic()) + 8
    assert [parse(str(schedule)) for schedule in found] == found


def test_every_pipe_is_once_first_and_once_last() -> None:
    names = {str(schedule) for schedule in deterministic()}
    pipes = {"V", "M", "MTE1", "MTE2", "MTE3", "FIX"}
    assert {f"{kind}:{pipe}" for kind in ("first", "last") for pipe in pipes} <= names
    assert {schedule.late for schedule in deterministic()} == {"", "AIC", "AIV0", "AIV1"}
    assert any(schedule.overlap for schedule in deterministic())
    assert any(schedule.reverse_cores and schedule.reverse_threads for schedule in deterministic())


@pytest.mark.parametrize(
    "text", ["", "fast", "last", "last:", "last:MTE9", "random", "random:x", "lazy+late-AIV2", "lazy:V", "lazy+quick"]
)
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse(text)


def test_a_seed_is_not_negative() -> None:
    with pytest.raises(InvalidArgumentError, match="seed: got -1"):
        Schedule("random", seed=-1)
