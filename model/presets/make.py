"""Write a preset as a Hugging Face checkpoint directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from ...hal import errors
from ..config import ModelConfig
from ..engram_tables import compress_vocabulary, engram_tables
from ..names import inventory
from .configs import engram_settings, preset_config, wanted_vocab_size
from .tensors import preset_tensors
from .vocabulary import IMAGE, NOISE, tokenizer_json, tokenizer_settings, train_tokenizer

INDEX = "model.safetensors.index.json"
Progress = Callable[[int, int], None]


def make_checkpoint(
    preset: str,
    seed: int,
    directory: str | Path,
    *,
    progress: Progress | None = None,
    shards: int = 2,
    force: bool = False,
) -> Path:
    """Write a checkpoint: config, tokenizer, generation settings, shards and their index.

    The same preset, seed and number of shards give the same bytes.

    Args:
        preset: "tiny" or "kernel".
        seed: integer >= 0 that the weights are drawn from; the tokenizer does not depend on it.
        directory: made when missing; must be empty unless `force`.
        progress: called with (tensors done, tensors in all).
        shards: number of safetensors files, at least 1.
        force: replace the files of a checkpoint that is there. Others are left alone.

    Returns:
        The directory.

    Raises:
        InvalidArgumentError: unknown preset, negative seed, no shards, or a directory that is not empty.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise errors.InvalidArgumentError("seed", seed, "an integer of at least 0")
    if shards < 1:
        raise errors.InvalidArgumentError("shards", shards, "at least 1")
    wanted = wanted_vocab_size(preset)
    target = _open_directory(Path(directory), force)
    tokenizer = train_tokenizer(wanted)
    (target / "tokenizer.json").write_text(tokenizer_json(tokenizer), encoding="utf-8")
    values = _config(preset, tokenizer, target / "tokenizer.json")
    config = ModelConfig.from_dict(values)
    _write_json(target / "config.json", values)
    _write_json(target / "tokenizer_config.json", tokenizer_settings(config.text.max_position_embeddings))
    _write_json(target / "generation_config.json", _generation_settings(values))
    tensors = _report(preset_tensors(config, tokenizer, seed), len(inventory(config)), progress)
    _write_shards(target, list(tensors), shards)
    return target


def _open_directory(target: Path, force: bool) -> Path:
    if target.exists() and not target.is_dir():
        raise errors.InvalidArgumentError("directory", str(target), "a directory, or a path where nothing is yet")
    if target.is_dir() and any(target.iterdir()):
        if not force:
            raise errors.InvalidArgumentError(
                "directory", str(target), "an empty directory, unless forced (force=True, --force)"
            )
        for old in [*target.glob("*.safetensors"), target / INDEX]:
            old.unlink(missing_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    return target


def _config(preset: str, tokenizer: Any, tokenizer_file: Path) -> dict[str, Any]:
    vocab_size = tokenizer.get_vocab_size()
    compressed = compress_vocabulary(tokenizer_file, vocab_size)
    tables = engram_tables(**engram_settings(preset), compressed_size=compressed.size)
    return preset_config(
        preset,
        vocab_size=vocab_size,
        image_token_id=tokenizer.token_to_id(IMAGE),
        noise_token_id=tokenizer.token_to_id(NOISE),
        compressed_size=compressed.size,
        engram_rows=[table.rows for table in tables],
    )


def _generation_settings(config: dict[str, Any]) -> dict[str, Any]:
    ids = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return ids | {"do_sample": True, "temperature": 1.0, "top_p": 1.0}


def _report(
    tensors: Iterable[tuple[str, Tensor]], total: int, progress: Progress | None
) -> Iterator[tuple[str, Tensor]]:
    for done, item in enumerate(tensors, start=1):
        yield item
        if progress is not None:
            progress(done, total)


def _write_shards(target: Path, tensors: list[tuple[str, Tensor]], shards: int) -> None:
    """Cut the list into `shards` files of about equal bytes, never between a weight and its scale."""
    from safetensors.torch import save_file

    total = sum(tensor.nbytes for _, tensor in tensors)
    parts: list[dict[str, Tensor]] = [{} for _ in range(shards)]
    written = 0
    for name, tensor in tensors:
        if not name.endswith(".scale"):
            part = min(written * shards // total, shards - 1)
        parts[part][name] = tensor
        written += tensor.nbytes
    weight_map: dict[str, str] = {}
    for number, content in enumerate(parts, start=1):
        file = f"model-{number:05d}-of-{shards:05d}.safetensors"
        save_file(content, target / file, metadata={"format": "pt"})
        # The library makes files that only their owner can read; a cache may be shared.
        (target / file).chmod((target / "config.json").stat().st_mode & 0o777)
        weight_map |= dict.fromkeys(content, file)
    _write_json(target / INDEX, {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))})


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
