"""How an accepted request gets to the engine (step 7 of a request's path).

prepare, in a thread when it is long ──▶ sequences ──▶ engine
program ──▶ a task of its own, which gives the engine a sequence when its branches come to it
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from worker.errors import InvalidRequest, Overloaded, RequestFailed
from worker.intake import Intake
from worker.live import LiveRequest, ServiceLimits
from worker.prepared import Prepared, specs
from worker.programs.desk import Desk
from worker.programs.house import node_output
from worker.roster import Roster
from worker.sequence import SequenceSpec
from worker.stream import RequestStream
from worker.submission import NodeOutput, ProgramInput, Submission
from worker.text.tokenizer import Tokenizer

# Bytes of prompt that are tokenised without leaving the event loop (about a millisecond).
INLINE_BYTES = 4096
# Longer prompts tokenised at once: each takes about a hundred bytes a token meanwhile.
LONG_AT_ONCE = 2


class Entry:
    """Lives on the roster's event loop. Whatever a request is refused for ends it there."""

    def __init__(
        self, roster: Roster, intake: Intake, tokenizer: Tokenizer, limits: ServiceLimits
    ) -> None:
        self._roster = roster
        self._intake = intake
        self._tokenizer = tokenizer
        self._capacity = limits.max_running + limits.max_waiting
        self._ids = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._long = asyncio.Semaphore(LONG_AT_ONCE)
        self._num_preparing = 0
        self._programs = intake.programs()

    def start(self, request: LiveRequest, submission: Submission) -> None:
        """A request is on its way to the engine, or refused."""
        num_here = self._roster.num_sequences + self._num_preparing
        if isinstance(submission.prompt, ProgramInput):
            self._start_program(request, submission, submission.prompt)
        elif submission.n > self._capacity:
            self._roster.fail(request, _too_many(submission.n, self._capacity))
        elif num_here + submission.num_open > self._capacity:
            self._roster.fail(request, Overloaded())
        elif submission.num_bytes <= INLINE_BYTES and not submission.is_restricted:
            self._start_short(request, submission)
        else:
            self._num_preparing += submission.num_open
            task = asyncio.get_running_loop().create_task(self._start_long(request, submission))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _start_short(self, request: LiveRequest, submission: Submission) -> None:
        self._roster.guarded(
            request,
            lambda: self._enter(request, submission, *self._prepare(submission)),
        )

    async def _start_long(self, request: LiveRequest, submission: Submission) -> None:
        roster = self._roster
        try:
            async with self._long:
                if request.ended:
                    return
                prepared, stream = await asyncio.to_thread(self._prepare, submission)
        except RequestFailed as error:
            roster.fail(request, error)
        except BaseException as error:
            roster.defect(request, error)
        else:
            roster.guarded(request, lambda: self._enter(request, submission, prepared, stream))
        finally:
            self._num_preparing -= submission.num_open

    def _prepare(self, submission: Submission) -> tuple[Prepared, RequestStream]:
        """Returns the request in tokens, and what other workers answered of it replayed."""
        prepared = self._intake.prepare(submission)
        if prepared.answer is not None:
            return prepared, RequestStream.answered(prepared.prompt_len, prepared.answer)
        return prepared, RequestStream.open(
            submission, prepared.prompt_len, prepared.stopping, self._tokenizer, prepared.parting
        )

    def _enter(
        self,
        request: LiveRequest,
        submission: Submission,
        prepared: Prepared,
        stream: RequestStream,
    ) -> None:
        """Hands a prepared request to the engine, unless it has ended meanwhile."""
        if request.ended:
            return
        roster = self._roster
        sequences = specs(prepared, submission, stream.open_choices, self._ids)
        stream.enter(sequences)
        request.stream, request.opening = stream, prepared.opening
        if prepared.turn is not None:
            roster.tallies.turns[prepared.turn] += 1
        roster.enter(request, sequences)
        for output in stream.replayed:
            roster.give(request, output)
        if stream.finished:
            roster.done(request, stream.usage)
        if stream.replayed or stream.finished:
            request.outlet.flush([])

    # ------------------------------------------------------------------ programs

    def _start_program(
        self, request: LiveRequest, submission: Submission, program: ProgramInput
    ) -> None:
        """Runs a program in a task of its own: its branches wait for one another, not for steps."""
        roster = self._roster

        # A branch may take one more step before its program's end reaches it.
        def enter(sequences: Sequence[SequenceSpec]) -> None:
            if not request.ended:
                roster.enter(request, sequences)

        def send(node: NodeOutput) -> None:
            if request.ended:
                return
            roster.give(request, node_output(node))
            asyncio.get_running_loop().call_soon(request.outlet.flush, [])

        request.desk = Desk(enter, roster.take_out, send, self._ids, self._intake.grammars)
        work = self._run_program(request, submission, program, request.desk)
        request.task = asyncio.get_running_loop().create_task(work)

    async def _run_program(
        self, request: LiveRequest, submission: Submission, program: ProgramInput, desk: Desk
    ) -> None:
        roster = self._roster
        try:
            async with self._programs.opened(submission, program, desk) as run:
                await run.run()
        except RequestFailed as error:
            roster.fail(request, error)
        except BaseException as error:
            roster.defect(request, error)
        else:
            kept = self._programs.close(submission, program, run)
            if kept is not None and roster.engine is not None:
                roster.engine.pin(kept.key, run.scope, kept.tokens, kept.ttl_s)
            roster.done(request, run.usage)
            request.outlet.flush([])


def _too_many(n: int, capacity: int) -> InvalidRequest:
    return InvalidRequest(
        "n", f"n is {n}; this worker takes at most {capacity} sequences, running and waiting."
    )
