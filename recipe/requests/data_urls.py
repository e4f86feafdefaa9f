"""Reading `data:` URLs as browsers do (WHATWG Fetch, data URL processor, and Infra, forgiving base64)."""

from __future__ import annotations

import re
from binascii import a2b_base64
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

_CONTROLS = "".join(map(chr, range(0x21)))
_TAB_OR_NEWLINE = str.maketrans("", "", "\t\n\r")
_WHITESPACE = b"\t\n\x0c\r "
_BASE64_MARK = re.compile(r"; *base64 *\Z", re.IGNORECASE | re.ASCII)
_TOKEN = r"[-!#$%&'*+.^_`|~0-9A-Za-z]+"
_MEDIA_TYPE = re.compile(rf"[\t\n\r ]*({_TOKEN})/({_TOKEN})[\t\n\r ]*(?:;.*)?\Z", re.DOTALL)
_BASE64 = re.compile(rb"[0-9A-Za-z+/]*={0,2}\Z")


@dataclass(frozen=True, slots=True)
class DataUrl:
    """A data URL taken apart.

    Args:
        media_type: type and subtype in lower case, `text/plain` when there is none that can be read.
        is_base64: whether the body is base64.
        body: the body without fragment, percent escapes decoded.
    """

    media_type: str
    is_base64: bool
    body: bytes

    def is_decodable(self) -> bool:
        """Whether the body can be decoded."""
        return not self.is_base64 or _without_blanks(self.body) is not None

    def decode(self) -> bytes | None:
        """The bytes that the URL stands for; None when the base64 is not valid."""
        if not self.is_base64:
            return self.body
        text = _without_blanks(self.body)
        return None if text is None else a2b_base64(text + b"=" * (-len(text) % 4))


def _without_blanks(body: bytes) -> bytes | None:
    """Base64 without blanks; None when it cannot be decoded. Padding is all there or not at all."""
    text = body.translate(None, _WHITESPACE)
    if not _BASE64.match(text):
        return None
    stripped = text.rstrip(b"=")
    padding = len(text) - len(stripped)
    if len(stripped) % 4 == 1 or (padding and len(text) % 4):
        return None
    return stripped


def read_data_url(url: str) -> DataUrl | None:
    """A data URL taken apart, None when `url` is none."""
    text = url.strip(_CONTROLS)
    if "\n" in text or "\t" in text or "\r" in text:
        text = text.translate(_TAB_OR_NEWLINE)
    scheme, colon, rest = text.partition(":")
    if not colon or not scheme.isascii() or scheme.lower() != "data":
        return None
    header, comma, body = rest.partition(",")
    if not comma or "#" in header:
        return None
    mark = _BASE64_MARK.search(header)
    if mark:
        header = header[: mark.start()]
    found = _MEDIA_TYPE.match(header)
    media_type = f"{found[1]}/{found[2]}".lower() if found else "text/plain"
    return DataUrl(media_type, mark is not None, unquote_to_bytes(body.partition("#")[0]))
