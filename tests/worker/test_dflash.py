"""Who decodes over a part of its context, and what of that nobody else may take."""

from __future__ import annotations

import pytest

from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.cache.scope import CacheScope
from worker.dflash import Dflash, Mode
from worker.errors import InvalidRequest
from worker.request import Sampling, Stopping
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import SequenceSpec, pack_tokens
from worker.step import Sampled, StepPlan, StepResult
from worker.submission import Submission
from worker.wants import GENERATES, Purpose

SIZE = 4
ON = Dflash(Mode.ON, budget=8, share=0.0, from_tokens=12, from_batch=2)
NEVER = Dflash(Mode.OFF, budget=8, share=0.0)
AUTO = Dflash(Mode.AUTO, budget=8, share=0.0, from_tokens=12, from_batch=2)


def spec(number: int, length: int, wish: Mode | None = None, max_tokens: int = 50) -> SequenceSpec:
    prompt = pack_tokens([100 * number + i for i in range(length)])
    return SequenceSpec(
        number, CacheScope(b""), prompt, Sampling(), Stopping(max_tokens), dflash=wish
    )


def scheduler(dflash: Dflash, num_pages: int = 64) -> Scheduler:
    cache = RadixCache(PagePool(num_pages, SIZE))
    return Scheduler(cache, SchedulerLimits(64, 8, dflash=dflash))


def step(one: Scheduler) -> StepPlan:
    plan = one.plan()
    assert plan is not None
    asked = [row for row in plan.rows if row.sample is not None]
    one.apply(StepResult([Sampled(row.sequence_id, 7) for row in asked]))
    return plan


def budgets(one: Scheduler, steps: int) -> list[int]:
    """Of the first row in each step."""
    return [step(one).rows[0].budget for _ in range(steps)]


def test_a_row_reads_less_from_the_budget_on_and_a_prefill_never() -> None:
    one = scheduler(ON)
    one.add(spec(1, 6))
    assert budgets(one, 5) == [0, 0, 0, 8, 8]  # contexts of 6, 7, 8, 9, 10


def test_the_last_token_of_a_prompt_reads_all_of_it() -> None:
    one = scheduler(ON)
    one.add(spec(1, 20))
    step(one)
    one.abort(1)
    one.add(SequenceSpec(2, CacheScope(b""), spec(1, 20).prompt, Sampling(), Stopping(9)))
    [row] = step(one).rows
    assert (row.start, len(row.tokens) // 4, row.budget) == (19, 1, 0)


def test_a_long_context_is_read_by_its_share() -> None:
    setting = Dflash(Mode.ON, budget=100, share=0.25)
    assert setting.budget_for(None, context=400, num_decoding=1) == 100
    assert setting.budget_for(None, context=4000, num_decoding=1) == 1000
    whole = Dflash(Mode.ON, budget=100, share=1.0)
    assert whole.budget_for(None, context=4000, num_decoding=1) == 0


def test_auto_waits_for_length_and_company() -> None:
    one = scheduler(AUTO)
    one.add(spec(1, 15))
    assert budgets(one, 2) == [0, 0]
    one.add(spec(2, 5))
    step(one)
    plan = step(one)
    assert {row.sequence_id: row.budget for row in plan.rows} == {1: 8, 2: 0}
    one.abort(2)
    assert budgets(one, 1) == [0]


@pytest.mark.parametrize(
    ("setting", "wish", "expected"),
    [
        (NEVER, None, 0),
        (NEVER, Mode.ON, 0),
        (AUTO, None, 0),
        (AUTO, Mode.ON, 8),
        (ON, Mode.OFF, 0),
        (ON, Mode.AUTO, 0),
        (ON, None, 8),
    ],
)
def test_a_wish_goes_before_the_setting_unless_it_is_off(
    setting: Dflash, wish: Mode | None, expected: int
) -> None:
    assert setting.budget_for(wish, context=100, num_decoding=1) == expected


@pytest.mark.parametrize("length", [9, 10, 11, 12])
def test_what_was_not_computed_exactly_stays_out_of_the_cache(length: int) -> None:
    """Not while the sequence runs, not after it, not a page that is exact in part."""
    one = scheduler(ON)
    one.add(spec(1, length))
    tokens = spec(1, length).prompt + pack_tokens([7] * 20)
    exact = length // SIZE * SIZE
    for _ in range(12):
        step(one)
        match = one.cache.match(CacheScope(b""), tokens)
        assert len(match.pages) * SIZE + match.tail_len == exact
    one.abort(1)
    match = one.cache.match(CacheScope(b""), tokens)
    assert len(match.pages) * SIZE + match.tail_len == length
    one.cache.check()


def test_what_is_computed_again_after_preemption_is_exact() -> None:
    one = scheduler(ON, num_pages=8)
    one.add(spec(1, 12))
    one.add(spec(2, 12))
    while one.counters.preemptions == 0:
        step(one)
    one.abort(1)
    [row] = step(one).rows
    known = row.start + len(row.tokens) // 4
    assert known > 16
    assert row.budget == 0
    match = one.cache.match(CacheScope(b""), spec(2, 12).prompt + pack_tokens([7] * 20))
    assert len(match.pages) == known // SIZE


def test_a_wish_for_what_is_off_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="dflash is 'on'; this model runs with it off"):
        GENERATES.check(Submission(1, b"abcd", dflash=Mode.ON))
    GENERATES.check(Submission(1, b"abcd", dflash=Mode.OFF))
    Purpose(dflash=AUTO).check(Submission(1, b"abcd", dflash=Mode.ON))
