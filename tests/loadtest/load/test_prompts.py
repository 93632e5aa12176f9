"""What is sent is chosen by the seed, and shares what its kind promises, word by word."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from loadtest.errors import LoadTestError
from loadtest.load.kinds import KINDS, chosen, parameters
from loadtest.load.prompt import Conversation, with_answers
from loadtest.words import WORDS, block, text
from tests.loadtest.load.server import words_of
from tests.worker.loaded import tokenizer_of
from worker.text.tokenizer import Tokenizer

MADE = [name for name in KINDS if name not in ("trace", "openai-log")]


def made(name: str, *settings: str, seed: int = 0) -> list[Conversation]:
    return chosen(name, settings).conversations(random.Random(seed))


def shared(first: Sequence[str], second: Sequence[str]) -> int:
    """How many leading words are equal."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


@pytest.mark.parametrize("name", MADE)
def test_the_same_seed_gives_the_same_prompts_and_another_one_others(name: str) -> None:
    assert made(name) == made(name)
    assert made(name) != made(name, seed=1)


@pytest.mark.parametrize("name", MADE)
def test_conversations_have_names_of_their_own_and_turns_in_order(name: str) -> None:
    found = made(name)
    assert len({one[0].conversation for one in found}) == len(found)
    assert all([one.turn for one in turns] == list(range(len(turns))) for turns in found)


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


def test_a_word_is_a_token_of_the_small_model(tokenizer: Tokenizer) -> None:
    assert len(set(WORDS)) == len(WORDS) == 512
    assert len(tokenizer.encode_literal(text(random.Random(0), 3000))) == 3000
    assert len(tokenizer.encode_literal(block("77", 512) + block("78", 512))) == 1024


def test_a_block_spells_its_number_and_goes_on_in_words_of_its_own() -> None:
    first, second = (block(str(one), 60).split() for one in (5, 5 + 512 * 7))
    assert first[:3] == [WORDS[5], WORDS[0], WORDS[0]]
    assert second[:3] == [WORDS[5], WORDS[7], WORDS[0]]
    assert sum(one == other for one, other in zip(first[3:], second[3:], strict=True)) < 5
    assert block("5", 20).split() == first[:20]
    assert block("a", 20) == block("a", 30)[: len(block("a", 20))] != block("b", 20)


def test_an_agents_tools_and_system_prompt_have_three_to_four_thousand_tokens(
    tokenizer: Tokenizer,
) -> None:
    body = made("agent")[0][0].body
    said = json.dumps(body["tools"]) + body["messages"][0]["content"]
    assert 3000 <= len(tokenizer.encode_literal(said)) <= 4000


def test_sessions_of_one_agent_share_its_beginning_and_each_turn_the_one_before() -> None:
    sessions = made("agent", "agents=2", "sessions=4", "turns=3")
    firsts = [words_of(dict(session[0].body)) for session in sessions]
    begin = 1 + 1 + 4 + 1500  # tools, role, "You are agent N.", words
    assert shared(firsts[0], firsts[2]) == begin + 1  # and the next role
    assert shared(firsts[0], firsts[1]) == 0
    for session in sessions:
        for before, after in pairwise(session):
            first, second = words_of(dict(before.body)), words_of(dict(after.body))
            assert second[: len(first)] == first
            assert len(second) > len(first) + 200


def test_every_call_is_answered_by_its_result() -> None:
    for prompt in made("agent", "sessions=1", "turns=4")[0]:
        messages = prompt.body["messages"]
        calls = [one["tool_calls"][0]["id"] for one in messages if "tool_calls" in one]
        assert calls == [one["tool_call_id"] for one in messages if one["role"] == "tool"]
        assert len(calls) == prompt.turn


def test_no_two_short_prompts_share_three_words() -> None:
    prompts = [words_of(dict(one[0].body)) for one in made("short", "num_prompts=200")]
    assert {len(one) for one in prompts} == {64}
    assert len({tuple(one[:3]) for one in prompts}) == 200


def test_chats_share_the_system_prompt_only() -> None:
    first, second = (words_of(dict(one[0].body)) for one in made("chat", "system_tokens=50")[:2])
    assert shared(first, second) in (52, 53)  # roles count; a first word may be equal
    bare = made("chat", "system_tokens=0")[0][0].body["messages"]
    assert [one["role"] for one in bare] == ["user"]


def test_questions_of_one_document_share_it() -> None:
    found = made("document", "documents=3", "questions=4", "document_tokens=300")
    groups: dict[tuple[str, ...], int] = Counter(
        tuple(words_of(dict(one[0].body))[:302]) for one in found
    )
    assert sorted(groups.values()) == [4, 4, 4]
    order = [one[0].conversation.split("-")[1] for one in found]
    assert order != sorted(order)


def test_examples_stand_in_front_of_every_question_of_their_subject(tmp_path: Path) -> None:
    path = tmp_path / "examples.json.gz"
    given = {"law": "Q: one A: two", "art": "Q: three A: four", "war": "Q: five A: six"}
    path.write_bytes(gzip.compress(json.dumps(given).encode()))
    found = made("few-shot", f"path={path}", "subjects=2", "questions=3")
    begins = Counter(one[0].body["messages"][0]["content"].split("\n\n")[0] for one in found)
    assert len(begins) == 2
    assert set(begins.values()) == {3}
    assert begins.keys() <= set(given.values())
    assert len(made("few-shot", "subjects=4", "questions=2")) == 8


@pytest.mark.parametrize(
    ("name", "settings", "groups", "size", "prefix", "own"),
    [
        (
            "generated-shared-prefix",
            ["num_groups=5", "prompts-per-group=4", "system_prompt_len=90", "question_len=10"],
            *(5, 4, 90, 10),
        ),
        (
            "shared-prefix",
            ["num_groups=3", "num_prompts_per_group=6", "system_prompt_len=40", "question_len=9"],
            *(3, 6, 40, 9),
        ),
        (
            "prefix-repetition",
            ["num_prompts=21", "num_prefixes=4", "prefix_len=64", "suffix_len=32"],
            *(4, 5, 64, 32),
        ),
    ],
)
def test_groups_share_their_prefix_and_nothing_else(
    name: str, settings: list[str], groups: int, size: int, prefix: int, own: int
) -> None:
    prompts = [words_of(dict(one[0].body)) for one in made(name, *settings)]
    assert {len(one) for one in prompts} == {prefix + own}
    begins = Counter(tuple(one[:prefix]) for one in prompts)
    assert len(begins) == groups
    assert set(begins.values()) == {size}
    in_a_row = [one[:prefix] == other[:prefix] for one, other in pairwise(prompts)]
    assert sum(in_a_row) < groups * (size - 1)
    for number, one in enumerate(prompts):
        for other in prompts[:number]:
            equal = shared(one, other)
            assert equal < 4 or prefix <= equal < prefix + 4


@pytest.mark.parametrize("skew", [0, 1, 2])
def test_tenants_ask_by_their_weights_and_share_only_with_themselves(skew: int) -> None:
    found = [one[0] for one in made("tenants", "tenants=4", "num_requests=4000", f"skew={skew}")]
    counts = Counter(one.tenant for one in found)
    weights = [1, 1 / 2**skew, 1 / 3**skew, 1 / 4**skew]
    for number, weight in enumerate(weights, 1):
        expected = 4000 * weight / sum(weights)
        assert abs(counts[f"tenant-{number}"] - expected) < 4 * expected**0.5
    systems = {(one.tenant, one.body["messages"][0]["content"]) for one in found}
    assert len(systems) == 4
    given = made("tenants", "rates=[0,3]", "num_requests=10")
    assert {one[0].tenant for one in given} == {"tenant-2"}


def test_what_the_model_said_takes_the_place_of_what_was_written() -> None:
    last = made("chat", "turns=3")[0][2]
    changed = with_answers(last, ["first", "second"]).body["messages"]
    answers = [one["content"] for one in changed if one["role"] == "assistant"]
    assert answers == ["first", "second"]
    assert len(changed) == len(last.body["messages"])
    called = made("agent", "turns=3")[0][2]
    assert with_answers(called, ["x", "y"]) == called


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("agents", [], "workload 'agents' is none of agent, short"),
        ("chat", ["turns"], "--set turns: parameter=value is expected"),
        ("chat", ["turns=0"], r"workload chat: Expected `int` >= 1 - at `\$.turns`"),
        ("chat", ["turn=3"], "unknown field `turn`"),
        ("trace", [], "missing required field `path`"),
        ("prefix-repetition", ["num_prompts=3"], "num_prefixes is 10: at most num_prompts, 3"),
        ("tenants", ["rates=[0,0]"], "rates is without a number above 0"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_name(
    name: str, settings: list[str], sentence: str
) -> None:
    with pytest.raises(LoadTestError, match=sentence):
        chosen(name, settings)


def test_a_kinds_parameters_are_told_with_their_defaults() -> None:
    assert parameters("short") == {
        "num_prompts": "64",
        "prompt_tokens": "64",
        "output_tokens": "32",
    }
    assert parameters("trace")["path"] == "needed"
