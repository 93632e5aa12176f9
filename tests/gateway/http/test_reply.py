"""What is sent first decides the form of what follows."""

from __future__ import annotations

import json

from starlette.types import Message

from gateway.errors import InternalError, NoWorker, RateLimited
from gateway.http.reply import Reply


class Sent:
    """Keeps what an application sends."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def head(self) -> dict[bytes, bytes]:
        return dict(self.messages[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.messages[1:])


async def test_an_error_before_anything_is_a_plain_answer() -> None:
    sent = Sent()
    await Reply(sent, "req-1").error(NoWorker("inside"))
    assert sent.messages[0]["status"] == 503
    assert sent.head[b"retry-after"] == b"1"
    assert sent.head[b"x-request-id"] == b"req-1"
    assert json.loads(sent.body)["error"]["code"] == "no_worker"
    assert not sent.messages[-1].get("more_body", False)


async def test_an_error_after_the_first_event_is_the_last_event() -> None:
    sent = Sent()
    reply = Reply(sent, "req-1")
    reply.worker = "w0"
    await reply.events(b"data: 1\n\n")
    await reply.error(InternalError("inside"))
    assert [message["type"] for message in sent.messages].count("http.response.start") == 1
    assert sent.head[b"x-pando-worker"] == b"w0"
    assert b'"internal_error"' in sent.body
    assert b"[DONE]" not in sent.body
    assert not sent.messages[-1].get("more_body", False)


async def test_an_error_may_say_when_to_come_back_and_more() -> None:
    sent = Sent()
    limits = (("x-ratelimit-remaining-tokens", "7"),)
    await Reply(sent, "req-1").error(RateLimited("too many", "tokens_per_minute", 1.2, limits))
    assert sent.messages[0]["status"] == 429
    assert sent.head[b"retry-after"] == b"2"
    assert sent.head[b"x-ratelimit-remaining-tokens"] == b"7"
    told = json.loads(sent.body)["error"]
    assert (told["code"], told["param"]) == ("rate_limit_exceeded", "tokens_per_minute")


async def test_an_error_for_which_no_wait_will_do_names_none() -> None:
    sent = Sent()
    await Reply(sent, "req-1").error(RateLimited("too large", "tokens_per_minute", None, ()))
    assert b"retry-after" not in sent.head


async def test_further_headers_go_with_every_form_of_answer() -> None:
    for form in ("whole", "events", "error"):
        sent = Sent()
        reply = Reply(sent, "req-1")
        reply.headers = (("x-ratelimit-limit-requests", "60"),)
        if form == "whole":
            await reply.whole(b"{}")
        elif form == "events":
            await reply.events(b"data: 1\n\n")
        else:
            await reply.error(NoWorker())
        assert sent.head[b"x-ratelimit-limit-requests"] == b"60"
