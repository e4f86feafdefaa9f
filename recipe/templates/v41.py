"""The prompts of DeepSeek V4.1."""

from __future__ import annotations

from ..versions import ModelVersion

VERSION = ModelVersion(key="v4.1", name="DeepseekV41Flash", model_name="DeepSeek-V4.1-Flash")
