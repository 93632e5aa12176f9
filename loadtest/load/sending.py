"""Conversations on their way: who begins when, each turn behind the one before it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import httpx

from loadtest.errors import LoadTestError
from loadtest.load.arrivals import Arrival, Closed, Open, Replayed, starts
from loadtest.load.prompt import Conversation, Prompt, with_answers
from loadtest.load.samples import Sample
from loadtest.load.sharing import Oracle, Share
from loadtest.load.target import TIMEOUT_S, Answer, Target, ask


@dataclass(frozen=True, slots=True)
class Plan:
    """How conversations are sent. think_s: mean pause of a client between two turns.

    live: what the model said stands in later turns, in place of what was written for it. seed: of
    arrivals and pauses.
    """

    arrival: Arrival
    think_s: float = 0.0
    live: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """Which part of a comparison the samples belong to."""

    side: str = "A"
    round: int = 0


@dataclass(slots=True)
class Sender:
    """Sends to one target. oracle: of all that was sent there; clock: in seconds."""

    target: Target
    plan: Plan
    clock: Callable[[], float] = time.perf_counter
    oracle: Oracle = field(default_factory=Oracle)

    async def send(
        self, conversations: Sequence[Conversation], label: Label = Label()
    ) -> list[Sample]:
        """Returns a sample for every request, in the order in which they were sent.

        Raises LoadTestError where recorded times are asked for and there are none.
        """
        due = dues(conversations, self.plan)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(timeout=TIMEOUT_S, limits=limits) as http:
            run = _Run(self, http, label, self.clock())
            waiting = iter(zip(due, conversations, strict=True))
            async with asyncio.TaskGroup() as group:
                for _ in range(_num_clients(self.plan.arrival, len(conversations))):
                    group.create_task(run.client(waiting))
        return sorted(run.samples, key=lambda one: one.at_s)


def dues(conversations: Sequence[Conversation], plan: Plan) -> list[float]:
    """Returns when each conversation may begin, in seconds. Raises LoadTestError."""
    match plan.arrival:
        case Open():
            return starts(plan.arrival, len(conversations), random.Random(f"due {plan.seed}"))
        case Closed():
            return [0.0] * len(conversations)
        case Replayed(speed):
            return [_recorded(one[0], speed) for one in conversations]


def _recorded(prompt: Prompt, speed: float) -> float:
    if prompt.at_s is None:
        raise LoadTestError(
            "this workload has no recorded times: give --rate, --ramp or --concurrency"
        )
    return prompt.at_s / speed


def _num_clients(arrival: Arrival, count: int) -> int:
    """An open loop has a client for every conversation, so that nobody waits for another one."""
    return min(arrival.concurrency, count) if isinstance(arrival, Closed) else count


@dataclass(slots=True)
class _Run:
    """One round of sending; clients write its samples."""

    sender: Sender
    http: httpx.AsyncClient
    label: Label
    began: float
    samples: list[Sample] = field(default_factory=list)

    async def client(self, waiting: Iterator[tuple[float, Conversation]]) -> None:
        """Takes conversations until none is left."""
        for due, conversation in waiting:
            await self._converse(due, conversation)

    async def _converse(self, due: float, conversation: Conversation) -> None:
        plan, clock = self.sender.plan, self.sender.clock
        rng = random.Random(f"pauses {plan.seed} {conversation[0].conversation}")
        said: list[str] = []
        for number, prompt in enumerate(conversation):
            if number:
                due = clock() - self.began + _pause(plan, rng)
                if isinstance(plan.arrival, Replayed):
                    due = _recorded(prompt, plan.arrival.speed)
            await asyncio.sleep(max(0.0, due - (clock() - self.began)))
            asked = with_answers(prompt, said) if plan.live and prompt.answers else prompt
            said.append(await self._ask(asked, due))

    async def _ask(self, prompt: Prompt, due: float) -> str:
        """Keeps a sample; returns what was said."""
        sender = self.sender
        share = sender.oracle.saw(prompt.tenant, prompt.body)
        answer = await ask(self.http, sender.target, prompt, sender.clock)
        if sender.plan.live:
            sender.oracle.made(prompt.tenant, prompt.body, answer.text)
        late_s = max(0.0, answer.began - self.began - due)
        self.samples.append(self._sample(prompt, answer, share, late_s))
        return answer.text

    def _sample(self, prompt: Prompt, answer: Answer, share: Share, late_s: float) -> Sample:
        usage = answer.usage
        return Sample(
            side=self.label.side,
            round=self.label.round,
            conversation=prompt.conversation,
            turn=prompt.turn,
            tenant=prompt.tenant,
            at_s=answer.began - self.began,
            late_s=late_s if isinstance(self.sender.plan.arrival, Open | Replayed) else 0.0,
            ttft_s=answer.seen[0] - answer.began if answer.seen else None,
            gaps_s=tuple(later - earlier for earlier, later in pairwise(answer.seen)),
            end_s=answer.ended - answer.began,
            status=answer.status,
            error=answer.error,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=answer.cached_tokens,
            worker=answer.worker,
            units=share.units,
            shared_units=share.shared,
        )


def _pause(plan: Plan, rng: random.Random) -> float:
    return rng.expovariate(1 / plan.think_s) if plan.think_s else 0.0
