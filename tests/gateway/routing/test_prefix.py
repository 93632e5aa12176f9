"""Equal beginnings have equal digests and keys; tenants and models never share one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.request import Unit
from gateway.routing.prefix import (
    Chain,
    Overrides,
    Scope,
    chat_chain,
    text_chain,
    token_chain,
)
from gateway.routing.public import NONE_PUBLIC, PublicPrefixes

ACME = Scope("m", b"acme")
SYSTEM: dict[str, object] = {"role": "system", "content": "Be brief."}
DEVELOPER: dict[str, object] = {"role": "developer", "content": "Use metres."}
FUNCTION: dict[str, object] = {"name": "f", "parameters": {"a": 1, "b": 2}}
TOOL: dict[str, object] = {"type": "function", "function": FUNCTION}

messages_of_any_kind = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system"]), "content": st.text(max_size=9)}
    ),
    max_size=6,
)


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def packed(*tools: dict[str, object]) -> bytes:
    return json.dumps(tools).encode()


def common(first: Chain, second: Chain) -> int:
    """How many boundaries two chains share from the start."""
    pairs = zip(first.digests, second.digests, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min_len(first, second))


def min_len(first: Chain, second: Chain) -> int:
    return min(len(first.digests), len(second.digests))


@given(messages_of_any_kind, messages_of_any_kind)
def test_two_chats_share_the_digests_of_what_they_have_in_common_and_no_more(
    first: list[dict[str, object]], second: list[dict[str, object]]
) -> None:
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    one, other = chat_chain(ACME, first), chat_chain(ACME, second)
    assert common(one, other) == shared
    assert not set(one.digests[shared:]) & set(other.digests)


@given(messages_of_any_kind)
def test_what_a_chat_is_extended_by_leaves_its_digests(messages: list[dict[str, object]]) -> None:
    short = chat_chain(ACME, messages)
    long = chat_chain(ACME, [*messages, user("and")])
    assert long.digests[:-1] == short.digests
    assert long.sizes[:-1] == short.sizes


@given(messages_of_any_kind, messages_of_any_kind)
def test_the_key_depends_on_the_static_prefix_alone(
    first: list[dict[str, object]], second: list[dict[str, object]]
) -> None:
    one = chat_chain(ACME, [SYSTEM, user("x"), *first])
    other = chat_chain(ACME, [SYSTEM, user("y"), *second])
    assert one.key == other.key
    assert one.static_digest == other.static_digest


def test_a_timestamp_in_the_users_message_changes_no_key() -> None:
    keys = {
        chat_chain(ACME, [SYSTEM, user(f"It is {hour}:00")], packed(TOOL)).key for hour in range(24)
    }
    assert len(keys) == 1


def test_tenants_and_models_share_nothing() -> None:
    scopes = [ACME, Scope("m", b"other"), Scope("n", b"acme"), Scope("ma", b"cme")]
    makers: tuple[Callable[[Scope], Chain], ...] = (
        lambda scope: chat_chain(scope, [SYSTEM, user("Hi")]),
        lambda scope: text_chain(scope, "text" * 10, 10),
        lambda scope: token_chain(scope, b"\1\0\0\0" * 30, 10),
        lambda scope: chat_chain(scope, [SYSTEM], overrides=Overrides(cache_key="k")),
    )
    for make in makers:
        chains = [make(scope) for scope in scopes]
        named = [name for chain in chains for name in {chain.key, *chain.digests}]
        assert len(set(named)) == len(named)


def test_borders_between_messages_count() -> None:
    assert chat_chain(ACME, [user("a"), user("b")]).digests[-1] not in (
        chat_chain(ACME, [user("ab")]).digests[-1],
        chat_chain(ACME, [user("a"), user("b"), user("")]).digests[-1],
    )


def test_tools_count_as_the_worker_is_told_them() -> None:
    other = {**TOOL, "type": "other"}
    one = chat_chain(ACME, [SYSTEM], packed(TOOL, other))
    assert one == chat_chain(ACME, [SYSTEM], packed(TOOL, other))
    assert one != chat_chain(ACME, [SYSTEM], packed(other, TOOL))


def test_the_order_of_a_messages_keys_does_not_matter() -> None:
    turned = dict(reversed(SYSTEM.items()))
    assert chat_chain(ACME, [SYSTEM]) == chat_chain(ACME, [turned])


def test_the_static_prefix_is_the_tools_and_the_leading_system_and_developer_messages() -> None:
    led = chat_chain(ACME, [SYSTEM, DEVELOPER, user("Hi"), SYSTEM])
    assert (led.static_depth, led.places[led.static_depth - 1]) == (2, 2)
    tooled = chat_chain(ACME, [user("Hi")], packed(TOOL))
    assert (tooled.static_depth, tooled.places) == (1, (0, 1))
    both = chat_chain(ACME, [SYSTEM, user("Hi")], packed(TOOL))
    assert (both.static_depth, both.places) == (2, (0, 1, 2))


def test_without_a_static_part_the_first_message_names_the_conversation() -> None:
    first = chat_chain(ACME, [user("Hi")])
    later = chat_chain(ACME, [user("Hi"), {"role": "assistant", "content": "Yes?"}, user("Go")])
    assert first.key == later.key
    assert first.static_digest == later.static_digest == later.digests[0]
    assert first.key != chat_chain(ACME, [user("Ho")]).key


def test_overrides_replace_the_key_and_leave_the_boundaries() -> None:
    plain = chat_chain(ACME, [SYSTEM])
    levels = [Overrides("p", "d", "c"), Overrides(None, "d", "c"), Overrides(None, None, "c")]
    keys = [chat_chain(ACME, [SYSTEM], overrides=level).key for level in levels]
    assert len({plain.key, *keys}) == 4
    for level, key in zip(levels, keys, strict=True):
        other = chat_chain(ACME, [DEVELOPER], overrides=level)
        assert other.key == key
        assert not set(other.digests) & set(plain.digests)


def test_template_variables_move_the_boundaries_not_the_key() -> None:
    plain, varied = chat_chain(ACME, [SYSTEM]), chat_chain(ACME, [SYSTEM], b"", {"think": False})
    assert plain.key == varied.key
    assert plain.digests != varied.digests


def test_a_text_has_a_boundary_every_so_many_characters_and_at_its_end() -> None:
    chain = text_chain(ACME, "äbcdefghij", 4)
    assert chain.unit is Unit.CHARS
    assert chain.places == (4, 8, 10)
    assert chain.sizes == (5, 9, 11)
    assert common(chain, text_chain(ACME, "äbcdefghXY", 4)) == 2
    assert text_chain(ACME, "abcdX", 4).key == text_chain(ACME, "abcdY", 4).key
    assert text_chain(ACME, "abcX", 4).key != text_chain(ACME, "abcY", 4).key


def test_token_ids_have_a_boundary_every_so_many_and_at_their_end() -> None:
    chain = token_chain(ACME, b"aaaabbbbcccc", 2)
    assert chain.unit is Unit.TOKENS
    assert chain.places == (2, 3)
    assert chain.sizes == (8, 12)
    assert common(chain, token_chain(ACME, b"aaaabbbbdddd", 2)) == 1


@pytest.mark.parametrize("make", [text_chain, lambda scope, _, lead: chat_chain(scope, [])])
def test_an_empty_prompt_has_a_key_and_no_boundary(make: Callable[..., Chain]) -> None:
    chain = make(ACME, "", 4)
    assert (chain.digests, chain.num_bytes, chain.static_depth) == ((), 0, 0)
    assert chain.bytes_after(0) == 0
    assert chain.boundaries(24) == ()


def turns(count: int) -> Chain:
    return chat_chain(ACME, [SYSTEM, *(user(str(number)) for number in range(count - 1))])


def test_few_boundaries_are_all_named() -> None:
    assert turns(5).depths(8) == [1, 2, 3, 4, 5]
    assert [one.place for one in turns(3).boundaries(8)] == [1, 2, 3]


def test_of_many_the_static_one_the_last_ones_and_every_so_many_are_named() -> None:
    assert turns(40).depths(8) == [1, 16, 32, 37, 38, 39, 40]
    assert turns(41).depths(8) == [1, 16, 32, 38, 39, 40, 41]
    assert turns(40).depths(1) == [40]


@given(st.integers(1, 300), st.integers(1, 30))
def test_the_end_is_always_named_and_never_more_than_allowed(count: int, limit: int) -> None:
    depths = turns(count).depths(limit)
    assert depths[-1] == count
    assert len(depths) <= limit
    assert depths == sorted(set(depths))


def test_what_lies_there_already_is_not_named_again() -> None:
    chain = turns(40)
    assert chain.depths(8, chain.digests[:36]) == [37, 38, 39, 40]
    assert chain.depths(8, chain.digests) == []


def test_bytes_are_counted_behind_every_boundary() -> None:
    chain = turns(3)
    assert chain.bytes_after(0) == chain.num_bytes == sum(sizes(chain))
    assert [chain.bytes_after(depth) for depth in (1, 2, 3)] == [
        sum(sizes(chain)[depth:]) for depth in (1, 2, 3)
    ]


def sizes(chain: Chain) -> Sequence[int]:
    return [b - a for a, b in zip((0, *chain.sizes), chain.sizes, strict=False)]


def test_digests_are_the_same_in_every_process() -> None:
    chain = chat_chain(ACME, [SYSTEM, user("Hi")], packed(TOOL))
    assert chain.key.hex() == "f07f772592a42c46f16384b51260d903"
    assert chain.digests[-1].hex() == "a775eafa7e3325bafc050bce918a0cd9"


OTHER = Scope("m", b"other")
PUBLIC = PublicPrefixes([[SYSTEM], [SYSTEM, DEVELOPER]])


def test_what_is_public_has_one_name_for_all_and_the_rest_one_for_each() -> None:
    messages = [SYSTEM, user("Hi"), user("there")]
    chains = [chat_chain(scope, messages, num_public=1) for scope in (ACME, OTHER)]
    first, second = chains
    assert common(first, second) == 1
    assert not set(first.digests[1:]) & set(second.digests[1:])
    assert first.key == second.key
    private = chat_chain(ACME, messages)
    assert not set(private.digests) & set(first.digests)
    assert private.key != first.key


def test_a_static_prefix_that_is_public_in_part_groups_its_tenant_alone() -> None:
    messages = [SYSTEM, DEVELOPER, user("Hi")]
    first, second = (chat_chain(scope, messages, num_public=1) for scope in (ACME, OTHER))
    assert common(first, second) == 1
    assert first.key != second.key


def test_only_what_is_declared_to_the_letter_is_public() -> None:
    assert PUBLIC.length_in([SYSTEM, user("Hi")]) == 1
    assert PUBLIC.length_in([SYSTEM, DEVELOPER, user("Hi")]) == 2
    assert PUBLIC.length_in([dict(reversed(SYSTEM.items())), user("Hi")]) == 1
    for messages in (
        [],
        [user("Hi")],
        [DEVELOPER, SYSTEM],
        [{**SYSTEM, "name": "x"}, user("Hi")],
        [{**SYSTEM, "content": "Be brief"}, user("Hi")],
        [{"role": "user", "content": SYSTEM["content"]}],
    ):
        assert PUBLIC.length_in(messages) == 0
    assert NONE_PUBLIC.length_in([SYSTEM]) == 0
