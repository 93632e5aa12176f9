"""Programs that ask for much: what is refused, what waits, and that nobody else does."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.worker.programs.bench import Bench, fork, gen, message, select, text, tiny, var
from worker.errors import ContextLengthExceeded, InvalidRequest
from worker.model.interface import Model
from worker.programs.desk import MAX_AT_ONCE
from worker.programs.run import INLINE_CHARS
from worker.submission import NamedBoundary, ProgramInput, Submission, Unit
from worker.text.chat import ChatTemplate
from worker.text.tokenizer import Tokenizer

OPENING = text("Once upon a time there was a tree. It said: ")


class Noting(Tokenizer):
    """Notes which threads encode long texts, and the longest text."""

    def __post(self, text: str) -> None:
        noted: set[int] = self.__dict__.setdefault("threads", set())
        self.longest = max(self.__dict__.get("longest", 0), len(text))
        if len(text) > INLINE_CHARS:
            noted.add(threading.get_ident())

    def encode_literal(self, text: str) -> list[int]:
        self.__post(text)
        return super().encode_literal(text)

    def encode_inner(self, text: str) -> list[int]:
        self.__post(text)
        return super().encode_inner(text)


@dataclass(frozen=True)
class Both:
    model: Model
    tokenizer: Noting
    template: ChatTemplate


@pytest.fixture(scope="module")
def both(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """A tiny random model with the real tokenizer's vocabulary."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = Noting.load(smollm2_folder)
    assert isinstance(tokenizer, Noting)
    _, model = tiny(tokenizer.vocab_size, folder)
    return Both(model, tokenizer, ChatTemplate.load(smollm2_folder, tokenizer))


@pytest.mark.parametrize("method", ["token_length_normalized", "greedy_token_selection"])
async def test_choices_that_are_one_token_with_the_text_are_scored_behind_nothing(
    both: Both, method: str
) -> None:
    tokenizer = both.tokenizer
    words = ("national", "im", "n")
    ids = [tokenizer.encode_literal("inter" + one) for one in words]
    assert len(tokenizer.encode_literal("inter")) == min(map(len, ids)) == 1
    nothing = "<|endoftext|>"
    async with Bench(both.model, tokenizer, None) as bench:
        came = await bench.run([text("inter"), select("s", *words, method=method)])
        assert came.error is None
        assert len(came.last("s").scores) == 3
        alone = await bench.run([text("x"), select("s", "y")])
        assert alone.error is None, nothing
        first = await bench.run([select("s", "a", "b")])
        assert isinstance(first.error, InvalidRequest)
        await bench.quiet()


async def test_what_variables_make_of_a_program_is_bounded_before_it_is_read(both: Both) -> None:
    value = " word" * 400
    async with Bench(both.model, both.tokenizer, both.template) as bench:
        both.tokenizer.longest = 0
        for many in (
            [text(*[var("v")] * 5000)],
            [text(*[var("v")] * 50)] * 100,
            [select("s", [var("v")] * 5000)],
        ):
            came = await bench.run([OPENING, select("v", value), *many, gen("a")])
            assert isinstance(came.error, ContextLengthExceeded)
            assert came.error.param == "program"
        chat = [message("user", text("word " * 200_000)), message("assistant", gen("a"))]
        assert isinstance((await bench.run(chat)).error, ContextLengthExceeded)
        assert both.tokenizer.longest < 100_000
        await bench.quiet()


async def test_long_texts_are_read_beside_the_event_loop(both: Both) -> None:
    async with Bench(both.model, both.tokenizer, None) as bench:
        both.tokenizer.__dict__["threads"] = set()
        long = text("word " * 1500)
        came = await bench.run([long, gen("a"), long, select("s", "x", "y")])
        assert isinstance(came.error, ContextLengthExceeded)
        assert both.tokenizer.__dict__["threads"]
        assert threading.get_ident() not in both.tokenizer.__dict__["threads"]
        await bench.quiet()


async def test_a_programs_sequences_enter_a_few_at_a_time_and_shut_nobody_out(both: Both) -> None:
    many = [
        [select(f"s{k}", *(f" {k} {n}" for n in range(100))), gen(f"g{k}", 3, n=50)]
        for k in range(4)
    ]
    most = 0

    async def watched(bench: Bench) -> None:
        nonlocal most
        while True:
            most = max(most, bench.service.num_sequences)
            await asyncio.sleep(0)

    async with Bench(both.model, both.tokenizer, None) as bench:
        watch = asyncio.create_task(watched(bench))
        came = await bench.run([OPENING, fork(*many)])
        watch.cancel()
        assert came.error is None
        assert len(came.values) == 4 * 51
        assert most == MAX_AT_ONCE
        bench.submit(1000, [OPENING, fork(*many)])
        await asyncio.sleep(0.1)
        bench.service.cancel(bench.record, 1000)
        await bench.quiet()
        assert not bench.service.num_sequences


async def test_the_gateway_learns_what_is_cached_of_a_programs_beginning(both: Both) -> None:
    front = "Once upon a time there was a tree, and nobody knew its name. " * 4
    named = NamedBoundary(b"front", len(front), Unit.CHARS)
    async with Bench(both.model, both.tokenizer, None) as bench:
        program = [text(front), fork([text(" It"), gen("a")], [select("s", " x", " y")])]
        told = json.dumps({"program": program, "sampling": {"temperature": 0}}).encode()
        asked = ProgramInput(told, (), None)
        bench.service.submit(bench.record, Submission(1, asked, boundaries=(named,)))
        await bench.quiet()
        [known] = bench.engine.snapshot()[0]
        assert known.digest == b"front"
