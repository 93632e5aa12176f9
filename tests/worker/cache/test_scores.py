"""Scores beside pages: whatever happens to a sequence, it's told its own prompt's, and once."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import LIVES
from tests.worker.chain import ChainRunner, expected_scores, link, next_token
from tests.worker.test_scheduler import Driver
from worker.cache.scope import CacheScope
from worker.cache.scores import PageScores
from worker.request import Sampling, Stopping, TokenScore
from worker.scheduler import MAX_SCORED
from worker.sequence import SequenceSpec, pack_tokens
from worker.step import PlanRow, Sampled, StepPlan

GREEDY = Sampling(temperature=0.0)


def test_a_page_that_is_handed_out_again_has_no_scores() -> None:
    scores = PageScores(2)
    tokens = array("i", [5, 6, 7, 8])
    for position in range(3):
        scores.put(position // 2, position % 2, tokens[position + 1], TokenScore(-1.0, position))
    assert [one.rank for one in scores.known([0, 1], tokens)] == [0, 1, 2]
    assert len(scores.known([0, 1], array("i", [5, 6, 9, 8]))) == 1
    assert len(scores.known([1, 0], tokens)) == 0
    scores.forget([0])
    assert scores.known([0, 1], tokens) == []
    assert len(scores) == 1


def test_of_two_tokens_behind_one_slot_the_last_one_s_whole_score_is_known() -> None:
    scores = PageScores(1)
    for following, score in (
        (6, TokenScore(-2.0, 2, (7, -0.5))),
        (7, TokenScore(-0.5, 1)),
        (8, TokenScore(-3.0, 3, (7, -0.5))),
    ):
        scores.put(0, 0, following, score)
        for token in (6, 7, 8):
            found = scores.known([0], array("i", [5, token]))
            assert found == ([score] if token == following else [])


def ask(
    driver: Driver, prompt: list[int], max_tokens: int = 4, *, score: bool = True, first: int = 1
) -> SequenceSpec:
    """Submits a prompt to the chain model; it need not be scored, or from its first token on."""
    number = len(driver.prompts) + 1
    driver.prompts[number], driver.output[number] = prompt, []
    spec = SequenceSpec(
        number,
        CacheScope(),
        pack_tokens(prompt),
        GREEDY,
        Stopping(max_tokens),
        score_prompt=score,
        scored_from=first,
    )
    driver.scheduler.add(spec)
    return spec


def test_a_copy_of_a_step_that_failed_is_not_taken_for_made() -> None:
    """Its sequence had no row in that step, since no more prompt tokens could be scored."""
    driver = Driver.make("radix", pages=400, size=4, budget=2000, order="first_come")
    stem = list(range(300, 310))
    ask(driver, stem)
    driver.run()
    ask(driver, [number % 290 for number in range(MAX_SCORED + 100)])
    ask(driver, [*stem[:7], 1, 2, 3])
    plan = driver.scheduler.plan()
    assert plan is not None
    assert [row.sequence_id for row in plan.rows] == [2]
    assert len(plan.copies) == 1
    failed = driver.scheduler.fail()
    driver.run()
    for number in {2, 3} - set(failed):
        assert driver.right(number)
    assert 2 in failed
    driver.cache.check()


class Coin(ChainRunner):
    """Generates but two tokens, so that prompts often find what was generated."""

    def _drawn(self, row: PlanRow, digest: bytes) -> Sampled:
        return Sampled(row.sequence_id, next_token(digest) % 2)


class Told:
    """Steps a driver, and sees to it that every prompt is scored once, as the chain model does."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.alive: dict[int, SequenceSpec] = {}

    def ask(
        self, prompt: list[int], max_tokens: int, *, score: bool = True, first: int = 1
    ) -> None:
        spec = ask(self.driver, prompt, max_tokens, score=score, first=first)
        self.alive[spec.id] = spec

    def step(self, plan: StepPlan, gone: int | None = None) -> None:
        """A step, in the midst of which a sequence may be aborted."""
        if gone is not None:
            self.driver.scheduler.abort(gone)
            del self.alive[gone]
        for progress in self.driver.scheduler.apply(self.driver.runner.run(plan, lambda: None)):
            number = progress.sequence_id
            output, prompt = self.driver.output[number], self.driver.prompts[number]
            spec = self.alive[number]
            told = expected_scores(prompt)[spec.scored_from - 1 :]
            assert progress.prompt_scores == (told if spec.score_prompt and not output else None)
            output += progress.tokens
            if progress.finish is not None:
                del self.alive[number]
        self.driver.cache.check()

    def fail(self) -> None:
        """The step under way fails."""
        for number in self.driver.scheduler.fail():
            del self.alive[number]

    def end(self) -> None:
        """All that are left come to their end."""
        while (plan := self.driver.scheduler.plan()) is not None:
            self.step(plan)
        assert not self.alive
        assert self.driver.cache.pool.num_used == 0


def test_scores_come_once_though_a_sequence_is_preempted_later() -> None:
    told = Told(Driver.make("radix", pages=8, size=4, budget=8))
    for number in range(3):
        told.ask([number + 50] * 6, 12)
    told.end()
    assert told.driver.scheduler.counters.preemptions > 0


def test_a_prompt_that_leaves_no_room_for_a_copy_is_scored_once_all_the_same() -> None:
    """More of its scores are known than of it's taken from the cache in the end."""
    told = Told(Driver.make("radix", pages=5, size=4))
    stem = list(range(10))
    told.ask(stem, 1)
    told.end()
    told.ask([*stem, *range(50, 59)], 1)
    told.end()
    assert told.driver.scheduler.counters.cached_tokens == 8
    assert told.driver.scheduler.counters.copied_pages == 0


def test_of_two_pages_with_the_same_tokens_the_one_that_stays_has_their_scores() -> None:
    told = Told(Driver.make("radix"))
    counters = []
    for score in (False, True, True):
        told.ask(list(range(13)), 1, score=score)
        told.end()
        counters.append(told.driver.scheduler.counters)
    assert [one.cached_tokens for one in counters] == [0, 0, 12]


def tossed(prompt: list[int], count: int) -> list[int]:
    """The prompt and what `Coin` generates behind it."""
    tokens, digest = list(prompt), b""
    for position in range(len(prompt) + count):
        if position == len(tokens):
            tokens.append(next_token(digest) % 2)
        digest = link(digest, tokens[position])
    return tokens


whats = st.sampled_from(["score", "score", "fill", "step", "step", "step", "abort", "fail"])
# Few letters and pages, so that what a page held before is much like what it holds now; and prompts
# that go on as others were answered.
starts = st.lists(st.integers(0, 1), min_size=1, max_size=4)
firsts = st.just(1) | st.integers(1, 9)
moves = st.tuples(whats, st.builds(tossed, starts, st.integers(0, 12)), st.integers(1, 6), firsts)


@settings(max_examples=LIVES)
@given(
    kind=st.sampled_from(["radix", "block", "off"]),
    pages=st.integers(5, 12),
    size=st.sampled_from([1, 2, 3, 5]),
    budget=st.integers(3, 20),
    moves=st.lists(moves, min_size=15, max_size=40),
)
def test_any_life_tells_every_prompt_its_scores_once_and_no_others(
    *, kind: str, pages: int, size: int, budget: int, moves: list[tuple[str, list[int], int, int]]
) -> None:
    driver = Driver.make(kind, pages=pages, size=size, budget=budget, running=3)
    driver.runner = Coin(pages, size)
    told = Told(driver)
    for what, prompt, number, first in moves:
        max_tokens = min(number, pages * size - len(prompt))
        if what in ("score", "fill"):
            if max_tokens >= 1:
                begin = min(first, len(prompt))
                told.ask(prompt, max_tokens, score=what == "score", first=begin)
        elif (plan := driver.scheduler.plan()) is not None:
            members = [row.sequence_id for row in plan.rows]
            if what == "fail":
                told.fail()
            else:
                told.step(plan, members[number % len(members)] if what == "abort" else None)
    told.end()
