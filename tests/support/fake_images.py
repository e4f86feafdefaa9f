"""Images without Pillow or processes: a reader whose placeholder takes three tokens, and workers told what to do."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepinfer.hal.errors import InvalidArgumentError
from deepinfer.runtime.image_workers import EncodedImage, ImageJob, QueueFullError
from deepinfer.runtime.images import FittedImages, PromptImage

PLACEHOLDER = 91
TOKENS = 3


@dataclass(frozen=True)
class Plan:
    tokens: int = TOKENS


@dataclass(frozen=True)
class Pixels:
    """A decoded image."""

    digest: bytes
    plan: Plan = Plan()
    pixels: Any = None


class FakeWorkers:
    """Jobs end when a test says so."""

    def __init__(self) -> None:
        self.jobs: list[ImageJob] = []
        self.ready: deque[ImageJob] = deque()
        self.full = False
        self.wakes = 0

    def submit(self, encoded: Sequence[EncodedImage]) -> ImageJob:
        self.check_room()
        self.jobs.append(ImageJob(tuple(encoded)))
        return self.jobs[-1]

    def check_room(self) -> None:
        if self.full:
            raise QueueFullError("full")

    def end(self, job: ImageJob, error: Exception | None = None) -> None:
        self.jobs.remove(job)
        job.error = error
        if error is None:
            job.images = tuple(decoded(one) for one in job.encoded)
        self.ready.append(job)

    def take(self) -> list[ImageJob]:
        found = list(self.ready)
        self.ready.clear()
        return found

    def wait(self, seconds: float) -> bool:
        return bool(self.ready)

    def wake(self) -> None:
        self.wakes += 1

    def close(self) -> None:
        pass


class FakeReader:
    """Stands in for `ImageReader`."""

    def __init__(self, workers: FakeWorkers | None = None) -> None:
        self.workers = workers

    def placeholders(self, ids: Any) -> int:
        return int((ids == PLACEHOLDER).sum())

    def mismatch(self, images: int, placeholders: int) -> InvalidArgumentError:
        return InvalidArgumentError("multi_modal_data", images, f"{placeholders} images")

    def look(self, data: Any, placeholders: int) -> FittedImages:
        files = [] if data is None else data["image_bytes"]
        if len(files) != placeholders:
            raise self.mismatch(len(files), placeholders)
        return FittedImages(tuple(EncodedImage("image", one, Plan()) for one in files))  # type: ignore[arg-type]

    def read(self, data: Any, placeholders: int) -> FittedImages:
        return self.decode(self.look(data, placeholders))

    def decode(self, images: FittedImages) -> FittedImages:
        return FittedImages(tuple(decoded(one) for one in images.encoded))

    def expand(self, ids: Any, images: FittedImages) -> tuple[Any, list[PromptImage]]:
        tokens: list[int] = []
        places = []
        left = deque(images.images)
        for one in ids.tolist():
            if one == PLACEHOLDER:
                image = left.popleft()
                places.append(PromptImage(len(tokens), image))
                tokens += [PLACEHOLDER] * TOKENS
            else:
                tokens.append(one)
        return np.array(tokens, np.int32), places


def decoded(one: EncodedImage) -> Any:
    return Pixels(one.data)
