"""Bounded replay: rows of a prompt that the consumer layers leave out. Pure Python.

The compressed KV of all consumer layers is a function of what enters the first of them, so a prompt is available to
them once the producer layers and two small projections have seen it. Only the last rows, whose window keys decoding
will look at, have to pass through the consumer layers. Off is the exact model; the other modes compute a function of
their own, the same one: a row of a consumer layer sees no window key before the first kept position, which depends on
the length of the prompt and not on how it is cut into chunks. `mask` computes every row all the same, `compact` only
those that are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..hal.errors import InvalidArgumentError, NotSupportedError
from .topology import Topology

MODES = ("off", "mask", "compact")


@dataclass(frozen=True)
class Truncation:
    """How prompts are computed.

    Attributes:
        mode: "off", "mask" or "compact".
        keep_tokens: last tokens of a prompt that consumer layers keep; without meaning while off.
    """

    mode: str = "off"
    keep_tokens: int = 0

    @property
    def on(self) -> bool:
        """Whether results differ from the exact model's."""
        return self.mode != "off"

    @property
    def compact(self) -> bool:
        """Whether rows that are not kept are left out, not only hidden."""
        return self.mode == "compact"

    def keep_from(self, prompt_len: int) -> int:
        """First position of a prompt that consumer layers keep; 0 keeps all.

        It is also the last position at which a sequence can be resumed without the window rings of consumer and draft
        layers: from there on its rows are computed again and see nothing older in these layers.
        """
        return max(0, prompt_len - self.keep_tokens) if self.on else 0

    def check(
        self, ring_slots: int, topology: Topology, *, mode: str = "mode", keep_tokens: str = "keep_tokens"
    ) -> None:
        """Refuse what the model cannot do.

        Args:
            ring_slots: positions that a window ring holds: the window, and those that may be taken back.
            topology: of the model.
            mode, keep_tokens: what the user calls the two values.

        Raises:
            InvalidArgumentError: an unknown mode; or fewer kept tokens than a window ring holds, so that decoding
                would look at window keys that were never computed.
            NotSupportedError: "compact" with a model some consumer layer of which needs the rows that are left out.
        """
        if self.mode not in MODES:
            raise InvalidArgumentError(mode, self.mode, f"one of {', '.join(MODES)}")
        if not self.on:
            return
        if self.keep_tokens < ring_slots:
            raise InvalidArgumentError(
                keep_tokens,
                self.keep_tokens,
                f"at least {ring_slots}, the sliding window and the positions that may be taken back, "
                f"while {mode} is {self.mode}",
            )
        if self.compact and topology.compact_refusal is not None:
            raise NotSupportedError(f"{mode}={self.mode}", f"{topology.compact_refusal}; use mask or off")


EXACT = Truncation()
"""The exact model: nothing is left out."""
