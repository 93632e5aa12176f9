"""One pass over a log: every request into the tree, and what follows from it.

log ── entry ── script ── tree ──┬── recency, by token and by page
                                 ├── checkup
                                 └── kept: where its path ends, for what needs the whole tree
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from loadtest.analysis.checkup import Examination
from loadtest.analysis.forms import Entry, NoRequest
from loadtest.analysis.log import Log
from loadtest.analysis.recency import Curve, Recency
from loadtest.analysis.tree import Mark, Node, Tree
from loadtest.analysis.writing import Script, Written
from loadtest.errors import UnreadableLog

PAGE_TOKENS = 16
MAX_REQUESTS, MAX_BYTES = 200_000, 1 << 30
# The first requests of a log are enough for a fleet.
MAX_REPLAYED = 12_500


@dataclass(frozen=True, slots=True)
class Limits:
    """Where reading stops: after so many requests, or bytes of symbols, each counted once."""

    requests: int = MAX_REQUESTS
    bytes: int = MAX_BYTES


@dataclass(frozen=True, slots=True)
class Kept:
    """A request that may be replayed: where its path ends, its messages, time and answer."""

    node: Node
    marks: tuple[Mark, ...]
    at_s: float | None
    output_tokens: int | None


@dataclass(slots=True)
class Survey:
    """What one pass gathers. Lengths in units of the tree's grain. why_not: it stopped early."""

    log: Log
    script: Script
    limits: Limits
    examination: Examination
    page_tokens: int = PAGE_TOKENS
    tree: Tree = field(init=False)
    nodes: list[Node] = field(default_factory=list)
    lengths: array[int] = field(default_factory=lambda: array("q"))
    shared: array[int] = field(default_factory=lambda: array("q"))
    paged: array[int] = field(default_factory=lambda: array("q"))
    kept: list[Kept] = field(default_factory=list)
    first_s: float | None = None
    last_s: float | None = None
    backwards: int = 0
    why_not: str = ""
    _exact: Recency = field(init=False)
    _pages: Recency = field(init=False)

    def run(self) -> None:
        """The log is read. Raises UnreadableLog where no line of it is a request."""
        for entry, written in self._written():
            if not self.nodes:
                self._begin()
            self._take(entry, written)
            if len(self.nodes) >= self.limits.requests:
                self.why_not = f"--max-requests is {self.limits.requests:,}"
            elif self.tree.size > self.limits.bytes:
                self.why_not = f"{self.limits.bytes >> 20:,} MiB of distinct prompts are held"
            if self.why_not:
                return
        if not self.nodes:
            first = self.log.named[0] if self.log.named else None
            why = f": line {first.number}: {first.reason}" if first else ""
            raise UnreadableLog(f"{self.log.path} holds no request{why}")

    def tokens(self, units: int) -> int:
        """The length in tokens."""
        return units // self.tree.grain.per_token

    def curves(self) -> tuple[Curve, Curve]:
        """Hits by size: to the token, and by page."""
        return self._exact.curve(), self._pages.curve()

    def _written(self) -> Iterator[tuple[Entry, Written]]:
        for entry in self.log.entries():
            try:
                yield entry, self.script.write(entry.prompt)
            except NoRequest as error:
                self.log.leave_out(str(error))

    def _begin(self) -> None:
        """The first prompt has told the grain."""
        grain = self.script.grain
        self.tree = Tree(grain)
        self._exact = Recency(1, self.limits.requests)
        self._pages = Recency(self.page_tokens * grain.per_token, self.limits.requests)

    def _take(self, entry: Entry, written: Written) -> None:
        grain = self.tree.grain
        passage = self.tree.add(written.symbols, written.marks)
        whole = passage.node.end * grain.span
        usable = max(written.length - grain.per_token, 0)
        shared = self._exact.add(passage.stretches, whole, usable)
        paged = self._pages.add(passage.stretches, whole, usable)
        self.nodes.append(passage.node)
        self.lengths.append(written.length)
        self.shared.append(shared)
        self.paged.append(paged)
        if len(self.kept) < MAX_REPLAYED:
            one = Kept(passage.node, written.marks, entry.at_s, entry.output_tokens)
            self.kept.append(one)
        self._clock(entry.at_s)
        self.examination.take(entry.prompt, self.tokens(written.length), self.tokens(shared))

    def _clock(self, at_s: float | None) -> None:
        if at_s is None:
            return
        if self.first_s is None:
            self.first_s = at_s
        self.backwards += self.last_s is not None and at_s < self.last_s
        self.last_s = at_s


def quantile(ordered: Sequence[int], share: float) -> int:
    """The least of the values that so many are at most; ordered: not empty."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
