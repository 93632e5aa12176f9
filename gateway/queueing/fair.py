"""Who is next among those that wait. Pure: the time is passed in.

    priority class      the highest first; a tenant whose oldest request waits long rises a class
      tenant            the one that was served least, in tokens over its weight
        bucket          requests of one static prefix, drained together, oldest first
                        until another bucket's first request has waited too long

Tenants are compared by a counter of what they were given: prompt tokens as they are sent, output
tokens as they come. One that comes back from idling starts at the least counter of those that
wait, or at that of the last one that waited, so nobody saves up (Virtual Token Counter, Sheng et
al., OSDI 2024; weights and buckets are ours).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """What the queue reads of a request."""

    @property
    def tenant_id(self) -> str:
        """Whose it is."""
        ...

    @property
    def weight(self) -> float:
        """The tenant's share, relative to the others'."""
        ...

    @property
    def rank(self) -> int:
        """Its priority class; 0 goes first."""
        ...

    @property
    def bucket(self) -> bytes:
        """Its static prefix."""
        ...

    @property
    def since(self) -> float:
        """When it began to wait, seconds."""
        ...


# So many of a tenant's oldest requests are looked at when its next one can't be placed.
_LOOK_AHEAD = 8
Item = TypeVar("Item", bound=Waiting)


@dataclass(frozen=True, slots=True)
class Patience:
    """ageing_s: a wait that lifts a tenant one class. bypass_s: how long a bucket may go first."""

    ageing_s: float = 10.0
    bypass_s: float = 2.0


@dataclass(slots=True)
class _Tenant(Generic[Item]):
    """A tenant's waiting requests, by arrival and by bucket, the bucket that is drained first."""

    served: float
    buckets: OrderedDict[bytes, deque[Item]] = field(default_factory=OrderedDict)
    arrivals: OrderedDict[int, Item] = field(default_factory=OrderedDict)

    @property
    def oldest(self) -> Item:
        return next(iter(self.arrivals.values()))


class FairQueue(Generic[Item]):
    """Requests that wait for one model. Counters of tenants outlive their waits, within bounds."""

    def __init__(self, patience: Patience = Patience(), max_counters: int = 10_000):
        self._patience = patience
        self._max_counters = max_counters
        self._tenants: dict[str, _Tenant[Item]] = {}
        self._served: OrderedDict[str, float] = OrderedDict()
        self._last_left = ""
        self._size = 0

    def __len__(self) -> int:
        """How many wait."""
        return self._size

    def counts(self) -> Iterator[tuple[str, int]]:
        """How many wait, by tenant."""
        for tenant_id, tenant in self._tenants.items():
            yield tenant_id, len(tenant.arrivals)

    def put(self, item: Item) -> None:
        """Let it wait."""
        tenant = self._tenants.get(item.tenant_id)
        if tenant is None:
            tenant = self._tenants[item.tenant_id] = _Tenant(self._entry_counter(item.tenant_id))
        tenant.buckets.setdefault(item.bucket, deque()).append(item)
        tenant.arrivals[id(item)] = item
        self._size += 1

    def remove(self, item: Item) -> bool:
        """Let it wait no more; False when it did not."""
        tenant = self._tenants.get(item.tenant_id)
        if tenant is None or tenant.arrivals.pop(id(item), None) is None:
            return False
        bucket = tenant.buckets[item.bucket]
        bucket.remove(item)
        if not bucket:
            del tenant.buckets[item.bucket]
        if not tenant.arrivals:
            del self._tenants[item.tenant_id]
            self._last_left = item.tenant_id
        self._size -= 1
        return True

    def candidates(self, now: float) -> Iterator[Item]:
        """The next request of each tenant, the tenant that is due first, and a few behind it.

        Take with `remove`, and ask again. Those behind are for when the next one can't be placed.
        """
        order = sorted(
            self._tenants.values(), key=lambda tenant: (self._rank(tenant, now), tenant.served)
        )
        for tenant in order:
            head = self._head(tenant, now)
            yield head
            for item in list(islice(tenant.arrivals.values(), _LOOK_AHEAD)):
                if item is not head:
                    yield item

    def charge(self, tenant_id: str, weight: float, tokens: int) -> None:
        """A tenant was given so many tokens."""
        tenant = self._tenants.get(tenant_id)
        before = tenant.served if tenant else self._served.get(tenant_id, 0.0)
        after = before + tokens / weight
        if tenant is not None:
            tenant.served = after
        self._served[tenant_id] = after
        self._served.move_to_end(tenant_id)
        if len(self._served) > self._max_counters:
            self._served.popitem(last=False)

    def _entry_counter(self, tenant_id: str) -> float:
        own = self._served.get(tenant_id, 0.0)
        left = self._served.get(self._last_left, 0.0)
        return max(own, min((tenant.served for tenant in self._tenants.values()), default=left))

    def _rank(self, tenant: _Tenant[Item], now: float) -> float:
        oldest = tenant.oldest
        return oldest.rank - (now - oldest.since) // self._patience.ageing_s

    def _head(self, tenant: _Tenant[Item], now: float) -> Item:
        """The bucket that is being drained goes on, unless another one's first waits too long."""
        first = next(iter(tenant.buckets.values()))[0]
        oldest = tenant.oldest
        late = now - oldest.since > self._patience.bypass_s
        return oldest if late else first
