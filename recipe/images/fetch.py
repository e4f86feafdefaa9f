"""Downloads of images from addresses that were checked.

For every URL, the first one and each redirect, the host is resolved once, the filter judges every address, and the
connection goes to one of the addresses that it allowed: the name is not resolved again, so that a second answer of the
DNS cannot lead elsewhere. The certificate is checked against the name. No proxy, no cookies, no credentials of the
machine, and no content encoding: the limit of bytes is on what is stored.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urljoin

from ..errors import ImageError, InvalidArgumentError, InvalidTypeError
from .addresses import DestinationFilter, public_address
from .limits import LIMITS, image_too_large

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
Resolve = Callable[[str, int], Awaitable[list[str]]]
"""`(host, port) -> addresses`."""

_REDIRECTS = (301, 302, 303, 307, 308)


class _FailedError(Exception):
    """A download that failed.

    Args:
        kind: Fetch, FetchStatus or DestinationRejected.
        retryable: whether another try may succeed.
    """

    def __init__(self, kind: str, retryable: bool) -> None:
        super().__init__(kind)
        self.kind = kind
        self.retryable = retryable


class _TooLargeError(Exception):
    """More bytes than allowed."""


@dataclass(frozen=True)
class ImageFetcher:
    """Fetches images by http and https.

    Args:
        destination_filter: which addresses may be connected to, asked once for each address of each host. The default
            allows public ones only; `any_address`, `within` or a function of your own widens it.
        max_bytes: bytes of an image.
        max_redirects: redirects that are followed.
        timeout: seconds for the whole download, name resolution and redirects included.
        resolve: finds the addresses of a host; the system's resolver by default.
    """

    destination_filter: DestinationFilter = public_address
    max_bytes: int = LIMITS.max_image_bytes
    max_redirects: int = 5
    timeout: float = 30.0
    resolve: Resolve | None = None

    def __post_init__(self) -> None:
        if not callable(self.destination_filter):
            raise InvalidTypeError("destination_filter must be callable")
        for name in ("max_bytes", "max_redirects"):
            if getattr(self, name) < 0:
                raise InvalidArgumentError(f"{name} is {getattr(self, name)}; it must not be negative")
        if not self.timeout > 0:
            raise InvalidArgumentError(f"timeout is {self.timeout}; it must be more than 0 seconds")

    def with_destination_filter(self, destination_filter: DestinationFilter) -> ImageFetcher:
        """The same fetcher with another filter."""
        return replace(self, destination_filter=destination_filter)

    def fetch(self, url: str, *, where: str = "image[0]") -> bytes:
        """What `url` leads to. It works inside a running event loop too, and blocks it.

        Args:
            where: the image's place, for the error.

        Raises:
            ImageError: Fetch (no connection, too slow, too many redirects, a URL that is not http or https;
                retryable), FetchStatus (retryable from 500 on), DestinationRejected, ImageTooLarge.
        """
        return run_blocking(self.fetch_async(url, where=where))

    async def fetch_async(self, url: str, *, where: str = "image[0]") -> bytes:
        """As `fetch`, in the running event loop."""
        try:
            async with asyncio.timeout(self.timeout):
                return await self._follow(url)
        except _TooLargeError:
            raise image_too_large(where, self.max_bytes) from None
        except _FailedError as failed:
            kind, retryable, cause = failed.kind, failed.retryable, failed.__cause__
        except TimeoutError as slow:
            kind, retryable, cause = "Fetch", True, slow
        error = ImageError(kind, f"{where}: Failed to download image from {url}", is_retryable=retryable)
        raise error from cause

    async def _follow(self, url: str) -> bytes:
        for _ in range(self.max_redirects + 1):
            parsed = _parse(url)
            answer = await self._get(parsed)
            if isinstance(answer, bytes):
                return answer
            try:
                url = urljoin(str(parsed), answer)
            except ValueError as error:  # such as `http://[`
                raise _FailedError("Fetch", True) from error
        raise _FailedError("Fetch", True)

    async def _get(self, url: httpx.URL) -> bytes | str:
        """The body that `url` has, or the place that it redirects to."""
        import httpx

        cause: Exception | None = None
        for address in await self._allowed_addresses(url):
            # One client for each connection: nothing is shared between hosts that have an address in common.
            verify = _certificates() if url.scheme == "https" else False
            timeout = httpx.Timeout(None, connect=self.timeout / 3)
            async with httpx.AsyncClient(verify=verify, trust_env=False, timeout=timeout) as client:
                try:
                    return await self._receive(client, _request(client, url, address))
                except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                    cause = error  # the next address may answer
                except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
                    raise _FailedError("Fetch", True) from error
        raise _FailedError("Fetch", True) from cause

    async def _allowed_addresses(self, url: httpx.URL) -> list[str]:
        host = url.raw_host.decode("ascii")
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            addresses = await (self.resolve or _resolve)(host, port)
        except (OSError, UnicodeError) as error:
            raise _FailedError("Fetch", True) from error
        if not addresses:
            raise _FailedError("Fetch", True)
        allowed = [address for address in dict.fromkeys(addresses) if self._allows(host, address)]
        if not allowed:
            raise _FailedError("DestinationRejected", False)
        return allowed

    def _allows(self, host: str, address: str) -> bool:
        try:
            return self.destination_filter(host, address) is True
        except Exception:  # whatever the filter raises, the address was not allowed
            return False

    async def _receive(self, client: httpx.AsyncClient, request: httpx.Request) -> bytes | str:
        response = await client.send(request, stream=True)
        try:
            if response.status_code in _REDIRECTS and response.headers.get("location"):
                return str(response.headers["location"])
            if not 200 <= response.status_code < 300:
                raise _FailedError("FetchStatus", response.status_code >= 500)
            length = response.headers.get("content-length", "")
            if length.isascii() and length.isdigit() and int(length) > self.max_bytes:
                raise _TooLargeError
            body = bytearray()
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > self.max_bytes:
                    raise _TooLargeError
            return bytes(body)
        finally:
            await response.aclose()


@cache
def _certificates() -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()  # heeds SSL_CERT_FILE and SSL_CERT_DIR


def _parse(url: str) -> httpx.URL:
    import httpx

    # What browsers repair (controls, backslashes, missing slashes) is refused: it hides hosts from readers.
    if any(c < " " or c in "\\\x7f" for c in url):
        raise _FailedError("Fetch", True)
    try:
        parsed = httpx.URL(url.strip(" "))
        known = parsed.scheme in ("http", "https") and bool(parsed.host) and not set(parsed.host) & set("% ")
    except (httpx.InvalidURL, ValueError, UnicodeError) as error:
        raise _FailedError("Fetch", True) from error
    if not known or parsed.port is not None and not 0 < parsed.port < 65536:
        raise _FailedError("Fetch", True)
    return parsed.copy_with(fragment=None)


def _request(client: httpx.AsyncClient, url: httpx.URL, address: str) -> httpx.Request:
    """A GET that connects to `address`, and asks the host of `url`, whose name the certificate has to bear."""
    headers = {"Host": url.netloc.decode("ascii"), "Accept": "*/*", "Accept-Encoding": "identity"}
    extensions = {"sni_hostname": url.raw_host.decode("ascii")}
    return client.build_request("GET", url.copy_with(host=address), headers=headers, extensions=extensions)


async def _resolve(host: str, port: int) -> list[str]:
    """Addresses of a host by the system's resolver. Its thread does not hold up the end of the program."""
    found: Future[list[str]] = Future()

    def look_up() -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = [str(entry[4][0]) for entry in entries]
        except (OSError, UnicodeError) as error:
            found.set_exception(error)
        else:
            found.set_result(addresses)

    found.set_running_or_notify_cancel()
    threading.Thread(target=look_up, name="recipe-resolve", daemon=True).start()
    return await asyncio.wrap_future(found)


def run_blocking(work: Coroutine[object, object, T]) -> T:
    """The result of `work`, also where an event loop runs already: then in a loop of another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(asyncio.run(work))
        except BaseException as error:
            result.set_exception(error)

    thread = threading.Thread(target=run, name="recipe-fetch", daemon=True)
    thread.start()
    thread.join()
    return result.result()
