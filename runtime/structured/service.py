"""Compiling grammars beside the engine: in a process that may be killed, once for equal ones."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

from ...hal.errors import DeepInferError
from ..host import cpus
from ..workers import MOST_WORDS, Words, WorkerPool, WorkerSettings
from .args import Structure
from .vocabulary import View, Vocabulary, check_installed, load_xgrammar
from .worker import serve

__all__ = ["Compile", "GrammarError", "GrammarService", "GrammarWorkerError", "serve"]

MOST_BYTES = 256 << 20
"""Of a compiled grammar, as text."""


class GrammarError(DeepInferError):
    """A grammar that the compiler refuses."""


class GrammarWorkerError(DeepInferError):
    """A grammar could not be compiled: the worker died, took too long or ran out of memory. It may be tried again."""


@dataclass(eq=False)
class Compile:
    """A grammar that is being compiled, for everybody who wants it.

    Attributes:
        structure: what it is made of.
        compiled: an `xgrammar.CompiledGrammar`; None until it is done, and where it failed.
        error: why it failed.
        cancelled: nobody waits for it any more.
    """

    structure: Structure
    compiled: Any = None
    error: Exception | None = None
    cancelled: bool = False

    @property
    def ended(self) -> bool:
        return self.compiled is not None or self.error is not None


@dataclass
class _Kept:
    """Compiled grammars by name, the last used last, and errors of those that do not compile."""

    limit: int
    grammars: OrderedDict[bytes, tuple[Compile, int]] = field(default_factory=OrderedDict)
    size: int = 0

    def add(self, done: Compile, size: int) -> None:
        key = done.structure.key
        if key in self.grammars or size > self.limit:
            return
        self.grammars[key] = done, size
        self.size += size
        while self.size > self.limit:
            _, (_, freed) = self.grammars.popitem(last=False)
            self.size -= freed

    def find(self, key: bytes) -> Compile | None:
        if key not in self.grammars:
            return None
        self.grammars.move_to_end(key)
        return self.grammars[key][0]


class GrammarService(WorkerPool[Compile]):
    """See `WorkerPool`, whose one worker compiles grammars.

    A grammar that is kept costs nothing to ask for; one that is on its way is compiled once, whoever asks.

    Args:
        vocabulary: of the model.
        settings: of the worker; `seconds` is what a grammar may take.
        threads: with which it compiles.
        cache_bytes: of compiled grammars that are kept; 0 keeps none.
    """

    words = Words("grammar worker", "grammars", "compile", "compiled")
    failure = GrammarWorkerError
    harmless = GrammarError

    def __init__(
        self,
        vocabulary: Vocabulary,
        settings: WorkerSettings | None = None,
        threads: int = 4,
        cache_bytes: int = 10 << 30,
    ) -> None:
        super().__init__(WorkerSettings(seconds=20.0, start_seconds=120.0) if settings is None else settings)
        self.vocabulary = vocabulary
        self._threads = threads
        self._infos: dict[View, Any] = {}
        self._kept = _Kept(cache_bytes)
        self._running: dict[bytes, Compile] = {}

    @classmethod
    def from_environment(cls, vocabulary: Vocabulary) -> GrammarService:
        """With the settings of the environment."""
        from ...hal import env

        cache = 0 if env.get("DEEPINFER_XGRAMMAR_DISABLE_CACHE") else env.get("DEEPINFER_XGRAMMAR_CACHE_LIMIT_BYTES")
        settings = WorkerSettings(seconds=env.get("DEEPINFER_XGRAMMAR_TIMEOUT"), start_seconds=120.0)
        threads = min(env.get("DEEPINFER_SO_BUILDER_CPUS"), len(cpus().allowed))
        return cls(vocabulary, settings, threads, cache)

    def ask(self, structure: Structure) -> Compile:
        """A grammar: at once where it is kept, else it comes with `take` when it has been compiled.

        Raises:
            NotSupportedError: the library for grammars is not installed.
            QueueFullError: too many wait already.
        """
        check_installed()
        key = structure.key
        with self._something:
            found = self._kept.find(key)
            if found is None:
                found = self._running.get(key)
                if found is not None and (found.cancelled or found.error is not None):
                    found = None
            if found is not None:
                return found
        made = self.put(Compile(replace(structure, source="")))  # which a grammar that is kept has no use for
        with self._something:
            if not made.ended:
                self._running[key] = made
        return made

    def _hello(self) -> Any:
        self._info(View())  # which loads the library, for seconds that are no grammar's
        return self.vocabulary, self._threads

    def _info(self, view: View) -> Any:
        if view not in self._infos:
            if len(self._infos) > 8:
                self._infos.clear()
            self._infos[view] = self.vocabulary.info(view)
        return self._infos[view]

    def _ask(self, pipe: Connection, job: Compile) -> None:
        pipe.send_bytes(pickle.dumps(job.structure))
        answer = json.loads(pipe.recv_bytes(MOST_WORDS))
        kind, said = answer if isinstance(answer, list) and len(answer) == 2 else ("", "")
        if kind == "error":
            raise GrammarError(f"so_args['schema'] does not compile: {said}")
        if kind == "memory":  # the worker's fault as much as the grammar's, which may be asked for again
            raise GrammarWorkerError(f"so_args['schema'] could not be compiled: {said}")
        if kind != "grammar" or type(said) is not int or not 0 < said <= MOST_BYTES:
            raise GrammarWorkerError(f"a worker answered with something else, or more than {MOST_BYTES} bytes")
        text = pipe.recv_bytes(said).decode("utf-8", "surrogateescape")
        info = self._info(self.vocabulary.view(job.structure))
        job.compiled = load_xgrammar().CompiledGrammar.deserialize_json(text, info)

    def _deliver(self, job: Compile, succeeded: bool) -> None:
        with self._something:
            if self._running.get(job.structure.key) is job:
                del self._running[job.structure.key]
            if succeeded:
                self._kept.add(job, job.compiled.memory_size_bytes)
            else:
                job.compiled = None  # it came too late
            if isinstance(job.error, GrammarError):  # it would say so again
                self._kept.add(job, len(job.structure.text) + 1000)
        super()._deliver(job, succeeded)
