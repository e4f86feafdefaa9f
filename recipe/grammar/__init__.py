"""Output constraints as grammar text for engines with constrained decoding. Nothing here runs a grammar."""

from .structural import structural_tag

__all__ = ["structural_tag"]
