"""Any ids as an answer: what the next prompt has, in every template and vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.loaded import tokenizer_of
from tests.worker.talk import Message, Talk, assistant, chat_input, ids_of, user
from tests.worker.text.vocabularies import sentencepiece, vocabulary, write_folder
from worker.errors import InvalidRequest
from worker.text.template import Template
from worker.text.tokenizer import Tokenizer
from worker.text.turns import TurnIds

TEMPLATES = {
    "parted": "{{ bos_token }}{% for m in messages %}<|left|>{{ m.role }}: {{ m.content }}</s>\n"
    "{% endfor %}{% if add_generation_prompt %}<|left|>assistant: {% endif %}",
    "at once": "{% for m in messages %}<|left|>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|left|>{% endif %}",
    "stripped": "{% for m in messages %}<|left|>{{ m.content | trim }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|left|>{% endif %}",
    "spaced": "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] "
    "{{ m.content }} [/INST]{% else %} {{ m.content }} </s>{% endif %}{% endfor %}",
    "bare": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}",
}
WHOLE = ("parted", "at once", "stripped")
Talks = Callable[[str, str], Talk]
GREETING = [user("Hello there, please tell me all about the other thing.")]
NUM_TOKENS = len(vocabulary())


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    root = tmp_path_factory.mktemp("folders")
    kinds = {"metaspace": True, "prepend": False}
    return {
        (kind, name): write_folder(
            root / f"{kind} {name}", sentencepiece(metaspace=metaspace), source
        )
        for kind, metaspace in kinds.items()
        for name, source in TEMPLATES.items()
    }


@pytest.fixture(scope="module")
def talks(folders: dict[tuple[str, str], Path]) -> Talks:
    """Makes a worker with an empty memory."""
    tokenizers = {key: Tokenizer.load(folder) for key, folder in folders.items()}

    def make(kind: str, name: str) -> Talk:
        return Talk.of(folders[kind, name], tokenizers[kind, name])

    return make


def without_dummies(talk: Talk, ids: list[int]) -> bytes:
    """What the ids spell, without the space that a vocabulary may put behind a special token."""
    return talk.spelled(ids).replace(b"<|left|> ", b"<|left|>")


kinds = st.sampled_from(["metaspace", "prepend"])
# Letters and merged pairs mostly, so that much can be written otherwise; few bytes and specials.
letters = st.integers(259, NUM_TOKENS - 1)
answers = st.lists(letters | letters | st.sampled_from([*range(0x20 + 3, 0x7B + 3)]), max_size=60)
odd_answers = st.lists(letters | st.integers(0, NUM_TOKENS + 1), max_size=30)
words = st.sampled_from(["", "So?", " and then ", "the other\nthing", "<|left|>", "</s>", "é", "e"])


@settings(max_examples=80)
@pytest.mark.parametrize("name", TEMPLATES)
@given(kind=kinds, ids=answers | odd_answers, words=words)
def test_the_next_turn_spells_the_same_text_and_begins_with_what_was_generated(
    talks: Talks, name: str, kind: str, ids: list[int], words: str
) -> None:
    talk = talks(kind, name)
    first = talk.prepared(chat_input(GREETING))
    text = talk.answer(first, ids)
    second = chat_input([*GREETING, assistant(text), user(words)])
    prepared = talk.prepared(second)
    got, own = ids_of(prepared), talk.own(second)
    assert without_dummies(talk, got) == without_dummies(talk, own)
    assert (got == own) == (prepared.turn is not TurnIds.RECORDED)
    assert got.count(1) == own.count(1)
    special = talk.tokenizer.special_ids
    assert [one for one in got if one in special] == [one for one in own if one in special]
    if prepared.turn is not TurnIds.MISSED and name in WHOLE:
        ended = next((i for i, one in enumerate(ids) if one in talk.tokenizer.eos_ids), len(ids))
        spoken = ids_of(first) + ids[:ended]
        while got[: len(spoken)] != spoken:
            # What is not shown at its end is no part of an answer.
            assert spoken.pop() in special
        assert len(spoken) >= len(ids_of(first))


@settings(max_examples=60)
@pytest.mark.parametrize("name", TEMPLATES)
@given(
    kind=kinds,
    ids=st.lists(answers, min_size=1, max_size=3),
    other=st.lists(st.sampled_from(["s", "the end", "", "\n1"]).map(user), max_size=2),
)
def test_tokens_in_front_of_a_boundary_stay_whatever_follows(
    talks: Talks, name: str, kind: str, ids: list[list[int]], other: list[Message]
) -> None:
    talk = talks(kind, name)
    chat = list(GREETING)
    for one in ids:
        prepared = talk.prepared(chat_input(chat))
        chat += [assistant(talk.answer(prepared, one)), user("Go on, then.")]
    places = range(1, len(chat) + 1)
    prepared = talk.prepared(chat_input(chat), places)
    positions = [one.num_tokens for one in prepared.boundaries]
    assert positions == sorted(positions)
    for boundary in prepared.boundaries:
        k, position = boundary.digest[0], boundary.num_tokens
        try:
            others = ids_of(talk.prepared(chat_input(chat[:k] + other)))
        except InvalidRequest:
            continue
        assert others[:position] == ids_of(prepared)[:position], f"after {k} messages"


@settings(max_examples=60)
@given(kind=kinds, ids=st.lists(answers, min_size=1, max_size=4))
def test_boundaries_lie_where_the_messages_end(
    talks: Talks, kind: str, ids: list[list[int]]
) -> None:
    talk = talks(kind, "parted")
    chat = list(GREETING)
    for one in ids:
        prepared = talk.prepared(chat_input(chat))
        chat += [assistant(talk.answer(prepared, one)), user("Go on, then.")]
    prepared = talk.prepared(chat_input(chat), range(1, len(chat) + 1))
    template = Template(TEMPLATES["parted"], TEMPLATES["parted"], {"bos_token": "<s>"})
    for boundary in prepared.boundaries:
        # The special token that begins the next message swallows the line's end.
        text = template.render(chat[: boundary.digest[0]], add_generation_prompt=False)
        head = talk.spelled(ids_of(prepared)[: boundary.num_tokens])
        text = text.replace("</s>\n", "</s>").replace(" ", "")
        assert head.replace(b" ", b"") == text.encode()


@pytest.mark.parametrize("name", ["bare", "spaced"])
def test_where_text_follows_all_but_the_last_words_are_those_generated(
    talks: Talks, name: str
) -> None:
    """No special token ends the answer: its last 32 characters could go together with more."""
    talk = talks("metaspace", name)
    first = talk.prepared(chat_input(GREETING))
    letters = [vocabulary()[one] for one in "▁the▁other▁and▁then▁all▁that▁was▁left▁of▁the▁text"]
    text = talk.answer(first, letters)
    second = chat_input([*GREETING, assistant(text), user("And?")])
    prepared = talk.prepared(second)
    got, own = ids_of(prepared), talk.own(second)
    assert prepared.turn is TurnIds.RECORDED
    spoken = ids_of(first) + letters
    shared = max(count for count in range(len(spoken) + 1) if got[:count] == spoken[:count])
    assert talk.spelled(got[:shared]).endswith(b" the other and")
    # The rest is written as it would be without the answer.
    tail = got[shared:]
    assert own[-len(tail) :] == tail


def test_an_answer_that_spells_a_special_token_stays_text(talks: Talks) -> None:
    talk = talks("metaspace", "parted")
    first = talk.prepared(chat_input(GREETING))
    ids = [vocabulary()[one] for one in "the▁</s>▁<|left|>"]
    text = talk.answer(first, ids)
    assert text == "the </s> <|left|>"
    prepared = talk.prepared(chat_input([*GREETING, assistant(text), user("</s>")]))
    assert prepared.turn is TurnIds.RECORDED
    assert ids_of(prepared)[: len(ids_of(first)) + len(ids)] == ids_of(first) + ids
    assert ids_of(prepared).count(2) == 3


def test_a_special_token_inside_an_answer_leaves_it_unremembered(talks: Talks) -> None:
    """A client is given text without it, or text that spells it by other tokens."""
    talk = talks("metaspace", "at once")
    first = talk.prepared(chat_input(GREETING))
    left = talk.tokenizer.special_tokens["<|left|>"]
    spelled = [vocabulary()[one] for one in "<|left|>"]
    for ids in ([letter("a"), left, letter("b")], [left, *spelled]):
        text = talk.answer(first, ids)
        prepared = talk.prepared(chat_input([*GREETING, assistant(text), user("And?")]))
        assert prepared.turn is TurnIds.MISSED
    assert not talk.memory.num_bytes


def letter(text: str) -> int:
    return vocabulary()[text]


def test_a_template_that_strips_an_answer_misses_it_and_is_right_all_the_same(
    talks: Talks,
) -> None:
    talk = talks("metaspace", "stripped")
    first = talk.prepared(chat_input(GREETING))
    for ids, turn in [
        ([letter("t"), letter("h"), letter("e"), letter("\n")], TurnIds.MISSED),
        ([letter("t"), letter("h"), letter("e")], TurnIds.RECORDED),
    ]:
        second = chat_input([*GREETING, assistant(talk.answer(first, ids)), user("And?")])
        prepared = talk.prepared(second)
        assert prepared.turn is turn
        assert (ids_of(prepared) == talk.own(second)) == (turn is TurnIds.MISSED)


def test_an_edited_answer_is_missed(talks: Talks) -> None:
    talk = talks("metaspace", "parted")
    first = talk.prepared(chat_input(GREETING))
    text = talk.answer(first, [letter("t"), letter("h"), letter("e")])
    second = chat_input([*GREETING, assistant(text + "re"), user("And?")])
    prepared = talk.prepared(second)
    assert prepared.turn is TurnIds.MISSED
    assert ids_of(prepared) == talk.own(second)


def test_the_tokenizers_own_ids_are_told_from_others(talks: Talks) -> None:
    talk = talks("metaspace", "parted")
    first = talk.prepared(chat_input(GREETING))
    for ids, turn in [
        ([letter("l"), letter("l")], TurnIds.RECORDED),
        ([letter("h"), letter("a")], TurnIds.EXACT),
    ]:
        text = talk.answer(first, ids)
        assert talk.prepared(chat_input([*GREETING, assistant(text)])).turn is turn
    assert first.turn is None


def test_another_namespace_sees_nothing(talks: Talks) -> None:
    talk = talks("metaspace", "parted")
    prompt = chat_input(GREETING)
    ours = talk.prepared(prompt, namespace=b"ours")
    text = talk.answer(ours, [letter("l"), letter("l")])
    second = chat_input([*GREETING, assistant(text), user("And?")])
    for namespace in (b"", b"our", b"oursx", b"theirs"):
        prepared = talk.prepared(second, namespace=namespace)
        assert prepared.turn is TurnIds.MISSED
        assert ids_of(prepared) == talk.own(second)
    assert talk.prepared(second, namespace=b"ours").turn is TurnIds.RECORDED


def test_a_later_turn_takes_an_answer_only_behind_the_ids_it_was_given_behind(
    talks: Talks,
) -> None:
    """Else the ids would be those of no K/V that there is."""
    talk = talks("metaspace", "parted")
    chat = list(GREETING)
    for ids in ([letter("l"), letter("l")], [letter("o"), letter("r")]):
        first = talk.prepared(chat_input(chat))
        chat += [assistant(talk.answer(first, ids)), user("And?")]
    assert talk.prepared(chat_input(chat)).turn is TurnIds.RECORDED
    other = [user("Another beginning."), *chat[1:]]
    assert talk.prepared(chat_input(other)).turn is TurnIds.MISSED


def test_the_same_words_twice_in_a_chat_have_the_ids_of_each_time(talks: Talks) -> None:
    talk = talks("metaspace", "parted")
    chat = list(GREETING)
    for ids in ([letter("l"), letter("l")], [letter("ll")]):
        first = talk.prepared(chat_input(chat))
        assert talk.answer(first, ids) == "ll"
        chat += [assistant("ll"), user("And?")]
        spoken = ids_of(first) + ids
        assert ids_of(talk.prepared(chat_input(chat)))[: len(spoken)] == spoken


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> Callable[[], Talk]:
    tokenizer = tokenizer_of(smollm2_folder)
    return lambda: Talk.of(smollm2_folder, tokenizer)


usual = st.integers(0, 49151) | st.integers(0, 400) | st.sampled_from([33, 28, 14, 216, 198])


@settings(max_examples=150)
@given(turns=st.lists(st.lists(usual, min_size=1, max_size=20), min_size=1, max_size=4))
def test_the_real_models_next_turn_begins_with_all_that_was_generated(
    smollm2: Callable[[], Talk], turns: list[list[int]]
) -> None:
    talk, chat, spoken = smollm2(), list(GREETING), list[int]()
    for ids in turns:
        first = talk.prepared(chat_input(chat))
        assert ids_of(first)[: len(spoken)] == spoken
        chat.append(assistant(talk.answer(first, ids)))
        second = talk.prepared(chat_input([*chat, user("And?")]), range(len(chat) + 2))
        got, own = ids_of(second), talk.own(chat_input([*chat, user("And?")]))
        shown = _shown(talk, ids)
        if shown is None:
            # Which answer it was is told by its text; a client may have the same one twice.
            alike = any(one["content"].endswith(chat[-1]["content"]) for one in chat[:-1])
            assert second.turn is TurnIds.MISSED or alike
            return
        assert second.turn is not TurnIds.MISSED
        spoken = ids_of(first) + shown
        assert got[: len(spoken)] == spoken
        assert talk.spelled(got) == talk.spelled(own)
        assert (second.turn is TurnIds.EXACT) == (got == own)
        # The last boundaries lie behind the answer and behind the user's next words.
        heads = [talk.spelled(got[: one.num_tokens]) for one in second.boundaries[-2:]]
        assert [head.rpartition(b"<|im_start|>")[2] for head in heads] == [
            b"assistant\n" + talk.spelled(shown) + b"<|im_end|>\n",
            b"user\nAnd?<|im_end|>\n",
        ]
        chat.append(user("And?"))


def _shown(talk: Talk, ids: list[int]) -> list[int] | None:
    """The tokens that a client has the text of; None where they don't spell just that."""
    ended = next((i for i, one in enumerate(ids) if one in talk.tokenizer.eos_ids), len(ids))
    shown = ids[:ended]
    while shown and shown[-1] in talk.tokenizer.special_ids:
        shown.pop()
    try:
        text = talk.spelled(shown).decode()
    except UnicodeDecodeError:
        return None
    return shown if text and not talk.tokenizer.special_ids & set(shown) else None
