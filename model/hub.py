"""From what a user calls a model to a local checkpoint directory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..hal import env
from ..hal.errors import CheckpointError, InvalidArgumentError

_PRESETS = ("tiny", "kernel")
FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt"]
"""What a snapshot downloads; other weight formats of the same repository are left out."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_ALLOWED = f"an existing directory, a hub id such as deepseek-ai/DeepSeek-V4.1-Flash, or one of {', '.join(_PRESETS)}"


def resolve_model(model: str | Path | None = None, *, revision: str | None = None) -> Path:
    """The directory of a checkpoint.

    In this order: None means `DEEPINFER_HF_MODEL_DIR` where set, else "tiny"; a preset name means the embedded
    checkpoint of that name, made on first use (spell a directory of that name ./tiny); a path to an existing directory
    means itself; a hub id means `DEEPINFER_HF_MODEL_DIR`/id where that exists, else a download with a progress bar into
    the hub's cache.

    Args:
        revision: branch, tag or commit of a hub id; not allowed with a local model.

    Raises:
        InvalidArgumentError: neither a directory, a preset, nor a possible hub id; or a revision of a local model.
        CheckpointError: the hub does not have it, or cannot be reached and the cache does not have it.
    """
    home: Path | None = env.get("DEEPINFER_HF_MODEL_DIR")
    if model is None:
        if home is not None:
            return _local(_existing(home, "DEEPINFER_HF_MODEL_DIR"), revision)
        model = "tiny"
    if model in _PRESETS:
        from .presets import ensure_preset

        return _local(ensure_preset(str(model)), revision)
    path = Path(model).expanduser()
    if path.is_dir() and model != "":  # Path("") is the current directory
        return _local(path, revision)
    name = str(model)
    if isinstance(model, Path) or path.exists() or not _HUB_ID.fullmatch(name):
        raise InvalidArgumentError("model", name, _ALLOWED)
    if home is not None and (home / name).is_dir():
        return _local(home / name, revision)
    return _download(name, revision)


def _local(path: Path, revision: str | None) -> Path:
    if revision is not None:
        raise InvalidArgumentError("revision", revision, f"None: {path} is a local directory")
    return path


def _existing(path: Path, parameter: str) -> Path:
    if not path.is_dir():
        raise InvalidArgumentError(parameter, str(path), "an existing directory")
    return path


def _download(name: str, revision: str | None) -> Path:
    import huggingface_hub as hub
    from huggingface_hub import errors

    wanted: dict[str, Any] = {"repo_id": name, "revision": revision, "allow_patterns": FILES}
    try:
        return Path(hub.snapshot_download(**wanted))
    except errors.GatedRepoError:
        raise CheckpointError(f"{name}: access is restricted; accept its terms, then `hf auth login`") from None
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        raise CheckpointError(f"{name}: no such model on the hub, no such directory; wanted {_ALLOWED}") from None
    except errors.RevisionNotFoundError:
        raise CheckpointError(f"{name}: has no revision {revision}") from None
    except errors.LocalEntryNotFoundError:
        raise CheckpointError(_offline(name)) from None
    except (errors.HfHubHTTPError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{name}: download failed: {reason}") from error


def _offline(name: str) -> str:
    from huggingface_hub import constants

    state = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the hub cannot be reached"
    return (
        f"{name}: {state} and the local cache does not hold this model; download it where there is a network"
        f" (`hf download {name}`), or give the path of a local directory"
    )
