"""The protocols in which clients ask: one module, or small package, each."""

from .base import Protocol, protocol, protocols

__all__ = ["Protocol", "protocol", "protocols"]
