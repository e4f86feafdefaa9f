"""Log probabilities of output tokens, on their way from the engine into events."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

TokenLogprob: TypeAlias = "tuple[float, Sequence[tuple[int, float]]]"
"""(log probability of the token, [(id, log probability) of a likely alternative, …])."""


class Logprobs:
    """Those of one piece of output, for the first event that it leads to.

    Args:
        entries: (id, log probability, alternatives) of each id.
        token_bytes: the bytes of an id.
        repeat: for every event of the piece instead.
    """

    __slots__ = ("_entries", "_repeat", "_token_bytes")

    def __init__(
        self,
        entries: Sequence[tuple[int, TokenLogprob]],
        token_bytes: Callable[[int], bytes],
        *,
        repeat: bool = False,
    ) -> None:
        self._repeat = repeat
        self._entries: Sequence[tuple[int, TokenLogprob]] | None = entries
        self._token_bytes = token_bytes

    def take(self) -> list[Any] | None:
        """The entries as the protocols write them, once; None afterwards, and when there are none."""
        entries = self._entries
        if not self._repeat:
            self._entries = None
        if not entries:
            return None
        return [
            {
                **self._token(token_id, logprob),
                "top_logprobs": [self._token(*alternative) for alternative in alternatives],
            }
            for token_id, (logprob, alternatives) in entries
        ]

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        encoded = self._token_bytes(token_id)
        return {
            "token": readable(encoded),
            "logprob": float(logprob) if math.isfinite(logprob) else None,
            "bytes": list(encoded),
        }


def readable(encoded: bytes) -> str:
    """The text of a token; a token of bytes that are no UTF-8 is written byte by byte, such as `\\\\xe6\\\\x97`."""
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in encoded)
