from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from tests.worker.loaded import tokenizer_of
from tests.worker.text.vocabularies import sentencepiece, write_folder
from worker.errors import ChatUnsupported, InvalidRequest
from worker.text.chat import ChatTemplate
from worker.text.template import Template
from worker.text.tokenizer import Tokenizer

Message = dict[str, Any]

CHATS: list[list[Message]] = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief.\n"}, {"role": "user", "content": "1234567?"}],
    [
        {"role": "system", "content": ""},
        {"role": "user", "content": "  spaces \n\n"},
        {"role": "assistant", "content": "naïve 😀"},
        {"role": "user", "content": "a <b> | c <| d"},
    ],
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "<b> & 'é'"}}]
TOOL_TEMPLATE = """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'function' %}{{ raise_exception('No functions here.') }}{% endif %}
    {%- if loop.index > 50 %}{% break %}{% endif %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- generation %}{{ message.content }}{% endgeneration %}
    {%- for call in message.tool_calls or [] %}
        {{- call.function.name }} {{ call.function.arguments | tojson }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}{{ 'no thoughts' }}{% endif %}
{%- endif %}
"""
MARKED_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}go  <|left|>{{ m['role'] }}: {{ m['content'] }} "
    "<|right|>\n"
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %} ANSWER:{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer(smollm2_folder: Path) -> Tokenizer:
    return tokenizer_of(smollm2_folder)


@pytest.fixture(scope="module")
def chat(smollm2_folder: Path, tokenizer: Tokenizer) -> ChatTemplate:
    return ChatTemplate.load(smollm2_folder, tokenizer)


@pytest.fixture(scope="module")
def reference(smollm2_folder: Path) -> PreTrainedTokenizerFast:
    settings = json.loads((smollm2_folder / "tokenizer_config.json").read_text())
    return PreTrainedTokenizerFast(
        tokenizer_file=str(smollm2_folder / "tokenizer.json"),
        chat_template=settings["chat_template"],
    )


def with_template(tokenizer: Tokenizer, source: str) -> ChatTemplate:
    return ChatTemplate(Template(source, source, {}), tokenizer)


def applied(
    reference: PreTrainedTokenizerFast, messages: list[Message], **further: Any
) -> list[int]:
    ids = reference.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=False, **further
    )
    return list(ids)


@pytest.mark.parametrize("messages", CHATS)
def test_ids_are_those_of_transformers(
    chat: ChatTemplate, reference: PreTrainedTokenizerFast, messages: list[Message]
) -> None:
    assert chat.encode(messages).ids == applied(reference, messages)


texts = st.text(max_size=20) | st.text(alphabet="<|imend_>\n 1aé", max_size=20)
turns = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts})
chats = st.lists(turns, min_size=1, max_size=4)


@given(messages=chats.filter(lambda chat: not any("<|" in m["content"] for m in chat)))
def test_ids_of_any_harmless_chat_are_those_of_transformers(
    chat: ChatTemplate, reference: PreTrainedTokenizerFast, messages: list[Message]
) -> None:
    assert chat.encode(messages).ids == applied(reference, messages)


@pytest.mark.parametrize(
    "further", [{}, {"tools": TOOLS}, {"enable_thinking": False}, {"tools": TOOLS, "unused": 1}]
)
def test_tools_and_variables_render_as_in_transformers(
    tokenizer: Tokenizer, reference: PreTrainedTokenizerFast, further: dict[str, Any]
) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {"x": "é<"}}}
    messages: list[Message] = [
        {"role": "user", "content": "Call f."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "42"},
    ]
    expected = applied(reference, messages, chat_template=TOOL_TEMPLATE, **further)
    tools = further.pop("tools", [])
    sent = json.loads(json.dumps(messages))
    sent[1]["content"] = None
    sent[1]["tool_calls"][0]["function"]["arguments"] = '{"x": "é<"}'
    chat = with_template(tokenizer, TOOL_TEMPLATE)
    assert chat.encode(sent, tools, further).ids == expected


@pytest.mark.parametrize("metaspace", [True, False])
def test_sentencepiece_chats_are_those_of_transformers(tmp_path: Path, metaspace: bool) -> None:
    library = sentencepiece(metaspace=metaspace)
    folder = write_folder(tmp_path, library, MARKED_TEMPLATE)
    chat = ChatTemplate.load(folder, Tokenizer.load(folder))
    reference = PreTrainedTokenizerFast(
        tokenizer_object=library, chat_template=MARKED_TEMPLATE, bos_token="<s>"
    )
    for messages in CHATS:
        assert chat.encode(messages).ids == applied(reference, messages)
        assert chat.encode(messages).ids.count(1) == 1


@given(
    messages=st.lists(
        st.fixed_dictionaries(
            {
                "role": st.sampled_from(["user", "assistant"]),
                "content": st.lists(
                    st.sampled_from(
                        ["<|im_end|>", "<|im_", "end|>", "<", "|>", "\ufdd0", "x", "\n"]
                    )
                ).map("".join),
            }
        ),
        min_size=1,
        max_size=4,
    )
)
def test_no_text_of_a_client_becomes_a_special_token(
    chat: ChatTemplate, tokenizer: Tokenizer, messages: list[Message]
) -> None:
    ids = chat.encode(messages).ids
    # The template writes a system message of its own and the start of an answer.
    assert ids.count(1) == len(messages) + 2
    assert ids.count(2) == len(messages) + 1
    text = b"".join(map(tokenizer.token_bytes, ids)).decode()
    assert all(message["content"] in text for message in messages)


def test_strings_that_the_template_joins_make_no_special_token(tokenizer: Tokenizer) -> None:
    chat = with_template(tokenizer, PLAIN_TEMPLATE)
    halves = [{"role": "user", "content": "<|im_"}, {"role": "user", "content": "end|>"}]
    assert not tokenizer.special_ids & set(chat.encode(halves).ids)


def test_special_tokens_in_tools_and_variables_stay_text(tokenizer: Tokenizer) -> None:
    source = "{{ tools | tojson(ensure_ascii=True) }}{{ extra }}"
    chat = with_template(tokenizer, source)
    tools = [{"name": "<|im_end|>", "properties": {"<|im_start|>": 1}}]
    ids = chat.encode([{"role": "user", "content": ""}], tools, {"extra": "<|im_end|>"}).ids
    assert not tokenizer.special_ids & set(ids)
    text = b"".join(map(tokenizer.token_bytes, ids)).decode()
    assert text == json.dumps(tools) + "<|im_end|>"


def test_text_parts_are_joined_where_the_template_knows_no_parts(chat: ChatTemplate) -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    assert chat.encode([{"role": "user", "content": parts}]) == chat.encode(
        [{"role": "user", "content": "Hello"}]
    )


def test_text_parts_are_handed_on_where_the_template_knows_them(tokenizer: Tokenizer) -> None:
    source = "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    ids = with_template(tokenizer, source).encode([{"role": "user", "content": parts}]).ids
    assert b"".join(map(tokenizer.token_bytes, ids)) == b"[a][b]"


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([], "at least one message"),
        ("hi", "must be a list"),
        ([{"content": "x"}], r"messages\[0\] must be an object with a role"),
        ([{"role": "endoftext", "content": "x"}], "with a role out of assistant, developer"),
        ([{"role": "user", "content": 1}], r"messages\[0\].content must be text"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "must be a text part"),
        ([{"role": "user"}], "template refuses these messages: .*'content'"),
        ([{"role": "user", "content": "\ud800"}], "half a surrogate pair"),
    ],
)
def test_wrong_messages_are_refused_by_name(
    chat: ChatTemplate, messages: Any, sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence) as caught:
        chat.encode(messages)
    assert caught.value.param == "messages"


def test_what_a_template_raises_reaches_the_client(tokenizer: Tokenizer) -> None:
    chat = with_template(tokenizer, TOOL_TEMPLATE)
    with pytest.raises(InvalidRequest, match="refuses these messages: No functions here"):
        chat.encode([{"role": "function", "content": "x"}])


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt"])
def test_variables_cannot_replace_what_is_ours(chat: ChatTemplate, name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"must not set {name}") as caught:
        chat.encode([{"role": "user", "content": "x"}], (), {name: []})
    assert caught.value.param == "chat_template_kwargs"


def test_a_template_cannot_reach_the_inside_of_python(tokenizer: Tokenizer) -> None:
    chat = with_template(tokenizer, "{{ messages.__class__.__mro__ }}")
    with pytest.raises(InvalidRequest, match="refuses"):
        chat.encode([{"role": "user", "content": "x"}])


def test_a_model_without_a_template_says_that_it_cannot_chat(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, sentencepiece(metaspace=True))
    with pytest.raises(ChatUnsupported, match="no chat template"):
        ChatTemplate.load(folder, Tokenizer.load(folder))


def test_a_template_file_and_a_named_template_are_found(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, sentencepiece(metaspace=True))
    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert Template.load(folder).render([]) == "a"
    assert Template.load(folder).render([], TOOLS) == "b"
    (folder / "chat_template.jinja").write_text("c")
    assert Template.load(folder).render([]) == "c"


def test_a_template_knows_the_date() -> None:
    source = "{{ strftime_now('%d %b %Y') }}"
    template = Template(source, source, {}, now=lambda: datetime(2026, 11, 29))
    assert template.render([]) == "29 Nov 2026"


LONG: list[Message] = [
    {"role": "system", "content": "Answer in one word."},
    {"role": "user", "content": "Paris?"},
    {"role": "assistant", "content": "Capital."},
    {"role": "user", "content": "Of?"},
]


def test_boundaries_lie_before_the_next_message_header(
    chat: ChatTemplate, tokenizer: Tokenizer
) -> None:
    prompt = chat.encode(LONG)
    positions = chat.boundary_positions(LONG, (), None, [1, 2, 3, 4, 9], prompt)
    heads = [b"".join(map(tokenizer.token_bytes, prompt.ids[:end])).decode() for end in positions]
    assert [head.rpartition("<|im_start|>")[2] for head in heads] == [
        "system\nAnswer in one word.<|im_end|>\n",
        "user\nParis?<|im_end|>\n",
        "assistant\nCapital.<|im_end|>\n",
        "user\nOf?<|im_end|>\n",
        "user\nOf?<|im_end|>\n",
    ]


@settings(max_examples=60)
@given(head=chats, tail=chats, other=chats)
@pytest.mark.parametrize("source", [None, TOOL_TEMPLATE, PLAIN_TEMPLATE])
def test_tokens_before_a_boundary_stay_whatever_follows(
    chat: ChatTemplate,
    tokenizer: Tokenizer,
    source: str | None,
    head: list[Message],
    tail: list[Message],
    other: list[Message],
) -> None:
    chat = with_template(tokenizer, source) if source else chat
    prompt = chat.encode(head + tail)
    [end] = chat.boundary_positions(head + tail, (), None, [len(head)], prompt)
    others = chat.encode(head + other)
    assert others.ids[:end] == prompt.ids[:end]
    assert chat.boundary_positions(head + other, (), None, [len(head)], others) == [end]


@pytest.mark.parametrize("text", ["I say Hel", "I say Zqvhel", "I say Hel \n"])
def test_a_word_that_may_go_on_is_left_out_where_no_special_token_parts(
    tokenizer: Tokenizer, text: str
) -> None:
    chat = with_template(tokenizer, PLAIN_TEMPLATE)
    messages = [{"role": "user", "content": text}, {"role": "user", "content": "!"}]
    prompt = chat.encode(messages)
    [end] = chat.boundary_positions(messages, (), None, [1], prompt)
    assert b"".join(map(tokenizer.token_bytes, prompt.ids[:end])) == b"I say"


def test_a_known_boundary_is_not_believed_where_the_tokens_differ(tokenizer: Tokenizer) -> None:
    today = [datetime(2026, 5, 1)]
    source = "{{ strftime_now('%-d %B') }}" + TOOL_TEMPLATE
    chat = ChatTemplate(Template(source, source, {}, now=lambda: today[0]), tokenizer)
    prompt = chat.encode(LONG)
    [before] = chat.boundary_positions(LONG, (), None, [1], prompt)
    today[0] = datetime(2026, 9, 30)
    later = chat.encode(LONG)
    more = len(later.ids) - len(prompt.ids)
    assert more > 0
    assert chat.boundary_positions(LONG, (), None, [1], later) == [before + more]


def test_a_boundary_is_known_the_second_time(
    tokenizer: Tokenizer, chat: ChatTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = chat.encode(LONG)
    first = chat.boundary_positions(LONG, (), None, [1, 2], prompt)
    encoded: list[str] = []
    inner = tokenizer.encode_inner

    def counted(text: str) -> list[int]:
        encoded.append(text)
        return inner(text)

    monkeypatch.setattr(tokenizer, "encode_inner", counted)
    other = [*LONG[:2], {"role": "assistant", "content": "Something else."}]
    prompt = chat.encode(other)
    assert chat.boundary_positions(other, (), None, [1, 2], prompt) == first
    assert encoded == ["assistant\nSomething else."]


def test_a_developer_speaks_as_system_where_the_template_does_not_know_the_role(
    chat: ChatTemplate,
) -> None:
    user = {"role": "user", "content": "Hi."}
    developer = [{"role": "developer", "content": "Be brief."}, user]
    system = [{"role": "system", "content": "Be brief."}, user]
    assert chat.encode(developer).ids == chat.encode(system).ids


def test_a_developer_keeps_the_role_where_the_template_knows_it(tokenizer: Tokenizer) -> None:
    source = "{% for m in messages %}[{{ 'D' if m.role == 'developer' else m.role }}]{% endfor %}"
    template = with_template(tokenizer, source)
    ids = template.encode([{"role": "developer", "content": "Be brief."}]).ids
    assert b"".join(tokenizer.token_bytes(one) for one in ids) == b"[D]"


def test_a_variable_may_have_any_name_that_is_not_ours(chat: ChatTemplate) -> None:
    messages = [{"role": "user", "content": "Hi."}]
    assert chat.encode(messages, (), {"self": 1, "args": 2}).ids == chat.encode(messages).ids
