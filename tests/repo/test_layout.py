"""The folders, the links that make them one package, and the one place of the version."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import deepinfer
from deepinfer.hal.catalog import BUILT_IN

FOLDERS = ("backends", "conformance", "hal", "model", "ops", "recipe", "runtime")


def test_each_folder_has_one_relative_link(root: Path) -> None:
    package = root / "src" / "deepinfer"
    links = {entry.name: os.readlink(entry) for entry in package.iterdir() if entry.is_symlink()}
    assert links == {folder: f"../../{folder}" for folder in FOLDERS}
    for folder in FOLDERS:
        assert (package / folder).resolve() == root / folder
        assert (root / folder / "__init__.py").is_file()


def test_git_keeps_the_links_as_links(root: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-s", "src/deepinfer"], cwd=root, check=True, capture_output=True, text=True
    ).stdout
    links = {line.split("\t")[1] for line in listed.splitlines() if line.startswith("120000 ")}
    assert links == {f"src/deepinfer/{folder}" for folder in FOLDERS}


def test_every_folder_with_code_is_a_package(root: Path, files: list[Path]) -> None:
    with_code = {path.parent for path in files if path.suffix == ".py" and path.relative_to(root).parts[0] in FOLDERS}
    assert not [str(folder) for folder in with_code if not (folder / "__init__.py").is_file()]


def test_the_version_has_one_place(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "deepinfer.__version__"}
    tree = ast.parse((root / "src/deepinfer/__init__.py").read_text())
    literals = [
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "__version__"
        and isinstance(node.value, ast.Constant)
    ]
    assert literals == [deepinfer.__version__]


def test_the_command_and_the_distribution_state_that_version() -> None:
    done = subprocess.run([sys.executable, "-m", "deepinfer", "--version"], capture_output=True, text=True)
    assert done.stdout == f"deepinfer {deepinfer.__version__}\n"
    try:
        installed = metadata.version("deepinfer-hal")
    except metadata.PackageNotFoundError:
        pytest.skip("deepinfer-hal is not installed here, only found on the path")
    assert installed == deepinfer.__version__


def test_the_backends_of_the_repository_register_through_the_door_of_plugins(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["deepinfer.backends"] == BUILT_IN
    assert set(BUILT_IN) == {"reference", "cuda", "ascend"}


def test_public_names_are_lazy_and_unknown_ones_are_errors() -> None:
    assert {"LLM", "RequestOutput", "SamplingParams", "__version__"} <= set(dir(deepinfer))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        deepinfer.Nothing  # noqa: B018


@pytest.mark.parametrize("name", ["LLM", "RequestOutput", "SamplingParams"])
def test_public_names_load(name: str) -> None:
    assert getattr(deepinfer, name).__name__ == name
