"""Random outputs that a grammar accepts, written character by character."""

from __future__ import annotations

import random
from typing import Any

PIECES = (
    *("a", "b", "é", "日", "😀", "key", "name", "string", "call", "true", "false", "null", "12", "5e3"),
    *("</", "<|", "｜", "｜DSML｜", "DSML", "\t", "<x>", "</think>", "\n\n", '"k"', '"k": ', ", "),
)
END = "</eos>"


def vocabulary(version_texts: list[str]) -> list[str]:
    """Pieces to write with: all bytes of ASCII, some text, and the tags of a version."""
    ascii_text = [chr(code) for code in range(32, 127)] + ["\n"]
    return list(dict.fromkeys([END, *ascii_text, *(piece for piece in PIECES if piece), *version_texts]))


class Writer:
    """Writes random outputs of a compiled structural tag."""

    def __init__(self, pieces: list[str], tag: str) -> None:
        import xgrammar

        info = xgrammar.TokenizerInfo(pieces, stop_token_ids=[0])
        self.xgrammar = xgrammar
        self.pieces = pieces
        self.compiled = xgrammar.GrammarCompiler(info, max_threads=1).compile_structural_tag(tag)

    def write(self, rng: random.Random, limit: int = 200) -> str | None:
        """An accepted output, None when it did not end in time."""
        matcher = self.xgrammar.GrammarMatcher(self.compiled)
        bitmask = self.xgrammar.allocate_token_bitmask(1, len(self.pieces))
        written: list[str] = []
        while len(written) < limit:
            matcher.fill_next_token_bitmask(bitmask)
            allowed = self._allowed(bitmask)
            if 0 in allowed and (len(allowed) == 1 or rng.random() < 0.1):
                return "".join(written)
            chosen = self._choose(rng, [index for index in allowed if index], written)
            assert matcher.accept_token(chosen)
            written.append(self.pieces[chosen])
        return None

    def _choose(self, rng: random.Random, allowed: list[int], written: list[str]) -> int:
        """A piece; tags where only few pieces fit, the first that begins a block, later those that end a value."""
        tags = [index for index in allowed if len(self.pieces[index]) > 8]
        is_free = len(allowed) > len(self.pieces) // 2
        if is_free:
            begun = any(len(piece) > 8 for piece in written)
            tags = [index for index in tags if self.pieces[index].startswith("</") == begun]
        if tags and rng.random() < (0.4 if is_free else 0.7):
            return rng.choice(tags)
        plain = [index for index in allowed if len(self.pieces[index]) <= 8]
        ends = [index for index in plain if self.pieces[index][0] in '"}]<\n,']
        if ends and len(written) > 20 and rng.random() < 0.7:
            return rng.choice(ends)
        return rng.choice(plain or allowed)

    def _allowed(self, bitmask: Any) -> list[int]:
        words = [int(word) & 0xFFFFFFFF for word in bitmask[0].tolist()]
        return [index for index in range(len(self.pieces)) if words[index // 32] >> index % 32 & 1]
