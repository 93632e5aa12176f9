"""The list and the page in docs are about the same benchmarks, and every command is a real one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_group
from typer.testing import CliRunner

from loadtest.__main__ import app
from loadtest.benchmarks.book import Book
from loadtest.benchmarks.command import chosen
from loadtest.benchmarks.entries import ENTRIES
from loadtest.benchmarks.entry import PICTURE, Entry
from loadtest.errors import LoadTestError
from pando.up import ROOT
from tests.loadtest.benchmarks.fakes import page

DOCS = ROOT / "docs"


@pytest.fixture
def handlers() -> Iterator[None]:
    """What signals do is afterwards as it was."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_the_page_has_a_block_for_each_and_says_what_the_results_say() -> None:
    book = Book(DOCS, ENTRIES)
    book.check()
    assert book.written() == (DOCS / "benchmarks.md").read_text("utf-8")


def test_names_are_of_one_benchmark_each() -> None:
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names)
    pictures = [entry.picture for entry in ENTRIES if entry.picture]
    assert len(set(pictures)) == len(pictures)
    assert all((PICTURE in entry.command) == bool(entry.picture) for entry in ENTRIES)
    assert all(entry.figures and entry.shows.endswith(".") for entry in ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_command_is_understood(entry: Entry) -> None:
    module, *words = entry.arguments(DOCS / "pictures")
    place = ROOT / module.replace(".", "/")
    assert (place / "__main__.py").exists() or place.with_suffix(".py").exists()
    if module == "loadtest":
        commands = get_group(app)
        command = commands.commands[words[0]]
        command.make_context(words[0], words[1:])


def test_a_page_without_a_block_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "benchmarks.md").write_text(page(ENTRIES[1:]))
    told = CliRunner().invoke(app, ["bench", "--out", str(tmp_path)])
    assert told.exit_code == 1
    assert f"no block for: {ENTRIES[0].name}" in told.output
    assert [one.name for one in tmp_path.iterdir()] == ["benchmarks.md"]


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("taken", ["benchmarks.json", "pictures"])
def test_a_folder_that_takes_no_results_is_a_sentence(taken: str, tmp_path: Path) -> None:
    (tmp_path / "benchmarks.md").write_text(page(ENTRIES))
    if taken == "pictures":
        (tmp_path / taken).touch()
    else:
        (tmp_path / taken).mkdir()
    told = CliRunner().invoke(app, ["bench", "--only", "caches", "--out", str(tmp_path)])
    assert told.exit_code == 1
    assert "loadtest: [Errno" in told.output


def test_what_is_chosen() -> None:
    plain = chosen(ENTRIES, [], is_long=False)
    long = chosen(ENTRIES, [], is_long=True)
    assert {entry.name for entry in (*plain, *long)} == {entry.name for entry in ENTRIES}
    assert not {entry.name for entry in plain} & {entry.name for entry in long}
    assert [one.name for one in chosen(ENTRIES, ["ladder-full"], is_long=False)] == ["ladder-full"]
    with pytest.raises(LoadTestError, match="'nothing': one of kernels, dflash"):
        chosen(ENTRIES, ["masks", "nothing"], is_long=False)


def test_the_list_names_all() -> None:
    told = CliRunner().invoke(app, ["bench", "--list"])
    assert told.exit_code == 0
    assert all(entry.name in told.output for entry in ENTRIES)
