"""Decides what each step computes: who runs, how many tokens, on which pages.

    plan()   running sequences in order of arrival (one token each where they decode, the rest of
             the budget where the last one prefills), then as many waiting ones as budget, pages
             and max_running allow
    apply()  what the runner sampled becomes tokens; finished sequences give their pages back
    fail()   the step was not computed: its sequences end, what it committed is forgotten

Memory: a sequence takes the pages of its whole prompt when it is admitted and one page at a time
after that. When none is left, the sequence that arrived last is preempted: it gives its pages back
(they stay matchable) and waits again at its old place. The oldest one can always run, so work gets
done; a sequence never grows beyond the pool, which the service refuses beforehand.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field, replace

from worker.cache.interface import TOKEN_BYTES, Match, PrefixCache
from worker.request import FinishReason, TokenLogprobs
from worker.sequence import Sequence, SequenceSpec
from worker.step import PlanRow, StepPlan, StepResult


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """max_step_tokens: token budget of one step; max_running: sequences that decode together."""

    max_step_tokens: int
    max_running: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What one step did for one sequence."""

    sequence_id: int
    token: int
    logprobs: TokenLogprobs | None = None
    finish: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Counters:
    """Since the process started. cached + computed prompt tokens make up prompt_tokens exactly.

    steps: those that were computed.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    steps: int = 0


@dataclass(slots=True)
class _Step:
    """The step under way."""

    budget: int
    rows: list[PlanRow] = field(default_factory=list)
    members: dict[int, Sequence] = field(default_factory=dict)
    copies: list[tuple[int, int]] = field(default_factory=list)


class Scheduler:
    """Owns all sequences and the cache. Used by the engine's thread only."""

    def __init__(self, cache: PrefixCache, limits: SchedulerLimits) -> None:
        self.cache = cache
        self.pool = cache.pool
        self.limits = limits
        self.counters = Counters()
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._by_id: dict[int, Sequence] = {}
        self._step: _Step | None = None

    # ------------------------------------------------------------------ sequences come and go

    def add(self, spec: SequenceSpec) -> None:
        """Puts a sequence at the end of the queue."""
        sequence = Sequence(spec)
        self._by_id[spec.id] = sequence
        insort(self._waiting, sequence, key=_arrival)

    def abort(self, sequence_id: int) -> None:
        """Ends a sequence without a word; an unknown id is one that has ended already.

        Also allowed while a step is under way: the step still writes to the pages, but nobody
        gets them before the next plan.
        """
        sequence = self._by_id.pop(sequence_id, None)
        if sequence is None:
            return
        if sequence.held is None:
            self._waiting.remove(sequence)
        else:
            self._running.remove(sequence)
            self._give_back(sequence)

    @property
    def step_is_void(self) -> bool:
        """Whether nobody is left who wants the step under way."""
        return self._step is not None and not any(
            sequence_id in self._by_id for sequence_id in self._step.members
        )

    @property
    def num_running(self) -> int:
        """Sequences that hold pages."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Sequences in the queue."""
        return len(self._waiting)

    @property
    def uncomputed_tokens(self) -> int:
        """Tokens still to be computed for all sequences, as far as known."""
        return sum(one.remaining for one in self._running) + sum(
            one.remaining for one in self._waiting
        )

    def cached_tokens(self, sequence_id: int) -> int | None:
        """Prompt tokens that the cache gave a live sequence; None before its first admission."""
        sequence = self._by_id.get(sequence_id)
        return None if sequence is None else sequence.cached_tokens

    # ------------------------------------------------------------------ one step

    def plan(self) -> StepPlan | None:
        """Returns the next step, or None when there is nothing to compute."""
        assert self._step is None, "the last step is still under way"
        step = _Step(self.limits.max_step_tokens)
        self._plan_running(step)
        self._plan_waiting(step)
        if not step.rows:
            return None
        self._step = step
        return StepPlan(step.rows, step.copies, self.pool.take_freed())

    def apply(self, result: StepResult) -> list[Progress]:
        """Takes over what the step computed; returns the new tokens in the plan's order."""
        step = self._end_step()
        self.cache.step_done()
        self._count(steps=1)
        for sequence in step.members.values():
            sequence.computed += sequence.planned
            sequence.planned = 0
            if sequence.held is not None:
                sequence.held.settle(self.pool)
        progress = []
        for sampled in result.sampled:
            alive = self._by_id.get(sampled.sequence_id)
            if alive is None:
                continue
            finish = alive.append(sampled.token)
            self._count(generated_tokens=1)
            progress.append(Progress(sampled.sequence_id, sampled.token, sampled.logprobs, finish))
            if finish is not None:
                self.abort(sampled.sequence_id)
        return progress

    def fail(self) -> list[int]:
        """Ends the sequences of a step that was not computed; returns the ids of those alive."""
        step = self._end_step()
        self.cache.step_failed()
        failed = [sequence_id for sequence_id in step.members if sequence_id in self._by_id]
        for sequence_id in failed:
            self.abort(sequence_id)
        return failed

    def _end_step(self) -> _Step:
        step, self._step = self._step, None
        assert step is not None, "no step is under way"
        return step

    def _plan_running(self, step: _Step) -> None:
        """Every running sequence is older than every waiting one, so all but the last decode."""
        index = 0
        while index < len(self._running) and step.budget > 0:
            sequence = self._running[index]
            index += 1
            count = min(sequence.remaining, step.budget)
            if self._grow(sequence, sequence.computed + count):
                self._add_row(step, sequence, count)

    def _plan_waiting(self, step: _Step) -> None:
        while step.budget > 0 and self._waiting and len(self._running) < self.limits.max_running:
            sequence = self._waiting[0]
            match = self.cache.match(sequence.spec.namespace, bytes(sequence.tokens[:-TOKEN_BYTES]))
            if not self._admit(step, sequence, match):
                return
            self._running.append(self._waiting.pop(0))
            self._add_row(step, sequence, min(sequence.remaining, step.budget))

    def _admit(self, step: _Step, sequence: Sequence, match: Match) -> bool:
        """Takes the pages of all known tokens, or nothing; spares a page for each running one."""
        held = self.cache.hold(sequence.spec.namespace, match.pages)
        if match.tail_page is not None:
            self.pool.share([match.tail_page])
            held.tail_source = match.tail_page
        wanted = self._pages_for(sequence.num_tokens) - len(match.pages)
        fresh = None
        if wanted + len(self._running) <= self.pool.num_available:
            fresh = self.pool.allocate(wanted)
        if fresh is None:
            held.release(self.pool)
            if match.tail_page is None or self._running:
                return False
            # Alone and still too large: the page to copy from is the one that is missing.
            return self._admit(step, sequence, Match(match.pages))
        if match.tail_page is not None:
            step.copies.append((match.tail_page, fresh[0]))
        held.pages += fresh
        sequence.held = held
        sequence.computed = len(match.pages) * self.pool.page_size + match.tail_len
        if sequence.cached_tokens is None:
            # What another worker generated may be cached as well, but it is no prompt.
            sequence.cached_tokens = min(sequence.computed, sequence.prompt_len)
            self._count(prompt_tokens=sequence.prompt_len, cached_tokens=sequence.cached_tokens)
        return True

    def _grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Gets the pages for so many tokens, preempting later arrivals; False: preempted itself."""
        held = sequence.held
        assert held is not None
        while len(held.pages) < self._pages_for(num_tokens):
            fresh = self.pool.allocate(1)
            if fresh is not None:
                held.pages += fresh
                continue
            victim = self._running[-1]
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._give_back(sequence)
        sequence.computed = 0
        sequence.num_boundaries_stored = 0
        insort(self._waiting, sequence, key=_arrival)
        self._count(preemptions=1)

    def _give_back(self, sequence: Sequence) -> None:
        held, sequence.held = sequence.held, None
        assert held is not None
        computed = sequence.computed
        if held.tail_source is not None:  # the copy may not have been made
            computed -= computed % self.pool.page_size
        self.cache.finish(held, bytes(sequence.tokens), computed)

    def _add_row(self, step: _Step, sequence: Sequence, count: int) -> None:
        """Puts a sequence's next tokens into the step and makes their whole pages matchable."""
        held, start = sequence.held, sequence.computed
        assert held is not None
        end = start + count
        sequence.planned = count
        step.budget -= count
        step.members[sequence.spec.id] = sequence
        if end // self.pool.page_size > held.num_committed:
            self.cache.commit(held, bytes(sequence.tokens), end)
        self._tag(sequence)
        step.rows.append(
            PlanRow(
                sequence_id=sequence.spec.id,
                tokens=bytes(sequence.tokens[start * TOKEN_BYTES : end * TOKEN_BYTES]),
                start=start,
                table=held.pages[: self._pages_for(end)],
                sample=sequence.sample_row() if end == sequence.num_tokens else None,
            )
        )

    def _tag(self, sequence: Sequence) -> None:
        """Ties the gateway's boundaries to the pages that have become matchable."""
        held, boundaries = sequence.held, sequence.spec.boundaries
        assert held is not None
        while sequence.num_boundaries_stored < len(boundaries):
            boundary = boundaries[sequence.num_boundaries_stored]
            num_pages = boundary.num_tokens // self.pool.page_size
            if num_pages > held.num_committed:
                return
            if num_pages:
                page = held.canonical(num_pages - 1)
                self.cache.tags.store(page, boundary.digest, boundary.num_tokens)
            sequence.num_boundaries_stored += 1

    def _pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.pool.page_size)

    def _count(self, **more: int) -> None:
        now = self.counters
        self.counters = replace(now, **{name: getattr(now, name) + n for name, n in more.items()})


def _arrival(sequence: Sequence) -> int:
    return sequence.spec.id
