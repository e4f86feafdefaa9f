"""The tokens with a meaning of their own, and how they are spelled."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum

IMAGE_SPELLINGS = ("<｜image｜>", "<image>", "<｜deepseek_image｜>")
"""How releases of the tokenizer spell the image token. Any of them stands for the one that a tokenizer has."""

IMAGE_TOKEN_ID = 129264
"""Id of the image token in the released tokenizer of V4.1."""


class SpecialToken(Enum):
    """A kind of special token. The value is the default spelling."""

    BOS = "<｜begin▁of▁sentence｜>"
    EOS = "<｜end▁of▁sentence｜>"
    THINKING_START = "<think>"
    THINKING_END = "</think>"
    SYSTEM = "<｜System｜>"
    USER = "<｜User｜>"
    ASSISTANT = "<｜Assistant｜>"
    LATEST_REMINDER = "<｜latest_reminder｜>"
    DSML = "｜DSML｜"
    IMAGE = IMAGE_SPELLINGS[0]
    REF = "<｜ref｜>"
    REF_END = "<｜/ref｜>"
    BOX = "<｜box｜>"
    BOX_END = "<｜/box｜>"
    POINT = "<｜point｜>"
    POINT_END = "<｜/point｜>"
    POLYGON = "<｜polygon｜>"
    POLYGON_END = "<｜/polygon｜>"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialTokens:
    """The spelling of every special token. A field that is given replaces the default spelling."""

    bos: str = SpecialToken.BOS.value
    eos: str = SpecialToken.EOS.value
    thinking_start: str = SpecialToken.THINKING_START.value
    thinking_end: str = SpecialToken.THINKING_END.value
    system: str = SpecialToken.SYSTEM.value
    user: str = SpecialToken.USER.value
    assistant: str = SpecialToken.ASSISTANT.value
    latest_reminder: str = SpecialToken.LATEST_REMINDER.value
    dsml: str = SpecialToken.DSML.value
    image: str = SpecialToken.IMAGE.value
    ref: str = SpecialToken.REF.value
    ref_end: str = SpecialToken.REF_END.value
    box: str = SpecialToken.BOX.value
    box_end: str = SpecialToken.BOX_END.value
    point: str = SpecialToken.POINT.value
    point_end: str = SpecialToken.POINT_END.value
    polygon: str = SpecialToken.POLYGON.value
    polygon_end: str = SpecialToken.POLYGON_END.value

    def token(self, token: SpecialToken) -> str:
        """The spelling of `token`."""
        spelling: str = getattr(self, token.name.lower())
        return spelling

    def spellings(self) -> dict[SpecialToken, str]:
        """Every token with its spelling, in the order of `SpecialToken`."""
        return {SpecialToken[field.name.upper()]: getattr(self, field.name) for field in fields(self)}


DEFAULT_SPECIAL_TOKENS = SpecialTokens()
