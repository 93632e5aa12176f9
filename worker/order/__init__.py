"""Which waiting sequence is admitted next: `first_come` or `cache_aware`, behind `interface`.

Step 8 of a request's path: the scheduler asks whenever a step has room.
"""

from __future__ import annotations

from worker.cache.interface import PrefixCache
from worker.order.cache_aware import CacheAware
from worker.order.first_come import FirstCome
from worker.order.interface import Order

ORDERS = (CacheAware.name, FirstCome.name)


def make_order(name: str, cache: PrefixCache, short_tokens: int, slack_tokens: int) -> Order:
    """Returns one of ORDERS over the cache.

    short_tokens: up to how many tokens to compute a sequence is short. slack_tokens: what an
    account may be ahead of the others.
    """
    if name == FirstCome.name:
        return FirstCome()
    return CacheAware(cache, short_tokens, slack_tokens)
