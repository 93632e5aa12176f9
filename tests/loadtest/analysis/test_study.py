"""What is said of a log is what can be counted in it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
from typer.testing import CliRunner

from loadtest.analysis.command import run
from loadtest.analysis.findings import Findings
from loadtest.traces import mooncake
from pando.up import ROOT
from tests.loadtest.analysis import oracle
from tests.loadtest.analysis.logs import SYSTEM, chat, studied, written

UUIDS = ("550e8400-e29b-41d4-a716-446655440000", "7c9e6679-7425-40de-944b-e07fc1f90ae7")
app = typer.Typer()
app.command()(run)
MOONCAKE = ROOT / "loadtest" / "data" / "mooncake_conversation_trace.jsonl.gz"


def test_a_shared_system_prompt_is_counted_to_the_byte(tmp_path: Path) -> None:
    found = studied(written(tmp_path, [chat("Alps?"), chat("Baltic?"), chat("Alps? Now!")]))
    shared = len(f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n")
    both = shared + len("Alps?")
    assert found.sharing.shared_tokens == (shared + both) // 4
    assert found.sharing.paged_tokens == (shared // 64 * 64 + both // 64 * 64) // 4
    top = max(found.hot, key=lambda one: one.saved_tokens)
    assert (top.begin, top.end, top.requests) == (0, shared // 4, 3)
    assert top.role == "system user"
    assert "help" not in str(found)


def test_text_is_shown_where_it_may_be(tmp_path: Path) -> None:
    path = written(tmp_path, [chat("a"), chat("b")])
    assert "You help people" in studied(path, show_text=True).hot[0].text


def test_blocks_are_counted_as_a_second_reader_counts_them(tmp_path: Path) -> None:
    requests = mooncake(MOONCAKE, 150)
    lines = _head(MOONCAKE, 150)
    found = studied(written(tmp_path, lines), sizes=(100_000, 400_000, 10**9))
    prompts = [tuple(int(piece.key) for piece in one.pieces) for one in requests]
    whole = [
        min(512 * _common(prompt, prompts[:number]), one.prompt_tokens - 1)
        for number, (prompt, one) in enumerate(zip(prompts, requests, strict=True))
    ]
    assert found.sharing.shared_tokens == sum(whole)
    total = sum(one.prompt_tokens for one in requests)
    assert found.traffic.prompt_tokens == total
    assert found.sizes[-1].radix == pytest.approx(sum(whole) / total)
    # By whole blocks, an oracle of a few lines gives nearly the same: it never has a last block.
    for point in found.sizes[:-1]:
        by_blocks = 512 * sum(oracle.lru_hits(prompts, point.cache_tokens // 512))
        assert point.radix == pytest.approx(by_blocks / total, abs=0.005)
        assert point.radix <= point.best


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("It is 2026-11-30 12:03:59. ", "It is 2026-11-30 12:04:10. ", "timestamp"),
        (f"Request {UUIDS[0]}. ", f"Request {UUIDS[1]}. ", "uuid"),
    ],
)
def test_the_doctor_names_what_to_mend_first(
    tmp_path: Path, first: str, second: str, reason: str
) -> None:
    lines = [chat("a", first + SYSTEM), chat("b", second + SYSTEM), chat("c", second + SYSTEM)]
    found = studied(written(tmp_path, lines))
    assert found.checkup is not None
    (ailment,) = found.checkup.ailments
    assert (ailment.reason, ailment.requests, ailment.request) == (reason, 1, 2)
    assert ailment.place.startswith("messages[0]:")
    assert 100 < ailment.lost_tokens <= len(SYSTEM) // 4 + 20
    assert found.advice[0].startswith(f"Mend this first: {reason} at messages[0]:")
    assert found.checkup.reasons == {reason: 1, "never_seen": 1, "hit": 1}


def test_a_log_with_nothing_wrong_has_nothing_to_mend(tmp_path: Path) -> None:
    found = studied(written(tmp_path, [chat(letter * 900) for letter in "abc"]))
    assert found.checkup is not None
    assert found.checkup.reasons == {"never_seen": 1, "hit": 2}
    assert found.checkup.ailments == []
    assert not any("Mend" in one for one in found.advice)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([{"prompt": f"{number} {'x' * 400}"} for number in range(5)], "under 20%: a prefix cache"),
        ([{"prompt": "y" * 4000}, {"prompt": "y" * 1600 + "z" * 2400}], "between 20% and half"),
        ([chat(str(number)) for number in range(9)], "over half: set prefix_cache to radix"),
        ([{"prompt": "y" * 10_000}], "above 2,048: try dflash"),
        ([{"prompt": "y" * 1000}], "under 1,024: leave dflash off"),
    ],
)
def test_advice_follows_the_thresholds(tmp_path: Path, lines: list[object], sentence: str) -> None:
    assert any(sentence in one for one in studied(written(tmp_path, lines)).advice)


def test_the_command_tells_the_same_as_tables_as_json_and_as_a_page(tmp_path: Path) -> None:
    lines = [{"timestamp": n, **chat(f"{n}", f"Today is {n} <b>. {SYSTEM}")} for n in range(12)]
    path = written(tmp_path, [*lines, "no json"])
    words = [str(path), "--workers", "2", "--out", str(tmp_path / "out")]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0, told.output
    assert "line 13: it is no JSON" in told.stdout
    as_json = CliRunner().invoke(app, [*words[:3], "--json"])
    found = json.loads(as_json.stdout)
    saved = json.loads((tmp_path / "out" / "analysis.json").read_text())
    assert found == saved
    assert found["traffic"]["requests"] == 12
    assert [one["policy"] for one in found["fleets"]["points"]] == [
        "cost",
        "consistent",
        "round_robin",
    ]
    page = (tmp_path / "out" / "analysis.html").read_text()
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", page)
    assert "<script" not in page
    for picture in re.findall(r"<svg.*?</svg>", page):
        ElementTree.fromstring(picture)
    assert len(re.findall("<svg", page)) == 3
    for sentence in found["advice"]:
        plain = re.sub(r"</?code>", "`", re.sub(r"\s+", " ", page))
        assert sentence.split(".")[0] in plain
    assert '<th class="words">policy</th><th>tokens each</th>' in page, "words left, numbers right"
    assert "<th>begins</th>" not in page.replace(' class="words"', ""), "no text was asked for"


def test_a_log_of_a_few_tokens_has_a_page_too(tmp_path: Path) -> None:
    path = written(tmp_path, [{"prompt": "hi"}])
    told = CliRunner().invoke(app, [str(path), "--out", str(tmp_path / "out")])
    assert told.exit_code == 0, told.output
    assert "1 requests" in (tmp_path / "out" / "analysis.html").read_text()


def test_a_wrong_value_is_a_sentence(tmp_path: Path) -> None:
    path = str(written(tmp_path, [chat("a")]))
    for words, sentence in (
        (["--workers", "two"], "--workers is 'two'"),
        (["--policies", "best"], "--policies has 'best'"),
        (["--tokenizer", str(tmp_path)], "--tokenizer: The model folder"),
        (["--out", f"{path}/out"], "Not a directory"),
    ):
        told = CliRunner().invoke(app, [path, *words])
        assert (told.exit_code, sentence in told.output.replace("\n", " ")) == (1, True)


def test_tokens_are_the_tokenizers(tmp_path: Path, smollm2_folder: Path) -> None:
    from loadtest.analysis.study import Study, Wish
    from loadtest.analysis.writing import pen_of

    path = written(tmp_path, [{"prompt": "The sky is blue"}, {"prompt": "The sky is red, now"}])
    wish = Wish(path, pen_of(str(smollm2_folder)), workers=(), show_text=True)
    found: Findings = Study(b"key", lambda _: None).of(wish)
    assert (found.traffic.prompt_tokens, found.sharing.shared_tokens) == (4 + 6, 3)
    assert found.hot[0].text == "The sky is"


def _head(path: Path, count: int) -> list[str]:
    import gzip
    from itertools import islice

    with gzip.open(path, "rt") as file:
        return [line.strip() for line in islice(file, count)]


def _common(prompt: tuple[int, ...], others: list[tuple[int, ...]]) -> int:
    return max(
        (
            next(
                (n for n, pair in enumerate(zip(prompt, one, strict=False)) if pair[0] != pair[1]),
                min(len(prompt), len(one)),
            )
            for one in others
        ),
        default=0,
    )
