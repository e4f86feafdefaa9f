"""URIs of the parts of a schema, resolved as RFC 3986 says, section 5.2.

A schema of a megabyte may hold ten thousand identifiers below one of a megabyte. So a URI is kept as a path in a tree
that shares what begins alike: resolving a reference takes time and memory by the length of the reference alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_CHARACTER = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_AUTHORITY = (
    r"(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?"
    r"(?:\[[0-9A-Za-z.:]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?"
)
_REFERENCE = re.compile(
    rf"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://({_AUTHORITY})(?=[/?#]|\Z))?((?:{_CHARACTER}|/)*+)"
    rf"(?:\?((?:{_CHARACTER}|[/?])*+))?(?:#((?:{_CHARACTER}|[/?])*+))?"
)
_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_EMPTY_PATH = 0


class Uri(NamedTuple):
    """A URI without fragment. `path` is a number of `Uris`."""

    scheme: str | None = None
    authority: str | None = None
    path: int = _EMPTY_PATH
    query: str | None = None


NO_URI = Uri()


class Uris:
    """The paths of URIs, each by a number: that of the path without its last segment, and the segment."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[int, str], int] = {}
        self.parents: list[int] = [_EMPTY_PATH]
        self.segments: list[str] = [""]
        self.rooted: list[bool] = [False]
        """Whether a path begins with a slash."""

    def resolve(self, base: Uri, reference: str) -> tuple[Uri, str]:
        """What a reference means where `base` is the URI, and its fragment.

        Raises:
            ValueError: it is no reference, or has none to be one to.
        """
        match = _REFERENCE.fullmatch(reference)
        if match is None or (match[1] is None and ":" in match[3].split("/", 1)[0]):
            raise ValueError("it has characters that none has there")
        scheme, authority, path, query, fragment = match.groups()
        is_alone = scheme is None and bool(authority is not None or path or query is not None)
        if is_alone and base.scheme is not None and base.authority is None and not self.rooted[base.path]:
            raise ValueError("the address around it is none that others lie below")
        scheme = scheme.lower() if scheme is not None else None
        authority = None if authority is None else _plain(authority.lower()).removesuffix(":")
        if authority is not None and (port := _DEFAULT_PORTS.get(scheme or base.scheme or "")):
            authority = authority.removesuffix(port)
        path, query = _plain(path), None if query is None else _plain(query)
        if scheme is not None or authority is not None:
            uri = Uri(scheme or base.scheme, authority, self._path(_EMPTY_PATH, path), query)
        elif not path:
            uri = base if query is None else base._replace(query=query)
        else:
            uri = Uri(base.scheme, base.authority, self._merged(base, path), query)
        return uri, fragment or ""

    def _merged(self, base: Uri, path: str) -> int:
        if path.startswith("/"):
            return self._path(_EMPTY_PATH, path)
        if base.path == _EMPTY_PATH:
            return self._path(_EMPTY_PATH, f"/{path}" if base.authority is not None else path)
        return self._path(self.parents[base.path], path)

    def _path(self, begin: int, path: str) -> int:
        """The path that segments make below another one."""
        if not path:
            return begin
        place = begin
        *inner, last = path.split("/")
        for segment in inner:
            if segment == "..":
                place = self._above(place)
            elif segment != ".":
                place = self._below(place, segment)
        if last in (".", ".."):
            place = self._above(place) if last == ".." else place
            last = ""
        return self._below(place, last)

    def _above(self, path: int) -> int:
        is_root = self.parents[path] == _EMPTY_PATH and not self.segments[path]
        return path if is_root else self.parents[path]

    def _below(self, path: int, segment: str) -> int:
        number = self.numbers.get((path, segment))
        if number is None:
            number = self.numbers[path, segment] = len(self.parents)
            self.parents.append(path)
            self.segments.append(segment)
            self.rooted.append(self.rooted[path] if path != _EMPTY_PATH else not segment)
        return number


def _plain(text: str) -> str:
    """Without escapes of characters that need none, and the others in capitals."""

    def plain(escape: re.Match[str]) -> str:
        character = chr(int(escape[1], 16))
        is_free = character.isascii() and (character.isalnum() or character in "-._~")
        return character if is_free else escape[0].upper()

    return _ESCAPED.sub(plain, text)
