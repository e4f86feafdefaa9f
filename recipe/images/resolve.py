"""All images of a request: loaded, counted, preprocessed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..conversation import ImageSource
from ..errors import ImageError
from ..requests.data_urls import read_data_url
from ..requests.images import MEDIA_TYPES, is_web_url, quoted
from .fetch import ImageFetcher, run_blocking
from .limits import (
    LIMITS,
    ImageLimits,
    ImageQuota,
    image_too_large,
    invalid_url,
    too_many_images,
    too_many_pixels,
    total_too_large,
    unusable,
    url_too_long,
)
from .preprocess import ImageInfo, ImagePreprocessor, MultiModalData, PreprocessOptions, pixel_count

_RETRY_DELAYS = (0.25, 0.5, 1.0)  # seconds before each further try
_SIDE_BY_SIDE = 8  # downloads; what they hold beyond the limit of all images stays small


@dataclass(frozen=True)
class ImageResolver:
    """Turns image sources into images for the inference engine.

    Args:
        fetcher: downloads URLs; its default refuses all but public addresses.
        limits: what one request may hold.
        retry_delays: seconds before each further try of a download that failed and may succeed later.
    """

    fetcher: ImageFetcher = field(default_factory=ImageFetcher)
    preprocessor: ImagePreprocessor = field(default_factory=ImagePreprocessor)
    limits: ImageLimits = LIMITS
    retry_delays: Sequence[float] = _RETRY_DELAYS

    def resolve(self, sources: Sequence[ImageSource], quota: ImageQuota | None = None) -> MultiModalData:
        """The images of `sources`, in their order.

        Args:
            quota: images and bytes of earlier calls for the same request. A call that fails leaves it unchanged.

        Raises:
            ImageError: the first that is wrong, in this order: the number of images; then loading, source by source;
                then preprocessing, source by source.
        """
        return run_blocking(self.resolve_async(sources, quota))

    async def resolve_async(self, sources: Sequence[ImageSource], quota: ImageQuota | None = None) -> MultiModalData:
        """As `resolve`, in the running event loop. Preprocessing runs in threads."""
        quota = ImageQuota() if quota is None else quota
        total = quota.image_count() + len(sources)
        if total > self.limits.max_images:
            raise too_many_images(self.limits.max_images, total)
        places = _places(sources)
        loaded = await self._load_all(sources, places, quota.byte_size())
        images: list[ImageInfo] = []
        pixels = quota.pixel_count()
        for source, where, data in zip(sources, places, loaded):
            pixels += pixel_count(data)
            if self.limits.max_total_px is not None and pixels > self.limits.max_total_px:
                raise too_many_pixels(source.path, self.limits.max_total_px, pixels)
            images.append(await asyncio.to_thread(self._preprocess, source, where, data))
        quota.add(len(sources), sum(map(len, loaded)), pixels - quota.pixel_count())
        return MultiModalData(images)

    def _check_url(self, url: str, path: str) -> None:
        if not is_web_url(url):
            raise invalid_url(path, quoted(url))
        length = len(url.encode("utf-8", "surrogatepass"))
        if length > self.limits.max_url_bytes:
            raise url_too_long(path, self.limits.max_url_bytes, length)

    def _preprocess(self, source: ImageSource, where: str, data: bytes) -> ImageInfo:
        options = PreprocessOptions(
            source.detail, self.limits.max_dimension_px, self.limits.low_detail_max_dimension_px
        )
        return self.preprocessor.preprocess(data, options, where=where)

    async def _load_all(self, sources: Sequence[ImageSource], places: Sequence[str], used: int) -> list[bytes]:
        """The bytes of all sources. A few are loaded side by side, and judged in their order."""
        loaded: list[bytes] = []
        for start in range(0, len(sources), _SIDE_BY_SIDE):
            part = slice(start, start + _SIDE_BY_SIDE)
            loads = (self._load(source, where) for source, where in zip(sources[part], places[part]))
            for source, result in zip(sources[part], await asyncio.gather(*loads, return_exceptions=True)):
                if isinstance(result, BaseException):
                    raise result
                used += len(result)
                if used > self.limits.max_total_bytes:
                    raise total_too_large(source.path, self.limits.max_total_bytes, used)
                loaded.append(result)
        return loaded

    async def _load(self, source: ImageSource, where: str) -> bytes:
        limit = self.limits.max_image_bytes
        if source.url is not None:
            self._check_url(source.url, source.path)
            data = await self._fetch(source.url, where)
        elif source.data_url is not None:
            data = decode_data_url(source.data_url, where, limit)
        else:
            data = source.data or b""
        size = memoryview(data).nbytes  # of a view with larger items the length is less
        if not size:
            raise unusable("EmptyImage", where)
        if size > limit:
            raise image_too_large(where, limit)
        return bytes(data)

    async def _fetch(self, url: str, where: str) -> bytes:
        for delay in (*self.retry_delays, None):
            try:
                return await self.fetcher.fetch_async(url, where=where)
            except ImageError as error:
                if delay is None or not error.is_retryable:
                    raise
            await asyncio.sleep(delay)
        raise AssertionError("the last try returns or raises")


def decode_data_url(url: str, where: str, limit: int) -> bytes:
    """The bytes of a data URL, base64 or percent-encoded.

    Raises:
        ImageError: InvalidDataUrl, UnsupportedMediaType (the type is none of png, jpeg, jpg, gif, webp), or
            ImageTooLarge, which is told from the length before anything is decoded.
    """
    if len(url) > 4 * limit + 1024:  # a percent-encoded byte takes three characters, base64 a third more
        raise image_too_large(where, limit)
    found = read_data_url(url)
    if found is None:
        raise unusable("InvalidDataUrl", where)
    if found.media_type not in MEDIA_TYPES:
        raise unusable("UnsupportedMediaType", where)
    if found.is_base64 and len(found.body.rstrip(b"=")) * 3 // 4 > limit:
        raise image_too_large(where, limit)
    data = found.decode()
    if data is None:
        raise unusable("InvalidDataUrl", where)
    return data


def _places(sources: Sequence[ImageSource]) -> list[str]:
    """For every source its path and the index among the images of that path."""
    seen: Counter[str] = Counter()
    places = []
    for source in sources:
        index = f"image[{seen[source.path]}]"
        places.append(f"{source.path}.{index}" if source.path else index)
        seen[source.path] += 1
    return places
