"""The loading benchmark: every loader runs, the lines parse, and a missed limit is told by the exit status."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from deepinfer.model.config import ModelConfig
from released import GOLDEN_CHECKPOINT

Command = Callable[..., int]


@pytest.fixture
def loading(load_benchmark: Callable[[str], ModuleType]) -> Any:
    return load_benchmark("loading")


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("loader", ["bare", "owned", "reader", "model"])
def test_every_loader_loads(loading: Any, capsys: pytest.CaptureFixture[str], loader: str) -> None:
    assert loader in loading.LOADERS and len(loading.LOADERS) == 4
    loading.child(loader, GOLDEN_CHECKPOINT)
    found = json.loads(capsys.readouterr().out)
    assert found["seconds"] > 0 and found["peak"] > 1 << 20 and found["system"] >= 0


def test_a_written_checkpoint_is_measured_in_a_process_of_its_own(
    loading: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    values = json.loads((GOLDEN_CHECKPOINT / "config.json").read_text())
    monkeypatch.setattr(loading, "config_values", lambda: values)  # its own are a gigabyte
    assert len(list(loading.write(tmp_path).glob("*.safetensors"))) == 3
    found = loading.measure("bare", tmp_path, cold=True)
    assert found["seconds"] > 0 and found["peak"] > 1 << 20


def fake(loading: Any, monkeypatch: pytest.MonkeyPatch, size: int, **changes: float) -> None:
    """Measurements that keep every limit, but for `changes`: seconds of '<loader>_cold' or '_warm', 'peak' of all."""
    seconds = {"bare_cold": 1.0, "owned_cold": 9.0, "bare_warm": 0.01, "owned_warm": 1.0}

    def measure(loader: str, directory: Path, *, cold: bool) -> dict[str, Any]:
        case = f"{loader}_{'cold' if cold else 'warm'}"
        return {
            "seconds": changes.get(case, seconds.get(case, 1.4)),
            "peak": changes.get("peak", 1.3) * size,
            "system": 0.1,
        }

    monkeypatch.setattr(loading, "measure", measure)


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({}, ""),
        ({"owned_cold": 99.0, "bare_warm": 99.0}, ""),  # limits are over bare when cold, over owned when warm
        ({"reader_cold": 1.5}, "reader cold"),
        ({"model_warm": 1.5}, "model warm"),
        ({"peak": 1.31}, "reader cold, model cold, reader warm, model warm"),
    ],
)
def test_a_missed_limit_is_exit_status_1_where_it_is_checked(
    loading: Any,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    changes: dict[str, float],
    missed: str,
) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(10_000))
    fake(loading, monkeypatch, 10_000, **changes)
    assert command(loading, "--model", tmp_path, "--json", "--check") == (1 if missed else 0)
    printed = capsys.readouterr()
    rows = [json.loads(line) for line in printed.out.splitlines()]
    assert [row["case"] for row in rows[:5]] == ["bare cold", "owned cold", "reader cold", "model cold", "bare warm"]
    assert len(rows) == 8 and {row["file_bytes"] for row in rows} == {10_000}
    assert rows[0]["of_bare"] == rows[5]["of_owned"] == 1 and rows[0]["gb_per_s"] == round(10_000 / 1e9, 3)
    assert printed.err == (f"limits missed: {missed}\n" if missed else "")
    assert command(loading, "--model", tmp_path, "--repeats", 2) == 0  # without --check
    only = command(loading, "--model", tmp_path, "--loaders", "reader", "--json")
    assert only == 0 and json.loads(capsys.readouterr().out.splitlines()[-1])["of_bare"] is None


def test_the_generated_checkpoint_has_a_configuration_of_the_model(loading: Any) -> None:
    text = ModelConfig.from_dict(loading.config_values()).text
    assert text.n_routed_experts == 20 and text.num_hidden_layers == 10
