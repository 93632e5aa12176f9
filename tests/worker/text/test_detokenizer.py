from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from tests.worker.loaded import tokenizer_of
from tests.worker.text.vocabularies import sentencepiece, spelled, vocabulary, write_folder
from worker.text.detokenizer import Detokenizer
from worker.text.tokenizer import Tokenizer

VOCABULARY = vocabulary()


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


@pytest.fixture(scope="module")
def library(smollm2_folder: Path) -> Library:
    return Library.from_file(str(smollm2_folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def byte_fallback(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("sentencepiece")
    return Tokenizer.load(write_folder(folder, sentencepiece(metaspace=True)))


def streamed(detokenizer: Detokenizer, ids: Sequence[int], cuts: Sequence[int]) -> str:
    """The text of the ids, pushed in pieces that end at the cuts."""
    ends = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    pieces = [detokenizer.push(ids[a:b]) for a, b in pairwise(ends)]
    return "".join(pieces) + detokenizer.flush()


@given(
    # Single bytes often: they make characters of several tokens, whole and broken.
    ids=st.lists(st.integers(0, 49151) | st.integers(0, 300), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=10),
)
def test_any_split_of_any_ids_gives_the_text_of_the_whole(
    smollm2: Tokenizer, library: Library, ids: list[int], cuts: list[int]
) -> None:
    assert streamed(Detokenizer(smollm2), ids, cuts) == library.decode(ids)


@given(text=st.text(), cuts=st.lists(st.integers(0, 60), max_size=10))
def test_text_comes_back_as_it_was(smollm2: Tokenizer, text: str, cuts: list[int]) -> None:
    text = spelled(smollm2, text)
    assert streamed(Detokenizer(smollm2), smollm2.encode_literal(text), cuts) == text


@given(text=st.text(), cuts=st.lists(st.integers(0, 60), max_size=10))
def test_text_of_a_byte_fallback_vocabulary_comes_back(
    byte_fallback: Tokenizer, text: str, cuts: list[int]
) -> None:
    # A space in front takes the place of the dummy prefix: the vocabulary can't tell them apart.
    text = text.replace("▁", "_").lstrip(" ")
    assert streamed(Detokenizer(byte_fallback), byte_fallback.encode_literal(text), cuts) == text


@given(ids=st.lists(st.integers(3, len(VOCABULARY) - 1)), cuts=st.lists(st.integers(0, 40)))
def test_byte_fallback_ids_decode_as_their_bytes(
    byte_fallback: Tokenizer, ids: list[int], cuts: list[int]
) -> None:
    data = b"".join(map(byte_fallback.token_bytes, ids)).removeprefix(b" ")
    assert streamed(Detokenizer(byte_fallback), ids, cuts) == data.decode("utf-8", "replace")


def test_no_character_leaves_before_its_last_byte(smollm2: Tokenizer) -> None:
    ids = smollm2.encode_literal("𓀀")
    detokenizer = Detokenizer(smollm2)
    assert len(ids) > 1
    assert [detokenizer.push([token]) for token in ids] == [""] * (len(ids) - 1) + ["𓀀"]


def test_an_unfinished_character_becomes_a_replacement_at_the_end(smollm2: Tokenizer) -> None:
    detokenizer = Detokenizer(smollm2)
    assert detokenizer.push(smollm2.encode_literal("𓀀")[:-1]) == ""
    assert detokenizer.flush() == "\ufffd"


def test_special_tokens_are_left_out(smollm2: Tokenizer) -> None:
    assert Detokenizer(smollm2).push([1, *smollm2.encode_literal("Hi"), 2]) == "Hi"


def test_the_dummy_prefix_is_dropped_at_the_start_of_a_text_only(byte_fallback: Tokenizer) -> None:
    the = VOCABULARY["▁the"]
    assert streamed(Detokenizer(byte_fallback), [1, the, the], [1, 2]) == "the the"
    assert streamed(Detokenizer.after_text(byte_fallback), [the, the], [1]) == " the the"
