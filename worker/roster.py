"""Who is live: every request of a worker from its acceptance to its one end.

Lives on one event loop, and is written by `entry` and `service` alone. Whatever becomes of a
request, `end` takes it out of the engine, and its link is told once, by `done` or `fail`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from worker.engine import Engine
from worker.errors import RequestFailed, failure_of
from worker.intake import Intake
from worker.live import LiveRequest, Outlet, Tallies
from worker.sequence import SequenceSpec
from worker.stream import RequestStream
from worker.submission import Output, Usage

log = logging.getLogger("pando.worker.roster")


class Roster:
    """The live requests by link and number, and by sequence. The engine is named once it is built.

    assigned: prompt tokens expected of requests without output, by link. clock: the engine's.
    """

    def __init__(self, intake: Intake, clock: Callable[[], float]) -> None:
        self._intake = intake
        self._clock = clock
        self._requests: dict[tuple[Outlet, int], LiveRequest] = {}
        self._by_sequence: dict[int, LiveRequest] = {}
        self._ended = asyncio.Event()
        self.engine: Engine | None = None
        self.assigned: Counter[Outlet] = Counter()
        self.tallies = Tallies()

    def __len__(self) -> int:
        """Requests accepted and not ended."""
        return len(self._requests)

    def __iter__(self) -> Iterator[LiveRequest]:
        """Those that are live now, whatever ends meanwhile."""
        return iter(list(self._requests.values()))

    @property
    def num_sequences(self) -> int:
        """Sequences in the engine."""
        return len(self._by_sequence)

    def find(self, outlet: Outlet, request_id: int) -> LiveRequest | None:
        """A link's request of this number, while it is live."""
        return self._requests.get((outlet, request_id))

    def of_sequence(self, sequence_id: int) -> LiveRequest | None:
        """Whose sequence it is; None once it has ended."""
        return self._by_sequence.get(sequence_id)

    async def ends(self) -> None:
        """Returns when a request has ended, or `wake` was called."""
        self._ended.clear()
        await self._ended.wait()

    def wake(self) -> None:
        """Whoever waits in `ends` looks again."""
        self._ended.set()

    def add(self, request: LiveRequest, expected_tokens: int) -> bool:
        """A request is accepted; False where its number is in use."""
        key = (request.outlet, request.request_id)
        if key in self._requests:
            log.error("request id used twice", extra={"request_id": request.trace_id})
            return False
        self.tallies.accepted += 1
        self._requests[key] = request
        self._assign(request, expected_tokens)
        return True

    def enter(self, request: LiveRequest, specs: Sequence[SequenceSpec]) -> None:
        """The engine has the sequences, and their news find the request."""
        assert self.engine is not None
        if specs:
            request.timer.prepared(self._clock())
        self._by_sequence.update((spec.id, request) for spec in specs)
        self.engine.submit(list(specs))

    def left(self, sequence_id: int) -> None:
        """The engine is through with a sequence."""
        self._by_sequence.pop(sequence_id, None)

    def take_out(self, sequence_ids: Sequence[int]) -> None:
        """The engine does nothing more for these sequences."""
        for sequence_id in sequence_ids:
            self.left(sequence_id)
        if sequence_ids and self.engine is not None:
            self.engine.abort(list(sequence_ids))

    def give(self, request: LiveRequest, output: Output) -> None:
        """Something of a request's answer is on its way."""
        request.begun = True
        self._assign(request, 0)
        request.outlet.output(request.request_id, request.telling(output))

    def done(self, request: LiveRequest, usage: Usage) -> None:
        """A request has ended well, unless it had ended before."""
        if self.end(request, "done"):
            request.outlet.done(request.request_id, usage, request.timer.read(self._clock()))

    def fail(self, request: LiveRequest, error: RequestFailed) -> None:
        """A request has ended otherwise, unless it had ended before."""
        if self.end(request, type(error).__name__):
            timing = request.timer.read(self._clock())
            request.outlet.failed(request.request_id, error, timing)
            request.outlet.flush([])

    def guarded(self, request: LiveRequest, action: Callable[[], None]) -> None:
        """Runs an action for one request; whatever it raises ends that request and no other."""
        try:
            action()
        except RequestFailed as error:
            self.fail(request, error)
        except BaseException as error:
            self.defect(request, error)

    def defect(self, request: LiveRequest, error: BaseException) -> None:
        """Logs the exception at hand and fails the request with it; what is none goes on."""
        failure = failure_of(error)
        log.exception(
            "request failed", extra={"request_id": request.trace_id, "tenant": request.tenant}
        )
        self.fail(request, failure)

    def end(self, request: LiveRequest, kind: str) -> bool:
        """Forgets a request and takes it out of the engine; False when it had ended before."""
        if request.ended:
            return False
        request.ended = True
        self._assign(request, 0)
        self.wake()
        del self._requests[(request.outlet, request.request_id)]
        self.tallies.ended(kind)
        self.take_out(request.live_sequences)
        if request.task is not None and request.task is not asyncio.current_task():
            request.task.cancel()
        if request.stream is not None:
            self._remember(request, request.stream)
        return True

    def _assign(self, request: LiveRequest, tokens: int) -> None:
        """Counts the request with so many tokens from now on."""
        self.assigned[request.outlet] += tokens - request.assigned
        request.assigned = tokens

    def _remember(self, request: LiveRequest, stream: RequestStream) -> None:
        """Keeps what the choices said, also of one that was cut."""
        if request.opening is None:
            return
        for choice in stream.choices:
            text, dropped = "".join(choice.given), choice.detokenizer.dropped_space
            self._intake.remember(request.opening, choice.tokens, text, drops_space=dropped)
