from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.chain import ChainRunner
from tests.worker.desk import Desk, Record
from tests.worker.loaded import tokenizer_of
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.errors import Draining, InvalidRequest
from worker.intake import Intake
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import pack_tokens
from worker.submission import Resumed, StopRules, Submission
from worker.text.tokenizer import Tokenizer

CAPACITY = 8 + 24


class Board(Desk):
    """A desk on the chain model, with two links."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        intake = Intake(tokenizer, None, 100, random.Random(0))
        self.cache = RadixCache(PagePool(64, 4, keep_freed=True))
        self.runner = ChainRunner(64, 4)
        super().__init__(
            intake, tokenizer, Scheduler(self.cache, SchedulerLimits(16, 3)), self.runner
        )
        self.links = [Record(), Record()]
        self.expected: dict[tuple[Record, int], int] = {}
        for link in self.links:
            self.service.connect(link)

    def send(self, link: Record, submission: Submission) -> None:
        self.expected[link, submission.request_id] = submission.expected_tokens
        self.service.submit(link, submission)

    def act(self, what: str, which: int, number: int, submission: Submission) -> None:
        link = self.links[which]
        if what == "submit":
            self.send(link, replace(submission, request_id=len(self.expected) + 1))
        elif what == "cancel":
            self.service.cancel(link, number)
        elif what == "leave":
            self.service.leave()
        elif what == "relink":
            self.service.disconnect(link)
            self.links[which] = Record()
            self.service.connect(self.links[which])
        else:
            self.runner.fail_next = what == "fail"
            self.engine.step()
            self.runner.fail_next = False

    def end(self, how: str) -> None:
        if how == "hand_back":
            self.service.hand_back()
        elif how != "run":
            if how == "abandon":
                self.service.abandon()
            for link in self.links:
                self.service.disconnect(link)
        while self.engine.step():
            pass

    def assigned_to(self, link: Record) -> int:
        """By the contract: what was expected of the requests that have had no output yet."""
        return sum(
            tokens
            for (one, number), tokens in self.expected.items()
            if one is link and number not in link.given and number not in link.ends
        )


@pytest.fixture(scope="module")
def board(smollm2_folder: Path) -> Callable[[], Board]:
    tokenizer = tokenizer_of(smollm2_folder)
    return lambda: Board(tokenizer)


submissions = st.builds(
    Submission,
    request_id=st.just(0),
    prompt=st.lists(st.integers(3, 9), min_size=0, max_size=30).map(pack_tokens),
    rules=st.builds(StopRules, max_tokens=st.integers(0, 6)),
    n=st.sampled_from([1, 1, 1, 2, 9, CAPACITY + 1]),
    expected_tokens=st.integers(0, 1000),
    resume=st.sampled_from(
        [
            (),
            (),
            (Resumed(0, pack_tokens([5, 6]), 0, True),),
            (Resumed(0, pack_tokens([5, 6, 7, 8, 9, 10])),),
            (Resumed(0, b"", 7),),
        ]
    ),
)
actions = st.lists(
    st.tuples(
        st.sampled_from(["submit"] * 4 + ["step"] * 4 + ["cancel", "fail", "leave", "relink"]),
        st.integers(0, 1),
        st.integers(1, 12),
        submissions,
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(actions=actions, last=st.sampled_from(["run", "hand_back", "disconnect", "abandon"]))
def test_assigned_tokens_are_those_of_requests_without_output_and_all_come_back(
    board: Callable[[], Board],
    actions: list[tuple[str, int, int, Submission]],
    last: str,
) -> None:
    desk = board()
    for action in actions:
        desk.act(*action)
        for link in desk.links:
            assert desk.service.assigned_to(link) == desk.assigned_to(link)
        total = sum(desk.assigned_to(link) for link in desk.links)
        assert desk.service.assigned_tokens == total
    desk.end(last)
    assert desk.service.assigned_tokens == desk.service.num_live == 0
    assert all(len(ends) == 1 for link in desk.links for ends in link.ends.values())
    tallies = desk.service.tallies
    assert tallies.accepted == tallies.done + sum(tallies.failed.values())
    assert desk.engine.load.used_pages == 0


def test_what_has_begun_stays_when_the_worker_leaves_and_goes_in_the_end(
    board: Callable[[], Board],
) -> None:
    desk = board()
    [link, other] = desk.links
    for number in range(1, 6):
        desk.send(link if number % 2 else other, Submission(number, pack_tokens([9] * 4)))
    desk.engine.step()
    desk.service.leave()
    # Three run together; the others had not begun.
    assert [*link.ends, *other.ends] == [5, 4]
    desk.service.submit(link, Submission(6, pack_tokens([1])))
    desk.engine.step()
    desk.service.hand_back()
    ends = [*link.ends.values(), *other.ends.values()]
    assert len(ends) == 6
    assert all(isinstance(error, Draining) for [error] in ends)
    assert not desk.engine.step() or not desk.engine.step()


def test_a_prompt_in_the_middle_of_its_prefill_has_begun(board: Callable[[], Board]) -> None:
    desk = board()
    desk.send(desk.links[0], Submission(1, pack_tokens([9] * 40)))
    desk.engine.step()
    desk.service.leave()
    assert not desk.links[0].given
    assert not desk.links[0].ends


def test_an_engine_that_is_gone_ends_nothing_but_lets_the_worker_go(
    board: Callable[[], Board],
) -> None:
    desk = board()
    desk.send(desk.links[0], Submission(1, pack_tokens([9] * 4)))
    desk.service.abandon()
    desk.service.leave()
    desk.service.hand_back()
    assert not desk.links[0].ends
    assert desk.service.num_live == 1


async def test_nobody_waits_for_an_engine_that_is_gone(board: Callable[[], Board]) -> None:
    desk = board()
    desk.send(desk.links[0], Submission(1, pack_tokens([9] * 4)))
    desk.service.abandon()
    async with asyncio.timeout(10):
        await desk.service.idle()


def test_more_choices_than_ever_fit_are_refused_by_name_and_not_sent_elsewhere(
    board: Callable[[], Board],
) -> None:
    link = board().links[0]
    desk = board()
    desk.send(link, Submission(1, pack_tokens([9]), n=CAPACITY + 1))
    [[error]] = link.ends.values()
    assert isinstance(error, InvalidRequest)
    assert error.param == "n"
    assert error.message == (
        f"n is {CAPACITY + 1}; this worker takes at most {CAPACITY} sequences, running and waiting."
    )


def test_finished_choices_take_no_room(board: Callable[[], Board]) -> None:
    desk = board()
    link = desk.links[0]
    desk.send(link, Submission(1, pack_tokens([9]), n=CAPACITY - 1))
    resume = tuple(Resumed(choice, b"", 0, choice > 0) for choice in range(9))
    desk.send(link, Submission(2, pack_tokens([9]), n=9, resume=resume))
    desk.send(link, Submission(3, pack_tokens([9])))
    assert list(link.ends) == [3]


def test_steps_are_counted_when_they_were_computed(board: Callable[[], Board]) -> None:
    desk = board()
    desk.run(Submission(1, pack_tokens([9] * 20), rules=StopRules(max_tokens=3)))
    assert desk.engine.load.counters.steps == 4
    desk.runner.fail_next = True
    desk.run(Submission(2, pack_tokens([9] * 20)))
    assert desk.engine.load.counters.steps == 4
