"""The least cost wins, and ties fall by work."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.cost import Candidate, Scale, cheapest, of_owners

SCALE = Scale(reuse_weight=8, crowd_tokens=125, work_weight=0.5, miss_share=0.1)

candidates = st.builds(
    Candidate,
    name=st.sampled_from("abcdef"),
    queued_tokens=st.integers(0, 10**6),
    counted_tokens=st.integers(0, 10**6),
    crowd=st.floats(0, 100),
    work=st.floats(0, 10**6),
    total_work=st.floats(0, 10**6),
)


def test_a_saved_token_is_worth_as_many_queued_ones_as_the_weight_says() -> None:
    holder = Candidate("holder", queued_tokens=799, counted_tokens=0)
    idle = Candidate("idle", queued_tokens=0, counted_tokens=100)
    assert cheapest([idle, holder], SCALE)[0] is holder
    busier = Candidate("busier", queued_tokens=801, counted_tokens=0)
    assert cheapest([idle, busier], SCALE)[0] is idle


def test_a_crowd_costs_and_shuts_nobody_out() -> None:
    crowded = Candidate("crowded", crowd=2, counted_tokens=0)
    assert cheapest([Candidate("x", counted_tokens=249), crowded], SCALE)[0].name == "x"
    assert cheapest([Candidate("x", counted_tokens=251), crowded], SCALE)[0].name == "crowded"


def test_ties_fall_by_work_and_never_by_name_or_place() -> None:
    few, many = Candidate("z", total_work=1), Candidate("a", total_work=2)
    assert cheapest([many, few], SCALE)[0] is few
    assert cheapest([few, many], SCALE)[0] is few


@given(st.lists(candidates, min_size=1, max_size=6), st.integers(0, 10**6))
def test_a_group_is_passed_over_only_where_it_cannot_win(
    members: list[Candidate], missing: int
) -> None:
    group = [Candidate(m.name, m.queued_tokens, 0, missing, m.crowd, m.work) for m in members]
    assert all(SCALE.cost(member) >= SCALE.floor(missing) for member in group)


def test_a_small_advantage_is_none() -> None:
    assert SCALE.is_miss(900, 1000, prompt_tokens=1000)
    assert not SCALE.is_miss(899, 1000, prompt_tokens=1000)
    assert SCALE.is_miss(1000, 1000, prompt_tokens=1000)


def test_of_two_owners_the_less_loaded_takes_it() -> None:
    first, second = Candidate("first", queued_tokens=10), Candidate("second", queued_tokens=5)
    assert of_owners([first, second], SCALE)[0] is second


def test_the_first_owner_takes_it_where_a_view_is_old_unless_it_has_a_crowd() -> None:
    first = Candidate("first", queued_tokens=10, is_stale=True)
    second = Candidate("second", queued_tokens=5)
    assert of_owners([first, second], SCALE)[0] is first
    crowded = Candidate("first", crowd=1, is_stale=True)
    assert of_owners([crowded, second], SCALE)[0] is second
