"""Typed errors.

User faults derive from `DeepInferError`; the command line prints them without a traceback and exits with status 2.
Faults of a backend against the op contract are `ContractError`; they name the op and its version.
"""

from __future__ import annotations

from typing import Any


class DeepInferError(Exception):
    """Base of every error that a user can cause or act on."""


class InvalidArgumentError(DeepInferError, ValueError):
    """A parameter has a value that is not allowed.

    Args:
        parameter: name of the parameter as the user wrote it.
        got: the value that came.
        allowed: what would have been accepted, in words.
    """

    def __init__(self, parameter: str, got: Any, allowed: str) -> None:
        self.parameter = parameter
        self.got = got
        self.allowed = allowed
        super().__init__(f"{parameter}: got {short(got)}; allowed: {allowed}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.parameter, self.got, self.allowed))


class NotSupportedError(DeepInferError):
    """A known feature that this version does not have.

    Args:
        feature: what was asked for, as the user wrote it.
        brought_by: the part of the project that will bring it, or what to use instead.
    """

    def __init__(self, feature: str, brought_by: str) -> None:
        self.feature = feature
        self.brought_by = brought_by
        super().__init__(f"{feature} is not supported: {brought_by}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.feature, self.brought_by))


class ImageError(InvalidArgumentError):
    """An image that cannot be used: too large, truncated, broken, or no image at all."""


class ConfigError(DeepInferError):
    """A model configuration breaks a rule. Names the key, the value found and the rule."""

    def __init__(self, key: str, value: Any, rule: str) -> None:
        self.key = key
        self.value = value
        self.rule = rule
        super().__init__(f"config key {key!r} is {short(value)}: {rule}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.key, self.value, self.rule))


class CheckpointError(DeepInferError):
    """A checkpoint directory cannot be used: missing, mis-shaped, truncated or foreign data."""


class TokenizerError(DeepInferError):
    """A tokenizer file breaks a rule the model relies on."""


class BackendError(DeepInferError):
    """A backend is unknown, unavailable, or implements another contract version."""


class KernelError(DeepInferError):
    """No kernel can run an op: none registered, or strict mode forbids the fallback."""


class SelfTestError(BackendError):
    """A known-answer test failed at load: a binary for another chip, or a broken installation."""


class DeviceFaultError(DeepInferError):
    """The device reported a fault while it ran work of ours."""


class ContractError(DeepInferError):
    """An op was called with arguments outside its specification, or a kernel broke it.

    Args:
        op: name of the op.
        version: contract version of the op.
        message: which argument, what came, what is allowed.
    """

    def __init__(self, op: str, version: int, message: str) -> None:
        self.op = op
        self.version = version
        self.message = message
        super().__init__(f"op {op} (version {version}): {message}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.op, self.version, self.message))


def short(value: Any, limit: int = 200) -> str:
    """repr() of any value for a message: cut to `limit` characters, and never an error of its own."""
    try:
        text = repr(value)
    except Exception as error:  # integers of thousands of digits have no text; a class of the user's may not either
        text = f"<{type(value).__name__} whose repr() raises {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"
