"""Is what is wrong with a prompt named right? Seeded faults through the real gateway.

    cases by seed ──▶ HTTP ──▶ a gateway process ──▶ fake workers with true finite caches
                       ◀── x-pando-cache: reason=...

Each case is a prompt or a talk that is sent as it should be, and then once more with one thing
wrong. What is told of the requests before counts as well: they are new, or go on as expected, and
anything else is a false alarm.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import httpx

from loadtest.errors import RequestRefused
from loadtest.faults.planted import RENAME, RESTART, TWIN, Case, Sent
from loadtest.report import Report
from loadtest.workloads.doctor_fleet import Target, key_of

NAME = "doctor"
# A real worker on a busy machine takes its time.
TIMEOUT_S = 600.0
CLEAN = ("hit", "never_seen")
_ALONE = ("pinned", "in_turn")


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


def reason_of(header: str) -> str:
    """The reason that `x-pando-cache` names; empty: none."""
    told = dict(part.split("=", 1) for part in header.split(", ") if "=" in part)
    return told.get("reason", "")


async def judge(target: Target, cases: Sequence[Case], at_once: int = 8) -> Outcome:
    """Sends every case's requests in their order, several cases at once. Raises RequestRefused.

    Cases that depend on a worker's whole cache, or on whose turn it is, go one by one. Those in
    which something happens wait for it together.
    """
    outcome = Outcome()
    async with httpx.AsyncClient(base_url=target.url, timeout=TIMEOUT_S, trust_env=False) as http:
        panel = _Panel(http, target, outcome, asyncio.Semaphore(at_once))
        usual = [case for case in cases if case.event not in (RESTART, RENAME)]
        await asyncio.gather(*(panel.one(case) for case in usual if case.tenant not in _ALONE))
        for case in usual:
            if case.tenant in _ALONE:
                await (panel.twins(case) if case.event == TWIN else panel.one(case))
        for event, happen in target.events.items():
            own = [case for case in cases if case.event == event]
            if own:
                await asyncio.gather(*(panel.before(case) for case in own))
                await asyncio.to_thread(happen)
                await asyncio.gather(*(panel.judged(case) for case in own))
    return outcome


@dataclass(frozen=True, slots=True)
class _Panel:
    """Sends cases and counts what is told of them; gate: how many at once."""

    http: httpx.AsyncClient
    target: Target
    outcome: Outcome
    gate: asyncio.Semaphore

    async def one(self, case: Case) -> None:
        """All of the case's requests."""
        async with self.gate:
            await self._before(case)
            self.outcome.judge(case, await self._send(case, case.judged))

    async def twins(self, case: Case) -> None:
        """The case's two requests at once; either may be the first."""
        [warm] = case.warm
        told = await asyncio.gather(self._send(case, warm), self._send(case, case.judged))
        first, second = sorted(told, key=lambda header: reason_of(header) not in CLEAN)
        self.outcome.before(case, warm, first)
        self.outcome.judge(case, second)

    async def before(self, case: Case) -> None:
        """The case's requests before something happens."""
        async with self.gate:
            await self._before(case)

    async def judged(self, case: Case) -> None:
        """The case's last request."""
        async with self.gate:
            self.outcome.judge(case, await self._send(case, case.judged))

    async def _before(self, case: Case) -> None:
        for sent in case.warm:
            self.outcome.before(case, sent, await self._send(case, sent))

    async def _send(self, case: Case, sent: Sent) -> str:
        headers = {"authorization": f"Bearer {key_of(case.tenant)}"}
        body = {"model": self.target.model, **sent.body}
        answer = await self.http.post(sent.path, json=body, headers=headers)
        if answer.is_error:
            raise RequestRefused(f"HTTP {answer.status_code}: {answer.text}")
        return str(answer.headers.get("x-pando-cache", ""))


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
