"""Recorded traffic is read as it was written: who shares what, and when it came."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

from loadtest.traces import MAX_PAUSE_S, Recorded, agents, mooncake


def written(path: Path, rows: Sequence[object]) -> Path:
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def shared(first: Recorded, second: Recorded) -> int:
    """Tokens that two prompts have in common from the start."""
    tokens = 0
    for one, other in zip(first.pieces, second.pieces, strict=False):
        if one.key != other.key:
            break
        tokens = one.num_tokens
    return tokens


def row(at_ms: int, ids: list[int], length: int) -> dict[str, object]:
    return {"timestamp": at_ms, "input_length": length, "output_length": 7, "hash_ids": ids}


def test_a_block_is_a_piece_and_the_last_one_may_be_short(tmp_path: Path) -> None:
    rows = [row(0, [0, 1, 2], 1200), row(3000, [0, 1, 9], 1536)]
    first, second = mooncake(written(tmp_path / "trace.gz", rows))
    assert [piece.num_tokens for piece in first.pieces] == [512, 1024, 1200]
    assert shared(first, second) == 1024
    assert (first.prompt_tokens, first.output_tokens) == (1200, 7)


def test_requests_of_one_recorded_instant_are_spread_up_to_the_next(tmp_path: Path) -> None:
    rows = [row(at, [number], 10) for number, at in enumerate([0, 0, 0, 3000, 3000, 6000])]
    times = [request.at_s for request in mooncake(written(tmp_path / "trace.gz", rows))]
    assert times == [0, 1, 2, 3, 4.5, 6]


def test_only_the_first_requests_are_read_where_so_asked(tmp_path: Path) -> None:
    rows = [row(number, [number], 10) for number in range(9)]
    assert len(mooncake(written(tmp_path / "trace.gz", rows), limit=4)) == 4


def turn(at_s: float, runs: list[int], tokens: int) -> list[object]:
    """tools 64 and system 64 tokens: the first two blocks are static."""
    return [at_s, tokens, 5, "main", "m", 64, 64, 1.0, 0.0, runs]


def session(*turns: list[object]) -> dict[str, object]:
    return {"id": "s", "block": 64, "requests": turns}


def test_an_agents_messages_end_where_requests_end_or_part(tmp_path: Path) -> None:
    turns = [
        turn(0, [1, 4], 256),
        turn(5, [1, 6], 384),
        turn(9, [1, 5, 20, 3], 512),
    ]
    first, second, third = agents(written(tmp_path / "sessions.gz", [session(*turns)]))
    assert [piece.num_tokens for piece in first.pieces] == [128, 256]
    assert [piece.num_tokens for piece in second.pieces] == [128, 256, 320, 384]
    assert [piece.num_tokens for piece in third.pieces] == [128, 256, 320, 512]
    assert shared(first, second) == 256
    assert shared(second, third) == 320


def test_long_pauses_are_cut_and_short_ones_kept(tmp_path: Path) -> None:
    turns = [turn(0, [1, 4], 256), turn(10, [1, 5], 320), turn(9999, [1, 6], 384)]
    first, second, third = agents(written(tmp_path / "sessions.gz", [session(*turns)]))
    assert second.at_s - first.at_s == 10
    assert third.at_s - second.at_s == MAX_PAUSE_S


def test_sessions_share_nothing(tmp_path: Path) -> None:
    one = session(turn(0, [1, 4], 256))
    first, second = agents(written(tmp_path / "sessions.gz", [one, {**one, "id": "t"}]))
    assert shared(first, second) == 0
