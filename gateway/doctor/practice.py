"""The doctor in the gateway: requests in, findings out, counted; and never in a request's way.

Whatever goes wrong here is logged once, counted, and the request goes on without a finding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gateway.doctor.doctor import Asked, Doctor, Visit
from gateway.doctor.finding import Finding, Reason
from gateway.doctor.prompt import ChatParts, Parts, TextParts
from gateway.doctor.served import Served
from gateway.fleet.departures import Departure, Departures
from gateway.fleet.workers import Fleet
from gateway.request import Ask, ChatPrompt, ProgramPrompt, TextPrompt, Unit, Want
from gateway.routing import route
from gateway.telemetry.log import EventLog
from gateway.telemetry.metrics import Telemetry


class Workers:
    """The fleet as the doctor asks it. Satisfies Fleetwide."""

    def __init__(self, fleet: Fleet, departures: Departures):
        self._fleet = fleet
        self._departures = departures

    def incarnation(self, worker: str) -> str | None:
        """As Fleetwide."""
        found = self._fleet.named(worker)
        return None if found is None else found.info.incarnation

    def holds(self, worker: str, digest: bytes) -> bool:
        """As Fleetwide."""
        found = self._fleet.named(worker)
        return found is not None and digest in found.view.stored

    def num_tokens(self, worker: str, digest: bytes) -> int | None:
        """As Fleetwide; a view that is guessed tells nothing."""
        found = self._fleet.named(worker)
        if found is None or found.view.is_stale:
            return None
        return found.view.stored.get(digest)

    def departure(self, worker: str, digest: bytes) -> Departure | None:
        """As Fleetwide."""
        return self._departures.last(worker, digest)


class Practice:
    """Asks the doctor for every prompt that is computed. doctor None: nobody is asked."""

    def __init__(self, doctor: Doctor | None, telemetry: Telemetry, log: EventLog):
        self.doctor = doctor
        self._telemetry = telemetry
        self._log = log
        self._has_failed = False

    def asked(self, want: route.Want, ask: Ask) -> Visit | None:
        """The prompt is about to be sent; None: nothing will be said of it."""
        if self.doctor is None or ask.want in (Want.TOKENS, Want.TEXT) or not want.chain.digests:
            return None
        asked = Asked(
            tenant=want.tenant,
            model=want.model,
            namespace=ask.namespace,
            chain=want.chain,
            parts=parts_of(want, ask),
            is_whole=not isinstance(ask.prompt, ProgramPrompt),
        )
        try:
            visit = self.doctor.asked(asked, self._telemetry.clock())
        except Exception:
            self._failed()
            return None
        if visit.outcome:
            telemetry = self._telemetry
            telemetry.counter(telemetry.examinations, visit.outcome).inc()
        return visit

    def answered(self, visit: Visit | None, served: Served) -> Finding | None:
        """Its first output came, or its end: what there is to say of it."""
        if self.doctor is None or visit is None:
            return None
        telemetry = self._telemetry
        try:
            finding = self.doctor.answered(visit, served, telemetry.clock())
        except Exception:
            self._failed()
            return None
        asked, reason = visit.asked, finding.reason.value
        telemetry.counter(telemetry.cache_reasons, asked.tenant, asked.model, reason).inc()
        uncached = max(served.prompt_tokens - served.cached_tokens, 0)
        telemetry.counter(telemetry.uncached_tokens, asked.model, reason).inc(uncached)
        if finding.excerpt and finding.reason is not Reason.HIT:
            self._log.info(
                "cache_finding",
                tenant=asked.tenant,
                reason=reason,
                at=finding.place,
                text=finding.excerpt,
            )
        return finding

    def _failed(self) -> None:
        """An exception of ours; the first one is told with its traceback."""
        self._telemetry.counter(self._telemetry.examinations, "failed").inc()
        if not self._has_failed:
            self._has_failed = True
            self._log.exception("doctor_failed")


def parts_of(want: route.Want, ask: Ask) -> Callable[[], Parts] | None:
    """How the prompt's parts are read; None: only its chain is known."""
    if ask.want is not Want.GENERATION:
        return None
    prompt = ask.prompt
    if isinstance(prompt, ChatPrompt):
        return partial(ChatParts, prompt.messages, prompt.tools)
    if isinstance(prompt, TextPrompt) and want.chain.unit is Unit.CHARS:
        return partial(TextParts, prompt.text, want.chain.places)
    return None


def served_by(chosen: route.Route | None, prompt_tokens: int, cached_tokens: int) -> Served:
    """What the worker told of a prompt, and who that is."""
    if chosen is None:
        return Served(prompt_tokens, cached_tokens)
    info = chosen.worker.info
    return Served(
        prompt_tokens,
        cached_tokens,
        worker=info.name,
        incarnation=info.incarnation,
        route=chosen.reason.value,
        has_cache=info.prefix_cache != "off",
    )
