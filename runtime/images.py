"""Images of a prompt: upstream's `multi_modal_data`, read, checked and brought to the size that the model takes.

Everything that can be wrong with an image is found here, before its request is queued. Encoding comes with the steps
that compute its tokens (`execute.ModelExecutor`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..hal.errors import ImageError, InvalidArgumentError, NotSupportedError
from .checks import INT32_MAX, check_int

if TYPE_CHECKING:
    from ..model.config import ModelConfig
    from ..model.vision import FittedImage, ImageLimits
    from .image_workers import EncodedImage, ImageWorkers, WorkerSettings

NAME = "multi_modal_data"
FIELDS = ("image_bytes", "image_sizes")
Ids = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True)
class FittedImages:
    """The images of one prompt, checked, decoded and scaled; what `ImageReader.read` makes of `multi_modal_data`.

    Or, of `ImageReader.look`, with sizes checked and still to be decoded: by workers where the engine has any.
    """

    images: tuple[FittedImage | EncodedImage, ...]

    @property
    def encoded(self) -> tuple[EncodedImage, ...]:
        """Those that are to be decoded."""
        from .image_workers import EncodedImage

        return tuple(image for image in self.images if isinstance(image, EncodedImage))


@dataclass(slots=True, eq=False)
class PromptImage:
    """One image of a request. Its samples share it.

    Attributes:
        start, end: positions of its tokens in the sequence.
        image: what is encoded, a `FittedImage`; before it is decoded, an `EncodedImage`, which has a plan as well.
        embeds: tensor of its embeddings, from the first step that computes a part of it until the last sample has
            computed all of it or has ended.
        waiting: keys of samples that have not computed all of it yet, or have to do so again.
    """

    start: int
    image: Any
    embeds: Any = None
    waiting: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        tokens: int = self.image.plan.tokens
        return self.start + tokens

    def lies_in(self, start: int, end: int) -> bool:
        """Whether rows start .. end-1 compute a part of it."""
        return start < self.end and self.start < end

    def computed(self, key: int, end: int) -> None:
        """Takes note that a sample is computed up to `end`."""
        if end >= self.end:
            self.let_go(key)

    def let_go(self, key: int) -> None:
        """A sample needs its embeddings no more: it has computed them all, or has ended."""
        self.waiting.discard(key)
        if not self.waiting:
            self.embeds = None


class ImageReader:
    """Reads the images of prompts for one model.

    Args:
        config: of the model.
        limits: of one image; None takes `model.vision.LIMITS`.
        spelling: of the placeholder in texts, for messages.
        workers: decode the images of requests as they come; None decodes them while the request is added.
    """

    def __init__(
        self,
        config: ModelConfig,
        limits: ImageLimits | None = None,
        spelling: str = "",
        workers: WorkerSettings | None = None,
    ) -> None:
        from ..model import vision

        self.config = config
        self.spelling = spelling
        self.limits = vision.LIMITS if limits is None else limits
        self.workers: ImageWorkers | None = None
        if workers is not None:
            from .image_workers import ImageWorkers

            self.workers = ImageWorkers(self.limits, workers)

    def close(self) -> None:
        """Ends the workers."""
        if self.workers is not None:
            self.workers.close()

    def read(self, data: Any, placeholders: int) -> FittedImages:
        """Check and decode `multi_modal_data`.

        Args:
            data: see `LLM.generate`. placeholders: image tokens of the prompt.

        Raises:
            InvalidArgumentError: not such a dict, lists of different lengths, another number of images than
                placeholders, or a size that is not the image's.
            ImageError: an image that cannot be used.
            NotSupportedError: Pillow is missing.
        """
        return self.decode(self.look(data, placeholders))  # when all of them look right

    def decode(self, images: FittedImages) -> FittedImages:
        """The same images, those decoded here that are not yet. Raises ImageError, NotSupportedError as `read`."""
        from ..model import vision
        from .image_workers import EncodedImage

        return FittedImages(
            tuple(
                vision.fit_image(vision.decode_image(one.data, self.limits, name=one.name), one.plan)
                if isinstance(one, EncodedImage)
                else one
                for one in images.images
            )
        )

    def look(self, data: Any, placeholders: int) -> FittedImages:
        """Check what can be checked without decoding: everything but whether the pixels are whole.

        Args, Raises:
            As `read`.
        """
        from ..model import vision
        from .image_workers import EncodedImage

        files, sizes = fields_of(data)
        if len(files) != placeholders:
            raise self.mismatch(len(files), placeholders)
        if sizes is not None and len(sizes) != len(files):
            raise InvalidArgumentError(f"{NAME}['image_sizes']", f"{len(sizes)} sizes", f"one per image, {len(files)}")
        plans = []
        for i, file in enumerate(files):
            name = f"{NAME}['image_bytes'][{i}]"
            found = vision.image_size(file, self.limits, name=name)
            if sizes is not None and _size(i, sizes[i]) != found:
                raise ImageError(f"{NAME}['image_sizes'][{i}]", sizes[i], f"the size of the image, {found}")
            plans.append(EncodedImage(name, file, vision.plan_resize(*found, self.config.vision)))
        return FittedImages(tuple(plans))

    def mismatch(self, images: int, placeholders: int) -> InvalidArgumentError:
        """The error of a prompt whose placeholders are not as many as its images."""
        token = f"{self.spelling} (token {self.config.image_token_id})".strip()
        got = f"{images} images for {placeholders} placeholders"
        return InvalidArgumentError(NAME, got, f"as many images as the prompt has placeholders, {token}")

    def placeholders(self, ids: Ids) -> int:
        """Image tokens of a prompt."""
        return int(np.count_nonzero(ids == self.config.image_token_id))

    def expand(self, ids: Ids, images: FittedImages) -> tuple[Ids, list[PromptImage]]:
        """The prompt with spans in the place of placeholders, and the images with their places."""
        from ..model import vision

        plans = [image.plan for image in images.images]
        expanded, starts = vision.expand_prompt(ids, plans, self.config.image_token_id, self.config.text.vocab_size)
        return expanded, [PromptImage(*pair) for pair in zip(starts, images.images, strict=True)]


def fields_of(data: Any) -> tuple[list[Any], list[Any] | None]:
    """Encoded images and, where given, their sizes.

    Raises:
        InvalidArgumentError: neither None nor a dict of lists under the two names.
    """
    if data is None:
        return [], None
    if not isinstance(data, dict):
        raise InvalidArgumentError(NAME, data, "None or a dict")
    found: dict[str, list[Any] | None] = dict.fromkeys(FIELDS)
    for name, value in data.items():
        if name not in FIELDS:
            raise InvalidArgumentError(f"{NAME} key", name, ", ".join(FIELDS))
        if value is not None and not isinstance(value, (list, tuple)):
            raise InvalidArgumentError(f"{NAME}[{name!r}]", value, "None or a list")
        found[name] = None if value is None else list(value)
    files, sizes = found["image_bytes"] or [], found["image_sizes"]
    return files, sizes


def refuse_images(data: Any) -> None:
    """For engines whose model reads none. Raises NotSupportedError if there are any."""
    if isinstance(data, FittedImages) and not data.images:
        return
    if isinstance(data, FittedImages) or fields_of(data)[0]:
        raise NotSupportedError(f"{NAME}['image_bytes']", "this engine was built without an image reader")


def _size(index: int, size: Any) -> tuple[int, int]:
    """A declared size."""
    name = f"{NAME}['image_sizes'][{index}]"
    if not isinstance(size, Sequence) or isinstance(size, (str, bytes)) or len(size) != 2:
        raise InvalidArgumentError(name, size, "(width, height) in pixels")
    width, height = (check_int(name, side, 1, INT32_MAX) for side in size)
    return width, height
