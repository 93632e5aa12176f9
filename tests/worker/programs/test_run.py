"""Programs on a worker: cut and gone on with, side by side, failing, given up, in sessions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.worker.loaded import tokenizer_of
from tests.worker.programs.bench import Bench, fork, gen, select, text, tiny, var
from worker.errors import SessionLost
from worker.model.interface import Model
from worker.submission import Session
from worker.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Both:
    model: Model
    tokenizer: Tokenizer


@pytest.fixture(scope="module")
def both(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """A tiny random model with the real tokenizer's vocabulary."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = tokenizer_of(smollm2_folder)
    _, model = tiny(tokenizer.vocab_size, folder)
    return Both(model, tokenizer)


OPENING = [text("Once upon a time there was a tree. It said: ")]
STORY = [
    *OPENING,
    gen("a", 6),
    fork([text(" and"), gen("b", 5, n=2, temperature=1.0)], [select("c", " yes", " no", " yess")]),
    text(var("a"), "\n"),
    gen("d", 6, stop=["\n"]),
]


async def test_a_program_cut_anywhere_goes_on_elsewhere_with_the_very_values(both: Both) -> None:
    async with Bench(both.model, both.tokenizer, None) as bench:
        whole = await bench.run(STORY)
        assert whole.error is None
        for cut in range(1, len(whole.outputs)):
            given = whole.given(cut)
            async with Bench(both.model, both.tokenizer, None) as other:
                rest = await other.run(STORY, given=given)
                before = {(one.name, one.index): one.text for one in given}
                names = before.keys() | rest.values.keys()
                joined = {key: before.get(key, "") + rest.values.get(key, "") for key in names}
                assert joined == whole.values
                assert rest.root == whole.root
                done = {one.name for one in given if one.finish is not None and one.name != "b"}
                assert not done & {output.name for output in rest.outputs}
                await other.quiet()


async def test_branches_run_beside_one_another_and_share_their_beginning(both: Both) -> None:
    ideas = [[text(f" {n}"), gen(f"v{n}", 8)] for n in range(8)]
    async with Bench(both.model, both.tokenizer, None) as bench:
        opening = text("Once upon a time there was a tree. " * 20)
        await bench.run([opening, fork(*ideas)], heal=False)
        counters = bench.scheduler.counters
        first = len(both.tokenizer.encode_literal(opening["text"][0]))
        # Whole pages are shared while they are computed; of the last one each has its own.
        assert counters.computed_tokens < first + 8 * (8 + 3 + bench.page_size)
        # Nine steps would do; one after the other it takes eight times as many.
        assert counters.steps < 24


async def test_noise_depends_on_the_seed_and_the_place_alone(both: Both) -> None:
    warm = {"temperature": 1.0, "seed": 3}
    async with Bench(both.model, both.tokenizer, None) as bench:
        program = [*OPENING, gen("a", 8, n=3), gen("b", 8)]
        first = await bench.run(program, sampling=warm)
        await bench.run([text("Something else"), gen("a", 8)], sampling=warm)
        assert (await bench.run(program, sampling=warm)).values == first.values
        assert len(set(first.values.values())) == 4
        # The branch goes on behind the first value of several.
        said = first.values[("a", 0)] + first.values[("b", 0)]
        assert first.root == OPENING[0]["text"][0] + said
        twins = await bench.run([*OPENING, fork([gen("c", 8)], [gen("d", 8)])], sampling=warm)
        assert len(set(twins.values.values())) == 2
        other = await bench.run(program, sampling={**warm, "seed": 4})
        assert other.values != first.values


async def test_an_error_in_a_branch_ends_the_program_and_leaves_nothing(both: Both) -> None:
    broken = [
        fork([gen("a", 500)], [gen("b", 1500), gen("c", 4, regex="[")]),
        fork([gen("d", 4000)], [gen("e", 500)]),
        fork([gen("f", 500)], [gen("g", 4, grammar="start: nothing")]),
    ]
    async with Bench(both.model, both.tokenizer, None) as bench:
        for node in broken:
            came = await bench.run([*OPENING, node])
            assert came.error is not None
            assert came.error.param == "program"
            await bench.quiet()
        assert (await bench.run([gen("a")])).error is not None
        assert (await bench.run([*OPENING, gen("a")])).error is None


async def test_a_programs_time_is_told_by_what_came_first(both: Both) -> None:
    async with Bench(both.model, both.tokenizer, None) as bench:
        assert (await bench.run([text("One"), gen("x", 2), gen("y", 2)])).error is None
        told = bench.record.timings[bench.numbers]
        marks = (told.prepared_s, told.admitted_s, told.first_token_s, told.ended_s)
        assert None not in marks
        assert list(marks) == sorted(marks, key=lambda mark: mark or 0.0)


async def test_a_hang_up_at_any_time_leaves_nothing(both: Both) -> None:
    async with Bench(both.model, both.tokenizer, None) as bench:
        for pause_s in (0, 0.001, 0.005, 0.02, 0.05, 0.2):
            bench.numbers += 1
            bench.submit(bench.numbers, [*STORY, gen("z", 400)])
            await asyncio.sleep(pause_s)
            bench.service.cancel(bench.record, bench.numbers)
            await bench.quiet()
        assert not bench.service.num_sequences
        assert (await bench.run(STORY)).error is None


async def test_a_session_goes_on_where_it_stood_and_is_its_tenants_own(both: Both) -> None:
    async with Bench(both.model, both.tokenizer, None) as bench:
        whole = await bench.run(STORY)
        parts = [STORY[:2], STORY[2:3], STORY[3:]]
        found: dict[tuple[str, int], str] = {}
        for number, part in enumerate(parts):
            session = Session("s", 60, resumes=number > 0)
            came = await bench.run(part, session=session, namespace=b"a")
            found |= came.values
        # Places in the document differ, so what is drawn by chance does.
        greedy = {key: value for key, value in whole.values.items() if key[0] != "b"}
        assert {key: value for key, value in found.items() if key[0] != "b"} == greedy
        kept = Session("s", 60, resumes=True)
        stolen = await bench.run([gen("x")], session=kept, namespace=b"b")
        assert isinstance(stolen.error, SessionLost)
        own = await bench.run([gen("x")], session=Session("s", 0, resumes=True), namespace=b"a")
        assert own.error is None
        gone = await bench.run([gen("y")], session=kept, namespace=b"a")
        assert isinstance(gone.error, SessionLost)


async def test_a_program_that_fails_or_is_given_up_leaves_its_session_as_it_was(
    both: Both,
) -> None:
    async with Bench(both.model, both.tokenizer, None) as bench:
        whole = await bench.run([*STORY[:2], text(" so"), gen("y", 6)])
        await bench.run(STORY[:2], session=Session("s", 60))
        on = Session("s", 60, resumes=True)
        for broken in ([gen("x"), gen("z", 4000)], [text("else"), gen("x", 4, regex="[")]):
            failed = await bench.run([text(" but"), *broken], session=on)
            assert failed.error is not None
        bench.numbers += 1
        bench.submit(bench.numbers, [text(" and"), gen("x", 400)], session=on)
        await asyncio.sleep(0.05)
        beside = await bench.run([gen("x")], session=on)
        assert isinstance(beside.error, SessionLost)
        bench.service.cancel(bench.record, bench.numbers - 1)
        async with asyncio.timeout(10):
            while not len(bench.service._entry._programs.sessions):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        again = await bench.run([text(" so"), gen("y", 6)], session=Session("s", 0, resumes=True))
        assert again.error is None
        assert again.values[("y", 0)] == whole.values[("y", 0)]
        assert again.root == whole.root
        await bench.quiet()


async def test_a_sessions_pages_stay_while_others_fill_the_cache_and_go_with_it(both: Both) -> None:
    opening = text("Once upon a time there was a tree. " * 20)
    async with Bench(both.model, both.tokenizer, None, num_pages=64) as bench:
        await bench.run([opening, gen("a", 4)], session=Session("s", 60))
        async with asyncio.timeout(20):  # the engine pins between two steps
            while bench.engine.load.used_pages < 10:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        for number in range(12):
            noise = text(f"{number} quite another beginning of a text " * 20)
            assert (await bench.run([noise, gen("x", 4)])).error is None
        again = await bench.run([gen("b", 4)], session=Session("s", 0, resumes=True))
        assert again.last("b").cached_tokens >= 160
        await bench.quiet()
        # A program that needs all of the pool has it, whatever is kept.
        await bench.run([opening, gen("a", 4)], session=Session("t", 60))
        large = text("A very long text indeed, word by word. " * 95)
        assert (await bench.run([large, gen("x", 4)])).error is None
