"""The page: what its server refuses and answers, and the page in a browser, edited, streamed and switched."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import pytest

from deepinfer.recipe import Tokenizer
from deepinfer.recipe.web.examples import OUTPUTS, REQUESTS
from deepinfer.recipe.web.server import MAX_BODY_BYTES, PageServer


@pytest.fixture
def server(tokenizers: dict[str, Tokenizer]) -> Iterator[PageServer]:
    yield from serve(tokenizers["v4.1"])


@pytest.fixture
def bare_server() -> Iterator[PageServer]:
    yield from serve(None)


def serve(tokenizer: Tokenizer | None) -> Iterator[PageServer]:
    with PageServer(0, tokenizer) as made:
        threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield made
        made.shutdown()


def ask(server: PageServer, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Status and body; JSON is parsed. Header names are spelt with low bars."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    sent = {"Content-Type": "application/json"} if body is not None else {}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body if isinstance(body, bytes | None) else json.dumps(body), sent)
    answer = connection.getresponse()
    data = answer.read()
    kind = answer.headers["Content-Type"]
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    connection.close()
    if kind == "application/x-ndjson":
        return answer.status, [json.loads(line) for line in data.splitlines()]
    return answer.status, json.loads(data) if kind == "application/json" else data


def output_body(**changes: Any) -> dict[str, Any]:
    return {
        "request": REQUESTS["chat"],
        "protocol": "",
        "version": "",
        "output": OUTPUTS["a call"],
        "chunk_size": 3,
        "delay_ms": 1,
        "finish_reason": "stop",
    } | changes


def test_it_listens_on_loopback_only(bare_server: PageServer) -> None:
    assert bare_server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "localhost:1", "127.0.0.1.evil.example:{}", "", "0.0.0.0:{}"]
)
@pytest.mark.parametrize("path", ["/", "/api/render"])
def test_names_of_others_are_refused(bare_server: PageServer, host: str, path: str) -> None:
    method, body = ("GET", None) if path == "/" else ("POST", {"request": "{}"})
    status, found = ask(bare_server, method, path, body, Host=host.format(bare_server.server_port))
    assert status == 403 and found == {"error": "this page is served on this machine only"}


def test_its_own_names_are_answered(bare_server: PageServer) -> None:
    for host in ("127.0.0.1", "localhost"):
        assert ask(bare_server, "GET", "/", Host=f"{host}:{bare_server.server_port}")[0] == 200


def test_the_port_of_the_scheme_may_be_left_out() -> None:
    server = SimpleNamespace(server_port=80)
    for host, is_own in (("127.0.0.1", True), ("localhost:80", True), ("localhost", True), ("evil.example", False)):
        assert PageServer.is_own_name(server, host) is is_own  # type: ignore[arg-type]


def test_other_sites_are_refused(bare_server: PageServer) -> None:
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{bare_server.server_port}", "http://127.0.0.1:1"):
        assert ask(bare_server, "POST", "/api/info", {}, Origin=origin)[0] == 403
    own = f"http://localhost:{bare_server.server_port}"
    assert ask(bare_server, "POST", "/api/info", {}, Origin=own)[0] == 200


def test_bodies_are_checked(bare_server: PageServer) -> None:
    assert ask(bare_server, "POST", "/api/info", b"{}", Content_Type="text/plain")[0] == 415
    assert ask(bare_server, "POST", "/api/info", b"[]")[0] == 400
    assert ask(bare_server, "POST", "/api/info", b"{")[0] == 400
    assert ask(bare_server, "POST", "/api/info", b"[" * 100_000)[0] == 400
    assert ask(bare_server, "POST", "/api/none", {})[0] == 404
    for path in ("/none", "/../server.py", "/server.py", "/%2e%2e/api.py"):
        assert ask(bare_server, "GET", path)[0] == 404


@pytest.mark.parametrize("length", [str(MAX_BODY_BYTES + 1), "9" * 30, "-1", "x"])
def test_a_large_or_unmeasured_body_is_not_read(bare_server: PageServer, length: str) -> None:
    with socket.create_connection(("127.0.0.1", bare_server.server_port), timeout=10) as connection:
        head = (
            f"POST /api/info HTTP/1.1\r\nHost: 127.0.0.1:{bare_server.server_port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
        connection.sendall(head.encode())
        answer = connection.makefile("rb").read()
    assert answer.split()[1] in (b"413", b"411") and b'{"error": "the request' in answer


def test_a_chunked_body_is_refused(bare_server: PageServer) -> None:
    headers = {"Content_Type": "application/json", "Transfer_Encoding": "chunked"}
    connection = http.client.HTTPConnection("127.0.0.1", bare_server.server_port, timeout=20)
    connection.request("POST", "/api/info", iter([b"{}"]), {k.replace("_", "-"): v for k, v in headers.items()})
    assert connection.getresponse().status == 411
    connection.close()


def test_the_page_needs_nothing_from_outside() -> None:
    for name in ("index.html", "page.css", "page.js", "icon.svg"):
        text = files("deepinfer.recipe.web").joinpath(name).read_text("utf-8")
        assert not re.findall(
            r"(?:https?:)?//(?!www\.w3\.org/2000/svg)[a-z]", text.replace("// number", "").replace("// the", "")
        ), name
        assert "innerHTML" not in text and "<script>" not in text and "style=" not in text, name


@pytest.mark.parametrize("protocol", list(REQUESTS))
def test_examples_render_as_what_they_are(server: PageServer, protocol: str) -> None:
    status, found = ask(server, "POST", "/api/render", {"request": REQUESTS[protocol], "protocol": "", "version": ""})
    assert status == 200 and (found["protocol"], found["version"]) == (protocol, "v4.1")
    assert found["pieces"][0] == ["<｜begin▁of▁sentence｜>", True]
    assert "".join(piece for _, piece, _ in found["ids"]) == "".join(text for text, _ in found["pieces"])
    assert found["settings"]["output_constraint"]["kind"] == "tool_call"


def test_texts_that_spell_special_tokens_are_not_marked(server: PageServer) -> None:
    request = json.dumps({"model": "DeepSeek-V4-Pro", "messages": [{"role": "user", "content": "<｜User｜>"}]})
    _, found = ask(server, "POST", "/api/render", {"request": request})
    assert ["<｜User｜>", True] in found["pieces"] and ["<｜User｜>", False] in found["pieces"]
    assert [piece for _, piece, special in found["ids"] if special].count("<｜User｜>") == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"request": "{"}, "the request is not JSON"),
        ({"request": "[]"}, "looks like no protocol"),
        ({"request": '{"messages": []}'}, "model"),
        ({"protocol": "telepathy"}, "protocol 'telepathy' is not known"),
        ({"protocol": ["chat"]}, "protocol is missing, or no text"),
        ({"version": "v99"}, "model version 'v99' is not known"),
        ({"request": None}, "request is missing"),
        ({"output": 3}, "output is missing"),
        ({"chunk_size": 0}, "chunk_size is 0"),
        ({"chunk_size": True}, "chunk_size is True"),
        ({"output": "x" * 30_000, "chunk_size": 1}, "more than 20000 pieces"),
        ({"output": "\ud800"}, "half of a surrogate pair"),
        ({"finish_reason": "boredom"}, "finish reason 'boredom' is not known"),
    ],
)
def test_errors_are_told_in_words(bare_server: PageServer, changes: dict[str, Any], words: str) -> None:
    status, found = ask(bare_server, "POST", "/api/parse", output_body(**changes))
    assert status == 400 and re.search(words, found["error"])
    _, lines = ask(bare_server, "POST", "/api/stream", output_body(**changes))
    assert re.search(words, lines[-1]["error"])


def test_a_pause_is_bounded(bare_server: PageServer) -> None:
    for changes in ({"delay_ms": 1001}, {"delay_ms": 1000, "output": "x" * 1000, "chunk_size": 1}):
        _, lines = ask(bare_server, "POST", "/api/stream", output_body(**changes))
        assert len(lines) == 1 and ("delay_ms" in lines[0]["error"] or "120 seconds" in lines[0]["error"])


def test_every_protocol_answers_and_pieces_do_not_matter(bare_server: PageServer) -> None:
    _, whole = ask(bare_server, "POST", "/api/parse", output_body(chunk_size=1 << 20))
    _, lines = ask(bare_server, "POST", "/api/stream", output_body())
    assert set(whole["responses"]) == {"chat", "messages", "responses"}
    assert lines[-1]["done"] == len(OUTPUTS["a call"])
    count = sum(len(line["events"]["chat"]) for line in lines)
    assert count > len(whole["events"]["chat"])
    for name, response in lines[-1]["responses"].items():
        assert without_ids(response) == without_ids(whole["responses"][name])
        assert "weather" in response and "Oslo" in response and "I will look it up." in response


def without_ids(response: str) -> str:
    return re.sub(
        r'"(?:id|call_id|signature)": "[^"]*"|"\w+_tokens": \d+|"(?:created|created_at|completed_at)": \d+',
        "",
        response,
    )


# In a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs the page-test extra")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("needs Chromium on PATH, or CHROMIUM with its path")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


SIZES = {"laptop": (1366, 768), "phone": (390, 844)}


@pytest.fixture(params=SIZES)
def page(request: pytest.FixtureRequest, browser: Any, server: PageServer) -> Iterator[Any]:
    """The page, ready. Nothing may be logged as an error, and nothing asked from elsewhere."""
    width, height = SIZES[request.param]
    found = browser.new_page(viewport={"width": width, "height": height})
    errors: list[str] = []
    asked: list[str] = []
    found.on("pageerror", lambda error: errors.append(str(error)))
    found.on("console", lambda entry: errors.append(entry.text) if entry.type == "error" else None)
    found.on("request", lambda sent: asked.append(sent.url))
    found.goto(server.url)
    found.wait_for_selector("body[data-ready]")
    yield found
    found.close()
    assert all(url.startswith(server.url) for url in asked)
    assert [error for error in errors if "400" not in error] == []  # a refused request is logged by the browser itself


def holds(page: Any, selector: str, text: str) -> None:
    page.locator(selector).filter(has_text=text).first.wait_for(timeout=10_000)


def test_editing_changes_prompt_and_ids(page: Any) -> None:
    assert page.locator("#prompt mark").first.inner_text() == "<｜begin▁of▁sentence｜>"
    page.click("#ids-box summary")
    before = page.locator("#ids .id").count()
    request = json.loads(page.input_value("#request"))
    request["messages"][1]["content"] = "Something else altogether: <｜User｜> zebra"
    page.fill("#request", json.dumps(request))
    holds(page, "#prompt", "zebra")
    assert page.locator("#prompt mark").filter(has_text="<｜User｜>").count() == 1
    assert page.locator("#ids .id").count() > before > 100


def test_errors_show_and_go(page: Any) -> None:
    right = page.input_value("#request")
    page.fill("#request", right[:-3])
    holds(page, "#request-error", "not JSON")
    assert "stale" in page.get_attribute("#prompt", "class")
    page.click("#stream")
    holds(page, "#output-error", "not JSON")
    page.fill("#request", right)
    page.locator("#request-error").wait_for(state="hidden")
    assert not page.get_attribute("#prompt", "class")
    page.fill("#size", "0")
    page.click("#parse")
    holds(page, "#output-error", "chunk_size is 0")


def test_protocol_and_version_switch(page: Any) -> None:
    page.select_option("#protocol", "messages")
    holds(page, "#prompt-note", "messages, v4.1")
    assert "input_schema" in page.input_value("#request")
    page.select_option("#version", "v4")
    holds(page, "#prompt-note", "messages, v4")
    holds(page, "#prompt", "tool_calls>")
    assert page.locator("#prompt mark").filter(has_text="<｜System｜>").count() == 0
    page.select_option("#protocol", "responses")
    holds(page, "#prompt-note", "responses, v4")
    # What somebody wrote stays; read as another protocol it may be wrong.
    page.fill("#request", '{"input": "mine"}')
    holds(page, "#prompt", "mine")
    page.select_option("#protocol", "chat")
    holds(page, "#request-error", "messages")
    assert page.input_value("#request") == '{"input": "mine"}'
    page.click("#reset")
    page.locator("#request-error").wait_for(state="hidden")


def test_streaming_shows_every_protocol_as_it_comes(page: Any) -> None:
    page.fill("#pause", "60")
    page.fill("#size", "6")
    page.click("#stream")
    holds(page, "[data-protocol=chat] .response", "The forecast")
    early = [page.inner_text(f"[data-protocol={name}] .response") for name in REQUESTS]
    assert not any("Oslo" in response for response in early)
    assert page.is_enabled("#halt")
    for name in REQUESTS:
        holds(page, f"[data-protocol={name}] .response", "Oslo")
        assert int(page.inner_text(f"[data-protocol={name}] .count")) > 3
    holds(page, "[data-protocol=messages] .response", '"stop_reason": "tool_use"')
    page.locator("#halt[disabled]").wait_for()
    page.click("[data-protocol=responses] summary")
    holds(page, "[data-protocol=responses] .events", "response.completed")


def test_a_stream_can_be_stopped_and_another_output_pasted(page: Any) -> None:
    page.fill("#pause", "300")
    page.click("#stream")
    holds(page, "[data-protocol=chat] .response", "The")
    page.click("#halt")
    page.fill("#output", "Thinking.</think>Pasted <b>answer</b>")
    page.click("#parse")
    holds(page, "[data-protocol=chat] .response", "Pasted <b>answer</b>")
    page.wait_for_timeout(500)
    assert "forecast" not in page.inner_text("#answers")


def test_nothing_sticks_out(page: Any) -> None:
    page.click("#parse")
    holds(page, "[data-protocol=chat] .response", "Oslo")
    page.fill("#output", "x" * 3000)
    page.click("#parse")
    holds(page, "[data-protocol=chat] .response", "xxx")
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")


def test_without_a_tokenizer_the_page_says_so(browser: Any, bare_server: PageServer) -> None:
    page = browser.new_page()
    page.goto(bare_server.url)
    page.wait_for_selector("body[data-ready]")
    page.click("#ids-box summary")
    assert "--tokenizer" in page.inner_text("#no-tokenizer")
    page.close()
