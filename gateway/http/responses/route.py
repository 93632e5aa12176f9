"""What POST /v1/responses is for: a request understood as a job, and the form of its answer."""

from __future__ import annotations

from functools import partial

import msgspec

from gateway.http.answer import Heading
from gateway.http.inbound import worked
from gateway.http.intake import Caller, chat_job
from gateway.http.responses.answer import ResponsesAnswer
from gateway.http.responses.objects import Response
from gateway.http.responses.request import ResponsesRequest, own_names, read_response
from gateway.http.service import Order, Service
from gateway.http.tiers import tier_of


class Responses:
    """POST /v1/responses."""

    name = "responses"

    def __init__(self, service: Service):
        self._service = service

    async def understand(self, body: bytes, caller: Caller) -> Order:
        """As Route.understand."""
        service, size = self._service, len(body)
        request, chat = await worked(size, partial(read_response, body, service.config.limits))
        model = service.catalogue.resolve(request.model, caller.tenant)
        caller, tier = tier_of(request.service_tier, caller)
        with own_names():
            job = await worked(size, partial(chat_job, chat, model, caller, self.name))
        created = int(service.wall_clock())
        heading = Heading(f"resp_{service.make_id()}", created, request.model, tier)
        answer = ResponsesAnswer(heading, _asked(request, heading), bool(chat.logprobs))
        return Order(job, answer, answer if request.stream else None)


def _asked(request: ResponsesRequest, heading: Heading) -> Response:
    """The response before it has any output."""
    choice = request.tool_choice
    text = request.text.format if request.text is not None else None
    shown = {"type": "text"} if text is None else msgspec.to_builtins(text)
    reasoning = request.reasoning
    return Response(
        id=heading.id,
        created_at=heading.created,
        model=heading.model,
        output=[],
        status="in_progress",
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        metadata=request.metadata or {},
        parallel_tool_calls=request.parallel_tool_calls is not False,
        reasoning={"effort": reasoning.effort if reasoning else None, "summary": None},
        service_tier=heading.service_tier or "default",
        temperature=1.0 if request.temperature is None else request.temperature,
        text={"format": {name: value for name, value in shown.items() if value is not None}},
        tool_choice="auto" if choice is None else choice,
        tools=[msgspec.to_builtins(tool) for tool in request.tools or ()],
        top_logprobs=request.top_logprobs or 0,
        top_p=1.0 if request.top_p is None else request.top_p,
        user=request.user if isinstance(request.user, str) else None,
    )
