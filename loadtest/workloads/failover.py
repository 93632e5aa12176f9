"""Workers die under live streams: what do clients see of it?

    once        every request by itself runs to its end: what it should say
    each round  all requests at once; when a share of the output is there, one worker is killed
                (kill -9) or told to leave; it comes back before the next round

A round that took no stream from anybody is void: it shows nothing and is left out of the sums.

Requests are of every kind that can be told apart: greedy and seeded, several choices, logprobs,
stop strings, chats and completions. Tokens, text, logprobs and finish reasons have to be the same.
"""

from __future__ import annotations

import asyncio
import enum
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx

from loadtest.errors import LoadTestError
from loadtest.parts import Parts, names
from loadtest.report import Report, milliseconds
from loadtest.words import sentence
from pando.programs.wire import event_data

NAME = "failover"
COLUMNS = ("round", "lost worker", "streams on it", "errors", "mismatches", "longest gap")
TIMEOUT_S = 600.0
# Of the rounds, so many must have taken a stream from somebody.
_VALID_SHARE = 0.75


class Loss(enum.Enum):
    """What is done to a worker. KILL: kill -9; LEAVE: SIGTERM."""

    KILL = "kill"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class Shape:
    """How many streams and rounds, and how a worker is lost."""

    streams: int = 64
    rounds: int = 20
    new_tokens: int = 48
    loss: Loss = Loss.KILL
    seed: int = 0


@dataclass(slots=True)
class Told:
    """What a client got, by choice. gap_s: the longest time between two pieces of the answer."""

    text: dict[int, str] = field(default_factory=dict)
    logprobs: dict[int, list[float]] = field(default_factory=dict)
    finish: dict[int, str] = field(default_factory=dict)
    completion_tokens: int = 0
    error: str | None = None
    worker: str = ""
    gap_s: float = 0.0

    def same_as(self, other: Told) -> bool:
        """Whether a client could not tell them apart."""
        return (self.text, self.logprobs, self.finish, self.completion_tokens) == (
            other.text,
            other.logprobs,
            other.finish,
            other.completion_tokens,
        )

    def take(self, chunk: dict[str, Any]) -> None:
        """Add one event's data."""
        if "error" in chunk:
            self.error = str(chunk["error"])
            return
        if chunk.get("usage"):
            self.completion_tokens = chunk["usage"]["completion_tokens"]
        for choice in chunk["choices"]:
            index = choice["index"]
            piece = choice["delta"].get("content", "") if "delta" in choice else choice["text"]
            self.text[index] = self.text.get(index, "") + piece
            self.logprobs.setdefault(index, []).extend(_logprobs(choice.get("logprobs")))
            if choice["finish_reason"]:
                self.finish[index] = choice["finish_reason"]


@dataclass(frozen=True, slots=True)
class Round:
    """One loss. affected: streams that the lost worker had when it was lost."""

    worker: str
    affected: int
    errors: int
    mismatches: int
    gaps_s: list[float]

    @property
    def is_void(self) -> bool:
        """Whether nobody lost a stream, so that it shows nothing; an error shows something."""
        return not (self.affected or self.errors or self.mismatches)


def requests(shape: Shape, model: str) -> list[tuple[str, dict[str, Any]]]:
    """Paths and bodies, a kind after the other; prefixes differ, so all workers get some."""
    rng = random.Random(shape.seed)
    made = []
    for number in range(shape.streams):
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": shape.new_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **_kind(number),
        }
        words = sentence(rng, 24)
        if number % 4 == 3:
            made.append(("/v1/completions", {**body, "prompt": f"Once there was a {words}"}))
            continue
        messages = [
            {"role": "system", "content": f"You tell stories of the {words}."},
            {"role": "user", "content": f"Tell me story {number}, please."},
        ]
        made.append(("/v1/chat/completions", {**body, "messages": messages}))
    return made


def _kind(number: int) -> dict[str, Any]:
    """How this one is decoded."""
    sampled = {"temperature": 0.9, "top_p": 0.95, "seed": number}
    kinds: list[dict[str, Any]] = [
        {"temperature": 0, "ignore_eos": True},
        {**sampled, "ignore_eos": True},
        {**sampled, "n": 2},
        {"temperature": 0, "logprobs": 2 if number % 4 == 3 else True, "ignore_eos": True},
        {**sampled, "presence_penalty": 0.5, "frequency_penalty": 0.3, "min_tokens": 8},
        {"temperature": 0, "stop": ["forest", " the "], "min_tokens": 12},
    ]
    return kinds[number % len(kinds)]


class Counts(Protocol):
    """Hears of every event of every stream."""

    def count(self) -> None:
        """One more came."""


async def tell(client: httpx.AsyncClient, path: str, body: dict[str, Any], tick: Counts) -> Told:
    """Streams one answer; never raises for what the server does."""
    told = Told()
    last = time.monotonic()
    done = False
    try:
        async with client.stream("POST", path, json=body) as response:
            told.worker = response.headers.get("x-pando-worker", "")
            if response.status_code != 200:
                told.error = (await response.aread()).decode()
                return told
            async for data in event_data(response.aiter_bytes()):
                now = time.monotonic()
                told.gap_s, last = max(told.gap_s, now - last), now
                done = data == b"[DONE]"
                if not done:
                    told.take(json.loads(data))
                    tick.count()
    except httpx.HTTPError as error:
        told.error = repr(error)
    if not done and told.error is None:
        told.error = "the stream ended without [DONE]"
    return told


class _Tick:
    """Calls something once, when so many events have come."""

    def __init__(self, at: int = -1, action: Callable[[], object] | None = None):
        self._at = at
        self._action = action
        self._num = 0

    def count(self) -> None:
        self._num += 1
        if self._num == self._at and self._action is not None:
            self._action()


async def measure(parts: Parts, shape: Shape, progress: Callable[[str], None]) -> list[Round]:
    """Every round's outcome. Raises httpx.HTTPError if the fleet can't do the first run."""
    limits = httpx.Limits(max_connections=None)
    url = parts.urls[0]
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits) as client:
        model = (await client.get("/v1/models")).json()["data"][0]["id"]
        asked = requests(shape, model)
        progress("the uninterrupted run")
        whole = await asyncio.gather(*(tell(client, *one, _Tick()) for one in asked))
        broken = [told.error for told in whole if told.error]
        if broken:
            raise httpx.HTTPError(f"the uninterrupted run failed: {broken[0]}")
        rounds = []
        rng = random.Random(shape.seed)
        for number in range(shape.rounds):
            progress(f"round {number + 1} of {shape.rounds}")
            rounds.append(await _one_round(parts, client, asked, whole, (shape, rng)))
        return rounds


async def _one_round(
    parts: Parts,
    client: httpx.AsyncClient,
    asked: Sequence[tuple[str, dict[str, Any]]],
    whole: Sequence[Told],
    chosen: tuple[Shape, random.Random],
) -> Round:
    shape, rng = chosen
    victim = rng.choice(list(names(parts)))
    loop = asyncio.get_running_loop()
    lose = {Loss.KILL: parts.kill, Loss.LEAVE: parts.terminate}[shape.loss]
    losses: list[asyncio.Future[None]] = []

    def strike() -> None:
        losses.append(loop.run_in_executor(None, lose, victim))

    tick = _Tick(int(len(asked) * shape.new_tokens * rng.uniform(0.1, 0.7)), strike)
    told = await asyncio.gather(*(tell(client, *one, tick) for one in asked))
    affected = [one for one in told if losses and one.worker == victim]
    if losses:
        await losses[0]
        await asyncio.to_thread(_restore, parts, victim)
    return Round(
        victim,
        len(affected),
        sum(one.error is not None for one in told),
        sum(
            one.error is None and not one.same_as(other)
            for one, other in zip(told, whole, strict=True)
        ),
        [one.gap_s for one in affected],
    )


def _restore(parts: Parts, victim: str) -> None:
    parts.start_worker(victim)
    parts.wait_until_linked()


def _logprobs(given: Any) -> list[float]:
    if not given:
        return []
    if "content" in given:
        return [entry["logprob"] for entry in given["content"]]
    return list(given["token_logprobs"])


def report(rounds: Sequence[Round]) -> Report:
    """The table of rounds, and the sums. Raises LoadTestError where too many were void."""
    valid = [one for one in rounds if not one.is_void]
    if len(valid) < len(rounds) * _VALID_SHARE:
        raise LoadTestError(
            f"in {len(rounds) - len(valid)} of {len(rounds)} rounds nobody lost a stream: "
            "more streams or longer answers are needed"
        )
    gaps = sorted(gap for one in valid for gap in one.gaps_s)
    p99 = gaps[min(len(gaps) - 1, int(0.99 * len(gaps)))] if gaps else 0.0
    return Report(
        name=NAME,
        columns=COLUMNS,
        rows=[
            [
                str(number),
                one.worker,
                "void" if one.is_void else str(one.affected),
                str(one.errors),
                str(one.mismatches),
                milliseconds(max(one.gaps_s, default=0.0)),
            ]
            for number, one in enumerate(rounds, 1)
        ],
        summary={
            "client_errors": sum(one.errors for one in valid),
            "token_mismatches": sum(one.mismatches for one in valid),
            "gap_p99_s": p99,
            "void_rounds": len(rounds) - len(valid),
        },
    )
