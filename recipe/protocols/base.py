"""What a protocol is, and the protocols that there are: the modules of this package that have a `PROTOCOL`."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias
from typing import Protocol as TypingProtocol

from ..errors import InvalidArgumentError, InvalidBodyError
from ..json_text import JsonValue, from_python, parse_json
from ..options import ConversionOptions
from ..quirks import NO_QUIRKS, Quirks
from ..requests.body import Reader, Reading, ShapeError
from ..requests.converted import ConversationRequest

RequestBody: TypeAlias = "bytes | str | Mapping[str, Any]"


class Body(TypingProtocol):
    """A request body that was read."""

    @property
    def model(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way to ask for a completion.

    Args:
        name: how the codec and its command line call it.
        path: the path of its endpoint.
        reader: reads a JSON body.
        convert_body: turns what `reader` returned into a conversation and options.
    """

    name: str
    path: str
    reader: Reader[Any]
    convert_body: Callable[[Any, ConversionOptions], ConversationRequest]

    def read(self, body: RequestBody, *, quirks: Quirks = NO_QUIRKS) -> Body:
        """The body of a request, checked for its shape.

        Args:
            body: JSON text, its UTF-8 bytes, or the same as Python values.

        Raises:
            InvalidJsonError: text that is not JSON.
            InvalidBodyError: JSON of another shape than the protocol's.
            InvalidTypeError, InvalidArgumentError, JsonRangeError, JsonDepthError: Python values that JSON has not.
        """
        value = parse_json(body) if isinstance(body, (bytes, str)) else from_python(body)
        return self.read_value(value, quirks=quirks)

    def read_value(self, value: JsonValue, *, quirks: Quirks = NO_QUIRKS) -> Body:
        """`read` for a JSON value. Raises `InvalidBodyError`."""
        try:
            result: Body = self.reader(value, Reading(positional=quirks.positional_bodies))
        except ShapeError as error:
            raise InvalidBodyError(f"invalid request body: {error}") from None
        return result

    def convert(self, body: Body | RequestBody, options: ConversionOptions | None = None) -> ConversationRequest:
        """The conversation, and how to sample, constrain and parse, that a request asks for.

        Args:
            body: what `read` returned, or what it takes.

        Raises:
            ConversionError: the request breaks a rule of the protocol or of the model version.
        """
        options = options or ConversionOptions()
        if isinstance(body, (bytes, str, Mapping)):
            body = self.read(body, quirks=options.quirks)
        return self.convert_body(body, options)


@cache
def protocols() -> Mapping[str, Protocol]:
    """All protocols by name."""
    package = import_module(__package__ or "")
    found: dict[str, Protocol] = {}
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        protocol = getattr(import_module(f".{module.name}", __package__), "PROTOCOL", None)
        if protocol is not None:
            found[protocol.name] = protocol
    return found


def protocol(name: str) -> Protocol:
    """The protocol of this name.

    Raises:
        InvalidArgumentError: there is none.
    """
    if name not in protocols():
        raise InvalidArgumentError(f"protocol {name!r} is not known; known: {', '.join(protocols())}")
    return protocols()[name]
