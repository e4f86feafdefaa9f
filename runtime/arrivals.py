"""Requests that have come and whose images have not: they are in no queue, and hold nobody up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .image_workers import EncodedImage, ImageJob, ImageWorkers
from .request import Request


@dataclass(eq=False)
class _Arrival:
    job: ImageJob
    samples: list[Request]


class Arrivals:
    """See the module. With None for workers there are none."""

    def __init__(self, workers: ImageWorkers | None) -> None:
        self.workers = workers
        self._arrivals: dict[ImageJob, _Arrival] = {}

    def __iter__(self) -> Iterator[Request]:
        for arrival in self._arrivals.values():
            yield from arrival.samples

    def __bool__(self) -> bool:
        return bool(self._arrivals)

    def expect(self, samples: Sequence[Request], encoded: Sequence[EncodedImage]) -> None:
        """Has the images of a request decoded. Raises QueueFullError, ImageWorkerError."""
        assert self.workers is not None
        job = self.workers.submit(encoded)
        self._arrivals[job] = _Arrival(job, list(samples))

    def take(self) -> list[tuple[list[Request], Exception | None]]:
        """Requests whose images are there from now on, and those whose images failed, with the reason.

        The latter stay here until they are dropped.
        """
        found = []
        # Asked though nobody is here: what is left there of those who were aborted would end every wait at once.
        for job in [] if self.workers is None else self.workers.take():
            arrival = self._arrivals.get(job)
            if arrival is None:  # aborted meanwhile
                continue
            if job.images is not None:
                del self._arrivals[job]
                for place, image in zip(arrival.samples[0].images, job.images, strict=True):
                    place.image = image
            found.append((list(arrival.samples), None if job.images is not None else job.error))
        return found

    def drop(self, request: Request) -> bool:
        """A sample has ended. Whether it was here."""
        for job, arrival in self._arrivals.items():
            if request in arrival.samples:
                arrival.samples.remove(request)
                if not arrival.samples:
                    job.cancelled = True
                    del self._arrivals[job]
                return True
        return False

    def wait(self, seconds: float) -> None:
        """Waits until images are there or `wake` is called, but no longer than that; not at all if nobody is here."""
        if self.workers is not None and self._arrivals:
            self.workers.wait(seconds)

    def wake(self) -> None:
        """Ends a `wait`, or the next one where there is none. From any thread."""
        if self.workers is not None:
            self.workers.wake()
