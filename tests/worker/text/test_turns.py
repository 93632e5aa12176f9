from __future__ import annotations

import sys
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.text.turns import ENTRY_BYTES, MAX_TRIES, Place, Recall, Said, TurnMemory

HERE = Place(b"a", b"x" * 16)


def said(text: str, *ids: int) -> Said:
    return Said(text, array("i", ids))


def test_the_longest_answer_that_a_text_begins_with_is_found() -> None:
    memory = TurnMemory(1 << 20)
    for text in ("He", "Hello", "Hello, you", "Help", "Z"):
        memory.put(HERE, said(text))
    for text, found in [
        ("Hello", "Hello"),
        ("Hello, w", "Hello"),
        ("Hello, you there", "Hello, you"),
        ("Hex", "He"),
    ]:
        got = memory.find(HERE, text)
        assert got is not None
        assert got.text == found
    assert memory.find(HERE, "H") is None
    assert memory.find(HERE, "") is None
    assert memory.find(HERE, "A") is None


words = st.text(alphabet="ab", min_size=1, max_size=4)
places = st.sampled_from([HERE, Place(b"b", HERE.behind), Place(b"a", None), Place(b"a", b"")])


@given(
    puts=st.lists(st.tuples(places, words)),
    asked=st.lists(st.tuples(places, words)),
    room=st.integers(1, 12),
)
def test_it_finds_what_a_list_of_the_last_used_finds(
    puts: list[tuple[Place, str]], asked: list[tuple[Place, str]], room: int
) -> None:
    size = said("aaaa").num_bytes
    memory, model = TurnMemory(room * size), list[tuple[Place, str]]()
    for number in range(max(len(puts), len(asked))):
        for place, text in puts[number : number + 1]:
            memory.put(place, said(text))
            model = [one for one in model if one != (place, text)] + [(place, text)]
            while sum(said(one).num_bytes for _, one in model) > room * size:
                del model[0]
        for place, text in asked[number : number + 1]:
            fit = [one for here, one in model if here == place and text.startswith(one)]
            found = memory.find(place, text)
            assert (found and found.text) == max(fit, key=len, default=None)
            if found:
                model.remove((place, found.text))
                model.append((place, found.text))
        assert memory.num_bytes == sum(said(one).num_bytes for _, one in model)
        kept = [(place, text) for place, texts in memory._texts.items() for text in texts or [""]]
        assert sorted(kept, key=repr) == sorted(model, key=repr)
        for namespace in (b"a", b"b"):
            known = any(place.namespace == namespace for place, _ in model)
            assert memory.knows(namespace) == known


def test_its_weight_stays_within_the_limit_whatever_comes() -> None:
    memory = TurnMemory(10_000)
    for number in range(500):
        memory.put(Place(b"%d" % (number % 3), None), said("x" * number, *range(number % 50)))
        assert memory.num_bytes <= 10_000
    assert memory.num_bytes > 8_000
    memory.put(HERE, said("x" * 20_000))
    assert memory.find(HERE, "x" * 20_000) is None


@pytest.mark.parametrize("letter", ["a", "é", "日", "𝄞"])
def test_an_answer_weighs_what_its_text_and_its_ids_take(letter: str) -> None:
    for num_chars, num_ids in ((1, 3000), (3000, 1), (3000, 3000)):
        one = said(letter * num_chars, *[7] * num_ids)
        assert one.num_bytes >= sys.getsizeof(one.text) + one.ids.buffer_info()[1] * 4
        assert one.num_bytes <= sys.getsizeof(one.text) + sys.getsizeof(one.ids) + ENTRY_BYTES


def test_a_request_finds_at_each_place_what_was_said_there() -> None:
    memory = TurnMemory(1 << 20)
    for behind, number in ((None, 1), (b"x", 2), (b"y", 3)):
        memory.put(Place(b"a", behind), said("Yes", number))
        memory.put(Place(b"b", behind), said("Yes", number + 10))
    recall = Recall(memory, b"a")
    for behind, number in ((b"y", 3), (None, 1), (b"x", 2), (b"y", 3)):
        found = recall.find(behind, "Yes.")
        assert found is not None
        assert found.ids.tolist() == [number]
    assert recall.find(b"z", "Yes.") is None


def test_what_a_request_has_found_stays_whatever_comes_meanwhile() -> None:
    """Its boundaries are looked for later, in the ids that its prompt was given."""
    memory = TurnMemory(said("No").num_bytes + 100)
    memory.put(HERE, said("Yes", 1))
    recall = Recall(memory, HERE.namespace)
    first = recall.find(HERE.behind, "Yes.")
    assert first is not None
    assert recall.find(HERE.behind, "No.") is None
    memory.put(HERE, said("No", 2))
    assert memory.find(HERE, "Yes.") is None
    assert recall.find(HERE.behind, "Yes.") is first
    assert recall.find(HERE.behind, "No.") is None
    assert Recall(memory, HERE.namespace).find(HERE.behind, "No.") is not None


def test_of_the_same_words_in_other_ids_the_first_stay() -> None:
    memory = TurnMemory(1 << 20)
    memory.put(HERE, said("Yes", 1, 2))
    memory.put(HERE, said("Yes", 3))
    found = memory.find(HERE, "Yes")
    assert found is not None
    assert found.ids.tolist() == [1, 2]


@pytest.mark.parametrize("max_bytes", [0, ENTRY_BYTES])
def test_a_memory_without_room_keeps_nothing(max_bytes: int) -> None:
    memory = TurnMemory(max_bytes)
    memory.put(HERE, said("Yes", 1))
    assert not memory.knows(b"a")
    assert memory.num_bytes == 0
    assert memory.is_on == (max_bytes > 0)


@pytest.mark.parametrize(("num_alike", "found"), [(MAX_TRIES - 1, True), (500, False)])
def test_a_search_among_answers_that_all_begin_alike_gives_up_and_misses(
    num_alike: int, found: bool
) -> None:
    """What a tenant can make slow is bounded: a miss costs tokens to compute, and no more."""
    memory = TurnMemory(1 << 20)
    memory.put(HERE, said("a"))
    for number in range(1, num_alike + 1):
        memory.put(HERE, said("a" * number + "A"))
    assert bool(memory.find(HERE, "a" * 1000)) == found
