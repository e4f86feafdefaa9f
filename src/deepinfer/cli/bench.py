"""`deepinfer bench`: throughput, latency, sweeps, and plots of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..runtime.args import EngineArgs
    from ..runtime.bench.measure import Slo
    from ..runtime.bench.workload import Recorded, Synthetic

OVER = ("concurrency", "rate", "batch")


@click.group("bench")
def command() -> None:
    """Measure an engine: how much it does, how soon it answers, and what it gives for what.

    Output tokens are those that requests were given; drafts that were not accepted are none. Warm-up is not counted.
    Each request says exactly as many tokens as it is to. Times are defined in docs/bench.md and in every record.
    """


def _options(requests: int) -> Callable[[Any], Any]:
    """Options of every run."""
    options = [
        click.option("--model", help="tiny, kernel, a checkpoint directory, or a hub id."),
        click.option("--backend", help="One that `deepinfer ops status` lists."),
        click.option("--load-format", default="auto", show_default=True, help="auto, or dummy: random weights."),
        click.option("--max-model-len", type=int, help="Longest prompt plus output, in tokens."),
        click.option("--max-num-seqs", type=int, default=16, show_default=True, help="Requests that run at a time."),
        click.option("--max-num-batched-tokens", type=int, help="Rows of one step."),
        click.option("--chunked-prefill", is_flag=True, help="Cut long prompts over several steps."),
        click.option("--step-seconds", type=float, help="Time that a step is to take; needs --chunked-prefill."),
        click.option("--enable-prefix-caching", is_flag=True, help="Share what prompts have in common."),
        click.option("--requests", type=click.IntRange(1), default=requests, show_default=True),
        click.option("--input-len", default="64", show_default=True, help="Tokens of a prompt: N, uniform:LOW:HIGH, "
                     "normal:MEAN:DEVIATION, lognormal:MEDIAN:SIGMA, geometric:MEAN."),
        click.option("--output-len", default="16", show_default=True, help="Tokens that a request says; the same."),
        click.option("--shared-prefix", type=click.IntRange(0), default=0, show_default=True,
                     help="Tokens that all prompts begin with."),
        click.option("--trace", help="Take the requests of this recorded run, see EngineArgs(trace=FILE)."),
        click.option("--requests-file", help="Take the requests of this file of JSON lines."),
        click.option("--seed", type=click.IntRange(0, (1 << 32) - 1), default=0, show_default=True,
                     help="Decides all that is drawn."),
        click.option("--temperature", type=float, default=0.0, show_default=True),
        click.option("--warmup", type=click.IntRange(0), default=2, show_default=True,
                     help="Requests that run first and are not counted."),
        click.option("--slo-ttft", type=float, help="Goodput: most seconds to the first token."),
        click.option("--slo-tbt", type=float, help="Goodput: most seconds between tokens."),
        click.option("--slo-of", default="mean", show_default=True, help="Which of a request's times between tokens is "
                     "held against --slo-tbt: mean, p90, p99 or max."),
        click.option("--label", help="Name of the curve that the run is a point of. Default: the model."),
        click.option("--json", "as_json", is_flag=True, help="Print the record instead of a table."),
        click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve metrics on this machine meanwhile."),
        click.option("--timeline", help="Write the requests' timeline as a trace for Perfetto."),
        click.option("--quiet", is_flag=True, help="No progress bar."),
    ]  # fmt: skip

    def add(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return add


_ARRIVAL = "burst, poisson:RATE, constant:RATE or closed:CONCURRENCY."


@command.command("throughput")
@_options(32)
@click.option("--arrival", help=f"{_ARRIVAL} Default: burst, or as the file says.")
@click.option("--out", help="Add the record to this file of JSON lines.")
@click.option("--per-request", help="Write a JSON line per request to this file.")
def throughput(arrival: str | None, out: str | None, per_request: str | None, **options: Any) -> None:
    """All requests at once, or as they arrive: tokens per second."""
    _measure("throughput", arrival or ("burst" if _drawn(options) else None), out, per_request, options)


@command.command("latency")
@_options(8)
@click.option("--arrival", default="closed:1", show_default=True, help=_ARRIVAL)
@click.option("--out", help="Add the record to this file of JSON lines.")
@click.option("--per-request", help="Write a JSON line per request to this file.")
def latency(arrival: str, out: str | None, per_request: str | None, **options: Any) -> None:
    """Few requests at a time: times to the first token, between tokens, and to the end."""
    _measure("latency", arrival, out, per_request, options)


@command.command("sweep")
@_options(32)
@click.option("--over", type=click.Choice(OVER), default="concurrency", show_default=True,
              help="What is varied: requests at a time, requests per second (Poisson), or max_num_seqs (a new engine "
              "per value, kept full).")  # fmt: skip
@click.option("--values", required=True, help="Its values, for example 1,2,4,8.")
@click.option("--out", required=True, help="File of JSON lines; points that it has are not run again.")
def sweep(over: str, values: str, out: str, **options: Any) -> None:
    """One run per value. May be interrupted and gone on with."""
    from dataclasses import replace

    from ..hal.errors import InvalidArgumentError
    from ..runtime.bench.record import RecordFile, check_curve, record
    from ..runtime.bench.session import Session, table
    from ..runtime.bench.workload import Arrivals, Synthetic

    chosen = _values(over, values)
    workload, slo = _workload(options), _slo(options)
    if over == "rate" and not isinstance(workload, Synthetic):
        raise InvalidArgumentError("--over", over, "concurrency or batch: requests of a file come when it says")
    file = RecordFile(out)
    session: Session | None = None
    try:
        for value in chosen:
            if session is None or over == "batch":
                if session is not None:
                    session.close()
                session = Session(_engine_args(options, value if over == "batch" else None))
            arrivals = Arrivals.parse("--values", f"poisson:{value}" if over == "rate" else f"closed:{value}")
            if isinstance(workload, Synthetic):
                workload = replace(workload, arrivals=arrivals)
            about = {
                "mode": "sweep",
                "label": options["label"] or session.system["model"],
                "warmup": options["warmup"],
                "temperature": options["temperature"],
                "point": {over: value},
            }
            planned = record(**session.about(workload, arrivals, **about), results={})
            check_curve([*file.records, planned])  # before it runs, which may take long
            if file.has(planned["key"]):
                click.echo(f"{over} {value}: in {out} already", err=True)
                continue
            with _shown(options, session.engine), _bar(options, f"{over} {value}", _count(workload)) as progress:
                one, _ = session.measure(workload, arrivals, slo=slo, progress=progress, **about)
            file.add(one)
            click.echo(json.dumps(one) if options["as_json"] else f"{over} {value}\n{table(one)}")
    finally:
        if session is not None:
            session.close()


@command.command("turns")
@click.option("--conversations", type=click.IntRange(1), default=8, show_default=True)
@click.option("--turns", type=click.IntRange(1), default=4, show_default=True, help="Of each conversation.")
@click.option(
    "--concurrency", type=click.IntRange(1), default=4, show_default=True, help="Conversations under way at a time."
)
@click.option(
    "--shared-prefix",
    type=click.IntRange(0),
    default=128,
    show_default=True,
    help="Tokens that all conversations begin with.",
)
@click.option("--input-len", default="48", show_default=True, help="Tokens of the user per turn, see `throughput`.")
@click.option("--output-len", default="16", show_default=True, help="Tokens of an answer; the same.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Either way, in turns.")
@click.option("--model", help="tiny, kernel, a checkpoint directory, or a hub id.")
@click.option("--backend", help="One that `deepinfer ops status` lists.")
@click.option("--load-format", default="auto", show_default=True, help="auto, or dummy: random weights.")
@click.option("--max-model-len", type=int, help="Longest conversation, in tokens.")
@click.option("--max-num-seqs", type=int, default=16, show_default=True, help="Requests that run at a time.")
@click.option("--max-num-batched-tokens", type=int, help="Rows of one step.")
@click.option("--chunked-prefill", is_flag=True, help="Cut long prompts over several steps.")
@click.option("--step-seconds", type=float, help="Time that a step is to take; needs --chunked-prefill.")
@click.option(
    "--seed", type=click.IntRange(0, (1 << 32) - 1), default=0, show_default=True, help="Decides all that is drawn."
)
@click.option("--temperature", type=float, default=0.0, show_default=True)
@click.option("--label", help="Name of the run. Default: the model.")
@click.option("--json", "as_json", is_flag=True, help="Print the record instead of a table.")
@click.option("--out", help="Add the record to this file of JSON lines.")
@click.option("--quiet", is_flag=True, help="No progress bar.")  # fmt: skip
def turns(out: str | None, **options: Any) -> None:
    """Conversations of several turns, with and without the prefix cache: its ratios in one run."""
    from ..runtime.bench import turns as module
    from ..runtime.bench.record import RecordFile
    from ..runtime.bench.session import Session
    from ..runtime.bench.workload import Lengths

    workload = module.MultiTurn(
        options["conversations"],
        options["turns"],
        options["shared_prefix"],
        Lengths.parse("--input-len", options["input_len"]),
        Lengths.parse("--output-len", options["output_len"]),
        options["concurrency"],
        options["seed"],
    )
    file = None if out is None else RecordFile(out)
    total = 2 * (options["turns"] + options["rounds"] * options["conversations"] * options["turns"])
    with Session(_engine_args(options | {"enable_prefix_caching": True})) as session:
        with _bar(options, "turns", total) as progress:
            one = session.compare(workload, options["label"], options["rounds"], options["temperature"], progress)
    click.echo(json.dumps(one) if options["as_json"] else module.table(one["results"]))
    if file is not None:
        file.add(one)


@command.command("plot")
@click.argument("files", nargs=-1, required=True)
@click.option(
    "--x",
    default="speed",
    show_default=True,
    help="Number across: tokens_per_s, requests_per_s, goodput, "
    "goodput_ratio, speed (tokens/s of a request), or ttft, tbt, e2e with _mean, _p50, _p90, _p95, _p99, _max.",
)
@click.option("--y", default="tokens_per_s", show_default=True, help="Number upward, of the same.")
@click.option("--out", required=True, help="FILE.svg or FILE.html.")  # fmt: skip
def plot(files: tuple[str, ...], x: str, y: str, out: str) -> None:
    """Pareto plot of the records in FILES: a curve per label.

    Refuses labels whose runs verified drafts in different ways, and records that count drafts as output.
    """
    from ..hal.errors import InvalidArgumentError
    from ..runtime.bench import plot as plots
    from ..runtime.bench.record import read_records

    make = {".svg": plots.svg, ".html": plots.page}.get(Path(out).suffix)
    if make is None:
        raise InvalidArgumentError("--out", out, "FILE.svg or FILE.html")
    records = [one for file in files for one in read_records(file)]
    text = make(records, x, y)
    try:
        Path(out).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError("--out", out, f"a file that can be written ({error.strerror})") from None
    click.echo(f"{len(records)} runs in {out}")


# ---- what the commands share


def _measure(mode: str, arrival: str | None, out: str | None, per_request: str | None, options: dict[str, Any]) -> None:
    from ..hal.errors import InvalidArgumentError
    from ..runtime.bench.record import RecordFile
    from ..runtime.bench.session import Session, table, write_requests
    from ..runtime.bench.workload import Arrivals

    arrivals = None if arrival is None else Arrivals.parse("--arrival", arrival)
    if arrivals is not None and arrivals.rate and not _drawn(options):
        raise InvalidArgumentError("--arrival", arrival, "burst, closed:CONCURRENCY, or none: the file says when")
    workload, slo = _workload(options, arrivals), _slo(options)
    file = None if out is None else RecordFile(out)
    with Session(_engine_args(options)) as session:
        with _shown(options, session.engine), _bar(options, mode, _count(workload)) as progress:
            one, measured = session.measure(
                workload,
                arrivals,
                mode=mode,
                label=options["label"] or session.system["model"],
                slo=slo,
                warmup=options["warmup"],
                temperature=options["temperature"],
                progress=progress,
            )
    if per_request is not None:
        write_requests(per_request, measured)
    click.echo(json.dumps(one) if options["as_json"] else table(one))
    if file is not None:
        file.add(one)


def _drawn(options: dict[str, Any]) -> bool:
    return options["trace"] is None and options["requests_file"] is None


def _count(workload: Synthetic | Recorded) -> int:
    found: int = workload.describe()["requests"]
    return found


def _workload(options: dict[str, Any], arrivals: Any = None) -> Synthetic | Recorded:
    from ..hal.errors import InvalidArgumentError
    from ..runtime.bench.workload import Arrivals, Lengths, Synthetic, from_trace, read_requests

    seed = options["seed"]
    if options["trace"] is not None and options["requests_file"] is not None:
        raise InvalidArgumentError("--requests-file", options["requests_file"], "one of --trace and --requests-file")
    if options["trace"] is not None:
        from ..runtime.trace import read_trace

        return from_trace(read_trace(options["trace"]), seed)
    if options["requests_file"] is not None:
        return read_requests(options["requests_file"], seed)
    return Synthetic(
        count=options["requests"],
        inputs=Lengths.parse("--input-len", options["input_len"]),
        outputs=Lengths.parse("--output-len", options["output_len"]),
        arrivals=Arrivals.parse("--arrival", "burst") if arrivals is None else arrivals,
        seed=seed,
        shared=options["shared_prefix"],
    )


def _slo(options: dict[str, Any]) -> Slo:
    from ..runtime.bench.measure import Slo

    return Slo(options["slo_ttft"], options["slo_tbt"], options["slo_of"])


def _engine_args(options: dict[str, Any], batch: int | None = None) -> EngineArgs:
    from ..runtime.args import EngineArgs

    return EngineArgs(
        model=options["model"],
        backend=options["backend"],
        load_format=options["load_format"],
        max_model_len=options["max_model_len"],
        max_num_seqs=options["max_num_seqs"] if batch is None else batch,
        max_num_batched_tokens=options["max_num_batched_tokens"],
        chunked_prefill=options["chunked_prefill"],
        step_seconds=options["step_seconds"],
        enable_prefix_caching=options["enable_prefix_caching"],
        stop_preempted_request=False,
        disable_log_stats=True,
    )


def _values(over: str, text: str) -> list[Any]:
    from ..hal.errors import InvalidArgumentError

    try:
        found: list[Any] = [float(part) if over == "rate" else int(part) for part in text.split(",")]
        if not all(0 < value < 1e9 for value in found) or len(set(found)) != len(found):
            raise ValueError
    except ValueError:
        kind = "numbers" if over == "rate" else "whole numbers"
        raise InvalidArgumentError("--values", text, f"different {kind} above 0, with commas between") from None
    return found


@contextmanager
def _bar(options: dict[str, Any], name: str, total: int) -> Iterator[Callable[[int, int], None]]:
    from tqdm import tqdm

    tokens = 0
    with tqdm(total=total, desc=name, unit="req", dynamic_ncols=True, disable=options["quiet"] or None) as bar:

        def progress(ended: int, said: int) -> None:
            nonlocal tokens
            tokens += said
            if ended:
                bar.set_postfix_str(f"{tokens} output tokens", refresh=False)
                bar.update(ended)

        yield progress


@contextmanager
def _shown(options: dict[str, Any], engine: Any) -> Iterator[None]:
    """Metrics and the timeline, where they are asked for."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        if options["metrics_port"] is not None:
            from ..runtime.metrics import EngineMetrics
            from ..runtime.metrics_server import MetricsServer

            metrics = EngineMetrics(engine)
            stack.callback(engine.observers.remove, metrics)
            server = MetricsServer(metrics, options["metrics_port"])
            stack.callback(server.close)
            click.echo(f"metrics: {server.url}", err=True)
        if options["timeline"] is not None:
            from ..runtime.timeline import Timeline

            timeline = Timeline(engine)
            stack.callback(engine.observers.remove, timeline)
            stack.callback(timeline.write, options["timeline"])
        yield
