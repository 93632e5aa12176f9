"""Faults of the analysis and of the memory plan: what is counted once too often, or not at all."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

SIZES = "tests/loadtest/analysis/test_sizes.py"
STUDY = "tests/loadtest/analysis/test_study.py"

tree = Room("loadtest/analysis/tree.py", (SIZES,))
recency = Room("loadtest/analysis/recency.py", (SIZES,))
clairvoyant = Room("loadtest/analysis/clairvoyant.py", (SIZES,))
checkup = Room("loadtest/analysis/checkup.py", (STUDY,))
memory_plan = Room("worker/model/memory_plan.py", ("tests/worker/model/test_memory_plan.py",))

FAULTS: tuple[Fault, ...] = (
    tree.fault(
        "analysis: tokens are cut by bytes",
        "Two tokens that share a byte share a part of a token.",
        "shared = common(child.run, there) // width * width",
        "shared = common(child.run, there)",
    ),
    recency.fault(
        "analysis: the last token is a hit",
        "A prompt that comes again is said to compute nothing.",
        "counted = min(one.end, limit) - one.begin",
        "counted = one.end - one.begin",
    ),
    recency.fault(
        "analysis: what is used again is held twice",
        "Caches look smaller than they are.",
        "self._sums.add(one.last, one.begin - one.end)",
        "self._sums.add(one.last, 0)",
    ),
    clairvoyant.fault(
        "analysis: the bound looks back",
        "What is used soonest goes first.",
        "heapq.heappush(self._latest, (-(again <<",
        "heapq.heappush(self._latest, (-((NEVER - again) <<",
    ),
    checkup.fault(
        "analysis: what was seen counts as missing",
        "An ideal cache is said to have lost what nobody could share.",
        "return 0\n",
        "return 10**9\n",
    ),
    memory_plan.fault(
        "plan: query heads are counted",
        "A model with grouped queries is said to take four times what it does.",
        '_first(text, "num_key_value_heads", "num_kv_heads") or queries',
        "queries",
    ),
    memory_plan.fault(
        "plan: the shared beginning is held by each",
        "A fleet is bought for what is held once.",
        "needed = parts.shared + wanted.concurrency * parts.own",
        "needed = wanted.concurrency * parts.whole",
    ),
    memory_plan.fault(
        "plan: a nested config is not opened",
        "Models with a part for pictures have no K/V.",
        "return nested if isinstance(nested, dict) else config",
        "return config",
    ),
)
