"""Images: fetched, preprocessed, counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast, get_args

from ..conversation import ImageDetail
from ..images import addresses, fetch, limits, preprocess, resolve
from . import arguments as check
from .conversation import ImageSource, plain_sources
from .errors import translated
from .wrapped import Wrapped


class ImageInfo(Wrapped[preprocess.ImageInfo]):
    """A preprocessed image: the encoded bytes, and its size in pixels."""

    __slots__ = ()

    def __init__(self, data: bytes, width: int, height: int) -> None:
        size = (check.unsigned("width", width, check.U32), check.unsigned("height", height, check.U32))
        self._plain = preprocess.ImageInfo(check.octets("data", data), *size)

    @property
    def data(self) -> bytes:
        return self._plain.data

    @property
    def width(self) -> int:
        return self._plain.width

    @property
    def height(self) -> int:
        return self._plain.height


class MultiModalData(Wrapped[preprocess.MultiModalData]):
    """Images in the order of their placeholders."""

    __slots__ = ()

    def __init__(self, images: Sequence[ImageInfo] | None = None) -> None:
        given = [] if images is None else check.instances("images", images, ImageInfo)
        self._plain = preprocess.MultiModalData([image._plain for image in given])

    @property
    def images(self) -> list[ImageInfo]:
        return [ImageInfo._of(image) for image in self._plain.images]

    def is_empty(self) -> bool:
        return self._plain.is_empty()

    def image_token_adjustment(self) -> int:
        """Tokens that the images take beyond one for each placeholder."""
        return self._plain.image_token_adjustment()


class ImageQuota(Wrapped[limits.ImageQuota]):
    """Images and encoded bytes of the resolve calls of one request that succeeded."""

    __slots__ = ()

    def __init__(self) -> None:
        self._plain = limits.ImageQuota()

    def image_count(self) -> int:
        return self._plain.image_count()

    def byte_size(self) -> int:
        return self._plain.byte_size()


class PreprocessOptions:
    """How one image is preprocessed."""

    __slots__ = ("_detail", "_low_detail_max_dimension_px", "_max_dimension_px")

    def __init__(self, detail: ImageDetail, max_dimension_px: int, low_detail_max_dimension_px: int) -> None:
        word = check.text("detail", detail)
        words = get_args(ImageDetail)
        if word not in words:
            allowed = ", ".join(f'"{known}"' for known in words[:-1])
            raise ValueError(f'invalid detail "{word}"; expected {allowed}, or "{words[-1]}"')
        self._detail = cast(ImageDetail, word)
        self._max_dimension_px = check.unsigned("max_dimension_px", max_dimension_px, check.U32)
        self._low_detail_max_dimension_px = check.unsigned(
            "low_detail_max_dimension_px", low_detail_max_dimension_px, check.U32
        )

    @property
    def detail(self) -> ImageDetail:
        return self._detail

    @property
    def max_dimension_px(self) -> int:
        return self._max_dimension_px

    @property
    def low_detail_max_dimension_px(self) -> int:
        return self._low_detail_max_dimension_px


class ReqwestImageFetcher(Wrapped[fetch.ImageFetcher]):
    """Fetches images by http and https.

    As in the original, it connects to any address until it has a filter. Where others can write the URLs, give it one:
    `with_destination_filter(deepinfer.recipe.images.public_address)`.
    """

    __slots__ = ()

    def __init__(self) -> None:
        self._plain = fetch.ImageFetcher(addresses.any_address)

    @staticmethod
    def with_max_bytes(max_bytes: int) -> ReqwestImageFetcher:
        """A fetcher with this limit of an image's bytes."""
        limit = check.unsigned("max_bytes", max_bytes, check.U64)
        return ReqwestImageFetcher._of(fetch.ImageFetcher(addresses.any_address, max_bytes=limit))

    def with_destination_filter(self, destination_filter: Callable[[str, str], bool]) -> ReqwestImageFetcher:
        """A fetcher that connects only where `destination_filter(host, address)` is True."""
        with translated():
            return ReqwestImageFetcher._of(self._plain.with_destination_filter(destination_filter))

    def fetch(self, url: str) -> bytes:
        """What `url` leads to. Raises `ImageError`."""
        given = check.text("url", url)
        with translated():
            return self._plain.fetch(given)


class OpenCvImagePreprocessor(Wrapped[preprocess.ImagePreprocessor]):
    """Preprocesses encoded images. It keeps the original's name, and needs no OpenCV."""

    __slots__ = ()

    def __init__(self) -> None:
        self._plain = preprocess.ImagePreprocessor()

    def preprocess(self, data: bytes, options: PreprocessOptions) -> ImageInfo:
        """The image in `data`, scaled and encoded as WebP. Raises `ImageError`."""
        octets, given = check.octets("data", data), check.instance("options", options, PreprocessOptions)
        # Sizes of 0 are allowed here; no image is as small, so 1 does the same.
        sizes = (max(1, given.max_dimension_px), max(1, given.low_detail_max_dimension_px))
        with translated():
            return ImageInfo._of(self._plain.preprocess(octets, preprocess.PreprocessOptions(given.detail, *sizes)))


class ImageResolver(Wrapped[resolve.ImageResolver]):
    """Turns image sources into images."""

    __slots__ = ()

    def __init__(self, fetcher: ReqwestImageFetcher, preprocessor: OpenCvImagePreprocessor) -> None:
        self._plain = resolve.ImageResolver(
            check.instance("fetcher", fetcher, ReqwestImageFetcher)._plain,
            check.instance("preprocessor", preprocessor, OpenCvImagePreprocessor)._plain,
            limits.ImageLimits(max_total_px=None),  # the original has no such limit
        )

    def resolve(self, sources: Sequence[ImageSource], quota: ImageQuota) -> MultiModalData:
        """The images of `sources`. A failed call leaves the quota as it was. Raises `ImageError`."""
        given, counted = plain_sources("sources", sources), check.instance("quota", quota, ImageQuota)
        with translated():
            return MultiModalData._of(self._plain.resolve(given, counted._plain))
