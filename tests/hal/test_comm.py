"""Groups of one process, and what every group refuses."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

from deepinfer.hal import comm
from deepinfer.hal.errors import InvalidArgumentError


def test_single_process_needs_no_set_up() -> None:
    group = comm.single_process()
    assert (group.rank, group.world_size, group.ranks, group.deadline) == (0, 1, (0,), 14400.0)
    value = torch.tensor([2.0, 3.0])
    assert group.all_reduce(value) is value and value.tolist() == [2.0, 3.0]
    assert group.all_gather(value).tolist() == [[2.0, 3.0]]
    assert [t.tolist() for t in group.all_gather_v(value)] == [[2.0, 3.0]]
    assert group.all_gather_v(torch.empty(0, 4))[0].shape == (0, 4)
    assert group.all_to_all(value).tolist() == [2.0, 3.0]
    assert group.all_to_all_v(torch.empty(0, 4), [0], [0]).shape == (0, 4)
    assert group.exchange_counts([5]) == [5]
    assert group.broadcast(value, 0) is value
    group.barrier()
    assert group.split([[0]], "dp").name == "dp"
    group.close()
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        (lambda g: g.all_reduce(torch.zeros(2, dtype=torch.bfloat16)), "tensor.dtype"),
        (lambda g: g.all_reduce(torch.zeros(2), "mean"), "op"),
        (lambda g: g.all_gather(torch.zeros(4, 4).T), "tensor"),
        (lambda g: g.all_to_all_v(torch.zeros(3), [2], [2]), "send"),
        (lambda g: g.all_to_all_v(torch.zeros(3), [3], [4]), "receive"),
        (lambda g: g.all_to_all_v(torch.zeros(3), [3], [-3]), "receive"),
        (lambda g: g.all_to_all_v(torch.zeros(3), [3, 0], [3]), "send"),
        (lambda g: g.broadcast(torch.zeros(3), 1), "source"),
        (lambda g: g.split([[0], [0]], "x"), "groups"),
        (lambda g: comm.Group("x", 0, (0, 1), 1.0).split([[1, 0]], "y"), "groups"),
        (lambda g: comm.Group("x", 0, (0,), 0), "deadline"),
    ],
)
def test_wrong_calls_name_the_parameter(call: Any, parameter: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        call(comm.single_process())
    assert caught.value.parameter == parameter


def test_uneven_rows_are_refused() -> None:
    group = comm.Group("pair", 0, (0, 1), 1.0)
    with pytest.raises(InvalidArgumentError, match="a multiple of 2 rows"):
        group.all_to_all(torch.zeros(3, 1))


def test_counts_that_did_not_come_size_nothing() -> None:
    class Broken(comm.Group):
        """A device's group: what it gathers is not there, and `check` says so."""

        gathers = 0

        def _all_gather(self, out: torch.Tensor, tensor: torch.Tensor) -> None:
            self.gathers += 1
            out.fill_(0xA5)

        def check(self) -> None:
            raise comm.CommunicatorError(self.name, "late", (1,))

    group = Broken("pair", 0, (0, 1), 1.0)
    with pytest.raises(comm.CommunicatorError, match="late"):
        group.all_gather_v(torch.zeros(3, 1))
    assert group.gathers == 1


def test_error_survives_a_process_border() -> None:
    error = pickle.loads(pickle.dumps(comm.CommunicatorError("dp", "late", (3,))))
    assert (error.group, error.message, error.missing) == ("dp", "late", (3,))
