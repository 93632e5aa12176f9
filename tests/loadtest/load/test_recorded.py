"""A trace's prompts share what the trace says; a log's requests are those that were logged."""

from __future__ import annotations

import gzip
import json
import random
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import LoadTestError
from loadtest.load.kinds import chosen
from loadtest.load.prompt import Conversation
from tests.loadtest.load.test_prompts import shared

REAL = Path("loadtest/data/mooncake_conversation_trace.jsonl.gz")


def of(name: str, path: Path, *settings: str) -> list[Conversation]:
    return chosen(name, [f"path={path}", *settings]).conversations(random.Random(0))


def trace(folder: Path, rows: list[dict[str, object]]) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def real(count: int) -> list[dict[str, Any]]:
    with gzip.open(REAL, "rt") as file:
        return [json.loads(line) for line in islice(file, count)]


@pytest.mark.parametrize("words", [512, 32])
def test_prompts_of_a_real_trace_share_exactly_its_blocks(words: int) -> None:
    rows = sorted(real(60), key=lambda row: row["timestamp"])
    found = of("trace", REAL, "limit=60", f"words={words}")
    prompts = [one[0].body["prompt"].split() for one in found]
    assert [one[0].at_s for one in found] == [row["timestamp"] / 1000 for row in rows]
    for (row, prompt), (other, second) in combinations(zip(rows, prompts, strict=True), 2):
        blocks = shared(row["hash_ids"], other["hash_ids"])
        expected = min(blocks * words, len(prompt), len(second))
        # Behind the common blocks the next ids differ within their first three words.
        assert expected <= shared(prompt, second) < expected + 3


def test_prompts_have_as_many_words_as_the_trace_has_tokens() -> None:
    rows = real(20)
    found = of("trace", REAL, "limit=20")
    lengths = sorted(len(one[0].body["prompt"].split()) for one in found)
    assert lengths == sorted(row["input_length"] for row in rows)
    assert sorted(one[0].output_tokens for one in found) == sorted(
        row["output_length"] for row in rows
    )


def test_a_session_is_one_conversation_and_runs_are_ids(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"timestamp": 9000, "input_length": 40, "hash_runs": [5, 2, 9, 1], "session_id": "s"},
        {"timestamp": 5000, "input_length": 32, "hash_ids": [5, 6], "session_id": "s"},
        {"timestamp": 7000, "input_length": 40, "hash_ids": [5, 6], "output_length": 100},
    ]
    path = trace(tmp_path, rows)
    session, alone = of("trace", path, "block_tokens=16", "output_share=0.1")
    assert [one.at_s for one in session] == [0.0, 4.0]
    first, second = (one.body["prompt"].split() for one in session)
    assert second[:32] == first
    assert len(second) == 40
    [longer] = alone
    # Eight tokens stand behind its last block: nobody shares them.
    assert longer.body["prompt"].split()[:32] == first
    assert len(longer.body["prompt"].split()) == 40
    assert longer.output_tokens == 10


@pytest.mark.parametrize("way", ["body", "request", "line"])
def test_a_logged_request_is_sent_as_it_was_but_for_what_we_say(tmp_path: Path, way: str) -> None:
    body = {
        "model": "gone",
        "stream": False,
        "max_tokens": 7,
        "messages": [{"role": "user", "content": "Hello"}],
        "tools": [{"type": "function", "function": {"name": "look"}}],
    }
    row = body if way == "line" else {way: body}
    path = trace(tmp_path, [{**row, "timestamp": 1_760_000_001_500, "tenant": "one"}])
    [[prompt]] = of("openai-log", path)
    assert prompt.body == {"messages": body["messages"], "tools": body["tools"]}
    assert (prompt.output_tokens, prompt.tenant, prompt.at_s) == (7, "one", 0.0)
    assert prompt.path == "/v1/chat/completions"


def test_times_may_be_seconds_milliseconds_or_iso_and_count_from_the_first(tmp_path: Path) -> None:
    when = ["2026-01-01T00:00:02+00:00", 1_767_225_601, 1_767_225_604_500, "1767225600"]
    rows: list[dict[str, object]] = [{"prompt": "x", "ts": one} for one in when]
    found = of("openai-log", trace(tmp_path, rows), "output_tokens=3")
    assert [one[0].at_s for one in found] == [0.0, 1.0, 2.0, 4.5]
    assert {one[0].output_tokens for one in found} == {3}


def test_what_was_made_is_asked_for_again(tmp_path: Path) -> None:
    body = {"prompt": "x", "max_tokens": 99}
    usage = {"usage": {"completion_tokens": 4}}
    rows: list[dict[str, object]] = [
        {"body": body, "response": usage},
        {"body": body, **usage},
        {"request_body": body, "response": "what was said"},
    ]
    found = of("openai-log", trace(tmp_path, rows))
    assert [one.output_tokens for [one] in found] == [4, 4, 99]
    assert {one.at_s for [one] in found} == {None}


def test_a_line_that_says_nothing_is_named(tmp_path: Path) -> None:
    bad: list[dict[str, object]] = [{"prompt": "x"}, {"body": {"model": "x"}}]
    with pytest.raises(LoadTestError, match="line 2: neither messages nor prompt"):
        of("openai-log", trace(tmp_path, bad))
    with pytest.raises(LoadTestError, match="line 1: 'input_length' is missing"):
        of("trace", trace(tmp_path, [{"hash_ids": [1], "timestamp": 0}]))
    told: list[tuple[dict[str, object], str]] = [
        ({"messages": None}, "line 1: neither messages"),
        ({"messages": ["x"]}, "line 1: messages is no list of objects"),
        ({"prompt": {}}, "line 1: prompt is neither"),
        ({"prompt": "x", "ts": "noon"}, "line 1: its time is 'noon'"),
        ({"prompt": "x", "max_tokens": float("inf")}, "line 1: cannot convert float infinity"),
    ]
    for row, said in told:
        with pytest.raises(LoadTestError, match=said):
            of("openai-log", trace(tmp_path, [row]))
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(b'{"prompt": "x"}\n' * 99)[:40])
    for path in (tmp_path / "none.jsonl", cut):
        with pytest.raises(LoadTestError, match="path is"):
            of("openai-log", path)
    with pytest.raises(LoadTestError, match="path is"):
        of("trace", tmp_path / "none.jsonl")
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{\n")
    with pytest.raises(LoadTestError, match="path is"):
        of("openai-log", broken)
