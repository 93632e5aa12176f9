"""Which worker, and why: a prompt's chain against the views, the rings and the fleet's load.

    route       look, choose; nothing changes, so a request that waits may ask again and again
    dispatched  the request goes there: the view expects what it brings
    finished    what the worker said it was: the density is learned, the prediction is judged

One roster per model. It follows the fleet with every decision; its ring follows in the background.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from functools import partial

from gateway.config import RoutingConfig
from gateway.errors import NoWorker
from gateway.fleet.view import Expectation
from gateway.fleet.workers import Fleet, Worker
from gateway.request import Unit, Usage
from gateway.routing.cost import Scale
from gateway.routing.demand import Demand
from gateway.routing.density import Density
from gateway.routing.policies import POLICIES, Loads, Situation
from gateway.routing.prefix import TOKEN_BYTES
from gateway.routing.ring import Ring
from gateway.routing.roster import Roster
from gateway.routing.route import Decision, NoCredit, Reason, Route, Want
from gateway.routing.warmup import WarmUp
from gateway.telemetry.metrics import Telemetry
from gateway.tenant_config import PolicyConfig

Eligible = Callable[[Worker], bool]

# How often guesses and the workers' own accounts are looked through.
_REVIEW_S = 1.0
# Reasons for which a worker has a request without holding most of it.
_STARTS = (Reason.MISS, Reason.ONE_CHOICE, Reason.DIVERTED, Reason.LEAST_LOADED)


@dataclass(slots=True)
class _Model:
    """What is known of one model's workers and prompts."""

    roster: Roster
    density: Density
    warm_up: WarmUp
    demand: Demand = field(default_factory=Demand)
    review_at: float = 0.0


class Router:
    """Chooses workers. Lives in one event loop."""

    def __init__(
        self,
        fleet: Fleet,
        settings: RoutingConfig,
        telemetry: Telemetry,
        clock: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
    ):
        self._fleet = fleet
        self._settings = settings
        self._telemetry = telemetry
        self._clock = clock
        self._chance = chance or random.Random()
        self._scale = Scale(
            reuse_weight=settings.reuse_weight,
            crowd_tokens=settings.crowd_tokens,
            work_weight=settings.work_weight,
            miss_share=settings.miss_share,
        )
        self._models: dict[str, _Model] = {}
        self._version = -1

    def route(
        self,
        want: Want,
        avoid: Set[Worker] = frozenset(),
        eligible: Eligible | None = None,
    ) -> Route:
        """The worker for a prompt; never one of `avoid`, which failed it, nor one not eligible.

        Raises NoWorker where nobody may ever have it, NoCredit where nobody takes it now.
        """
        model = self._model(want.model)
        policy = want.policy or self._settings.policy
        at = self._situation(model, want, policy)
        choose = POLICIES[policy.name]
        decision = choose(at)
        if decision is not None and _refused(decision.worker, avoid, eligible):
            may = model.roster.seats(lambda worker: not _refused(worker, avoid, eligible))
            decision = choose(at.within(may))
        if decision is None:
            raise self._nobody(at, avoid, eligible)
        return self._route(at, decision)

    def dispatched(self, want: Want, route: Route) -> Expectation:
        """The request goes there now: until it is computed, the worker is expected to hold it.

        The caller tells the expectation when the first output comes, and when it is over.
        """
        now, worker, digests = self._clock(), route.worker, want.chain.digests
        model = self._model(want.model)
        model.roster.work.add(worker.name, route.expected_tokens, now)
        if route.reason in _STARTS:
            model.warm_up.started(worker)
        elif route.reason is Reason.IN_TURN:
            model.roster.had_turn(worker)
        if route.deepest:
            model.demand.add(digests[route.deepest - 1], now)
        if route.depth:
            worker.view.touch(digests[route.depth - 1])
        telemetry = self._telemetry
        telemetry.counter(telemetry.routes, worker.name, route.policy, route.reason.value).inc()
        if worker.info.prefix_cache == "off":
            return worker.view.expect((), now)
        places = {boundary.digest for boundary in route.boundaries}
        density = self._density(model, want)
        matched_bytes = want.chain.num_bytes - want.chain.bytes_after(route.depth)
        return worker.view.expect(
            (
                (digest, route.matched_tokens + int((size - matched_bytes) * density))
                for digest, size in zip(digests, want.chain.sizes, strict=True)
                if digest in places
            ),
            now,
        )

    def finished(self, want: Want, route: Route, usage: Usage) -> None:
        """A worker computed the prompt: learn how long it was, and how much of it was there."""
        chain = want.chain
        if chain.unit is not Unit.TOKENS:
            self._model(want.model).density.learn(chain.num_bytes, usage.prompt_tokens)
        telemetry = self._telemetry
        telemetry.counter(telemetry.predicted_tokens, want.model).inc(
            min(route.matched_tokens, usage.prompt_tokens)
        )
        missed = abs(route.matched_tokens - usage.cached_tokens)
        telemetry.counter(telemetry.prediction_error, want.model).inc(
            min(missed, usage.prompt_tokens)
        )

    async def follow_fleet(self) -> None:
        """Keep the rings up to date, for ever; each is built in a thread and swapped in whole."""
        while True:
            await self._fleet.changed.wait()
            self._fleet.changed.clear()
            await self.rebuild()

    async def rebuild(self) -> None:
        """Bring the rings of the models that changed up to the fleet."""
        self._follow()
        for model in list(self._models.values()):
            names, ring = model.roster.names, model.roster.ring
            if ring is None or ring.names != names:
                model.roster.ring = await asyncio.to_thread(Ring, names, self._settings.vnodes)

    # ------------------------------------------------------------------ inside

    def _model(self, name: str) -> _Model:
        if self._version != self._fleet.version:
            self._follow()
        model = self._models.get(name)
        return model if model is not None else self._new_model()

    def _new_model(self) -> _Model:
        settings = self._settings
        return _Model(
            Roster(settings),
            Density(settings.tokens_per_byte),
            WarmUp(settings.warm_up_s, settings.warm_up_share),
        )

    def _follow(self) -> None:
        """The rosters have exactly the workers that serve now."""
        self._version = self._fleet.version
        serving = {name: self._fleet.serving(name) for name in self._fleet.models()}
        for name in self._models.keys() | serving.keys():
            if name not in self._models:
                self._models[name] = self._new_model()
            workers = serving.get(name, {}).values()
            self._models[name].roster.follow(workers)
            self._models[name].warm_up.follow(workers, self._clock())

    def _density(self, model: _Model, want: Want) -> float:
        if want.chain.unit is Unit.TOKENS:
            return 1 / TOKEN_BYTES
        return model.density.tokens_per_byte

    def _situation(self, model: _Model, want: Want, policy: PolicyConfig) -> Situation:
        now, roster = self._clock(), model.roster
        roster.sweep()
        if now >= model.review_at:
            model.review_at = now + _REVIEW_S
            roster.review(now)
        return Situation(
            want=want,
            policy=policy,
            roster=roster,
            among=roster.index.live,
            scale=self._scale,
            loads=Loads(roster, self._scale, now),
            tokens_per_byte=self._density(model, want),
            max_replicas=self._settings.max_replicas,
            share_of=partial(model.demand.share, num_workers=len(roster), now=now),
            may_start=model.warm_up.gate(now),
            chance=self._chance,
        )

    def _route(self, at: Situation, decision: Decision) -> Route:
        worker, chain, depth = decision.worker, at.want.chain, decision.depth
        matched = (worker.view.tokens(at.digests[depth - 1]) or 0) if depth else 0
        stored = worker.view.stored
        return Route(
            worker=worker,
            reason=decision.reason,
            policy=at.policy.name,
            matched_tokens=matched,
            prompt_tokens=matched + at.missing(depth),
            depth=depth,
            deepest=decision.deepest,
            queued_tokens=worker.queued_tokens,
            boundaries=chain.boundaries(self._settings.max_boundaries, stored),
            others=decision.others,
        )

    def _nobody(self, at: Situation, avoid: Set[Worker], eligible: Eligible | None) -> Exception:
        """Why nobody has it: all lack credit now, or none is there that may."""
        if eligible is not None:
            untried = at.roster.seats(lambda worker: worker not in avoid)
            if POLICIES[at.policy.name](at.within(untried)) is not None:
                return NoCredit()
        want = at.want
        seated = at.policy.workers
        if seated and not any(name in self._fleet.serving(want.model) for name in seated):
            whose = f"the policy of tenant {want.tenant!r}" if want.policy else "routing.policy"
            names = ", ".join(seated)
            return NoWorker(
                f"{whose} names no worker that lives and serves {want.model!r}: {names}"
            )
        return NoWorker(f"no worker for {want.model!r}, {len(avoid)} tried")


def _refused(worker: Worker, avoid: Set[Worker], eligible: Eligible | None) -> bool:
    return worker in avoid or (eligible is not None and not eligible(worker))
