"""Which shards a checkpoint directory has, and which tensor lies where.

Reads `config.json`'s neighbours only by name and header. Faults are collected as findings, not raised, so that one
report can list them all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..hal.errors import CheckpointError
from .names import IGNORED
from .report import Finding
from .safetensors_file import HeaderError, TensorEntry, read_header

INDEX_NAME = "model.safetensors.index.json"
PREFIX = "model."
ALIASES = {"lm_head.weight": "head.weight"}


def canonical(name: str) -> str:
    """The name as the inventory spells it: without the optional prefix, aliases resolved."""
    name = name.removeprefix(PREFIX)
    return ALIASES.get(name, name)


@dataclass
class ShardIndex:
    """Result of a scan.

    Fields:
        entries: canonical name -> where the tensor lies.
        sizes: shard file name -> bytes, of the shards that exist.
        assigned: canonical name -> shard file name, as the index file says; None without an index file.
        unreadable: shards that are missing or whose header is corrupt; their tensors cannot be judged.
        findings: faults met.
    """

    entries: dict[str, TensorEntry] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    assigned: dict[str, str] | None = None
    unreadable: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)

    def add(self, problem: Any, name: str, detail: str) -> None:
        self.findings.append(Finding(problem, name, detail))


def scan(directory: Path) -> ShardIndex:
    """Reads the index file, if there is one, and the header of every shard.

    Raises:
        CheckpointError: the directory has no shards, or the index file is unusable.
    """
    index = ShardIndex()
    shards: Iterable[str]
    index_file = directory / INDEX_NAME
    if os.path.lexists(index_file):  # a link to nowhere is an index that cannot be read, not a checkpoint without one
        weight_map = _weight_map(index_file)
        index.assigned = {}
        for name, shard in weight_map.items():
            _assign(index, name, shard)
        shards = sorted(set(weight_map.values()))
    else:
        shards = sorted(path.name for path in directory.glob("*.safetensors"))
        if not shards:
            raise CheckpointError(f"{directory}: no {INDEX_NAME} and no *.safetensors file")
    for shard in shards:
        _scan_shard(index, directory / shard)
    _check_assigned(index)
    return index


def _weight_map(path: Path) -> dict[str, str]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a usable index: {error}") from None
    weight_map = values.get("weight_map") if isinstance(values, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f'{path}: not a usable index: "weight_map" must be a non-empty JSON object')
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or Path(shard).name != shard or shard in ("", ".", ".."):
            raise CheckpointError(f"{path}: not a usable index: {name} is put in {shard!r}, not a plain file name")
    return weight_map


def _assign(index: ShardIndex, name: str, shard: str) -> None:
    assert index.assigned is not None
    key = canonical(name)
    if key in index.assigned:
        index.add("duplicate", key, f"two spellings in {INDEX_NAME}, one of them {name}")
    index.assigned[key] = shard


def _scan_shard(index: ShardIndex, path: Path) -> None:
    if not _is_file(path):
        index.unreadable.add(path.name)
        count = sum(shard == path.name for shard in (index.assigned or {}).values())
        index.add("missing shard", path.name, f"not in the directory; {INDEX_NAME} puts {count} tensors there")
        return
    index.sizes[path.name] = path.stat().st_size
    try:
        entries = read_header(path)
    except HeaderError as error:
        index.unreadable.add(path.name)
        index.add("unreadable shard", path.name, str(error).removeprefix(f"{path.name}: "))
        return
    for entry in entries:
        key = canonical(entry.name)
        other = index.entries.setdefault(key, entry)
        if other is not entry:
            detail = f"stored twice: {other.name} in {other.shard.name}, {entry.name} in {entry.shard.name}"
            index.add("duplicate", key, detail)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long for the file system, a directory that may not be searched
        return False


def _check_assigned(index: ShardIndex) -> None:
    """The index file and the headers must tell the same story about the tensors that were found."""
    if index.assigned is None:
        return
    for key, entry in index.entries.items():
        shard = index.assigned.get(key)
        if shard is None and not IGNORED.fullmatch(key):
            index.add("index", key, f"lies in {entry.shard.name} but {INDEX_NAME} does not list it")
        elif shard is not None and shard != entry.shard.name and shard not in index.unreadable:
            index.add("index", key, f"lies in {entry.shard.name}, {INDEX_NAME} says {shard}")
    for key, shard in index.assigned.items():
        if key not in index.entries and shard not in index.unreadable and not IGNORED.fullmatch(key):
            index.add("index", key, f"{INDEX_NAME} puts it in {shard}, which does not hold it")
