"""The suite `invariance` sees what it is there for: planted kernels fail the right check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import deepinfer.ops
from deepinfer.conformance.case import Outcome, Target
from deepinfer.conformance.suites import invariance
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.registry import REFERENCE, REGISTRY
from deepinfer.ops.rows import ROWS, NoRows
from deepinfer.ops.spec import SPECS
from planted import planted, right

assert deepinfer.ops
Right = Callable[..., Any]


def outcomes(op: str, fault: Callable[..., Any], label: str = "") -> list[Outcome]:
    """Outcomes of the small cases of an op on a planted kernel."""
    with planted(**{op: fault}) as target:
        cases = list(invariance.cases("quick", [SPECS[op]]))
        small = [c for c in cases if label in c.label and not c.label.startswith("real")]
        assert small
        return [case.run(target) for case in small]


def checks(op: str, fault: Callable[..., Any], label: str = "") -> set[str]:
    return {finding.check for outcome in outcomes(op, fault, label) for finding in outcome.findings}


@pytest.mark.parametrize("op", sorted(set(SPECS) & set(ROWS)))
def test_the_reference_passes_and_every_op_with_rows_has_cases(op: str) -> None:
    if isinstance(ROWS[op], NoRows):
        assert not list(invariance.cases("quick", [SPECS[op]]))
        return
    found = outcomes(op, right)
    assert all(o.passed for o in found), [str(f) for o in found for f in o.findings]


def nudged(x: Tensor, rows: Any) -> Tensor:
    """The same tensor with the last bit of some rows' first element turned over."""
    x = x.clone()
    x.view(torch.int16).view(x.shape[0], -1)[rows, 0] ^= 1
    return x


def looks_at_the_number_of_rows(fn: Right, x: Tensor, *rest: Any) -> Tensor:
    return nudged(fn(x, *rest), slice(None)) if x.shape[0] > 16 else fn(x, *rest)


def looks_at_the_place(fn: Right, x: Tensor, *rest: Any) -> Tensor:
    return nudged(fn(x, *rest), slice(1, None, 2))


def last_tile_is_another_kernel(fn: Right, x: Tensor, *rest: Any) -> Tensor:
    return nudged(fn(x, *rest), slice(x.shape[0] // 16 * 16, None))


def one_scale_for_all_rows(fn: Right, x: Tensor, *rest: Any) -> Tensor:
    return fn(x, *rest) + 0 * x.float().sum().bfloat16()


def aligned_path(fn: Right, x: Tensor, *rest: Any) -> Tensor:
    return fn(x, *rest) if x.data_ptr() % 16 == 0 else nudged(fn(x, *rest), slice(None))


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (looks_at_the_number_of_rows, "alone"),
        (looks_at_the_place, "permuted"),
        (last_tile_is_another_kernel, "padded"),
        (last_tile_is_another_kernel, "chunked"),
        (one_scale_for_all_rows, "neighbours"),
        (aligned_path, "misaligned"),
    ],
)
def test_a_norm_that_is_not_invariant(fault: Callable[..., Any], check: str) -> None:
    assert check in checks("rms_norm", fault)


def test_findings_name_the_form_the_output_and_the_values() -> None:
    found = [f for o in outcomes("rms_norm", looks_at_the_place) for f in o.findings if f.check == "permuted"]
    assert "in another order: y[" in found[0].message and "instead of" in found[0].message


def named(op: str, args: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip((a.name for a in SPECS[op].args), args, strict=False))


def changed(op: str, args: tuple[Any, ...], **values: Any) -> tuple[Any, ...]:
    given = named(op, args) | values
    return (*(given[a.name] for a in SPECS[op].args), *args[len(SPECS[op].args) :])


def test_attention_that_looks_ahead() -> None:
    def fault(fn: Right, *args: Any) -> Any:
        ahead = named("sparse_attention", args)["last_key"] + 1
        given = named("sparse_attention", args)
        last = given["seq_start"] + torch.bincount(given["row_seq"].clamp(min=0)[given["row_seq"] >= 0]) - 1
        return fn(*changed("sparse_attention", args, last_key=torch.minimum(ahead, last[given["row_seq"].long()])))

    assert {"alone", "neighbours", "chunked"} <= checks("sparse_attention", fault, "mixed batch")


def test_attention_that_forgets_the_ring() -> None:
    def fault(fn: Right, *args: Any) -> Any:
        given = named("sparse_attention", args)
        first = torch.maximum(given["first_key"], given["seq_start"][given["row_seq"].clamp(min=0).long()])
        return fn(*changed("sparse_attention", args, first_key=first.int()))

    assert {"alone", "chunked"} <= checks("sparse_attention", fault, "mixed batch")


def test_attention_that_reads_a_page_by_the_wrong_id() -> None:
    def fault(fn: Right, *args: Any) -> Any:
        given = named("sparse_attention", args)
        table = given["block_table"]
        wrong = table if table is None else table.remainder(3).where(table >= 0, -1).int()
        return fn(*changed("sparse_attention", args, block_table=wrong))

    assert "pages" in checks("sparse_attention", fault, "ratio")


def test_a_pool_that_misses_the_pair_across_a_chunk() -> None:
    def fault(fn: Right, *args: Any) -> Any:
        ring = torch.zeros_like(named("compress_pool", args)["ring"])
        return fn(*changed("compress_pool", args, ring=ring))

    assert {"alone", "chunked"} <= checks("compress_pool", fault)


def test_a_store_that_touches_a_page_of_nobody() -> None:
    def fault(fn: Right, *args: Any) -> Any:
        named("compressed_store", args)["pages"][0, 5] ^= 1
        return fn(*args)

    assert "pages" in checks("compressed_store", fault)


def test_a_store_that_writes_padding_rows() -> None:
    def fault(fn: Right, *args: Any) -> Any:
        return fn(*changed("window_store", args, row_seq=named("window_store", args)["row_seq"].clamp(min=0)))

    assert "padded" in checks("window_store", fault)


def test_experts_that_share_a_tile() -> None:
    def fault(fn: Right, xq: Tensor, *rest: Any) -> Tensor:
        y, offsets = fn(xq, *rest), rest[3]
        y[offsets[:-1].clamp(max=len(y) - 1).unique().long()] *= 1 + 2.0**-7  # the first row of each expert
        return y

    assert {"alone", "permuted"} & checks("grouped_linear", fault)


def test_a_missing_entry_fails_and_does_not_pass_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ROWS, "rms_norm")
    (case,) = invariance.cases("quick", [SPECS["rms_norm"]])
    with planted(rms_norm=right) as target:
        assert [f.check for f in case.run(target).findings] == ["rows"]


def test_a_backend_without_the_kernel_is_a_skip() -> None:
    with planted(quant_fp8=right) as target:
        case = next(iter(invariance.cases("quick", [SPECS["rms_norm"]])))
        assert case.run(target).skipped.startswith("declared unsupported")


@pytest.mark.gpu
@pytest.mark.parametrize("op", ["sparse_attention", "linear_fp8", "grouped_linear", "index_score"])
def test_the_reference_on_a_gpu(op: str) -> None:
    target = Target(REFERENCE, torch.device("cuda", 0))
    CATALOG.load(REFERENCE)
    with REGISTRY.using(REFERENCE, ""):
        for case in invariance.cases("quick", [SPECS[op]]):
            outcome = case.run(target)
            assert outcome.passed, (case.id, *map(str, outcome.findings))
