from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.worker.loaded import tokenizer_of
from worker.cache.scope import CacheScope
from worker.progress import Progress
from worker.request import FinishReason, Sampling, Stopping
from worker.sequence import SequenceSpec, pack_tokens
from worker.stream import RequestStream
from worker.submission import ChatInput, Output, StopRules, Submission
from worker.text.tokenizer import Tokenizer

CHAT = Submission(1, ChatInput(b"[]"))


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


def stream(tokenizer: Tokenizer, rules: StopRules, n: int = 1) -> RequestStream:
    request = RequestStream.open(replace(CHAT, rules=rules, n=n), 3, Stopping(99), tokenizer)
    request.enter(
        [
            SequenceSpec(number, CacheScope(), b"", Sampling(), Stopping(99), choice=number)
            for number in range(n)
        ]
    )
    return request


def play(
    request: RequestStream, ids: list[int], last: FinishReason | None = FinishReason.LENGTH
) -> list[Output]:
    outputs = []
    for index, token in enumerate(ids):
        finish = last if index == len(ids) - 1 else None
        output = request.push(Progress(0, (token,), (), finish))
        if output is not None:
            outputs.append(output)
    return outputs


@pytest.mark.parametrize("text", ["plain", "日本語 👩‍👩‍👧‍👦 é", "🌲" * 5, "a\r\n\tb"])
def test_the_pieces_are_the_text_and_no_piece_splits_a_character(
    tokenizer: Tokenizer, text: str
) -> None:
    ids = tokenizer.encode_literal(text)
    outputs = play(stream(tokenizer, StopRules()), ids)
    assert "".join(output.text for output in outputs) == text
    assert [token for output in outputs for token in output.tokens] == ids
    assert not any("�" in output.text for output in outputs)


def test_a_character_that_never_ends_comes_as_one_replacement_with_the_last_token(
    tokenizer: Tokenizer,
) -> None:
    ids = tokenizer.encode_literal("🌲")
    assert len(ids) > 1
    outputs = play(stream(tokenizer, StopRules()), ids[:-1])
    assert outputs[-1].text == "�"


def test_what_a_stop_string_ended_is_known_before_the_engine_knows(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_literal("one two STOP three")
    request = stream(tokenizer, StopRules(stop=("STOP",)))
    outputs = play(request, ids)
    assert "".join(output.text for output in outputs) == "one two "
    assert outputs[-1].finish is FinishReason.STOP
    assert outputs[-1].stop == "STOP"
    assert request.finished
    assert request.usage.completion_tokens < len(ids)


def test_text_that_only_might_have_begun_a_stop_comes_with_the_end(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_literal("one two ST")
    outputs = play(stream(tokenizer, StopRules(stop=("STOP",))), ids)
    assert "".join(output.text for output in outputs) == "one two ST"
    assert outputs[-1].finish is FinishReason.LENGTH


def test_a_stop_string_before_min_tokens_is_only_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_literal("STOP and go STOP")
    rules = StopRules(stop=("STOP",), min_tokens=3)
    outputs = play(stream(tokenizer, rules), ids)
    assert "".join(output.text for output in outputs) == "STOP and go "


def test_the_token_that_ended_a_choice_is_counted_and_not_shown(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_literal("yes no")
    request = stream(tokenizer, StopRules())
    outputs = play(request, ids, FinishReason.STOP)
    assert "".join(output.text for output in outputs) == "yes"
    assert request.usage.completion_tokens == len(ids)


def test_a_request_ends_with_its_last_choice(tokenizer: Tokenizer) -> None:
    request = stream(tokenizer, StopRules(), n=2)
    request.push(Progress(1, (5,), (), FinishReason.LENGTH))
    assert not request.finished
    assert request.unfinished_ids == [0]
    request.push(Progress(0, (5,), (), FinishReason.LENGTH))
    assert request.finished
    assert request.usage.completion_tokens == 2


def test_tokens_after_the_end_are_dropped(tokenizer: Tokenizer) -> None:
    request = stream(tokenizer, StopRules())
    play(request, [5])
    assert request.push(Progress(0, (6,))) is None
    assert request.usage.completion_tokens == 1


def test_only_the_first_choices_share_of_the_cache_counts(tokenizer: Tokenizer) -> None:
    request = stream(tokenizer, StopRules(), n=2)
    for number, cached in ((1, 3), (0, 2), (1, 4)):
        request.admitted(number, cached)
    assert request.usage.cached_tokens == 2


@pytest.mark.parametrize("as_ids", [False, True])
def test_the_echo_is_the_prompts_text_and_comes_once_with_the_first_choice(
    tokenizer: Tokenizer, as_ids: bool
) -> None:
    text = "It is 10 o'clock, 日本語"
    prompt = pack_tokens(tokenizer.encode(text)) if as_ids else text
    asked = Submission(1, prompt, n=2, echo=True)
    request = RequestStream.open(asked, 3, Stopping(99), tokenizer)
    spec = SequenceSpec(0, CacheScope(), b"", Sampling(), Stopping(99))
    request.enter([spec, replace(spec, id=1, choice=1)])
    token = tokenizer.encode_literal(" x")[0]
    outputs = [request.push(Progress(number, (token,))) for number in (1, 0, 0, 1)]
    told = [output.prompt_text for output in outputs if output is not None]
    assert told == ["", text, "", ""]
