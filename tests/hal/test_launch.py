"""Who a process is in a launch: what the environment must say, and the device of each process."""

from __future__ import annotations

import pytest

from deepinfer.hal import launch
from deepinfer.hal.backend import Backend
from deepinfer.hal.device import Device
from deepinfer.hal.errors import BackendError, InvalidArgumentError
from deepinfer.hal.transport import Transport

WHOLE = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "host", "MASTER_PORT": "29500"}
NPUS = tuple(Device("npu", i) for i in range(4))


def test_what_torchrun_says() -> None:
    assert launch.Launch.from_environment(WHOLE) == launch.Launch(5, 8, 1, "tcp://host:29500")
    agent = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "3"}
    found = launch.Launch.from_environment({**WHOLE, **agent})
    assert found is not None and found.served and found.attempt == 3
    kept = launch.Launch.from_environment({**WHOLE, **agent, "TORCHELASTIC_USE_AGENT_STORE": "False"})
    assert kept is not None and not kept.served


@pytest.mark.parametrize("environ", [{}, {"MASTER_ADDR": "host", "MASTER_PORT": "1"}, {"RANK": "", "WORLD_SIZE": ""}])
def test_nothing_was_launched(environ: dict[str, str]) -> None:
    assert launch.Launch.from_environment(environ) is None


@pytest.mark.parametrize("name", launch.VARIABLES)
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} missing") as caught:
        launch.Launch.from_environment({key: value for key, value in WHOLE.items() if key != name})
    assert caught.value.parameter == name


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("WORLD_SIZE", "0", "from 1"),
        ("WORLD_SIZE", "eight", "from 1"),
        ("WORLD_SIZE", "8²", "from 1"),
        ("RANK", "8", "0 to 7"),
        ("RANK", "-1", "0 to 7"),
        ("LOCAL_RANK", "6", "0 to 5"),
        ("MASTER_PORT", "65536", "1 to 65535"),
    ],
)
def test_what_does_not_fit_is_named(name: str, value: str, allowed: str) -> None:
    with pytest.raises(InvalidArgumentError, match=allowed) as caught:
        launch.Launch.from_environment({**WHOLE, name: value})
    assert (caught.value.parameter, caught.value.got) == (name, value)


def test_every_process_of_a_host_has_a_device() -> None:
    assert launch.device_of(3, NPUS) == NPUS[3]
    assert launch.device_of(3, (Device("cpu"),)) == Device("cpu"), "processes share the CPU"
    with pytest.raises(InvalidArgumentError, match="below 4, the devices") as caught:
        launch.device_of(4, NPUS)
    assert caught.value.parameter == "LOCAL_RANK"


class Npus(Backend):
    """Devices whose transport is missing."""

    def devices(self) -> tuple[Device, ...]:
        return NPUS

    def transport(self, device: Device) -> Transport:
        class Absent(Transport):
            def prepare(self, deadline: float) -> None:
                raise BackendError(f"no groups of {device}, {deadline:g} s")

        return Absent(device)


def test_a_world_is_what_the_backend_provides() -> None:
    launched = launch.Launch.from_environment(WHOLE)
    with pytest.raises(BackendError, match="no groups of npu:1, 3 s"):
        launch.join(Npus(), launched, deadline=3.0)


@pytest.mark.parametrize("launched", [None, launch.Launch(0, 1, 2, "tcp://no.such.host:1")])
def test_one_process_needs_no_network(monkeypatch: pytest.MonkeyPatch, launched: launch.Launch | None) -> None:
    for name in launch.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    group, device = launch.join(Npus(), launched)
    assert group.world_size == 1 and device == NPUS[0 if launched is None else 2]
    assert launch.join(Npus(), launched, deadline=5.0)[0].deadline == 5.0
