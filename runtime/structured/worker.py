"""The process that compiles grammars. It may hang, die or want more memory than there is: see `service.py`."""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
import types
from collections.abc import Callable
from typing import Any

from ..workers import MOST_WORDS, bound_memory, greet
from .args import Structure
from .vocabulary import View, Vocabulary

_NO_MEMORY = ("bad_alloc", "Cannot allocate memory", "Resource temporarily unavailable")
"""How the library says so: the last of a thread that finds no room for its stack."""


def serve(descriptor: int) -> None:
    """A worker: compiles what comes until nobody is there any more.

    It answers with JSON, ["grammar", bytes] and then a grammar as `xgrammar` serializes it, or ["error", text]. Where
    its memory did not do, it answers ["memory", text] and ends: what that has left behind may be missing for the next.
    """
    pipe, (vocabulary, threads), memory = greet(descriptor, bound=False)
    # The library imports this one for the tokenizers in it, which nobody here uses: seconds, and memory.
    sys.modules.setdefault("transformers", _Nothing("transformers"))
    compile = compiler(vocabulary, threads)
    if memory is not None:  # beside what the libraries map, which with accelerators is a lot
        bound_memory(memory + _mapped())
    pipe.send_bytes(b"ready")
    while True:
        try:
            structure = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        found, kind, error = b"", "error", ""
        try:
            found, error = _listen(lambda structure=structure: compile(structure))  # type: ignore[misc]
        except Exception as raised:
            if isinstance(raised, MemoryError) or any(words in str(raised) for words in _NO_MEMORY):
                kind, error = "memory", _too_much(memory)
            else:
                error = _plain(str(raised))
        pipe.send_bytes(json.dumps([kind, error[: MOST_WORDS // 8]] if error else ["grammar", len(found)]).encode())
        if kind == "memory":
            return
        if not error:
            pipe.send_bytes(found)


def _too_much(memory: int | None) -> str:
    return f"it takes more memory to compile than a worker has, {memory} bytes"


def compiler(vocabulary: Vocabulary, threads: int) -> Callable[[Structure], bytes]:
    """What compiles, in this process: a structure to a grammar as `xgrammar` serializes it."""
    compilers: dict[View, Any] = {}

    def made_for(view: View) -> Any:
        if view not in compilers:
            import xgrammar

            if len(compilers) > 8:
                compilers.clear()
            compilers[view] = xgrammar.GrammarCompiler(vocabulary.info(view), max_threads=threads, cache_enabled=False)
        return compilers[view]

    def compile(structure: Structure) -> bytes:
        made = made_for(vocabulary.view(structure))
        if structure.kind == "json":
            some = structure.whitespace > 0
            found = made.compile_json_schema(
                structure.text,
                any_whitespace=some,
                max_whitespace_cnt=structure.whitespace if some else None,
                separators=None if some else (",", ":"),
                strict_mode=True,
            )
        elif structure.kind == "regex":
            found = made.compile_regex(structure.text)
        elif structure.kind == "ebnf":
            found = made.compile_grammar(structure.text)
        else:
            found = made.compile_structural_tag(structure.text)
        return found.serialize_json().encode("utf-8", "surrogateescape")  # type: ignore[no-any-return]

    made_for(View())
    return compile


class _Nothing(types.ModuleType):
    """A module whose every name is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _listen(work: Callable[[], bytes]) -> tuple[bytes, str]:
    """What `work` gives, and what was said meanwhile: the library warns of what it leaves out of a grammar, and a
    grammar without that is not what was asked for.
    """
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile() as said:
            os.dup2(said.fileno(), 2)
            try:
                found = work()
            finally:
                os.dup2(kept, 2)
            said.seek(0)
            warnings = [
                line for line in said.read(MOST_WORDS).decode("utf-8", "replace").splitlines() if "Warning" in line
            ]
    finally:
        os.close(kept)
    return found, _plain(warnings[0]) if warnings else ""


def _plain(text: str) -> str:
    """The words of an error, without the place in the library that it comes from."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    last = lines[-1] if lines else "the compiler gave no reason"
    return last.split("Warning: ")[-1].split(".cc:")[-1].split(": ", 1)[-1] if ".cc:" in last else last


def _mapped() -> int:
    """Bytes of address space in use."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
