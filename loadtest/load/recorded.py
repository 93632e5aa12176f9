"""Recorded traffic: traces that know content by block ids, and logs of requests with their bodies.

trace        a line: hash_ids (or hash_runs: start, length, ...), input_length, output_length and
             timestamp in ms, as Mooncake's; session_id where turns belong together
openai-log   a line: the request's body, in `body` or `request` or by itself; when: `timestamp`,
             `time`, `ts` or `created`; optionally tenant, session_id, usage of the answer
"""

from __future__ import annotations

import gzip
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TextIO, cast

import msgspec
from msgspec import Meta

from loadtest.errors import LoadTestError
from loadtest.load.prompt import Conversation, Prompt
from loadtest.load.words import block, text

Count = Annotated[int, Meta(ge=1)]
# A number above this counts milliseconds since 1970, not seconds.
_MS_FROM = 1e11
_OURS_TO_SAY = ("model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n")
_BODIES = ("body", "request")
_TIMES = ("timestamp", "time", "ts", "created")


class BlockTrace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """block_tokens: of the trace's blocks. words: what stands for a whole block.

    Fewer words than tokens let a small model be sent a trace of long prompts; None: as many.
    output_share: of the recorded output tokens, how many are asked for. limit: of lines.
    """

    path: str
    block_tokens: Count = 512
    words: Count | None = None
    output_share: Annotated[float, Meta(gt=0)] = 1.0
    limit: Count | None = None

    def conversations(self, rng: random.Random) -> list[Conversation]:
        """Returns plain prompts that share the blocks of equal ids. Raises LoadTestError."""
        found: dict[str, list[Prompt]] = defaultdict(list)
        for number, row in enumerate(_rows(self.path, self.limit)):
            try:
                name = str(row.get("session_id", f"line-{number}"))
                found[name].append(self._prompt(rng, name, len(found[name]), row))
            except (KeyError, TypeError, ValueError) as error:
                raise _bad_line(self.path, number, error) from error
        return _timed(found)

    def _prompt(self, rng: random.Random, name: str, turn: int, row: Mapping[str, Any]) -> Prompt:
        ids = row["hash_ids"] if "hash_ids" in row else list(_expanded(row["hash_runs"]))
        sizes = self._sizes(len(ids), int(row["input_length"]))
        blocks = [block(str(one), size) for one, size in zip(ids, sizes, strict=False)]
        # What the ids do not reach is nobody else's.
        rest = "".join(text(rng, size) for size in sizes[len(ids) :])
        output = max(1, round(int(row.get("output_length", 1)) * self.output_share))
        body = {"prompt": "".join(blocks) + rest}
        return Prompt(name, turn, "", body, output, at_s=float(row["timestamp"]) / 1000)

    def _sizes(self, num_blocks: int, input_length: int) -> list[int]:
        """Words of each block, the last one in part, and of what lies behind the blocks."""
        whole = self.words or self.block_tokens
        starts = range(0, max(input_length, num_blocks), self.block_tokens)
        tokens = [min(self.block_tokens, max(1, input_length - start)) for start in starts]
        tokens += [1] * (num_blocks - len(tokens))
        return [max(1, round(size * whole / self.block_tokens)) for size in tokens]


class OpenAILog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """output_tokens: where a line does not tell them. limit: of lines."""

    path: str
    output_tokens: Count = 64
    limit: Count | None = None

    def conversations(self, _: random.Random) -> list[Conversation]:
        """Returns the requests with their messages or prompt as logged. Raises LoadTestError."""
        found: dict[str, list[Prompt]] = defaultdict(list)
        for number, row in enumerate(_rows(self.path, self.limit)):
            try:
                name = str(row.get("session_id", f"line-{number}"))
                found[name].append(self._prompt(name, len(found[name]), row))
            except (KeyError, TypeError, ValueError) as error:
                raise _bad_line(self.path, number, error) from error
        return _timed(found)

    def _prompt(self, name: str, turn: int, row: Mapping[str, Any]) -> Prompt:
        body = next((row[key] for key in _BODIES if isinstance(row.get(key), dict)), row)
        if "messages" not in body and "prompt" not in body:
            raise ValueError("neither messages nor prompt")
        kept = body.items() if body is not row else _only_body(row)
        sent = {key: value for key, value in kept if key not in _OURS_TO_SAY}
        when = next((row[key] for key in _TIMES if key in row), None)
        at_s = None if when is None else _seconds(when)
        tokens = self._output_tokens(row, body)
        return Prompt(name, turn, str(row.get("tenant", "")), sent, tokens, at_s=at_s)

    def _output_tokens(self, row: Mapping[str, Any], body: Mapping[str, Any]) -> int:
        usage = row.get("usage") or (row.get("response") or {}).get("usage") or {}
        told = usage.get("completion_tokens")
        told = told or body.get("max_completion_tokens") or body.get("max_tokens")
        return int(told or self.output_tokens)


def _only_body(row: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What belongs to the body where a line is body and log in one."""
    return [(key, row[key]) for key in ("messages", "prompt", "tools") if key in row]


def _rows(path: str, limit: int | None) -> Iterator[dict[str, Any]]:
    try:
        with _opened(path) as file:
            for number, line in enumerate(islice((one for one in file if one.strip()), limit)):
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise _bad_line(path, number, "no object")
                yield row
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise LoadTestError(f"path is {path!r}: {error}") from error


def _opened(path: str) -> TextIO:
    if path.endswith(".gz"):
        return cast(TextIO, gzip.open(path, "rt"))
    return Path(path).open()


def _bad_line(path: str, number: int, error: object) -> LoadTestError:
    said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return LoadTestError(f"{path}, line {number + 1}: {said}")


def _expanded(runs: Sequence[int]) -> Iterator[int]:
    """start, length, start, length, ... -> ids."""
    for start, length in zip(runs[::2], runs[1::2], strict=True):
        yield from range(start, start + length)


def _seconds(when: object) -> float:
    if isinstance(when, str):
        try:
            return float(when)
        except ValueError:
            return datetime.fromisoformat(when).timestamp()
    if not isinstance(when, int | float):
        raise ValueError(f"a time is {when!r}: seconds, milliseconds since 1970 or ISO 8601")
    return when / 1000 if when > _MS_FROM else float(when)


def _timed(found: Mapping[str, Sequence[Prompt]]) -> list[Conversation]:
    """Each conversation by time, and all from the earliest time on."""
    times = [one.at_s for prompts in found.values() for one in prompts if one.at_s is not None]
    begin = min(times, default=0.0)
    conversations = [
        tuple(_from(begin, one) for one in sorted(prompts, key=lambda one: one.at_s or 0.0))
        for prompts in found.values()
    ]
    return sorted(conversations, key=lambda one: one[0].at_s or 0.0)


def _from(begin: float, prompt: Prompt) -> Prompt:
    return prompt if prompt.at_s is None else replace(prompt, at_s=prompt.at_s - begin)
