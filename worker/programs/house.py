"""Where programs are opened and closed: what they are read from, and the sessions between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import msgspec

from proto.program import Program
from worker.cache.scope import CacheScope
from worker.errors import InvalidRequest
from worker.programs.beginning import Beginning, beginning_of
from worker.programs.desk import Desk
from worker.programs.run import ProgramRun, State, Surroundings
from worker.programs.sessions import KeptState, Sessions
from worker.programs.tape import Tape, Writer, packed
from worker.request import FinishReason
from worker.submission import NodeOutput, Output, ProgramInput, Submission

_decoder = msgspec.json.Decoder(Program)


@dataclass(frozen=True, slots=True)
class Kept:
    """Whose pages are kept: under a key, of packed ids, for so long; 0: no longer."""

    key: bytes
    tokens: bytes
    ttl_s: float


class Programs:
    """Of one worker. scope: where a request's pages are shared."""

    def __init__(
        self,
        writer: Writer,
        scope: Callable[[Submission], CacheScope],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._scope = scope
        self._clock = clock
        self.sessions = Sessions(clock)

    @asynccontextmanager
    async def opened(
        self, submission: Submission, asked: ProgramInput, desk: Desk
    ) -> AsyncIterator[ProgramRun]:
        """Opens a program's run; if it fails or is given up, its session stays as it was.

        Raises InvalidRequest, SessionLost.
        """
        with self._begun(submission, asked) as state:
            program, beginning = await asyncio.to_thread(self._read, submission, asked)
            desk.beginning = beginning
            around = Surroundings(
                self._writer,
                self._scope(submission),
                submission.share.priority,
                self._clock,
            )
            given = {(node.name, node.index): node for node in asked.nodes}
            yield ProgramRun(program, state, around, desk, given)

    @contextmanager
    def _begun(self, submission: Submission, asked: ProgramInput) -> Iterator[State]:
        """What a program goes on from. A session's runs one program at a time."""
        session, namespace = asked.session, submission.namespace
        if session is None or not session.resumes:
            yield State(Tape(self._writer))
            return
        kept = self.sessions.take(session.id, namespace)
        try:
            yield kept.state.copy()
        except BaseException:
            self.sessions.keep(session.id, namespace, kept)
            raise

    def _read(
        self, submission: Submission, asked: ProgramInput
    ) -> tuple[Program, Beginning | None]:
        self._writer.warm()
        try:
            program = _decoder.decode(asked.source)
        except (msgspec.DecodeError, RecursionError) as error:
            message = f"This worker can't read the program: {error}"
            raise InvalidRequest("program", message) from error
        goes_on = asked.session is not None and asked.session.resumes
        named = () if goes_on else submission.boundaries
        return program, beginning_of(program.program, named, self._writer)

    def close(self, submission: Submission, asked: ProgramInput, run: ProgramRun) -> Kept | None:
        """Keeps what the next program goes on from; returns the pages that are wanted for that."""
        session = asked.session
        if session is None:
            return None
        if session.ttl_s:
            kept = KeptState(run.state, session.ttl_s)
            self.sessions.keep(session.id, submission.namespace, kept)
        key = session.id.encode() + b"/" + submission.namespace
        return Kept(key, packed(run.state.tape.ids), float(session.ttl_s))


def node_output(node: NodeOutput) -> Output:
    """Returns what a link is given for a node; the last one ends the request's choice."""
    return Output(0, "", [], finish=None if node.name else FinishReason.STOP, nodes=(node,))
