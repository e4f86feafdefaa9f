"""Decoding images in processes of their own, so that neither a slow nor a harmful file holds up or breaks an engine.

The processes are those of `workers.py`. They load no torch.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ..hal.errors import DeepInferError, ImageError, short
from ..model.vision.decode import FittedImage, ImageLimits, decode_image, fit_image
from ..model.vision.resize import ResizePlan
from .workers import MOST_WORDS, QueueFullError, Words, WorkerPool, WorkerSettings, greet

__all__ = ["EncodedImage", "ImageJob", "ImageWorkerError", "ImageWorkers", "QueueFullError", "WorkerSettings", "serve"]


class ImageWorkerError(DeepInferError):
    """Images could not be decoded: their worker died or took too long."""


@dataclass(frozen=True)
class EncodedImage:
    """One image as it came. `name`: what errors call it. `plan`: what it is brought to, by its header."""

    name: str
    data: bytes
    plan: ResizePlan


@dataclass(eq=False)
class ImageJob:
    """The images of one request.

    Attributes:
        images: decoded; None until it is done, and where it failed.
        error: why it failed.
        cancelled: nobody waits for it any more; a worker that has not begun with it does not.
    """

    encoded: Sequence[EncodedImage]
    images: tuple[FittedImage, ...] | None = None
    error: Exception | None = None
    cancelled: bool = False
    payload: bytes = field(default=b"", repr=False)


class ImageWorkers(WorkerPool[ImageJob]):
    """The processes, and the images that they have; see `WorkerPool`.

    Args:
        limits: of one image. settings: see there.
    """

    words = Words("image worker", "images", "decode", "decoded")
    failure = ImageWorkerError
    harmless = ImageError

    def __init__(self, limits: ImageLimits, settings: WorkerSettings | None = None) -> None:
        super().__init__(WorkerSettings() if settings is None else settings)
        self._limits = limits

    def submit(self, encoded: Sequence[EncodedImage]) -> ImageJob:
        """Queues the images of a request.

        Raises:
            QueueFullError: too many wait already.
        """
        return self.put(ImageJob(tuple(encoded)))

    def _hello(self) -> Any:
        return self._limits

    def _ask(self, pipe: Connection, job: ImageJob) -> None:
        pipe.send_bytes(pickle.dumps(tuple(job.encoded)))
        job.images = _receive(pipe, job.encoded)


def _receive(pipe: Connection, encoded: Sequence[EncodedImage]) -> tuple[FittedImage, ...]:
    """What a worker answers. It has read files that may have taken it over, so nothing of it is believed: the answer
    is numbers and pixels, and they have to fit what was asked.

    Raises:
        ImageError: of the worker.
        ImageWorkerError: it answered something else.
        EOFError, OSError: it died.
    """
    unusable = ImageWorkerError("a worker that decodes images answered with something else")
    try:
        header = json.loads(pipe.recv_bytes(MOST_WORDS + 64 * len(encoded)))
    except (ValueError, RecursionError):
        raise unusable from None
    if not isinstance(header, list) or not header:
        raise unusable
    kind, *rest = header
    if kind == "error" and len(rest) == 3 and all(isinstance(one, str) for one in rest):
        raise ImageError(*rest)
    if kind != "images" or len(rest) != len(encoded):
        raise unusable
    for place, one in zip(rest, encoded, strict=True):
        if not isinstance(place, list) or len(place) != 4 or not all(type(number) is int for number in place):
            raise unusable
        left, top, width, height = place
        if min(left, top) < 0 or min(width, height) < 1:
            raise unusable
        if left + width > one.plan.width or top + height > one.plan.height:
            raise unusable
    found = []
    for (left, top, width, height), one in zip(rest, encoded, strict=True):
        data = pipe.recv_bytes(3 * width * height)
        if len(data) != 3 * width * height:
            raise unusable
        pixels = np.frombuffer(data, np.uint8).reshape(height, width, 3).copy()  # a copy can be written to
        found.append(FittedImage(pixels, left, top, one.plan))
    return tuple(found)


def serve(descriptor: int) -> None:
    """A worker: decodes what comes until nobody is there any more.

    It answers with JSON, ["images", [left, top, width, height], ...] and then the pixels of each, or
    ["error", parameter, got, allowed].
    """
    pipe, limits, memory = greet(descriptor)
    pipe.send_bytes(b"ready")
    while True:
        try:
            encoded = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        images: list[FittedImage] = []
        header: list[Any]
        try:
            images = [fit_image(decode_image(one.data, limits, name=one.name), one.plan) for one in encoded]
            header = ["images", *([one.left, one.top, *one.pixels.shape[1::-1]] for one in images)]
        except ImageError as error:
            got = error.got if isinstance(error.got, str) else short(error.got)
            header = ["error", error.parameter, got[:2000], error.allowed]
        except MemoryError:
            header = ["error", "images", "more than the memory of a worker", f"at most {memory} bytes in all"]
        pipe.send_bytes(json.dumps(header).encode())
        for one in images:
            pipe.send_bytes(np.ascontiguousarray(one.pixels).reshape(-1).data)
