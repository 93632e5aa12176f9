from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import LIVES
from tests.worker.chain import VOCAB, ChainRunner, expected
from worker.cache.block_hash import BlockHashCache
from worker.cache.boundaries import EventKind
from worker.cache.interface import PrefixCache
from worker.cache.off import NoCache
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.cache.scope import CacheScope
from worker.order import ORDERS
from worker.request import FinishReason, Sampling, Stopping
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import BoundaryPosition, SequenceSpec, pack_tokens

CACHES: dict[str, Callable[[PagePool], PrefixCache]] = {
    "radix": RadixCache,
    "block": BlockHashCache,
    "off": NoCache,
}


@dataclass
class Driver:
    """A scheduler on the chain model."""

    cache: PrefixCache
    scheduler: Scheduler
    runner: ChainRunner
    output: dict[int, list[int]] = field(default_factory=dict)
    ended: dict[int, FinishReason] = field(default_factory=dict)
    prompts: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        kind: str,
        *,
        pages: int = 64,
        size: int = 4,
        budget: int = 64,
        running: int = 8,
        order: str = "cache_aware",
    ) -> Driver:
        cache = CACHES[kind](PagePool(pages, size, keep_freed=True))
        scheduler = Scheduler(cache, SchedulerLimits(budget, running), order)
        return cls(cache, scheduler, ChainRunner(pages, size))

    def add(
        self,
        prompt: list[int],
        max_tokens: int = 4,
        namespace: bytes = b"",
        boundaries: tuple[BoundaryPosition, ...] = (),
    ) -> int:
        number = len(self.prompts) + 1
        self.prompts[number] = prompt
        self.output[number] = []
        stopping = Stopping(max_tokens)
        self.scheduler.add(
            SequenceSpec(
                number,
                CacheScope.of(namespace),
                pack_tokens(prompt),
                Sampling(temperature=0),
                stopping,
                boundaries=boundaries,
            )
        )
        return number

    def step(self) -> bool:
        plan = self.scheduler.plan()
        if plan is None:
            return False
        assert plan.num_tokens <= self.scheduler.limits.max_step_tokens
        for progress in self.scheduler.apply(self.runner.run(plan, lambda: None)):
            self.output[progress.sequence_id] += progress.tokens
            if progress.finish is not None:
                self.ended[progress.sequence_id] = progress.finish
        self.cache.check()
        return True

    def run(self) -> None:
        for _ in range(10_000):
            if not self.step():
                return
        raise AssertionError("the scheduler does not come to an end")

    def right(self, number: int, max_tokens: int = 4) -> bool:
        return self.output[number] == expected(self.prompts[number], max_tokens)


@pytest.fixture(params=sorted(CACHES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["radix", "block"])
def sharing(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_lone_request_gets_the_answer_of_the_model(kind: str) -> None:
    driver = Driver.make(kind)
    number = driver.add(list(range(21)))
    driver.run()
    assert driver.right(number)
    assert driver.ended[number] is FinishReason.LENGTH
    assert driver.cache.pool.num_used == 0


def test_decodes_go_on_while_a_long_prompt_is_prefilled(kind: str) -> None:
    driver = Driver.make(kind, budget=8)
    short = driver.add([1, 2, 3], max_tokens=20)
    driver.step()
    driver.add(list(range(100, 150)))
    for _ in range(6):
        before = len(driver.output[short])
        driver.step()
        assert len(driver.output[short]) == before + 1


@pytest.mark.parametrize("length", [3, 4, 5, 7, 8, 9, 31, 32, 33])
def test_a_prompt_at_any_edge_of_a_page_is_right_twice(kind: str, length: int) -> None:
    driver = Driver.make(kind)
    for _ in range(2):
        number = driver.add(list(range(length)))
        driver.run()
        assert driver.right(number)


def test_the_last_prompt_token_is_always_computed(sharing: str) -> None:
    driver = Driver.make(sharing)
    for _ in range(2):
        driver.add(list(range(16)))
        driver.run()
    cached = driver.scheduler.counters.cached_tokens
    assert cached == (15 if sharing == "radix" else 12)


def test_radix_reuses_to_the_token_and_block_whole_pages() -> None:
    shared = list(range(22))
    for name, cached in (("radix", 22), ("block", 20)):
        driver = Driver.make(name)
        driver.add([*shared, 900, 901, 902])
        driver.run()
        second = driver.add([*shared, 800, 801, 802])
        driver.run()
        assert driver.scheduler.counters.cached_tokens == cached
        assert driver.right(second)


def test_two_equal_prompts_in_one_step_share_pages_and_stay_right(sharing: str) -> None:
    driver = Driver.make(sharing, pages=256, budget=64)
    numbers = [driver.add(list(range(30)), max_tokens=200) for _ in range(2)]
    driver.step()
    assert driver.cache.pool.num_used < 2 * 8
    driver.run()
    assert all(driver.right(number, 200) for number in numbers)


def test_sequences_that_generate_the_same_come_to_share_what_they_generated(sharing: str) -> None:
    driver = Driver.make(sharing, pages=128)
    numbers = [driver.add(list(range(6)), max_tokens=80) for _ in range(4)]
    while len(driver.output[numbers[0]]) < 70:
        driver.step()
    # 75 tokens are 19 pages; the others add their unfinished last page only.
    assert driver.cache.pool.num_used <= 19 + 3
    driver.run()
    assert all(driver.right(number, 80) for number in numbers)


def test_what_is_left_to_compute_is_known_while_waiting_running_and_preempted(kind: str) -> None:
    driver = Driver.make(kind, pages=6, size=4, budget=8, order="first_come")
    driver.add([1] * 10, max_tokens=12)
    driver.add([2] * 7, max_tokens=12)
    assert driver.scheduler.uncomputed_tokens == 17
    driver.step()
    assert driver.scheduler.uncomputed_tokens == 9
    while not driver.scheduler.counters.preemptions:
        driver.step()
    assert driver.scheduler.num_waiting == 1
    assert driver.scheduler.uncomputed_tokens >= 7 + 1
    driver.run()
    assert driver.scheduler.uncomputed_tokens == 0


def test_many_equal_prompts_prefill_their_prefix_once(sharing: str) -> None:
    driver = Driver.make(sharing, pages=512, budget=32, running=64)
    numbers = [driver.add([*range(100), number], max_tokens=1) for number in range(64)]
    driver.run()
    assert all(driver.right(number, 1) for number in numbers)
    # 100 shared tokens once, then at most one page and the own token each.
    assert driver.runner.computed_tokens <= 101 + 63 * 5


def test_namespaces_never_share(kind: str) -> None:
    driver = Driver.make(kind)
    for namespace in (b"a", b"b"):
        driver.add(list(range(20)), namespace=namespace)
        driver.run()
    assert driver.scheduler.counters.cached_tokens == 0


def test_a_pool_that_is_too_small_for_all_preempts_and_finishes_everyone(kind: str) -> None:
    driver = Driver.make(kind, pages=12, size=4, budget=32, running=8)
    numbers = [driver.add([number] * 9, max_tokens=24) for number in range(6)]
    driver.run()
    assert driver.scheduler.counters.preemptions > 0
    assert all(driver.right(number, 24) for number in numbers)
    assert driver.cache.pool.num_used == 0


@pytest.mark.parametrize(("length", "max_tokens"), [(25, 6), (30, 1)])
def test_a_request_as_large_as_the_pool_runs_over_its_own_prefix(
    kind: str, length: int, max_tokens: int
) -> None:
    """The longer one leaves no page to copy from beside its own."""
    driver = Driver.make(kind, pages=8, size=4)
    for extra in range(3):
        number = driver.add([*range(length), extra], max_tokens=max_tokens)
        driver.run()
        assert driver.right(number, max_tokens)


def test_counters_add_up_under_preemption(sharing: str) -> None:
    driver = Driver.make(sharing, pages=12, size=4, budget=16, running=8)
    prompts = [[*range(8), number] for number in range(10)]
    for prompt in prompts:
        driver.add(prompt, max_tokens=20)
    driver.run()
    counters = driver.scheduler.counters
    assert counters.preemptions > 0
    assert counters.prompt_tokens == sum(len(prompt) for prompt in prompts)
    assert 0 < counters.cached_tokens < counters.prompt_tokens
    assert counters.generated_tokens == 200


def test_what_was_generated_is_there_for_the_next_turn(sharing: str) -> None:
    driver = Driver.make(sharing)
    first = driver.add(list(range(6)), max_tokens=10)
    driver.run()
    turn = driver.add([*range(6), *driver.output[first], 900, 901])
    driver.run()
    assert driver.right(turn)
    # The last sampled token was never computed.
    assert driver.scheduler.counters.cached_tokens == (15 if sharing == "radix" else 12)


def test_the_last_to_arrive_is_preempted_though_it_was_admitted_first(kind: str) -> None:
    driver = Driver.make(kind, pages=8, budget=8)
    long, short = driver.add([1] * 14, max_tokens=14), driver.add([2] * 2, max_tokens=14)
    driver.step()
    assert driver.output[short]
    assert not driver.output[long]
    while not driver.scheduler.counters.preemptions:
        driver.step()
    assert [one.spec.id for one in driver.scheduler._order] == [short]
    driver.run()
    assert driver.right(long, 14)
    assert driver.right(short, 14)


def test_what_steps_computed_and_copied_is_counted_under_preemption(kind: str) -> None:
    driver = Driver.make(kind, pages=12, size=4, budget=16, running=8)
    for number in range(10):
        driver.add([*range(10), number], max_tokens=20)
    driver.run()
    counters, steps = driver.scheduler.counters, driver.runner.steps
    assert counters.preemptions > 0
    assert counters.steps == len(steps)
    assert counters.computed_tokens == sum(plan.num_tokens for plan in steps)
    assert counters.copied_pages == sum(len(plan.copies) for plan in steps)
    assert (counters.copied_pages > 0) == (kind == "radix")


def test_a_failed_step_ends_its_sequences_and_forgets_what_it_never_computed(kind: str) -> None:
    driver = Driver.make(kind)
    number = driver.add(list(range(30)))
    driver.runner.fail_next = True
    plan = driver.scheduler.plan()
    assert plan is not None
    with pytest.raises(RuntimeError, match="planted"):
        driver.runner.run(plan, lambda: None)
    assert driver.scheduler.fail() == [number]
    driver.cache.check()
    assert driver.cache.pool.num_free == driver.cache.pool.num_pages
    again = driver.add(list(range(30)))
    driver.run()
    assert driver.right(again)
    assert driver.scheduler.counters.cached_tokens == 0


def test_an_abort_in_the_middle_of_a_step_frees_the_pages_at_once(kind: str) -> None:
    driver = Driver.make(kind)
    number, other = driver.add(list(range(30))), driver.add([7, 8, 9])
    plan = driver.scheduler.plan()
    assert plan is not None
    driver.scheduler.abort(number)
    assert driver.cache.pool.num_used <= 1
    assert not driver.scheduler.step_is_void
    driver.scheduler.apply(driver.runner.run(plan, lambda: None))
    driver.cache.check()
    driver.scheduler.abort(other)
    assert driver.cache.pool.num_used == 0
    again = driver.add(list(range(30)))
    driver.run()
    assert driver.right(again)


def test_an_abort_in_the_step_of_a_copy_leaves_the_pages_in_the_order_of_eviction() -> None:
    driver = Driver.make("radix", pages=6)
    driver.add(list(range(12)), max_tokens=1)
    driver.run()
    number = driver.add([0, 1, 2, 3, 4, 5, 90, 91])
    plan = driver.scheduler.plan()
    assert plan is not None
    assert plan.copies
    driver.scheduler.abort(number)
    driver.scheduler.apply(driver.runner.run(plan, lambda: None))
    # Takes every page: the copied one must go before the one in front of it.
    large = driver.add(list(range(100, 120)))
    driver.run()
    assert driver.right(large)


def test_a_copy_that_was_never_made_is_not_kept(kind: str) -> None:
    driver = Driver.make(kind)
    driver.add(list(range(6)), max_tokens=1)
    driver.run()
    driver.add([0, 1, 2, 3, 4, 5, 90])
    # Its whole page takes the place of the two tokens in the index, and leaves with the step.
    driver.add([0, 1, 2, 3, 4, 5, 80, 81])
    assert driver.scheduler.plan() is not None
    assert len(driver.scheduler.fail()) == 2
    driver.cache.check()
    again = driver.add([0, 1, 2, 3, 4, 5, 70])
    driver.run()
    assert driver.right(again)


def test_a_boundary_in_a_prompt_that_is_cached_already_is_stored(sharing: str) -> None:
    driver = Driver.make(sharing)
    driver.add(list(range(14)), max_tokens=1)
    driver.run()
    driver.add(list(range(14)), max_tokens=1, boundaries=(BoundaryPosition(b"d", 9),))
    driver.run()
    stored, _ = driver.cache.tags.snapshot()
    assert [(one.digest, one.num_tokens) for one in stored] == [(b"d", 9)]


def test_a_preempted_sequence_stores_its_boundaries_again(sharing: str) -> None:
    driver = Driver.make(sharing, pages=9, size=4, budget=32)
    driver.add([1] * 9, max_tokens=25)
    second = driver.add([2] * 9, max_tokens=20, boundaries=(BoundaryPosition(b"d", 8),))
    kinds = []
    while driver.step():
        kinds += [event.kind for event in driver.cache.tags.take_events()]
    assert driver.scheduler.counters.preemptions > 0
    assert driver.right(second, 20)
    assert kinds[:3] == [EventKind.STORED, EventKind.EVICTED, EventKind.STORED]


@dataclass
class Life:
    """Draws what happens next."""

    kind: str
    order: str
    pages: int
    size: int
    budget: int
    steps: list[tuple[str, int, int]]


WHATS = ["add", "add", "step", "step", "step", "abort", "abort_mid", "fail"]
MOVES = st.tuples(st.sampled_from(WHATS), st.integers(0, 30), st.integers(1, 8))
lives = st.builds(
    Life,
    kind=st.sampled_from(sorted(CACHES)),
    order=st.sampled_from(ORDERS),
    pages=st.integers(8, 24),
    size=st.sampled_from([1, 2, 3, 4, 9]),
    budget=st.integers(6, 24),
    # Long ones must be asked for: a list alone is short as a rule.
    steps=st.lists(MOVES, max_size=12) | st.lists(MOVES, min_size=25, max_size=60),
)


@settings(max_examples=LIVES, deadline=None, suppress_health_check=list(HealthCheck))
@given(lives)
def test_any_life_gives_every_survivor_the_models_answer_and_leaks_nothing(life: Life) -> None:
    driver = Driver.make(
        life.kind,
        pages=life.pages,
        size=life.size,
        budget=life.budget,
        running=6,
        order=life.order,
    )
    wanted: dict[int, int] = {}
    room = life.pages * life.size
    for what, one, two in life.steps:
        alive = sorted(set(wanted) - set(driver.ended))
        if what == "add":
            prompt = [token % 2 for token in range(one)] + [two]
            max_tokens = min(two, room - len(prompt))
            if max_tokens >= 1:
                wanted[driver.add(prompt, max_tokens)] = max_tokens
        elif what == "step":
            driver.step()
        elif what == "abort" and alive:
            gone = alive[one % len(alive)]
            driver.scheduler.abort(gone)
            del wanted[gone]
        elif what in ("abort_mid", "fail"):
            plan = driver.scheduler.plan()
            if plan is None:
                continue
            if what == "fail":
                for gone in driver.scheduler.fail():
                    del wanted[gone]
                driver.cache.check()
                continue
            gone = plan.rows[one % len(plan.rows)].sequence_id
            driver.scheduler.abort(gone)
            del wanted[gone]
            for progress in driver.scheduler.apply(driver.runner.run(plan, lambda: None)):
                driver.output[progress.sequence_id] += progress.tokens
                if progress.finish is not None:
                    driver.ended[progress.sequence_id] = progress.finish
            driver.cache.check()
    driver.run()
    for number, max_tokens in wanted.items():
        assert driver.right(number, max_tokens)
    assert driver.cache.pool.num_used == 0
    assert driver.scheduler.num_waiting == driver.scheduler.num_running == 0
    assert driver.scheduler.uncomputed_tokens == 0
    assert all(token < VOCAB for tokens in driver.output.values() for token in tokens)
