"""What orders pipes, cores and the program: each rule and limit of its documentation."""

from __future__ import annotations

import pytest
import torch

from ascend import needs_compiler
from ascend_calls import Calls
from deepinfer.backends.ascend.sim import KernelFault, schedules

pytestmark = needs_compiler
GET, PUT = (
    "asc_copy_gm2ub_align(u, x, 1, 64, 0, 0, false, LOAD, 64, 64); ",
    "asc_copy_ub2gm_align(y, u, 1, 64, STORE, 64, 64); ",
)
STATEMENTS = {
    **{f"flag {i}": GET + f"FLAG(PIPE_MTE2, PIPE_MTE3, {i}); " + PUT for i in range(8)},
    "through V": GET + "FLAG(PIPE_MTE2, PIPE_V, 0); FLAG(PIPE_V, PIPE_MTE3, 0); " + PUT,
    "through the program": GET + "FLAG(PIPE_MTE2, PIPE_S, 0); FLAG(PIPE_S, PIPE_MTE3, 0); " + PUT,
    "flags in turn": GET + "asc_sync_notify(PIPE_MTE2, PIPE_MTE3, EVENT(0)); asc_sync_notify(PIPE_MTE2, PIPE_MTE3, "
    "EVENT(1)); asc_sync_wait(PIPE_MTE2, PIPE_MTE3, EVENT(1)); asc_sync_wait(PIPE_MTE2, PIPE_MTE3, EVENT(0)); " + PUT,
    "all pipes": GET + "asc_sync(); " + PUT,
    "locks": "asc_lock(PIPE_MTE2, 0); "
    + GET
    + "asc_unlock(PIPE_MTE2, 0); asc_lock(PIPE_MTE3, 0); "
    + PUT
    + "asc_unlock(PIPE_MTE3, 0);",
    "locks with a mode": "asc_lock(PIPE_MTE2, 31, ASC_LOCK_BLOCK); "
    + GET
    + "asc_unlock(PIPE_MTE2, 31, ASC_LOCK_BLOCK); "
    "asc_lock(PIPE_MTE3, 31, ASC_LOCK_BLOCK); " + PUT + "asc_unlock(PIPE_MTE3, 31, ASC_LOCK_BLOCK);",
    "two locks": "asc_lock(PIPE_MTE2, 0); asc_lock(PIPE_MTE2, 1); " + GET + "asc_unlock(PIPE_MTE2, 0); "
    "asc_unlock(PIPE_MTE2, 1); asc_lock(PIPE_MTE3, 1); " + PUT + "asc_unlock(PIPE_MTE3, 1);",
    "pipe to itself": GET
    + "asc_sync_pipe(PIPE_MTE2); asc_copy_gm2ub_align(u, x + 16, 1, 64, 0, 0, false, LOAD, 64, 64); "
    "FLAG(PIPE_MTE2, PIPE_MTE3, 0); " + PUT,
    "only its pipe": GET + "asc_sync_pipe(PIPE_MTE2); " + PUT,
    "only its pair": GET + "FLAG(PIPE_V, PIPE_MTE3, 0); " + PUT,
    "id 8": "asc_sync_wait(PIPE_MTE2, PIPE_MTE3, EVENT(8));",
    "id -1": "asc_sync_notify(PIPE_MTE2, PIPE_MTE3, EVENT(-1));",
    "set twice": "asc_sync_notify(PIPE_MTE2, PIPE_V, EVENT(0)); asc_sync_notify(PIPE_MTE2, PIPE_V, EVENT(0));",
    "left": "asc_sync_notify(PIPE_MTE2, PIPE_V, EVENT(0));",
    "never set": "asc_sync_wait(PIPE_MTE2, PIPE_V, EVENT(0));",
    "mutex 32": "asc_lock(PIPE_MTE2, 32);",
    "nested lock": "asc_lock(PIPE_MTE2, 3); asc_lock(PIPE_MTE3, 3);",
    "lock left": "asc_lock(PIPE_MTE2, 3);",
    "unlock of another pipe": "asc_lock(PIPE_MTE2, 3); asc_unlock(PIPE_MTE3, 3);",
    "unlock first": "asc_unlock(PIPE_MTE2, 3);",
    "alone": "asc_sync_intra_arrive(PIPE_MTE2, 3);",
}
CALLS = Calls(
    "__vector__", "__gm__ float* x, __gm__ float* y", STATEMENTS, before="__ubuf__ float* u = (__ubuf__ float*)0;"
)
X = torch.arange(32.0)
ORDERED = [
    name for name in STATEMENTS if name.startswith(("flag", "through", "all", "lock", "two")) and name != "lock left"
]


def run(name: str, schedule: str = "eager", **options: bool) -> torch.Tensor:
    y = torch.full((16,), float("nan"))
    CALLS(name, schedule, x=X.clone(), y=y, **options)
    return y


@pytest.mark.parametrize("name", ORDERED)
def test_it_orders_under_every_schedule(name: str) -> None:
    for schedule in schedules(2):
        assert torch.equal(run(name, str(schedule)), X[:16]), schedule


def test_a_barrier_of_a_pipe_orders_its_copies() -> None:
    for schedule in schedules(2):
        assert torch.equal(run("pipe to itself", str(schedule)), X[16:]), schedule


@pytest.mark.parametrize("name", ["only its pipe", "only its pair"])
def test_it_does_not_order_what_it_does_not_name(name: str) -> None:
    found = {torch.equal(run(name, str(schedule)), X[:16]) for schedule in schedules(0)}
    assert found == {True, False}


FAULTS = {
    "id 8": "asc_sync_wait: id 8 is outside 0 to 7",
    "id -1": "asc_sync_notify: id -1 is outside 0 to 7",
    "set twice": "is set again before it was waited for",
    "left": "still set",
    "never set": "deadlock",
    "mutex 32": "32 is outside 0 to 31",
    "nested lock": "which is locked already",
    "lock left": "locked",
    "unlock of another pipe": "mutex 3",
    "unlock first": "which is not locked",
    "alone": "asc_sync_intra_arrive",
}


@pytest.mark.parametrize("name", FAULTS)
def test_misuse_is_named(name: str) -> None:
    with pytest.raises(KernelFault, match=FAULTS[name]):
        run(name)


CORES = {
    **{
        f"id {i}": f"if (ASC_IS_AIC) {{ asc_sync_intra_wait(PIPE_S, {i}); "
        f"asc_sync_intra_wait(PIPE_S, {i + 16}); }} else {{ "
        f"put(); asc_sync_intra_arrive(PIPE_MTE3, {i}); }}"
        for i in (0, 7, 15)
    },
    "one way": "if (ASC_IS_AIC) { asc_sync_intra_arrive(PIPE_S, 17); } else if (asc_get_sub_block_id() == 1) { "
    "asc_sync_intra_wait(PIPE_MTE3, 1); put(); } else put();",
    "counts": "if (ASC_IS_AIC) { for (int i = 0; i < 15; ++i) asc_sync_intra_arrive(PIPE_S, 2); } else if "
    "(asc_get_sub_block_id() == 0) { for (int i = 0; i < 15; ++i) "
    "asc_sync_intra_wait(PIPE_MTE3, 2); put(); } else put();",
    "overflow": "if (ASC_IS_AIC) { for (int i = 0; i < 16; ++i) asc_sync_intra_arrive(PIPE_S, 2); } else put();",
    "left": "put(); if (ASC_IS_AIC) asc_sync_intra_arrive(PIPE_S, 2);",
    "never": "if (ASC_IS_AIV) { asc_sync_intra_wait(PIPE_MTE3, 2); }",
    "id 32": "if (ASC_IS_AIC) asc_sync_intra_arrive(PIPE_S, 32);",
    "id 16 of a vector core": "if (ASC_IS_AIV) asc_sync_intra_arrive(PIPE_MTE3, 16);",
}
BOTH = Calls(
    "__mix__(1, 2)",
    "__gm__ int32_t* y",
    CORES,
    before="const int32_t sub = ASC_IS_AIV ? int32_t(asc_get_sub_block_id()) : 2; "
    "auto put = [&]() { asc_store_dev(y + sub, int32_t(10 + sub)); };",
)


@pytest.mark.parametrize("name", ["id 0", "id 7", "id 15", "one way", "counts"])
def test_cores_of_a_group_wait_for_each_other(name: str) -> None:
    for schedule in schedules(2):
        y = torch.full((3,), -1, dtype=torch.int32)
        BOTH(name, str(schedule), y=y)
        assert y.tolist() == [10, 11, -1]


@pytest.mark.parametrize(
    "name, message",
    [
        ("overflow", "counter 2 of the other core exceeds its 4 bits"),
        ("left", "counter|arriv"),
        ("never", "deadlock.*\n?"),
        ("id 32", "32 is outside 0 to 31"),
        ("id 16 of a vector core", "16 is outside 0 to 15"),
    ],
)
def test_misuse_between_cores_is_named(name: str, message: str) -> None:
    with pytest.raises(KernelFault, match=message):
        BOTH(name, y=torch.full((3,), -1, dtype=torch.int32))


INTER = Calls(
    "__vector__",
    "__gm__ int32_t* y, __gm__ int32_t* z",
    {
        "all": "asc_store_dev(y + block_idx, int32_t(block_idx) + 1); asc_sync_inter_arrive(PIPE_S, 3); "
        "asc_sync_inter_wait(PIPE_S, 3); int32_t sum = 0; for (int i = 0; i < 4; ++i) sum += asc_load_dev(y + i); "
        "asc_store_dev(z + block_idx, sum);",
        "one stays away": "if (block_idx != 2) { asc_sync_inter_arrive(PIPE_S, 3); asc_sync_inter_wait(PIPE_S, 3); }",
        "arrives only": "asc_sync_inter_arrive(PIPE_S, 3);",
    },
)


def test_all_cores_of_a_kind_wait_for_each_other() -> None:
    for schedule in schedules(2):
        y, z = torch.zeros(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
        INTER("all", str(schedule), 4, y=y, z=z)
        assert z.tolist() == [10] * 4


@pytest.mark.parametrize("name, message", [("one stays away", "deadlock"), ("arrives only", "arriv|left|inter")])
def test_a_core_that_does_not_take_part_is_noticed(name: str, message: str) -> None:
    with pytest.raises(KernelFault, match=message):
        INTER(name, "", 4, y=torch.zeros(4, dtype=torch.int32), z=torch.zeros(4, dtype=torch.int32))
