"""The document and the results beside it, which say the same at any time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loadtest.benchmarks import document, results, shown
from loadtest.benchmarks.entry import Entry
from loadtest.benchmarks.results import Result
from loadtest.errors import BadDocument

NAME = "benchmarks.md"
RESULTS = "benchmarks.json"
SUMMARY = "summary"


class Book:
    """out: the folder in which both lie, and the pictures below it."""

    def __init__(self, out: Path, entries: Sequence[Entry]) -> None:
        self._page = out / NAME
        self._results = out / RESULTS
        self._entries = entries
        self.pictures = out / "pictures"

    def check(self) -> None:
        """The document has a block for every entry and no other. Raises BadDocument."""
        document.check(self._text(), (SUMMARY, *(entry.name for entry in self._entries)))
        results.load(self._results)

    def keep(self, name: str, result: Result) -> None:
        """The entry's last result is this one, in the file and in the document."""
        results.save(results.load(self._results) | {name: result}, self._results)
        self.write()

    def write(self) -> None:
        """The document says what the results say; its prose is as it was. Raises BadDocument."""
        results.write(self._page, self.written())

    def written(self) -> str:
        """Returns the document as it should be."""
        text, kept = self._text(), results.load(self._results)
        sections = {name: block.section for name, block in document.blocks(text).items()}
        contents = {entry.name: shown.block(entry, kept.get(entry.name)) for entry in self._entries}
        contents[SUMMARY] = shown.summary(self._entries, kept, sections)
        return document.replaced(text, contents)

    def _text(self) -> str:
        try:
            return self._page.read_text("utf-8")
        except OSError as error:
            raise BadDocument(f"{self._page}: {error.strerror}") from error
