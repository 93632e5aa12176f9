"""What the plain interpreter takes for a beginning of JSON, and what not."""

from __future__ import annotations

import pytest

from tests.worker.programs.rules import Pattern, Schema, may_follow

RULE = Schema(
    {
        "type": "array",
        "items": {"type": "string", "minLength": 3, "maxLength": 6},
        "minItems": 1,
        "maxItems": 2,
    }
)


@pytest.mark.parametrize(
    "whole", ['["abc"]', '["abc", "d\\ne\\u0041"]', '[\n  "abcdef",\n  "ghi"\n]', '["日本é" ]']
)
def test_every_beginning_of_an_instance_may_become_one(whole: str) -> None:
    assert all(RULE.may_become(whole[:count]) for count in range(len(whole) + 1))
    assert [RULE.is_whole(whole[:count]) for count in range(len(whole) + 1)] == [
        *([False] * len(whole)),
        True,
    ]


@pytest.mark.parametrize(
    "text",
    [
        *(" [", "[]", "[1", '["ab"', '["abcdefg', '["abc"]]', '["abc"] ', '["abc",]', "{"),
        *('["abc", "def",', '[  "abc"', '["abc"\t', '["a\\x', '["a\nb', '["abc"\n\n'),
    ],
)
def test_what_no_instance_begins_with_never_does(text: str) -> None:
    assert not RULE.may_become(text)


def test_a_prefix_stands_in_front_and_a_character_may_be_unfinished() -> None:
    assert may_follow(b": ", ': "', Pattern("é+"))
    assert may_follow(': "é'.encode()[:-1], ': "', Pattern("é+"))
    assert not may_follow(b': "a', ': "', Pattern("é+"))
    assert not may_follow(b": '", ': "', Pattern("é+"))
