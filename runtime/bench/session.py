"""One engine under a benchmark: loaded, warmed up, run, and made a record of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ... import __version__
from ...hal.errors import InvalidArgumentError
from ..args import EngineArgs
from .drive import Progress, run, vocabulary_of
from .measure import Measured, Slo, summary
from .record import record, verification_of
from .turns import MultiTurn, compare
from .workload import Arrivals, Recorded, Synthetic

WARM_UP_STREAM = 1


class Session:
    """An engine, and what is measured on it.

    Args:
        args: of the engine.

    Raises:
        What `load_engine` raises.
    """

    def __init__(self, args: EngineArgs) -> None:
        from ..loader import load_engine

        loaded = load_engine(args)
        self.engine = loaded.engine
        config = self.engine.config
        self.system: dict[str, Any] = {
            "model": args.model or "tiny",
            "backend": loaded.backend,
            "device": str(loaded.model.device),
            "chip": loaded.chip,
            "deepinfer": __version__,
            "max_model_len": config.max_model_len,
            "max_num_seqs": config.limits.max_requests,
            "max_num_batched_tokens": config.limits.max_tokens,
            "chunked_prefill": config.limits.chunked_prefill,
            "step_seconds": config.limits.step_seconds,
            "prefix_caching": config.prefix is not None,
            "async_scheduling": config.async_scheduling,
            "pages": config.num_pages,
        }

    def close(self) -> None:
        self.engine.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def warm_up(self, workload: Synthetic | Recorded, count: int) -> None:
        """Run `count` requests of another draw of the workload, of which nothing is counted; of a file, its first.

        What the prefix cache holds then is forgotten.
        """
        if count:
            others = replace(workload, count=count) if isinstance(workload, Synthetic) else workload
            jobs = others.jobs(vocabulary_of(self.engine), WARM_UP_STREAM)
            run(self.engine, jobs[:count], Arrivals.parse("arrival", "burst"))
        self.engine.reset_prefix_cache()  # of the warm-up, and of a run before this one

    def measure(
        self,
        workload: Synthetic | Recorded,
        arrivals: Arrivals | None,
        *,
        mode: str,
        label: str,
        slo: Slo,
        warmup: int = 0,
        temperature: float = 0.0,
        point: Mapping[str, Any] | None = None,
        progress: Progress = lambda ended, tokens: None,
    ) -> tuple[dict[str, Any], list[Measured]]:
        """Warm up and run a workload; its record, and the requests."""
        self.warm_up(workload, warmup)
        jobs = workload.jobs(vocabulary_of(self.engine))
        measured = run(self.engine, jobs, arrivals, temperature=temperature, progress=progress)
        about = self.about(
            workload, arrivals, mode=mode, label=label, warmup=warmup, temperature=temperature, point=point
        )
        return record(**about, results=summary(measured, slo)), measured

    def compare(
        self,
        workload: MultiTurn,
        label: str | None,
        rounds: int = 3,
        temperature: float = 0.0,
        progress: Progress = lambda ended, tokens: None,
    ) -> dict[str, Any]:
        """The record of conversations with the prefix cache and without, see `turns.compare`."""
        results = compare(self.engine, workload, rounds=rounds, temperature=temperature, progress=progress)
        return record(
            mode="turns",
            label=label or self.system["model"],
            system=self.system,
            workload=workload.describe() | {"temperature": temperature},
            verification=verification_of(self.engine),
            warmup=workload.turns,
            results=results,
        )

    def about(
        self,
        workload: Synthetic | Recorded,
        arrivals: Arrivals | None,
        *,
        mode: str,
        label: str,
        warmup: int,
        temperature: float,
        point: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """All of a record but its results."""
        drawn = workload.describe() | {"temperature": temperature}
        # What a sweep varies is its point, and no part of what a curve has in common.
        varied = set(point or {})
        if not varied & {"concurrency", "rate", "batch"}:
            drawn["arrivals"] = "as recorded" if arrivals is None else arrivals.spec
        system = {
            name: value for name, value in self.system.items() if not (varied and name in ("max_num_seqs", "pages"))
        }
        return {
            "mode": mode,
            "label": label,
            "system": system if "batch" in varied else self.system,
            "workload": drawn,
            "verification": verification_of(self.engine),
            "warmup": warmup if isinstance(workload, Synthetic) else min(warmup, len(workload.sizes)),
            "point": point,
        }


def write_requests(path: str, measured: Sequence[Measured]) -> None:
    """One JSON object per request.

    Raises:
        InvalidArgumentError: the file cannot be written.
    """
    try:
        Path(path).write_text("".join(json.dumps(one.line()) + "\n" for one in measured), encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError("--per-request", path, f"a file that can be written ({error.strerror})") from None


def table(one: Mapping[str, Any]) -> str:
    """A record in words."""
    results, slo = one["results"], one["results"]["goodput"]
    lines = [
        f"{one['mode']} of {one['label']}: {results['requests']} requests in {results['seconds']:.3f} s "
        f"({', '.join(f'{count} {name}' for name, count in results['outcomes'].items())}); "
        f"warm-up of {one['warmup']['requests']} requests, not counted",
        f"{results['output_tokens']} output tokens, {_number(results['output_tokens_per_s'])} per s; "
        f"{results['prompt_tokens']} prompt tokens, {results['cached_tokens']} of them cached; "
        f"{_number(results['requests_per_s'])} requests per s",
    ]
    drafts = results["drafts"]
    lines.append(
        f"verification {one['verification']['verification']}"
        + (f": {drafts['accepted']} of {drafts['verified']} drafts accepted" if drafts["verified"] else "")
    )
    lines.append("seconds " + "".join(f"{part:>11}" for part in ("mean", "p50", "p90", "p95", "p99", "max")))
    for name in ("ttft", "tbt", "e2e"):
        spread = results[name]
        parts = (_number(spread[part], 5) for part in ("mean", "p50", "p90", "p95", "p99", "max"))
        lines.append(f"{name.upper():8}" + "".join(f"{part:>11}" for part in parts))
    if slo["slo_ttft"] is not None or slo["slo_tbt"] is not None:
        limits = [f"TTFT {slo['slo_ttft']:g} s" if slo["slo_ttft"] else "", ""]
        with suppress(TypeError):
            limits[1] = f"{slo['slo_of']} TBT {slo['slo_tbt']:g} s"
        kept = " and ".join(filter(None, limits))
        lines.append(
            f"goodput within {kept}: {slo['requests']} of {results['requests']} requests, "
            f"{_number(slo['requests_per_s'])} per s"
        )
    return "\n".join(lines)


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
