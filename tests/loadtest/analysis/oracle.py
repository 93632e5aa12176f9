"""The plain, slow way: caches that hold single units by what lies in front of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

Prompt = tuple[int, ...]
NEVER = 10**9


def lru_hits(prompts: Sequence[Prompt], size: int, page: int = 1) -> list[int]:
    """Of each prompt, tokens from an LRU cache of that many tokens; the last one never counts."""
    held: dict[Prompt, int] = {}
    hits = []
    for number, prompt in enumerate(prompts):
        ends = range(page, len(prompt) + 1, page)
        found = 0
        for end in ends:
            if prompt[:end] not in held:
                break
            if end <= len(prompt) - 1:
                found = end
        hits.append(found)
        for end in ends:
            held[prompt[:end]] = number
        while len(held) * page > size:
            del held[min(held, key=lambda one: (held[one], -len(one)))]
    return hits


def shared(prompts: Sequence[Prompt], page: int = 1) -> list[int]:
    """Of each prompt, tokens that begin an earlier one, by comparing it with all of them."""
    found = []
    for number, prompt in enumerate(prompts):
        best = max((_common(prompt, one) for one in prompts[:number]), default=0)
        found.append(min(best, len(prompt) - 1) // page * page)
    return found


def best_hits(prompts: Sequence[Prompt], size: int) -> int:
    """The most that any cache can hold when it is asked for: every choice is tried."""
    states: dict[frozenset[Prompt], int] = {frozenset(): 0}
    for prompt in prompts:
        units = [prompt[:end] for end in range(1, len(prompt) + 1)]
        after: dict[frozenset[Prompt], int] = {}
        for held, hits in states.items():
            got = hits + sum(one in held for one in units)
            everything = held.union(units)
            for count in range(min(size, len(everything)) + 1):
                for kept in map(frozenset, combinations(everything, count)):
                    after[kept] = max(after.get(kept, 0), got)
        states = after
    return max(states.values())


def _common(first: Prompt, second: Prompt) -> int:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count
