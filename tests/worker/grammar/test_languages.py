"""Whatever is drawn under a constraint conforms to it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from tests.worker.grammar.languages import CHOICES, HEAVY, REFUSED, REGEXES, SCHEMAS, json_schema
from tests.worker.grammar.weak import Bench, Weak, asked, choices, regex, seeded
from tests.worker.loaded import tokenizer_of
from worker.errors import InvalidRequest
from worker.grammar.compiler import Compiler
from worker.request import FinishReason
from worker.submission import Constraint, Language
from worker.text.tokenizer import Tokenizer

DRAWS = 8


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Compiler:
    return Compiler(tokenizer, max_grammars=1000)


@pytest.fixture
def weak(tokenizer: Tokenizer, grammars: Compiler) -> Weak:
    return Weak(tokenizer, Bench(running=DRAWS), grammars)


def drawn(weak: Weak, constraint: Constraint, num: int = DRAWS) -> list[str]:
    """Texts of answers that ended; a language without an end in sight may be cut."""
    submissions = [seeded(asked(constraint), seed) for seed in range(num)]
    told = weak.run(*submissions)
    assert all(one.failure is None for one in told)
    ended = [weak.text(one).decode() for one in told if one.finish is FinishReason.STOP]
    assert ended
    return ended


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_drawn_under_a_schema_is_valid(weak: Weak, name: str) -> None:
    for text in drawn(weak, json_schema(SCHEMAS[name])):
        jsonschema.validate(json.loads(text), SCHEMAS[name])


@pytest.mark.parametrize("pattern", REGEXES)
def test_what_is_drawn_under_a_regex_matches_it(weak: Weak, pattern: str) -> None:
    for text in drawn(weak, regex(pattern)):
        assert re.fullmatch(pattern, text)


@pytest.mark.parametrize("texts", CHOICES)
def test_what_is_drawn_of_choices_is_one_of_them(weak: Weak, texts: tuple[str, ...]) -> None:
    assert set(drawn(weak, choices(*texts))) <= set(texts)


@pytest.mark.slow
def test_a_thousand_draws_of_everything_conform(weak: Weak) -> None:
    num = -(-1000 // len(SCHEMAS))
    for value in SCHEMAS.values():
        for text in drawn(weak, json_schema(value), num):
            jsonschema.validate(json.loads(text), value)
    num = -(-1000 // len(REGEXES))
    for pattern in REGEXES:
        assert all(re.fullmatch(pattern, text) for text in drawn(weak, regex(pattern), num))


@pytest.mark.parametrize("name", REFUSED)
def test_a_source_that_cannot_be_used_is_refused_with_a_reason(weak: Weak, name: str) -> None:
    constraint, says = REFUSED[name]
    for _ in range(2):  # from the cache as well
        with pytest.raises(InvalidRequest) as caught:
            weak.submit(asked(constraint))
        assert says in caught.value.message
        assert caught.value.message.endswith(".")
        assert "\n" not in caught.value.message
        assert len(caught.value.message) < 400
        fields = {
            Language.JSON_SCHEMA: "response_format",
            Language.REGEX: "structured_outputs.regex",
            Language.GRAMMAR: "structured_outputs.grammar",
            Language.CHOICES: "structured_outputs.choice",
        }
        assert caught.value.param == fields[constraint.language]


@pytest.mark.parametrize("name", HEAVY)
def test_a_heavy_source_gives_tokens_or_a_sentence_and_leaves_others_alone(
    weak: Weak, name: str
) -> None:
    mate, heavy = weak.run(asked(regex("[a-z]{3}")), asked(HEAVY[name], max_tokens=60))
    assert re.fullmatch("[a-z]{3}", weak.text(mate).decode())
    if heavy.failure is None:
        assert heavy.tokens
    else:
        assert isinstance(heavy.failure, InvalidRequest)
        assert heavy.failure.param.startswith(("structured_outputs.", "response_format"))


def test_whitespace_between_json_tokens_is_bounded(weak: Weak, tokenizer: Tokenizer) -> None:
    """A model that likes nothing but white space still gets to the end."""
    blank = [one for one in range(tokenizer.vocab_size) if not tokenizer.token_bytes(one).strip()]
    weak.runner.likes = frozenset(blank)
    [told] = weak.run(asked(json_schema(SCHEMAS["nested"])))
    assert told.finish is FinishReason.STOP
    assert not re.search(r"\s{22}", weak.text(told).decode())
