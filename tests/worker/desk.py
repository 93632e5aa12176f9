"""A worker's service and engine without a door or a thread: a request runs to its end at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from worker.cache.boundaries import BoundaryEvent
from worker.engine import Engine, StepRunner
from worker.errors import RequestFailed
from worker.intake import Intake
from worker.live import ServiceLimits
from worker.request import FinishReason, TokenLogprobs
from worker.scheduler import Scheduler
from worker.sequence import pack_tokens
from worker.service import Service
from worker.submission import Output, Resumed, Submission, Usage
from worker.text.tokenizer import Tokenizer
from worker.timing import Timing


@dataclass(eq=False)
class Record:
    """An outlet that keeps what came, by request."""

    outputs: list[Output] = field(default_factory=list)
    given: set[int] = field(default_factory=set)
    ends: dict[int, list[Usage | RequestFailed]] = field(default_factory=dict)
    timings: dict[int, Timing] = field(default_factory=dict)
    flushes: int = 0

    def output(self, request_id: int, output: Output) -> None:
        assert request_id not in self.ends, "output after the end"
        self.outputs.append(output)
        self.given.add(request_id)

    def done(self, request_id: int, usage: Usage, timing: Timing) -> None:
        self.timings[request_id] = timing
        self.ends.setdefault(request_id, []).append(usage)

    def failed(self, request_id: int, error: RequestFailed, timing: Timing) -> None:
        self.timings[request_id] = timing
        self.ends.setdefault(request_id, []).append(error)

    def flush(self, events: list[BoundaryEvent]) -> None:
        self.flushes += 1


class Desk:
    """Service and engine, stepped by the test."""

    def __init__(
        self,
        intake: Intake,
        tokenizer: Tokenizer,
        scheduler: Scheduler,
        runner: StepRunner,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.service = Service(intake, tokenizer, ServiceLimits(8, 24), clock)
        self.engine = Engine(scheduler, runner, self.service.on_report, clock)
        self.service.attach(self.engine)

    def run(self, submission: Submission) -> Record:
        """Returns all that came for one request, to its one end."""
        record = Record()
        self.service.connect(record)
        self.service.submit(record, submission)
        while self.engine.step():
            pass
        self.service.disconnect(record)
        assert [len(ends) for ends in record.ends.values()] == [1]
        assert record.flushes
        return record


@dataclass
class Told:
    """What a client has of one choice."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish: FinishReason | None = None
    stop: str | None = None


def told(n: int, *parts: Sequence[Output]) -> list[Told]:
    """Returns what the choices of a request have after these outputs, one part after the other."""
    choices = [Told() for _ in range(n)]
    for output in [output for part in parts for output in part]:
        choice = choices[output.choice]
        assert choice.finish is None, "output behind a choice's end"
        choice.tokens += output.tokens
        choice.text += output.text
        choice.logprobs += output.logprobs
        choice.finish, choice.stop = output.finish, output.stop
    return choices


def resumed(submission: Submission, *parts: Sequence[Output]) -> Submission:
    """Returns the request as a gateway that has these outputs sends it to the next worker."""
    return replace(
        submission,
        resume=tuple(
            Resumed(index, pack_tokens(one.tokens), len(one.text), one.finish is not None)
            for index, one in enumerate(told(submission.n, *parts))
            if one.tokens
        ),
    )
