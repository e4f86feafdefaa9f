from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from deepinfer.hal import env
from deepinfer.hal.errors import CheckpointError, InvalidArgumentError
from deepinfer.model import hub, presets

ID = "deepseek-ai/DeepSeek-V4.1-Flash"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.delenv("DEEPINFER_HF_MODEL_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    env.rearm()
    yield
    env.rearm()


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """Stands in for the hub and records what is asked of it."""
    calls: list[dict[str, Any]] = []

    def snapshot_download(**kwargs: Any) -> str:
        calls.append(kwargs)
        return str(tmp_path / "snapshot")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return calls


def set_home(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setenv("DEEPINFER_HF_MODEL_DIR", str(path))
    env.rearm()


def test_an_existing_directory_is_itself(tmp_path: Path, downloads: list[Any]) -> None:
    (tmp_path / "deepseek-ai" / "x").mkdir(parents=True)
    assert hub.resolve_model(tmp_path) == tmp_path
    assert hub.resolve_model("deepseek-ai/x") == Path("deepseek-ai/x")  # before the hub
    assert downloads == []


def test_a_hub_id_is_downloaded_without_foreign_formats(tmp_path: Path, downloads: list[Any]) -> None:
    assert hub.resolve_model(ID, revision="abc") == tmp_path / "snapshot"
    (call,) = downloads
    assert (call["repo_id"], call["revision"]) == (ID, "abc")
    assert "*.safetensors" in call["allow_patterns"] and "*.bin" not in call["allow_patterns"]
    assert "tqdm_class" not in call  # the hub's own progress bar


@pytest.mark.parametrize("name", ["tiny", "kernel"])
def test_presets_come_before_directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    monkeypatch.setattr(presets, "ensure_preset", lambda preset: tmp_path / "made" / preset)
    (tmp_path / name).mkdir()
    assert hub.resolve_model(name) == tmp_path / "made" / name
    assert hub.resolve_model(f"./{name}") == Path(name)


def test_the_presets_are_the_known_ones() -> None:
    assert set(hub._PRESETS) == set(presets.PRESETS)


def test_no_model_means_the_variable_or_tiny(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, downloads: list[Any]
) -> None:
    monkeypatch.setattr(presets, "ensure_preset", lambda preset: tmp_path / "made" / preset)
    assert hub.resolve_model() == tmp_path / "made" / "tiny"
    set_home(monkeypatch, tmp_path)
    assert hub.resolve_model() == tmp_path
    set_home(monkeypatch, tmp_path / "absent")
    with pytest.raises(InvalidArgumentError, match="^DEEPINFER_HF_MODEL_DIR: "):
        hub.resolve_model()


def test_the_variable_may_hold_a_tree_of_models(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, downloads: list[Any]
) -> None:
    (tmp_path / "home" / ID).mkdir(parents=True)
    set_home(monkeypatch, tmp_path / "home")
    assert hub.resolve_model(ID) == tmp_path / "home" / ID
    assert hub.resolve_model("other/model") == tmp_path / "snapshot"  # never another model in its place


@pytest.mark.parametrize(
    "model", ["/no/such/dir", "./absent", "a/b/c", "../x", "", "with space", Path("plain"), "file"]
)
def test_what_can_be_no_model(tmp_path: Path, downloads: list[Any], model: str | Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgumentError, match="^model: got .*; allowed: an existing directory, a hub id"):
        hub.resolve_model(model)
    assert downloads == []


def test_a_revision_needs_a_hub_id(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="^revision: "):
        hub.resolve_model(tmp_path, revision="main")


def http_error(kind: type[Exception], text: str = "") -> Exception:
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    error.args = (text,)
    return error


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        (http_error(errors.GatedRepoError), "access is restricted"),
        (http_error(errors.RepositoryNotFoundError), "no such model on the hub"),
        (http_error(errors.RevisionNotFoundError), "has no revision v9"),
        (errors.HFValidationError("bad"), "no such model on the hub"),
        (errors.LocalEntryNotFoundError("offline"), "the hub cannot be reached and the local cache does not hold"),
        (ConnectionError("refused\nmore"), "download failed: refused"),
        (OSError(), "download failed: OSError"),
    ],
)
def test_hub_errors_are_one_clear_message(monkeypatch: pytest.MonkeyPatch, error: Exception, rule: str) -> None:
    def fail(**_: Any) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(CheckpointError) as caught:
        hub.resolve_model(ID, revision="v9")
    assert str(caught.value).startswith(f"{ID}: ") and rule in str(caught.value)
    assert "\n" not in str(caught.value)


def test_offline_mode_really_asked_of_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE is set and the local cache does not hold this model"):
        hub.resolve_model(ID)
