"""What a checkpoint directory holds and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .checkpoint import Checkpoint
from .config import ModelConfig
from .names import IGNORED, TensorSpec
from .report import Finding
from .safetensors_file import DTYPE_BYTES
from .topology import LayerRole

_CHECKED = ("F8_E8M0", "F8_E4M3", "BF16", "F32")


@dataclass(frozen=True)
class KindTotal:
    """Sums over the tensors of one kind, as the configuration asks for them.

    Fields:
        dtypes: storage dtype -> number of tensors.
        parameters: logical ones: two per byte of packed FP4, scales not counted.
    """

    kind: str
    tensors: int
    parameters: int
    nbytes: int
    dtypes: dict[str, int]


@dataclass(frozen=True)
class Inspection:
    """Result of `inspect`.

    Fields:
        shards: file name -> bytes.
        stored: number of tensors found in the shards.
        ignored: tensors found that are passed over.
        values_checked: bytes whose values were looked at; 0 when only headers were read.
        findings: everything that is wrong; empty for a usable checkpoint.
    """

    path: Path
    config: ModelConfig
    kinds: tuple[KindTotal, ...]
    shards: dict[str, int]
    stored: int
    ignored: tuple[str, ...]
    values_checked: int
    findings: tuple[Finding, ...]

    @property
    def tensors(self) -> int:
        return sum(kind.tensors for kind in self.kinds)

    @property
    def parameters(self) -> int:
        return sum(kind.parameters for kind in self.kinds)

    @property
    def nbytes(self) -> int:
        return sum(kind.nbytes for kind in self.kinds)

    def render(self) -> str:
        """Text for people, without the findings."""
        lines = [*_heading(self), "", *_roles(self.config), "", *_kinds(self), "", *_notes(self)]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        topology = self.config.topology
        return {
            "path": str(self.path),
            "architecture": self.config.architecture,
            "tensors": self.tensors,
            "parameters": self.parameters,
            "bytes": self.nbytes,
            "stored_tensors": self.stored,
            "n_prefill_layer": topology.n_prefill_layer,
            "layers": [asdict(role) for role in (*topology.layers, *topology.drafts)],
            "kinds": [asdict(kind) for kind in self.kinds],
            "shards": self.shards,
            "ignored_tensors": list(self.ignored),
            "unknown_config_keys": list(self.config.unknown_keys),
            "values_checked_bytes": self.values_checked,
            "findings": [asdict(finding) for finding in self.findings],
        }


def inspect(path: str | Path, *, values: bool = True, progress: Callable[[int, int], None] | None = None) -> Inspection:
    """Reads configuration and headers, and by default every number that could be non-finite.

    Args:
        values: read the data of all scales and floats (packed FP4 has no illegal values and is not read).
        progress: called with (bytes done, bytes to do) while values are read.

    Raises:
        CheckpointError, ConfigError: the directory or its configuration cannot be used at all.
    """
    with Checkpoint.open(path) as checkpoint:
        findings = checkpoint.findings()
        checked = 0
        if values:
            fault_free = set(checkpoint.index) - {finding.name for finding in findings}
            names = [n for n in checkpoint.inventory if n in fault_free and checkpoint.entry(n).dtype in _CHECKED]
            checked = _check_values(checkpoint, names, findings, progress)
        return Inspection(
            path=checkpoint.path,
            config=checkpoint.config,
            kinds=_totals(checkpoint.inventory),
            shards=dict(checkpoint.shards),
            stored=len(checkpoint.index),
            ignored=tuple(name for name in checkpoint.index if IGNORED.fullmatch(name)),
            values_checked=checked,
            findings=tuple(findings),
        )


def _check_values(
    checkpoint: Checkpoint, names: list[str], findings: list[Finding], progress: Callable[[int, int], None] | None
) -> int:
    names.sort(key=lambda name: (checkpoint.entry(name).shard, checkpoint.entry(name).offset))
    total = sum(checkpoint.entry(name).nbytes for name in names)
    done = 0
    for name in names:
        fault = checkpoint.value_fault(name)
        if fault:
            findings.append(Finding("values", name, fault))
        done += checkpoint.entry(name).nbytes
        if progress is not None:
            progress(done, total)
    return total


def _totals(inventory: dict[str, TensorSpec]) -> tuple[KindTotal, ...]:
    groups: dict[str, list[TensorSpec]] = {}
    for spec in inventory.values():
        groups.setdefault(spec.kind, []).append(spec)
    totals = []
    for kind, specs in groups.items():
        dtypes = {dtype: sum(s.dtype == dtype for s in specs) for dtype in DTYPE_BYTES}
        totals.append(
            KindTotal(
                kind=kind,
                tensors=len(specs),
                parameters=sum(s.parameters for s in specs),
                nbytes=sum(s.nbytes for s in specs),
                dtypes={dtype: count for dtype, count in dtypes.items() if count},
            )
        )
    return tuple(totals)


def _heading(inspection: Inspection) -> list[str]:
    config, text = inspection.config, inspection.config.text
    stored = f"{inspection.stored:,} tensors, {sum(inspection.shards.values()):,} bytes"
    return [
        f"{inspection.path}",
        f"{config.architecture} ({config.model_type}): {text.num_hidden_layers} layers,"
        f" {text.num_nextn_predict_layers} draft layers, hidden {text.hidden_size}, {text.num_attention_heads} heads"
        f" of {text.head_dim}, {text.n_routed_experts} experts (top {text.num_experts_per_tok}),"
        f" vocabulary {text.vocab_size}, window {text.sliding_window}, top-k {text.index_topk}",
        f"{inspection.tensors:,} tensors, {inspection.parameters:,} parameters, {inspection.nbytes:,} bytes;"
        f" {len(inspection.shards)} shards with {stored}",
    ]


def _roles(config: ModelConfig) -> list[str]:
    header = ("layer", "ratio", "kv", "index-k", "index", "candidates", "engram", "half", "tap")
    topology = config.topology
    return _table([header, *(_role_row(role) for role in (*topology.layers, *topology.drafts))])


def _role_row(role: LayerRole) -> tuple[str, ...]:
    def source(value: int | None) -> str:
        return "-" if value is None else "own" if value == role.layer else str(value)

    return (
        role.prefix,
        str(role.ratio),
        source(role.kv_source),
        source(role.index_k_source),
        source(role.index_source),
        "-" if role.candidate == "none" else role.candidate,
        "-" if role.engram is None else f"#{role.engram}",
        role.half,
        "-" if role.tap is None else f"#{role.tap}",
    )


def _kinds(inspection: Inspection) -> list[str]:
    rows: list[tuple[str, ...]] = [("kind", "tensors", "parameters", "bytes", "dtypes")]
    for k in inspection.kinds:
        dtypes = ", ".join(f"{dtype} {count:,}" for dtype, count in k.dtypes.items())
        rows.append((k.kind, f"{k.tensors:,}", f"{k.parameters:,}", f"{k.nbytes:,}", dtypes))
    return _table(rows, right=(1, 2, 3))


def _notes(inspection: Inspection) -> list[str]:
    lines = []
    if inspection.ignored:
        lines.append(f"passed over: {', '.join(inspection.ignored)} (drafts use the backbone's embedding and head)")
    if inspection.config.unknown_keys:
        lines.append(f"unknown configuration keys: {', '.join(inspection.config.unknown_keys)}")
    checked = inspection.values_checked
    lines.append(f"values checked: {checked:,} bytes" if checked else "values checked: none, headers only")
    count = len(inspection.findings)
    lines.append("problems: none" if not count else f"problems: {count}")
    return lines


def _table(rows: list[tuple[str, ...]], right: tuple[int, ...] = ()) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip()
        for row in rows
    ]
