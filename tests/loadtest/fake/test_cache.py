"""The fake cache is finite, forgets leaves first, and tells all that was named."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadtest.fake.cache import FakeCache, Mark


def chain(path: str, size: int = 10, named: bool = True) -> list[Mark]:
    """A prompt of one piece per letter."""
    return [
        Mark(path[:end].encode(), size * end, f"#{path[:end]}".encode() if named else b"")
        for end in range(1, len(path) + 1)
    ]


def told(cache: FakeCache) -> dict[bytes, int]:
    """What somebody knows who heard every change from the beginning."""
    known: dict[bytes, int] = {}
    for change in cache.take_changes():
        if change.kind == "stored":
            known[change.name] = change.num_tokens
        else:
            del known[change.name]
    return known


def test_what_was_admitted_is_held() -> None:
    cache = FakeCache(1000)
    assert cache.admit(chain("abc")) == 0
    assert cache.admit(chain("abd")) == 20
    assert cache.admit(chain("abc")) == 30


def test_leaves_go_first_and_the_longest_unused_of_them() -> None:
    cache = FakeCache(50)
    cache.admit(chain("abc"))
    cache.admit(chain("ad"))
    cache.admit(chain("abc"))
    cache.admit(chain("xy"))
    assert cache.admit(chain("abc")) == 30
    assert cache.admit(chain("ad")) == 10


def test_a_piece_without_those_before_it_is_no_match() -> None:
    cache = FakeCache(20)
    cache.admit(chain("abcd"))
    assert cache.admit(chain("abcd")) == 20


def test_a_place_that_is_named_later_is_told_then() -> None:
    cache = FakeCache(1000)
    cache.admit(chain("ab", named=False))
    assert cache.take_changes() == []
    cache.admit(chain("abc"))
    assert told(cache) == {b"#a": 10, b"#ab": 20, b"#abc": 30}


@given(
    st.integers(10, 80), st.lists(st.tuples(st.text("ab", min_size=1, max_size=6), st.booleans()))
)
def test_what_it_told_is_what_it_holds_and_never_too_much(
    capacity: int, prompts: list[tuple[str, bool]]
) -> None:
    cache = FakeCache(capacity)
    for path, named in prompts:
        cache.admit(chain(path, named=named))
    assert told(cache) == dict(cache.snapshot())
    assert len(cache.snapshot()) * 10 <= capacity
