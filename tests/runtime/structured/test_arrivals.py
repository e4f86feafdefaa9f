"""Requests that wait for a grammar, some for images too: each is held to what it asked for, and ends once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from deepinfer.runtime.arrivals import Arrivals
from deepinfer.runtime.image_workers import EncodedImage, ImageJob, QueueFullError
from deepinfer.runtime.structured.args import Structure
from deepinfer.runtime.structured.service import Compile, GrammarError, GrammarWorkerError
from grammars import EOS, Compiler


class Grammars:
    """A `GrammarService` in which grammars end when a test says so."""

    def __init__(self, compiler: Compiler | None = None) -> None:
        self.compiler = compiler
        self.vocabulary = SimpleNamespace(pieces=[b""] * 300)
        self.running: dict[bytes, Compile] = {}
        self.ready: list[Compile] = []

    def ask(self, structure: Structure) -> Compile:
        return self.running.setdefault(structure.key, Compile(structure))

    def end(self, structure: Structure, error: Exception | None = None) -> None:
        job = self.running[structure.key]
        job.error = error
        if error is None:
            assert self.compiler is not None
            job.compiled = self.compiler.ask(structure).compiled
        self.ready.append(job)

    def take(self) -> list[Compile]:
        ready, self.ready = self.ready, []
        return ready

    def give_up(self, job: Compile) -> None:
        job.cancelled = True

    def wake(self) -> None:
        pass


class Images:
    """`ImageWorkers` in which images end when a test says so."""

    def __init__(self) -> None:
        self.jobs: list[ImageJob] = []
        self.ready: list[ImageJob] = []
        self.full = False

    def submit(self, encoded: Any) -> ImageJob:
        if self.full:
            raise QueueFullError("full")
        self.jobs.append(ImageJob(encoded))
        return self.jobs[-1]

    def take(self) -> list[ImageJob]:
        ready, self.ready = self.ready, []
        return ready

    def fail(self) -> None:
        self.jobs[0].error = ValueError("truncated")
        self.ready.append(self.jobs[0])


def request(structure: Structure) -> Any:
    params = SimpleNamespace(structure=structure, ignore_eos=False)
    return SimpleNamespace(params=params, images=[], eos_id=EOS, constraint=None)


@pytest.mark.parametrize("kept", [False, True])
def test_each_has_its_own_trigger(compiler: Compiler, kept: bool) -> None:
    """One grammar for both; compiled with the first, there or on its way when the second comes."""
    grammars = Grammars(compiler)
    arrivals = Arrivals(None, grammars)  # type: ignore[arg-type]
    late, at_once = request(Structure("regex", "ab", (2,))), request(Structure("regex", "ab"))
    arrivals.expect([late], [])
    if kept:
        grammars.end(late.params.structure)
        arrivals.take()
    arrivals.expect([at_once], [])
    if not kept:
        grammars.end(late.params.structure)
    arrivals.take()
    assert late.constraint.structure.trigger == (2,) and at_once.constraint.structure.trigger == ()
    assert not late.constraint.forced([], 1) and at_once.constraint.forced([], 1)


IMAGE = [EncodedImage("image", b"", None)]  # type: ignore[arg-type]
ERRORS = (GrammarError("no"), GrammarWorkerError("died"))


@pytest.mark.parametrize("order", ["images, grammar", "grammar, images", "grammar at once, images"])
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("error", ERRORS, ids=["refused", "died"])
def test_a_request_whose_parts_both_fail_ends_once(order: str, samples: int, error: Exception) -> None:
    grammars, images = Grammars(), Images()
    arrivals = Arrivals(images, grammars)  # type: ignore[arg-type]
    structure = Structure("regex", "ab")
    if order == "grammar at once, images":
        grammars.ask(structure).error = error
    made = [request(structure) for _ in range(samples)]
    arrivals.expect(made, IMAGE)
    for part in order.split(", "):
        if part == "images":
            images.fail()
        elif part == "grammar":
            grammars.end(structure, error)
    ended = arrivals.take()
    assert len(ended) == 1 and ended[0][0] == made and ended[0][1] is not None
    assert all(arrivals.drop(one) for one in made) and not arrivals and not arrivals.take()


def test_images_that_fail_give_up_the_grammar_unless_others_want_it(compiler: Compiler) -> None:
    grammars, images = Grammars(compiler), Images()
    arrivals = Arrivals(images, grammars)  # type: ignore[arg-type]
    structure = Structure("regex", "ab")
    failing, other = request(structure), request(structure)
    arrivals.expect([failing], IMAGE)
    arrivals.expect([other], [])
    images.fail()
    (ended,) = arrivals.take()
    assert ended[0] == [failing] and arrivals.drop(failing) and not grammars.running[structure.key].cancelled
    grammars.end(structure)
    assert arrivals.take() == [([other], None)] and other.constraint is not None and failing.constraint is None


def test_a_good_grammar_behind_images_that_failed_begins_nothing(compiler: Compiler) -> None:
    grammars, images = Grammars(compiler), Images()
    arrivals = Arrivals(images, grammars)  # type: ignore[arg-type]
    made = request(Structure("regex", "ab"))
    arrivals.expect([made], IMAGE)
    images.fail()
    grammars.end(made.params.structure)
    ((samples, error),) = arrivals.take()
    assert samples == [made] and isinstance(error, ValueError) and arrivals.drop(made)


def test_a_request_whose_images_find_no_room_leaves_no_grammar_behind() -> None:
    """It is refused, so that nobody would give the grammar up."""
    grammars, images = Grammars(), Images()
    images.full = True
    arrivals = Arrivals(images, grammars)  # type: ignore[arg-type]
    alone, shared = Structure("regex", "ab"), Structure("regex", "cd")
    arrivals.expect([request(shared)], [])
    for structure in (alone, shared):
        with pytest.raises(QueueFullError):
            arrivals.expect([request(structure)], IMAGE)
    assert grammars.running[alone.key].cancelled and not grammars.running[shared.key].cancelled
    assert len(list(arrivals)) == 1
