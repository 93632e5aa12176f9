from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.errors import InvalidRequest
from worker.text.stops import Released, StopMatcher


def searched(text: str, stops: tuple[str, ...], include: bool) -> tuple[str, str | None]:
    """The plain search of the whole text: the earliest match, the longest there."""
    found = [(text.find(stop), -len(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    place, _, stop = min(found)
    return text[: place + len(stop) if include else place], stop


def streamed(matcher: StopMatcher, pieces: list[str]) -> tuple[str, str | None]:
    """The released text, and what stopped it."""
    text, stop = "", None
    for released in [*map(matcher.push, pieces), matcher.flush()]:
        assert stop is None or released == Released("")
        text += released.text
        stop = stop or released.stop
    return text, stop


@given(
    pieces=st.lists(st.text(alphabet="abé", max_size=4), max_size=12),
    stops=st.lists(st.text(alphabet="abé", min_size=1, max_size=5), max_size=4),
    include=st.booleans(),
)
def test_any_split_gives_what_a_search_of_the_whole_gives(
    pieces: list[str], stops: list[str], include: bool
) -> None:
    matcher = StopMatcher(tuple(stops), include)
    assert streamed(matcher, pieces) == searched("".join(pieces), tuple(stops), include)


@given(
    pieces=st.lists(st.text(alphabet="ab", max_size=3), max_size=12),
    stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=5), min_size=1, max_size=3),
)
def test_no_more_is_held_back_than_could_begin_a_stop(pieces: list[str], stops: list[str]) -> None:
    matcher = StopMatcher(tuple(stops), include=False)
    pushed = released = ""
    for piece in pieces:
        pushed += piece
        step = matcher.push(piece)
        released += step.text
        if step.stop is not None:
            break
        held = pushed[len(released) :]
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)


def test_a_stop_over_several_pieces_is_found() -> None:
    matcher = StopMatcher(("END",), include=False)
    assert [matcher.push(piece) for piece in ("a E", "N", "D b")] == [
        Released("a "),
        Released(""),
        Released("", "END"),
    ]
    assert matcher.push("more") == Released("")


def test_a_begun_stop_that_breaks_off_is_released() -> None:
    matcher = StopMatcher(("END",), include=False)
    assert matcher.push("EN") == Released("")
    assert matcher.push("EX") == Released("ENEX")


def test_of_two_stops_at_one_place_the_longest_wins() -> None:
    matcher = StopMatcher(("a", "ab"), include=True)
    assert matcher.push("xa") == Released("x")
    assert matcher.push("b") == Released("ab", "ab")


def test_of_two_stops_in_one_piece_the_earlier_wins() -> None:
    assert StopMatcher(("bb", "a"), include=False).push("xabb!") == Released("x", "a")


def test_the_shorter_stop_wins_once_the_longer_is_ruled_out() -> None:
    matcher = StopMatcher(("a", "ab"), include=False)
    assert matcher.push("xa") == Released("x")
    assert matcher.push("c") == Released("", "a")


def test_what_is_held_at_the_end_is_searched_too() -> None:
    matcher = StopMatcher(("a", "ab"), include=False)
    assert matcher.push("xa") == Released("x")
    assert matcher.flush() == Released("", "a")


def test_without_stops_text_passes_at_once() -> None:
    assert StopMatcher((), include=False).push("text") == Released("text")


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="must not be empty"):
        StopMatcher(("a", ""), include=False)
