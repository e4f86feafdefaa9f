"""How the processes of a world find one another: by a store that one of them, or the launcher, holds."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from . import heartbeat
from .comm import CommunicatorError
from .diagnosis import first_line, listed
from .errors import InvalidArgumentError


def join_store(rank: int, world_size: int, address: str, seconds: float, served: str | None) -> Any:
    """Open the store, and wait until every rank has opened it; arguments as in `world.connect`.

    Raises:
        CommunicatorError: the store cannot be reached, or somebody did not come in time; names who.
        InvalidArgumentError: the address.
    """
    scheme, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    if scheme != "tcp" or not host or not port.isdecimal():
        raise InvalidArgumentError("address", address, "tcp://HOST:PORT")
    timeout = timedelta(seconds=seconds)
    holder = heartbeat.RANK_0 if served is None else "the launcher"
    try:
        store: Any = dist.TCPStore(  # type: ignore[attr-defined]
            host, int(port), None, rank == 0 and served is None, timeout, wait_for_workers=False
        )
        if served is not None:  # what an earlier attempt has left there is not ours
            store = dist.PrefixStore(f"deepinfer/{served}", store)  # type: ignore[attr-defined]
        store.set(f"deepinfer/joined/{rank}", "1")
    except (RuntimeError, ValueError) as error:
        absent = (0,) if served is None else ()
        raise CommunicatorError(
            "world", f"{holder} cannot be reached at {address}: {first_line(error)}", absent
        ) from error
    keys = [f"deepinfer/joined/{r}" for r in range(world_size)]
    end = time.monotonic() + seconds
    missing = list(range(world_size))
    while True:
        try:
            missing = [r for r in missing if not store.check([keys[r]])]
        except RuntimeError as error:  # who holds the store gave up, or ended
            message = f"{holder} left {address} before rank {listed(missing)} had joined"
            raise CommunicatorError("world", message, tuple(missing)) from error
        if not missing:
            return store
        if time.monotonic() >= end:
            message = f"rank {listed(missing)} did not join at {address} within {seconds:g} s"
            raise CommunicatorError("world", message, tuple(missing))
        time.sleep(0.02)
