"""Calls of groups in a pattern (`\\g<1>`, `(?P>name)`), which may stand before the group, or in it.

A part with a call in it is settled when the pattern was read to its end (`settle`): what the group that is called
matches counts for lookbehinds. The engine refuses a pattern that can only match by calling without end, and a group
that calls itself, on its own or by others, before anything was matched. All of it takes time in proportion to the
parts with calls: what depends on what is worked off from the groups that depend on nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from .regex_escapes import NotARegex


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a pattern.

    Args:
        repeats: a quantifier may follow.
        length: characters that it matches; None: not always as many.
        is_hard: the engine has to backtrack.
        fits_behind: a lookbehind may hold it.
        size: bytes of the compiled form, 0 when it is hard.
        may_be_empty: it can match nothing.
        tree: what it is made of, when there is a call in it.
        has_absent: there is an absent expression in it.
    """

    repeats: bool = True
    length: int | None = 1
    is_hard: bool = False
    fits_behind: bool = True
    size: int = 32
    may_be_empty: bool = False
    tree: Tree | None = field(default=None, compare=False)
    has_absent: bool = False

    @property
    def is_certain(self) -> bool:
        """Among other parts, too, a lookbehind may hold it."""
        return self.length is not None or not self.is_hard


TreeKind: TypeAlias = Literal["all", "any", "maybe", "never", "call"]
Make: TypeAlias = "Callable[[list[Node]], Node]"


@dataclass(slots=True)
class Tree:
    """How a part with calls in it is made.

    Args:
        kind: `all` parts are matched, one after the other, `any` of them, none has to be (`maybe`), none ever is
            (`never`), or it is a call.
        parts: what it is made of.
        make: makes the node of those of its parts.
        group: number or name of the group that is called, or number of the one that it is; 0 when it is none.
        settled: the node, once it is known what the calls in it match.
    """

    kind: TreeKind
    parts: list[Node] = field(default_factory=list)
    make: Make = lambda parts: parts[0]
    group: int | str = 0
    settled: Node | None = None

    @property
    def number(self) -> int:
        return self.group if isinstance(self.group, int) else -1


def called(group: int | str) -> Node:
    """A call, of which nothing is known yet."""
    return Node(True, None, True, False, 0, True, Tree("call", group=group))


def made(kind: TreeKind, parts: list[Node], make: Make, group: int = 0) -> Node:
    """A part that is made of others. Calls among them stay known."""
    node = make(parts)
    return node if all(part.tree is None for part in parts) else with_tree(node, kind, parts, make, group)


def with_tree(node: Node, kind: TreeKind, parts: list[Node], make: Make, group: int = 0) -> Node:
    return replace(node, tree=Tree(kind, parts, make, group))


def settle(root: Node, captures: list[Node], names: Mapping[str, int]) -> None:
    """Judge the calls of a pattern.

    Args:
        captures: the groups, from number 1 on.

    Raises:
        NotARegex: a group that is called does not exist, a lookbehind cannot hold what it has to, or calls do not end.
    """
    if root.tree is None:
        return
    whole = with_tree(root, "all", [root], lambda parts: parts[0])  # no group itself, even if it is made of one alone
    _Calls([whole, *captures], names).check()


class _Calls:
    def __init__(self, groups: list[Node], names: Mapping[str, int]) -> None:
        self.groups = groups
        for tree in _trees(groups[0]):
            if isinstance(tree.group, str):
                if tree.group not in names:
                    raise NotARegex(f"there is no group {tree.group[:80]!r}")
                tree.group = names[tree.group]
        self.settled: dict[int, Node] = {}

    def check(self) -> None:
        self._check_targets(self.groups[0])
        if id(self.groups[0].tree) not in self._least(lambda node: True):
            raise NotARegex("calls without end")
        empty = self._least(lambda node: node.may_be_empty)
        edges = [set[int]() for _ in self.groups]
        for number in self._visited():
            node = self.groups[number]
            for part in node.tree.parts if number and node.tree else [node]:
                if not self._calls_at_left(part, number, edges[number], empty):
                    break
        if len(_in_order(edges)) < len(edges):
            raise NotARegex("a group that calls itself before anything was matched")
        for number in _in_order([self._needs(node, number) for number, node in enumerate(self.groups)]):
            self.settled[number] = self._settle(self.groups[number])
        self._settle(self.groups[0])

    def _check_targets(self, node: Node) -> None:
        tree = node.tree
        if tree is None or tree.kind == "never":
            return
        if tree.kind == "call" and not 0 <= tree.number < len(self.groups):
            raise NotARegex(f"there is no group {tree.number}")
        for part in tree.parts:
            self._check_targets(part)

    def _target(self, call: Tree) -> Node:
        return self.groups[call.number] if call.number < len(self.groups) else Node()

    def _least(self, leaf: Callable[[Node], bool]) -> set[int]:
        """The trees, by identity, of which something holds: because it does of all parts, or any, or of the callee.

        Args:
            leaf: whether it holds of a part without calls.
        """
        missing: dict[int, int] = {}
        users: dict[int, list[Tree]] = {}
        found: list[Tree] = []
        for tree in _trees(self.groups[0]):
            parts = [self._target(tree)] if tree.kind == "call" else tree.parts
            holding = sum(part.tree is None and leaf(part) for part in parts)
            needed = len(parts) if tree.kind in ("all", "call") else 1 if tree.kind == "any" else 0
            missing[id(tree)] = max(needed - holding, 0)
            for part in parts:
                if part.tree is not None:
                    users.setdefault(id(part.tree), []).append(tree)
            if not missing[id(tree)]:
                found.append(tree)
        holds = {id(tree) for tree in found}
        while found:
            for user in users.get(id(found.pop()), ()):
                missing[id(user)] -= 1
                if missing[id(user)] <= 0 and id(user) not in holds:
                    holds.add(id(user))
                    found.append(user)
        return holds

    def _visited(self) -> set[int]:
        """The groups that the engine looks at for what they call: those that are in no other, and those called."""
        visited = {0} | {tree.number for tree in _trees(self.groups[0], own_only=True) if tree.group}
        open = [number for number in visited if number < len(self.groups)]
        while open:
            trees = list(_trees(self.groups[open.pop()], own_only=True))
            new = {tree.number for tree in trees if tree.kind == "call"} - visited
            visited |= new
            open += [number for number in new if number < len(self.groups)]
        return {number for number in visited if number < len(self.groups)}

    def _calls_at_left(self, node: Node, frame: int, calls: set[int], empty: set[int]) -> bool:
        """Adds the groups that a part of group `frame` calls before anything matched. Whether it may match nothing."""
        tree = node.tree
        if tree is None:
            return node.may_be_empty
        if tree.kind == "call":
            calls.add(tree.number)
        elif tree.kind == "all" and not tree.group:
            return all(self._calls_at_left(part, frame, calls, empty) for part in tree.parts)
        elif not tree.group and (tree.kind != "never" or frame):
            for part in tree.parts:
                self._calls_at_left(part, frame, calls, empty)
        return id(tree) in empty

    def _needs(self, node: Node, number: int) -> set[int]:
        """The groups whose length has to be known before that of a group is."""
        return {tree.number for tree in _trees(node, own_only=True) if tree.group} - ({number} if number else set())

    def _settle(self, node: Node) -> Node:
        """A part as it is with what is known of the groups that it calls."""
        tree = node.tree
        if tree is None:
            return node
        if tree.kind == "call":
            target = self.settled.get(tree.number)
            length = None if target is None else target.length
            return Node(True, length, True, length is not None, 0)
        if tree.settled is None:
            tree.settled = tree.make([self._settle(part) for part in tree.parts])
        return tree.settled


def _trees(node: Node, own_only: bool = False) -> Iterator[Tree]:
    """The trees of a part and of what is in it; with `own_only` not what is in a group in it."""
    open = [node]
    while open:
        tree = open.pop().tree
        if tree is not None:
            yield tree
            if tree is node.tree or not (own_only and tree.group):
                open += tree.parts


def _in_order(needs: list[set[int]]) -> list[int]:
    """The numbers of `needs`, each behind those that it needs; without those that need each other in a circle."""
    users: list[list[int]] = [[] for _ in needs]
    for number, needed in enumerate(needs):
        for other in needed:
            if other < len(needs):
                users[other].append(number)
    missing = [sum(other < len(needs) for other in needed) for needed in needs]
    order = [number for number, count in enumerate(missing) if not count]
    for number in order:
        for user in users[number]:
            missing[user] -= 1
            if not missing[user]:
                order.append(user)
    return order
