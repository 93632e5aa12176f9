from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.loaded import tokenizer_of
from tests.worker.text.vocabularies import sentencepiece, write_folder
from worker.text.settled import MARGIN, settled
from worker.text.tokenizer import Tokenizer

FOX = "The quick brown fox jumps over the lazy dog. "


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


@pytest.fixture(scope="module")
def vocabularies(smollm2: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> list[Tokenizer]:
    """Byte level, and sentencepiece that takes a text for one word, in two ways."""
    folder = tmp_path_factory.mktemp("pieces")
    pieces = [
        Tokenizer.load(write_folder(folder / str(metaspace), sentencepiece(metaspace=metaspace)))
        for metaspace in (True, False)
    ]
    return [smollm2, *pieces]


def places_of(tokenizer: Tokenizer, text: str, *places: int) -> list[int]:
    return settled(text, tokenizer.encode_spans(text), places)


def start_of(tokenizer: Tokenizer, text: str, count: int) -> str:
    ids = tokenizer.encode(text)[:count]
    data = b"".join(tokenizer.token_bytes(one) for one in ids if one not in tokenizer.special_ids)
    return data.decode(errors="ignore")


# Words, runs of white space, what looks like special tokens, text without any word.
parts = st.sampled_from(
    [
        *("the ", "quick", " fox", ". ", "  ", "\n\n", "é", "e\u0301", "日本語", "🌲", "12345"),
        *("<|im_", "end|>", "<|left|>", "<|right|>", "a" * 40, " " * 40, "\n" * 33, "ll", "or"),
    ]
)
texts = st.lists(parts, max_size=14).map("".join) | st.text(max_size=60)


@settings(max_examples=400)
@given(which=st.integers(0, 2), head=texts, tail=texts, other=texts)
def test_settled_tokens_stay_whatever_follows(
    vocabularies: list[Tokenizer], which: int, head: str, tail: str, other: str
) -> None:
    tokenizer, place = vocabularies[which], len(head)
    [here] = places_of(tokenizer, head + tail, place)
    [there] = places_of(tokenizer, head + other, place)
    assert here == there
    assert tokenizer.encode(head + tail)[:here] == tokenizer.encode(head + other)[:here]
    assert len(start_of(tokenizer, head + tail, here).strip(" ")) <= max(place - MARGIN, 0)


@given(text=texts, places=st.lists(st.integers(0, 60)))
def test_later_places_never_settle_less(
    vocabularies: list[Tokenizer], text: str, places: list[int]
) -> None:
    places = sorted(min(place, len(text)) for place in places)
    found = places_of(vocabularies[0], text, *places)
    assert found == sorted(found)


@given(text=texts)
def test_ids_with_their_places_are_those_without(vocabularies: list[Tokenizer], text: str) -> None:
    for tokenizer in vocabularies:
        assert tokenizer.encode_spans(text).ids == tokenizer.encode(text)


def test_the_last_word_that_ends_before_the_margin_is_the_last_one(smollm2: Tokenizer) -> None:
    text = FOX * 3
    ends = [0, *(word.end() for word in re.finditer(r"\w+|\.", text))]
    for place in range(len(text) + 1):
        [count] = places_of(smollm2, text, place)
        end = max(end for end in ends if end <= max(place - MARGIN, 0))
        assert start_of(smollm2, text, count) == text[:end]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_almost_all_of_plain_english_is_settled(vocabularies: list[Tokenizer], which: int) -> None:
    text = FOX.replace("q", "h") * 50
    [count] = places_of(vocabularies[which], text, 1024)
    start = start_of(vocabularies[which], text, count).lstrip(" ")
    assert 1024 - MARGIN - len(" quick") <= len(start) <= 1024 - MARGIN
    assert text.startswith(start)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_nothing_is_settled_in_a_text_that_is_one_word(
    vocabularies: list[Tokenizer], which: int
) -> None:
    text = "a" * 300
    [count] = places_of(vocabularies[which], text, 200)
    assert start_of(vocabularies[which], text, count) == ""
