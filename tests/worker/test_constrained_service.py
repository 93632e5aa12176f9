"""A constrained request through service and engine: its one end, wherever it is cut off."""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from prometheus_client import CollectorRegistry

from tests.worker.desk import Record, resumed, told
from tests.worker.grammar.languages import SCHEMAS, json_schema
from tests.worker.grammar.weak import WARM, WeakRunner, choices, lark, regex
from tests.worker.loaded import tokenizer_of
from worker.cache.pages import PagePool
from worker.cache.radix import RadixCache
from worker.engine import Engine, StepReport
from worker.errors import Cancelled, InvalidRequest
from worker.grammar.compiled import Grammar
from worker.grammar.compiler import Compiler
from worker.grammar.masks import Masks
from worker.intake import Intake
from worker.live import ServiceLimits
from worker.request import FinishReason
from worker.scheduler import Scheduler, SchedulerLimits
from worker.sequence import pack_tokens
from worker.service import Service
from worker.submission import ChatInput, Constraint, StopRules, Submission, Usage
from worker.telemetry import GrammarCounts, Telemetry
from worker.text.chat import ChatTemplate
from worker.text.tokenizer import Tokenizer

CHAT = ChatInput(json.dumps([{"role": "user", "content": "Name a tree."}]).encode())
PROMPTS: dict[str, ChatInput | str | bytes] = {
    "chat": CHAT,
    "text": "Once upon",
    "ids": pack_tokens([5, 6, 7]),
}


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.002)


class GatedCompiler(Compiler):
    """Compiles when the test says so."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self.inside, self.go = threading.Event(), threading.Event()
        self.go.set()

    def compile(self, constraint: Constraint) -> Grammar:
        self.inside.set()
        assert self.go.wait(10)
        return super().compile(constraint)


class House:
    """A worker but for its model and its door, on its own threads."""

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        grammars: GatedCompiler,
        template: ChatTemplate | None = None,
    ) -> None:
        template = template or ChatTemplate.load(folder, tokenizer)
        intake = Intake(tokenizer, template, 512, random.Random(0))
        intake.grammars = self.grammars = grammars
        self.service = Service(intake, tokenizer, ServiceLimits(8, 24))
        self.pool = PagePool(256, 4, keep_freed=True)
        self.cache = RadixCache(self.pool)
        self.masks = Masks(2)
        self.telemetry = Telemetry(registry := CollectorRegistry())
        registry.register(GrammarCounts(grammars.tallies))
        self.registry = registry
        loop = asyncio.get_running_loop()

        def take(report: StepReport) -> None:
            self.telemetry.observe(report)
            self.service.on_report(report)

        def on_report(report: StepReport) -> None:
            loop.call_soon_threadsafe(take, report)

        self.runner = WeakRunner(256, 4, tokenizer.vocab_size)
        self.engine = Engine(
            Scheduler(self.cache, SchedulerLimits(64, 8), masks=self.masks),
            self.runner,
            on_report,
        )
        self.service.attach(self.engine)
        self.link = Record()
        self.service.connect(self.link)

    async def run(self, submission: Submission) -> Record:
        """Returns all that came for one request, to its end."""
        self.link.outputs.clear()
        self.link.ends.clear()
        self.service.submit(self.link, submission)
        async with asyncio.timeout(60):
            await until(lambda: bool(self.link.ends))
        return self.link

    async def quiet(self) -> None:
        """Waits until nothing is live, and nothing is left of it."""
        async with asyncio.timeout(10):
            await until(
                lambda: (
                    not self.service.num_live
                    and not self.engine.load.used_pages
                    and not self.engine.load.waiting
                    and not self.masks._asked
                )
            )


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> GatedCompiler:
    return GatedCompiler(tokenizer)


@pytest.fixture
async def house(
    smollm2_folder: Path, tokenizer: Tokenizer, grammars: GatedCompiler
) -> AsyncIterator[House]:
    house = House(smollm2_folder, tokenizer, grammars)
    house.engine.start(lambda: None)
    yield house
    grammars.go.set()
    await house.quiet()
    house.engine.stop()
    house.cache.check()


def request_for(constraint: Constraint, prompt: str = "chat", **more: object) -> Submission:
    asked = Submission(1, PROMPTS[prompt], WARM, seed=7, constraint=constraint)
    return replace(asked, **more)  # type: ignore[arg-type]


def failure(record: Record) -> InvalidRequest:
    [[error]] = record.ends.values()
    assert isinstance(error, InvalidRequest)
    return error


@pytest.mark.parametrize("prompt", PROMPTS)
async def test_every_choice_is_text_that_conforms(house: House, prompt: str) -> None:
    record = await house.run(request_for(json_schema(SCHEMAS["nested"]), prompt, n=3))
    for one in told(3, record.outputs):
        jsonschema.validate(json.loads(one.text), SCHEMAS["nested"])
        assert one.finish is FinishReason.STOP
    [[usage]] = record.ends.values()
    assert isinstance(usage, Usage)
    assert usage.completion_tokens == sum(len(one.tokens) for one in told(3, record.outputs))


async def test_a_request_cut_anywhere_goes_on_as_if_it_had_not_been(house: House) -> None:
    submission = request_for(json_schema(SCHEMAS["long keys"]), n=2)
    whole = list((await house.run(submission)).outputs)
    wanted = told(2, whole)
    for cut in range(len(whole) + 1):
        unseen = [replace(one, finish=None, stop=None) for one in whole[:cut]]
        for part in (whole[:cut], unseen):
            record = await house.run(resumed(submission, part))
            assert told(2, part, record.outputs) == wanted


async def test_a_stop_string_ends_a_choice_inside_a_forced_text(house: House) -> None:
    for stop, text in (("answer", "There is one "), ("only: 1", "There is one answer ")):
        record = await house.run(
            request_for(choices("There is one answer only: 12."), rules=StopRules(stop=(stop,)))
        )
        [one] = told(1, record.outputs)
        assert (one.text, one.stop, one.finish) == (text, stop, FinishReason.STOP)
        logged = await house.run(
            request_for(
                choices("There is one answer only: 12."),
                rules=StopRules(stop=(stop,)),
                top_logprobs=0,
            )
        )
        assert told(1, logged.outputs)[0].tokens == one.tokens


async def test_a_bad_source_is_refused_off_the_event_loop(house: House) -> None:
    error = failure(await house.run(request_for(regex("["))))
    assert "unclosed" in error.message
    assert error.param == "structured_outputs.regex"


async def test_a_grammar_that_gets_stuck_fails_its_request(house: House) -> None:
    error = failure(await house.run(request_for(lark("start: /[a-z]{3}/ <[0]>"), n=3)))
    assert error.param == "structured_outputs.grammar"
    await house.quiet()


async def test_a_leading_space_is_not_dropped(house: House) -> None:
    record = await house.run(request_for(regex(" [a-z]{3}")))
    assert re.fullmatch(" [a-z]{3}", told(1, record.outputs)[0].text)


@pytest.mark.parametrize("end", ["cancel", "disconnect"])
@pytest.mark.parametrize("after", ["compiling", "compiled", "first", "later"])
async def test_a_hang_up_at_any_stage_leaves_nothing(
    house: House, grammars: GatedCompiler, end: str, after: str
) -> None:
    grammars.inside.clear()
    if after == "compiling":
        grammars.go.clear()
    constraint = regex(f"[a-z]{{400}}{after}{end}")
    house.service.submit(house.link, request_for(constraint, n=2))
    async with asyncio.timeout(20):
        await until(grammars.inside.is_set)
        wanted = {"compiling": 0, "compiled": 0, "first": 1, "later": 9}[after]
        await until(lambda: len(house.link.outputs) >= wanted)
    if end == "cancel":
        house.service.cancel(house.link, 1)
        [[error]] = house.link.ends.values()
        assert isinstance(error, Cancelled)
    else:
        house.service.disconnect(house.link)
    grammars.go.set()
    await house.quiet()


async def test_metrics_tell_of_masks_and_grammars(house: House) -> None:
    constraint = choices("one text that nobody else has asked for")
    before = house.registry.get_sample_value("pando_worker_grammars_total", {"outcome": "compiled"})
    await house.run(request_for(constraint))
    await house.run(request_for(constraint))
    await house.run(request_for(regex("[a-z]{5}")))
    read: Callable[..., float | None] = house.registry.get_sample_value
    assert read("pando_worker_grammars_total", {"outcome": "compiled"}) == (before or 0) + 2
    assert (read("pando_worker_grammars_total", {"outcome": "hit"}) or 0) >= 1
    assert (read("pando_worker_grammar_compile_seconds_total") or 0) > 0
    assert (read("pando_worker_forced_tokens_total") or 0) > 0
    assert (read("pando_worker_mask_seconds_count") or 0) >= 3
