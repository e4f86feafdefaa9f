"""Sources, limits, quota: error kinds and texts, in the order of the other codec."""

from __future__ import annotations

import base64
import io
from types import ModuleType
from typing import Any
from urllib.parse import quote_from_bytes

import pytest

from deepinfer.recipe import ImageError, ImageSource, compat
from deepinfer.recipe.images import ImageLimits, ImageQuota, ImageResolver

Image = pytest.importorskip("PIL.Image", reason="needs the images extra")
pytest.importorskip("httpx", reason="needs the images extra")

MIB = 1 << 20
UNSUPPORTED = (
    "You have uploaded an unsupported image. Please make sure your image is valid and has one of the following "
    "formats: webp, png, jpeg, and gif."
)


def encoded(kind: str = "PNG", size: tuple[int, int] = (3, 2)) -> bytes:
    buffer = io.BytesIO()
    Image.new("P" if kind == "GIF" else "RGB", size).save(buffer, kind)
    return buffer.getvalue()


PNG = encoded()
B64 = base64.b64encode(PNG).decode()
PERCENT = quote_from_bytes(PNG)


def padded(size: int) -> bytes:
    """A PNG of `size` bytes."""
    return PNG + bytes(size - len(PNG))


def theirs(wheel: ModuleType, sources: list[ImageSource]) -> tuple[Any, ...]:
    makers = {"data_url": wheel.DataUrlImageSource, "url": wheel.UrlImageSource, "bytes": wheel.BytesImageSource}
    resolver = wheel.ImageResolver(wheel.ReqwestImageFetcher(), wheel.OpenCvImagePreprocessor())
    quota = wheel.ImageQuota()
    try:
        images = resolver.resolve([makers[s.kind](s.value, s.detail, path=s.path) for s in sources], quota).images
    except wheel.ImageError as error:
        return error.kind, str(error), error.is_retryable
    return [(i.width, i.height) for i in images], quota.image_count(), quota.byte_size()


def ours(sources: list[ImageSource]) -> tuple[Any, ...]:
    quota = ImageQuota()
    try:
        images = ImageResolver(retry_delays=()).resolve(sources, quota).images
    except ImageError as error:
        assert (quota.image_count(), quota.byte_size()) == (0, 0)
        return error.kind, str(error), error.is_retryable
    return [(i.width, i.height) for i in images], quota.image_count(), quota.byte_size()


DATA_URLS = [
    f"data:image/png;base64,{B64}",
    f"DATA:IMAGE/PNG;BASE64,{B64}",
    f"data:image/png; base64 ,{B64}",
    f"data:image/png;base64 ,{B64}",
    f"data: image/png ;base64,{B64}",
    f"data:image/png;charset=utf-8;base64,{B64}",
    f"data:image/png;base64;charset=x,{B64}",
    f"data:image/png;base64;base64,{B64}",
    f"data:image/png;base64=1,{B64}",
    f"data:image/png;;base64,{B64}",
    f"data:image/png;base64;,{B64}",
    f"data:image/png,{PERCENT}",
    f"data:image/png;,{PERCENT}",
    f"data:image/png;base64,{B64.rstrip('=')}",
    f"data:image/png;base64,{B64[:20]} \n%0A{B64[20:]}",
    f"data:image/png;base64,{B64.replace('+', '%2B').replace('=', '%3D')}",
    f"data:image/png;base64,{B64.replace('+', '-').replace('/', '_')}-",
    f"data:image/png;base64,{B64}#fragment",
    f"data:image/png;base64,{B64}?query",
    f" \tdata:image/png;base64,{B64} ",
    f"da\nta:image/png;ba\tse64,{B64}",
    f"data:image/jpeg;base64,{B64}",
    f"data:image/jpg;base64,{B64}",
    f"data:image/bmp;base64,{B64}",
    f"data:image/svg+xml;base64,{B64}",
    f"data:;base64,{B64}",
    f"data:,{PERCENT}",
    f"data:image;base64,{B64}",
    f"data:image/;base64,{B64}",
    f"data:/png;base64,{B64}",
    f"data:image/png/x;base64,{B64}",
    f"data:image/p%6eg;base64,{B64}",
    f"data:image/png\x0b;base64,{B64}",
    f"data:image/pn\u00e9;base64,{B64}",
    f'data:image/png;a="b,c";base64,{B64}',
    "data:image/png;base64,",
    "data:image/png,",
    "data:image/png;base64",
    "data:image/png#,",
    "data:",
    "zzz",
    "",
    f"data:image/png;base64,{B64}*",
    f"data:image/png;base64,{B64[:21]}",
    f"data:image/png;base64,{B64}====",
    f"data:image/png,{PERCENT[:30]}%zz{PERCENT[30:]}",
    "data:image/png,abc",
    "data:image/png;base64,AAAA",
    "data:image/png;base64,A===",
    f"http://x/{B64}",
]


@pytest.mark.parametrize("url", DATA_URLS, ids=range(len(DATA_URLS)))
def test_data_urls_equal_the_other_codec(wheel: ModuleType, url: str) -> None:
    sources = [ImageSource.from_data_url(url, path="messages.0")]
    assert ours(sources) == theirs(wheel, sources)


def source(data: bytes, path: str = "") -> ImageSource:
    return ImageSource.from_bytes(data, path=path)


ROWS = {
    "nothing": [],
    "largest": [source(padded(32 * MIB), "P")],
    "too large": [source(padded(32 * MIB + 1), "P")],
    "total": [source(padded(31 * MIB), "P")] * 3,
    "total exceeded early": [source(padded(31 * MIB), "P")] * 4,
    "total at the limit": [source(padded(32 * MIB)), source(padded(32 * MIB))],
    "total past the limit": [source(padded(32 * MIB)), source(padded(32 * MIB)), source(PNG)],
    "unusable, then too large": [source(b"x", "A"), source(padded(32 * MIB + 1), "B")],
    "empty, then too large": [source(b"", "A"), source(padded(32 * MIB + 1), "B")],
    "empty, then no data URL": [source(b""), ImageSource.from_data_url("zzz", path="B")],
    "unusable, then no data URL": [source(b"x"), ImageSource.from_data_url("zzz", path="B")],
    "no data URL, then no URL": [ImageSource.from_data_url("zzz", path="B"), ImageSource.from_url("ftp://x")],
    "all but the URL": [source(b"", "A"), ImageSource.from_url("ftp://x", path="P")],
    "unusable, then no URL": [source(b"x", "A"), ImageSource.from_url("ftp://x", path="P")],
    "no host, then no data URL": [ImageSource.from_url("http://", path="P"), ImageSource.from_data_url("zzz")],
    "total, then no data URL": [*[source(padded(31 * MIB), "P")] * 3, ImageSource.from_data_url("zzz")],
    "index of a path": [source(PNG, "A"), source(PNG, "B"), source(b"x", "A")],
    "index without a path": [source(PNG), source(b"x")],
    "601 images": [source(b"")] * 601,
    "601 images, no URL": [ImageSource.from_url("ftp://x")] * 601,
    "no URL": [ImageSource.from_url("ftp://x", path="P")],
    "no URL, no path": [ImageSource.from_url("ftp://x")],
    "no URL, escapes": [ImageSource.from_url('ftp://x\u00e9\u200b"\\\x01\x7f\n', path="P")],
    "no URL, long": [ImageSource.from_url("ftp://" + "a" * 9000, path="P")],
    "wide letters": [ImageSource.from_url("\uff28\uff34\uff34\uff30://x", path="P")],
    "blank before": [ImageSource.from_url(" http://x", path="P")],
    "long URL": [ImageSource.from_url("http://x/" + "a" * 8184, path="P")],
    "long URL, no path": [ImageSource.from_url("HTTP://x/" + "a" * 8184)],
    "long URL in bytes": [ImageSource.from_url("http://x/" + "\u00e9" * 4092, path="P")],
    "broken URL": [ImageSource.from_url("http://", path="P")],
    "unknown scheme": [ImageSource.from_url("httpx://y", path="P")],
    "large data URL": [ImageSource.from_data_url("data:image/png;base64," + "A" * 45 * MIB, path="Q")],
    "large broken data URL": [ImageSource.from_data_url("data:image/png;base64," + "*" * 45 * MIB, path="Q")],
}


@pytest.mark.parametrize("sources", ROWS.values(), ids=ROWS)
def test_errors_equal_the_other_codec(wheel: ModuleType, sources: list[ImageSource]) -> None:
    assert ours(sources) == theirs(wheel, sources)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_cut_files_equal_the_other_codec(wheel: ModuleType, kind: str) -> None:
    whole = encoded(kind, (40, 30))
    for cut in [*range(1, 16), *range(16, len(whole), max(1, len(whole) // 12))]:
        sources = [source(whole[:cut], "P")]
        mine, other = ours(sources), theirs(wheel, sources)
        if isinstance(mine[0], str) and isinstance(other[0], str) and {mine[0], other[0]} == {"Decode", "EmptyImage"}:
            mine, other = mine[1:], other[1:]  # where a broken file is noticed depends on the decoder
        assert mine == other, (kind, cut)


def test_quota_is_kept_over_calls_and_untouched_by_failed_ones() -> None:
    resolver, quota = ImageResolver(), ImageQuota()
    resolver.resolve([source(PNG), source(PNG)], quota)
    with pytest.raises(ImageError, match=UNSUPPORTED):
        resolver.resolve([source(PNG), source(b"zz")], quota)
    assert (quota.image_count(), quota.byte_size()) == (2, 2 * len(PNG))
    with pytest.raises(ImageError, match="max 600 images per request, got 601"):
        resolver.resolve([source(PNG)] * 599, quota)
    quota.add(0, 64 * MIB - 2 * len(PNG))
    with pytest.raises(ImageError, match="^P: Total image size exceeds the limit: max 64 MB per request, got 64 MB"):
        resolver.resolve([source(PNG, "P")], quota)


def test_importing_the_codec_needs_no_pillow_numpy_or_httpx() -> None:
    import subprocess
    import sys

    code = (
        "import sys; sys.modules.update(PIL=None, httpx=None, numpy=None)\n"
        "import deepinfer.recipe, deepinfer.recipe.images as images\n"
        "assert images.fitted_size(10, 10) == (546, 546)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_pixels_of_all_images_are_bounded() -> None:
    source = ImageSource.from_bytes(encoded(size=(30, 20)), path=".messages[0]")
    resolver = ImageResolver(limits=ImageLimits(max_total_px=1500))
    quota = ImageQuota()
    resolver.resolve([source, source], quota)
    assert quota.pixel_count() == 1200
    with pytest.raises(
        ImageError, match=r"^\.messages\[0\]: Total .* max 1500 pixels per request, got 1800$"
    ) as caught:
        resolver.resolve([source], quota)
    assert caught.value.kind == "TotalSizeTooLarge" and quota.pixel_count() == 1200
    ImageResolver(limits=ImageLimits(max_total_px=None)).resolve([source] * 3, quota)


def test_the_other_codec_has_no_such_bound() -> None:
    resolver = compat.ImageResolver(compat.ReqwestImageFetcher(), compat.OpenCvImagePreprocessor())
    assert resolver._plain.limits.max_total_px is None and ImageLimits().max_total_px is not None


def test_a_view_is_measured_in_bytes() -> None:
    view = memoryview(bytes(4096)).cast("Q")
    source = ImageSource.from_bytes(view)  # type: ignore[arg-type]
    with pytest.raises(ImageError) as caught:
        ImageResolver(limits=ImageLimits(max_image_bytes=4000)).resolve([source])
    assert caught.value.kind == "ImageTooLarge"
    file = memoryview(PNG + bytes(-len(PNG) % 8)).cast("Q")
    assert ImageResolver().resolve([ImageSource.from_bytes(file)]).images  # type: ignore[arg-type]
