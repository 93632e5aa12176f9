"""What is sent first decides the form of what follows."""

from __future__ import annotations

import json

from starlette.types import Message

from gateway.errors import InternalError, NoWorker
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
