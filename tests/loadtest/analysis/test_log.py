"""Every form of a log is read; what is broken is named and left out."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.analysis import log as log_module
from loadtest.analysis.checkup import Examination
from loadtest.analysis.forms import Blocks, Chat, Ids, NoRequest, Session, Text, requests_of
from loadtest.analysis.log import Log
from loadtest.analysis.writing import BytePen, Script
from loadtest.errors import UnreadableLog
from tests.loadtest.analysis.logs import chat, studied, written

USAGE = {"usage": {"prompt_tokens": 9, "completion_tokens": 4}}


def talk(**more: object) -> dict[str, Any]:
    """A recorded session of one question and its answer."""
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    return {"session_id": "s", "messages": messages, **more}


@pytest.mark.parametrize(
    ("line", "at_s", "output"),
    [
        (chat("a"), None, None),
        ({"timestamp": 7.5, **chat("a")}, 7.5, None),
        ({"created": 1764504239000, "body": chat("a")}, 1764504239.0, None),
        ({"time": "1970-01-01T00:01:00+00:00", "request": chat("a"), "response": USAGE}, 60.0, 4),
        ({"custom_id": "x", "method": "POST", "url": "/v1/c", "body": chat("a")}, None, None),
        ({"custom_id": "x", "body": chat("a"), "response": {"body": USAGE}}, None, 4),
    ],
)
def test_a_chat_is_found_in_every_wrapping(
    tmp_path: Path, line: object, at_s: float | None, output: int | None
) -> None:
    (entry,) = Log(written(tmp_path, [line])).entries()
    assert isinstance(entry.prompt, Chat)
    assert [one["role"] for one in entry.prompt.messages] == ["system", "user"]
    assert (entry.at_s, entry.output_tokens) == (at_s, output)


def test_prompts_come_as_texts_and_as_ids(tmp_path: Path) -> None:
    lines = [{"prompt": "a"}, {"prompt": ["b", "c"]}, {"prompt": [1, 2]}, {"prompt": [[3], [4]]}]
    found = [one.prompt for one in Log(written(tmp_path, lines, "log.jsonl.gz")).entries()]
    texts = [one.text for one in found if isinstance(one, Text)]
    ids = [one.ids.tolist() for one in found if isinstance(one, Ids)]
    assert (texts, ids) == (["a", "b", "c"], [[1, 2], [3], [4]])


def test_a_session_is_a_request_before_each_answer(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "2"},
        {"role": "assistant", "content": None, "tool_calls": []},
    ]
    line = {"session_id": "s", "system": "S", "tools": [{"name": "f"}], "messages": messages}
    found = list(Log(written(tmp_path, [line, line])).entries())
    assert [len(one.prompt.messages) for one in found if isinstance(one.prompt, Chat)] == [2, 4] * 2
    assert [one.at_s for one in found] == [0, 8, 16, 24]


def test_sessions_that_overlap_are_merged(tmp_path: Path) -> None:
    turns = [{"role": role, "content": "x"} for role in ("user", "assistant") * 4]
    line = {"session_id": "s", "system": "", "tools": None, "messages": turns}
    found = [one.at_s for one in Log(written(tmp_path, [line, line])).entries()]
    assert found == [0, 8, 16, 16, 24, 24, 32, 40]


def test_blocks_come_as_ids_and_as_runs(tmp_path: Path) -> None:
    lines = [
        {"timestamp": 3000, "input_length": 600, "output_length": 5, "hash_ids": [7, 8]},
        {"timestamp": 4000, "input_length": 40, "hash_runs": [7, 2, 1, 1]},
    ]
    found = list(Log(written(tmp_path, lines)).entries())
    assert [one.at_s for one in found] == [3.0, 4.0]
    blocks = [one.prompt for one in found if isinstance(one.prompt, Blocks)]
    assert [(one.block, one.num_tokens, len(one.packed) // 8) for one in blocks] == [
        (512, 600, 2),
        (16, 40, 3),
    ]


def test_ids_of_two_agents_sessions_are_not_the_same(tmp_path: Path) -> None:
    row = {"id": "a", "block": 64, "requests": [[0, 128, 1, "", "", 0, 0, 0, 0, [1, 2]]] * 2}
    found = studied(written(tmp_path, [row, row]))
    assert found.traffic.requests == 4
    assert found.sharing.shared_tokens == 2 * 127


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"messages": [', "it is no JSON"),
        ("[1]", "it is no JSON object"),
        ({"model": "m"}, "neither messages nor a prompt"),
        ({"messages": []}, "messages is empty"),
        ({"messages": [{"content": "x"}]}, "messages[0] has no role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content is neither"),
        ({"prompt": [1, "a"]}, "neither a text nor a token id"),
        ({"prompt": ""}, "its prompt is empty"),
        ('{"timestamp": 1e300, "prompt": "a"}', "beyond the year 5000"),
        ({"timestamp": 10**400, "prompt": "a"}, "beyond the year 5000"),
        ({"timestamp": "noon", **chat("a")}, "its time is 'noon'"),
        ({"input_length": 600, "hash_ids": [1]}, "its 1 ids stand for 512"),
        ({"input_length": 6, "hash_ids": [1]}, "it has blocks of 512 tokens, the lines before"),
        ({"block": 64, "requests": [[0, 1]]}, "a request of the session is [0, 1]"),
        ({"block": 64, "requests": [["nan", 9, 1, 0, 0, 0, 0, 0, 0, [0, 1]]]}, "beyond the year"),
        (talk(system=[1]), "messages[0].content holds a part that is no object"),
        ("[" * 60_000, "it is no JSON"),
        ('{"prompt": "' + "x" * 70_000 + '"}', "it is longer than 0 MiB"),
    ],
)
def test_a_broken_line_is_named_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: object, sentence: str
) -> None:
    monkeypatch.setattr(log_module, "MAX_LINE_BYTES", 1 << 16)
    lines = [chat("a"), "", line, chat("b")]
    found = studied(written(tmp_path, lines)).traffic
    assert (found.requests, found.broken) == (2, 1)
    assert found.broken_lines[0].line == 3
    assert sentence in found.broken_lines[0].reason


def test_a_log_without_a_request_is_refused_with_its_first_line(tmp_path: Path) -> None:
    with pytest.raises(UnreadableLog, match="holds no request: line 1: it has neither"):
        studied(written(tmp_path, [{"a": 1}]))
    path = tmp_path / "cut.gz"
    path.write_bytes(written(tmp_path, [chat("a")] * 50, "log.jsonl.gz").read_bytes()[:60])
    with pytest.raises(UnreadableLog, match=r"cut\.gz can't be read"):
        studied(path)


def test_a_limit_leaves_the_beginning_and_says_so(tmp_path: Path) -> None:
    from loadtest.analysis.survey import Limits

    path = written(tmp_path, [chat(str(number)) for number in range(9)])
    assert studied(path).traffic.is_whole
    few = studied(path, limits=Limits(requests=4)).traffic
    assert (few.requests, few.is_whole) == (4, False)
    assert few.why_not == "--max-requests is 4"
    small = studied(path, limits=Limits(bytes=100)).traffic
    assert (small.requests, small.is_whole) == (1, False)


KEYS = ["messages", "prompt", "role", "content", "timestamp", "hash_ids", "hash_runs", "tools"]
KEYS += ["input_length", "output_length", "block", "requests", "session_id", "system", "body"]
KEYS += ["response", "usage", "model", "text", "type", "completion_tokens"]
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.sampled_from(KEYS)
)
ROWS = st.recursive(
    LEAVES,
    lambda one: st.lists(one, max_size=4) | st.dictionaries(st.sampled_from(KEYS), one, max_size=6),
    max_leaves=25,
)


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", 5])},
        optional={"content": ROWS, "tool_calls": ROWS, "name": ROWS},
    ),
    max_size=4,
)
TELLING = st.fixed_dictionaries(
    {"messages": MESSAGES}, optional={name: ROWS for name in KEYS if name != "messages"}
)


SESSIONS = st.fixed_dictionaries(
    {"session_id": LEAVES, "system": ROWS, "messages": MESSAGES}, optional={"tools": ROWS}
)


@settings(max_examples=200)
@given(TELLING | SESSIONS | st.dictionaries(st.sampled_from(KEYS), ROWS, min_size=1, max_size=8))
def test_whatever_a_line_holds_it_is_a_request_or_a_sentence(row: dict[str, Any]) -> None:
    with suppress(NoRequest):
        found = requests_of(row, 1)
        script = Script(BytePen())
        for entry in found.entries if isinstance(found, Session) else found:
            written_ = script.write(entry.prompt)
            assert written_.length > 0
            Examination(b"key").take(entry.prompt, written_.length, 0)
