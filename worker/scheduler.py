"""Decides what each step computes: who runs, how many tokens, on which pages.

    plan()   one token for each running sequence that decodes; what is left of the budget goes to
             prefills: those that run, and as many waiting ones as budget, pages and max_running
             allow, in the order's order
    settle() what grammars have found out since becomes forced tokens, ends, masks to sample under
    apply()  what the runner sampled becomes tokens; finished sequences give their pages back
    fail()   the step was not computed: its sequences end, what it committed is forgotten

Short and long: while a long prompt is computed, or is next, short ones have a share of each step
(`short_share`), so that they don't wait for all of it; what they leave is the long one's.

Memory: a sequence takes the pages of its whole prompt when it is admitted and one page at a time
after that. When none is left, the last to arrive is preempted: it gives its pages back (they stay
matchable) and waits at its old place. The oldest can always run, so work gets done; a sequence
never grows beyond the pool, which the service refuses beforehand.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, replace

from worker.allotment import Allotment
from worker.cache.interface import TOKEN_BYTES, PrefixCache
from worker.dflash import OFF, Dflash
from worker.draft import Draft
from worker.grammar.masks import Masks
from worker.grammar.outlook import Outlook
from worker.guidance import Guidance
from worker.order import make_order
from worker.order.interface import Frontier
from worker.progress import Counters, News, Progress, Valued
from worker.sequence import Sequence, SequenceSpec
from worker.step import PlanRow, StepPlan, StepResult

# Prompt tokens that a step scores: each takes a row of logits over the whole vocabulary.
MAX_SCORED = 512


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """max_step_tokens: token budget of one step; max_running: sequences that decode together.

    short_share: of a step's budget, what short prompts may take from long ones. whole_prompts: a
    step computes all of a prompt or nothing; its budget holds the longest. append_forced: what a
    grammar forces is appended, not sampled; the answers are the same. pinned_share: of all pages,
    how many sessions may hold between requests. dflash: who reads less than all.
    """

    max_step_tokens: int
    max_running: int
    short_share: float = 0.5
    whole_prompts: bool = False
    append_forced: bool = True
    pinned_share: float = 0.25
    dflash: Dflash = OFF

    @property
    def short_tokens(self) -> int:
        """Up to how many tokens to compute a prompt is short: a quarter of a step."""
        return max(self.max_step_tokens // 4, 1)


class Scheduler:
    """Owns all sequences and the cache. Used by the engine's thread only. order: one of ORDERS.

    masks: None computes them in the engine's thread.
    """

    def __init__(
        self,
        cache: PrefixCache,
        limits: SchedulerLimits,
        order: str = "cache_aware",
        masks: Masks | None = None,
    ) -> None:
        self.cache = cache
        self.pool = cache.pool
        self.limits = limits
        self.counters = Counters()
        self.guidance = Guidance(masks or Masks(), appends=limits.append_forced)
        self._pages = pages = Allotment(cache, limits.pinned_share)
        self.pin, self.expire, self.lease_s = pages.pin, pages.expire, pages.lease_s
        self._order = make_order(
            order, cache, limits.short_tokens, slack_tokens=limits.max_step_tokens
        )
        # By arrival: the last one is the first to be preempted.
        self._running: list[Sequence] = []
        self.preempted: list[int] = []
        # Neither waiting nor running: what their grammar allows first isn't known yet.
        self._parked: dict[int, Sequence] = {}
        self._waiting_tokens = 0
        self._planned_tokens = 0
        # The head found no pages last time: nobody with less to compute may take them meanwhile.
        self._is_short_of_pages = False
        self._by_id: dict[int, Sequence] = {}
        self._step: Draft | None = None

    # ------------------------------------------------------------------ sequences come and go

    def add(self, spec: SequenceSpec) -> None:
        """Puts a sequence into the queue."""
        sequence = Sequence(spec)
        self._by_id[spec.id] = sequence
        self.guidance.begin(sequence)
        self._enqueue(sequence)

    def abort(self, sequence_id: int) -> None:
        """Ends a sequence without a word; an unknown id is one that has ended already.

        Also allowed while a step is under way: the step still writes to the pages, but nobody
        gets them before the next plan.
        """
        sequence = self._by_id.pop(sequence_id, None)
        if sequence is None:
            return
        self.guidance.forget(sequence)
        if sequence.held is None:
            self._dequeue(sequence)
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
        """Sequences in the queue, or on their way into it."""
        return len(self._order) + len(self._parked)

    @property
    def uncomputed_tokens(self) -> int:
        """Tokens still to be computed for all sequences, as far as known."""
        known = [*self._running, *self._parked.values()]
        return sum(one.remaining for one in known) + self._waiting_tokens

    @property
    def unused_slots(self) -> int:
        """Slots of pages that sequences hold and have put nothing into yet."""
        held = sum(len(one.held.pages) for one in self._running if one.held is not None)
        return held * self.pool.page_size - sum(one.computed for one in self._running)

    def cached_tokens(self, sequence_id: int) -> int | None:
        """Prompt tokens that the cache gave a live sequence; None before its first admission."""
        sequence = self._by_id.get(sequence_id)
        return None if sequence is None else sequence.cached_tokens

    # ------------------------------------------------------------------ one step

    def plan(self) -> StepPlan | None:
        """Returns the next step, or None when there is nothing to compute."""
        assert self._step is None, "the last step is still under way"
        step = Draft(self.limits.max_step_tokens, MAX_SCORED)
        self._order.begin(self._planned_tokens)
        self._plan_decoding(step)
        self._plan_prefills(step)
        if not step.rows:
            return None
        self._step = step
        return StepPlan(step.rows, step.copies, self.pool.take_freed())

    def settle(self) -> News:
        """Takes over what grammars have found out; call it between steps."""
        news = News()
        for number, outlook in self.guidance.take():
            sequence = self._by_id[number]
            self._settle(sequence, outlook, news)
            if sequence.may_sample and number in self._parked:
                del self._parked[number]
                self._enqueue(sequence)
        return news

    def _settle(self, sequence: Sequence, outlook: Outlook, news: News) -> None:
        followed = self.guidance.follow(sequence, outlook)
        number, tokens, finish = sequence.spec.id, followed.tokens, followed.finish
        if tokens:
            self._count(generated_tokens=len(tokens), forced_tokens=len(tokens))
        if tokens or finish is not None:
            told = Progress(number, tokens, finish=finish, closed=followed.closed)
            news.progress.append(told)
        if followed.failure is not None:
            news.failures[number] = followed.failure
        if followed.is_end:
            self.abort(number)

    def apply(self, result: StepResult) -> list[Progress]:
        """Takes over what the step computed; returns the new tokens in the plan's order."""
        step = self._end_step()
        self.cache.step_done()
        self._count(steps=1, computed_tokens=step.num_tokens)
        for number, sequence in step.members.items():
            start = sequence.computed
            sequence.computed += sequence.planned
            sequence.planned = 0
            self._pages.settle(sequence)
            if number in result.scored:
                self._pages.score(sequence, start, result.scored[number])
        progress = []
        for sampled in result.sampled:
            alive = self._by_id.get(sampled.sequence_id)
            if alive is None:
                continue
            finish = alive.append(sampled.token)
            self._count(generated_tokens=1)
            progress.append(
                Progress(
                    sampled.sequence_id,
                    (sampled.token,),
                    () if sampled.logprobs is None else (sampled.logprobs,),
                    finish,
                    alive.take_scores(),
                )
            )
            if finish is not None:
                self.abort(sampled.sequence_id)
            else:
                self.guidance.advance(alive, sampled.token)
        return progress

    def valued(self, result: StepResult) -> list[Valued]:
        """Ends the sequences whose values came; `apply` has taken the step over."""
        found = [Valued(*pair) for pair in result.values.items() if pair[0] in self._by_id]
        for one in found:
            self.abort(one.sequence_id)
        return found

    def fail(self) -> list[int]:
        """Ends the sequences of a step that was not computed; returns the ids of those alive."""
        step = self._end_step()
        self.cache.step_failed()
        failed = [sequence_id for sequence_id in step.members if sequence_id in self._by_id]
        for sequence_id in failed:
            self.abort(sequence_id)
        return failed

    def _end_step(self) -> Draft:
        step, self._step = self._step, None
        assert step is not None, "no step is under way"
        return step

    def _plan_decoding(self, step: Draft) -> None:
        """One token for each, by arrival; who needs a page may take it from a later arrival.

        Where a grammar forced several, they get their pages here and are a short prefill.
        """
        for sequence in list(self._running):
            if sequence.held is None:  # preempted for one of those before it
                continue
            if sequence.remaining > 1:
                self._grow(sequence)
            elif not sequence.may_sample:
                self._count(sat_out=1)
            elif self._grow(sequence):
                self._add_row(step, sequence, 1)

    def _plan_prefills(self, step: Draft) -> None:
        """Short ones within their share, then the long ones that run, then whoever is next."""
        limits = self.limits
        prefills = [one for one in self._running if one.spec.id not in step.members]
        short = [one for one in prefills if one.remaining <= limits.short_tokens]
        long = [one for one in prefills if one.remaining > limits.short_tokens]
        floor = step.budget - int(step.budget * limits.short_share) if long else 0
        for sequence in short:
            if step.budget > floor:
                self._add_row(step, sequence, step.room_for(sequence))
        if not limits.whole_prompts:
            self._admit_short(step, floor)
        for sequence in long:
            if step.budget > 0:
                self._add_row(step, sequence, step.room_for(sequence))
        while step.budget > 0 and self._num_free_places > 0:
            head = self._order.head()
            if head is None or (limits.whole_prompts and head.num_tokens > step.budget):
                return
            self._is_short_of_pages = not self._try_admit(step, head)
            if self._is_short_of_pages:
                return

    def _admit_short(self, step: Draft, floor: int) -> None:
        """Short ones pass the long one that is next, if they leave it a place and its pages."""
        while step.budget > floor and self._num_free_places > 0:
            short = self._order.short_head()
            head = self._order.head()
            if short is None or head is None:
                return
            is_passing = short is not head and not self._order.goes_before(short, head)
            if is_passing and (self._is_short_of_pages or self._num_free_places == 1):
                return
            if not self._try_admit(step, short):
                return

    @property
    def _num_free_places(self) -> int:
        return self.limits.max_running - len(self._running)

    def _try_admit(self, step: Draft, sequence: Sequence) -> bool:
        """Lets a waiting sequence run from this step on; False: there are no pages for it."""
        admitted = self._pages.admit(sequence, spare=len(self._running))
        if admitted is None:
            return False
        if admitted.copy is not None:
            step.copies.append(admitted.copy)
            self._count(copied_pages=1)
        if sequence.cached_tokens is None:
            # What another worker generated may be cached as well, but it is no prompt.
            sequence.cached_tokens = min(sequence.computed, sequence.prompt_len)
            self._count(prompt_tokens=sequence.prompt_len, cached_tokens=sequence.cached_tokens)
        self._dequeue(sequence)
        insort(self._running, sequence, key=_arrival)
        # Also without a row, where no more can be scored: its copy is made by this step, or is not.
        step.members[sequence.spec.id] = sequence
        self._add_row(step, sequence, step.room_for(sequence))
        return True

    def _enqueue(self, sequence: Sequence) -> None:
        if not sequence.may_sample:
            self._parked[sequence.spec.id] = sequence
            return
        self._waiting_tokens += sequence.num_tokens
        self._order.add(sequence, self._planned_tokens)

    def _dequeue(self, sequence: Sequence) -> None:
        if self._parked.pop(sequence.spec.id, None):
            return
        self._waiting_tokens -= sequence.num_tokens
        self._order.remove(sequence)

    def _grow(self, sequence: Sequence) -> bool:
        """Gets the pages for known tokens, preempting later arrivals; False: preempted itself."""
        while not self._pages.grow(sequence):
            victim = self._running[-1]
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._give_back(sequence)
        sequence.computed = 0
        sequence.exact_len = None
        sequence.num_boundaries_stored = 0
        self._enqueue(sequence)
        self._count(preemptions=1)
        self.preempted.append(sequence.spec.id)

    def _give_back(self, sequence: Sequence) -> None:
        self._await(sequence, None)
        self._pages.give_back(sequence)

    def _add_row(self, step: Draft, sequence: Sequence, count: int) -> None:
        """Puts a sequence's next tokens into the step and makes their whole pages matchable."""
        if count == 0:
            return
        start, end = sequence.computed, sequence.computed + count
        step.take(sequence, count)
        self._planned_tokens += count
        self._order.charge(sequence, count)
        budget = sequence.budget(self.limits.dflash, self.num_running)  # before the pages are shown
        table = self._pages.commit(sequence, end)
        if self._order.tracks and (end < sequence.num_tokens or sequence.is_awaited):
            self._await(sequence, self._pages.frontier(sequence, end))
        step.rows.append(
            PlanRow(
                sequence_id=sequence.spec.id,
                tokens=bytes(sequence.tokens[start * TOKEN_BYTES : end * TOKEN_BYTES]),
                start=start,
                table=table,
                sample=sequence.sample_row() if end == sequence.num_tokens else None,
                targets=sequence.targets(start, end),
                budget=budget,
            )
        )

    def _await(self, sequence: Sequence, frontier: Frontier | None) -> None:
        """Tells the order what a prefill brings next, so that others can wait for it."""
        if frontier is not None or sequence.is_awaited:
            sequence.is_awaited = frontier is not None
            self._order.computes(sequence, frontier)

    def _count(self, **more: int) -> None:
        now = self.counters
        self.counters = replace(now, **{name: getattr(now, name) + n for name, n in more.items()})


def _arrival(sequence: Sequence) -> int:
    return sequence.spec.id
