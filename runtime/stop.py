"""Stop strings over a stream of text pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Finds the first stop string in streamed text and holds back what might become one.

    Text is released only when no stop string can begin in it any more, so a consumer never sees a part of a match and
    the released text does not depend on how the stream was cut into pieces. When several strings match, the one that
    ends first wins, and among those the one that begins first.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(dict.fromkeys(stops))
        self._held = ""
        self.matched: str | None = None

    def push(self, piece: str) -> str:
        """Text that is now certain to come before any stop string. Nothing after a match."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return piece
        text = self._held + piece
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            begin = text.find(stop)
            if begin >= 0 and (best is None or (begin + len(stop), begin) < best[:2]):
                best = (begin + len(stop), begin, stop)
        if best is not None:
            self.matched, self._held = best[2], ""
            return text[: best[1]]
        keep = self._partial(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """Text still held back when the stream ends without a match."""
        held, self._held = self._held, ""
        return held

    def _partial(self, text: str) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:size]):
                    longest = size
                    break
        return longest
