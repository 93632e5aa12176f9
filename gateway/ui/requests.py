"""The last requests that ended: a row each, and one's whole life by its id."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from msgspec import Struct

from gateway.telemetry.lives import Life
from gateway.telemetry.stays import stays

MAX_ROWS = 50


class RequestRow(Struct, frozen=True):
    """A request in one line. seconds: from its acceptance to its end."""

    id: str
    ago_s: float
    tenant: str
    model: str
    status: int
    worker: str
    prompt_tokens: int
    cached_tokens: int
    seconds: float


class Step(Struct, frozen=True):
    """What happened, seconds after the request was accepted."""

    at_s: float
    what: str


class Span(Struct, frozen=True):
    """A part of a request's time: seconds after its acceptance, and how long."""

    name: str
    at_s: float
    seconds: float


class WorkerTime(Struct, frozen=True):
    """With one worker; phases: what it did then, if it told."""

    worker: str
    at_s: float
    seconds: float
    phases: list[Span]


class RequestView(Struct, frozen=True):
    """A request's life. route: of the API; explanation: why it went to its last worker.

    reason: what the doctor found. prompts: in it; steps and times are the first one's.
    """

    id: str
    ago_s: float
    tenant: str
    model: str
    route: str
    status: int
    outcome: str
    seconds: float
    steps: list[Step]
    workers: list[WorkerTime]
    prompts: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    explanation: str
    reason: str


def request_rows(lives: Iterable[Life], now: float) -> list[RequestRow]:
    """The newest ones, the newest first. lives: so."""
    return [
        RequestRow(
            id=life.request_id,
            ago_s=now - life.ended,
            tenant=life.tenant,
            model=life.model,
            status=life.status,
            worker=life.sent[-1].worker if life.sent else "",
            prompt_tokens=life.prompt_tokens,
            cached_tokens=life.cached_tokens,
            seconds=life.ended - life.began,
        )
        for life in islice(lives, MAX_ROWS)
    ]


def request_view(life: Life, now: float) -> RequestView:
    """All that is known of one."""
    return RequestView(
        id=life.request_id,
        ago_s=now - life.ended,
        tenant=life.tenant,
        model=life.model,
        route=life.route,
        status=life.status,
        outcome=life.outcome,
        seconds=life.ended - life.began,
        steps=_steps(life),
        workers=_workers(life),
        prompts=life.num_parts,
        prompt_tokens=life.prompt_tokens,
        cached_tokens=life.cached_tokens,
        completion_tokens=life.completion_tokens,
        explanation=life.explanation,
        reason=life.finding.header() if life.finding is not None else "",
    )


def _steps(life: Life) -> list[Step]:
    """In the order in which they happened."""
    steps = [Step(0.0, "arrived and queued")]
    steps += [Step(sent.at - life.began, f"sent to {sent.worker}") for sent in life.sent]
    if life.first_output is not None:
        steps.append(Step(life.first_output - life.began, "first output"))
    steps.append(Step(life.ended - life.began, f"ended: {life.outcome}"))
    return sorted(steps, key=lambda step: step.at_s)


def _workers(life: Life) -> list[WorkerTime]:
    """In the order in which it was sent to them."""
    return [
        WorkerTime(
            worker=stay.worker,
            at_s=stay.began - life.began,
            seconds=stay.ended - stay.began,
            phases=[
                Span(phase.name, phase.began - life.began, phase.seconds) for phase in stay.phases
            ],
        )
        for stay in stays(life)
    ]
