"""Plain text that goes on from an answer, with any ids as the answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.talk import Talk, chat_input, ids_of, user
from tests.worker.text.vocabularies import sentencepiece, vocabulary, write_folder
from worker.text.agreement import common_length
from worker.text.tokenizer import Tokenizer

PROMPT = "Once upon a time, in a town by the sea, there lived a clockmaker"
KINDS = ["byte level", "metaspace", "prepend"]


@pytest.fixture(scope="module")
def talks(
    smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, Tokenizer]]:
    root = tmp_path_factory.mktemp("plain")
    folders = {
        "byte level": smollm2_folder,
        "metaspace": write_folder(root / "m", sentencepiece(metaspace=True), "{{ messages }}"),
        "bare": write_folder(
            root / "b",
            sentencepiece(metaspace=True),
            "{% for m in messages %}{{ m.content }}{% endfor %}",
        ),
        "prepend": write_folder(root / "p", sentencepiece(metaspace=False), "{{ messages }}"),
    }
    return {kind: (folder, Tokenizer.load(folder)) for kind, folder in folders.items()}


def opened(talks: dict[str, tuple[Path, Tokenizer]], kind: str) -> Talk:
    return Talk.of(*talks[kind])


ids_of_any = st.lists(
    st.integers(259, len(vocabulary()) - 1) | st.integers(20, 120) | st.sampled_from([0, 1, 2]),
    min_size=1,
    max_size=60,
)
more = st.sampled_from(
    ["", " who", "er", "\n\nUser: And then?", "<|im_end|>\n<|im_start|>user\nSo?", "</s>x", "|>"]
)


@settings(max_examples=150)
@pytest.mark.parametrize("kind", KINDS)
@given(ids=ids_of_any, more=more, third=more)
def test_a_text_that_goes_on_spells_the_same_and_begins_with_what_was_generated(
    talks: dict[str, tuple[Path, Tokenizer]], kind: str, ids: list[int], more: str, third: str
) -> None:
    talk = opened(talks, kind)
    first = talk.prepared(PROMPT)
    text = talk.continued(first, ids)
    second = PROMPT + text + more
    prepared = talk.prepared(second)
    got, own = ids_of(prepared), talk.own(second)
    assert talk.spelled(got) == talk.spelled(own)
    special = talk.tokenizer.special_ids
    assert [one for one in got if one in special] == [one for one in own if one in special]
    if not more and not special & set(ids) and "\ufffd" not in text and "<" not in text:
        assert got == ids_of(first) + ids
    last = PROMPT + text + more + talk.continued(prepared, ids[::-1]) + third
    assert talk.spelled(ids_of(talk.prepared(last))) == talk.spelled(talk.own(last))


@settings(max_examples=150)
@pytest.mark.parametrize("kind", KINDS)
@given(
    ids=st.lists(ids_of_any, min_size=1, max_size=2),
    more=more,
    other=st.sampled_from(["", "s", " other", "\n", "<|im_end|>"]),
    cuts=st.lists(st.floats(0, 1), min_size=1, max_size=6),
)
def test_tokens_in_front_of_a_place_stay_whatever_follows(
    talks: dict[str, tuple[Path, Tokenizer]],
    *,
    kind: str,
    ids: list[list[int]],
    more: str,
    other: str,
    cuts: list[float],
) -> None:
    talk, text = opened(talks, kind), PROMPT
    for one in ids:
        text += talk.continued(talk.prepared(text), one) + more
    places = sorted(int(cut * len(text)) for cut in cuts)
    prepared = talk.prepared(text, places)
    for boundary in prepared.boundaries:
        place = places[boundary.digest[0] - 1]
        others = ids_of(talk.prepared(text[:place] + other))
        assert others[: boundary.num_tokens] == ids_of(prepared)[: boundary.num_tokens]


def test_an_answer_whose_letters_are_of_several_bytes_is_taken_as_far_as_any_other(
    talks: dict[str, tuple[Path, Tokenizer]],
) -> None:
    talk = opened(talks, "byte level")
    said = (
        " née à Orléans, où l'été dure 五十 jours et où l'on n'a ni thé ni café, and so on and on"
    )
    ids = [one for letter in said for one in talk.tokenizer.encode_literal(letter)]
    first = talk.prepared(PROMPT)
    text = PROMPT + talk.continued(first, ids) + " and on"
    got, spoken = ids_of(talk.prepared(text)), ids_of(first) + ids
    assert talk.spelled(got).decode() == text
    left = spoken[common_length(got, spoken) :]
    assert talk.spelled(left).decode() == " ni thé ni café, and so on and on"


def test_places_behind_an_answer_are_counted_in_the_ids_that_were_generated(
    talks: dict[str, tuple[Path, Tokenizer]],
) -> None:
    talk = opened(talks, "byte level")
    answer = [
        one
        for letter in " named Tom, who had a cat and a clock"
        for one in talk.tokenizer.encode_literal(letter)
    ]
    first = talk.prepared(PROMPT)
    text = PROMPT + talk.continued(first, answer)
    more = " and a dog and a house and a boat and more than anybody could count."
    prepared = talk.prepared(text + more, [len(PROMPT), len(text) + len(more)])
    ends = [talk.spelled(ids_of(prepared)[: one.num_tokens]) for one in prepared.boundaries]
    assert ends == [b"Once upon a time, in a town by", (text + more)[:-35].encode()]
    [begin, _] = [one.num_tokens for one in prepared.boundaries]
    assert begin < len(ids_of(first))


def test_bos_comes_once_and_where_a_special_token_follows_the_whole_answer_is_taken(
    talks: dict[str, tuple[Path, Tokenizer]],
) -> None:
    talk = opened(talks, "metaspace")
    first = talk.prepared("the thing")
    ids = [vocabulary()[one] for one in "▁the▁other▁thing"]
    text = "the thing" + talk.continued(first, ids)
    got = ids_of(talk.prepared(text + "</s>and"))
    assert got[: len(ids_of(first)) + len(ids) + 1] == [*ids_of(first), *ids, 2]
    assert got.count(1) == 1
    assert got != talk.own(text + "</s>and")


def test_an_answer_that_spells_a_special_token_is_left_to_the_tokenizer(
    talks: dict[str, tuple[Path, Tokenizer]],
) -> None:
    """In plain text a client may write special tokens: what it sends back is one then."""
    talk = opened(talks, "metaspace")
    for prompt, said in (("the", "▁</s>"), ("the </", "s>")):
        first = talk.prepared(prompt)
        talk.continued(first, [vocabulary()[one] for one in said])
    assert not talk.memory.num_bytes
    talk.continued(talk.prepared("the</s>"), [vocabulary()["a"]])
    assert ids_of(talk.prepared("the</s>a")) == talk.own("the</s>a")


def test_a_chat_takes_no_answer_of_a_text_nor_a_text_one_of_a_chat(
    talks: dict[str, tuple[Path, Tokenizer]],
) -> None:
    """The same text at the beginning of both: a text has BOS in front of it, this chat has none."""
    talk = opened(talks, "bare")
    text, chat = "ll", chat_input([user("ll")])
    ids = [vocabulary()[one] for one in "ll"]
    talk.answer(talk.prepared(chat), ids)
    assert ids_of(talk.prepared(text + "ll")) == talk.own(text + "ll")
    talk = opened(talks, "bare")
    talk.continued(talk.prepared(text), ids)
    later = chat_input([user("llll")])
    assert ids_of(talk.prepared(later)) == talk.own(later)
    assert ids_of(talk.prepared(text + "ll")) != talk.own(text + "ll")


def test_a_place_inside_an_answer_fixes_no_more_than_is_written_alike_without_it(
    talks: dict[str, tuple[Path, Tokenizer]],
) -> None:
    """A text that leaves the answer there has the tokenizer's own ids."""
    talk = opened(talks, "byte level")
    said = " who had a house by the river and a boat that was older than anybody in the town knew"
    letters = [one for letter in said for one in talk.tokenizer.encode_literal(letter)]
    text = PROMPT + talk.continued(talk.prepared(PROMPT), letters) + " of. And so it went on."
    place = len(PROMPT) + 70
    prepared = talk.prepared(text, [place])
    [boundary] = prepared.boundaries
    others = ids_of(talk.prepared(text[:place] + " else"))
    assert others[: boundary.num_tokens] == ids_of(prepared)[: boundary.num_tokens]
    assert talk.spelled(others[: boundary.num_tokens]).decode() == PROMPT
