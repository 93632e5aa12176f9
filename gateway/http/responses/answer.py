"""A response: its output as items, all at once or event by event.

    reasoning       response.reasoning_text.delta ...
    message         response.output_text.delta ...
    function_call   response.function_call_arguments.delta ...

One item is open at a time; what comes of another kind closes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from gateway.errors import GatewayError, public_body
from gateway.http.answer import Heading, event
from gateway.http.chat_answer import call_id
from gateway.http.objects import TokenLogprob, chat_logprobs
from gateway.http.responses.objects import (
    CachedTokens,
    CallItem,
    Event,
    Incomplete,
    Item,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    ReasoningTokens,
    Response,
    ResponseError,
    ResponseUsage,
)
from gateway.request import FinishReason, Output, ToolCallDelta, Usage


@dataclass(slots=True)
class _Open:
    """The item that is under way. call: its number among the calls."""

    kind: str
    id: str
    call: int = -1
    name: str = ""
    call_id: str = ""
    pieces: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)

    def item(self, status: str, with_logprobs: bool) -> Item:
        """As it stands."""
        text = "".join(self.pieces)
        if self.kind == "function_call":
            return CallItem(self.id, self.call_id, self.name, text, status)
        if self.kind == "reasoning":
            return ReasoningItem(self.id, [ReasoningText(text)] if text else [], status)
        content = [OutputText(text, self.logprobs if with_logprobs else UNSET)]
        return MessageItem(self.id, content if status != "in_progress" else [], status)


class ResponsesAnswer:
    """One response. asked: it before it has any output, with what the request set."""

    def __init__(self, heading: Heading, asked: Response, with_logprobs: bool):
        self._heading = heading
        self._asked = asked
        self._with_logprobs = with_logprobs
        self._items: list[Item] = []
        self._open: _Open | None = None
        self._is_begun = False
        self._is_cut = False
        self._reasoning_tokens = 0
        self._number = 0

    def events(self, outputs: Iterable[Output]) -> bytes:
        """As Answer.events."""
        return b"".join([*self._beginning(), *self._taken(outputs)])

    def tail(self, usage: Usage) -> bytes:
        """As Answer.tail."""
        begun, closed = [*self._beginning()], [*self._close()]
        response = self._response(usage)
        last = self._event(f"response.{response.status}", response=response)
        return b"".join([*begun, *closed, last])

    def failure(self, error: GatewayError) -> bytes:
        """As Answer.failure."""
        told = public_body(error).error
        failed = msgspec.structs.replace(
            self._asked,
            output=self._items,
            status="failed",
            error=ResponseError(told.code or "server_error", told.message),
        )
        begun = [*self._beginning()]
        return b"".join([*begun, self._event("response.failed", response=failed)])

    def whole(self, outputs: Iterable[Output], usage: Usage) -> bytes:
        """As Answer.whole."""
        for _ in self._taken(outputs):
            pass
        for _ in self._close():
            pass
        return msgspec.json.encode(self._response(usage))

    def _beginning(self) -> Iterator[bytes]:
        if not self._is_begun:
            self._is_begun = True
            for name in ("response.created", "response.in_progress"):
                yield self._event(name, response=self._asked)

    def _taken(self, outputs: Iterable[Output]) -> Iterator[bytes]:
        for output in outputs:
            if output.reasoning:
                if not output.text and not output.tool_calls:
                    self._reasoning_tokens += output.num_tokens
                yield from self._reason(output.reasoning)
            if output.text or (output.logprobs and self._is_in("message")):
                logprobs = chat_logprobs(output.logprobs).content if output.logprobs else []
                yield from self._say(output.text, logprobs)
            for delta in output.tool_calls:
                yield from self._call(delta)
            self._is_cut |= output.finish_reason is FinishReason.LENGTH

    def _is_in(self, kind: str, call: int = -1) -> bool:
        return self._open is not None and (self._open.kind, self._open.call) == (kind, call)

    def _reason(self, text: str) -> Iterator[bytes]:
        if not self._is_in("reasoning"):
            yield from self._begin(_Open("reasoning", self._id("rs")), ReasoningText(""))
        yield self._piece("response.reasoning_text.delta", text, content_index=0)

    def _say(self, text: str, logprobs: list[TokenLogprob]) -> Iterator[bytes]:
        if not self._is_in("message"):
            yield from self._begin(_Open("message", self._id("msg")), OutputText(""))
        assert self._open is not None
        self._open.logprobs += logprobs
        shown = logprobs if self._with_logprobs else []
        name = "response.output_text.delta"
        yield self._piece(name, text, content_index=0, logprobs=shown)

    def _call(self, delta: ToolCallDelta) -> Iterator[bytes]:
        if not self._is_in("function_call", delta.index):
            own = call_id(self._heading.id, 0, delta.index)
            begun = _Open("function_call", self._id("fc"), delta.index, delta.name, own)
            yield from self._begin(begun, None)
        if delta.arguments:
            yield self._piece("response.function_call_arguments.delta", delta.arguments)

    def _begin(self, begun: _Open, part: OutputText | ReasoningText | None) -> Iterator[bytes]:
        yield from self._close()
        self._open = begun
        item = begun.item("in_progress", with_logprobs=False)
        yield self._event("response.output_item.added", output_index=self._index, item=item)
        if part is not None:
            place = {"output_index": self._index, "item_id": begun.id, "content_index": 0}
            yield self._event("response.content_part.added", **place, part=part)

    def _piece(self, name: str, text: str, **more: object) -> bytes:
        assert self._open is not None
        self._open.pieces.append(text)
        place = {"output_index": self._index, "item_id": self._open.id}
        return self._event(name, **place, delta=text, **more)

    def _close(self) -> Iterator[bytes]:
        """The open item is over, if there is one."""
        if self._open is None:
            return
        open_, self._open = self._open, None
        text = "".join(open_.pieces)
        place: dict[str, object] = {"output_index": self._index, "item_id": open_.id}
        item = open_.item("incomplete" if self._is_cut else "completed", self._with_logprobs)
        if isinstance(item, CallItem):
            told = {"arguments": text, "name": item.name}
            yield self._event("response.function_call_arguments.done", **place, **told)
        else:
            place["content_index"] = 0
            if isinstance(item, MessageItem):
                shown = open_.logprobs if self._with_logprobs else []
                name = "response.output_text.done"
                yield self._event(name, **place, text=text, logprobs=shown)
            else:
                yield self._event("response.reasoning_text.done", **place, text=text)
            part = item.content[0] if item.content else ReasoningText("")
            yield self._event("response.content_part.done", **place, part=part)
        yield self._event("response.output_item.done", output_index=self._index, item=item)
        self._items.append(item)

    @property
    def _index(self) -> int:
        return len(self._items)

    def _id(self, kind: str) -> str:
        return f"{kind}_{self._heading.id.removeprefix('resp_')}_{self._index + bool(self._open)}"

    def _response(self, usage: Usage) -> Response:
        """It with all its output."""
        return msgspec.structs.replace(
            self._asked,
            output=self._items,
            status="incomplete" if self._is_cut else "completed",
            incomplete_details=Incomplete() if self._is_cut else None,
            usage=ResponseUsage(
                usage.prompt_tokens,
                CachedTokens(usage.cached_tokens),
                usage.completion_tokens,
                ReasoningTokens(self._reasoning_tokens),
                usage.prompt_tokens + usage.completion_tokens,
            ),
        )

    def _event(self, kind: str, **fields: object) -> bytes:
        number, self._number = self._number, self._number + 1
        return event(Event(type=kind, sequence_number=number, **fields), kind)  # type: ignore[arg-type]
