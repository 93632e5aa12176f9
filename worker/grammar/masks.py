"""Outlooks of many answers, computed beside the engine's thread.

    engine's thread    ask ----> threads: matcher.advance ----> take    engine's thread
                                                          \\--> on_news

An answer is asked for once at a time: its next question follows when the last outlook was taken.
Whoever has left meanwhile is skipped, or their outlook is dropped when it comes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from worker.errors import InternalError
from worker.grammar.matcher import Matcher
from worker.grammar.outlook import Outlook

log = logging.getLogger("pando.worker.masks")

THREADS = 2

_Question = tuple[int, Matcher, Sequence[int]]


class Masks:
    """All methods but the threads' own are the engine's. num_threads 0: `ask` computes at once.

    on_news: called in a thread whenever an outlook has come.
    """

    def __init__(
        self, num_threads: int = 0, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._num_threads = num_threads
        self._clock = clock
        self._questions: SimpleQueue[_Question | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._asked: set[int] = set()
        self._arrived: deque[tuple[int, Outlook]] = deque()
        self._seconds: deque[float] = deque()
        self._done = threading.Condition()
        self.on_news: Callable[[], object] = _nothing

    def start(self) -> None:
        """The threads run, if they don't yet."""
        while len(self._threads) < self._num_threads:
            thread = threading.Thread(target=self._work, name="masks", daemon=True)
            self._threads.append(thread)
            thread.start()

    def ask(self, number: int, matcher: Matcher, tokens: Sequence[int]) -> None:
        """Wants to know what follows these tokens of an answer."""
        self._asked.add(number)
        if self._num_threads == 0:
            self._answer(number, matcher, tokens)
            return
        self.start()
        self._questions.put((number, matcher, tokens))

    def forget(self, number: int) -> None:
        """An answer has ended: nothing more is told of it."""
        self._asked.discard(number)

    @property
    def has_news(self) -> bool:
        """Whether there is anything to take."""
        return bool(self._arrived)

    def wait(self, seconds: float) -> None:
        """Returns when everything has been told that was asked, or after so long."""
        with self._done:
            self._done.wait_for(lambda: len(self._arrived) >= len(self._asked), seconds)

    def take(self) -> list[tuple[int, Outlook]]:
        """Returns what has come since the last call."""
        taken = []
        while self._arrived:
            number, outlook = self._arrived.popleft()
            if number in self._asked:
                self._asked.discard(number)
                taken.append((number, outlook))
        return taken

    def take_seconds(self) -> list[float]:
        """Returns how long each outlook has taken since the last call."""
        taken = []
        while self._seconds:
            taken.append(self._seconds.popleft())
        return taken

    def close(self) -> None:
        """Ends the threads after what they compute."""
        for _ in self._threads:
            self._questions.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _work(self) -> None:
        while (question := self._questions.get()) is not None:
            if question[0] in self._asked:
                self._answer(*question)

    def _answer(self, number: int, matcher: Matcher, tokens: Sequence[int]) -> None:
        began = self._clock()
        try:
            outlook = matcher.advance(tokens)
        except BaseException:
            log.exception("mask failed")
            outlook = Outlook(failure=InternalError())
        self._seconds.append(self._clock() - began)
        with self._done:
            self._arrived.append((number, outlook))
            self._done.notify_all()
        self.on_news()


def _nothing() -> None:
    """Nobody waits."""
