"""One program between the service and the engine: its sequences, and where each one's news go."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from worker.errors import InvalidRequest, RequestFailed
from worker.grammar.compiled import Grammar
from worker.grammar.compiler import Compiler
from worker.programs.beginning import Beginning
from worker.programs.values import Stream
from worker.progress import Progress
from worker.sequence import SequenceSpec
from worker.submission import Constraint, NodeOutput

# Sequences that a program has in the engine at once; the others wait here, and hold up nobody.
MAX_AT_ONCE = 64
Found = TypeVar("Found")


@dataclass(slots=True)
class _Line:
    """What came for one sequence and was not taken yet."""

    cached_tokens: int = 0
    news: deque[Progress | RequestFailed] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def next(self) -> Progress:
        """As Stream.next."""
        while not self.news:
            self.arrived.clear()
            await self.arrived.wait()
        found = self.news.popleft()
        if isinstance(found, RequestFailed):
            raise found
        return found


@dataclass(slots=True)
class Desk:
    """As Port. enter, leave: sequences to the engine, and back from it. send: to the client.

    beginning: what the first sequence tells the gateway of.
    """

    enter: Callable[[Sequence[SequenceSpec]], None]
    leave: Callable[[Sequence[int]], None]
    send: Callable[[NodeOutput], None]
    ids: Iterator[int]
    grammars: Compiler
    beginning: Beginning | None = None
    _lines: dict[int, _Line] = field(default_factory=dict)
    _waiting: deque[SequenceSpec] = field(default_factory=deque)
    _entered: set[int] = field(default_factory=set)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def live(self) -> list[int]:
        """Sequences that may still be in the engine."""
        return list(self._entered)

    def submit(self, specs: Sequence[SequenceSpec]) -> list[Stream]:
        """As Port.submit."""
        lines: list[Stream] = []
        for spec in specs:
            line = self._lines[spec.id] = _Line()
            lines.append(line)
        if self.beginning is not None and specs:
            named = replace(specs[0], boundaries=self.beginning.within(specs[0].prompt))
            specs, self.beginning = [named, *specs[1:]], None
        self._waiting.extend(specs)
        self._fill()
        return lines

    def abort(self, ids: Sequence[int]) -> None:
        """As Port.abort; those that have ended are left alone."""
        left = [one for one in ids if self._lines.pop(one, None) is not None]
        entered = [one for one in left if one in self._entered]
        self._entered.difference_update(entered)
        if entered:
            self.leave(entered)
        self._fill()

    def give(self, output: NodeOutput) -> None:
        """As Port.give."""
        self.send(output)

    def next_id(self) -> int:
        """As Port.next_id."""
        return next(self.ids)

    async def compile(self, constraint: Constraint) -> Grammar:
        """As Port.compile."""
        try:
            return await self.beside(partial(self.grammars.compile, constraint))
        except InvalidRequest as error:
            raise InvalidRequest("program", error.message) from error

    async def beside(self, work: Callable[[], Found]) -> Found:
        """As Port.beside. One piece of work of a program at a time: threads are for everybody."""
        async with self._one:
            return await asyncio.to_thread(work)

    def _fill(self) -> None:
        """Gives the engine as many sequences as may be there."""
        going = []
        while self._waiting and len(self._entered) < MAX_AT_ONCE:
            spec = self._waiting.popleft()
            if spec.id in self._lines:
                self._entered.add(spec.id)
                going.append(spec)
        if going:
            self.enter(going)

    # ------------------------------------------------------------------ what the engine tells

    def admitted(self, sequence_id: int, cached_tokens: int) -> None:
        """A sequence has its pages."""
        line = self._lines.get(sequence_id)
        if line is not None:
            line.cached_tokens = cached_tokens

    def came(self, sequence_id: int, news: Progress | RequestFailed) -> None:
        """A sequence has new tokens, or will have none."""
        line = self._lines.get(sequence_id)
        if line is None:
            return
        line.news.append(news)
        line.arrived.set()
        if isinstance(news, RequestFailed) or news.finish is not None:
            del self._lines[sequence_id]
            self._entered.discard(sequence_id)
            self._fill()
