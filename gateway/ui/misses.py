"""Why prompts missed the cache: counts by reason, and the last findings with their places."""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from itertools import islice

from msgspec import Struct

from gateway.doctor.recent import Noted, Recent
from gateway.telemetry.metrics import Telemetry

MAX_FINDINGS = 30
_OF_EACH = 10


class ReasonRow(Struct, frozen=True):
    """How often a reason was found, and the prompt tokens that were computed for it."""

    reason: str
    prompts: int
    uncached_tokens: int


class FindingRow(Struct, frozen=True):
    """A finding. place: `messages[0]:31`. times: that the tenant's prompts had this there."""

    ago_s: float
    tenant: str
    reason: str
    place: str
    sentence: str
    lost_tokens: int
    times: int


class Misses(Struct, frozen=True):
    """Reasons, the most tokens first, and the last findings. known: whether the doctor is asked."""

    known: bool
    reasons: list[ReasonRow]
    findings: list[FindingRow]


def misses(recent: Recent | None, telemetry: Telemetry, now: float) -> Misses:
    """What the doctor found so far. Nothing of a prompt but places and classes."""
    if recent is None:
        return Misses(False, [], [])
    last: list[tuple[float, str, Noted]] = []
    for tenant in recent.tenants():
        last += [(n.at, tenant, n) for n in islice(recent.findings(tenant), _OF_EACH)]
    tokens = _uncached(telemetry)
    found = [(reason.value, count) for reason, count in recent.reasons.items()]
    reasons = [ReasonRow(reason, count, tokens[reason]) for reason, count in found]
    reasons.sort(key=lambda row: (-row.uncached_tokens, -row.prompts, row.reason))
    newest = nlargest(MAX_FINDINGS, last, key=lambda one: one[0])
    return Misses(True, reasons, [_row(tenant, noted, now) for _, tenant, noted in newest])


def _row(tenant: str, noted: Noted, now: float) -> FindingRow:
    found = noted.finding
    return FindingRow(
        ago_s=now - noted.at,
        tenant=tenant,
        reason=found.reason.value,
        place=found.place,
        sentence=found.sentence,
        lost_tokens=found.lost_tokens,
        times=found.times,
    )


def _uncached(telemetry: Telemetry) -> Counter[str]:
    """Computed prompt tokens by reason, of all models."""
    sums: Counter[str] = Counter()
    for family in telemetry.uncached_tokens.collect():
        for sample in family.samples:
            sums[sample.labels["reason"]] += int(sample.value)
    return sums
