"""Equal beginnings have equal keys; tenants and models never share one."""

from __future__ import annotations

import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from gateway.request import Boundary
from gateway.routing.prefix import (
    Overrides,
    Scope,
    StaticPrefix,
    chat_prefix,
    text_prefix,
    token_prefix,
)

ACME = Scope("m", b"acme")
NONE = Overrides()
SYSTEM = {"role": "system", "content": "Be brief."}
DEVELOPER = {"role": "developer", "content": "Use metres."}
FUNCTION: dict[str, object] = {"name": "f", "parameters": {"a": 1, "b": 2}}
TOOL: dict[str, object] = {"type": "function", "function": FUNCTION}

messages_after = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"]), "content": st.text(max_size=9)}
    ),
    max_size=4,
)


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def boundary(prefix: StaticPrefix) -> Boundary:
    assert prefix.boundary is not None
    return prefix.boundary


@given(messages_after, messages_after)
def test_the_key_depends_on_the_static_prefix_alone(
    first: list[dict[str, str]], second: list[dict[str, str]]
) -> None:
    assert chat_prefix(ACME, [SYSTEM, *first]) == chat_prefix(ACME, [SYSTEM, *second])


def test_a_timestamp_in_the_users_message_changes_nothing() -> None:
    keys = {chat_prefix(ACME, [SYSTEM, user(f"It is {hour}:00")], [TOOL]).key for hour in range(24)}
    assert len(keys) == 1


def test_tenants_and_models_differ() -> None:
    scopes = [ACME, Scope("m", b"other"), Scope("n", b"acme"), Scope("ma", b"cme")]
    makers: tuple[Callable[[Scope], bytes], ...] = (
        lambda scope: chat_prefix(scope, [SYSTEM]).key,
        lambda scope: boundary(chat_prefix(scope, [SYSTEM])).digest,
        lambda scope: text_prefix(scope, "text", 10, NONE).key,
        lambda scope: token_prefix(scope, b"\1\0\0\0", 10, NONE).key,
        lambda scope: chat_prefix(scope, [SYSTEM], overrides=Overrides(cache_key="k")).key,
    )
    for make in makers:
        assert len({make(scope) for scope in scopes}) == len(scopes)


def test_the_order_of_json_keys_does_not_matter_and_the_order_of_tools_does() -> None:
    turned = json.loads(json.dumps(TOOL, sort_keys=True)[::1])
    turned["function"] = dict(reversed(FUNCTION.items()))
    assert chat_prefix(ACME, [SYSTEM], [TOOL]) == chat_prefix(ACME, [SYSTEM], [turned])
    other = {**TOOL, "type": "other"}
    assert chat_prefix(ACME, [SYSTEM], [TOOL, other]) != chat_prefix(ACME, [SYSTEM], [other, TOOL])


def test_the_boundary_lies_after_the_leading_system_and_developer_messages() -> None:
    lead = chat_prefix(ACME, [SYSTEM, DEVELOPER, user("Hi"), SYSTEM])
    assert boundary(lead).num_messages == 2
    assert boundary(chat_prefix(ACME, [user("Hi")], [TOOL])).num_messages == 0


def test_without_a_static_part_the_first_message_names_the_conversation() -> None:
    first = chat_prefix(ACME, [user("Hi")])
    later = chat_prefix(ACME, [user("Hi"), {"role": "assistant", "content": "Yes?"}, user("Go")])
    assert first == later
    assert boundary(first).num_messages == 1
    assert first.key != chat_prefix(ACME, [user("Ho")]).key


def test_overrides_replace_the_key_and_leave_the_boundary() -> None:
    plain = chat_prefix(ACME, [SYSTEM])
    levels = [
        Overrides("p", "d", "c"),
        Overrides(None, "d", "c"),
        Overrides(None, None, "c"),
    ]
    keys = [chat_prefix(ACME, [SYSTEM], overrides=level).key for level in levels]
    assert len({plain.key, *keys}) == 4
    for level, key in zip(levels, keys, strict=True):
        other = chat_prefix(ACME, [DEVELOPER], overrides=level)
        assert other.key == key
        assert other.boundary != plain.boundary


def test_template_variables_move_the_boundary_not_the_route() -> None:
    plain, varied = chat_prefix(ACME, [SYSTEM]), chat_prefix(ACME, [SYSTEM], (), {"think": False})
    assert plain.key == varied.key
    assert boundary(plain).digest != boundary(varied).digest


def test_only_the_lead_of_a_plain_prompt_counts() -> None:
    assert text_prefix(ACME, "abcdX", 4, NONE) == text_prefix(ACME, "abcdY", 4, NONE)
    assert text_prefix(ACME, "abcX", 4, NONE) != text_prefix(ACME, "abcY", 4, NONE)
    assert token_prefix(ACME, b"aaaabbbb", 1, NONE) == token_prefix(ACME, b"aaaacccc", 1, NONE)
    assert token_prefix(ACME, b"aaaabbbb", 2, NONE) != token_prefix(ACME, b"aaaacccc", 2, NONE)


def test_keys_are_the_same_in_every_process() -> None:
    assert chat_prefix(ACME, [SYSTEM]).key.hex() == "84477d56d96e7b0e768d35e273df88f7"
