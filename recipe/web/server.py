"""The page's server. It listens on the loopback interface, and answers only who asks for it by a name of that.

A page of another site can make a browser send requests here. They are refused: a name that was rebound to this machine
shows in the Host header, another site in the Origin header, and a body of type JSON cannot be sent across sites without
being asked for first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from ..errors import RecipeError
from ..tokenizer import Tokenizer
from .api import API, STREAMS, InvalidInputError

MAX_BODY_BYTES = 4 << 20
DEFAULT_PORT = 80  # of http
SECONDS_WITHOUT_A_BYTE = 30
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class PageServer(ThreadingHTTPServer):
    """Serves the page on 127.0.0.1.

    Args:
        port: 0 for a free one.
        tokenizer: for token ids; without one the page shows none.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int = 0, tokenizer: Tokenizer | None = None) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.tokenizer = tokenizer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def is_own_name(self, host: str | None) -> bool:
        """Whether a Host header names this server: the loopback address or localhost, with the port.

        Browsers leave out the port that is the scheme's own.
        """
        ports = (f":{self.server_port}", "") if self.server_port == DEFAULT_PORT else (f":{self.server_port}",)
        return host in [name + port for name in ("127.0.0.1", "localhost") for port in ports]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up is nobody's fault. Errors of the handlers are answered, not printed."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    timeout = SECONDS_WITHOUT_A_BYTE

    def do_GET(self) -> None:
        if self._is_refused():
            return
        known = _FILES.get(urlsplit(self.path).path)
        if known is None:
            self._fail(HTTPStatus.NOT_FOUND, "there is no such page")
            return
        name, kind = known
        self._send(HTTPStatus.OK, files(__package__).joinpath(name).read_bytes(), f"{kind}; charset=utf-8")

    def do_POST(self) -> None:
        if self._is_refused():
            return
        path = urlsplit(self.path).path
        body = self._body()
        if body is None:
            return
        if path in API:
            self._answer(lambda: API[path](body, self.server.tokenizer))
        elif path in STREAMS:
            self._stream(STREAMS[path](body, self.server.tokenizer))
        else:
            self._fail(HTTPStatus.NOT_FOUND, "there is no such page")

    def _is_refused(self) -> bool:
        if not self.server.is_own_name(self.headers.get("Host")):
            self._fail(HTTPStatus.FORBIDDEN, "this page is served on this machine only")
            return True
        origin = self.headers.get("Origin")
        if origin is not None and not (origin.startswith("http://") and self.server.is_own_name(origin[7:])):
            self._fail(HTTPStatus.FORBIDDEN, "another site may not ask")
            return True
        return False

    def _body(self) -> dict[str, Any] | None:
        """The JSON object of the request; None when an error was answered."""
        if self.headers.get_content_type() != "application/json":
            self._fail(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body has to be JSON")
            return None
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._fail(HTTPStatus.LENGTH_REQUIRED, "the request has no length")
            return None
        if len(length) > 12 or int(length) > MAX_BODY_BYTES:
            limit = MAX_BODY_BYTES >> 20
            self._fail(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request is larger than {limit} MB")
            return None
        try:
            value = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            self._fail(HTTPStatus.BAD_REQUEST, "the body is no JSON object")
            return None
        return value

    def _answer(self, work: Callable[[], Any]) -> None:
        try:
            self._send_json(HTTPStatus.OK, work())
        except (RecipeError, InvalidInputError) as error:
            self._fail(HTTPStatus.BAD_REQUEST, str(error))

    def _stream(self, lines: Iterator[Any]) -> None:
        """One JSON line after another, each sent at once. The connection's end is the body's."""
        self.close_connection = True
        self._head(HTTPStatus.OK, "application/x-ndjson", None)
        try:
            for line in lines:
                self.wfile.write(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
                self.wfile.flush()
        except (RecipeError, InvalidInputError) as error:
            self.wfile.write(json.dumps({"error": str(error)}).encode() + b"\n")

    def _fail(self, status: HTTPStatus, text: str) -> None:
        self.close_connection = True  # what was sent of a body is not read
        self._send_json(status, {"error": text})

    def _send_json(self, status: HTTPStatus, value: Any) -> None:
        data = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        self._send(status, data, "application/json")

    def _send(self, status: HTTPStatus, data: bytes, kind: str) -> None:
        self._head(status, kind, len(data))
        self.wfile.write(data)

    def _head(self, status: HTTPStatus, kind: str, length: int | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        if self.close_connection:
            self.send_header("Connection", "close")
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: who serves the page uses it."""
