"""Requests that have come and whose images or grammars have not: they are in no queue, and hold nobody up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .image_workers import EncodedImage, ImageJob, ImageWorkers
from .request import Request

if TYPE_CHECKING:
    from .structured.service import Compile, GrammarService


@dataclass(eq=False)
class _Arrival:
    """What a request waits for: `job` are its images, `grammar` what its output has to be. None is there."""

    samples: list[Request]
    job: ImageJob | None = None
    grammar: Compile | None = None

    @property
    def waits(self) -> bool:
        return self.job is not None or self.grammar is not None


class Arrivals:
    """See the module. With None for workers there are no images.

    Attributes:
        grammars: compiles what outputs have to be; None where no request asks for that.
    """

    def __init__(self, workers: ImageWorkers | None, grammars: GrammarService | None = None) -> None:
        self.workers = workers
        self.grammars = grammars
        self._arrivals: list[_Arrival] = []
        self._ended: list[tuple[_Arrival, Exception | None]] = []

    def __iter__(self) -> Iterator[Request]:
        for arrival in self._arrivals:
            yield from arrival.samples

    def __bool__(self) -> bool:
        return bool(self._arrivals)

    def expect(self, samples: Sequence[Request], encoded: Sequence[EncodedImage]) -> None:
        """Has the images of a request decoded, and its grammar compiled.

        Raises:
            QueueFullError: too many wait for that.
            ImageWorkerError, GrammarWorkerError: the workers are closed.
        """
        arrival = _Arrival(list(samples))
        structure = samples[0].params.structure
        if structure is not None:
            assert self.grammars is not None
            arrival.grammar = self.grammars.ask(structure)
        if encoded:
            assert self.workers is not None
            try:
                arrival.job = self.workers.submit(encoded)
            except Exception:
                self._give_up(arrival)
                raise
            if self.grammars is not None:  # who waits for both waits for grammars
                self.workers.heard = self.grammars.wake
        self._arrivals.append(arrival)
        if arrival.grammar is not None and arrival.grammar.ended:  # it was there
            self._compiled(arrival)

    def take(self) -> list[tuple[list[Request], Exception | None]]:
        """Requests that lack nothing from now on, and those whose images or grammars failed, with the reason.

        The latter stay here until they are dropped.
        """
        # Asked though nobody is here: what is left there of those who were aborted would end every wait at once.
        for job in [] if self.workers is None else self.workers.take():
            for arrival in [one for one in self._arrivals if one.job is job]:
                self._decoded(arrival, job)
        for grammar in [] if self.grammars is None else self.grammars.take():
            for arrival in [one for one in self._arrivals if one.grammar is grammar]:
                self._compiled(arrival)
        ended, self._ended = self._ended, []
        for arrival, error in ended:
            if error is None and arrival in self._arrivals:
                self._arrivals.remove(arrival)
        return [(list(arrival.samples), error) for arrival, error in ended if arrival.samples]

    def _decoded(self, arrival: _Arrival, job: ImageJob) -> None:
        arrival.job = None
        if job.images is None:
            self._failed(arrival, job.error)
            return
        for place, image in zip(arrival.samples[0].images, job.images, strict=True):
            place.image = image
        self._end(arrival)

    def _compiled(self, arrival: _Arrival) -> None:
        from .structured.constraint import Constraint

        grammar, arrival.grammar = arrival.grammar, None
        assert grammar is not None and self.grammars is not None
        error = grammar.error
        try:
            if error is None:
                for request in arrival.samples:
                    # Of its own: who asked first for the grammar may have had another trigger.
                    assert request.params.structure is not None
                    request.constraint = Constraint(
                        request.params.structure,
                        grammar.compiled,
                        len(self.grammars.vocabulary.pieces),
                        request.eos_id,
                        request.params.ignore_eos,
                    )
        except Exception as raised:
            error = raised
        if error is not None:
            self._failed(arrival, error)
            return
        self._end(arrival)

    def _failed(self, arrival: _Arrival, error: Exception | None) -> None:
        """One of what it waits for will not come, so that the other one is of no use: a request ends once."""
        self._give_up(arrival)
        self._ended.append((arrival, error))

    def _end(self, arrival: _Arrival) -> None:
        if not arrival.waits:
            self._ended.append((arrival, None))

    def drop(self, request: Request) -> bool:
        """A sample has ended. Whether it was here."""
        for arrival in self._arrivals:
            if request in arrival.samples:
                arrival.samples.remove(request)
                if not arrival.samples:
                    self._arrivals.remove(arrival)
                    self._give_up(arrival)
                return True
        return False

    def _give_up(self, arrival: _Arrival) -> None:
        """It waits for its images no more, nor for its grammar, which is given up unless others want the same."""
        job, arrival.job = arrival.job, None
        if job is not None:
            job.cancelled = True
        grammar, arrival.grammar = arrival.grammar, None
        if grammar is not None and not any(one.grammar is grammar for one in self._arrivals):
            assert self.grammars is not None
            self.grammars.give_up(grammar)

    def wait(self, seconds: float) -> None:
        """Waits until something has come or `wake` is called, but no longer than that; not at all if nobody is here."""
        if not self._arrivals or self._ended:
            return
        if self.grammars is not None and (self.workers is None or any(one.grammar for one in self._arrivals)):
            self.grammars.wait(seconds)
        elif self.workers is not None:
            self.workers.wait(seconds)

    def wake(self) -> None:
        """Ends a `wait`, or the next one where there is none. From any thread."""
        for one in (self.workers, self.grammars):
            if one is not None:
                one.wake()
