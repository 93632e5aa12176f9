"""The routes that generate: chat and completions."""

from __future__ import annotations

from functools import partial

from gateway.http.answer import Heading
from gateway.http.chat_answer import CallEnd, ChatAnswer
from gateway.http.completion_answer import CompletionAnswer, CompletionForm
from gateway.http.inbound import worked
from gateway.http.intake import Caller, chat_job, completion_job
from gateway.http.openai import (
    ChatRequest,
    CompletionRequest,
    SharedFields,
    read_chat,
    read_completion,
)
from gateway.http.service import Order, Service
from gateway.http.tiers import tier_of
from gateway.tenancy.tenants import Tenant


class Chat:
    """POST /v1/chat/completions."""

    name = "chat_completions"

    def __init__(self, service: Service):
        self._service = service

    async def understand(self, body: bytes, caller: Caller) -> Order:
        """As Route.understand."""
        service, size = self._service, len(body)
        request = await worked(size, partial(read_chat, body, service.config.limits))
        model = _model(service, request, caller.tenant)
        caller, tier = tier_of(request.service_tier, caller)
        job = await worked(size, partial(chat_job, request, model, caller))
        heading = _heading(service, "chatcmpl", request, tier)
        answer = ChatAnswer(heading, _wants_usage(request), _call_end(request))
        return Order(job, answer, answer if request.stream else None)


class Completion:
    """POST /v1/completions."""

    name = "completions"

    def __init__(self, service: Service):
        self._service = service

    async def understand(self, body: bytes, caller: Caller) -> Order:
        """As Route.understand."""
        service, size = self._service, len(body)
        request = await worked(size, partial(read_completion, body, service.config.limits))
        model = _model(service, request, caller.tenant)
        caller, tier = tier_of(request.service_tier, caller)
        answer = CompletionAnswer(_heading(service, "cmpl", request, tier), _form(request))
        lead = service.config.routing.completion_key_chars
        job = await worked(size, partial(completion_job, request, model, caller, lead))
        return Order(job, answer, answer if request.stream else None)


def _model(service: Service, request: SharedFields, tenant: Tenant) -> str:
    """What workers call it. Raises GatewayError."""
    catalogue = service.catalogue
    model = catalogue.resolve(request.model, tenant)
    wants_echo = isinstance(request, CompletionRequest) and request.echo
    if request.prompt_logprobs is not None or wants_echo:
        catalogue.check_scores(model, "echo" if wants_echo else "prompt_logprobs")
    return model


def _call_end(request: ChatRequest) -> CallEnd:
    """Stop, where the client said which tool to call, as OpenAI has it."""
    return "stop" if isinstance(request.tool_choice, dict) else "tool_calls"


def _form(request: CompletionRequest) -> CompletionForm:
    return CompletionForm(
        include_usage=_wants_usage(request),
        logprobs=request.logprobs,
        n=request.n or 1,
        made=request.best_of or request.n or 1,
        echo=bool(request.echo),
        prompt_only=request.max_tokens == 0,
        scores=request.prompt_logprobs is not None,
    )


def _heading(service: Service, kind: str, request: SharedFields, tier: str | None) -> Heading:
    created = int(service.wall_clock())
    return Heading(f"{kind}-{service.make_id()}", created, request.model, tier)


def _wants_usage(request: SharedFields) -> bool:
    return bool(request.stream_options and request.stream_options.include_usage)
