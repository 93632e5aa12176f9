"""What a model's tokenizer makes of a prompt, and back, as vLLM has it. Nothing is computed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gateway.config import LimitConfig
from gateway.errors import InvalidRequest
from gateway.fleet.workers import Fleet
from gateway.http.decoding import check_nodes, decoded, invalid
from gateway.http.inbound import worked
from gateway.http.intake import Caller, chat_job
from gateway.http.messages import Message
from gateway.http.openai import ChatRequest, Label, check_chat
from gateway.http.prompts import TokenId, packed
from gateway.http.service import Order, Service
from gateway.http.tools import Tool
from gateway.http.values.asks import Asker
from gateway.job import Part
from gateway.request import Output, TextPrompt, TokenPrompt, Usage, Want


class TokenizeRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /tokenize: a text, or a chat as its template writes it.

    The tokenizer's own rules hold, so what would change them is taken only as they are.
    """

    model: Label
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None
    tools: list[Tool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    return_token_strs: bool | None = None


class TokenizeAnswerBody(Struct, frozen=True):
    """The tokens, how many they are, and how many the model takes."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: None = None


class DetokenizeRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /detokenize."""

    model: Label
    tokens: Annotated[list[TokenId], Meta(min_length=1)]


class DetokenizeAnswerBody(Struct, frozen=True):
    """The text, special tokens in it."""

    prompt: str


_tokenize_decoder = msgspec.json.Decoder(TokenizeRequest)
_detokenize_decoder = msgspec.json.Decoder(DetokenizeRequest)


def read_tokenize(body: bytes, limits: LimitConfig) -> TokenizeRequest:
    """The body within the limits. Raises InvalidRequest."""
    check_nodes(body, limits)
    request = decoded(_tokenize_decoder, body)
    is_chat = request.messages is not None
    if is_chat == (request.prompt is not None):
        raise invalid("prompt", "expected either 'prompt' or 'messages'")
    only = {
        "add_special_tokens": not is_chat,
        "add_generation_prompt": True,
        "continue_final_message": False,
        "return_token_strs": False,
    }
    for name, value in only.items():
        if getattr(request, name) not in (None, value):
            raise InvalidRequest(
                f"Unsupported value: '{name}' can only be {str(value).lower()} here.",
                param=name,
                code="unsupported_value",
            )
    if not is_chat and (request.tools or request.chat_template_kwargs):
        name = "tools" if request.tools else "chat_template_kwargs"
        raise invalid(name, "only allowed with 'messages'")
    return request


def read_detokenize(body: bytes, limits: LimitConfig) -> DetokenizeRequest:
    """The body within the limits. Raises InvalidRequest."""
    check_nodes(body, limits, ids=limits.prompt_ids)
    request = decoded(_detokenize_decoder, body)
    if len(request.tokens) > limits.prompt_ids:
        raise invalid("tokens", f"at most {limits.prompt_ids} token ids are allowed")
    return request


class TokenizeAnswer:
    """A tokenize request's answer."""

    def __init__(self, fleet: Fleet, model: str):
        self._fleet = fleet
        self._model = model

    def whole(self, outputs: Iterable[Output], usage: Usage) -> bytes:  # noqa: ARG002
        """As Whole.whole."""
        tokens = memoryview(b"".join(output.token_ids for output in outputs)).cast("i").tolist()
        workers = self._fleet.serving(self._model).values()
        longest = min((worker.info.max_model_len for worker in workers), default=0)
        return msgspec.json.encode(TokenizeAnswerBody(len(tokens), longest, tokens))


class DetokenizeAnswer:
    """A detokenize request's answer."""

    def whole(self, outputs: Iterable[Output], usage: Usage) -> bytes:  # noqa: ARG002
        """As Whole.whole."""
        text = "".join(output.text for output in outputs)
        return msgspec.json.encode(DetokenizeAnswerBody(text))


class Tokenize:
    """POST /tokenize."""

    name = "tokenize"

    def __init__(self, service: Service):
        self._service = service

    async def understand(self, body: bytes, caller: Caller) -> Order:
        """As Route.understand."""
        service, size = self._service, len(body)
        request = await worked(size, partial(read_tokenize, body, service.config.limits))
        model = service.catalogue.resolve(request.model, caller.tenant, None)
        lead = service.config.routing.completion_key_chars
        asker = Asker(caller, model, lead)
        part = await worked(size, lambda: _part(request, asker, model, caller))
        return Order(asker.job(self.name, [part]), TokenizeAnswer(service.fleet, model))


class Detokenize:
    """POST /detokenize."""

    name = "detokenize"

    def __init__(self, service: Service):
        self._service = service

    async def understand(self, body: bytes, caller: Caller) -> Order:
        """As Route.understand."""
        service = self._service
        request = await worked(len(body), partial(read_detokenize, body, service.config.limits))
        model = service.catalogue.resolve(request.model, caller.tenant, None)
        asker = Asker(caller, model, service.config.routing.completion_key_chars)
        ids = TokenPrompt(packed("tokens", request.tokens))
        return Order(asker.job(self.name, [asker.plain(ids, Want.TEXT)]), DetokenizeAnswer())


def _part(request: TokenizeRequest, asker: Asker, model: str, caller: Caller) -> Part:
    """A chat goes the way of a chat that is answered. Raises InvalidRequest."""
    if request.prompt is not None:
        return asker.plain(TextPrompt(request.prompt), Want.TOKENS)
    chat = ChatRequest(
        model=request.model,
        messages=request.messages or [],
        tools=request.tools,
        chat_template_kwargs=request.chat_template_kwargs,
    )
    check_chat(chat, caller.limits)
    [part] = chat_job(chat, model, caller).parts
    return asker.part(part.want.chain, part.ask.prompt, Want.TOKENS)
