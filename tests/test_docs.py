"""Whatever a page names of this repository is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
FOLDERS = {
    "deploy",
    "docs",
    "gateway",
    "kernels",
    "loadtest",
    "pando",
    "process",
    "proto",
    "tests",
    "worker",
}
OURS = (".py", ".md", ".proto", ".toml", ".lua", ".c")
FILES = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*")}
FILES |= {path.name for path in ROOT.iterdir()}


def named(text: str) -> Iterator[str]:
    """The paths that stand in backticks, and the targets of links that stay in the repository."""
    for span in re.findall(r"`([^`\n]+)`", text):
        for word in re.findall(r"[\w./{},-]+", span):
            is_path = "/" in word and word.split("/")[0] in FOLDERS
            if is_path or (word.endswith(OURS) and not word.startswith((".", "/"))):
                yield from expanded(word)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            yield f"({target}"


def expanded(word: str) -> Iterator[str]:
    """`a/{b,c}` are two."""
    match = re.fullmatch(r"(.*)\{(.*)\}(.*)", word)
    for middle in match[2].split(",") if match else [""]:
        yield f"{match[1]}{middle}{match[3]}" if match else word


def exists(word: str, page: Path) -> bool:
    """Links count from their page, paths from the root; a module needs no ending."""
    if word.startswith("("):
        return (page.parent / word[1:]).exists()
    if "/" not in word:
        return word in FILES
    from_root = ROOT / word.rstrip(",")
    return from_root.exists() or from_root.with_name(f"{from_root.name}.py").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    missing = [word for word in named(page.read_text("utf-8")) if not exists(word, page)]
    assert missing == []


def test_what_is_missing_is_found() -> None:
    text = (
        "`gateway/app.py` and [a](gone.md#x), `gateway/fleet/{link,none}`, `nowhere.py`, `make up`"
    )
    page = ROOT / "README.md"
    found = [word for word in named(text) if not exists(word, page)]
    assert found == ["gateway/app.py", "gateway/fleet/none", "nowhere.py", "(gone.md"]
