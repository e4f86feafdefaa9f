"""The prompts of DeepSeek V4."""

from __future__ import annotations

from ..versions import ModelVersion

VERSION = ModelVersion(
    key="v4",
    name="DeepseekV4Pro",
    model_name="DeepSeek-V4-Pro",
    images=False,
    system_in_place=False,
    tools_in_system=False,
    namespace_separator="__",
)
