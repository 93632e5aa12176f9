"""An OpenAI request becomes the worker's question."""

from __future__ import annotations

import json
import struct

import pytest

from gateway.config import LimitConfig
from gateway.errors import InvalidRequest
from gateway.http.intake import Caller, chat_job, completion_job
from gateway.http.openai import read_chat, read_completion
from gateway.job import Job
from gateway.request import (
    Ask,
    ChatPrompt,
    Sampling,
    Share,
    Stopping,
    TextPrompt,
    TokenPrompt,
)
from gateway.routing.prefix import Overrides
from gateway.routing.public import PublicPrefixes
from gateway.tenancy.tenants import Tenant
from gateway.tenant_config import TenantConfig

CALLER = Caller("req-1", Tenant("acme", b"space"), Overrides(), seed=1)


def chat(**fields: object) -> Job:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    return chat_job(read_chat(json.dumps(body).encode(), LimitConfig()), "m", CALLER)


def completion(**fields: object) -> Job:
    body = json.dumps({"model": "m", **fields}).encode()
    return completion_job(read_completion(body, LimitConfig()), "m", CALLER, 8)


def test_defaults_are_openais() -> None:
    decoding = chat().parts[0].ask.decoding
    assert decoding.sampling == Sampling(seed=1)
    assert decoding.stopping == Stopping()
    assert (decoding.n, decoding.top_logprobs) == (1, None)
    assert completion(prompt="x").parts[0].ask.decoding.stopping.max_tokens == 16


def test_explicit_zeros_are_kept() -> None:
    sampling = chat(temperature=0, top_p=0, top_k=-1, seed=0).parts[0].ask.decoding.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0, 0, 0, 0)


def test_logprobs_without_alternatives_are_asked_for_as_zero() -> None:
    assert chat(logprobs=True).parts[0].ask.decoding.top_logprobs == 0
    assert chat(logprobs=True, top_logprobs=2).parts[0].ask.decoding.top_logprobs == 2
    assert completion(prompt="x", logprobs=0).parts[0].ask.decoding.top_logprobs == 0


def test_messages_cross_as_they_are_and_nulls_vanish() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": content, "name": "me"},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "content": "9", "tool_call_id": "1"},
    ]
    prompt = chat(messages=messages).parts[0].ask.prompt
    assert isinstance(prompt, ChatPrompt)
    sent = json.loads(prompt.messages)
    assert sent[0] == {"role": "user", "content": content, "name": "me"}
    assert sent[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert sent[1].keys() == {"role", "tool_calls"}
    assert sent[2] == {"role": "tool", "content": "9", "tool_call_id": "1"}


def test_prompts_become_parts_of_their_own_kind() -> None:
    assert [part.ask.prompt for part in completion(prompt=["a", "b"]).parts] == [
        TextPrompt("a"),
        TextPrompt("b"),
    ]
    ids = completion(prompt=[[1, 2], [3]]).parts
    assert [part.ask.prompt for part in ids] == [
        TokenPrompt(struct.pack("<2i", 1, 2)),
        TokenPrompt(struct.pack("<i", 3)),
    ]
    assert completion(prompt=[7]).parts[0].ask.prompt == TokenPrompt(struct.pack("<i", 7))
    with pytest.raises(InvalidRequest) as caught:
        completion(prompt=[[1], []])
    assert caught.value.param == "prompt[1]"


def test_more_tokens_may_not_be_demanded_than_allowed() -> None:
    with pytest.raises(InvalidRequest) as caught:
        chat(min_tokens=5, max_tokens=4)
    assert caught.value.param == "min_tokens"


def test_the_cache_key_routes() -> None:
    plain, keyed = chat(), chat(prompt_cache_key="k")
    assert plain.parts[0].key != keyed.parts[0].key
    assert (
        keyed.parts[0].key
        == chat(prompt_cache_key="k", messages=[{"role": "system", "content": "other"}])
        .parts[0]
        .key
    )


def test_a_tenants_share_and_what_is_public_cross_with_the_question() -> None:
    config = TenantConfig("acme", weight=2.0, priority="high", cache_share=0.25, cache_cap=0.5)
    system = {"role": "system", "content": "Be brief."}
    caller = Caller("r", Tenant.of(config), Overrides(), 1, PublicPrefixes([[system]]))
    body: dict[str, object] = {"model": "m", "messages": [system, {"role": "user", "content": "x"}]}

    def asked(**more: object) -> Ask:
        read = read_chat(json.dumps({**body, **more}).encode(), LimitConfig())
        return chat_job(read, "m", caller).parts[0].ask

    assert asked().share == Share(1, 2.0, 0.25, 0.5)
    assert asked().public_messages == 1
    assert asked(messages=body["messages"][1:]).public_messages == 0  # type: ignore[index]
    assert asked(chat_template_kwargs={"a": 1}).public_messages == 0
    low = Tenant.of(TenantConfig("acme", priority="low"))
    assert low.share == Share(-1, 1.0, 0.0, 1.0)
