"""Names, signatures and behaviour of single objects, held against the original and its stub."""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import deepinfer.recipe.compat as compat

EMPTY = inspect.Parameter.empty


@pytest.fixture(scope="module")
def stub(wheel: ModuleType) -> ast.Module:
    return ast.parse((Path(wheel.__file__ or "").parent / "_native.pyi").read_text("utf-8"))


def is_static(function: ast.FunctionDef) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in function.decorator_list)


def is_property(function: ast.FunctionDef) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "property" for item in function.decorator_list)


def stub_parameters(function: ast.FunctionDef) -> list[tuple[str, bool, str | None]]:
    """(name, keyword only, default as text) of each parameter but self."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    listed = [(item.arg, False, default) for item, default in zip(positional, defaults)]
    listed += [(item.arg, True, default) for item, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    if not is_static(function):
        listed = listed[1:]
    return [(name, only, None if default is None else ast.unparse(default)) for name, only, default in listed]


def our_parameters(function: Any) -> list[tuple[str, bool, str | None]]:
    listed = [item for item in inspect.signature(function).parameters.values() if item.name != "self"]
    return [
        (item.name, item.kind is inspect.Parameter.KEYWORD_ONLY, None if item.default is EMPTY else repr(item.default))
        for item in listed
    ]


def test_names(wheel: ModuleType) -> None:
    assert sorted(compat.__all__) == sorted(wheel.__all__)
    assert compat.__version__ == wheel.__version__
    assert all(hasattr(compat, name) for name in compat.__all__)


def test_it_loads_neither_torch_nor_what_images_need() -> None:
    code = "import sys, deepinfer.recipe.compat; print([m for m in ('torch', 'PIL', 'httpx') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_original_is_the_one_that_ours_is_held_against(wheel: ModuleType) -> None:
    assert wheel.__version__ == "0.2.0"


def test_signatures_and_members(stub: ast.Module) -> None:
    seen = 0
    for node in stub.body:
        if not isinstance(node, ast.ClassDef):
            continue
        ours = getattr(compat, node.name)
        bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
        assert all(issubclass(ours, getattr(compat, base, None) or getattr(builtins, base)) for base in bases), (
            node.name
        )
        for item in node.body:
            where = f"{node.name}.{getattr(item, 'name', '')}"
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                annotated = any(item.target.id in getattr(kind, "__annotations__", {}) for kind in ours.__mro__)
                assert annotated or hasattr(ours, item.target.id), f"{node.name}.{item.target.id}"
            elif isinstance(item, ast.FunctionDef) and (
                is_property(item) or item.decorator_list and not is_static(item)
            ):
                assert isinstance(inspect.getattr_static(ours, item.name), property), where
            elif isinstance(item, ast.FunctionDef):
                assert our_parameters(getattr(ours, item.name)) == _as_ours(stub_parameters(item)), where
                static = isinstance(inspect.getattr_static(ours, item.name), staticmethod)
                assert static == is_static(item), where
                seen += 1
    assert seen > 80


def _as_ours(listed: list[tuple[str, bool, str | None]]) -> list[tuple[str, bool, str | None]]:
    return [(name, only, default and default.replace('"', "'")) for name, only, default in listed]


def test_public_members_are_no_more_than_those(stub: ast.Module) -> None:
    """What ours adds, programs would come to use; the enumerations have what `Enum` brings, and `plain`."""
    enumerations = {"SpecialToken", "WebSearchBehavior", "ReasoningContentBehavior", "ModelVersion"}
    enumerations |= {"ThinkingInitialStage", "InferenceFinishReason"}
    for node in stub.body:
        if isinstance(node, ast.ClassDef) and node.name not in enumerations and "Error" not in node.name:
            ours = {name for name in dir(getattr(compat, node.name)) if not name.startswith("_")}
            bases = [other for other in stub.body if isinstance(other, ast.ClassDef) and other.name in _bases(node)]
            theirs = {item.name for kind in (node, *bases) for item in kind.body if isinstance(item, ast.FunctionDef)}
            theirs |= {
                item.target.id
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            }
            assert ours == {name for name in theirs if not name.startswith("_")}, node.name


def _bases(node: ast.ClassDef) -> set[str]:
    return {base.id for base in node.bases if isinstance(base, ast.Name)}


EXPRESSIONS = (Path(__file__).parent / "api_expressions.txt").read_text("utf-8").splitlines()
"""Expressions in which `m` is a module: both have to give values that print alike, or exceptions of one type."""


def outcome(expression: str, module: Any) -> tuple[str, str]:
    try:
        return "value", repr(eval(expression, {"m": module}))
    except Exception as error:
        return type(error).__name__, str(error) if type(error).__name__ in ("ConversionError", "ImageError") else ""


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression(expression: str, wheel: ModuleType) -> None:
    assert outcome(expression, compat) == outcome(expression, wheel)


REQUEST = {"model": "DeepSeek-V4-Pro", "messages": [{"role": "user", "content": "a"}]}


def single_use(module: Any) -> list[str]:
    """What serves once, used again: the exceptions, and what still works."""
    seen: list[str] = []

    def attempt(function: Any, *args: Any) -> Any:
        try:
            result = function(*args)
        except Exception as error:
            seen.append(f"{type(error).__name__}: {error}")
            return None
        seen.append(type(result).__name__)
        return result

    request = module.ChatCompletionRequest(REQUEST)
    converted = request.convert(module.ConversionOptions())
    attempt(request.convert, module.ConversionOptions())
    attempt(lambda: request.model)
    attempt(module.MessagesRequest.chunk_generator, converted, "a", "m")
    generator = attempt(module.ChatCompletionRequest.chunk_generator, converted, "a", "m")
    converted.parsing_options.parse_json_output = True
    seen.append(str(converted.parsing_options.parse_json_output))
    processor = attempt(module.StreamProcessor, generator, converted.parsing_options)
    attempt(module.StreamProcessor, generator, converted.parsing_options)
    events = processor.push(module.InferenceChunk.text("</think>hi", 1))
    attempt(lambda: module.MessagesResponse("a", "b", 0, 0, 0).accumulate(events[0]) or "")
    response = module.ChatCompletionResponse("a", "b", 0, 0, 0)
    attempt(response.accumulate, events[0])
    for again in (response.accumulate, module.ChatCompletionResponse.sse_event_name):
        attempt(again, events[0])
    attempt(events[0].to_json)
    attempt(module.ChatCompletionResponse.sse_event_name, events[1])
    attempt(processor.finish)
    attempt(processor.push, module.InferenceChunk.text("x"))
    attempt(processor.finish)
    processor.close()
    seen.append(str(processor.finished))
    attempt(processor.finish)
    attempt(processor.push, module.InferenceChunk.text("x"))
    messages = module.MessagesChunkGenerator("a", "b", True)
    attempt(messages.with_signature, "s")
    attempt(messages.with_signature, "s")
    request = module.ResponsesRequest({"model": "DeepSeek-V4-Pro", "input": "a"})
    generator = module.ResponsesRequest.chunk_generator(request.convert(module.ConversionOptions()), "a", "m")
    attempt(request.echo)
    attempt(request.namespace_tool_map, module.ConversionOptions())
    attempt(generator.with_namespace_tool_map, {"a": 1})
    attempt(generator.with_namespace_tool_map, {"a": ("b", "c")})
    attempt(generator.with_echo, module.ResponsesEcho())
    return seen


def test_what_serves_once(wheel: ModuleType) -> None:
    assert single_use(compat) == single_use(wheel)
