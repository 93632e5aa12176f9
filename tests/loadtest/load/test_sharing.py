"""The oracle agrees with a search over all pairs of prompts, and with a cache that has no end."""

from __future__ import annotations

import random
from typing import Any

import pytest

from loadtest.load.kinds import chosen
from loadtest.load.sharing import Oracle, Share, units_of
from tests.loadtest.load.test_prompts import shared

CASES = [
    ("agent", ["sessions=4", "turns=3", "system_tokens=100", "tools=2"]),
    ("chat", ["num_conversations=5", "turns=3", "system_tokens=20"]),
    ("document", ["documents=3", "questions=3", "document_tokens=100"]),
    ("generated-shared-prefix", ["num_groups=3", "prompts_per_group=4", "system_prompt_len=50"]),
    ("short", ["num_prompts=10"]),
]


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_it_knows_the_longest_beginning_that_any_earlier_prompt_has(
    name: str, settings: list[str]
) -> None:
    conversations = chosen(name, settings).conversations(random.Random(4))
    oracle, before = Oracle(), list[list[str]]()
    some = 0
    for conversation in conversations:
        for prompt in conversation:
            units = units_of(prompt.body)
            longest = max((shared(units, other) for other in before), default=0)
            found = oracle.saw("", prompt.body)
            assert found == Share(len(units), min(longest, len(units) - 1))
            before.append(units)
            some += found.shared
    assert (some > 0) is (name != "short")


def test_a_prompt_that_was_sent_before_still_computes_its_last_unit() -> None:
    oracle = Oracle()
    body = {"prompt": "one two three"}
    assert oracle.saw("", body) == Share(3, 0)
    assert oracle.saw("", body) == Share(3, 2)


def test_tenants_share_nothing() -> None:
    oracle = Oracle()
    body = {"prompt": "one two three four"}
    oracle.saw("a", body)
    assert oracle.saw("b", body).shared == 0
    assert oracle.saw("a", body).shared == 3


def test_an_answer_that_was_made_is_known_in_the_next_turn() -> None:
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": "one two"}]}
    answer = {"role": "assistant", "content": "three four"}
    more = {"messages": [*asked["messages"], answer, {"role": "user", "content": "five"}]}
    oracle = Oracle()
    oracle.saw("", asked)
    oracle.made("", asked, "three four")
    assert oracle.saw("", more) == Share(8, 6)


def test_messages_begin_with_their_role_and_texts_lose_nothing() -> None:
    body = {
        "messages": [
            {"role": "system", "content": "Be brief, don't ramble."},
            {"role": "user", "content": [{"type": "text", "text": "naïve\n\n日本語"}]},
        ]
    }
    units = units_of(body)
    assert [unit for unit in units if unit.startswith("\x00")] == ["\x00system", "\x00user"]
    first = units[1 : units.index("\x00user")]
    assert "".join(first) == "Be brief, don't ramble."
    assert units_of({"prompt": [5, 6, 7]}) == ["5", "6", "7"]
    odd = "a\n\n  b\t_x—9 \u00a0 z" * 3
    assert "".join(units_of({"prompt": odd})) == odd


def test_other_tools_are_another_beginning() -> None:
    oracle = Oracle()
    messages = [{"role": "user", "content": "one two three"}]
    oracle.saw("", {"messages": messages, "tools": [{"name": "look"}]})
    assert oracle.saw("", {"messages": messages}).shared == 0
