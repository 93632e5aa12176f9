"""Recorded traffic: traces that know content by block ids, and logs of requests with their bodies.

trace        a line: hash_ids (or hash_runs: start, length, ...), input_length, output_length and
             timestamp in ms, as Mooncake's; session_id where turns belong together
openai-log   a line: the request's body, wrapped or by itself, when it came and what was answered,
             as `loadtest.analysis.forms` reads them; optionally tenant and session_id
"""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TextIO, cast

import msgspec
from msgspec import Meta

from loadtest.analysis.forms import NoRequest, answer_tokens, body_of, time_of
from loadtest.errors import LoadTestError
from loadtest.load.prompt import Conversation, Prompt
from loadtest.words import block, text

Count = Annotated[int, Meta(ge=1)]
_OURS_TO_SAY = ("model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n")


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
            except (KeyError, TypeError, ValueError, OverflowError) as error:
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
            except (NoRequest, TypeError, ValueError, OverflowError) as error:
                raise _bad_line(self.path, number, error) from error
        return _timed(found)

    def _prompt(self, name: str, turn: int, row: Mapping[str, Any]) -> Prompt:
        body = body_of(row)
        _check(body)
        kept = body.items() if body is not row else _only_body(row)
        sent = {key: value for key, value in kept if key not in _OURS_TO_SAY}
        told = answer_tokens(row) or body.get("max_completion_tokens") or body.get("max_tokens")
        tokens = int(told or self.output_tokens)
        return Prompt(name, turn, str(row.get("tenant", "")), sent, tokens, at_s=time_of(row))


def _check(body: Mapping[str, Any]) -> None:
    """Raises NoRequest where there is nothing that can be sent."""
    messages, prompt = body.get("messages"), body.get("prompt")
    if messages is None and prompt is None:
        raise NoRequest("neither messages nor prompt")
    if messages is not None and not (
        isinstance(messages, list) and all(isinstance(one, dict) for one in messages)
    ):
        raise NoRequest("messages is no list of objects")
    if prompt is not None and not isinstance(prompt, str | list):
        raise NoRequest("prompt is neither a text nor a list")


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
    except (OSError, EOFError, zlib.error, RecursionError, ValueError) as error:
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
