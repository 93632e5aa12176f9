"""Greedy ids and top-5 logprobs are the same bits on every path that a request can take.

Every case asserts that its path was taken: hits, copies, evictions, preemptions, chunks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worker.lab import Lab, Setting, load_member
from tests.worker.model.tiny import LLAMA_SHAPED, save_tiny
from worker.model.interface import Model
from worker.request import TokenLogprobs

SLOW = pytest.mark.slow
FAMILIES = (
    *("llama", "mistral", "qwen3"),
    *(pytest.param(family, marks=SLOW) for family in ("llama-rope-yarn", "qwen2")),
)
NEW_TOKENS = 12
RNG = random.Random(5)


# No prompt begins with it.
STRANGE = 4


def some(count: int) -> list[int]:
    return [RNG.randrange(5, 199) for _ in range(count)]


PROMPT = some(61)
MATES = [some(length) for length in (3, 17, 40, 61)]
BRANCH = [*PROMPT[:43], *some(9)]
Answer = tuple[list[int], list[TokenLogprobs]]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder: Path = tmp_path_factory.mktemp(request.param)
    save_tiny(LLAMA_SHAPED[request.param](), folder)
    return load_member(folder, "lowered")


def answers(worker: Lab, *prompts: list[int]) -> list[Answer]:
    """What prompts that are submitted together generate, with logprobs."""
    before = len(worker.output)
    worker.run(list(prompts), NEW_TOKENS, top_logprobs=5)
    numbers = range(before + 1, len(worker.output) + 1)
    return [(worker.output[number], worker.logprobs[number]) for number in numbers]


def alone(worker: Lab) -> Answer:
    [answer] = answers(worker, PROMPT)
    return answer


def cold(worker: Lab) -> Answer:
    answer = alone(worker)
    assert worker.scheduler.counters.cached_tokens == 0
    return answer


def warm(worker: Lab) -> Answer:
    alone(worker)
    answer = alone(worker)
    hits = worker.scheduler.counters.cached_tokens
    assert (hits > 0) == (worker.setting.cache != "off")
    return answer


def branched(worker: Lab) -> Answer:
    """Behind another continuation of the same beginning, which ends inside a page."""
    answers(worker, BRANCH)
    answer = alone(worker)
    copied = worker.scheduler.counters.copied_pages
    is_inside = worker.setting.cache == "radix" and 43 % worker.setting.page_size != 0
    assert (copied > 0) == is_inside
    return answer


def with_mates(worker: Lab) -> Answer:
    """In one batch with others, itself again among them."""
    *_, first, last = answers(worker, *MATES, PROMPT, PROMPT)
    assert first == last
    return first


def evicted(worker: Lab) -> Answer:
    """Back after others took all pages."""
    alone(worker)
    answers(worker, *([STRANGE, *some(59)] for _ in range(6)))
    before = worker.scheduler.counters.cached_tokens
    answer = alone(worker)
    assert worker.scheduler.counters.cached_tokens == before
    if worker.setting.cache != "off":
        assert worker.scheduler.pool.evicted_total > 0
    return answer


def preempted(worker: Lab) -> Answer:
    """Where pages do not suffice for all that run."""
    *_, answer = answers(worker, *(some(4) for _ in range(7)), PROMPT[:9], PROMPT)
    assert worker.scheduler.counters.preemptions > 0
    return answer


@pytest.fixture(scope="module")
def reference(model: Model) -> Answer:
    return cold(Lab(model, Setting(cache="off", budget=512)))


@pytest.mark.parametrize("budget", [7, 512])
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("cache", ["radix", "block", "off"])
@pytest.mark.parametrize("path", [cold, warm, branched, with_mates])
def test_a_path_changes_no_bit(
    model: Model,
    reference: Answer,
    path: Callable[[Lab], Answer],
    cache: str,
    page_size: int,
    budget: int,
) -> None:
    running = 6 if budget > 6 else 1
    worker = Lab(model, Setting(cache=cache, page_size=page_size, budget=budget, running=running))
    assert path(worker) == reference
    if budget < len(PROMPT):
        assert worker.num_steps > NEW_TOKENS


@pytest.mark.parametrize("order", ["cache_aware", "first_come"])
@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("cache", ["radix", "block", "off"])
@pytest.mark.parametrize("path", [evicted, preempted])
def test_pressure_changes_no_bit(
    model: Model,
    reference: Answer,
    path: Callable[[Lab], Answer],
    cache: str,
    page_size: int,
    order: str,
) -> None:
    setting = Setting(
        cache=cache, page_size=page_size, budget=24, running=9, num_tokens=88, order=order
    )
    assert path(Lab(model, setting)) == reference
