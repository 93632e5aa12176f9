"""An ask as another server's request, and what it answers as ours."""

from __future__ import annotations

import json

import pytest

from gateway.errors import ContextLengthExceeded, InvalidRequest, Overloaded, WorkerLost
from gateway.fleet.openai_door import call_of, error_of, piece_of
from gateway.request import Ask, ChatPrompt, Decoding, Sampling, Stopping, TextPrompt, TokenPrompt
from tests.gateway.fleet.foreign_live import PLAIN, ask


def test_a_salt_keeps_tenants_apart_where_the_server_takes_one() -> None:
    first = json.loads(call_of(ask(), "m", "vllm").body)
    other = Ask("trace", "acme", b"other", TextPrompt("Hi"), PLAIN)
    assert first["cache_salt"] != json.loads(call_of(other, "m", "vllm").body)["cache_salt"]
    assert "cache_salt" not in json.loads(call_of(ask(), "m", "sglang").body)


def test_what_is_asked_arrives_by_its_openai_name() -> None:
    decoding = Decoding(
        Sampling(temperature=0.5, top_k=4, seed=2**63 + 5, logit_bias={7: 1.5}),
        Stopping(max_tokens=9, stop=("x",), min_tokens=2, ignore_eos=True),
        n=3,
        top_logprobs=2,
    )
    prompt = ChatPrompt(b'[{"role":"user","content":"Hi"}]', template_kwargs=b'{"think":false}')
    call = call_of(ask(prompt=prompt, decoding=decoding), "m", "vllm")
    body = json.loads(call.body)
    assert call.path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "user", "content": "Hi"}]
    assert body["chat_template_kwargs"] == {"think": False}
    assert (body["n"], body["max_tokens"], body["stop"], body["seed"]) == (3, 9, ["x"], 5)
    assert (body["top_k"], body["min_tokens"], body["ignore_eos"]) == (4, 2, True)
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)
    assert body["logit_bias"] == {"7": 1.5}
    ids = json.loads(call_of(ask(prompt=TokenPrompt(b"\1\0\0\0\2\0\0\0")), "m", "openai").body)
    assert ids["prompt"] == [1, 2]


def test_what_it_does_not_know_is_refused_by_name() -> None:
    decoding = Decoding(Sampling(top_k=4), Stopping())
    with pytest.raises(InvalidRequest) as caught:
        call_of(ask(decoding=decoding), "m", "openai")
    assert caught.value.param == "top_k"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (
            400,
            b'{"error":{"message":"This model\'s maximum context length is 5"}}',
            ContextLengthExceeded,
        ),
        (422, b'{"message":"flat"}', InvalidRequest),
        (503, b"not json", Overloaded),
        (404, b"", WorkerLost),
    ],
)
def test_refusals_by_kind(status: int, body: bytes, kind: type[Exception]) -> None:
    assert type(error_of(status, body)) is kind


def test_pieces_without_anything_to_tell_bring_nothing() -> None:
    role = b'{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'
    assert piece_of(role).outputs == ()
    assert piece_of(b'{"choices":[]}').usage is None
