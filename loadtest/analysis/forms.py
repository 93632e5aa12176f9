"""One line of a log as requests, whichever form it has; a line that is none is a sentence.

body        {"messages" or "prompt", ...}       an OpenAI request; a time may stand beside
wrapped     {"timestamp", "request" or "body": body, "response"}      also of OpenAI's batches
session     {"session_id", "system", "tools", "messages"}   a request before each answer
blocks      {"timestamp", "input_length", "hash_ids" or "hash_runs"}  ids of so many tokens
agents      {"block", "requests": [...]}        a session of them, as loadtest/data has
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from loadtest.traces import MAX_PAUSE_S, MOONCAKE_TOKENS

RUN_BLOCK_TOKENS = 16
# Between two requests of a session that has no times.
TURN_EVERY_S = 8.0
MAX_BLOCKS = 1 << 20
MILLISECONDS_FROM = 1e11
LATEST_MS = 1e14
_TIMES = ("timestamp", "created", "created_at", "time", "ts")
_BODIES = ("request", "body", "request_body")


class NoRequest(Exception):
    """Why a line is no request; the sentence follows its number."""


@dataclass(frozen=True, slots=True)
class Chat:
    """Messages, each with its role first, and tools as they were sent."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Any] = ()
    model: str = ""
    variables: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """A plain prompt."""

    text: str


@dataclass(frozen=True, slots=True)
class Ids:
    """Token ids."""

    ids: array[int]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Ids of blocks of so many tokens, 8 bytes each; the last one may not be full."""

    packed: bytes
    block: int
    num_tokens: int


Prompt = Chat | Text | Ids | Blocks


@dataclass(frozen=True, slots=True)
class Entry:
    """One request. at_s: None: no time is told. output_tokens: None: not known."""

    prompt: Prompt
    at_s: float | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """Requests of one conversation; their times count from its beginning."""

    entries: Sequence[Entry]


def requests_of(row: object, number: int) -> Session | list[Entry]:
    """What a line asks. number: its own, which names a session's blocks. Raises NoRequest."""
    if not isinstance(row, dict):
        raise NoRequest("it is no JSON object")
    if "hash_ids" in row or "hash_runs" in row:
        return [_blocks(row)]
    if "requests" in row and "block" in row:
        return _agents(row, number)
    if {"session_id", "system", "messages"} <= row.keys() and isinstance(row["messages"], list):
        return _session(row)
    at_s, answered = time_of(row), answer_tokens(row)
    return [Entry(prompt, at_s, answered) for prompt in _prompts(body_of(row))]


def body_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request's body in a line; the line itself where nothing is wrapped around it."""
    return next((row[name] for name in _BODIES if isinstance(row.get(name), dict)), row)


def _prompts(body: Mapping[str, Any]) -> list[Prompt]:
    """A chat, or a completion's prompts."""
    if isinstance(body.get("messages"), list):
        return [_chat(body)]
    prompt = body.get("prompt", body.get("input"))
    if isinstance(prompt, str):
        return [Text(prompt)]
    if isinstance(prompt, list) and prompt:
        if all(isinstance(one, str) for one in prompt):
            return [Text(one) for one in prompt]
        if all(isinstance(one, list) and one for one in prompt):
            return [_ids(one) for one in prompt]
        return [_ids(prompt)]
    raise NoRequest("it has neither messages nor a prompt")


def _ids(ids: Sequence[Any]) -> Ids:
    try:
        return Ids(array("i", ids))
    except (TypeError, OverflowError) as error:
        raise NoRequest("prompt holds something that is neither a text nor a token id") from error


def _chat(body: Mapping[str, Any]) -> Chat:
    messages = body["messages"]
    if not messages:
        raise NoRequest("messages is empty")
    tools = body.get("tools")
    variables = body.get("chat_template_kwargs")
    return Chat(
        [_message(one, place) for place, one in enumerate(messages)],
        tools if isinstance(tools, list) else (),
        str(body.get("model") or ""),
        variables if isinstance(variables, dict) else None,
    )


def _message(message: object, place: int) -> dict[str, Any]:
    """With its role first and without nulls."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise NoRequest(f"messages[{place}] has no role")
    rest = {key: one for key, one in message.items() if key != "role" and one is not None}
    content = rest.get("content")
    if content is not None and not isinstance(content, str | list):
        raise NoRequest(f"messages[{place}].content is neither a text nor a list of parts")
    if isinstance(content, list) and not all(isinstance(one, dict) for one in content):
        raise NoRequest(f"messages[{place}].content holds a part that is no object")
    return {"role": message["role"], **rest}


def _session(row: Mapping[str, Any]) -> Session:
    chat = _chat({**row, "tools": row.get("tools") or []})
    system = row.get("system")
    lead = [_message({"role": "system", "content": system}, 0)] if system else []
    entries = list[Entry]()
    for place, message in enumerate(chat.messages):
        if message["role"] == "assistant" and place:
            asked = replace(chat, messages=[*lead, *chat.messages[:place]])
            output = max(len(str(message.get("content") or message)) // 4, 1)
            entries.append(Entry(asked, len(entries) * TURN_EVERY_S, output))
    return Session(entries)


def _blocks(row: Mapping[str, Any]) -> Entry:
    total, stamp = row.get("input_length"), row.get("timestamp")
    if not isinstance(total, int) or total < 1:
        raise NoRequest(f"input_length is {total!r:.40}, no number of tokens")
    if "hash_runs" in row:
        packed, block = _expanded(row["hash_runs"]).tobytes(), RUN_BLOCK_TOKENS
    else:
        packed, block = _packed(row["hash_ids"]), MOONCAKE_TOKENS
    count = len(packed) // 8
    if not count or total > count * block:
        raise NoRequest(f"input_length is {total}, and its {count} ids stand for {count * block}")
    output = row.get("output_length")
    at = _number(stamp)
    at_s = None if at is None else at / 1000
    return Entry(Blocks(packed, block, total), at_s, output if isinstance(output, int) else None)


def _packed(ids: object) -> bytes:
    if not isinstance(ids, list) or len(ids) > MAX_BLOCKS:
        raise NoRequest(f"hash_ids is no list of at most {MAX_BLOCKS} ids")
    try:
        return array("q", ids).tobytes()
    except (TypeError, OverflowError):
        return b"".join(hashlib.blake2b(repr(one).encode(), digest_size=8).digest() for one in ids)


def _expanded(runs: object, base: int = 0) -> array[int]:
    """Runs of ids: start, how many, start, how many, ..."""
    if not isinstance(runs, list) or not all(isinstance(one, int) for one in runs):
        raise NoRequest("its runs of ids are no list of numbers")
    found = array("q")
    for start, count in zip(runs[::2], runs[1::2], strict=False):
        if not 0 <= count <= MAX_BLOCKS - len(found) or not 0 <= start < 1 << 31:
            raise NoRequest(f"a run of ids is {start}, {count}")
        found.extend(range(base + start, base + start + count))
    return found


def _agents(row: Mapping[str, Any], number: int) -> Session:
    block, rows = row["block"], row["requests"]
    if not isinstance(block, int) or not 1 <= block <= 1 << 16 or not isinstance(rows, list):
        raise NoRequest("block is no number of tokens, or requests is no list")
    entries, at_s, before = list[Entry](), 0.0, None
    for one in rows:
        try:
            time_s, total, output, runs = float(one[0]), int(one[1]), int(one[2]), one[9]
            _number(time_s)
        except (TypeError, ValueError, OverflowError, LookupError) as error:
            raise NoRequest(f"a request of the session is {one!r:.60}") from error
        ids = _expanded(runs, number << 32)
        if not ids:
            continue
        at_s += min(max(time_s - before, 0.0), MAX_PAUSE_S) if before is not None else 0.0
        before = time_s
        length = max(min(total, len(ids) * block), 1)
        entries.append(Entry(Blocks(ids.tobytes(), block, length), at_s, output))
    return Session(entries)


def time_of(row: Mapping[str, Any]) -> float | None:
    """When a line came, in seconds; numbers too large for seconds are milliseconds.

    None: it is not told. Raises NoRequest.
    """
    value = next((row[name] for name in _TIMES if row.get(name) is not None), None)
    found = _number(_spoken(value) if isinstance(value, str) else value)
    if found is not None and abs(found) >= MILLISECONDS_FROM:
        return found / 1000
    return found


def _spoken(text: str) -> float:
    """Seconds, or milliseconds, from a number or ISO 8601."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise NoRequest(f"its time is {text!r:.40}: a number or ISO 8601 is expected") from error


def _number(value: object) -> float | None:
    """A time; None: there is none. Raises NoRequest where it is beyond all times."""
    if not isinstance(value, int | float):
        return None
    if not abs(value) <= LATEST_MS:
        raise NoRequest(f"its time is {value!r:.40}, which is beyond the year 5000")
    return float(value)


def answer_tokens(row: Mapping[str, Any]) -> int | None:
    """How many tokens a line's answer has, by its usage; None: it is not told."""
    answer = row.get("response")
    answer = answer.get("body", answer) if isinstance(answer, dict) else row
    usage = answer.get("usage", answer) if isinstance(answer, dict) else {}
    found = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return found if isinstance(found, int) else None
