"""What the tests of a family of CUDA kernels begin with: samples in every variant, no rows, all required calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from cuda_calls import PLAIN, SPOILT, STRIDED, assert_kept, every_call, sample


def family_tests(ops: Mapping[str, str | tuple[str, ...]], empty: Mapping[str, str]) -> tuple[Callable[..., None], ...]:
    """`test_samples`, `test_no_rows` and `test_every_required_call` of a test file; the last one runs on a GPU.

    Args:
        ops: the family's ops, and the beginnings of the labels of those samples of each that have its edges.
        empty: ops that can have no rows, and the same for the sample without.
    """

    edges = [(op, label) for op, labels in ops.items() for label in ([labels] if isinstance(labels, str) else labels)]

    @pytest.mark.parametrize("variant", [PLAIN, STRIDED, SPOILT])
    @pytest.mark.parametrize(("op", "label"), edges)
    def test_samples(op: str, label: str, variant: str) -> None:
        assert_kept(op, sample(op, label).args, variant)

    @pytest.mark.parametrize("op", empty)
    def test_no_rows(op: str) -> None:
        assert_kept(op, sample(op, empty[op]).args)

    @pytest.mark.gpu
    @pytest.mark.parametrize("op", ops)
    def test_every_required_call(op: str) -> None:
        for label, args, variant in every_call(op):
            try:
                assert_kept(op, args, variant)
            except AssertionError as error:
                raise AssertionError(f"{label}: {error}") from None

    return test_samples, test_no_rows, test_every_required_call
