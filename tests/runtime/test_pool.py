"""Pools: conservation, generations, one idempotent release."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest

from deepinfer.runtime.pool import Pool, PoolError, StaleLeaseError


def test_ids_start_at_one_and_come_back_first_in_first_out() -> None:
    pool = Pool("pages", 4)
    first, second = pool.lease(2), pool.lease(2)
    assert first.ids == [1, 2] and second.ids == [3, 4] and pool.free == 0
    second.release()
    first.release()
    # the ids freed first are used first; a lease is released last id first
    assert pool.lease(4).ids == [4, 3, 2, 1]


def test_release_is_idempotent() -> None:
    pool = Pool("pages", 3)
    lease, other = pool.lease(2), pool.lease(1)
    assert lease.release() and not lease.release() and not lease.release()
    pool.check([other])
    assert pool.free == 2


def test_a_refused_lease_takes_nothing() -> None:
    pool = Pool("pages", 3)
    lease = pool.lease(2)
    with pytest.raises(PoolError, match="asked for 2 of 1"):
        pool.lease(2)
    with pytest.raises(PoolError):
        lease.extend(2)
    pool.check([lease])
    assert len(lease) == 2


def test_a_stale_lease_is_an_error_not_somebody_elses_page() -> None:
    pool = Pool("pages", 1)
    lease = pool.lease(1)
    lease.release()
    later = pool.lease(1)
    with pytest.raises(StaleLeaseError):
        _ = lease.ids
    with pytest.raises(StaleLeaseError):
        lease.extend(0)
    assert later.ids == [1]
    # an id that left the pool behind a lease's back
    pool._drop(1)
    with pytest.raises(StaleLeaseError, match="later owner"):
        _ = later.ids


def test_a_shared_id_stays_until_every_owner_released_it() -> None:
    pool = Pool("pages", 4)
    parent = pool.lease(3)
    child = pool.lease()
    child.join(parent, 0, 2)
    assert child.ids == parent.ids[:2]
    parent.release()
    assert pool.free == 2 and child.ids == [1, 2]
    pool.check([child])
    child.release()
    pool.check([])
    assert pool.free == 4


def test_joining_one_id_of_a_long_lease_looks_at_that_one() -> None:
    """Every page of a prompt is shared with the prefix cache by itself; a million tokens have eight thousand."""
    pool = Pool("pages", 1000)
    parent, child = pool.lease(1000), pool.lease()
    with patch.object(pool, "generation", wraps=pool.generation) as generation:
        child.join(parent, 700, 701)
    assert generation.call_count <= 2 and child.ids == [701]
    pool._drop(701)
    pool._drop(701)
    with pytest.raises(StaleLeaseError, match="id 701 belongs to a later owner"):
        pool.lease().join(parent, 700, 701)


def test_conservation_names_what_is_lost() -> None:
    pool = Pool("pages", 2)
    lease = pool.lease(1)
    with pytest.raises(PoolError, match="1 leases are alive, 0 are known"):
        pool.check([])
    pool._free.clear()
    with pytest.raises(PoolError, match="id 2 has 0 references"):
        pool.check([lease])
    pool._free.extend([2, 2])
    with pytest.raises(PoolError, match="twice"):
        pool.check([lease])


def test_random_traffic_conserves_every_id() -> None:
    rng = random.Random(7)
    pool = Pool("pages", 20)
    leases = []
    for _ in range(2000):
        action = rng.randrange(4)
        if action == 0 and pool.free:
            leases.append(pool.lease(rng.randrange(pool.free + 1)))
        elif action == 1 and leases and pool.free:
            rng.choice(leases).extend(1)
        elif action == 2 and leases:
            lease = pool.lease()
            lease.join(rng.choice(leases))
            leases.append(lease)
        elif leases:
            leases.pop(rng.randrange(len(leases))).release()
        pool.check(leases)
    for lease in leases:
        lease.release()
    pool.check([])
    assert pool.free == pool.capacity
