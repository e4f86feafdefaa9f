"""Grammars without the process that compiles them, and random outputs under a mask."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np

from deepinfer.runtime.structured.args import Structure, parse_so_args
from deepinfer.runtime.structured.constraint import Constraint
from deepinfer.runtime.structured.service import Compile, GrammarError
from deepinfer.runtime.structured.vocabulary import Vocabulary, load_xgrammar
from deepinfer.runtime.structured.worker import compiler

EOS = 1
CONTROL = {0: "<begin>", 2: "</think>"}
_OVERLONG = {b"\xe0", b"\xed", b"\xf0", b"\xf4"}
"""Bytes behind which not every continuation is UTF-8; the compiler lets all of them through."""
_WORDS = ["true", "false", "null", '":', '", "', '{"', '"}', "name", "ab", "12", "00", "  ", "é", "日本", "😀", "-1"]


def small_vocabulary() -> Vocabulary:
    """Every byte, some words, a few control tokens, and ids that mean nothing."""
    pieces = [b""] * 3 + [bytes([one]) for one in range(256)] + [word.encode() for word in _WORDS]
    return Vocabulary(tuple(pieces + [b""] * 5), CONTROL, EOS)


class Compiler:
    """In the place of a `GrammarService`: compiles when it is asked."""

    def __init__(self, vocabulary: Vocabulary | None = None) -> None:
        self.vocabulary = small_vocabulary() if vocabulary is None else vocabulary
        self._compile = compiler(self.vocabulary, 1)
        self.asked = 0

    def ask(self, structure: Structure) -> Compile:
        self.asked += 1
        made = Compile(structure)
        try:
            text = self._compile(structure).decode("utf-8", "surrogateescape")
        except Exception as error:
            made.error = GrammarError(str(error))
            return made
        info = self.vocabulary.info(self.vocabulary.view(structure))
        made.compiled = load_xgrammar().CompiledGrammar.deserialize_json(text, info)
        return made

    def take(self) -> list[Compile]:
        return []

    def wait(self, seconds: float) -> bool:
        return False

    def give_up(self, job: Compile) -> None:
        job.cancelled = True

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass

    def constraint(self, ignore_eos: bool = False, **so_args: Any) -> Constraint:
        made = self.ask(parse_so_args(so_args))
        if made.error is not None:
            raise made.error
        return Constraint(made.structure, made.compiled, len(self.vocabulary.pieces), EOS, ignore_eos)

    def of_schema(self, schema: Any, **more: Any) -> Constraint:
        return self.constraint(schema_type="json", schema=json.dumps(schema), **more)

    def text(self, tokens: list[int]) -> str:
        return b"".join(self.vocabulary.pieces[token] for token in tokens).decode()


def allowed(row: np.ndarray[Any, Any]) -> list[int]:
    """Tokens of a row of a mask."""
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()  # type: ignore[no-any-return]


def walk(constraint: Constraint, compiler: Compiler, rng: random.Random, limit: int = 400) -> list[int] | None:
    """A random output without its end; None where it did not end in time. Once it is long, what closes is preferred."""
    said: list[int] = []
    while len(said) < limit:
        (row,) = constraint.masks(said)
        assert constraint.error is None
        tokens = allowed(row)
        if EOS in tokens and (len(tokens) == 1 or len(said) > 30 or rng.random() < 0.2):
            return said
        tokens = [token for token in tokens if token != EOS and compiler.vocabulary.pieces[token] not in _OVERLONG]
        closing = [token for token in tokens if compiler.vocabulary.pieces[token] in (b'"', b"}", b"]", b'"}')]
        if len(said) > 30 and closing and rng.random() < 0.7:  # in a string, a bracket closes nothing
            tokens = closing
        elif len(said) > 60:
            plain = [t for t in tokens if compiler.vocabulary.pieces[t].strip() and t < 131] or tokens
            tokens = [t for t in plain if compiler.vocabulary.pieces[t] not in (b",", b"\\", b"[", b"{")] or plain
        said.append(rng.choice(tokens))
    return None
