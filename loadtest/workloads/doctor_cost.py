"""What the doctor costs by itself: microseconds for a prompt of about 4,000 tokens, in one process.

known       a talk of 17 messages all of which were seen: look-ups only
follow-up   the same with one more question and answer, which get a shape
examined    a system prompt that is new and resembles one, looked at whole
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from statistics import median

import msgspec

from gateway.doctor.doctor import Asked, Doctor, DoctorSettings
from gateway.doctor.finding import Reason
from gateway.doctor.prompt import ChatParts
from gateway.doctor.served import Served
from gateway.fleet.departures import Departure
from gateway.routing.prefix import Scope, chat_chain
from loadtest.faults.words import Message, Writer

PROMPT_CHARS = 16_000
ROUNDS = 300


@dataclass(frozen=True, slots=True)
class Costs:
    """Medians, in microseconds, of question and answer together."""

    known_us: float
    follow_up_us: float
    examined_us: float


class _Steady:
    """One worker that holds everything."""

    def incarnation(self, _: str) -> str:
        return "only"

    def holds(self, *_: object) -> bool:
        return True

    def num_tokens(self, *_: object) -> int | None:
        return None

    def departure(self, *_: object) -> Departure | None:
        return None


class _Bench:
    """Times prompts one by one; the chain and the JSON are made before the clock runs."""

    def __init__(self) -> None:
        settings = DoctorSettings(remember=200_000, examinations_per_s=1e9)
        self._doctor = Doctor(settings, b"bench", _Steady())
        self._now = 0.0

    def time(self, messages: list[Message], cached: bool, reason: Reason | None = None) -> float:
        """Microseconds of one prompt. reason: what must be found."""
        chain = chat_chain(Scope("m", b"n"), messages)
        parts = partial(ChatParts, msgspec.json.encode(messages))
        asked = Asked("t", "m", b"n", chain, parts)
        tokens = chain.num_bytes // 4
        served = Served(tokens, tokens - 1 if cached else 0, "w0", "only", "hit")
        self._now += 1.0
        began = time.perf_counter()
        visit = self._doctor.asked(asked, self._now)
        finding = self._doctor.answered(visit, served, self._now)
        taken = time.perf_counter() - began
        assert reason is None or finding.reason is reason, finding
        return taken * 1e6


def measure(seed: int = 0) -> Costs:
    """Each path, ROUNDS times."""
    writer, bench = Writer(random.Random(seed)), _Bench()
    talk = [{"role": "system", "content": _long(writer, PROMPT_CHARS // 2)}, *writer.talk(8)]
    bench.time(talk, cached=False)
    last = Writer(random.Random(seed + 1))
    further = [[*talk[:-1], *last.talk(0)] for _ in range(ROUNDS)]
    system = _long(writer, PROMPT_CHARS)
    asked = [
        [{"role": "system", "content": f"Request {number}. {system}"}, *writer.talk(0)]
        for number in range(ROUNDS + 1)
    ]
    bench.time(asked.pop(), cached=False)
    return Costs(
        _median(partial(bench.time, cached=True, reason=Reason.HIT), [talk] * ROUNDS),
        _median(partial(bench.time, cached=True, reason=Reason.HIT), further),
        _median(partial(bench.time, cached=False, reason=Reason.COUNTER), asked),
    )


def _median(timed: Callable[[list[Message]], float], prompts: Iterable[list[Message]]) -> float:
    return median(timed(prompt) for prompt in prompts)


def _long(writer: Writer, chars: int) -> str:
    text = writer.system()
    while len(text) < chars:
        text += f"\n\n{writer.system()}"
    return text[:chars]
