"""Links between documents resolve, every page is reachable, and the README's commands are the ones that are run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

LINK = re.compile(r"\]\(([^)\s#]+)(?:#([^)\s]+))?\)|\]\(#([^)\s]+)\)")
GENERATE = 'deepinfer generate "Once upon a time"'


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+\s+(.*?)\s*$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_relative_links_resolve(root: Path, files: list[Path]) -> None:
    broken = []
    for page in (path for path in files if path.suffix == ".md"):
        for target, anchor, own in LINK.findall(page.read_text(encoding="utf-8")):
            if target.startswith(("http:", "https:", "mailto:")):
                continue
            aim = (page.parent / target).resolve() if target else page
            if not aim.exists() or not aim.is_relative_to(root):
                broken.append(f"{page.relative_to(root)}: {target}")
            elif (anchor or own) and (anchor or own) not in anchors(aim.read_text(encoding="utf-8")):
                broken.append(f"{page.relative_to(root)}: {target}#{anchor or own}")
    assert not broken, "\n".join(broken)


def test_the_index_links_every_page(root: Path, files: list[Path]) -> None:
    index = root / "docs" / "index.md"
    linked = {(index.parent / target).resolve() for target, _, _ in LINK.findall(index.read_text()) if target}
    pages = {path for path in files if path.suffix == ".md" and path.is_relative_to(root / "docs")}
    assert not sorted(str(page.relative_to(root)) for page in pages - linked - {index})


def test_ci_runs_the_commands_of_the_readme(root: Path) -> None:
    readme = (root / "README.md").read_text()
    assert f"./build.sh && .venv/bin/{GENERATE}" in readme
    assert "\n./build.sh test\n" in readme
    ci = (root / ".ci" / "run").read_text()
    assert "./build.sh test" in ci
    assert GENERATE.replace("deepinfer", '"$bin/deepinfer"', 1) in ci


def test_the_python_example_of_the_readme_runs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), flags=re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    lines = [line for line in capsys.readouterr().out.splitlines() if " -> " in line]
    assert len(lines) == 2
    assert all(line.split(" -> ")[1] not in ("''", '""') for line in lines)


def test_the_example_of_the_engine_page_runs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (root / "docs" / "engine.md").read_text(), flags=re.DOTALL)
    exec(compile(example, "docs/engine.md", "exec"), {})
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert lines[-1].split()[-1] in ("length", "stop")


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_anchors_are_those_of_the_titles(root: Path, name: str) -> None:
    assert "a-title-with-code" in anchors("## A title, with `code`\n")
    assert (root / name).read_text().startswith("# ")
