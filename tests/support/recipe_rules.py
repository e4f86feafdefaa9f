"""Lists of rules, each with what tells that a case met it. A fuzzer counts with them what it has compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass
class Seen:
    """A case and its result, as the rules look at them."""

    case: dict[str, Any]
    result: dict[str, Any]
    cache: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Rule:
    """One rule.

    Args:
        id: section of the rule, a letter, and a number or word.
        text: what the rule says.
        met: whether a case met it.
    """

    id: str
    text: str
    met: Callable[[Any], Any]


@dataclass(frozen=True)
class ErrorText:
    """One error text: a pattern that matches the whole message."""

    id: str
    pattern: str

    def matches(self, message: str) -> bool:
        return re.fullmatch(self.pattern, message, re.DOTALL) is not None


@dataclass
class Tally:
    """How often rules and error texts were met."""

    rules: list[Rule]
    errors: list[ErrorText]
    counts: Counter[str] = field(default_factory=Counter)
    unlisted: Counter[str] = field(default_factory=Counter)

    def add(self, view: Any) -> None:
        for rule in self.rules:
            if rule.met(view):
                self.counts[rule.id] += 1

    def add_error(self, message: str) -> None:
        for error in self.errors:
            if error.matches(message):
                self.counts[error.id] += 1
                return
        self.unlisted[message[:200]] += 1

    def rows(self) -> list[tuple[str, str, int]]:
        """(id, text, count) of everything listed."""
        listed = [(rule.id, rule.text, self.counts[rule.id]) for rule in self.rules]
        return listed + [(error.id, error.pattern, self.counts[error.id]) for error in self.errors]


def rules_of(kind: str) -> Any:
    """The module of rules of a kind of case: `prompts`, `requests` or `streams`."""
    return import_module(f"recipe_rules_{kind}")
