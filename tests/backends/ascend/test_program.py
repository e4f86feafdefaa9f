"""Programs: whose text they are, when it is lowered anew, how they are launched."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ascend import needs_tilelang
from ascend_ops import findings, launch, ops
from deepinfer.backends.ascend import lower, program, streams
from deepinfer.backends.ascend.program import Program, flat, recast, watched
from deepinfer.backends.ascend.self_test import SELF_TEST
from deepinfer.backends.ascend.sim import KernelFault, SourceError, parse
from deepinfer.hal.device import Device
from deepinfer.hal.graph import GraphsUnavailable

SOURCE = '''"""A file."""
SIZE = 4

def part(x):
    return x + SIZE

def wanted(n):
    """What it does."""
    return part(n)  # so

def other(n):
    return n
'''


def digest(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, needed: str = "Z = 1", **parameters: int) -> str:
    (folder / "some_kernels.py").write_text(text)
    (folder / "parts_some.py").write_text(needed)
    monkeypatch.setattr(program, "HERE", folder)
    return Program("some_kernels.py", "wanted", needs=("parts_some.py",), **parameters).digest()


@pytest.mark.parametrize(
    ("old", "new"), [("# so", "# or so"), ("What it does", "It"), ("A file", "One"), ("return n\n", "return n + 1\n")]
)
def test_a_text_outlives_words_and_other_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    assert digest(tmp_path, monkeypatch, SOURCE) == digest(tmp_path, monkeypatch, SOURCE.replace(old, new))


@pytest.mark.parametrize(("old", "new"), [("SIZE = 4", "SIZE = 5"), ("x + SIZE", "x - SIZE"), ("part(n)", "part(2)")])
def test_a_text_is_stale_when_what_it_uses_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    first = digest(tmp_path, monkeypatch, SOURCE)
    assert first != digest(tmp_path, monkeypatch, SOURCE.replace(old, new))
    assert first != digest(tmp_path, monkeypatch, SOURCE, "Z = 2")
    assert first != digest(tmp_path, monkeypatch, SOURCE, n=1)


def test_a_stale_text_is_lowered_anew_and_a_current_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def lowering(file: Path, name: str, *_: Any, **__: Any) -> str:
        asked.append(name)
        return "new text"

    monkeypatch.setattr(lower, "lower", lowering)
    kept = SELF_TEST.committed.read_text(encoding="utf-8")
    assert Program("self_test_kernels.py", "self_test").text() == kept and not asked
    changed = Program("self_test_kernels.py", "self_test")
    monkeypatch.setattr(changed, "digest", lambda: "f" * 24)
    first, rest = changed.text().split("\n", 1)
    assert rest == "new text" and first.endswith(f"source {'f' * 24}.") and asked == ["self_test"]


def test_memory_of_strided_rows() -> None:
    wide = torch.arange(40).view(4, 10)
    assert flat(wide[1:3, 2:5]).tolist() == list(range(12, 25))
    assert flat(wide[:0]).numel() == 1
    assert flat(wide[:, :1].expand(4, 3)).numel() == 31


def test_bytes_as_other_elements() -> None:
    words = torch.arange(12, dtype=torch.int64)
    assert recast(words[::6][:1], torch.int32).shape == (2,), "a dim of one element may have any stride"
    pairs = torch.arange(9, dtype=torch.uint8)[1:].view(2, 4)
    assert recast(pairs, torch.int16).view(torch.uint8).flatten().tolist() == list(range(1, 9))
    assert recast(pairs, torch.int16).data_ptr() % 2 == 0
    assert recast(pairs[:0], torch.int16).shape == (0, 2)


@needs_tilelang
def test_a_single_row_may_have_any_stride() -> None:
    assert "sample_draw" in ops()
    logits = torch.randn(1, 9)
    some = {torch.int32: torch.tensor([5, 0], dtype=torch.int32)[:1], torch.float32: torch.tensor([1.0])}
    numbers = torch.arange(7, dtype=torch.int64)[::6][:1]
    never = torch.tensor([float("-inf")])
    args = (logits, some[torch.float32], never, some[torch.int32], some[torch.int32], some[torch.int32], numbers)
    assert not findings("sample_draw", (*args, numbers, 0))


@needs_tilelang
def test_launches_are_listed_and_take_the_schedule() -> None:
    x = torch.arange(3 * 64, dtype=torch.int32).view(3, 64)
    y = torch.empty_like(x)
    with watched(parse("lazy+cores")) as runs:
        SELF_TEST(3, X=x, Y=y, m=3)
        SELF_TEST(0, X=x[:0], Y=y[:0], m=0)
    assert torch.equal(y, 3 * x + 7)
    assert [str(run.report.schedule) for run in runs] == ["lazy+cores"] and runs[0].program is SELF_TEST


@needs_tilelang
def test_a_tensor_that_the_text_does_not_have_is_refused_and_a_fault_named() -> None:
    x = torch.zeros(2, 64, dtype=torch.int32)
    with pytest.raises(SourceError, match="no parameter W"):
        SELF_TEST(2, X=x, Y=x.clone(), W=x.clone(), m=2)
    with pytest.raises(KernelFault, match="argument"):
        SELF_TEST(2, X=x, Y=x.clone(), m=4)  # two rows that are not there


@needs_tilelang
def test_widths_that_a_kernel_does_not_take_are_left_to_the_reference() -> None:
    with pytest.raises(Exception, match="D from 1 to 8192, got 8193"):
        launch("rms_norm", (torch.zeros(1, 8193).bfloat16(), torch.zeros(8193).bfloat16(), 1e-6))


def test_graphs_are_said_to_be_missing_where_torch_npu_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "npu", SimpleNamespace(), raising=False)
    assert isinstance(streams.npu_graphs(Device("npu")), GraphsUnavailable)
    monkeypatch.setattr(torch, "npu", SimpleNamespace(NPUGraph=object, graph=object), raising=False)
    assert isinstance(streams.npu_graphs(Device("npu")), streams.NpuGraphs)
