"""The judge sees what a kernel does wrong, each kind by the name of its check. Kernels are the reference, spoilt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from deepinfer.conformance.calls import samples
from deepinfer.conformance.case import UNSUPPORTED, Outcome, Target
from deepinfer.conformance.judge import judge
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.registry import REGISTRY, Kernel
from deepinfer.ops.spec import SPECS
from mutant_backend import reference

CPU = torch.device("cpu")
TARGET = Target("spoilt", CPU)
Fn = Callable[..., Any]


@pytest.fixture(autouse=True)
def _loaded() -> None:
    CATALOG.load("reference")


@contextmanager
def spoilt(op: str, fn: Fn | None, **changes: Any) -> Iterator[None]:
    """A backend whose only kernel is `fn`."""
    kernel = Kernel(op, SPECS[op].version, "spoilt", fn, source="triton", **changes) if fn is not None else None
    with REGISTRY.using("spoilt"):
        if kernel is not None:
            REGISTRY.add(kernel)
        try:
            yield
        finally:
            if kernel is not None:
                REGISTRY.remove(kernel)


def sample(op: str, label: str) -> tuple[Any, ...]:
    return next(s.args for s in samples(SPECS[op]) if s.label == label)


def outcome(op: str, label: str, fn: Fn | None, variant: str = "", **changes: Any) -> Outcome:
    args = sample(op, label)
    with spoilt(op, fn, **changes):
        return judge(SPECS[op], args, TARGET, variant)


def checks(found: Outcome) -> set[str]:
    return {f.check for f in found.findings}


def wrap(op: str, after: Callable[..., Any]) -> Fn:
    """The reference's kernel, and then `after(result, args)`; what that returns, if anything, is the result."""

    def fn(*args: Any) -> Any:
        result = reference(op)(*args)
        changed = after(result, args)
        return result if changed is None else changed

    return fn


def test_the_reference_under_another_name_passes_every_variant() -> None:
    for op, label, variants in (
        ("rms_norm", "37 rows", ("", "strided")),
        ("hc_expand", "37 rows", ("", "strided", "in place")),
        ("linear_fp8", "37 rows", ("", "strided")),
        ("index_key_store", "mixed batch, ratio 2", ("", "strided", "far pages")),
        ("window_store", "mixed batch", ("", "strided", "far ring")),
        ("engram_gather", "repeats", ("", "far weight")),
    ):
        for variant in variants:
            found = outcome(op, label, reference(op), variant)
            assert found.passed, (op, variant, found)


def test_an_op_without_a_kernel_is_skipped_not_judged_by_the_reference() -> None:
    found = outcome("rms_norm", "37 rows", None)
    assert (
        not found.findings and found.skipped.startswith(UNSUPPORTED) and "has no kernel for rms_norm" in found.skipped
    )
    found = outcome("rms_norm", "37 rows", reference("rms_norm"), supports=lambda signature: "only on Sundays")
    assert found.skipped.startswith(UNSUPPORTED) and "only on Sundays" in found.skipped


def poke(value: float) -> Callable[..., None]:
    def after(result: torch.Tensor, args: Any) -> None:
        result[2, 3] = value

    return after


def test_values() -> None:
    found = outcome("rms_norm", "37 rows", wrap("rms_norm", poke(9.0)))
    assert checks(found) == {"limit"} and found.findings[0].message.startswith("y[2, 3]: got 9, want ")
    assert found.worst is not None and found.worst > 1
    assert checks(outcome("rms_norm", "37 rows", wrap("rms_norm", poke(torch.nan)))) == {"nonfinite"}
    assert checks(outcome("gather_rows", "many rows", wrap("gather_rows", poke(9.0)))) == {"bits"}


def test_a_pinned_kernel_does_not_run_in_place_of_the_reference() -> None:
    """On another device it could not, and here it would be held against itself."""
    calls: list[int] = []
    counted = wrap("rms_norm", lambda y, args: calls.append(0))
    outcome("rms_norm", "37 rows", counted)
    free = len(calls)
    with REGISTRY.pin("rms_norm", "spoilt"):
        assert outcome("rms_norm", "37 rows", counted).passed
    assert free > 0
    assert len(calls) == 2 * free


def test_form_of_the_outputs() -> None:
    assert checks(outcome("rms_norm", "37 rows", wrap("rms_norm", lambda y, args: y.float()))) == {"dtype"}
    assert checks(outcome("rms_norm", "37 rows", wrap("rms_norm", lambda y, args: y[:5].contiguous()))) == {"shape"}
    assert checks(outcome("rms_norm", "37 rows", wrap("rms_norm", lambda y, args: y.t().contiguous().t()))) == {"shape"}


def test_an_exception_is_an_error() -> None:
    def fails(*args: Any) -> Any:
        raise ZeroDivisionError("by zero")

    (found,) = outcome("rms_norm", "37 rows", fails).findings
    assert str(found).startswith("error: ZeroDivisionError: by zero (test_judge.py:")
    assert str(found).endswith(", in fails)")  # the kernel's own line


def test_out_that_is_not_used() -> None:
    found = outcome("rms_norm", "37 rows", lambda x, weight, eps, out: reference("rms_norm")(x, weight, eps, None))
    assert checks(found) == {"out"} and "other tensors" in found.findings[-1].message


def test_elements_that_are_not_written_keep_no_luck() -> None:
    """A kernel that leaves the last row to whatever memory held."""

    def leaves(x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor | None) -> torch.Tensor:
        result: torch.Tensor = reference("rms_norm")(x, weight, eps, None)
        if out is not None:
            out[:-1] = result[:-1]
            return out
        return result

    found = outcome("rms_norm", "37 rows", leaves)
    assert checks(found) == {"out"} and "y[36, 0]: got nan, the plain call gave" in found.findings[0].message


def beyond(result: torch.Tensor, args: Any) -> None:
    """Write one element behind an output that has room behind it."""
    place = result.storage_offset() + result.numel()
    if place < result.untyped_storage().nbytes() // result.element_size():
        result.as_strided((1,), (1,), place).zero_()


def test_a_write_behind_an_output() -> None:
    found = outcome("rms_norm", "37 rows", wrap("rms_norm", beyond))
    assert checks(found) == {"guard"} and found.findings[0].message.startswith("out y: 1 bytes behind it")


def test_an_argument_that_changes() -> None:
    def weight(y: torch.Tensor, args: Any) -> None:
        args[1][3] = 0

    found = outcome("rms_norm", "37 rows", wrap("rms_norm", weight))
    assert checks(found) == {"input"} and found.findings[0].message.startswith("weight[3]: got 0, an argument that is")

    def prepared(y: torch.Tensor, args: Any) -> None:
        args[1].tensors[0][0, 0] = 0

    assert checks(outcome("linear_bf16", "37 rows", wrap("linear_bf16", prepared))) == {"input"}

    def only_out(y: torch.Tensor, args: Any) -> None:
        if args[3] is not None:
            args[1][3] = 0

    found = outcome("rms_norm", "37 rows", wrap("rms_norm", only_out))
    assert checks(found) == {"input"} and "weight: only read, yet changed at byte 6" in str(found.findings[0])


def test_a_byte_between_strided_pages() -> None:
    def spoils(result: None, args: Any) -> None:
        pages = args[1]
        place = pages.storage_offset() + pages.stride(0) - 1
        pages.as_strided((1,), (1,), place).fill_(0)

    found = outcome("index_key_store", "mixed batch, ratio 2", wrap("index_key_store", spoils))
    assert checks(found) == {"guard"} and "between its rows" in found.findings[0].message


def test_a_byte_of_no_entry() -> None:
    def spoils(result: None, args: Any) -> None:
        args[1][0].fill_(0)

    found = outcome("index_key_store", "mixed batch, ratio 2", wrap("index_key_store", spoils))
    assert checks(found) == {"stray_write"} and found.findings[0].message.startswith("pages[0, 0]: got 0")


def test_rows_taken_for_contiguous() -> None:
    def dense(x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor | None) -> Any:
        whole = x.as_strided(x.shape, (x.shape[1], 1))
        return reference("rms_norm")(whole, weight, eps, out)

    assert outcome("rms_norm", "37 rows", dense).passed
    assert checks(outcome("rms_norm", "37 rows", dense, "strided")) == {"strided"}


def test_reading_behind_an_argument_gives_nan() -> None:
    """A kernel that takes in one lane too many: zero in the pool's memory, poison behind a guarded tensor."""

    def wide(x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor | None) -> Any:
        room = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset() - x.numel()
        more = x.as_strided((1,), (1,), x.storage_offset() + x.numel())[0] * 0 if room else 0
        result = reference("rms_norm")(x, weight, eps, out)
        result[-1] += more
        return result

    assert checks(outcome("rms_norm", "37 rows", wide)) == {"out"}


def test_an_op_in_place_that_reads_what_it_wrote() -> None:
    def careless(x: torch.Tensor, y: torch.Tensor, post: Any, comb: Any, out: torch.Tensor | None) -> Any:
        out = torch.empty_like(x) if out is None else out
        for stream in range(x.shape[1]):
            out[:, stream] = reference("hc_expand")(x, y, post, comb, None)[:, stream]
        return out

    assert outcome("hc_expand", "37 rows", careless).passed
    assert checks(outcome("hc_expand", "37 rows", careless, "in place")) == {"alias"}


def test_offsets_of_32_bits() -> None:
    def narrow(weight: torch.Tensor, scale: torch.Tensor, rows: torch.Tensor, out: Any) -> Any:
        offset = (rows * weight.shape[1]).int().long().clamp(min=0)  # what a negative offset reads is no matter
        return reference("engram_gather")(weight, scale, offset // weight.shape[1], out)

    assert outcome("engram_gather", "repeats", narrow).passed
    found = outcome("engram_gather", "repeats", narrow, "far weight")
    assert checks(found) == {"far"} and "with weight below 2^31 bytes" in found.findings[0].message


def test_scratch_memory_that_is_too_small() -> None:
    def spills(x: Any, weight: Any, eps: float, out: Any, workspace: torch.Tensor | None = None) -> Any:
        if workspace is not None:
            assert workspace.numel() == 64
            beyond(workspace, ())
        return reference("rms_norm")(x, weight, eps, out)

    found = outcome("rms_norm", "37 rows", spills, workspace=lambda *args: 64)
    assert checks(found) == {"guard"} and found.findings[0].message.startswith("workspace: 1 bytes behind it")


def test_the_arguments_of_the_sample_stay_as_they_were() -> None:
    for op, label in (("index_key_store", "mixed batch, ratio 2"), ("hc_expand", "37 rows")):
        args = sample(op, label)
        before = [v.clone() if isinstance(v, torch.Tensor) else v for v in args]
        with spoilt(op, reference(op)):
            for variant in ("", "strided", "in place") if op == "hc_expand" else ("", "strided", "far pages"):
                judge(SPECS[op], args, TARGET, variant)
        for old, new in zip(before, args, strict=True):
            assert not isinstance(old, torch.Tensor) or torch.equal(old.view(torch.uint8), new.view(torch.uint8))


@pytest.mark.parametrize("op", ["engram_gather", "index_key_store", "window_store"])
def test_far_calls_begin_beyond_2_31_bytes(op: str) -> None:
    from deepinfer.conformance import far
    from deepinfer.ops.required import ids_of, pools

    label = "repeats" if op == "engram_gather" else "mixed batch, ratio 2" if op == "index_key_store" else "mixed batch"
    args = sample(op, label)
    for pool in pools(SPECS[op]):
        moved = far.move(SPECS[op], args, pool)
        assert moved is not None
        names = [a.name for a in SPECS[op].args]
        value, ids = moved.args[names.index(pool)], moved.args[names.index(ids_of(SPECS[op], pool))]
        used = ids[ids >= 0]
        assert int(used.min()) * value.stride(0) * value.element_size() > 2**31
        assert value[int(used.min())].data_ptr() - value.data_ptr() > 2**31
