"""Checkpoints without a download: small random models in the released format, with a tokenizer of their
own."""

from .cache import cache_directory, ensure_preset
from .configs import PRESETS
from .make import make_checkpoint

__all__ = ["PRESETS", "cache_directory", "ensure_preset", "make_checkpoint"]
