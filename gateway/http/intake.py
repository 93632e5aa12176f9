"""An OpenAI request as a job: what each worker is asked, and by which key it is routed.

A completion with several prompts is several parts of one job; each may go to its own worker.
Choice i of part p is choice p * n + i of the answer, as OpenAI numbers them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from gateway.config import LimitConfig
from gateway.errors import InvalidRequest
from gateway.http.messages import plain
from gateway.http.openai import ChatRequest, CompletionRequest, SharedFields
from gateway.http.prompts import prompts_of
from gateway.http.structured import constraint_of
from gateway.http.tools import tool_choice_of
from gateway.job import Job, Part
from gateway.request import (
    Ask,
    ChatPrompt,
    Constraint,
    Decoding,
    Prompt,
    Sampling,
    Stopping,
    TextPrompt,
    ToolMode,
)
from gateway.routing.prefix import Chain, Overrides, Scope, chat_chain, text_chain, token_chain
from gateway.routing.public import NONE_PUBLIC, PublicPrefixes
from gateway.routing.route import Want
from gateway.tenancy.tenants import Tenant

_COMPLETION_MAX_TOKENS = 16
DEFAULT_LIMITS = LimitConfig()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks under which id, what the headers say of the prefix, and a seed if none is named.

    public: what every tenant shares. limits: of what a request may bring.
    """

    request_id: str
    tenant: Tenant
    overrides: Overrides
    seed: int
    public: PublicPrefixes = NONE_PUBLIC
    limits: LimitConfig = DEFAULT_LIMITS


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the two endpoints name differently."""

    max_tokens: int | None
    top_logprobs: int | None
    constraint: Constraint | None
    n: int = 1
    echo: bool = False


def chat_job(
    request: ChatRequest, model: str, caller: Caller, route: str = "chat_completions"
) -> Job:
    """What a chat request asks of one worker. Raises InvalidRequest."""
    messages = [plain(message) for message in request.messages]
    kwargs = _template_kwargs(request)
    tools = msgspec.json.encode(request.tools) if request.tools else b""
    num_public = 0 if kwargs or tools else caller.public.length_in(messages)
    chain = chat_chain(
        Scope(model, caller.tenant.namespace),
        messages,
        tools,
        template_kwargs=kwargs,
        overrides=_overrides(request, caller),
        num_public=num_public,
    )
    choice = tool_choice_of(request.tool_choice, request.tools or [], request.parallel_tool_calls)
    prompt = ChatPrompt(
        messages=msgspec.json.encode(messages),
        tools=tools,
        template_kwargs=msgspec.json.encode(kwargs) if kwargs else b"",
        tool_choice=choice,
        keep_reasoning=request.separate_reasoning is False,
    )
    constraint = constraint_of(request.response_format, request.structured_outputs, caller.limits)
    # Whoever must call a tool gives no other answer.
    is_call = bool(tools) and choice.mode is ToolMode.REQUIRED
    asked = _Asked(
        request.max_completion_tokens or request.max_tokens,
        (request.top_logprobs or 0) if request.logprobs else None,
        None if is_call else constraint,
        request.n or 1,
    )
    decoding = _decoding(request, caller, asked)
    ask = _ask(caller, decoding, prompt, num_public)
    part = Part(_want(request, model, caller, chain), ask)
    return Job(caller.request_id, caller.tenant, model, route, (part,))


def completion_job(request: CompletionRequest, model: str, caller: Caller, lead: int) -> Job:
    """What a completion request asks, one part per prompt; `lead` characters name a prefix."""
    scope, overrides = Scope(model, caller.tenant.namespace), _overrides(request, caller)
    asked = _Asked(
        _COMPLETION_MAX_TOKENS if request.max_tokens is None else max(request.max_tokens, 1),
        # The best of several is known by its tokens' logprobs.
        0 if request.logprobs is None and picks(request) else request.logprobs,
        constraint_of(None, request.structured_outputs, caller.limits),
        request.best_of or request.n or 1,
        bool(request.echo),
    )
    parts = []
    for position, prompt in enumerate(prompts_of("prompt", request.prompt)):
        # Equal prompts of one request get answers of their own, unless a seed is named.
        decoding = _decoding(request, replace(caller, seed=caller.seed + position), asked)
        if isinstance(prompt, TextPrompt):
            chain = text_chain(scope, prompt.text, lead, overrides)
        else:
            chain = token_chain(scope, prompt.token_ids, lead, overrides)
        want = _want(request, model, caller, chain)
        parts.append(Part(want, _ask(caller, decoding, prompt)))
    return Job(caller.request_id, caller.tenant, model, "completions", tuple(parts))


def picks(request: CompletionRequest) -> bool:
    """Whether more choices are made than are answered."""
    return (request.best_of or 1) > (request.n or 1)


def _template_kwargs(request: ChatRequest) -> dict[str, object]:
    """What the chat template is told: reasoning_effort as templates read it, under what is named.

    A model that only thinks or does not is told by enable_thinking.
    """
    effort = request.reasoning_effort
    told: dict[str, object] = {} if effort is None else {"reasoning_effort": effort}
    if effort == "none":
        told["enable_thinking"] = False
    return told | (request.chat_template_kwargs or {})


def _want(request: SharedFields, model: str, caller: Caller, chain: Chain) -> Want:
    session = caller.overrides.session or request.prompt_cache_key or _user(request)
    tenant = caller.tenant
    return Want(model, tenant.id, chain, tenant.policy, session)


def _user(request: SharedFields) -> str | None:
    """Whom the client asks for, if it says so by a string."""
    return request.user if isinstance(request.user, str) else None


def _ask(caller: Caller, decoding: Decoding, prompt: Prompt, num_public: int = 0) -> Ask:
    """All but what the route adds: the boundaries to name and the tokens expected."""
    return Ask(
        trace_id=caller.request_id,
        tenant=caller.tenant.id,
        namespace=caller.tenant.namespace,
        prompt=prompt,
        decoding=decoding,
        share=caller.tenant.share,
        public_messages=num_public,
    )


def _overrides(request: SharedFields, caller: Caller) -> Overrides:
    return own_overrides(request.prompt_cache_key, caller)


def own_overrides(cache_key: str | None, caller: Caller) -> Overrides:
    """What the client says of its prefix, in headers and body."""
    return replace(caller.overrides, cache_key=cache_key)


def _decoding(request: SharedFields, caller: Caller, asked: _Asked) -> Decoding:
    scored = asked.top_logprobs is not None
    return Decoding(
        sampling=_sampling(request, caller.seed),
        stopping=_stopping(request, asked.max_tokens),
        n=asked.n,
        top_logprobs=asked.top_logprobs,
        score_prompt=request.prompt_logprobs is not None or (asked.echo and scored),
        echo=asked.echo,
        constraint=asked.constraint,
        dflash=request.dflash,
    )


def _sampling(request: SharedFields, seed: int) -> Sampling:
    """Defaults are OpenAI's; top_k -1 is another server's way to say 0, a seed may be negative."""
    return Sampling(
        temperature=_or(request.temperature, 1.0),
        top_p=_or(request.top_p, 1.0),
        top_k=max(request.top_k or 0, 0),
        min_p=request.min_p or 0.0,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        repetition_penalty=_or(request.repetition_penalty, 1.0),
        seed=seed if request.seed is None else request.seed % 2**64,
        logit_bias={int(key): bias for key, bias in (request.logit_bias or {}).items()},
    )


def _stopping(request: SharedFields, max_tokens: int | None) -> Stopping:
    min_tokens = request.min_tokens or 0
    if max_tokens is not None and min_tokens > max_tokens:
        raise InvalidRequest(
            f"Invalid value for 'min_tokens': expected at most max_tokens, {max_tokens}.",
            param="min_tokens",
        )
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    return Stopping(
        max_tokens=max_tokens,
        stop=tuple(stop),
        stop_token_ids=tuple(request.stop_token_ids or ()),
        min_tokens=min_tokens,
        ignore_eos=bool(request.ignore_eos),
        include_stop=bool(request.include_stop_str_in_output),
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
