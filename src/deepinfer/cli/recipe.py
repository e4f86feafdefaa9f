"""`deepinfer recipe`: requests as prompts, prompts as token ids, output as each protocol's response."""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from .main import UserError

if TYPE_CHECKING:
    from ..recipe.stream.chunks import InferenceChunk
    from ..recipe.tokenizer import Tokenizer
    from ..recipe.workbench import Rendered

_FILE = click.argument("file", type=click.File("rb"), default="-")
_PROTOCOL = click.option(
    "--protocol", metavar="NAME", help="chat, messages or responses. Default: what the request looks like."
)
_VERSION = click.option("--version", metavar="NAME", help="v4 or v4.1. Default: the version of the model it names.")
_TOKENIZER = click.option(
    "--tokenizer", metavar="PATH", help="A tokenizer.json, or a folder that has one. Needed for token ids."
)
_COLOURS = ("auto", "always", "never")


class _Group(click.Group):
    """A group whose typed errors are messages, like those of the other commands."""

    def invoke(self, ctx: click.Context) -> Any:
        from ..recipe.errors import RecipeError

        try:
            return super().invoke(ctx)
        except RecipeError as error:
            raise UserError(str(error)) from error


@click.group("recipe", cls=_Group)
def command() -> None:
    """The codec between API requests and prompts: render, encode, parse.

    \b
    deepinfer recipe render request.json
    deepinfer recipe encode request.json --tokenizer tokenizer.json
    deepinfer recipe parse --request request.json --stream < output.txt
    deepinfer recipe web
    """


@command.command("render", short_help="Show the prompt of a request.")
@_FILE
@_PROTOCOL
@_VERSION
@_TOKENIZER
@click.option("--ids", is_flag=True, help="Print the token ids below the prompt.")
@click.option("--json", "as_json", is_flag=True, help="Print prompt, special ranges, settings and ids as JSON.")
@click.option("--color", "colour", type=click.Choice(_COLOURS), default="auto", help="Highlight special tokens.")
def render_command(
    file: IO[bytes],
    protocol: str | None,
    version: str | None,
    tokenizer: str | None,
    ids: bool,
    as_json: bool,
    colour: str,
) -> None:
    """Show the prompt of the request in FILE, or of the one on standard input.

    Special tokens are highlighted on a terminal, unless NO_COLOR is set; elsewhere the prompt is printed as it is.
    """
    loaded = _load_tokenizer(tokenizer, needed=ids)
    rendered = _render(file.read(), protocol, version)
    numbers = rendered.ids(loaded) if loaded is not None and (ids or as_json) else None
    if as_json:
        found: dict[str, Any] = {
            "protocol": rendered.protocol,
            "version": rendered.request.model_version.key,
            "prompt": rendered.prompt.text,
            "special_ranges": rendered.prompt.special_ranges,
            "settings": rendered.settings(),
        }
        if numbers is not None:
            found["ids"] = numbers
        click.echo(json.dumps(found, ensure_ascii=False, indent=2))
        return
    coloured = _is_coloured(colour)
    shown = "".join(_highlighted(text) if special and coloured else text for text, special in rendered.pieces())
    click.echo(shown, color=coloured)
    if numbers is not None:
        click.echo(" ".join(map(str, numbers)))


@command.command("encode", short_help="Print the token ids of a request's prompt.")
@_FILE
@_PROTOCOL
@_VERSION
@_TOKENIZER
@click.option("--pieces", is_flag=True, help="Print one id and its piece of text a line.")
def encode_command(
    file: IO[bytes], protocol: str | None, version: str | None, tokenizer: str | None, pieces: bool
) -> None:
    """Print the token ids of the prompt of the request in FILE, or of the one on standard input."""
    loaded = _load_tokenizer(tokenizer, needed=True)
    assert loaded is not None
    numbers = _render(file.read(), protocol, version).ids(loaded)
    if not pieces:
        click.echo(" ".join(map(str, numbers)))
        return
    for number in numbers:
        data = loaded.token_bytes(number) or b""
        click.echo(f"{number:>7} {json.dumps(data.decode('utf-8', 'backslashreplace'), ensure_ascii=False)}")


@command.command("parse", short_help="Show the response that a model's output makes.")
@_FILE
@click.option("--request", "request_file", type=click.File("rb"), help="The request that the output answers.")
@click.option("--request-protocol", metavar="NAME", help="Its protocol. Default: what it looks like.")
@click.option("--protocol", metavar="NAME", help="The protocol to answer in. Default: the request's, or chat.")
@_VERSION
@_TOKENIZER
@click.option("--ids", is_flag=True, help="The output is token ids, apart by blanks or commas.")
@click.option("--thinking/--no-thinking", default=None, help="Without a request: whether the output begins in thought.")
@click.option("--stop", multiple=True, metavar="TEXT", help="Without a request: a text that ends the output.")
@click.option("--stream", is_flag=True, help="Print the events, framed for a stream, as the output comes in.")
@click.option("--finish-reason", default="stop", metavar="WORD", help="stop, length or content_filter.")
def parse_command(
    file: IO[bytes],
    request_file: IO[bytes] | None,
    request_protocol: str | None,
    protocol: str | None,
    version: str | None,
    tokenizer: str | None,
    ids: bool,
    thinking: bool | None,
    stop: tuple[str, ...],
    stream: bool,
    finish_reason: str,
) -> None:
    """Show the response of a protocol that the model's output in FILE, or on standard input, makes.

    With a request, the output is parsed as it asks for and answered in its protocol. Without one, tool calls are
    parsed, and thinking is on unless --no-thinking is given.
    """
    from ..recipe import workbench

    if request_file is not None and (thinking is not None or stop):
        raise click.UsageError("--thinking and --stop describe an output without a request; here --request says it")
    loaded = _load_tokenizer(tokenizer, needed=ids)
    if request_file is not None:
        rendered = _render(request_file.read(), request_protocol, version)
    else:
        rendered = workbench.plain_request(version, thinking=thinking is not False, tools=True, stop=stop)
    answer = workbench.Answer(rendered, protocol or rendered.protocol, loaded)
    last = workbench.finish_chunk(finish_reason)
    chunks: Iterable[InferenceChunk] = _id_chunks(file) if ids else _text_chunks(file)
    for chunk in chunks:
        _show_events(answer.push(chunk), stream)
    _show_events(answer.push(last), stream)
    _show_events(answer.finish(), stream)
    if not stream:
        click.echo(json.dumps(json.loads(answer.response()), ensure_ascii=False, indent=2))
    elif answer.sse_done is not None:
        click.echo(f"data: {answer.sse_done}\n")


@command.command("web", short_help="Serve a local page to try requests and outputs.")
@_TOKENIZER
@click.option("--port", default=0, show_default="a free one", help="Port on the loopback interface.")
def web_command(tokenizer: str | None, port: int) -> None:
    """Serve a page on this machine: edit a request and see its prompt; stream an output and see each response."""
    from ..recipe.web.server import PageServer

    if not 0 <= port < 65536:
        raise click.UsageError(f"--port is {port}; allowed are 0 (a free one) to 65535")
    with PageServer(port, _load_tokenizer(tokenizer, needed=False)) as server:
        click.echo(f"{server.url}\nEnd with Ctrl-C.")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo()


def _render(body: bytes, protocol: str | None, version: str | None) -> Rendered:
    from ..recipe import workbench

    return workbench.render(body, protocol, version)


def _load_tokenizer(path: str | None, *, needed: bool) -> Tokenizer | None:
    if path is None:
        if needed:
            raise click.UsageError("token ids need --tokenizer")
        return None
    from ..recipe.tokenizer import Tokenizer

    place = Path(path)
    return Tokenizer.from_file(place / "tokenizer.json" if place.is_dir() else place)


def _is_coloured(choice: str) -> bool:
    if choice == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return choice == "always"


def _highlighted(text: str) -> str:
    return click.style(text, fg="black", bg="cyan")


def _show_events(events: Iterable[tuple[str | None, str]], stream: bool) -> None:
    if not stream:
        return
    from ..recipe.stream.sse import message

    for name, data in events:
        click.echo((f"event: {name}\n" if name else "") + message(data), nl=False)
    sys.stdout.flush()


def _text_chunks(file: IO[bytes]) -> Iterator[InferenceChunk]:
    """The text as it comes, characters kept whole."""
    from ..recipe.stream.chunks import TextChunk

    decoder = codecs.getincrementaldecoder("utf-8")()
    read = getattr(file, "read1", file.read)
    try:
        while data := read(1 << 16):
            if text := decoder.decode(data):
                yield TextChunk(text)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise UserError(f"the output is not UTF-8: {error}") from error


def _id_chunks(file: IO[bytes]) -> Iterator[InferenceChunk]:
    """The ids of each line as it comes."""
    from ..recipe.stream.chunks import TokensChunk

    for line in file:
        words = line.decode("ascii", "replace").translate(str.maketrans("[],", "   ")).split()
        for word in words:
            if not word.isdigit() or len(word) > 20 or int(word) >= 1 << 32:
                raise UserError(f"{word[:40]!r} is no token id; ids are whole numbers from 0 to 4294967295")
        if words:
            yield TokensChunk([int(word) for word in words])
