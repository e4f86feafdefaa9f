"""`deepinfer generate`: stream the text of one prompt."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..runtime.outputs import RequestOutput

INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
PIPE_CLOSED = 141  # 128 + SIGPIPE


@click.command("generate")
@click.argument("prompt")
@click.option(
    "--model", help="tiny, kernel, a checkpoint directory, or a hub id. Default: DEEPINFER_HF_MODEL_DIR, or tiny."
)
@click.option("--max-tokens", type=int, default=64, show_default=True, help="Most tokens to generate.")
@click.option("--temperature", type=float, default=1.0, show_default=True, help="0 always takes the most likely token.")
@click.option("--seed", type=int, help="64-bit seed. Default: a fresh one, shown at the end.")
@click.option("--top-p", type=float, default=1.0, show_default=True, help="Probability mass to draw from.")
@click.option("--top-k", type=int, default=-1, show_default=True, help="Number of tokens to draw from; -1 is all.")
@click.option(
    "--min-p", type=float, default=0.0, show_default=True, help="Least probability, relative to the best token."
)
@click.option(
    "--repetition-penalty",
    type=float,
    default=1.0,
    show_default=True,
    help="Above 1: tokens of prompt and output get less likely.",
)
@click.option(
    "--frequency-penalty",
    type=float,
    default=0.0,
    show_default=True,
    help="Subtracted from a token's logit for each time it is in the output.",
)
@click.option(
    "--presence-penalty",
    type=float,
    default=0.0,
    show_default=True,
    help="Subtracted once from the logit of each token in the output.",
)
@click.option(
    "--n", "samples", type=int, default=1, show_default=True, help="Independent samples; sample j has seed + j."
)
@click.option("--stop", multiple=True, help="End before this text. May be given several times.")
@click.option("--stop-token-id", type=int, multiple=True, help="End at this token. May be given several times.")
@click.option("--ignore-eos", is_flag=True, help="Go on after the end-of-sequence token.")
@click.option("--logprobs", type=int, help="One line per token, with its log-probability and so many alternatives.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per token.")
@click.option(
    "--backend",
    help="One that `deepinfer ops status` lists. Default: DEEPINFER_ACCELERATOR, or what is detected.",
)
@click.option(
    "--max-model-len", type=int, help="Longest prompt plus output, in tokens. Default: 4096 or the model's limit."
)
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="FILE",
    help="PNG, JPEG, GIF or WebP file, once per <｜image｜> in PROMPT; in front of a PROMPT that has none. Repeatable.",
)
@click.option("--quiet", is_flag=True, help="No statistics on stderr.")
@click.pass_context
def command(
    context: click.Context, prompt: str, as_json: bool, quiet: bool, logprobs: int | None, **options: Any
) -> None:
    """Generate text from PROMPT and stream it to stdout; '-' reads the prompt from stdin.

    A newline at the end of stdin is dropped. Statistics go to stderr.
    """
    try:
        _run(prompt, as_json, quiet, logprobs, options)
    except KeyboardInterrupt:
        click.echo("\ninterrupted", err=True)
        context.exit(INTERRUPTED)
    except BrokenPipeError:
        # Nobody reads any more. What is still buffered must not raise again when Python closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        context.exit(PIPE_CLOSED)


def _run(prompt: str, as_json: bool, quiet: bool, logprobs: int | None, options: dict[str, Any]) -> None:
    from ..runtime.outputs import RequestFailedError
    from ..runtime.params import SamplingParams

    params = SamplingParams(
        max_tokens=options["max_tokens"],
        temperature=options["temperature"],
        seq_seed=options["seed"],
        top_p=options["top_p"],
        top_k=options["top_k"],
        min_p=options["min_p"],
        repetition_penalty=options["repetition_penalty"],
        frequency_penalty=options["frequency_penalty"],
        presence_penalty=options["presence_penalty"],
        n=options["samples"],
        stop=list(options["stop"]),
        stop_token_ids=list(options["stop_token_id"]),
        ignore_eos=options["ignore_eos"],
        top_logprobs=logprobs or 0,
    )
    text = _read_prompt(prompt)
    images = [_read_image(file) for file in options["images"]]
    from ..runtime.llm import LLM

    started = time.monotonic()
    with LLM(
        options["model"],
        backend=options["backend"],
        max_model_len=options["max_model_len"],
        max_num_seqs=16,
        seed=None,  # without --seed every run draws its own
    ) as llm:
        stats = _Stats(time.monotonic() - started)
        reader = llm.engine.config.images
        if images and reader is not None and reader.spelling not in text:
            text = reader.spelling * len(images) + text
        outputs = stats.watch(llm.stream(text, params, multi_modal_data={"image_bytes": images}))
        if as_json:
            _print_json(outputs)
        elif logprobs is not None:
            _print_tokens(outputs, llm.tokenizer)
        elif params.n == 1:
            _print_text(outputs)
        else:
            _print_samples(outputs)
    if not quiet:
        click.echo(stats.summary(), err=True)
    if stats.failures:
        raise RequestFailedError(stats.failures, stats.last)


def _read_prompt(prompt: str) -> str:
    """The prompt itself, or stdin without its last newline for '-'."""
    if prompt != "-":
        return prompt
    from ..hal.errors import InvalidArgumentError

    if sys.stdin is None:
        raise InvalidArgumentError("prompt", prompt, "a text: stdin, which '-' reads, is closed")
    raw = sys.stdin.buffer.read()
    try:
        return raw.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError("prompt", raw[error.start : error.end], "UTF-8 text on stdin") from None


def _read_image(file: str) -> bytes:
    """The bytes of an image, no more than one may have and one on top, which is then refused."""
    from ..hal.errors import InvalidArgumentError
    from ..model.vision import LIMITS

    try:
        with open(file, "rb") as stream:
            return stream.read(LIMITS.max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgumentError("--image", file, f"a file that can be read ({reason})") from None


@dataclass
class _Stats:
    """Counts what passes by."""

    load_seconds: float
    tokens: int = 0
    verified: int = 0
    accepted: int = 0
    started: float = 0.0
    first: float | None = None
    ended: float = 0.0
    last: list[RequestOutput] = field(default_factory=list)

    def watch(self, outputs: Iterable[RequestOutput]) -> Iterator[RequestOutput]:
        self.started = time.monotonic()
        for output in outputs:
            self.ended = time.monotonic()
            if self.first is None:
                self.first = self.ended
            self.tokens += output.token_id >= 0
            self.verified += output.verified
            self.accepted += output.accepted
            if output.finished:
                self.last.append(output)
            yield output

    @property
    def failures(self) -> dict[int, str]:
        return {o.sample_index: o.error for o in self.last if o.error is not None}

    def summary(self) -> str:
        seconds = max(self.ended - self.started, 1e-9)
        ends = sorted(self.last, key=lambda o: o.sample_index)
        reasons = ", ".join(dict.fromkeys(_reason(o) for o in ends))
        rate = self.tokens / seconds
        drafts = f"{self.accepted} of {self.verified} drafts accepted; " if self.verified else ""
        return (
            f"[{ends[0].prompt_len} prompt tokens, {self.tokens} new in {seconds:.2f} s, {rate:.1f} tokens/s, "
            f"first after {(self.first or self.started) - self.started:.2f} s; {drafts}"
            f"loaded in {self.load_seconds:.1f} s; ended by {reasons}; seed {ends[0].seed}]"
        )


def _reason(output: RequestOutput) -> str:
    if output.finish_reason == "length":
        return f"length ({output.max_output_tokens})"
    return str(output.finish_reason) if output.stop_reason is None else f"stop {output.stop_reason!r}"


def _print_text(outputs: Iterable[RequestOutput]) -> None:
    ended = True
    for output in outputs:
        if output.text:
            click.echo(output.text, nl=False)  # flushes
            ended = output.text.endswith("\n")
    if not ended:
        click.echo()


def _print_samples(outputs: Iterable[RequestOutput]) -> None:
    """Whole texts, in order, each as soon as those before it are out."""
    texts: dict[int, str] = {}
    done: dict[int, RequestOutput] = {}
    shown = 0
    for output in outputs:
        texts[output.sample_index] = texts.get(output.sample_index, "") + output.text
        if output.finished:
            done[output.sample_index] = output
        while shown in done:
            click.echo(f"--- sample {shown}, seed {done[shown].seed}\n{texts[shown]}")
            shown += 1


def _print_tokens(outputs: Iterable[RequestOutput], tokenizer: Any) -> None:
    """Per token: sample (where there are several), id, bytes as text, log-probability, alternatives."""

    def show(token: int) -> str:
        return repr(tokenizer.token_bytes(token).decode("utf-8", errors="backslashreplace"))

    for output in outputs:
        if output.token_id < 0:
            continue
        best = "  ".join(f"{show(t)} {p:.4f}" for t, p in zip(output.top_token_ids, output.top_logprobs) if t >= 0)
        head = f"{output.sample_index:3d} {output.token_id:7d} {output.token_logprobs:10.4f}"
        click.echo(f"{head}  {show(output.token_id):16s} {best}".rstrip())


def _print_json(outputs: Iterable[RequestOutput]) -> None:
    for output in outputs:
        click.echo(json.dumps(output.to_dict(), ensure_ascii=False))
