"""One program's run: every branch a task, every generation a sequence of the engine.

    branch    text ─▶ gen ─▶ text ─▶ fork ─┬─▶ text ─▶ select ...     a branch of its own
                                           └─▶ gen ...                another
    parent    goes on at once; who reads a variable waits for it

Nothing here knows of other requests: the port submits sequences and gives outputs, and the cache
shares what branches have in common.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

from proto.program import Fork, Gen, Message, Node, Part, Program, Select, Text, walk
from worker.cache.scope import CacheScope
from worker.choice import Choice
from worker.errors import ContextLengthExceeded, InvalidRequest
from worker.grammar.compiled import Grammar
from worker.grammar.prefixed import prefixed
from worker.programs.scoring import by_gain, by_mean, by_steps, scored_from
from worker.programs.tape import Start, Tape, Writer, packed
from worker.programs.values import Stream, Tally, Value, outputs
from worker.request import FinishReason, Sampling, Stopping
from worker.sequence import SequenceSpec, unpack_tokens
from worker.submission import Constraint, Language, NodeOutput, Resumed, StopRules, Usage
from worker.text.detokenizer import Detokenizer

# Characters that are read without leaving the event loop (about a millisecond).
INLINE_CHARS = 4096
# Of all texts and choices that a program's nodes hold, variables put in.
MAX_CHARS = 32 * 1024 * 1024
# Selects at once: each one keeps its choices' ids, and what stands before them each time.
SELECTS_AT_ONCE = 8
Found = TypeVar("Found")


class Port(Protocol):
    """What a run needs of its worker."""

    def submit(self, specs: Sequence[SequenceSpec]) -> list[Stream]:
        """Hands sequences to the engine; each one's progress comes by its stream."""

    def abort(self, ids: Sequence[int]) -> None:
        """Takes sequences back."""

    def give(self, output: NodeOutput) -> None:
        """Gives an output to the client."""

    def next_id(self) -> int:
        """Returns an id for a sequence."""

    async def compile(self, constraint: Constraint) -> Grammar:
        """Returns a grammar. Raises InvalidRequest."""

    async def beside(self, work: Callable[[], Found]) -> Found:
        """Returns what takes long, done beside the event loop."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What holds for all of a program's sequences. clock: seconds."""

    writer: Writer
    scope: CacheScope
    rank: int
    clock: Callable[[], float]


@dataclass(slots=True)
class State:
    """Where a program stands: what the next one of a session goes on from."""

    tape: Tape
    values: dict[str, str] = field(default_factory=dict)

    def copy(self) -> State:
        """Returns another one that goes on from here."""
        return State(self.tape.copy(), dict(self.values))


class ProgramRun:
    """Runs one program once. given: what other workers gave out of its nodes, by name and index."""

    def __init__(
        self,
        program: Program,
        state: State,
        around: Surroundings,
        port: Port,
        given: Mapping[tuple[str, int], NodeOutput],
    ) -> None:
        self._program = program
        self.state = state
        self._around = around
        self._port = port
        self._given = given
        self._places = {id(node): place for place, node in enumerate(walk(program.program))}
        self._values: dict[str, asyncio.Future[str]] = {}
        self._group = asyncio.TaskGroup()
        self._began_s = around.clock()
        self._generated = 0
        self._prompt_tokens = self._cached_tokens = 0
        self._num_chars = 0
        self._selects = asyncio.Semaphore(SELECTS_AT_ONCE)

    @property
    def scope(self) -> CacheScope:
        """Where its pages are shared."""
        return self._around.scope

    @property
    def usage(self) -> Usage:
        """Tokens so far: in front of every generation, of them cached, and generated."""
        return Usage(self._prompt_tokens, self._cached_tokens, self._generated)

    async def run(self) -> None:
        """Runs every branch to its end. Raises RequestFailed."""
        loop = asyncio.get_running_loop()
        for name, value in self.state.values.items():
            self._values[name] = loop.create_future()
            self._values[name].set_result(value)
        for node in walk(self._program.program):
            if isinstance(node, Gen | Select):
                self._values[node.name] = loop.create_future()
        try:
            async with self._group:
                self._group.create_task(self._branch(self._program.program, self.state.tape))
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            for future in self._values.values():
                future.cancel()
        self.state.values = {
            name: future.result() for name, future in self._values.items() if future.done()
        }
        self._port.give(NodeOutput("", root_text=self.state.tape.text))

    # ------------------------------------------------------------------ branches and nodes

    async def _branch(self, nodes: Sequence[Node], tape: Tape) -> None:
        for node in nodes:
            if isinstance(node, Text):
                tape.append(await self._joined(node.text))
            elif isinstance(node, Message):
                tape.begin(node.role)
                await self._branch(node.body, tape)
                tape.end()
            elif isinstance(node, Fork):
                for branch in node.branches:
                    self._group.create_task(self._branch(branch, tape.copy()))
            elif isinstance(node, Gen):
                await self._gen(node, tape)
            else:
                await self._select(node, tape)

    async def _joined(self, parts: Sequence[Part]) -> str:
        found = [one if isinstance(one, str) else await self._values[one.var] for one in parts]
        num_chars = sum(map(len, found))
        self._around.writer.check_room(num_chars)
        self._num_chars += num_chars
        if self._num_chars > MAX_CHARS:
            raise InvalidRequest(
                "program",
                f"The program's texts have more than {MAX_CHARS} characters together.",
            )
        return "".join(found)

    async def _gen(self, node: Gen, tape: Tape) -> None:
        tally = Tally(self._now())
        start = await self._read(tape.num_unread, partial(tape.start, heals=self._program.heal))
        prompt_len, longest = len(start.ids), self._around.writer.max_model_len
        if prompt_len + node.max_tokens > longest:
            raise ContextLengthExceeded(prompt_len, longest, "program", node.max_tokens)
        grammar = await self._grammar(node, start)
        values: list[tuple[list[int], str]] = list(
            await asyncio.gather(
                *(self._value(node, index, start, grammar, tally) for index in range(node.n))
            )
        )
        tape.said(start, *values[0])
        self._values[node.name].set_result(values[0][1])

    async def _grammar(self, node: Gen, start: Start) -> Grammar | None:
        constraint = _constraint(node)
        if start.prefix:
            constraint = prefixed(start.prefix, constraint)
        return None if constraint is None else await self._port.compile(constraint)

    async def _value(
        self, node: Gen, index: int, start: Start, grammar: Grammar | None, tally: Tally
    ) -> tuple[list[int], str]:
        """Returns one value's tokens and text; its outputs go to the client as they come."""
        given = self._given.get((node.name, index))
        tokenizer = self._around.writer.tokenizer
        begun = unpack_tokens(given.tokens) if given is not None else []
        if given is not None and given.finish is not None:
            self._generated += len(begun)
            self._count(tally, given.prompt_tokens, given.cached_tokens)
            return begun, given.text
        spec = self._spec(node, index, start, grammar, packed(begun))
        detokenizer = Detokenizer.after_text(tokenizer)
        rules = StopRules(stop=tuple(node.stop))
        choice = Choice.open(index, rules, detokenizer, skipped=len(start.prefix))
        value = Value(node.name, index, "" if given is None else given.text)
        if given is not None:
            self._generated += len(begun)
            taken_up = Resumed(index, given.tokens, len(given.text))
            ended = choice.replay(taken_up, spec.stopping)
            if ended is not None:
                self._port.give(value.output(ended.text, [], ended.finish, tally, self._now()))
                return begun, value.text
        [stream] = self._port.submit([spec])
        tokens = begun
        async for output in outputs(stream, choice):
            tokens += output.tokens
            self._generated += len(output.tokens)
            if output.finish is not None:
                self._count(tally, len(start.ids), stream.cached_tokens)
                self._port.abort([spec.id])
            self._port.give(
                value.output(output.text, output.tokens, output.finish, tally, self._now())
            )
        return tokens, value.text

    async def _select(self, node: Select, tape: Tape) -> None:
        tally = Tally(self._now())
        texts = [await self._joined(choice) for choice in node.choices]
        await self._read(tape.num_unread, tape.open)
        given = self._given.get((node.name, 0))
        if given is not None and given.finish is not None:
            self._count(tally, given.prompt_tokens, given.cached_tokens)
            best = given.choice
        else:
            async with self._selects:
                best, scores = await self._best(node, tape, texts, tally)
            output = NodeOutput(node.name, 0, texts[best], finish=FinishReason.STOP, choice=best)
            self._port.give(
                replace(
                    output,
                    scores=tuple(scores),
                    prompt_tokens=tally.prompt_tokens,
                    cached_tokens=tally.cached_tokens,
                    started_s=tally.started_s,
                    ended_s=self._now(),
                )
            )
        tape.append(texts[best])
        self._values[node.name].set_result(texts[best])

    async def _best(
        self, node: Select, tape: Tape, texts: Sequence[str], tally: Tally
    ) -> tuple[int, list[float]]:
        size = (1 + len(texts)) * tape.num_unread + sum(map(len, texts))
        text, *ids = await self._read(size, partial(self._ids, tape, texts))
        first = scored_from(text, ids)
        tokens = [one[first:] for one in ids]
        # A text's very first token has a likelihood behind nothing only.
        lead = [] if first else self._nothing()
        logprobs = await self._scores([lead + one for one in ids], first or len(lead), tally)
        if node.method == "token_length_normalized":
            return by_mean(logprobs)
        if node.method == "greedy_token_selection":
            return by_steps(tokens, logprobs)
        bare = self._nothing()
        alone = await self._scores([bare + one for one in tokens], len(bare), tally)
        return by_gain(logprobs, alone)

    def _ids(self, tape: Tape, texts: Sequence[str]) -> list[list[int]]:
        """The ids of a branch alone and with each of the texts behind it."""
        found, longest = [], self._around.writer.max_model_len
        for text in ("", *texts):
            found.append(tape.choice(text))
            if not found[0]:
                raise InvalidRequest("program", "Something must stand before what is chosen.")
            if len(found[-1]) >= longest:
                raise ContextLengthExceeded(len(found[-1]), longest, "program")
        return found

    async def _read(self, num_chars: int, work: Callable[[], Found]) -> Found:
        """Returns what is made of so much text; beside the event loop where that is long."""
        return work() if num_chars <= INLINE_CHARS else await self._port.beside(work)

    def _nothing(self) -> list[int]:
        """An empty text: what stands in front of every text, or the end of another."""
        tokenizer = self._around.writer.tokenizer
        found = tokenizer.lead or sorted(tokenizer.eos_ids)[:1]
        if not found:
            raise InvalidRequest(
                "program",
                "This model has no token for an empty text to compare likelihoods with.",
            )
        return list(found)

    async def _scores(
        self, prompts: Sequence[list[int]], first: int, tally: Tally
    ) -> list[list[float]]:
        """Returns the logprobs of each prompt's tokens from its first-th on."""
        specs = [
            SequenceSpec(
                id=self._port.next_id(),
                scope=self._around.scope,
                prompt=packed(ids),
                sampling=Sampling(temperature=0.0),
                stopping=Stopping(1),
                rank=self._around.rank,
                score_prompt=True,
                scored_from=first,
            )
            for ids in prompts
        ]
        streams = self._port.submit(specs)
        found = []
        for spec, stream in zip(specs, streams, strict=True):
            progress = await stream.next()
            assert progress.prompt_scores is not None
            found.append([score.logprob for score in progress.prompt_scores])
            self._count(tally, len(spec.prompt) // 4, stream.cached_tokens)
        return found

    # ------------------------------------------------------------------ small things

    def _spec(
        self, node: Gen, index: int, start: Start, grammar: Grammar | None, output: bytes
    ) -> SequenceSpec:
        return SequenceSpec(
            id=self._port.next_id(),
            scope=self._around.scope,
            prompt=packed(start.ids),
            sampling=self._sampling(node),
            stopping=Stopping(node.max_tokens, self._around.writer.tokenizer.eos_ids),
            choice=index,
            output=output,
            rank=self._around.rank,
            grammar=grammar,
        )

    def _sampling(self, node: Gen) -> Sampling:
        common = self._program.sampling
        seed = node.seed
        if seed is None:
            seed = common.seed or 0
        word = hashlib.blake2b(f"{seed}/{self._places[id(node)]}".encode(), digest_size=8)
        return Sampling(
            temperature=_first_of(node.temperature, common.temperature, 1.0),
            top_p=_first_of(node.top_p, common.top_p, 1.0),
            top_k=max(int(_first_of(node.top_k, common.top_k, 0)), 0),
            min_p=_first_of(node.min_p, common.min_p, 0.0),
            seed=int.from_bytes(word.digest(), "little"),
        )

    def _count(self, tally: Tally, prompt_tokens: int, cached_tokens: int) -> None:
        tally.prompt_tokens += prompt_tokens
        tally.cached_tokens += cached_tokens
        self._prompt_tokens += prompt_tokens
        self._cached_tokens += cached_tokens

    def _now(self) -> float:
        return self._around.clock() - self._began_s


def _first_of(*values: float | None) -> float:
    """The first one that is set."""
    return next(one for one in values if one is not None)


def _constraint(node: Gen) -> Constraint | None:
    if node.regex is not None:
        return Constraint(Language.REGEX, node.regex)
    if node.grammar is not None:
        return Constraint(Language.GRAMMAR, node.grammar)
    if node.json_schema is not None:
        return Constraint(Language.JSON_SCHEMA, json.dumps(node.json_schema))
    return None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """One of the errors that ended a program."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
