"""Presets made once per user and kept."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from ...hal import env, errors
from .configs import wanted_vocab_size
from .make import INDEX, Progress, make_checkpoint


def ensure_preset(name: str, seed: int = 0, *, progress: Progress | None = None) -> Path:
    """Directory of a preset's checkpoint, made on first use.

    It lies under `DEEPINFER_CACHE_DIR`, or else the user's cache directory. The name of the directory holds
    a key of the code that makes it, so other code makes another. It appears at once and whole: processes
    that make it at the same time all end with the same one.

    Raises:
        InvalidArgumentError: unknown preset or negative seed.
        CheckpointError: the cache directory cannot be written.
    """
    wanted_vocab_size(name)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise errors.InvalidArgumentError("seed", seed, "an integer of at least 0")
    root = cache_directory() / "checkpoints"
    target = root / f"{name}-seed{seed}-{_code_key()}"
    if _is_whole(target):
        return target
    try:
        root.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=root))
    except OSError as error:
        raise errors.CheckpointError(f"cannot write to the cache {root}: {error}; set DEEPINFER_CACHE_DIR") from error
    try:
        made = make_checkpoint(name, seed, scratch / "new", progress=progress)
        _publish(made, target, scratch / "old")
    except OSError as error:
        raise errors.CheckpointError(f"cannot write to the cache {root}: {error}; set DEEPINFER_CACHE_DIR") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def cache_directory() -> Path:
    """`DEEPINFER_CACHE_DIR`, or `deepinfer` under `XDG_CACHE_HOME`, or under `~/.cache`."""
    chosen = env.get("DEEPINFER_CACHE_DIR")
    if chosen is not None:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "deepinfer"


def _publish(made: Path, target: Path, aside: Path) -> None:
    """Rename into place. A rename onto a directory that is not empty fails, so the first of several makers
    wins."""
    try:
        made.rename(target)
    except OSError:
        if _is_whole(target):
            return
        target.rename(aside)  # a damaged one, such as a cleaned-up cache leaves behind
        made.rename(target)


def _is_whole(directory: Path) -> bool:
    """Whether every file of a made checkpoint is there; contents are checked when it is loaded."""
    try:
        shards = set(json.loads((directory / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError):
        return False
    others = {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"}
    return all((directory / file).is_file() for file in shards | others)


@cache
def _code_key() -> str:
    """Changes with any source that decides the bytes written, and with the library that trains the
    tokenizer."""
    from tokenizers import __version__ as library

    here = Path(__file__).parent
    shared = ("engram_tables.py", "names.py", "tokenizer.py")
    sources = [*sorted(here.glob("*.py")), *(here.parent / name for name in shared)]
    digest = hashlib.sha256(library.encode("utf-8"))
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]
