"""Guarded tensors: copies that keep every byte, and every foreign byte that changes is named."""

from __future__ import annotations

import pytest
import torch

from deepinfer.conformance.guard import GUARD, Guarded


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("strides", [None, (9, 1)])
def test_copies_hold_the_same_values_elsewhere(shift: int, strides: tuple[int, int] | None) -> None:
    value = torch.arange(12, dtype=torch.float32).view(3, 4)
    value[1, 1] = torch.nan
    made = Guarded(value, strides=strides, shift=shift)
    assert made.tensor.view(torch.int32).equal(value.view(torch.int32))
    assert made.tensor.stride() == (strides or (4, 1))
    assert made.tensor.data_ptr() % 16 == 4 * shift
    assert made.strayed("x", written=False) is None and made.strayed("x", written=True) is None


def test_around_and_between_rows_is_poison() -> None:
    made = Guarded(torch.zeros(2, 3), strides=(5, 1))
    first = GUARD // 4
    floats = made.raw.view(torch.float32)
    assert (
        floats[:first].isnan().all()
        and floats[first + 3 : first + 5].isnan().all()
        and floats[first + 8 :].isnan().all()
    )


def test_every_foreign_byte_counts() -> None:
    for place, says in ((GUARD - 1, "1 bytes before it"), (GUARD + 12, "between its rows at byte 12")):
        made = Guarded(torch.zeros(2, 3), strides=(5, 1))
        made.tensor.fill_(2)
        made.raw[place] = 7
        finding = made.strayed("x", written=True)
        assert finding is not None and finding.check == "guard"
        assert finding.message.startswith(f"x: {says}: got 0x7, was 0xff"), finding
    made = Guarded(torch.zeros(2, 3))
    made.raw[GUARD + 24] = 7
    finding = made.strayed("x", written=True)
    assert finding is not None and "1 bytes behind it" in finding.message


def test_an_argument_that_is_only_read_may_not_change() -> None:
    made = Guarded(torch.zeros(2, 3))
    made.tensor[1, 0] = 1
    finding = made.strayed("x", written=False)
    assert finding is not None and finding.check == "input" and "2 bytes written" in finding.message


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.int32, torch.uint8, torch.int64]
)
def test_outputs_hold_what_no_kernel_leaves(dtype: torch.dtype) -> None:
    made = Guarded.output(torch.zeros((2, 5), dtype=torch.uint8).to(dtype)).tensor
    assert made.is_contiguous() and made.dtype == dtype
    if dtype.is_floating_point:
        assert made.float().isnan().all()
    else:
        assert (made.view(torch.uint8) == 0x5A).all()


def test_empty_tensors() -> None:
    for value in (torch.zeros(0, 4), torch.zeros(3, 0, dtype=torch.bool)):
        for made in (Guarded(value), Guarded.output(value)):
            assert made.tensor.shape == value.shape and made.strayed("x", written=True) is None
