"""The tools of a Responses request: declared, and found by tool searches; their names, namespaces included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...conversation import ToolDefinition
from ...errors import ConversionError
from ...json_text import JsonValue
from ...options import ConversionOptions, WebSearchBehavior
from ...requests import apply_patch
from ...requests.tools import check_tool_name
from ...versions import ModelVersion
from .body import (
    CustomTool,
    FunctionTool,
    Item,
    NamespaceTool,
    Tool,
    ToolSearchOutputItem,
    ToolSearchTool,
    UnknownTool,
    WebSearchTool,
)

TOOL_SEARCH = "tool_search"


def check_tools(tools: Iterable[Tool], path: str, options: ConversionOptions) -> None:
    """Refuse, tool by tool, names that are not allowed, custom tools that are not apply_patch, and server tools."""
    for index, tool in enumerate(tools):
        place = f"{path}[{index}]"
        if isinstance(tool, FunctionTool):
            check_tool_name(tool.name, f"{place}.name")
        elif isinstance(tool, CustomTool) and tool.name != apply_patch.NAME:
            raise ConversionError(f"Unsupported custom tool: '{tool.name}'. Only '{apply_patch.NAME}' is supported.")
        elif isinstance(tool, NamespaceTool):
            _check_namespace(tool, place)
        elif isinstance(tool, WebSearchTool) and options.responses_web_search is WebSearchBehavior.REJECT:
            raise ConversionError("Server tools are not supported")


def _check_namespace(namespace: NamespaceTool, place: str) -> None:
    check_tool_name(namespace.name, f"{place}.name")
    names: set[str] = set()
    for index, tool in enumerate(namespace.tools):
        member = f"{place}.tools[{index}]"
        if isinstance(tool, CustomTool):
            raise ConversionError(
                "Currently custom tools are not allowed inside a namespace. "
                f"Found custom tool '{tool.name}' in {member}."
            )
        check_tool_name(tool.name, f"{member}.name")
        if tool.name in names:
            raise ConversionError("Tool names within a namespace must be unique.")
        names.add(tool.name)


@dataclass(slots=True)
class Names:
    """The names of functions as the model knows them.

    A function of a namespace is called `namespace`, separator, `name`; when that is taken, a number follows. Plain
    functions keep their names.
    """

    version: ModelVersion
    taken: set[str]
    by_local: dict[tuple[str, str], str] = field(default_factory=dict)
    """The first name given to a function of a namespace."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The last number that followed a name; all below are taken."""

    def add(self, namespace: str, name: str) -> str:
        """A new name for a function of a namespace."""
        separator = self.version.namespace_separator
        if not separator.strip("_") and (namespace.endswith("_") or name.startswith("_")):
            separator = ""
        wanted = final = f"{namespace}{separator}{name}"
        number = self.numbers.get(wanted, 0)
        while final in self.taken:
            number += 1
            final = f"{wanted}_{number}"
        self.numbers[wanted] = number
        self.taken.add(final)
        self.by_local.setdefault((namespace, name), final)
        return final

    def of_call(self, namespace: str | None, name: str) -> str:
        """The name for a call: that of the function of the namespace, or a new one when there is no such function."""
        if namespace is None:
            return name
        known = self.by_local.get((namespace, name))
        return self.add(namespace, name) if known is None else known


@dataclass(slots=True)
class ToolTable:
    """All tools of a request.

    Args:
        declared: tools of the request, in order.
        found: tools that each output of a tool search brought, by the index of its item.
        namespaces: namespace and local name of the functions that have one, by final name.
    """

    names: Names
    declared: list[ToolDefinition]
    found: dict[int, list[ToolDefinition]]
    namespaces: dict[str, tuple[str, str]]

    @property
    def all(self) -> list[ToolDefinition]:
        return [*self.declared, *(tool for tools in self.found.values() for tool in tools)]


def read_tools(tools: list[Tool], items: list[Item], version: ModelVersion, options: ConversionOptions) -> ToolTable:
    """The tools of a request, names checked.

    Raises:
        ConversionError: a name is not allowed, or a server tool is refused.
    """
    outputs: Mapping[int, ToolSearchOutputItem] = {}
    if version.tools_in_system:
        outputs = {index: item for index, item in enumerate(items) if isinstance(item, ToolSearchOutputItem)}
    check_tools(tools, "tools", options)
    for index, output in outputs.items():
        check_tools(output.tools, f"input[{index}].tools", options)
    plain = [*tools, *(tool for output in outputs.values() for tool in output.tools)]
    names = Names(version, {tool.name for tool in plain if isinstance(tool, FunctionTool)})
    table = ToolTable(names, [], {}, {})
    table.declared = list(_definitions(tools, table))
    for index, output in outputs.items():
        table.found[index] = [
            ToolDefinition(tool.name, tool.description, tool.parameters, tool.strict, defer_loading=True)
            for tool in _definitions(output.tools, table)
        ]
    return table


def _definitions(tools: Iterable[Tool], table: ToolTable) -> Iterable[ToolDefinition]:
    """What the model can call among the tools."""
    version = table.names.version
    for tool in tools:
        if isinstance(tool, FunctionTool):
            yield ToolDefinition(tool.name, tool.description, tool.parameters, tool.strict)
        elif isinstance(tool, CustomTool):
            yield apply_patch.apply_patch_tool(version.blank_line_before_patch)
        elif isinstance(tool, NamespaceTool):
            for member in tool.tools:
                name = table.names.add(tool.name, member.name)
                table.namespaces[name] = (tool.name, member.name)
                description = member.description  # type: ignore[union-attr]
                if version.namespace_descriptions and tool.description:
                    description = f"{tool.description}\n{description or ''}"
                yield ToolDefinition(name, description, member.parameters, member.strict)  # type: ignore[union-attr]
        elif isinstance(tool, ToolSearchTool):
            if version.tools_in_system and tool.execution == "client":
                yield ToolDefinition(TOOL_SEARCH, tool.description, tool.parameters)


# Tools as JSON


def tool_as_json(tool: Tool) -> dict[str, JsonValue] | None:
    """A tool as responses repeat it, absent fields as null; None for a type that is not known."""
    if isinstance(tool, UnknownTool):
        return None
    if isinstance(tool, NamespaceTool):
        members: list[JsonValue] = [tool_as_json(member) for member in tool.tools]
        return {"type": tool.type, "name": tool.name, "description": tool.description, "tools": members}
    if isinstance(tool, ToolSearchTool):
        rest = {"description": tool.description, "parameters": tool.parameters}
        return {"type": tool.type, "execution": tool.execution, **rest}
    if isinstance(tool, WebSearchTool):
        place = tool.user_location
        location: JsonValue = None
        if place is not None:
            location = {name: getattr(place, name) for name in ("city", "country", "region", "timezone")}
        return {
            "type": tool.type,
            "search_context_size": tool.search_context_size,
            "user_location": location,
        }
    if isinstance(tool, CustomTool):
        return {"type": tool.type, "name": tool.name}
    return {
        "type": tool.type,
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }


def found_tools_as_json(tools: Iterable[Tool]) -> list[JsonValue]:
    """Tools that a search found, as its result tells the model: those of a namespace one by one, unknown ones not."""
    listed: list[JsonValue] = []
    for tool in tools:
        if isinstance(tool, NamespaceTool):
            namespace: JsonValue = {"name": tool.name, "description": tool.description or ""}
            listed += [{**(tool_as_json(member) or {}), "namespace": namespace} for member in tool.tools]
        elif (text := tool_as_json(tool)) is not None:
            listed.append(text)
    return listed
