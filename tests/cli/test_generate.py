"""`deepinfer generate`: what goes to stdout, what to stderr, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deepinfer.cli.generate import _Stats
from deepinfer.cli.main import main
from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime import llm as llm_module
from deepinfer.runtime.args import PAGE_TOKENS, EngineArgs
from deepinfer.runtime.engine import EngineConfig, LLMEngine
from deepinfer.runtime.execute import Work
from deepinfer.runtime.images import FittedImages
from deepinfer.runtime.llm import LLM
from deepinfer.runtime.outputs import RequestOutput
from deepinfer.runtime.plan import Limits
from deepinfer.runtime.simulate import SimulatedExecutor

TEXT = "caf\u00e9 \u4e2d\u6587, and on it goes."


class Bytes:
    """A tokenizer whose tokens are bytes."""

    def encode(self, text: str, *, bos: bool | None = None) -> list[int]:
        return list(text.encode())

    def token_bytes(self, token: int) -> bytes:
        return bytes([token])

    def detokenizer(self) -> Any:
        from deepinfer.model.detokenizer import Detokenizer

        class Table:
            def token_bytes(self, token: int) -> bytes:
                return bytes([token])

            def is_special(self, token: int) -> bool:
                return False

        return Detokenizer(Table())


class Recital(SimulatedExecutor):
    """Says TEXT, whatever the prompt."""

    def run(self, work: Sequence[Work]) -> Any:
        results = super().run(work)
        for item, result in zip(work, results, strict=True):
            if result.drawn is not None:
                said = TEXT.encode()
                result.drawn.token = said[item.request.num_output_tokens % len(said)]
                result.drawn.top_ids = [result.drawn.token, 65][: item.request.params.top_logprobs]
                result.drawn.top_logprobs = [-0.5, -1.5][: item.request.params.top_logprobs]
        return results


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Replaces the model; the list holds the arguments of every `LLM` that was made."""
    calls: list[dict[str, Any]] = []

    def build(model: str | None = None, **arguments: Any) -> LLM:
        calls.append({"model": model, **arguments})
        EngineArgs(model=model, **arguments)
        limits = Limits(max_tokens=4096, max_requests=16, page_tokens=PAGE_TOKENS)
        config = EngineConfig(
            vocab_size=256, eos_id=1, max_model_len=1024, limits=limits, num_pages=64, num_slots=16
        )  # fmt: skip
        tokenizer = Bytes()
        engine = LLMEngine(config, Recital(256, 64, 16, PAGE_TOKENS), tokenizer.detokenizer)
        return LLM.from_engine(engine, tokenizer)

    monkeypatch.setattr(llm_module, "LLM", build)
    return calls


def generate(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["generate", *arguments], input=stdin)


def test_text_goes_to_stdout_and_statistics_to_stderr(made: list[dict[str, Any]]) -> None:
    result = generate("hello", "--max-tokens", "10", "--seed", "7")
    assert result.exit_code == 0, result.output
    assert result.stdout == "caf\u00e9 \u4e2d\ufffd\n"
    assert "5 prompt tokens, 10 new in" in result.stderr and "tokens/s" in result.stderr
    assert "ended by length (10); seed 7" in result.stderr
    assert made == [{"model": None, "backend": None, "max_model_len": None, "max_num_seqs": 16, "seed": None}]


def test_statistics_tell_how_many_drafts_held() -> None:
    stats = _Stats(0.5)
    steps = [RequestOutput(request_id=0, token_id=7, verified=v, accepted=a) for v, a in ((0, 0), (5, 2), (3, 3))]
    steps[-1].finished, steps[-1].finish_reason = True, "stop"
    list(stats.watch(steps))
    assert "s; 5 of 8 drafts accepted; loaded in 0.5 s" in stats.summary()
    plain = _Stats(0.5)
    list(plain.watch([RequestOutput(request_id=0, token_id=7, finished=True, finish_reason="stop")]))
    assert "drafts" not in plain.summary()


def test_quiet_and_the_options_of_the_engine(made: list[dict[str, Any]]) -> None:
    result = generate(
        "x", "--quiet", "--model", "kernel", "--backend", "cpu", "--max-model-len", "99", "--max-tokens", "3"
    )  # fmt: skip
    assert (result.exit_code, result.stdout, result.stderr) == (0, "caf\n", "")
    assert made == [{"model": "kernel", "backend": "cpu", "max_model_len": 99, "max_num_seqs": 16, "seed": None}]


def test_stop_strings_are_never_shown(made: list[dict[str, Any]]) -> None:
    result = generate("x", "--stop", "\u6587,", "--stop", "zzz")
    assert result.stdout == "caf\u00e9 \u4e2d\n"
    assert "ended by stop '\u6587,'" in result.stderr
    result = generate("x", "--stop-token-id", str(ord(" ")))
    assert result.stdout == "caf\u00e9\n" and "ended by stop 32" in result.stderr


def test_the_prompt_from_stdin_loses_one_newline(made: list[dict[str, Any]]) -> None:
    assert "4 prompt tokens" in generate("-", "--max-tokens", "1", stdin="abc\n\n").stderr
    assert "3 prompt tokens" in generate("-", "--max-tokens", "1", stdin="abc").stderr
    result = generate("-", stdin=b"abc\xff")
    assert result.exit_code == 2 and "UTF-8" in result.stderr and made[2:] == []


def test_a_closed_stdin_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    from deepinfer.cli import generate as module

    monkeypatch.setattr(module.sys, "stdin", None)
    with pytest.raises(InvalidArgumentError, match="prompt.*closed"):
        module._read_prompt("-")


def test_json_lines(made: list[dict[str, Any]]) -> None:
    result = generate("x", "--json", "--max-tokens", "6", "--seed", "9", "--logprobs", "2")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["token_id"] for line in lines] == list(TEXT.encode()[:6])
    assert "".join(line["text"] for line in lines) == "caf\u00e9 "
    assert [line["finished"] for line in lines] == [False] * 5 + [True]
    assert lines[-1]["finish_reason"] == "length" and lines[0]["seed"] == 9
    assert lines[0]["top_logprobs"] == [-0.5, -1.5]


def test_a_line_per_token_with_logprobs(made: list[dict[str, Any]]) -> None:
    result = generate("x", "--logprobs", "2", "--max-tokens", "5", "--quiet")
    lines = result.stdout.splitlines()
    assert len(lines) == 5
    assert lines[0].split()[:2] == ["0", "99"] and lines[0].endswith("'c' -0.5000  'A' -1.5000")
    assert "\\xc3" in lines[3]
    assert "'c'" in generate("x", "--logprobs", "0", "--max-tokens", "1", "--quiet").stdout


def test_samples_come_one_after_the_other(made: list[dict[str, Any]]) -> None:
    result = generate("x", "--n", "2", "--max-tokens", "3", "--seed", "5", "--quiet")
    assert result.stdout == "--- sample 0, seed 5\ncaf\n--- sample 1, seed 6\ncaf\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x", "--max-tokens", "0"], "max_tokens: got 0"),
        (["x", "--temperature", "-1"], "temperature: got -1.0"),
        (["x", "--temperature", "nan"], "temperature: got nan"),
        (["x", "--top-p", "0"], "top_p: got 0.0"),
        (["x", "--seed", "-1"], "seq_seed: got -1"),
        (["x", "--stop", ""], "stop: got ['']"),
        (["", "--max-tokens", "3"], "prompt: got ''"),
        (["x" * 1024], "prompt_token_ids: got '1024 ids'; allowed: 1 to 1023"),
        (["x", "--max-model-len", "1"], "max_model_len: got 1"),
        (["x", "--stop-token-id", "256"], "stop_token_ids[0]: got 256"),
    ],
)
def test_bad_values_are_one_message_and_exit_status_2(
    made: list[dict[str, Any]], arguments: list[str], words: str
) -> None:
    result = generate(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr and "Traceback" not in result.stderr and result.stdout == ""


def test_a_missing_model_is_a_message(tmp_path: Any) -> None:
    result = generate("x", "--model", str(tmp_path))
    assert result.exit_code == 2 and "config.json" in result.stderr
    result = generate("x", "--backend", "toaster")
    assert result.exit_code == 2 and "toaster" in result.stderr


class Album:
    """A reader of images that keeps the files it is given and makes nothing of them."""

    spelling = "<i>"
    config = SimpleNamespace(image_token_id=200)

    def __init__(self) -> None:
        self.given: list[list[bytes]] = []

    def placeholders(self, ids: Any) -> int:
        return 0

    workers = None

    def look(self, data: Any, placeholders: int) -> FittedImages:
        self.given.append(data["image_bytes"])
        return FittedImages(())


def test_images_stand_where_the_prompt_says_or_in_front(
    made: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    album, build = Album(), llm_module.LLM

    def with_album(*arguments: Any, **options: Any) -> LLM:
        llm = build(*arguments, **options)
        object.__setattr__(llm.engine.config, "images", album)  # frozen
        return llm

    monkeypatch.setattr(llm_module, "LLM", with_album)
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode() * 3)
    options = ["--max-tokens", "1", "--image", str(tmp_path / "a"), "--image", str(tmp_path / "b")]
    assert "6 prompt tokens" in generate("x<i>yz<i>w", *options).stderr
    assert "3 prompt tokens" in generate("x", *options).stderr
    assert "2 prompt tokens" in generate("x<i>", *options).stderr, "one placeholder stays one"
    assert album.given == [[b"aaa", b"bbb"]] * 3
    assert "4 prompt tokens" in generate("x<i>", "--max-tokens", "1").stderr, "without images it is text"


def test_an_image_that_cannot_be_read_is_a_message(made: list[dict[str, Any]], tmp_path: Path) -> None:
    for file in (tmp_path / "none.png", tmp_path):
        result = generate("x", "--image", str(file))
        assert result.exit_code == 2 and f"--image: got '{file}'" in result.stderr and made == []


def test_a_failed_request_is_reported(made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    run = Recital.run

    def fail(self: Any, work: Sequence[Work]) -> Any:
        results = run(self, work)
        results[0].drawn.valid = results[0].drawn.token != ord("f")
        return results

    monkeypatch.setattr(Recital, "run", fail)
    result = generate("x")
    assert result.exit_code == 2 and result.stdout == "ca\n" and "not numbers" in result.stderr


def test_an_interrupt_ends_with_130(made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Any, work: Sequence[Work]) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Recital, "run", interrupt)
    result = generate("x")
    assert result.exit_code == 130 and "interrupted" in result.stderr and "Traceback" not in result.stderr


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "deepinfer", "generate", "The", "--max-tokens", "3000", "--ignore-eos", *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"} | {"DEEPINFER_ACCELERATOR": "cpu"},
        # A test run in the background of a shell ignores interrupts, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_control_c_in_a_real_process() -> None:
    with started("--json") as process:
        assert process.stdout is not None
        first = process.stdout.readline()  # as soon as the first token is there, not at the end of a buffer
        assert json.loads(first)["num_output_tokens"] == 1 and process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130 and b"Traceback" not in errors and errors.strip() == b"interrupted"


def test_a_reader_that_goes_away_in_a_real_process() -> None:
    with started() as process:
        assert process.stdout is not None and process.stderr is not None
        assert 0 < len(process.stdout.read(65536)) < 200  # piece by piece, not a buffer at a time
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(timeout=60) == 141 and errors == b""
