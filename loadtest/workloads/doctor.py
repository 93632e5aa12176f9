"""Is what is wrong with a prompt named right? Seeded faults through the real gateway.

    cases by seed ──▶ HTTP ──▶ a gateway process ──▶ fake workers with true finite caches
                       ◀── x-pando-cache: reason=...

Each case is a prompt or a talk that is sent as it should be, and then once more with one thing
wrong. What is told of the requests before counts as well: they are new, or go on as expected, and
anything else is a false alarm.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import msgspec

from loadtest.client import Client
from loadtest.errors import RequestRefused
from loadtest.faults.planted import Case, Sent
from loadtest.parts import PartsWish, running
from loadtest.report import Report
from loadtest.starting import wait_until
from pando.children import Children
from pando.ports import free_ports, listens
from pando.up import ROOT, num_linked

NAME = "doctor"
MODEL = "fake-model"
# Tokens of each fake worker's cache.
CACHE_TOKENS = 100_000_000
SMALL_CACHE_TOKENS = 160_000
START_TIMEOUT_S = 60.0
# A real worker on a busy machine takes its time.
TIMEOUT_S = 600.0
CLEAN = ("hit", "never_seen")
TENANTS: dict[str, dict[str, object]] = {
    "plain": {"policy": {"name": "dedicated", "workers": ["w0"]}},
    "pinned": {"policy": {"name": "dedicated", "workers": ["w2"]}},
    "in_turn": {"policy": {"name": "round_robin"}},
}
_ALONE = ("pinned", "in_turn")
# Tenants of recorded sessions with a fault: each case has one of its own.
REAL_TENANTS = tuple(f"real{number}" for number in range(400))


@dataclass(frozen=True, slots=True)
class Target:
    """A gateway, and what to ask it for."""

    url: str
    model: str = MODEL


@dataclass(slots=True)
class Outcome:
    """named: how often each kind was called what; right: how often that fits.

    alarms: what requests were called with which nothing is wrong. wrong: cases, and the header.
    """

    named: dict[str, Counter[str]] = field(default_factory=dict)
    right: Counter[str] = field(default_factory=Counter)
    alarms: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[Case, str]] = field(default_factory=list)
    num_requests: int = 0

    def judge(self, case: Case, header: str) -> None:
        """Count what a case's last request was told."""
        reason = reason_of(header)
        self.num_requests += 1
        self.named.setdefault(case.kind, Counter())[reason] += 1
        if reason in case.expected:
            self.right[case.kind] += 1
        else:
            self.wrong.append((case, header))
            self.alarms[reason] += case.expected[0] in CLEAN

    def before(self, case: Case, sent: Sent, header: str) -> None:
        """Count what a request was told before a case's fault."""
        self.num_requests += 1
        if reason_of(header) not in CLEAN:
            self.alarms[reason_of(header)] += 1
            self.wrong.append((replace(case, expected=CLEAN, judged=sent), header))

    def share(self, kind: str) -> float:
        """Of a kind, the part that was named right."""
        return self.right[kind] / self.named[kind].total()

    @property
    def named_right(self) -> float:
        """Of all judged requests, the part that was named right."""
        return self.right.total() / sum(told.total() for told in self.named.values())


def key_of(tenant: str) -> str:
    """The tenant's API key."""
    return f"pnd-loadtest-doctor-{tenant}"


def reason_of(header: str) -> str:
    """The reason that `x-pando-cache` names; empty: none."""
    told = dict(part.split("=", 1) for part in header.split(", ") if "=" in part)
    return told.get("reason", "")


async def judge(target: Target, cases: Sequence[Case], at_once: int = 8) -> Outcome:
    """Sends every case's requests in their order, several cases at once. Raises RequestRefused.

    Cases that depend on a worker's whole cache, or on whose turn it is, go one by one.
    """
    outcome, gate = Outcome(), asyncio.Semaphore(at_once)
    async with httpx.AsyncClient(base_url=target.url, timeout=TIMEOUT_S, trust_env=False) as http:

        async def one(case: Case) -> None:
            async with gate:
                for sent in case.warm:
                    outcome.before(case, sent, await _send(http, target, case.tenant, sent))
                outcome.judge(case, await _send(http, target, case.tenant, case.judged))

        await asyncio.gather(*(one(case) for case in cases if case.tenant not in _ALONE))
        for case in cases:
            if case.tenant in _ALONE:
                await one(case)
    return outcome


async def _send(http: httpx.AsyncClient, target: Target, tenant: str, sent: Sent) -> str:
    headers = {"authorization": f"Bearer {key_of(tenant)}"}
    answer = await http.post(sent.path, json={"model": target.model, **sent.body}, headers=headers)
    if answer.is_error:
        raise RequestRefused(f"HTTP {answer.status_code}: {answer.text}")
    return str(answer.headers.get("x-pando-cache", ""))


def gateway_settings() -> dict[str, object]:
    """Tenants that may see what is found, and a doctor that looks at everything."""
    names = {**TENANTS, **dict.fromkeys(REAL_TENANTS, TENANTS["plain"])}
    return {
        "tenants": _tenants(names),
        "doctor": {"examinations_per_s": 100_000, "remember": 200_000},
        "log_level": "warning",
        "link": {"backoff_max_s": 0.2},
    }


def _tenants(names: Mapping[str, Mapping[str, object]]) -> list[dict[str, object]]:
    """Their settings; each may see what is found."""
    return [
        {
            "id": name,
            "namespace": name,
            "debug": True,
            "keys": [hashlib.sha256(key_of(name).encode()).hexdigest()],
            **more,
        }
        for name, more in names.items()
    ]


@contextmanager
def serving() -> Iterator[Target]:
    """Yields a gateway process before three fake workers, the last with a small cache."""
    with tempfile.TemporaryDirectory(prefix="pando-doctor-") as name:
        folder = Path(name)
        with Children(folder, ROOT) as children:
            *workers, port = free_ports(4)
            _start_workers(children, workers[:2], 0, CACHE_TOKENS)
            _start_workers(children, workers[2:], 2, SMALL_CACHE_TOKENS)
            found = [
                {"name": f"w{number}", "address": f"127.0.0.1:{one}"}
                for number, one in enumerate(workers)
            ]
            file = folder / "gateway.json"
            settings = gateway_settings() | {"port": port, "workers": found}
            file.write_bytes(msgspec.json.encode(settings))
            _wait(children, lambda: all(listens(f"127.0.0.1:{one}") for one in workers))
            children.start("gateway", [sys.executable, "-m", "gateway", "--config", str(file)])
            url = f"http://127.0.0.1:{port}"
            with httpx.Client(timeout=5.0, trust_env=False) as client:
                _wait(children, lambda: num_linked(client, url) >= len(workers))
            yield Target(url)


def _start_workers(children: Children, ports: Sequence[int], first: int, cache: int) -> None:
    flags = ["--ports", ",".join(map(str, ports)), "--first", str(first)]
    flags += ["--cache-tokens", str(cache), "--tick-ms", "0", "--prefill-tokens-s", "1e9"]
    command = [sys.executable, "-m", "loadtest.fake.worker", *flags]
    children.start(f"workers-{first}", command)


def _wait(children: Children, condition: Callable[[], bool]) -> None:
    wait_until(condition, children, "not all is ready", START_TIMEOUT_S)


@contextmanager
def serving_fleet(model: str) -> Iterator[Target]:
    """Yields a gateway before one real worker. Raises FleetFailed."""
    settings = gateway_settings() | {"tenants": _tenants({"plain": {}})}
    lines = [f"{name}: {msgspec.json.encode(value).decode()}" for name, value in settings.items()]
    told = "\n".join(lines)
    wish = PartsWish(model, 1, threads=2, kv_memory="1GiB", gateway_settings=told)
    with running(wish) as parts:
        yield Target(parts.urls[0], Client(parts.urls[0], key_of("plain")).first_model())


def report(outcome: Outcome) -> Report:
    """The matrix: a row for what was planted, with the reasons that were named."""
    rows = [
        [
            kind,
            f"{told.total()}",
            f"{outcome.share(kind):.1%}",
            ", ".join(f"{reason or 'none'} {count}" for reason, count in told.most_common()),
        ]
        for kind, told in sorted(outcome.named.items())
    ]
    summary = {
        "named_right": outcome.named_right,
        "classes": float(len(outcome.named)),
        "requests": float(outcome.num_requests),
        "false_alarms": float(outcome.alarms.total()),
    }
    return Report(NAME, ("planted", "cases", "right", "named"), rows, summary)
