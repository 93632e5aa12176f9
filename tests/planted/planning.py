"""Faults of what decides a step: the scheduler, what it does with pages, and the order."""

from __future__ import annotations

from tests.planted.fault import Fault, Room

SCHEDULER = "tests/worker/test_scheduler.py"
ORDER = "tests/worker/order"
TESTS = (SCHEDULER, ORDER)

scheduler = Room("worker/scheduler.py", TESTS)
continued = Room("worker/scheduler.py", ("tests/worker/test_resume.py",))
allotment = Room("worker/allotment.py", TESTS)
draft = Room("worker/draft.py", TESTS)
sequence = Room("worker/sequence.py", ("tests/worker/test_sequence.py",))
aware = Room("worker/order/cache_aware.py", (ORDER, SCHEDULER))
first_come = Room("worker/order/first_come.py", (ORDER, SCHEDULER))

FAULTS: tuple[Fault, ...] = (
    scheduler.fault(
        "preempted keeps its boundaries",
        "Boundaries that were evicted meanwhile are not told again.",
        "        sequence.num_boundaries_stored = 0\n",
        "",
    ),
    scheduler.fault(
        "cached tokens counted again after preemption",
        "What a sequence finds of its own when it comes back is counted as a hit.",
        "if sequence.cached_tokens is None:",
        "if sequence.cached_tokens is None or sequence.computed:",
    ),
    scheduler.fault(
        "prompt counted at every attempt",
        "A sequence that finds no pages is counted each time it tries.",
        "        if admitted is None:\n            return False\n        if",
        "        if admitted is None:\n"
        "            self._count(prompt_tokens=sequence.prompt_len)\n"
        "            return False\n        if",
    ),
    continued.fault(
        "output of another worker counted as cached prompt",
        "More prompt tokens are cached than the prompt has.",
        "min(sequence.computed, sequence.prompt_len)",
        "sequence.computed",
    ),
    scheduler.fault(
        "preemption takes the oldest",
        "Whoever came first is computed again and again.",
        "victim = self._running[-1]",
        "victim = self._running[0]",
    ),
    scheduler.fault(
        "victims by admission, not by arrival",
        "Who came first and was preempted once is from then on the first to go.",
        "insort(self._running, sequence, key=_arrival)",
        "self._running.append(sequence)",
    ),
    scheduler.fault(
        "abort in the queue stays there",
        "What nobody wants any more is admitted and computed.",
        "            self._dequeue(sequence)\n        else:",
        "            self._waiting_tokens -= sequence.num_tokens\n        else:",
    ),
    scheduler.fault(
        "abort leaks its pages",
        "A running sequence that is aborted keeps its references.",
        "            self._running.remove(sequence)\n            self._give_back(sequence)\n",
        "            self._running.remove(sequence)\n",
    ),
    scheduler.fault(
        "failed step keeps its sequences",
        "They are told failed and run on.",
        "        for sequence_id in failed:\n            self.abort(sequence_id)\n",
        "",
    ),
    scheduler.fault(
        "failed step kept by the cache",
        "What a failed step committed is taken for computed.",
        "        self.cache.step_failed()\n",
        "        self.cache.step_done()\n",
    ),
    scheduler.fault(
        "computed step not told to the cache",
        "What steps have computed leaves with the next one that fails.",
        "        self.cache.step_done()\n",
        "",
    ),
    scheduler.fault(
        "token budget exceeded at admission",
        "A long prompt is computed in one step, whatever the budget.",
        "        self._add_row(step, sequence, step.room_for(sequence))\n        return True",
        "        self._add_row(step, sequence, sequence.remaining)\n        return True",
    ),
    draft.fault(
        "decoding costs no budget",
        "Steps grow beyond the budget by what decodes.",
        "        self.budget -= count\n",
        "        self.budget -= count if count > 1 else 0\n",
    ),
    scheduler.fault(
        "max_running ignored",
        "More sequences run together than the operator allows.",
        "return self.limits.max_running - len(self._running)",
        "return self.limits.max_running",
    ),
    scheduler.fault(
        "short ones take the whole step",
        "A long prompt gets nothing while short ones come.",
        "floor = step.budget - int(step.budget * limits.short_share) if long else 0",
        "floor = 0",
    ),
    scheduler.fault(
        "short ones take the pages of the next",
        "A long prompt that waits for pages is passed for ever.",
        "if is_passing and (self._is_short_of_pages or self._num_free_places == 1):",
        "if is_passing and self._num_free_places == 1:",
    ),
    scheduler.fault(
        "short ones take the last place",
        "A long prompt that waits for a place is passed for ever.",
        "if is_passing and (self._is_short_of_pages or self._num_free_places == 1):",
        "if is_passing and self._is_short_of_pages:",
    ),
    scheduler.fault(
        "duplicates never settled",
        "Pages that came twice stay twice, and a copied page keeps its reference.",
        "            self._pages.settle(sequence)\n",
        "",
    ),
    scheduler.fault(
        "copy not counted",
        "The counter of copied pages stays at nothing.",
        "            self._count(copied_pages=1)\n",
        "",
    ),
    scheduler.fault(
        "computed tokens count what was asked",
        "The counter of computed tokens counts rows.",
        "computed_tokens=step.num_tokens",
        "computed_tokens=len(step.rows)",
    ),
    scheduler.fault(
        "waiting tokens forgotten when preempted",
        "The load that routing sees is wrong after a preemption.",
        "        self._waiting_tokens += sequence.num_tokens\n",
        "        self._waiting_tokens += sequence.prompt_len\n",
    ),
    allotment.fault(
        "preempted keeps its computed count",
        "What was given back counts as computed, and is read from new, empty pages.",
        "        sequence.computed = len(match.pages) * self._page_size + match.tail_len\n",
        "        found = len(match.pages) * self._page_size + match.tail_len\n"
        "        again = sequence.cached_tokens is not None\n"
        "        sequence.computed = sequence.num_tokens - 1 if again else found\n",
    ),
    allotment.fault(
        "last prompt token from the cache",
        "A full hit leaves nothing to compute, and so no logits.",
        "known = bytes(sequence.tokens[:-TOKEN_BYTES])",
        "known = bytes(sequence.tokens)",
    ),
    allotment.fault(
        "tail page written while shared",
        "The partial page of the match is used in place of a copy.",
        "        held.pages += fresh\n        sequence.held",
        "        own = fresh[:1] if match.tail_page is None else [match.tail_page]\n"
        "        held.pages += [*own, *fresh[1:]]\n"
        "        sequence.held",
    ),
    allotment.fault(
        "copy source released before the copy",
        "The page to copy from may be handed out to the very sequence that copies it.",
        "            held.tail_source = match.tail_page\n",
        "            self._pool.release([match.tail_page])\n",
    ),
    allotment.fault(
        "copy never made is kept",
        "A sequence that ends in the step of its copy leaves an empty page as a hit.",
        "            computed -= computed % self._page_size\n",
        "            pass\n",
    ),
    allotment.fault(
        "last token's page kept though not computed",
        "The last sampled token, whose K/V nobody has written, is cached.",
        "        computed = sequence.exact(sequence.computed)\n",
        "        computed = sequence.num_tokens\n",
    ),
    allotment.fault(
        "no retry without the tail",
        "A request as large as the pool waits for the page that it would copy from.",
        "            if match.tail_page is None or spare:\n",
        "            if match.tail_page is None or spare >= 0:\n",
    ),
    allotment.fault(
        "failed admission keeps its match",
        "Each attempt without pages references the match once more.",
        "            held.release(self._pool)\n",
        "            held.pages.clear()\n",
    ),
    allotment.fault(
        "generated pages not shared",
        "What is generated enters the cache only when the sequence ends.",
        "if exact // self._page_size > held.num_committed:",
        "if held.num_committed < exact // self._page_size and end <= sequence.prompt_len:",
    ),
    allotment.fault(
        "generated tail not kept",
        "The next turn of a conversation computes the end of the last answer again.",
        "self._cache.finish(held, bytes(sequence.tokens), computed)",
        "self._cache.finish(held, bytes(sequence.tokens), min(computed, sequence.prompt_len))",
    ),
    allotment.fault(
        "page for the next token one too late",
        "At the edge of a page the next token has no slot.",
        "self.pages_for(sequence.num_tokens) - len(sequence.held.pages)",
        "self.pages_for(sequence.computed) - len(sequence.held.pages)",
    ),
    allotment.fault(
        "frontier of what is not in the cache",
        "Others wait for a page that this sequence can't bring them.",
        "return (at, following) if num_matched == num_pages else None",
        "return (at, following)",
    ),
    aware.fault(
        "aging sign wrong",
        "Who came last goes first.",
        "+ AGE * self.arrived",
        "- AGE * self.arrived",
    ),
    aware.fault(
        "no aging",
        "A long prompt never runs while short ones come.",
        "+ AGE * self.arrived",
        "+ 0 * self.arrived",
    ),
    aware.fault(
        "rank sign wrong",
        "Whom the operator prefers waits longest.",
        "- RANK_TOKENS * rank",
        "+ RANK_TOKENS * rank",
    ),
    aware.fault(
        "parked sequences never let go",
        "Who waited for a prefill that has ended waits for ever.",
        "for waiter in self._parked.pop(owner, ()):",
        "for waiter in self._parked.pop(owner, ())[:0]:",
    ),
    aware.fault(
        "prefill's flight never ends",
        "Who comes later waits for a prefill that is gone.",
        "            del self._flights[last]\n",
        "            pass\n",
    ),
    aware.fault(
        "siblings don't wait",
        "Each computes the prefix that another one is computing.",
        "            if owner is not None:\n",
        "            if owner is not None and waiter.is_parked:\n",
    ),
    aware.fault(
        "preempted loses its place by arrival",
        "Who was preempted waits behind all that came meanwhile.",
        "if sequence.arrived is None:",
        "if sequence.arrived is None or sequence.arrived < now:",
    ),
    aware.fault(
        "old match believed at the head",
        "What was evicted since counts as cached when the next one is chosen.",
        "elif waiter.matched_in == self._plan:",
        "elif waiter.matched_in >= 0:",
    ),
    aware.fault(
        "growth leaves places as they are",
        "Who shares what has come into the cache goes on waiting as a long one.",
        "            self._stale[waiter] = None\n",
        "",
    ),
    aware.fault(
        "gone sequence comes back from the stale ones",
        "What was admitted or aborted is matched again and is next once more.",
        "        self._stale.pop(waiter, None)\n",
        "",
    ),
    aware.fault(
        "idle account saves its turns",
        "Who waited for nothing goes before everybody for as long.",
        "            lane.virtual = max(lane.virtual, self._least_virtual())\n",
        "            pass\n",
    ),
    aware.fault(
        "turns without weights",
        "Who pays for more gets as much as everybody.",
        "lane.virtual += num_tokens / lane.account.weight",
        "lane.virtual += num_tokens",
    ),
    aware.fault(
        "accounts without turns",
        "Who floods the queue gets all of the worker.",
        "        if len(self._lanes) > 1:\n",
        "        if not self._lanes:\n",
    ),
    aware.fault(
        "entries of two times compared",
        "A preempted sequence meets its own old entry in the heap, and the engine dies.",
        "        waiter.ticket = self._tickets\n",
        "        waiter.ticket += 1\n",
    ),
    aware.fault(
        "accounts kept for ever",
        "Memory grows with every tenant that ever asked.",
        "            if len(self._lanes) > MAX_IDLE_LANES:\n",
        "            if not self._lanes and MAX_IDLE_LANES:\n",
    ),
    aware.fault(
        "heap keeps what has left it",
        "Memory grows with every match of a sequence that waits.",
        "        if len(heap) > 4 * lane.num_waiting + 64:\n",
        "        if not heap:\n",
    ),
    aware.fault(
        "short only below the limit",
        "A prompt of just the allowed length waits with the long ones.",
        "waiter.left <= self._short_tokens",
        "waiter.left < self._short_tokens",
    ),
    first_come.fault(
        "preempted goes to the end of the queue",
        "First come is last served.",
        "insort(self._waiting, sequence, key=_arrival)",
        "self._waiting.append(sequence)",
    ),
    sequence.fault(
        "end of sequence sampled before min_tokens",
        "Nothing bans the tokens that end a sequence too early.",
        "banned=spec.stopping.stop_token_ids if early and not mask else frozenset()",
        "banned=frozenset()",
    ),
)
