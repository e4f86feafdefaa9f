"""FlashInfer behind the contract: when it is registered, what it takes, and that ours go first. The library itself is
played by a module that computes in torch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from deepinfer.backends.cuda import CudaBackend, providers
from deepinfer.backends.cuda.register import ARCHS
from deepinfer.conformance.views import shift
from deepinfer.hal.catalog import CATALOG
from deepinfer.hal.registry import REGISTRY, Kernel
from deepinfer.ops.spec import SPECS

MODULE = "deepinfer.backends.cuda.providers.flashinfer"


class Calls(ModuleType):
    """Says what it was given, and refuses what the library refuses."""

    def __init__(self) -> None:
        super().__init__("flashinfer")
        self.seen: list[str] = []

    def _check(self, *tensors: torch.Tensor) -> None:
        for x in tensors:
            assert x.data_ptr() % 16 == 0 and all(s % 8 == 0 for s in x.stride()[:-1]), "the library reads 16 bytes"

    def rmsnorm(self, x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor) -> None:
        self.seen.append("rmsnorm")
        self._check(x, weight, out)
        wide = x.float()
        out.copy_(wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps) * weight.float())

    def silu_and_mul(self, x: torch.Tensor, out: torch.Tensor) -> None:
        self.seen.append("silu_and_mul")
        self._check(x, out)
        gate, up = x.float().chunk(2, -1)
        out.copy_(torch.nn.functional.silu(gate) * up)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """A registry with the provider in it, for the time of a test."""
    CATALOG.load("reference")
    CATALOG.load("cuda")
    known = set(REGISTRY.kernels())
    fake = Calls()
    monkeypatch.setitem(sys.modules, "flashinfer", fake)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    importlib.import_module(MODULE)
    assert fake.seen == []
    yield fake
    for kernel in set(REGISTRY.kernels()) - known:
        REGISTRY.remove(kernel)
    sys.modules.pop(MODULE, None)


def provider(op: str) -> Kernel:
    return next(k for k in REGISTRY.kernels(op) if k.id == "cuda:flashinfer")


def answer(op: str, *args: Any) -> str | None:
    supports = provider(op).supports
    assert supports is not None
    return supports(SPECS[op].signature(*args))


def test_nothing_is_registered_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "find_spec", lambda name: None)
    assert providers.installed() == ()
    monkeypatch.setattr(providers, "find_spec", lambda name: object())
    assert providers.installed() == (".providers.flashinfer",)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert CudaBackend().kernel_modules[-1] == ".providers.flashinfer"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert ".providers.flashinfer" not in CudaBackend().kernel_modules


def test_ours_go_first_and_a_provider_needs_a_pin_and_leave(library: Calls) -> None:
    for op in ("rms_norm", "silu_mul"):
        found = provider(op)
        ours = [k for k in REGISTRY.kernels(op) if k.backend == "cuda" and k is not found]
        assert ours and all(k.priority > found.priority and not k.fast for k in ours)
        assert found.fast and found.source == "torch" and found.archs == ARCHS and not found.own


def test_what_it_takes(library: Calls) -> None:
    x, weight = torch.zeros(2, 64).bfloat16(), torch.ones(64).bfloat16()
    assert answer("rms_norm", x, weight, 1e-6) is None
    assert "multiple of 8, got 60" in str(answer("rms_norm", x[:, :60], weight[:60], 1e-6))
    assert answer("silu_mul", x) is None
    assert "multiple of 16, got 56" in str(answer("silu_mul", torch.zeros(2, 56).bfloat16()))


def test_a_row_of_zeros_without_eps_stays_zeros(library: Calls) -> None:
    x = torch.tensor([[0.0] * 8, [2.0] * 8]).bfloat16()
    assert provider("rms_norm").fn(x, torch.ones(8).bfloat16(), 0.0, None).tolist() == [[0.0] * 8, [1.0] * 8]


@pytest.mark.parametrize("odd", [False, True])
def test_tensors_anywhere_give_the_contract_s_results(library: Calls, odd: bool) -> None:
    draw = torch.Generator().manual_seed(1)
    x, weight = torch.randn(5, 64, generator=draw).bfloat16(), torch.randn(64, generator=draw).bfloat16()
    place = (lambda t: shift(t, 1)) if odd else (lambda t: t)
    for op, args, name in (("rms_norm", (x, weight, 1e-6), "rmsnorm"), ("silu_mul", (x,), "silu_and_mul")):
        with REGISTRY.using("reference"):
            want = SPECS[op].run(*args, None)
        out = place(torch.empty_like(want))
        got = provider(op).fn(*(place(a) if isinstance(a, torch.Tensor) else a for a in args), out)
        assert got is out and library.seen[-1] == name
        torch.testing.assert_close(got.float(), want.float(), rtol=2**-7, atol=0)
        strided = torch.zeros(5, 71).bfloat16()[:, : x.shape[1]].copy_(x)
        again = provider(op).fn(strided, *args[1:], None)
        assert torch.equal(again, got)
        assert provider(op).fn(x[:0], *args[1:], None).shape == (0, want.shape[1])
