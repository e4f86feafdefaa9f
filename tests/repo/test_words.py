"""What no file may hold: package registries' hosts, paths of one machine, things outside the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

# Each pattern is written so that it does not match its own line.
PATTERNS = {
    "a registry's host": r"pypi[.]org|python[h]osted|npm[j]s[.]|deb[.]debian|download[.]pytorch|proxy[.]golang"
    r"|crates[.]io|anaconda[.]org",
    "a path of one machine": r"(?<![\w.])/(?:work|root|opt/(?:pypi|wheels))(?:/|\b(?!\w))(?![|)])",
    "a number of a tracker": r"\b[iI]ssue[s]?\s+#?\d",
    "a document outside the repository": r"\b(?:design|bugs)[.]md\b|\bspec/\w+[.]md\b|\.\./share[d]\b",
    "a note on how it was written": r"(?i)co-authored-b[y]|\b(?:this|next|previous|earlier) sessio[n]\b"
    r"|\b(?:sub-?|coding )agen[t]s?\b",
}
LARGEST = 2_000_000  # bytes; larger files are data


def found(text: str) -> list[str]:
    return [
        f"{number}: {meaning}: {match.group()}"
        for number, line in enumerate(text.splitlines(), 1)
        for meaning, pattern in PATTERNS.items()
        for match in re.finditer(pattern, line)
    ]


def test_no_file_holds_them(root: Path, files: list[Path]) -> None:
    faults = []
    for path in files:
        if path.stat().st_size > LARGEST:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        faults += [f"{path.relative_to(root)}:{fault}" for fault in found(text)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "text",
    [
        "--index-url https://" + "pypi" + ".org/simple",
        "https://" + "download" + ".pytorch.org/whl/cpu",
        "see " + "/wor" + "k/main",
        "HOME=" + "/roo" + "t",
        "as asked in " + "issue" + " 2",
        "Issue" + " #14",
        "by " + "design" + ".md, section 3",
        "../" + "shared/cases",
        "the next " + "session will",
    ],
)
def test_a_forbidden_word_is_seen(text: str) -> None:
    assert found(text)


@pytest.mark.parametrize(
    "text",
    [
        "a workload",
        "docs/numerics.md",
        "model/root/x",
        "an issue with 2 rows",
        "the issues of this design",
        "a session",
    ],
)
def test_ordinary_words_pass(text: str) -> None:
    assert not found(text)
