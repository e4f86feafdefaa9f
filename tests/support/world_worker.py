"""Processes of the tests of worlds: `python world_worker.py FOLDER SCENARIO/RANKS/WORLD/ADDRESS ...`.

Loads torch once and forks a process per rank; each writes its report to FOLDER/SCENARIO.RANK.json.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from deepinfer.hal import comm, launch, world
from deepinfer.hal.backend import Backend
from deepinfer.hal.device import Device
from deepinfer.hal.stream import Event, InlineStreams
from deepinfer.hal.transport import CPU, DeviceTransport


def collectives(group: comm.Group) -> None:
    rank, world = group.rank, group.world_size
    total = group.all_reduce(torch.tensor([rank + 1, 10 * rank], dtype=torch.int64))
    assert total.tolist() == [world * (world + 1) // 2, 10 * world * (world - 1) // 2]
    assert group.all_reduce(torch.tensor([float(rank)]), "max").item() == world - 1
    assert group.all_reduce(torch.tensor([float(rank)]), "min").item() == 0

    # FP8 has no arithmetic in the transport; it must move as bytes, NaN codes included
    codes = torch.tensor([rank, 0x7F, 0xFF, 0x80], dtype=torch.uint8).view(torch.float8_e4m3fn)
    gathered = group.all_gather(codes).view(torch.uint8)
    assert gathered.tolist() == [[r, 0x7F, 0xFF, 0x80] for r in range(world)]

    # ragged, with rank 0 taking part with zero rows
    ragged = group.all_gather_v(torch.full((rank, 3), float(rank), dtype=torch.bfloat16))
    assert [tuple(t.shape) for t in ragged] == [(r, 3) for r in range(world)]
    assert all(bool((t == r).all()) for r, t in enumerate(ragged))
    assert all(len(t) == 0 for t in group.all_gather_v(torch.empty(0, 5)))
    assert group.all_gather(torch.empty(0, 2)).shape == (world, 0, 2)

    # rank r sends (r + destination) % 3 rows marked (source, destination); some counts are zero
    send = [(rank + to) % 3 for to in range(world)]
    rows = [[rank, to] for to in range(world) for _ in range(send[to])]
    receive = group.exchange_counts(send)
    assert receive == [(source + rank) % 3 for source in range(world)]
    got = group.all_to_all_v(torch.tensor(rows, dtype=torch.int32).reshape(-1, 2), send, receive)
    assert got.tolist() == [[source, rank] for source in range(world) for _ in range(receive[source])]
    # a rank that neither sends nor receives still takes part
    send = [0] * world
    if rank == world - 1:
        send[world - 1] = 2
    got = group.all_to_all_v(torch.ones(sum(send), 4), send, send)
    assert got.shape == (sum(send), 4)
    assert group.all_to_all_v(torch.empty(0, 4), [0] * world, [0] * world).shape == (0, 4)
    even = group.all_to_all(torch.arange(world * 2).reshape(world, 2) + 100 * rank)
    assert even.tolist() == [[2 * rank + 100 * s, 2 * rank + 1 + 100 * s] for s in range(world)]

    value = torch.full((3,), rank, dtype=torch.int16)
    assert group.broadcast(value, world - 1).tolist() == [world - 1] * 3
    group.broadcast(torch.empty(0), 0)
    group.barrier()


def split(world: comm.Group) -> None:
    """Collectives in a world of 4, in pairs, in parts of pairs, and in a second group of the same members."""
    rank = world.rank
    outer = rank in (0, 3)
    pair = world.split([[0, 3], [1, 2]], "pair")
    assert pair.name == f"pair.{0 if outer else 1}" and pair.world_size == 2
    assert pair.rank == {0: 0, 3: 1, 1: 0, 2: 1}[rank]
    assert pair.all_gather(torch.tensor([rank])).flatten().tolist() == ([0, 3] if outer else [1, 2])
    assert pair.broadcast(torch.tensor([rank]), 1).item() == (3 if outer else 2)
    collectives(pair)
    alone = pair.split([[0], [1]], "alone")
    assert alone.world_size == 1
    collectives(alone)
    if outer:  # a group of a group must not need the other pair
        collectives(pair.split([[0, 1]], "twin"))
    collectives(world)


class Queue(DeviceTransport):
    """A device's transport in all but the device: gloo, whose collectives of int64 nobody waits for."""

    name = "gloo"
    backends = "cpu:gloo,cuda:gloo"  # in the form that two libraries have
    aborted = False

    def missing(self) -> str | None:
        return None

    def select(self) -> None:
        pass

    def capturing(self) -> bool:
        return False

    def queues(self, tensor: torch.Tensor) -> bool:
        return tensor.dtype is torch.int64 or tensor.dtype is torch.uint8  # bytes of gathered tensors

    def queued(self, work: Any) -> Event | None:
        return Ends(work)

    def abort(self, handle: Any) -> None:
        self.aborted = True


class Ends(Event):
    """The end of a collective of gloo."""

    def __init__(self, work: Any) -> None:
        self.work = work

    def done(self) -> bool:
        return bool(self.work.is_completed())

    def synchronize(self) -> None:
        self.work.wait()


class Breaks(Queue):
    """A transport that moves the first tokens of a world, and whose device then breaks."""

    def __init__(self) -> None:
        super().__init__(CPU, self)  # type: ignore[arg-type]

    def record(self) -> Event:
        raise RuntimeError("the device broke")


def rejoined(rank: int, size: int, address: str, report: dict[str, Any]) -> None:
    """A world that cannot be formed, and then one that can, in the same process. The launcher holds the store."""
    try:
        world.connect(rank, size, address, deadline=60.0, transport=Breaks(), served="once")
    except RuntimeError as error:
        report["first"] = str(error)
    report["left"] = [t.name for t in threading.enumerate() if t.name.startswith("deepinfer-")]
    group = world.connect(rank, size, address, deadline=60.0, served="twice")
    report["sum"] = group.all_reduce(torch.tensor([rank + 1])).item()
    group.close()


class QueueBackend(Backend):
    """Two devices whose collectives are queued."""

    def devices(self) -> tuple[Device, ...]:
        return (CPU, CPU)

    def transport(self, device: Device) -> Queue:
        return Queue(device, InlineStreams(device))


def until(group: comm.Group, tensor: torch.Tensor, want: list[int], seconds: float) -> None:
    """Wait for the result of a queued collective, as a device would."""
    end = time.monotonic() + seconds
    while tensor.tolist() != want and time.monotonic() < end:
        group.check()
        time.sleep(0.02)
    assert tensor.tolist() == want


def queued(rank: int, world_size: int, address: str, report: dict[str, Any]) -> None:
    """Collectives that the host does not wait for; the last one misses rank 1. The launcher holds the store."""
    host, port = address.removeprefix("tcp://").split(":")
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "MASTER_ADDR": host, "MASTER_PORT": port}
    told |= {"TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": 2}
    launched = launch.Launch.from_environment({name: str(value) for name, value in told.items()})
    group, _ = launch.join(QueueBackend(), launched, deadline=60.0)
    assert isinstance(group, world.ProcessGroup) and isinstance(group._transport, Queue)
    part = group.split([[0, 1]], "part")
    until(part, part.all_reduce(torch.tensor([rank + 1, 10 * rank])), [3, 10], 30.0)
    until(group, group.all_gather(torch.tensor([rank])).flatten(), [0, 1], 30.0)
    assert group.all_gather(torch.empty(0, dtype=torch.int64)).shape == (2, 0)
    group.barrier()
    if rank == 1:
        time.sleep(6)
        return
    group.deadline = 1.0
    began = time.monotonic()
    group.all_reduce(torch.tensor([1]))
    report["host_waited"] = time.monotonic() - began
    while not group._transport.aborted and time.monotonic() < began + 30.0:
        time.sleep(0.05)
    report["aborted"] = group._transport.aborted
    try:
        part.check()  # at once, and of any group
    except comm.CommunicatorError as error:
        report["part"] = str(error)
    group.check(30.0)


def misbehave(scenario: str) -> None:
    if scenario == "late":
        time.sleep(5)
    elif scenario == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif scenario == "dead":
        os._exit(7)


def play(scenario: str, rank: int, size: int, address: str) -> dict[str, Any]:
    """Run one rank of a scenario; returns its report."""
    started = time.monotonic()
    group: comm.Group | None = None
    report: dict[str, Any] = {"error": None}
    try:
        deadline = 1.5 if scenario in ("late", "stopped", "absent") else 60.0
        if scenario == "queued":
            queued(rank, size, address, report)
            return report
        if scenario == "again":
            rejoined(rank, size, address, report)
            return report
        # joining may take long on a busy machine; the deadline under test is that of the collectives
        group = world.connect(rank, size, address, deadline=deadline if scenario == "absent" else 60.0)
        if scenario == "split":
            split(group)
        else:
            group.barrier()
            group.deadline = deadline
            if rank == 1:
                misbehave(scenario)
            group.barrier()
        group.close()
        group.close()
        try:
            group.barrier()
        except comm.CommunicatorError as error:
            report["after_close"] = str(error)
    except comm.CommunicatorError as error:
        report |= {"error": str(error), "missing": list(error.missing), "group": error.group}
        if group is not None:
            again = time.monotonic()
            try:
                group.barrier()
            except comm.CommunicatorError as repeated:
                report["sticky"] = str(repeated) == str(error) and time.monotonic() - again < 0.5
    report["seconds"] = time.monotonic() - started
    return report


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    children = []
    for job in sys.argv[2:]:
        scenario, ranks, world, address = job.split("/", 3)
        for rank in map(int, ranks.split(",")):
            pid = os.fork()
            if pid == 0:
                try:
                    text = json.dumps(play(scenario, rank, int(world), address))
                except BaseException:
                    text = json.dumps({"error": traceback.format_exc(), "missing": None})
                partial = folder / f"{scenario}.{rank}.tmp"
                partial.write_text(text)
                partial.rename(folder / f"{scenario}.{rank}.json")
                os._exit(0)  # a normal exit would wait for sockets to stopped processes
            children.append((pid, scenario == "stopped" and rank == 1))
    for pid, stopped in children:
        if not stopped:
            os.waitpid(pid, 0)
    for pid, stopped in children:
        if stopped:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
