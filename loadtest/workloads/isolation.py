"""What tenants can do to one another through a shared worker: evict, slow down, find out.

flood     virtual time, a worker's own scheduler and cache: four tenants ask about documents of
          their own; then the same while a fifth floods unique prompts at ten times a tenant's
          rate. Beside it: first come first served over a common LRU.
crossing  after the flood a stranger asks everything that the others asked: whatever it finds
          in the cache belongs to somebody else
timing    a real fleet: an attacker times prompts of 8 to 64 tokens that the victim has or has
          not just sent, and guesses. An insider in the victim's namespace does the same, to
          show that the clock can tell.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from statistics import median

from loadtest.client import Client
from loadtest.parts import PartsWish, running
from loadtest.report import Report
from loadtest.virtual_engine import Arrival, Run, run
from worker.cache.eviction import Eviction
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.cache.scope import CacheScope
from worker.request import Sampling, Stopping
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import SequenceSpec, pack_tokens

NAME = "isolation"
COLUMNS = (
    "order, eviction",
    "hits alone",
    "hits in the flood",
    "lost",
    "median TTFT alone, flooded",
)
PAGE_SIZE = 16
LIMITS = SchedulerLimits(max_step_tokens=256, max_running=32)
MEMBERS: dict[str, tuple[str, Eviction]] = {
    "cache_aware, fair": ("cache_aware", "fair"),
    "first_come, lru": ("first_come", "lru"),
}
_VOCABULARY = 49152
_FLOOD = "flood"


@dataclass(frozen=True, slots=True)
class Shape:
    """requests of each tenant over span_s virtual seconds; the flood sends flood_factor times that.

    rounds: of guessing, for each side.
    """

    tenants: int = 4
    documents: int = 3
    requests: int = 60
    span_s: float = 600.0
    flood_factor: int = 10
    rounds: int = 600
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt of a tenant's, packed, and when it comes."""

    at_s: float
    tenant: str
    tokens: bytes


@dataclass(frozen=True, slots=True)
class Flooded:
    """The quiet tenants' hit rates (of prompt tokens) and median TTFT, alone and in the flood."""

    alone: float
    flooded: float
    alone_ttft_s: float
    flooded_ttft_s: float
    crossed_tokens: int

    @property
    def lost(self) -> float:
        """How much of the hits the flood took, of those without it."""
        return 1 - self.flooded / self.alone


def quiet(shape: Shape) -> list[Asked]:
    """What tenants ask about their documents."""
    rng = random.Random(shape.seed)
    asked = []
    for number in range(shape.tenants):
        documents = [_tokens(rng, rng.randint(1000, 2000)) for _ in range(shape.documents)]
        for _ in range(shape.requests):
            tokens = rng.choice(documents) + _tokens(rng, rng.randint(16, 48))
            asked.append(Asked(rng.uniform(0, shape.span_s), f"tenant-{number}", tokens))
    return asked


def flood(shape: Shape) -> list[Asked]:
    """Prompts that nobody sends twice."""
    rng = random.Random(shape.seed + 1)
    return [
        Asked(rng.uniform(0, shape.span_s), _FLOOD, _tokens(rng, rng.randint(500, 1500)))
        for _ in range(shape.requests * shape.flood_factor)
    ]


def measure_flood(member: str, shape: Shape) -> Flooded:
    """Serves the quiet tenants alone and in the flood; then the stranger asks."""
    order, eviction = MEMBERS[member]
    asked = quiet(shape)
    tokens = sum({hash(one.tokens[:4000]): len(one.tokens) // 4 for one in asked}.values())
    num_pages = (int(1.2 * tokens) + LIMITS.max_running * 1000) // PAGE_SIZE

    def served(all_asked: Sequence[Asked]) -> tuple[Run, Scheduler, list[Arrival]]:
        pool = PagePool(num_pages, PAGE_SIZE, eviction=eviction)
        scheduler = Scheduler(RadixCache(pool), LIMITS, order)
        arrivals = _arrivals(all_asked, count(1))
        return run(scheduler, arrivals), scheduler, arrivals

    alone, _, alone_arrivals = served(asked)
    flooded, scheduler, flooded_arrivals = served([*asked, *flood(shape)])
    strange = [replace(one, at_s=0.0, tenant="stranger") for one in asked]
    first_time = {one.tokens: one for one in strange}.values()
    crossed = sum(
        len(scheduler.cache.match(CacheScope.of(b"stranger"), one.tokens).pages)
        for one in first_time
    )
    return Flooded(
        alone=_hit_rate(alone, alone_arrivals),
        flooded=_hit_rate(flooded, flooded_arrivals),
        alone_ttft_s=_ttft(alone, alone_arrivals),
        flooded_ttft_s=_ttft(flooded, flooded_arrivals),
        crossed_tokens=crossed * PAGE_SIZE,
    )


def _arrivals(asked: Sequence[Asked], ids: count[int]) -> list[Arrival]:
    return [
        Arrival(
            one.at_s,
            SequenceSpec(
                next(ids),
                CacheScope.of(one.tenant.encode()),
                one.tokens,
                Sampling(),
                Stopping(32),
            ),
        )
        for one in sorted(asked, key=lambda one: one.at_s)
    ]


def _quiet_ids(arrivals: Sequence[Arrival]) -> list[int]:
    return [one.spec.id for one in arrivals if one.spec.scope.namespace != _FLOOD.encode()]


def _hit_rate(served: Run, arrivals: Sequence[Arrival]) -> float:
    told = [served.told[number] for number in _quiet_ids(arrivals)]
    return sum(one.cached_tokens for one in told) / sum(one.prompt_tokens for one in told)


def _ttft(served: Run, arrivals: Sequence[Arrival]) -> float:
    return median(served.told[number].ttft_s for number in _quiet_ids(arrivals))


def measure_timing(model: str, shape: Shape, progress: Callable[[str], None]) -> dict[str, float]:
    """How well an attacker and an insider tell what the victim has sent: the AUC of their guess."""
    tenants = [
        {"id": "victim", "keys": [_digest("victim")]},
        {"id": "attacker", "keys": [_digest("attacker")]},
        {"id": "insider", "keys": [_digest("insider")], "namespace": "victim"},
    ]
    settings = json.dumps({"tenants": tenants})
    wish = PartsWish(model, num_workers=1, gateway_settings=f"tenants: {settings[12:-1]}\n")
    with running(wish) as parts:
        clients = {one["id"]: Client(parts.urls[0], f"key-{one['id']}") for one in tenants}
        served = clients["victim"].first_model()
        rng = random.Random(shape.seed)
        result = {}
        for spy in ("attacker", "insider"):
            progress(f"timing: {spy}")
            samples: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(shape.rounds):
                secret, decoy = (_ids(rng, 64) for _ in range(2))
                was_sent = rng.random() < 0.5
                clients["victim"].complete(served, secret if was_sent else decoy, 1)
                probe = [*secret[: rng.randint(8, 64)], rng.randrange(1000, _VOCABULARY)]
                samples[was_sent].append(clients[str(spy)].complete(served, probe, 1).ttft_s)
            result[spy] = auc(samples[True], samples[False])
        return result


def auc(sent: Sequence[float], not_sent: Sequence[float]) -> float:
    """The chance that a time of what was sent is shorter; above 0.5 either way: it tells."""
    wins = sum((a < b) + (a == b) / 2 for a in sent for b in not_sent)
    share = wins / (len(sent) * len(not_sent))
    return max(share, 1 - share)


def report(flooded: dict[str, Flooded], timing: dict[str, float]) -> Report:
    """The table; the last line has ours, and the insider and the other order for comparison."""
    ours = flooded["cache_aware, fair"]
    summary = {
        "victim_loss": max(ours.lost, 0.0),
        "cross_hits": ours.crossed_tokens,
        **({"auc": timing["attacker"], "auc_insider": timing["insider"]} if timing else {}),
        "lru_victim_loss": flooded["first_come, lru"].lost,
    }
    return Report(NAME, COLUMNS, [_row(name, one) for name, one in flooded.items()], summary)


def _row(name: str, one: Flooded) -> list[str]:
    return [
        name,
        f"{one.alone:.1%}",
        f"{one.flooded:.1%}",
        f"{one.lost:.1%}",
        f"{one.alone_ttft_s:,.1f} s, {one.flooded_ttft_s:,.1f} s",
    ]


def _tokens(rng: random.Random, length: int) -> bytes:
    return pack_tokens(_ids(rng, length))


def _ids(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(1000, _VOCABULARY) for _ in range(length)]


def _digest(tenant: str) -> str:
    return hashlib.sha256(f"key-{tenant}".encode()).hexdigest()
