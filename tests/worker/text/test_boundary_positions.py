"""Many boundaries at once: whatever a template does, the tokens in front of each one stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.loaded import tokenizer_of
from worker.errors import InvalidRequest
from worker.text.chat import ChatTemplate
from worker.text.template import Template
from worker.text.tokenizer import Tokenizer

Message = dict[str, Any]

TURN = "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
GENERATION = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
TEMPLATES = {
    "plain turns": "{% for m in messages %}" + TURN + "{% endfor %}" + GENERATION,
    # System messages come first, wherever they stand.
    "hoisted": "{% for m in messages if m.role == 'system' %}" + TURN + "{% endfor %}"
    "{% for m in messages if m.role != 'system' %}" + TURN + "{% endfor %}" + GENERATION,
    # What an assistant thought is left out once a user has spoken again.
    "thoughts": "{% set ns = namespace(last=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
    "{% endfor %}"
    "{% for m in messages %}{% if m.thinking and loop.index0 > ns.last %}"
    "{{ '<|im_start|>think\\n' + m.thinking }}{% endif %}" + TURN + "{% endfor %}" + GENERATION,
    # Neighbours of one role share a turn.
    "joined": "{% for m in messages %}"
    "{% if not loop.previtem or loop.previtem.role != m.role %}"
    "{{ '<|im_start|>' + m.role + '\\n' }}{% endif %}{{ m.content }}"
    "{% if not loop.nextitem or loop.nextitem.role != m.role %}{{ '<|im_end|>\\n' }}{% endif %}"
    "{% endfor %}" + GENERATION,
    # The last message is written otherwise than those before it.
    "last": "{% for m in messages %}{% if loop.last %}{{ '<|im_start|>now' }}{% endif %}"
    + TURN
    + "{% endfor %}"
    + GENERATION,
    # Users and assistants take turns, and nobody else speaks.
    "strict": "{% for m in messages %}"
    "{% if m.role != ['user', 'assistant'][loop.index0 % 2] %}{{ raise_exception('no') }}"
    "{% endif %}" + TURN + "{% endfor %}" + GENERATION,
    # No special token stands between the messages.
    "bare": "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}",
    # Says how many messages there are.
    "counted": "{{ messages | length }}{% for m in messages %}" + TURN + "{% endfor %}",
}


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


def with_template(tokenizer: Tokenizer, name: str) -> ChatTemplate:
    return ChatTemplate(Template(TEMPLATES[name], TEMPLATES[name], {}), tokenizer)


turns = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "user", "assistant", "tool", "system"]),
        "content": st.sampled_from(["s", "so", "\n1", "", " a b", "Hello there", "<|im_end|>"]),
    },
    optional={"thinking": st.sampled_from(["Hm.", "s"])},
)


@settings(max_examples=60)
@pytest.mark.parametrize("name", TEMPLATES)
@given(
    chat=st.lists(turns, min_size=1, max_size=9),
    other=st.lists(turns, max_size=3),
    alternate=st.booleans(),
)
def test_tokens_before_every_boundary_stay_whatever_follows(
    tokenizer: Tokenizer, name: str, chat: list[Message], other: list[Message], alternate: bool
) -> None:
    template = with_template(tokenizer, name)
    if alternate or name == "strict":
        chat = [{**m, "role": ("user", "assistant")[i % 2]} for i, m in enumerate(chat)]
    counts = list(range(len(chat) + 1))
    prompt = template.encode(chat)
    positions = template.boundary_positions(chat, (), None, counts, prompt)
    assert positions == sorted(positions)
    for k, position in zip(counts, positions, strict=True):
        for ends in ([], other[:1], other):
            try:
                others = template.encode(chat[:k] + ends).ids
            except InvalidRequest:  # the template does not allow it, or nothing is left
                continue
            assert others[:position] == prompt.ids[:position], f"after {k} messages"


@pytest.mark.parametrize("name", ["plain turns", "thoughts", "joined"])
def test_many_boundaries_at_once_lie_where_each_by_itself_lies(
    tokenizer: Tokenizer, name: str
) -> None:
    roles = ["system", *["user", "assistant", "tool"] * 4]
    chat = [{"role": role, "content": f"{role} {i}"} for i, role in enumerate(roles)]
    counts = list(range(1, len(chat) + 1))
    template = with_template(tokenizer, name)
    prompt = template.encode(chat)
    together = template.boundary_positions(chat, (), None, counts, prompt)
    assert len(set(together)) == len(counts)
    for k, position in zip(counts, together, strict=True):
        [alone] = with_template(tokenizer, name).boundary_positions(chat, (), None, [k], prompt)
        assert position == alone


def test_a_tool_that_answers_after_another_joins_it_where_the_template_says_so(
    tokenizer: Tokenizer,
) -> None:
    template = with_template(tokenizer, "joined")
    chat = [{"role": "user", "content": "Go."}, {"role": "tool", "content": "one"}]
    prompt = template.encode(chat)
    [end] = template.boundary_positions(chat, (), None, [2], prompt)
    text = b"".join(map(tokenizer.token_bytes, prompt.ids[:end])).decode()
    assert text == "<|im_start|>user\nGo.<|im_end|>\n<|im_start|>"


def test_only_the_last_of_many_new_boundaries_is_rendered_in_every_way(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = with_template(tokenizer, "plain turns")
    chat = [{"role": ("user", "assistant")[i % 2], "content": f"It is {i}."} for i in range(60)]
    prompt = template.encode(chat)
    rendered, render = [], Template.render

    def counted(self: Template, messages: Any, *rest: Any) -> str:
        rendered.append(len(messages))
        return render(self, messages, *rest)

    monkeypatch.setattr(Template, "render", counted)
    first = template.boundary_positions(chat, (), None, list(range(37, 61)), prompt)
    # Nothing, a user and, behind an assistant, one more of them.
    assert len(rendered) <= 14 + 23 * 3
    rendered.clear()
    assert template.boundary_positions(chat, (), None, list(range(37, 61)), prompt) == first
    assert not rendered
