"""Generated dispatch: what it lets through, what it refuses in words, when it looks again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from deepinfer.backends import reference
from deepinfer.hal.errors import ContractError, KernelError
from deepinfer.hal.registry import REGISTRY, Kernel, Signature
from deepinfer.ops.numerics import Exact
from deepinfer.ops.spec import (
    BF16,
    E4M3,
    I32,
    SPECS,
    U8,
    Cost,
    OpSpec,
    WeightHandle,
    define,
    freeze,
    handle,
    result,
    scalar,
    tensor,
)  # fmt: skip

ROWS, WIDTH, OUT = 3, 64, 40


@pytest.fixture
def op() -> Iterator[OpSpec]:
    reference.backend.load()  # before the definition: loading refuses a contract with a hole
    spec = define(
        "test_linear",
        version=0,
        family="test",
        args=[
            tensor("x", "T K", BF16),
            tensor("scale", "T K//32", U8),
            handle("weight", weight=("N K", E4M3), scale=("ceil(N,32) ceil(K,32)", U8)),
            tensor("rows", "T", I32, optional=True),
            tensor("offsets", "T+1", I32, optional=True),
            tensor("ids", "M", I32, optional=True),
            tensor("values", "M", BF16, optional=True),
            tensor("pool", "P B", U8, mutable=True, layout="rows"),
            scalar("flag", bool),
            scalar("size", int, static=False),
        ],
        outs=[result("y", "T N", BF16)],
        dynamic="T P M",
        semantics="",
        numerics=Exact(),
        cost=lambda d: Cost(2 * d["T"] * d["N"] * d["K"], 0),
        samples=lambda rng, device: iter(()),
    )
    yield spec
    del SPECS["test_linear"]
    for kernel in REGISTRY.kernels("test_linear"):
        REGISTRY.remove(kernel)


@pytest.fixture
def calls(op: OpSpec) -> list[Signature]:
    seen: list[Signature] = []

    def supports(signature: Signature) -> None:
        seen.append(signature)

    def run(x: Any, scale: Any, weight: Any, *rest: Any) -> Any:
        out = rest[-1]
        return x.new_zeros(x.shape[0], weight.dims["N"]) if out is None else out.zero_()

    REGISTRY.add(Kernel("test_linear", 0, "reference", run, supports=supports))
    return seen


def weights() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(OUT, WIDTH).to(E4M3), torch.zeros(2, 2, dtype=U8)


def arguments(op: OpSpec, rows: int = ROWS) -> list[Any]:
    return [
        torch.zeros(rows, WIDTH, dtype=BF16),
        torch.zeros(rows, WIDTH // 32, dtype=U8),
        op.prepare(*weights()),
        None,
        None,
        torch.zeros(7, dtype=I32),
        torch.zeros(7, dtype=BF16),
        torch.zeros(5, 16, dtype=U8)[:, :8],
        True,
        7,
    ]


def test_row_counts_never_reach_selection(op: OpSpec, calls: list[Signature]) -> None:
    args = arguments(op)
    calls.clear()
    assert op.run(*args).shape == (ROWS, OUT)
    for rows in (0, 1, 17):
        assert op.run(*arguments(op, rows)).shape == (rows, OUT)
    selections = [s for s in calls if not s.preparing]
    assert len(selections) == 1
    assert dict(selections[0].dims) == {"K": WIDTH, "N": OUT, "B": 8}
    assert dict(selections[0].scalars) == {"flag": True}
    assert selections[0].layout == "contract"
    assert selections[0].args["pool"].strides == (16, 1)


def test_layout_dtype_alignment_and_scalars_are_part_of_the_signature(op: OpSpec, calls: list[Signature]) -> None:
    variants = []
    for change in range(4):
        args = arguments(op)
        if change == 1:
            args[8] = False
        if change == 2:
            args[0] = torch.zeros(ROWS * WIDTH + 1, dtype=BF16)[1:].view(ROWS, WIDTH)
        if change == 3:
            args[7] = torch.zeros(5, 32, dtype=U8)[:, :8]
        calls.clear()
        op.run(*args)
        variants.append([s for s in calls if not s.preparing])
    assert all(len(v) == 1 for v in variants), "each variant is selected for itself"
    assert variants[2][0].args["x"].aligned is False and variants[0][0].args["x"].aligned is True


BAD = {
    "missing tensor": (0, None, "x must be a tensor"),
    "rank": (0, torch.zeros(ROWS, WIDTH, 1, dtype=BF16), r"x must have rank 2 \[T K\]"),
    "dtype": (0, torch.zeros(ROWS, WIDTH), "x must be bfloat16, got float32"),
    "strided": (0, torch.zeros(WIDTH, ROWS, dtype=BF16).T, "x must be contiguous"),
    "static dim": (0, torch.zeros(ROWS, 32, dtype=BF16), "dim K is"),
    "dynamic dim": (0, torch.zeros(ROWS + 1, WIDTH, dtype=BF16), f"dim T is {ROWS} in scale but {ROWS + 1} in x"),
    "expression": (1, torch.zeros(ROWS, 3, dtype=U8), r"scale has size 3 in dim 1, must be K//32 = 2"),
    "no handle": (2, torch.zeros(OUT, WIDTH), "weight must be a handle from test_linear's prepare, got Tensor"),
    "optional dim": (3, torch.zeros(ROWS + 1, dtype=I32), "dim T"),
    "optional expression": (4, torch.zeros(ROWS, dtype=I32), r"offsets has size 3 in dim 0, must be T\+1 = 4"),
    "optional peers": (6, torch.zeros(8, dtype=BF16), "dim M is 8 in values but 7 in ids"),
    "column stride": (7, torch.zeros(8, 5, dtype=U8).T, "pool must have unit stride in its last dim"),
    "scalar type": (8, 1, "flag must be bool, got 1"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("warm", [False, True])
def test_bad_arguments_are_refused_in_words(op: OpSpec, calls: list[Signature], name: str, warm: bool) -> None:
    position, value, message = BAD[name]
    args = arguments(op)
    if warm:
        op.run(*args)
    args[position] = value
    with pytest.raises(ContractError, match=message) as caught:
        op.run(*args)
    assert "op test_linear (version 0)" in str(caught.value)


def test_a_handle_of_another_op_is_refused(op: OpSpec, calls: list[Signature]) -> None:
    args = arguments(op)
    own: WeightHandle = args[2]
    args[2] = WeightHandle("other", own.layout, own.tensors, own.dims, own.nbytes, own.key)
    with pytest.raises(ContractError, match="handle of op other"):
        op.signature(*args)


@pytest.mark.parametrize("warm", [False, True])
def test_a_weight_prepared_on_another_device_is_refused(op: OpSpec, calls: list[Signature], warm: bool) -> None:
    elsewhere = tuple(w.to("meta") for w in weights())
    args = arguments(op)
    if warm:
        op.run(*args)
    here = args[2]
    args[2] = op.prepare(*elsewhere)
    assert args[2].key != here.key
    with pytest.raises(ContractError, match="weight was prepared on meta, other arguments are on cpu"):
        op.run(*args)


def test_out_buffers_are_checked_and_used(op: OpSpec, calls: list[Signature]) -> None:
    out = torch.full((ROWS, OUT), float("nan"), dtype=BF16)
    assert op.run(*arguments(op), out) is out and not out.isnan().any()
    for bad in (torch.empty(ROWS + 1, OUT, dtype=BF16), torch.empty(ROWS, OUT), torch.empty(OUT, ROWS, dtype=BF16).T):
        with pytest.raises(ContractError, match="out y"):
            op.run(*arguments(op), bad)
    with pytest.raises(ContractError, match="out must hold 1 tensors, got 2"):
        op.run(*arguments(op), (out, out))


def test_weights_are_checked_when_prepared(op: OpSpec, calls: list[Signature]) -> None:
    weight, scale = weights()
    with pytest.raises(ContractError, match=r"scale has size 3 in dim 0, must be ceil\(N,32\) = 2"):
        op.prepare(weight, torch.zeros(3, 2, dtype=U8))
    with pytest.raises(ContractError, match=r"prepared from 2 tensors \(weight, scale\), got 1"):
        op.prepare(weight)
    prepared = op.prepare(weight, scale)
    assert prepared.nbytes == OUT * WIDTH + 4 and prepared.dims == {"N": OUT, "K": WIDTH}
    assert prepared.tensors[0].data_ptr() == weight.data_ptr(), "contract layout is not copied"


def test_a_backend_layout_stays_with_its_kernel(op: OpSpec, calls: list[Signature]) -> None:
    ran = Kernel(
        "test_linear", 0, "other", lambda *args: "ran", layout="transposed", prepare=lambda w, s: (w.T.contiguous(), s)
    )
    REGISTRY.add(ran)
    with REGISTRY.using("other"):
        args = arguments(op)
        assert args[2].layout == "transposed" and args[2].tensors[0].shape == (WIDTH, OUT)
        assert op.run(*args) == "ran"
    with pytest.raises(KernelError, match="handle holds 'transposed'"):
        op.run(*args)


def test_selection_is_repeated_after_a_change(op: OpSpec, calls: list[Signature]) -> None:
    args = arguments(op)
    op.run(*args)
    calls.clear()
    op.run(*args)
    assert not calls, "the second call uses the table"
    with REGISTRY.pin("test_linear", "reference"):
        op.run(*args)
    assert calls


def test_a_change_while_a_kernel_is_chosen_is_not_lost(op: OpSpec, calls: list[Signature]) -> None:
    """Another thread may pin or activate something between the choice and its entry in the table."""
    args = arguments(op)
    REGISTRY.add(Kernel("test_linear", 0, "other", lambda *args: "new"))
    active, changed = REGISTRY.active, []

    def supports(signature: Signature) -> str | None:
        if not changed:
            changed.append(True)
            thread = threading.Thread(target=REGISTRY.activate, args=("other",))
            thread.start()
            thread.join()
        return None

    REGISTRY.add(Kernel("test_linear", 0, "reference", lambda *a: "old", name="first", priority=1, supports=supports))
    try:
        op.run(*args)
        assert op.run(*args) == "new"
    finally:
        REGISTRY.activate(active)


def test_workspace_comes_from_the_selected_kernel(op: OpSpec, calls: list[Signature]) -> None:
    assert op.workspace(*arguments(op)) == 0
    given: list[Any] = []
    REGISTRY.add(
        Kernel("test_linear", 0, "scratch", lambda *args: given.append(args[-1]), workspace=lambda x, *rest: 4 * len(x))
    )
    with REGISTRY.using("scratch"):
        args = arguments(op)
        size = op.workspace(*args)
        scratch = torch.empty(size, dtype=U8)
        op.run(*args, None, scratch)
    assert size == 4 * ROWS and given[0] is scratch


def test_freeze_refuses_a_spec_without_reference(op: OpSpec) -> None:
    with pytest.raises(ContractError, match="test_linear .* has no reference implementation"):
        freeze()


def test_a_name_is_defined_once(op: OpSpec) -> None:
    with pytest.raises(ContractError, match="defined twice"):
        define(
            "test_linear", version=1, family="test", args=[], outs=[], dynamic="", semantics="", numerics=Exact(),
            cost=op.cost, samples=op.samples,
        )  # fmt: skip


@pytest.mark.parametrize("size", [-1, 2**31, 10**30, 7.0, True, None, "7", [7], torch.tensor(7), float("nan")])
@pytest.mark.parametrize("seen", [False, True])
def test_scalars_outside_the_signature_are_checked_on_every_call(
    op: OpSpec, calls: list[Signature], size: Any, seen: bool
) -> None:
    args = arguments(op)
    if seen:
        op.run(*args)
    args[-1] = size
    with pytest.raises(ContractError, match="size must"):
        op.run(*args)


def call_rms_norm(eps: Any) -> Any:
    reference.backend.load()
    return SPECS["rms_norm"].run(torch.ones(2, 32, dtype=BF16), torch.ones(32, dtype=BF16), eps)


@pytest.mark.parametrize("eps", [None, "x", [1], True, float("nan"), float("inf"), 1e39, 10**400, torch.tensor(1.0)])
def test_floats_are_checked_on_every_call(eps: Any) -> None:
    assert call_rms_norm(1e-6).equal(call_rms_norm(0)) is not None
    with pytest.raises(ContractError, match="eps must be"):
        call_rms_norm(eps)


@pytest.mark.parametrize("eps", [-1, -1e-30])
@pytest.mark.parametrize("seen", [False, True])
def test_floats_have_a_least_value(eps: float, seen: bool) -> None:
    SPECS["rms_norm"].run.__globals__["_table"].clear()
    if seen:
        call_rms_norm(1e-6)
    with pytest.raises(ContractError, match="eps must be a finite number of fp32, at least 0, got -1"):
        call_rms_norm(eps)


def test_every_epsilon_has_a_least_value() -> None:
    found = {(s.name, a.name): a.low for s in SPECS.values() for a in s.args if a.name.endswith("eps")}
    assert set(found.values()) == {0} and len(found) >= 6


def test_integers_have_bounds() -> None:
    logits, bias, image = torch.zeros(2, 8), torch.zeros(8), torch.zeros(2, dtype=torch.bool)
    for k in (0, -1, 9, 10**30):
        with pytest.raises(ContractError, match=r"k must lie in 1..8 \(E\)"):
            SPECS["moe_gate"].run(logits, bias, bias, image, k, 1.0)
    with pytest.raises(ContractError, match="streams must lie in 1..2147483647"):
        SPECS["embed_streams"].run(torch.zeros(2, dtype=I32), torch.zeros(4, 32, dtype=BF16), 0)
