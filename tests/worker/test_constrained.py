"""Constrained sequences in the engine: the same answers on every path; nothing escapes or leaks."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from tests.worker.grammar.languages import SCHEMAS, json_schema
from tests.worker.grammar.weak import (
    Bench,
    Told,
    Weak,
    asked,
    choices,
    lark,
    regex,
    schema,
    seeded,
)
from tests.worker.loaded import tokenizer_of
from tests.worker.text.vocabularies import sentencepiece, write_folder
from worker.cache.scope import CacheScope
from worker.errors import InvalidRequest
from worker.grammar.compiler import Compiler
from worker.request import FinishReason, Sampling
from worker.sequence import SequenceSpec, pack_tokens
from worker.submission import Constraint, StopRules, Submission
from worker.text.tokenizer import Tokenizer

Make = Callable[..., Weak]
LANGUAGES = {
    "schema": json_schema(SCHEMAS["nested"]),
    "keys": json_schema(SCHEMAS["long keys"]),
    "regex": regex(r"[a-z]{2,9}( [a-z]{2,9}){3}, the end of it all"),
    "choices": choices("a long text that is forced", "a long text that is not", "日本語のテキスト"),
    "one": choices("There is one answer only: 日本語."),
}


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


@pytest.fixture(scope="module")
def make(tokenizer: Tokenizer) -> Make:
    grammars = Compiler(tokenizer)
    return lambda **bench: Weak(tokenizer, Bench(**bench), grammars)


def seeds(constraint: Constraint, count: int = 4) -> list[Submission]:
    return [seeded(asked(constraint), seed) for seed in range(count)]


def answers(told: list[Told]) -> list[tuple[list[int], FinishReason | None]]:
    assert all(one.finish is not None for one in told)
    return [(one.tokens, one.finish) for one in told]


@pytest.mark.parametrize("name", LANGUAGES)
def test_forced_text_gives_the_same_tokens_appended_and_sampled(make: Make, name: str) -> None:
    sampled, appended = make(appends=False), make(appends=True)
    requests = seeds(LANGUAGES[name])
    assert answers(appended.run(*requests)) == answers(sampled.run(*requests))
    before, after = sampled.scheduler.counters, appended.scheduler.counters
    assert before.forced_tokens == 0 < after.forced_tokens
    assert after.generated_tokens == before.generated_tokens
    assert len(appended.runner.steps) < len(sampled.runner.steps)


def test_forced_text_has_its_canonical_tokens(make: Make, tokenizer: Tokenizer) -> None:
    for text in (
        "There is one answer only: 日本語.",
        '{"a_long_key": 12345}',
        "   spaces\n\n\tand",
    ):
        weak = make()
        [told] = weak.run(asked(choices(text)))
        assert told.tokens == tokenizer.encode_literal(text)
        assert told.finish is FinishReason.STOP
        assert not weak.runner.steps, "nothing had to be computed"


def test_what_follows_a_forced_text_may_join_with_its_end(make: Make) -> None:
    """ "the" is forced, but "them" is one token."""
    weak = make()
    told = weak.run(*(seeded(asked(regex("the(m|re)?")), seed) for seed in range(40)))
    assert {weak.text(one) for one in told} == {b"the", b"them", b"there"}


@pytest.mark.parametrize("name", LANGUAGES)
@pytest.mark.parametrize("cache", ["radix", "block", "off"])
@pytest.mark.parametrize("budget", [3, 64])
def test_cache_and_chunks_change_no_token(make: Make, name: str, cache: str, budget: int) -> None:
    requests = [
        replace(one, prompt=pack_tokens(list(range(5, 40)))) for one in seeds(LANGUAGES[name], 3)
    ]
    wanted = answers(make(cache="off", budget=512).run(*requests))
    weak = make(cache=cache, budget=budget, running=3)
    assert answers(weak.run(*requests)) == wanted
    assert answers(weak.run(*requests)) == wanted
    if cache != "off" and name != "one":
        assert weak.scheduler.counters.cached_tokens > 0


@pytest.mark.parametrize("appends", [True, False])
def test_preemption_keeps_where_a_sequence_stands(make: Make, appends: bool) -> None:
    requests = [
        replace(
            seeded(asked(LANGUAGES["schema"], max_tokens=60), seed),
            prompt=pack_tokens([seed + 5] * 9),
        )
        for seed in range(6)
    ]
    wanted = answers(make(num_pages=512).run(*requests))
    weak = make(num_pages=24, appends=appends)
    assert answers(weak.run(*requests)) == wanted
    assert weak.scheduler.counters.preemptions > 0


def test_batch_mates_change_nothing(make: Make) -> None:
    request = asked(LANGUAGES["schema"])
    alone = answers(make().run(request))
    free = Submission(2, pack_tokens([9, 9]), seed=4, rules=StopRules(max_tokens=30))
    mates = [free, *seeds(LANGUAGES["regex"], 3)]
    together = make().run(request, *mates)
    assert answers(together)[:1] == alone
    assert answers(together)[1:2] == answers(make().run(free))


def test_choices_of_one_request_stand_each_where_they_are(make: Make) -> None:
    weak = make()
    told = weak.run(replace(asked(LANGUAGES["schema"]), n=5))
    texts = [weak.text(one) for one in told]
    assert len(set(texts)) == 5
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMAS["nested"])


@pytest.mark.parametrize("appends", [True, False])
@pytest.mark.parametrize("name", LANGUAGES)
def test_a_continuation_at_every_token_goes_on_as_if_it_had_not_been_cut(
    make: Make, name: str, appends: bool
) -> None:
    request = asked(LANGUAGES[name])
    weak = make(appends=appends)
    [whole] = weak.run(request)
    prepared = weak.intake.prepare(request)
    for cut in range(len(whole.tokens) + 1):
        spec = SequenceSpec(
            next(weak.numbers),
            CacheScope(),
            prepared.prompt,
            prepared.sampling,
            prepared.stopping,
            output=pack_tokens(whole.tokens[:cut]),
            grammar=prepared.grammar,
        )
        weak.told[spec.id] = Told()
        weak.engine.submit([spec])
        weak.finish()
        rest = weak.told[spec.id]
        assert whole.tokens[:cut] + rest.tokens == whole.tokens
        assert rest.finish is whole.finish


def test_special_tokens_are_closed_and_the_end_is_open_only_where_the_grammar_may_end(
    make: Make, tokenizer: Tokenizer
) -> None:
    weak = make()
    weak.runner.likes = tokenizer.special_ids
    told = weak.run(*(asked(regex(one)) for one in ("[a-z]{3,}", ".{2,}", "(a|bb)*", "")))
    assert [len(weak.text(one)) >= least for one, least in zip(told, (3, 2, 0, 0), strict=True)]
    assert all(one.finish is FinishReason.STOP for one in told)
    for one in told:
        assert not tokenizer.special_ids & set(one.tokens[:-1])
        assert one.closed or one.tokens[-1] in tokenizer.eos_ids
    assert len(told[2].tokens) == 1
    assert not told[3].tokens


def test_an_ignored_end_is_closed(make: Make, tokenizer: Tokenizer) -> None:
    weak = make()
    weak.runner.likes = tokenizer.special_ids
    rules = StopRules(max_tokens=7, ignore_eos=True)
    endless, ended = weak.run(
        replace(asked(regex("[a-z]*")), rules=rules), replace(asked(regex("[a-z]{2}")), rules=rules)
    )
    assert endless.finish is FinishReason.LENGTH
    assert len(endless.tokens) == 7
    assert ended.finish is FinishReason.STOP
    assert not tokenizer.special_ids & {*endless.tokens, *ended.tokens}


def test_a_special_stop_token_of_the_clients_is_an_end_like_any_other(
    make: Make, tokenizer: Tokenizer
) -> None:
    stop = min(tokenizer.special_ids - tokenizer.eos_ids)
    weak = make()
    weak.runner.likes = frozenset([stop])
    rules = StopRules(max_tokens=20, stop_token_ids=(stop,))
    [told] = weak.run(replace(asked(regex("[a-z]{3,}")), rules=rules))
    assert told.tokens[-1] == stop
    assert len(weak.text(told)) >= 3


@pytest.mark.parametrize("pattern", ["[a-z]*", "x{9}", "(xy?)+"])
def test_min_tokens_never_leaves_an_empty_mask(
    make: Make, tokenizer: Tokenizer, pattern: str
) -> None:
    """Every token that the grammar has may be banned so early; then the grammar goes first."""
    banned = tuple(one for one in range(tokenizer.vocab_size) if b"x" in tokenizer.token_bytes(one))
    rules = StopRules(max_tokens=12, min_tokens=6, stop_token_ids=banned)
    weak = make()
    weak.runner.likes = tokenizer.eos_ids
    [told] = weak.run(replace(asked(regex(pattern)), rules=rules))
    assert told.finish is not None
    assert re.fullmatch(pattern, b"".join(map(tokenizer.token_bytes, told.tokens)).decode()) or (
        told.finish is FinishReason.STOP
    )
    if pattern == "[a-z]*":
        assert len(told.tokens) > 6


def test_bias_and_penalties_do_not_escape(make: Make, tokenizer: Tokenizer) -> None:
    digits = {tokenizer.encode_literal(str(one))[0]: -100.0 for one in range(10)}
    letter = tokenizer.encode_literal("a")[0]
    for temperature in (0.0, 1.0):
        sampling = Sampling(
            temperature=temperature,
            top_k=1 if temperature else 0,
            logit_bias=digits | {letter: 100.0},
            frequency_penalty=2,
            repetition_penalty=1.5,
        )
        weak = make()
        [told] = weak.run(replace(asked(regex("[0-9]{8}")), sampling=sampling))
        assert re.fullmatch("[0-9]{8}", weak.text(told).decode())


def test_logprobs_are_those_of_the_model_before_the_mask(make: Make, tokenizer: Tokenizer) -> None:
    weak = make()
    [plain] = weak.run(asked(LANGUAGES["choices"]))
    [told] = weak.run(replace(asked(LANGUAGES["choices"]), top_logprobs=3))
    assert told.tokens == plain.tokens
    assert len(told.logprobs) == len(told.tokens)
    # A forced token is certain under the mask, and anything but that for the model.
    assert all(one.sampled[1] < -1 and one.top[0][1] > one.sampled[1] for one in told.logprobs)


def test_a_greedy_answer_is_the_likeliest_that_is_allowed(make: Make) -> None:
    greedy = Sampling(temperature=0)
    slow = replace(greedy, logit_bias={0: 0.0})  # takes the way of those that draw
    requests = seeds(LANGUAGES["schema"], 1)
    fast_told = make().run(*(replace(one, sampling=greedy) for one in requests))
    slow_told = make().run(*(replace(one, sampling=slow) for one in requests))
    assert answers(fast_told) == answers(slow_told)


def test_max_tokens_and_stop_tokens_end_a_choice_inside_a_forced_text(
    make: Make, tokenizer: Tokenizer
) -> None:
    text = "There is one answer only: 日本語."
    ids = tokenizer.encode_literal(text)
    weak = make()
    cut, stopped = weak.run(
        asked(choices(text), max_tokens=5),
        replace(asked(choices(text)), rules=StopRules(max_tokens=50, stop_token_ids=(ids[3],))),
    )
    assert (cut.tokens, cut.finish) == (ids[:5], FinishReason.LENGTH)
    assert (stopped.tokens, stopped.finish) == (ids[:4], FinishReason.STOP)


def test_a_grammar_at_its_limit_fails_its_own_request_only(make: Make) -> None:
    weak = make()
    forbidden = lark("start: /[a-z]{3}/ <[0]>")
    failed, fine = weak.run(asked(forbidden), asked(LANGUAGES["schema"]))
    assert isinstance(failed.failure, InvalidRequest)
    assert failed.failure.param == "structured_outputs.grammar"
    assert fine.finish is FinishReason.STOP


def test_another_workers_tokens_that_the_grammar_lacks_are_refused(make: Make) -> None:
    weak = make()
    prepared = weak.intake.prepare(asked(regex("[a-z]+")))
    spec = SequenceSpec(
        next(weak.numbers),
        CacheScope(),
        prepared.prompt,
        prepared.sampling,
        prepared.stopping,
        output=pack_tokens([17]),
        grammar=prepared.grammar,
    )
    weak.told[spec.id] = Told()
    weak.engine.submit([spec])
    weak.finish()
    assert weak.told[spec.id].failure is not None


def test_aborts_at_any_moment_leave_nothing(make: Make) -> None:
    rng = random.Random(3)
    for _ in range(20):
        weak = make(num_pages=40)
        numbers = [
            number
            for name in ("schema", "regex", "keys", "one")
            for number in weak.submit(
                seeded(asked(LANGUAGES[name], max_tokens=90), rng.randrange(99))
            )
        ]
        for number in rng.sample(numbers, len(numbers)):
            for _ in range(rng.randrange(6)):
                weak.engine.step()
            weak.engine.abort([number])
        weak.finish()


@pytest.fixture(params=["first", "always", "padded"])
def strange(request: pytest.FixtureRequest, tmp_path: Path) -> Tokenizer:
    """Sentencepiece with byte fallback, a space put before the first word or before every text."""
    size: dict[str, object] = {"vocab_size": 400} if request.param == "padded" else {}
    folder = write_folder(
        tmp_path / "model", sentencepiece(metaspace=request.param != "always"), config=size
    )
    return Tokenizer.load(folder)


def test_byte_fallback_and_padded_vocabularies_conform(strange: Tokenizer) -> None:
    weak = Weak(strange, Bench(running=16))
    requests = {
        "schema": SCHEMAS["nested"],
        "keys": SCHEMAS["long keys"],
    }
    for value in requests.values():
        for told in weak.run(*seeds(json_schema(value), 8)):
            assert told.failure is None
            if told.finish is FinishReason.STOP:
                jsonschema.validate(json.loads(weak.text(told)), value)
    for pattern in ("[a-z]{3} 日本語", " the (a|b)", "é{2,3}"):
        for told in weak.run(*seeds(regex(pattern), 8)):
            assert re.fullmatch(pattern, weak.text(told).decode())


def test_forced_text_of_strange_vocabularies_is_the_same_both_ways(strange: Tokenizer) -> None:
    text = " the letter 日 and the or all"
    [appended] = Weak(strange).run(asked(choices(text)))
    [sampled] = Weak(strange, Bench(appends=False)).run(asked(choices(text)))
    assert appended.tokens == sampled.tokens
    assert b"".join(map(strange.token_bytes, appended.tokens)).decode() == text
    assert len(appended.tokens) < len(text.encode())


def test_a_schema_may_be_as_loose_as_json(make: Make) -> None:
    weak = make()
    told = weak.run(
        *(seeded(asked(schema('{"type":"object"}'), max_tokens=60), n) for n in range(6))
    )
    for one in told:
        if one.finish is FinishReason.STOP:
            assert isinstance(json.loads(weak.text(one)), dict)
        else:
            assert weak.text(one).startswith(b"{")
