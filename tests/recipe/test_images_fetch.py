"""Downloads: where they may go, what stops them, and what errors say. Servers of the tests listen on loopback, which
a filter allows on purpose."""

from __future__ import annotations

import asyncio
import gzip
import http.server
import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from urllib.parse import quote, unquote

import pytest

from deepinfer.recipe import ImageError, ImageSource
from deepinfer.recipe.errors import InvalidArgumentError, InvalidTypeError
from deepinfer.recipe.images import ImageFetcher, ImageQuota, ImageResolver, any_address

pytest.importorskip("httpx", reason="needs the images extra")

BODY = b"\x89PNG the bytes of an image"
OPEN = ImageFetcher(any_address, timeout=5)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append((self.path, dict(self.headers)))
        name, _, rest = self.path[1:].partition("/")
        getattr(self, f"answer_{name}", self.answer_ok)(unquote(rest))

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for key, value in ({"content_length": str(len(body))} | headers).items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def answer_ok(self, rest: str) -> None:
        self.answer(200, BODY)

    def answer_status(self, rest: str) -> None:
        self.answer(int(rest), BODY if int(rest) not in (204, 304) else b"")

    def answer_hops(self, rest: str) -> None:
        left = int(rest)
        self.answer(302, location=f"/hops/{left - 1}" if left > 1 else "/ok")

    def answer_loop(self, rest: str) -> None:
        self.answer(307, location="/loop")

    def answer_to(self, rest: str) -> None:
        self.answer(301, location=rest)

    def answer_nowhere(self, rest: str) -> None:
        self.answer(302)

    def answer_zipped(self, rest: str) -> None:
        self.answer(200, gzip.compress(BODY), content_encoding="gzip")

    def answer_claims(self, rest: str) -> None:
        self.answer(200, BODY, content_length=rest)
        self.close_connection = True

    def answer_endless(self, rest: str) -> None:
        self.answer(200, transfer_encoding="chunked", content_length="0")
        try:
            while True:
                self.wfile.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
        except OSError:
            self.close_connection = True

    def drip(self, start: bytes, piece: bytes) -> None:
        self.close_connection = True
        try:
            self.wfile.write(start)
            for _ in range(200):
                self.wfile.write(piece)
                time.sleep(0.05)
        except OSError:
            pass

    def answer_drip(self, rest: str) -> None:
        self.drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"x")

    def answer_headers(self, rest: str) -> None:
        self.drip(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n")

    def answer_flood(self, rest: str) -> None:
        self.close_connection = True
        try:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 100_000)
        except OSError:
            pass

    def answer_garbage(self, rest: str) -> None:
        self.close_connection = True
        self.wfile.write(b"\0\1 not http\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients that hang up are part of the tests


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def failure(fetcher: ImageFetcher, url: str) -> ImageError:
    with pytest.raises(ImageError) as found:
        fetcher.fetch(url, where="P.image[0]")
    if found.value.kind != "ImageTooLarge":
        assert str(found.value) == f"P.image[0]: Failed to download image from {url}"
    return found.value


def kind(fetcher: ImageFetcher, url: str) -> tuple[str, bool]:
    error = failure(fetcher, url)
    return error.kind, error.is_retryable


REJECTED = ("DestinationRejected", False)
FAILED = ("Fetch", True)


def test_plain_get(server: Server) -> None:
    assert OPEN.fetch(f"{server.url}/ok") == BODY
    path, headers = server.seen[0]
    assert path == "/ok"
    assert {key.lower(): value for key, value in headers.items()} == {
        "host": f"127.0.0.1:{server.server_port}",
        "accept": "*/*",
        "accept-encoding": "identity",
        "connection": "keep-alive",
        "user-agent": headers["User-Agent"],
    }


def test_works_inside_a_running_loop_and_in_its_async_form(server: Server) -> None:
    async def both() -> tuple[bytes, bytes]:
        return OPEN.fetch(f"{server.url}/ok"), await OPEN.fetch_async(f"{server.url}/ok")

    assert asyncio.run(both()) == (BODY, BODY)


LOOPBACK_SPELLINGS = ["127.0.0.1", "localhost", "LOCALHOST.", "127.1", "2130706433", "0x7f000001", "0177.0.0.1",
                      "0x7f.1", "0", "[::ffff:127.0.0.1]", "[::1]", "user:secret@127.0.0.1",
                      "8.8.8.8@127.0.0.1"]  # fmt: skip


@pytest.mark.parametrize("host", LOOPBACK_SPELLINGS)
def test_the_default_refuses_loopback_however_it_is_spelt(server: Server, host: str) -> None:
    assert kind(ImageFetcher(timeout=5), f"http://{host}:{server.server_port}/ok") in (REJECTED, FAILED)
    assert not server.seen


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "8.8.8.8@127.0.0.1"])
def test_those_spellings_do_lead_to_loopback(server: Server, host: str) -> None:
    assert OPEN.fetch(f"http://{host}:{server.server_port}/ok") == BODY


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1:70/_x", "data:image/png,x", "dict://127.0.0.1/",
        "http:", "http://", "http:///x", "http:127.0.0.1/x", "http:/127.0.0.1/x", "//127.0.0.1/x", "/x", "", "zz",
        "http://127.0.0.1\\@8.8.8.8/", "http:\\\\127.0.0.1/", "http://127.0.0.1\t/", "http://127.0.0.1\r\nHost: a/",
        "http://a b/", "http://%31%32%37.0.0.1/", "http://127.0.0.1%00.example/", "http://127.0.0.1:99999/",
        "http://127.0.0.1:0/", "http://[::1", "http://[fe80::1%25lo]/", "http://\u24db\u24de\u24d2alhost/",
        "http://xn--\u00e4/", "http://" + "a" * 300 + "/", "http://.../",
    ],
)  # fmt: skip
def test_what_is_no_web_address_goes_nowhere(url: str) -> None:
    fetcher = ImageFetcher(any_address, timeout=2, resolve=never)
    if url == "http://[fe80::1%25lo]/":
        fetcher = ImageFetcher(timeout=2, resolve=never)
    assert kind(fetcher, url) == FAILED


async def never(host: str, port: int) -> list[str]:
    if host in ("...", "a" * 300) or host.startswith("xn--"):
        raise OSError("no such host")
    raise AssertionError(f"{host} was resolved")


def names(table: dict[str, list[str]], asked: list[str] | None = None) -> Callable[[str, int], Any]:
    """A resolver. Every further question for a host gets the next answer of its list; an answer may name several."""

    async def resolve(host: str, port: int) -> list[str]:
        if asked is not None:
            asked.append(host)
        answers = table[host]
        return (answers.pop(0) if len(answers) > 1 else answers[0]).split()

    return resolve


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "169.254.169.254", "10.0.0.1", "::ffff:127.0.0.1"])
def test_names_that_lead_inside_are_refused(server: Server, address: str) -> None:
    fetcher = ImageFetcher(resolve=names({"evil.example": [address]}))
    assert kind(fetcher, f"http://evil.example:{server.server_port}/ok") == REJECTED
    assert not server.seen


def allow_public_and(port_host: str) -> Callable[[str, str], bool]:
    """The default, and loopback under one name, so that a server of a test can stand for one outside."""
    from deepinfer.recipe.images import public_address

    return lambda host, address: public_address(host, address) or (host == port_host and address == "127.0.0.1")


def test_the_connection_goes_to_the_address_that_was_checked(server: Server) -> None:
    # The second answer of the DNS leads elsewhere; nobody asks for it.
    asked: list[str] = []
    table = {"photos.example": ["127.0.0.1", "127.0.0.2"]}
    fetcher = ImageFetcher(allow_public_and("photos.example"), resolve=names(table, asked), timeout=5)
    assert fetcher.fetch(f"http://photos.example:{server.server_port}/ok") == BODY
    assert asked == ["photos.example"]
    assert server.seen[0][1]["Host"] == f"photos.example:{server.server_port}"


def test_the_system_is_not_asked_again_behind_the_check(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["127.0.0.1", "127.0.0.2", "127.0.0.3"])
    real = socket.getaddrinfo

    def rebinding(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host in ("rebind.example", b"rebind.example"):
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]
        return real(host, port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    judged: list[tuple[str, str]] = []
    fetcher = ImageFetcher(lambda host, address: not judged.append((host, address)), timeout=5)  # type: ignore[func-returns-value]
    assert fetcher.fetch(f"http://rebind.example:{server.server_port}/ok") == BODY
    assert judged == [("rebind.example", "127.0.0.1")]
    assert next(answers) == "127.0.0.2"


def test_redirects_are_judged_one_by_one(server: Server) -> None:
    table = {"photos.example": ["127.0.0.1"], "inside.example": ["127.0.0.1"]}
    fetcher = ImageFetcher(allow_public_and("photos.example"), resolve=names(table), timeout=5)
    port = server.server_port
    for target in (f"http://inside.example:{port}/ok", f"//inside.example:{port}/ok"):
        assert kind(fetcher, f"http://photos.example:{port}/to/{quote(target, safe='')}") == REJECTED
    assert [path.partition("/to")[0] for path, _ in server.seen] == ["", ""]


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://127.0.0.1/", "data:,x", "http://\\x/", "javascript:0", "http://["]
)
def test_redirects_to_other_schemes_fail(server: Server, target: str) -> None:
    assert kind(OPEN, f"{server.url}/to/{quote(target, safe='')}") == FAILED
    assert len(server.seen) == 1


def test_a_name_that_is_rebound_between_redirects(server: Server) -> None:
    table = {"photos.example": ["127.0.0.1", "169.254.169.254"]}
    fetcher = ImageFetcher(allow_public_and("photos.example"), resolve=names(table), timeout=5)
    assert kind(fetcher, f"http://photos.example:{server.server_port}/to/%2Fok") == REJECTED
    assert len(server.seen) == 1


def test_only_allowed_addresses_are_tried(server: Server) -> None:
    table = {"mixed.example": ["10.0.0.1 127.0.0.9 127.0.0.1"]}
    tried: list[str] = []

    def only_loopback(host: str, address: str) -> bool:
        tried.append(address)
        return address.startswith("127.")

    # 127.0.0.9 is allowed and nobody listens there; the next one answers.
    fetcher = ImageFetcher(only_loopback, resolve=names(table), timeout=5)
    assert fetcher.fetch(f"http://mixed.example:{server.server_port}/ok") == BODY
    assert tried == ["10.0.0.1", "127.0.0.9", "127.0.0.1"]


@pytest.mark.parametrize("answer", [False, None, 1, "yes", KeyError(3)])
def test_anything_but_true_refuses(server: Server, answer: Any) -> None:
    def judge(host: str, address: str) -> bool:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    assert kind(OPEN.with_destination_filter(judge), f"{server.url}/ok") == REJECTED
    assert not server.seen


def test_the_name_goes_into_the_handshake() -> None:
    """The TLS connection to the checked address asks for the host's certificate, not for the address's."""
    listener = socket.create_server(("127.0.0.1", 0))
    hello: list[bytes] = []

    def accept() -> None:
        connection, _ = listener.accept()
        hello.append(connection.recv(4096))
        connection.close()

    thread = threading.Thread(target=accept)
    thread.start()
    fetcher = ImageFetcher(any_address, resolve=names({"photos.example": ["127.0.0.1"]}), timeout=5)
    assert kind(fetcher, f"https://photos.example:{listener.getsockname()[1]}/x") == FAILED
    thread.join()
    listener.close()
    assert b"photos.example" in hello[0] and hello[0][0] == 22


def test_redirect_limit(server: Server) -> None:
    assert OPEN.fetch(f"{server.url}/hops/5") == BODY
    assert len(server.seen) == 6
    assert kind(OPEN, f"{server.url}/hops/6") == FAILED
    server.seen.clear()
    assert kind(OPEN, f"{server.url}/loop") == FAILED
    assert len(server.seen) == 6


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("status/404", ("FetchStatus", False)),
        ("status/300", ("FetchStatus", False)),
        ("status/304", ("FetchStatus", False)),
        ("status/500", ("FetchStatus", True)),
        ("status/503", ("FetchStatus", True)),
        ("nowhere", ("FetchStatus", False)),
        ("claims/40", FAILED),  # fewer bytes than claimed
        ("claims/99999999999999999999", ("ImageTooLarge", False)),
        ("claims/" + "9" * 5000, FAILED),  # more digits than a length has
        ("garbage", FAILED),
        ("flood", FAILED),
    ],
)
def test_answers_that_fail(server: Server, path: str, expected: tuple[str, bool]) -> None:
    assert kind(OPEN, f"{server.url}/{path}") == expected


def test_answers_that_serve(server: Server) -> None:
    assert OPEN.fetch(f"{server.url}/status/201") == BODY
    assert OPEN.fetch(f"{server.url}/status/204") == b""
    assert OPEN.fetch(f"{server.url}/zipped") == gzip.compress(BODY)  # nothing is unpacked
    assert OPEN.fetch(f"{server.url}/to/{quote('../ok#part', safe='')}") == BODY


def test_limit_of_bytes(server: Server) -> None:
    exact = ImageFetcher(any_address, max_bytes=len(BODY), timeout=5)
    assert exact.fetch(f"{server.url}/ok") == BODY
    for path, limit in (("ok", len(BODY) - 1), ("zipped", 10), ("endless", 1 << 20)):
        error = failure(ImageFetcher(any_address, max_bytes=limit, timeout=5), f"{server.url}/{path}")
        assert error.kind == "ImageTooLarge" and not error.is_retryable
        assert str(error) == f"P.image[0]: image file size exceeds limit {limit >> 20} MB"


@pytest.mark.parametrize("path", ["drip", "headers"])
def test_limit_of_time_holds_for_the_whole_download(server: Server, path: str) -> None:
    start = time.monotonic()
    assert kind(ImageFetcher(any_address, timeout=0.5), f"{server.url}/{path}") == FAILED
    assert time.monotonic() - start < 8  # the whole takes 10


def test_limit_of_time_holds_for_resolving() -> None:
    async def slow(host: str, port: int) -> list[str]:
        await asyncio.sleep(60)
        return []

    assert kind(ImageFetcher(resolve=slow, timeout=0.2), "http://slow.example/") == FAILED


def test_no_proxy_of_the_environment_is_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert OPEN.fetch(f"{server.url}/ok") == BODY


def test_credentials_stay_with_their_host(server: Server) -> None:
    with_user = server.url.replace("//", "//user:secret@")
    assert OPEN.fetch(f"{with_user}/to/{quote(server.url + '/ok', safe='')}") == BODY
    assert ["Authorization" in headers for _, headers in server.seen] == [True, False]


def test_no_cookies_between_hops(server: Server) -> None:
    class Cookies(Handler):
        def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
            super().answer(status, body, set_cookie="a=b; Path=/", **headers)

    server.RequestHandlerClass = Cookies
    assert OPEN.fetch(f"{server.url}/hops/2") == BODY
    assert not any("Cookie" in headers for _, headers in server.seen)


def test_arguments_are_checked() -> None:
    with pytest.raises(InvalidTypeError, match="destination_filter must be callable"):
        ImageFetcher(3)  # type: ignore[arg-type]
    for options in ({"max_bytes": -1}, {"max_redirects": -1}, {"timeout": 0}):
        with pytest.raises(InvalidArgumentError, match=next(iter(options))):
            ImageFetcher(**options)  # type: ignore[arg-type]


def test_the_resolver_tries_again_where_that_may_help(server: Server) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs the images extra")
    buffer = io.BytesIO()
    image.new("RGB", (3, 2)).save(buffer, "PNG")
    left = [503, 500, 200]

    class Recovering(Handler):
        def answer_ok(self, rest: str) -> None:
            self.answer(left.pop(0), buffer.getvalue())

    server.RequestHandlerClass = Recovering
    quota, resolver = ImageQuota(), ImageResolver(OPEN, retry_delays=(0, 0, 0))
    found = resolver.resolve([ImageSource.from_url(f"{server.url}/ok")], quota)
    assert [(i.width, i.height) for i in found.images] == [(672, 448)] and left == []
    assert (quota.image_count(), quota.byte_size()) == (1, len(buffer.getvalue()))
    server.seen.clear()
    for path, tries in (("status/500", 4), ("status/404", 1)):
        with pytest.raises(ImageError):
            resolver.resolve([ImageSource.from_url(f"{server.url}/{path}")])
        assert len(server.seen) == tries
        server.seen.clear()


def test_many_images_keep_their_order_and_the_total_limit(server: Server) -> None:
    class Numbers(Handler):
        def answer_ok(self, rest: str) -> None:
            time.sleep(0.02 * (int(rest) % 3))
            self.answer(200, bytes([int(rest)]) * (6 << 20))

    server.RequestHandlerClass = Numbers
    sources = [ImageSource.from_url(f"{server.url}/ok/{i}", path=f"m{i}") for i in range(20)]
    with pytest.raises(ImageError) as found:
        ImageResolver(OPEN).resolve(sources)
    assert str(found.value) == "m10: Total image size exceeds the limit: max 64 MB per request, got 66 MB"
    assert len(server.seen) == 16  # the rest was not asked for


def test_errors_equal_the_other_codec(wheel: ModuleType, server: Server) -> None:
    theirs = wheel.ReqwestImageFetcher().with_destination_filter(lambda host, address: True)
    refused = wheel.ReqwestImageFetcher().with_destination_filter(lambda host, address: False)
    paths = ["status/404", "status/500", "status/304", "status/300", "hops/6", "nowhere", "garbage",
             "to/ftp%3A%2F%2Fx", "claims/40"]  # fmt: skip
    rows = [(theirs, OPEN, f"{server.url}/{path}") for path in paths]
    rows += [(theirs, OPEN, url) for url in ("ftp://x", "zz", "http://", "http://127.0.0.1:1/x", "http://a b/")]
    rows += [(refused, OPEN.with_destination_filter(lambda host, address: False), f"{server.url}/ok")]
    for other, fetcher, url in rows:
        with pytest.raises(wheel.ImageError) as expected:
            other.fetch(url)
        with pytest.raises(ImageError) as found:
            fetcher.fetch(url)
        assert (found.value.kind, str(found.value), found.value.is_retryable) == (
            expected.value.kind,
            str(expected.value),
            expected.value.is_retryable,
        ), url
