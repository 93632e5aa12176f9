"""A fleet without sockets, a clock that stands, and requests that go where the router says."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Set
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from gateway.config import RoutingConfig
from gateway.fleet.view import Expectation
from gateway.fleet.workers import Claim, Fleet, Lease, Worker, WorkerInfo
from gateway.request import Usage
from gateway.routing.prefix import Chain, Scope, chat_chain
from gateway.routing.route import Route, Want
from gateway.routing.router import Router
from gateway.telemetry.metrics import Telemetry
from gateway.tenant_config import PolicyConfig
from tests.gateway.conftest import NoDoor

MODEL = "tiny"
SCOPE = Scope(MODEL, b"acme")
# One byte is one token: sizes in tests are tokens.
PLAIN = RoutingConfig(tokens_per_byte=1.0, warm_up_s=0.0)


def text(name: str, num_bytes: int) -> dict[str, object]:
    """A message of about so many bytes that no other name has."""
    filling = name + "." * max(num_bytes - len(name) - 27, 0)
    return {"role": "user", "content": filling}


def system(name: str, num_bytes: int) -> dict[str, object]:
    """The same as a system message."""
    return {**text(name, num_bytes), "role": "system"}


def chain(*messages: dict[str, object]) -> Chain:
    return chat_chain(SCOPE, messages)


@dataclass
class Sent:
    """A request under way."""

    scene: Scene
    want: Want
    route: Route
    lease: Lease
    expectation: Expectation

    @property
    def name(self) -> str:
        return self.route.worker.name

    def first_output(self) -> Sent:
        """The worker computed the prompt, and told so before."""
        view = self.route.worker.view
        for boundary in self.route.boundaries:
            depth = self.want.chain.digests.index(boundary.digest)
            view.store(boundary.digest, self.want.chain.sizes[depth])
        return self.computed()

    def computed(self) -> Sent:
        """The first output came; whether anything was stored is another matter."""
        self.lease.computed()
        self.expectation.computed()
        return self

    def end(self, cached_tokens: int = 0) -> Sent:
        """It is over."""
        self.lease.__exit__()
        self.expectation.over()
        usage = Usage(self.want.chain.num_bytes, cached_tokens, 1)
        self.scene.router.finished(self.want, self.route, usage)
        return self


@dataclass
class Scene:
    """Workers w0, w1, ... of one model."""

    num_workers: int = 4
    settings: RoutingConfig = PLAIN
    now: float = 1000.0
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fleet = Fleet(clock=lambda: self.now)
        self.telemetry = Telemetry(CollectorRegistry(), lambda: self.now)
        chance = random.Random(7)
        self.router = Router(self.fleet, self.settings, self.telemetry, lambda: self.now, chance)
        for number in range(self.num_workers):
            self.join(f"w{number}")
        self.rebuild()

    def join(self, name: str, incarnation: str = "first", prefix_cache: str = "radix") -> Worker:
        info = WorkerInfo(name, incarnation, MODEL, prefix_cache=prefix_cache)
        return self.fleet.join(info, NoDoor())

    def rebuild(self) -> None:
        asyncio.run(self.router.rebuild())

    def worker(self, name: str) -> Worker:
        return next(worker for worker in self.fleet.workers() if worker.name == name)

    def hold(self, name: str, held: Chain, depth: int | None = None) -> None:
        """The worker told that it holds so much of a chain."""
        for digest, size in list(zip(held.digests, held.sizes, strict=True))[:depth]:
            self.worker(name).view.store(digest, size)

    def want(
        self, held: Chain, policy: PolicyConfig | None = None, session: str | None = None
    ) -> Want:
        return Want(MODEL, "acme", held, policy, session)

    def route(
        self,
        wanted: Chain | Want,
        avoid: Set[Worker] = frozenset(),
        eligible: Callable[[Worker], bool] | None = None,
    ) -> Route:
        want = wanted if isinstance(wanted, Want) else self.want(wanted)
        return self.router.route(want, avoid, eligible)

    def send(self, wanted: Chain | Want) -> Sent:
        """Route it, lease its worker and tell the view, as the pipeline does."""
        want = wanted if isinstance(wanted, Want) else self.want(wanted)
        route = self.router.route(want)
        lease = self.fleet.lease(route.worker, Claim(1, route.expected_tokens))
        lease.__enter__()
        sent = Sent(self, want, route, lease, self.router.dispatched(want, route))
        self.sent.append(sent)
        return sent

    def counts(self) -> dict[str, int]:
        """How many requests went to each worker."""
        names = [worker.name for worker in self.fleet.workers()]
        return {name: sum(sent.name == name for sent in self.sent) for name in names}
