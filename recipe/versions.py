"""The model versions, found by listing the templates: one module of `templates` per version.

A version says what of a conversation its prompts can carry. The request side reads these facts and never asks which
version it has before it, so that a new version is one new template module.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from .templates.base import Template


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """A version of the model, and what its prompts can carry.

    Args:
        key: short name, also how the command line calls it.
        name: name in the API.
        model_name: name of the model in requests, unless options say otherwise.
        images: images become placeholders; otherwise a text says that they are not supported.
        system_in_place: system messages stay where they are; otherwise all of them go to the front, and a system or
            developer message amid the conversation has to become something else.
        tools_in_system: a system message can bring tools (deferred tools, tool search).
        namespace_separator: between a namespace and the local name of a tool. One of underscores is left out next to
            another underscore.
        namespace_descriptions: a tool's description begins with that of its namespace.
        blank_line_before_patch: the text of the apply_patch tool has a blank line before its first patch.
        minimum_thinking_top_p: lowest top_p of a request that thinks; top_p is then fixed when it does not think. None:
            fixed when it thinks, and the request's when it does not.
    """

    key: str
    name: str
    model_name: str
    images: bool = True
    system_in_place: bool = True
    tools_in_system: bool = True
    namespace_separator: str = "::"
    namespace_descriptions: bool = True
    blank_line_before_patch: bool = True
    minimum_thinking_top_p: float | None = 0.95

    def __repr__(self) -> str:
        return f"ModelVersion.{self.name}"

    @property
    def template(self) -> Template:
        """What renders its prompts."""
        return _templates()[self]


@cache
def _templates() -> dict[ModelVersion, Template]:
    package = import_module(".templates", __package__)
    found: dict[ModelVersion, Template] = {}
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        template = getattr(import_module(f".templates.{module.name}", __package__), "TEMPLATE", None)
        if template is not None:
            found[template.version] = template
    return found


def model_versions() -> tuple[ModelVersion, ...]:
    """All model versions that there are, in the order of their modules' names."""
    return tuple(_templates())


def model_version(name: str) -> ModelVersion:
    """The version with this key, name or model name.

    Raises:
        InvalidArgumentError: there is none.
    """
    for version in _templates():
        if name in (version.key, version.name, version.model_name):
            return version
    known = ", ".join(version.key for version in _templates())
    raise InvalidArgumentError(f"model version {name!r} is not known; known: {known}")
