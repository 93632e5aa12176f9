"""What is known of pages that were given up: whose, for whom, how old, how long unused."""

from __future__ import annotations

# Buckets of a histogram: the last one takes everything from 2 ** (NUM_BUCKETS - 2) on.
NUM_BUCKETS = 40
# Pairs of accounts that are told apart; what comes beyond is counted under OTHERS.
MAX_PAIRS = 4096
OTHERS = (b"*", b"*")


class Histogram:
    """Counts of whole numbers by their length in bits: counts[i] are those in [2^(i-1), 2^i)."""

    def __init__(self) -> None:
        self.counts = [0] * NUM_BUCKETS
        self.total = 0

    def note(self, value: int) -> None:
        """Counts a value."""
        self.counts[min(value.bit_length(), NUM_BUCKETS - 1)] += 1
        self.total += value


class EvictionRecord:
    """Counters since the process started.

    by_pressure: pages by (account that lost it, account that needed room). lifetime and idle: pages
    handed out between a page's entry into the index, or its last release, and its eviction.
    """

    def __init__(self) -> None:
        self.by_pressure: dict[tuple[bytes, bytes], int] = {}
        self.lifetime = Histogram()
        self.idle = Histogram()

    def note(self, victim: bytes, pressing: bytes) -> None:
        """Counts an evicted page."""
        pair = (victim, pressing)
        if pair not in self.by_pressure and len(self.by_pressure) >= MAX_PAIRS:
            pair = OTHERS
        self.by_pressure[pair] = self.by_pressure.get(pair, 0) + 1

    @property
    def by_account(self) -> dict[bytes, int]:
        """Pages that each account lost."""
        counts: dict[bytes, int] = {}
        for (victim, _), count in self.by_pressure.items():
            counts[victim] = counts.get(victim, 0) + count
        return counts
