"""Constraints to grammars, each compiled once while it is in use. Blocks: call it in a thread."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from worker.errors import InvalidRequest
from worker.grammar.compiled import Grammar, compiled
from worker.grammar.source import written
from worker.grammar.vocabulary import Vocabulary
from worker.submission import Constraint
from worker.text.tokenizer import Tokenizer

MAX_GRAMMARS = 64


@dataclass(slots=True)
class Compilations:
    """Since the process started. seconds: of all compilations. hits: found compiled, or refused."""

    compiled: int = 0
    refused: int = 0
    hits: int = 0
    seconds: float = 0.0


class Compiler:
    """Compiles for one model. Safe to use from several threads; one source is compiled once.

    Keeps the last max_grammars sources, refused ones too.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_grammars: int = MAX_GRAMMARS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._vocabulary = Vocabulary(tokenizer)
        self._max_grammars = max_grammars
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, Future[Grammar | InvalidRequest]] = OrderedDict()
        self.tallies = Compilations()

    def compile(self, constraint: Constraint) -> Grammar:
        """Returns the constraint's grammar. Raises InvalidRequest."""
        key = _digest(constraint)
        with self._lock:
            future = self._known.get(key)
            if future is not None:
                self._known.move_to_end(key)
                self.tallies.hits += 1
            else:
                self._known[key] = mine = Future[Grammar | InvalidRequest]()
                while len(self._known) > self._max_grammars:
                    self._known.popitem(last=False)
        if future is None:
            self._work(key, constraint, mine)
            future = mine
        found = future.result()
        if isinstance(found, InvalidRequest):
            raise InvalidRequest(found.param, found.message)
        return found

    def _work(
        self, key: bytes, constraint: Constraint, future: Future[Grammar | InvalidRequest]
    ) -> None:
        """Compiles for all who wait for it."""
        began = self._clock()
        found: Grammar | InvalidRequest
        try:
            tokens = self._vocabulary.tokens()
            found = compiled(written(constraint), tokens)
        except InvalidRequest as error:
            found = error
        except BaseException as error:
            with self._lock:
                self._known.pop(key, None)
            future.set_exception(error)
            return
        with self._lock:
            refused = isinstance(found, InvalidRequest)
            self.tallies.refused += refused
            self.tallies.compiled += not refused
            self.tallies.seconds += self._clock() - began
        future.set_result(found)


def _digest(constraint: Constraint) -> bytes:
    """Names a constraint; lengths keep two lists of choices apart."""
    digest = hashlib.blake2b(constraint.language.value.encode(), digest_size=16)
    ids = ",".join(map(str, sorted(constraint.ids)))
    for text in (constraint.param, ids, constraint.source, *constraint.choices):
        data = text.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()
