"""Protobuf to our values and back: nothing but translation."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Literal

from msgspec import structs

from gateway import errors
from gateway.errors import GatewayError, InternalError
from gateway.fleet.ledger import CacheEvent, Change
from gateway.fleet.workers import WorkerInfo, WorkerLoad
from gateway.request import (
    Ask,
    ChatPrompt,
    Constraint,
    FinishReason,
    Logprob,
    NodeOutput,
    Output,
    PairPrompt,
    ProgramPrompt,
    Prompt,
    PromptScore,
    TextPrompt,
    TokenLogprobs,
    ToolCallDelta,
    Usage,
)
from gateway.timing import Timing
from proto import worker_pb2 as pb

_US = 1e6

# Both sides name these fields alike; the worker's name stands under `worker` in the hello,
# and whoever speaks the contract resumes.
_INFO_FIELDS = operator.attrgetter(*(field.name for field in fields(WorkerInfo)[1:-1]))
_LOAD_FIELDS = operator.attrgetter(*(field.name for field in fields(WorkerLoad)))


def submit(request_id: int, ask: Ask) -> pb.Submit:
    """An ask as the message that a worker takes."""
    decoding = ask.decoding
    message = pb.Submit(
        request_id=request_id,
        trace_id=ask.trace_id,
        tenant=ask.tenant,
        namespace=ask.namespace,
        sampling=pb.Sampling(**structs.asdict(decoding.sampling)),
        stopping=pb.Stopping(**structs.asdict(decoding.stopping)),
        n=decoding.n,
        top_logprobs=decoding.top_logprobs,
        boundaries=[
            pb.Boundary(digest=boundary.digest, **{boundary.unit.value: boundary.place})
            for boundary in ask.boundaries
        ],
        expected_tokens=ask.expected_tokens,
        resume=[pb.Resume(**structs.asdict(choice)) for choice in ask.resume],
        share=pb.Share(**structs.asdict(ask.share)),
        public_messages=ask.public_messages,
        score_prompt=decoding.score_prompt,
        echo=decoding.echo,
        constraint=None if decoding.constraint is None else _constraint(decoding.constraint),
        want=ask.want.value,
        dflash=None if decoding.dflash is None else f"DFLASH_{decoding.dflash.name}",
        nodes=[_node(one) for one in ask.nodes],
    )
    if ask.session is not None:
        message.session.CopyFrom(pb.Session(**structs.asdict(ask.session)))
    _put_prompt(message, ask.prompt)
    return message


def _put_prompt(message: pb.Submit, prompt: Prompt) -> None:
    if isinstance(prompt, ChatPrompt):
        message.chat.messages = prompt.messages
        message.chat.tools = prompt.tools
        message.chat.template_kwargs = prompt.template_kwargs
        if prompt.tools:
            choice = prompt.tool_choice
            message.chat.tool_choice.CopyFrom(
                pb.ToolChoice(mode=choice.mode.value, name=choice.name, single=choice.single)
            )
        message.chat.keep_reasoning = prompt.keep_reasoning
    elif isinstance(prompt, TextPrompt):
        message.text = prompt.text
    elif isinstance(prompt, ProgramPrompt):
        message.program = prompt.source
    elif isinstance(prompt, PairPrompt):
        message.pair.query = prompt.query
        message.pair.document = prompt.document
        message.pair.instruction = prompt.instruction
    else:
        message.token_ids = prompt.token_ids


def _constraint(constraint: Constraint) -> pb.Constraint:
    if constraint.choices:
        return pb.Constraint(choices=pb.Choices(texts=constraint.choices))
    message = pb.Constraint()
    setattr(message, constraint.language.value, constraint.source)
    return message


def info_of(hello: pb.WorkerHello) -> WorkerInfo:
    """What a hello says of its worker."""
    return WorkerInfo(hello.worker, *_INFO_FIELDS(hello))


def load_of(load: pb.Load) -> WorkerLoad:
    """A worker's own account."""
    return WorkerLoad(*_LOAD_FIELDS(load))


_FINISH = {pb.STOP: FinishReason.STOP, pb.LENGTH: FinishReason.LENGTH}
_FINISH_CODES: dict[FinishReason | None, pb.FinishReason] = {
    None: pb.FINISH_REASON_UNSPECIFIED,
    FinishReason.STOP: pb.STOP,
    FinishReason.LENGTH: pb.LENGTH,
}


_CHANGES = {
    pb.CacheEvent.STORED: Change.STORED,
    pb.CacheEvent.EVICTED: Change.EVICTED,
    pb.CacheEvent.CLEARED: Change.CLEARED,
}


def cache_event_of(event: pb.CacheEvent) -> CacheEvent:
    """One change of the worker's cache."""
    return CacheEvent(_CHANGES[event.kind], event.digest, event.num_tokens, event.by_another)


def boundaries_of(stored: Iterable[pb.CacheEvent]) -> Iterator[tuple[bytes, int]]:
    """A snapshot's boundaries: digests and prompt tokens."""
    return ((event.digest, event.num_tokens) for event in stored)


def output_of(output: pb.Output) -> Output:
    """New tokens of a choice."""
    return Output(
        output.choice,
        output.text,
        output.token_ids,
        tuple(_token_logprobs(entry) for entry in output.logprobs) if output.logprobs else (),
        _FINISH.get(output.finish_reason),
        prompt_scores=tuple(_prompt_score(one) for one in output.prompt_scores)
        if output.prompt_scores
        else (),
        reasoning=output.reasoning,
        tool_calls=tuple(
            ToolCallDelta(call.index, call.name, call.arguments) for call in output.tool_calls
        )
        if output.tool_calls
        else (),
        text_chars=output.text_chars,
        values=tuple(output.values) if output.values else (),
        prompt_text=output.prompt_text,
        nodes=tuple(_node_of(node) for node in output.nodes) if output.nodes else (),
        prompt_tokens=output.prompt_tokens,
        cached_tokens=output.cached_tokens,
    )


def _node(node: NodeOutput) -> pb.NodeOutput:
    """What was given out of a node, as it is taken up elsewhere."""
    return pb.NodeOutput(
        name=node.name,
        index=node.index,
        text=node.text,
        token_ids=node.token_ids,
        finish_reason=_FINISH_CODES[node.finish_reason],
        choice=node.choice,
        scores=node.scores,
        prompt_tokens=node.prompt_tokens,
        cached_tokens=node.cached_tokens,
    )


def _node_of(node: pb.NodeOutput) -> NodeOutput:
    return NodeOutput(
        name=node.name,
        index=node.index,
        text=node.text,
        token_ids=node.token_ids,
        finish_reason=_FINISH.get(node.finish_reason),
        choice=node.choice,
        scores=tuple(node.scores),
        prompt_tokens=node.prompt_tokens,
        cached_tokens=node.cached_tokens,
        started_s=node.started_s,
        ended_s=node.ended_s,
        root_text=node.root_text,
    )


def _prompt_score(one: pb.PromptScore) -> PromptScore:
    best = None
    if one.rank > 1:
        best = Logprob(one.best_id, one.best_logprob, one.best_token)
    return PromptScore(one.token_id, one.token, one.logprob, one.rank, best)


def _token_logprobs(entry: pb.TokenLogprobs) -> TokenLogprobs:
    return TokenLogprobs(_logprob(entry.sampled), tuple(_logprob(top) for top in entry.top))


def _logprob(entry: pb.Logprob) -> Logprob:
    return Logprob(entry.token_id, entry.logprob, entry.token)


def usage_of(usage: pb.Usage) -> Usage:
    """The tokens of a finished request."""
    return Usage(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)


def timing_of(end: pb.Done | pb.Failed) -> Timing | None:
    """What a worker tells of a request's time; None: it is older than that."""
    if not end.HasField("timing"):
        return None
    told = end.timing

    def seconds(name: Literal["prepared_us", "admitted_us", "first_token_us"]) -> float | None:
        return getattr(told, name) / _US if told.HasField(name) else None

    return Timing(
        told.ended_us / _US,
        seconds("prepared_us"),
        seconds("admitted_us"),
        seconds("first_token_us"),
        told.num_preemptions,
    )


_ERRORS: dict[int, type[GatewayError]] = {
    pb.INVALID_REQUEST: errors.InvalidRequest,
    pb.CONTEXT_LENGTH_EXCEEDED: errors.ContextLengthExceeded,
    pb.OVERLOADED: errors.Overloaded,
    pb.DRAINING: errors.Draining,
    pb.SESSION_LOST: errors.SessionLost,
}
_FOR_CLIENTS = {errors.InvalidRequest, errors.ContextLengthExceeded, errors.SessionLost}


def error_of(failed: pb.Failed) -> GatewayError:
    """Anything unforeseen, a cancel that nobody asked for included, is the worker's own fault.

    What is told to the client is the worker's sentence; what is told to the log alone is ours.
    """
    kind = _ERRORS.get(failed.code, InternalError)
    if kind is errors.Overloaded and failed.exhausted:
        kind = errors.Exhausted
    if kind in _FOR_CLIENTS:
        return kind(failed.message, param=failed.param or None)
    return kind(f"the worker failed it with code {failed.code}")
