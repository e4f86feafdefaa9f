"""Kernel selection: capability, priority, pins, strict mode, explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from deepinfer.hal.errors import BackendError, InvalidArgumentError, KernelError
from deepinfer.hal.registry import Kernel, Registry, Signature, parse_pins


def kernel(backend: str, **fields: Any) -> Kernel:
    return Kernel(op="noop", version=0, backend=backend, fn=lambda *args: backend, **fields)


def signature(**fields: Any) -> Signature:
    return Signature(op="noop", version=0, device_type=fields.pop("device_type", "cpu"), **fields)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry = Registry()
    registry.configure(strict=False, allow_fast=False)
    registry.add(kernel("reference"))
    return registry


def test_reference_is_the_default_and_the_last_resort(registry: Registry) -> None:
    assert registry.select(signature()).backend == "reference"
    registry.add(kernel("cuda", priority=-5))
    assert registry.select(signature()).backend == "reference", "an inactive backend is no candidate"
    with registry.using("cuda"):
        assert registry.select(signature()).backend == "cuda", "the active backend comes before any reference priority"
    assert registry.active == "reference"


def test_higher_priority_wins_and_an_unable_kernel_is_passed_over(registry: Registry) -> None:
    slow = registry.add(kernel("cuda", name="slow", priority=1))
    registry.add(kernel("cuda", name="fast", priority=9, supports=lambda s: "head_dim 512 only"))
    best = registry.add(kernel("cuda", name="best", priority=5))
    with registry.using("cuda"):
        assert registry.select(signature()) is best
        reasons = {v.kernel.id: v.reason for v in registry.explain(signature())}
    assert reasons["cuda:fast"] == "head_dim 512 only"
    assert reasons["cuda:best"] == "chosen"
    assert reasons[slow.id] == "able, but comes later in order"


@pytest.mark.parametrize(
    ("fields", "call", "word"),
    [
        ({"device_types": ("cuda",)}, {}, "runs on cuda"),
        ({"archs": ("sm_90",)}, {}, "built for sm_90"),
        ({"fast": True}, {}, "not batch-invariant"),
        ({"layout": "tiled"}, {"layout": "contract"}, "takes weights in layout 'tiled'"),
    ],
)
def test_every_incapability_is_named(
    registry: Registry, fields: dict[str, Any], call: dict[str, Any], word: str
) -> None:
    registry.add(kernel("cuda", **fields))
    with registry.using("cuda", arch="sm_100"):
        assert registry.select(signature(**call)).backend == "reference"
        verdict = next(v for v in registry.explain(signature(**call)) if v.kernel.backend == "cuda")
    assert word in verdict.reason and not verdict.chosen


def test_another_version_of_the_op_is_refused(registry: Registry) -> None:
    with pytest.raises(KernelError, match="keeps version 0 of the op, wanted 1"):
        registry.select(Signature(op="noop", version=1, device_type="cpu"))


def test_fast_kernels_run_only_when_invariance_is_given_up(registry: Registry) -> None:
    registry.add(kernel("cuda", fast=True))
    with registry.using("cuda"):
        assert registry.select(signature()).backend == "reference"
        registry.configure(strict=False, allow_fast=True)
        assert registry.select(signature()).backend == "cuda"


def test_invariance_is_given_up_by_an_explicit_zero_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from deepinfer.hal import env

    for text, allowed in ((None, False), ("1", False), ("0", True)):
        monkeypatch.delenv("DEEPINFER_BATCH_INVARIANT", raising=False)
        if text is not None:
            monkeypatch.setenv("DEEPINFER_BATCH_INVARIANT", text)
        env.rearm("DEEPINFER_BATCH_INVARIANT")
        assert Registry().allow_fast is allowed
    monkeypatch.undo()
    env.rearm("DEEPINFER_BATCH_INVARIANT")


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Registry]]:
    """Makes a registry under environment variables, with kernels of an active backend beside the reference's."""
    from deepinfer.hal import env

    def under(*kernels: Kernel, **values: str) -> Registry:
        for name in ("PIN", "STRICT_KERNELS", "BATCH_INVARIANT"):
            monkeypatch.delenv(f"DEEPINFER_{name}", raising=False)
            if name in values:
                monkeypatch.setenv(f"DEEPINFER_{name}", values[name])
        env.rearm()
        registry = Registry()
        for one in (kernel("reference"), *kernels):
            registry.add(one)
        registry.activate("cuda")
        return registry

    yield under
    monkeypatch.undo()
    env.rearm()


def test_the_pin_variable_chooses_the_kernel(variables: Callable[..., Registry]) -> None:
    kernels = (kernel("cuda", name="best", priority=9), kernel("cuda", name="other"))
    for text, chosen in (("", "cuda:best"), ("no*=cuda:other", "cuda:other"), ("rms_norm=reference", "cuda:best")):
        assert variables(*kernels, PIN=text).select(signature()).id == chosen
    assert variables(*kernels, PIN="noop=reference").select(signature()).backend == "reference"
    with pytest.raises(KernelError, match="pinned to 'npu'"):
        variables(*kernels, PIN="noop=npu").select(signature())


def test_the_strict_variable_refuses_the_fallback(variables: Callable[..., Registry]) -> None:
    call = signature(device_type="cuda")
    for values in ({}, {"STRICT_KERNELS": "0"}):
        assert variables(**values).select(call).backend == "reference"
    with pytest.raises(KernelError, match="strict mode"):
        variables(STRICT_KERNELS="1").select(call)


def test_the_invariance_variable_lets_fast_kernels_run(variables: Callable[..., Registry]) -> None:
    fast = kernel("cuda", fast=True)
    for values in ({}, {"BATCH_INVARIANT": "1"}):
        assert variables(fast, **values).select(signature()).backend == "reference"
    assert variables(fast, BATCH_INVARIANT="0").select(signature()).backend == "cuda"


def test_pins_narrow_by_glob_and_nest(registry: Registry) -> None:
    registry.add(kernel("cuda"))
    with registry.pin("no*", "cuda"):
        assert registry.select(signature()).backend == "cuda"
        with registry.pin("noop", "reference"):
            assert registry.select(signature()).backend == "reference"
        assert registry.select(signature()).backend == "cuda"
    assert registry.select(signature()).backend == "reference"
    with registry.pin("noop", "npu"), pytest.raises(KernelError, match="pinned to 'npu'"):
        registry.select(signature())


@pytest.mark.parametrize(
    ("op", "kernel", "message"),
    [
        ("noop", "reference", None),
        ("no*", "reference", None),
        ("nope", "reference", r"'nope=reference'; allowed: an op of `deepinfer ops list`, such as noop"),
        ("noop", "cuda", r"'noop=cuda'; allowed: kernels of noop: reference"),
    ],
)
def test_pins_that_nothing_satisfies_are_refused(registry: Registry, op: str, kernel: str, message: str | None) -> None:
    with registry.pin(op, kernel):
        if message is None:
            registry.check_pins(["noop", "other"])
        else:
            with pytest.raises(InvalidArgumentError, match=message):
                registry.check_pins(["noop", "other"])


def test_a_kernel_can_call_what_it_stands_in_front_of(registry: Registry) -> None:
    registry.add(kernel("cuda"))
    registry.add(kernel("front"))
    with registry.pin("noop", "cuda"), registry.pin("noop", "front"):
        assert registry.select(signature()).backend == "front"
        with registry.unpinned("noop", "front"):
            assert registry.select(signature()).backend == "cuda"
        assert registry.select(signature()).backend == "front"
    with registry.pin("noop", "front"), registry.unpinned("noop", "front"):
        assert registry.select(signature()).backend == "reference"


def test_strict_mode_refuses_the_fallback_but_not_a_pin(registry: Registry) -> None:
    registry.add(kernel("cuda", supports=lambda s: "bf16 only"))
    registry.configure(strict=True, allow_fast=False)
    with registry.using("cuda"):
        with pytest.raises(KernelError, match=r"strict mode: noop.*cuda: bf16 only"):
            registry.select(signature(device_type="cuda"))
        with registry.pin("noop", "reference"):
            assert registry.select(signature(device_type="cuda")).backend == "reference"
        assert registry.select(signature(device_type="cpu")).backend == "reference", "host work is the reference's own"


def test_a_kernel_registers_once(registry: Registry) -> None:
    with pytest.raises(BackendError, match="registered twice"):
        registry.add(kernel("reference"))


def test_changes_reach_listeners(registry: Registry) -> None:
    calls: list[str] = []
    registry.on_change(lambda: calls.append("changed"))
    added = registry.add(kernel("cuda"))
    registry.activate("cuda")
    with registry.pin("noop", "reference"):
        pass
    registry.remove(added)
    assert len(calls) == 5
    assert registry.kernels("noop") == registry.kernels()


def test_pin_syntax() -> None:
    assert parse_pins(" a=cuda , linear_*=cuda:triton ,") == [("a", "cuda"), ("linear_*", "cuda:triton")]
    with pytest.raises(InvalidArgumentError, match="DEEPINFER_PIN.*'rms_norm'"):
        parse_pins("rms_norm")


def test_own_kernels_are_told_from_fallbacks() -> None:
    assert kernel("reference").own and kernel("cuda", source="triton").own
    assert not kernel("cuda", source="torch").own
