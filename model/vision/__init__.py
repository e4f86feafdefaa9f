"""Images: sizes and token counts, decoding, the image tower, and where an image's tokens stand in a sequence.

* `resize.plan_resize(width, height, config)` -> `ResizePlan`: canvas, patches and tokens of an image;
* `decode.decode_image(data)` -> RGB bytes; `decode.fit_image(pixels, plan)` -> `FittedImage`, what the tower takes;
* `spans.expand_prompt`, `spans.ImageSpan`: placeholder tokens become spans of image tokens;
* `tower.VisionTower.encode(images)` -> the embeddings of each image's tokens.

Only decoding and fitting need Pillow (the extra `images`), which is imported when it is first used.
"""

from .decode import LIMITS, FittedImage, ImageLimits, decode_image, fit_image, image_size
from .resize import ResizePlan, plan_resize
from .spans import ImageSpan, expand_prompt, image_tokens

__all__ = [
    "LIMITS",
    "FittedImage",
    "ImageLimits",
    "ImageSpan",
    "ResizePlan",
    "decode_image",
    "expand_prompt",
    "fit_image",
    "image_size",
    "image_tokens",
    "plan_resize",
]
