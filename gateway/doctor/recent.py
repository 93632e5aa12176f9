"""The last findings of each tenant, and how often each was made. Bounded.

reasons     how often each was found, since the start
counts      the same of one tenant
findings    the last ones that are no hits, the newest first
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field, replace

from gateway.doctor.finding import Finding, Reason

MAX_TENANTS = 256
MAX_FINDINGS = 50
# Places of one tenant that are counted apart.
MAX_PLACES = 200


@dataclass(frozen=True, slots=True)
class Noted:
    """A finding and when it was made, in seconds of the doctor's clock."""

    at: float
    finding: Finding


@dataclass(slots=True)
class _Tenant:
    reasons: Counter[Reason] = field(default_factory=Counter)
    places: OrderedDict[tuple[Reason, str], int] = field(default_factory=OrderedDict)
    last: deque[Noted] = field(default_factory=lambda: deque(maxlen=MAX_FINDINGS))


class Recent:
    """Tenants that were longest without a request are forgotten first.

    reasons: of all prompts, those of forgotten tenants too; only `note` writes it.
    """

    def __init__(self) -> None:
        self.reasons: Counter[Reason] = Counter()
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()

    def note(self, tenant: str, finding: Finding, now: float) -> Finding:
        """The finding with how often the tenant had it at that place."""
        held = self._tenants.get(tenant)
        if held is None:
            held = self._tenants[tenant] = _Tenant()
            if len(self._tenants) > MAX_TENANTS:
                self._tenants.popitem(last=False)
        self._tenants.move_to_end(tenant)
        self.reasons[finding.reason] += 1
        held.reasons[finding.reason] += 1
        if finding.reason is Reason.HIT:
            return finding
        place = (finding.reason, finding.name)
        times = held.places.pop(place, 0) + 1
        held.places[place] = times
        if len(held.places) > MAX_PLACES:
            held.places.popitem(last=False)
        counted = replace(finding, times=times)
        held.last.append(Noted(now, counted))
        return counted

    def counts(self, tenant: str) -> dict[Reason, int]:
        """How often each finding was made."""
        held = self._tenants.get(tenant)
        return dict(held.reasons) if held is not None else {}

    def findings(self, tenant: str) -> list[Noted]:
        """The last ones that are no hits, the newest first."""
        held = self._tenants.get(tenant)
        return list(reversed(held.last)) if held is not None else []

    def tenants(self) -> list[str]:
        """Those that are known, the last one last."""
        return list(self._tenants)
