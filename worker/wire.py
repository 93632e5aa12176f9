"""Protobuf to our values and back: nothing but translation (steps 6 and 11 of a request's path)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from proto import worker_pb2 as pb
from worker.cache.boundaries import BoundaryEvent, EventKind
from worker.dflash import Mode
from worker.engine import Load
from worker.errors import Exhausted, RequestFailed, failure_code
from worker.request import FinishReason, Sampling, TokenLogprobs, TokenScore
from worker.sequence import pack_tokens
from worker.submission import (
    ChatInput,
    Constraint,
    Language,
    NamedBoundary,
    NodeOutput,
    Output,
    PairInput,
    ProgramInput,
    Prompt,
    Resumed,
    Session,
    Share,
    StopRules,
    Submission,
    ToolChoice,
    ToolMode,
    Unit,
    Usage,
    Want,
)
from worker.timing import Timing

PROTOCOL = 1
_US = 1e6
MAX_BOUNDARIES = 1024
MAX_PRIORITY = 8
# More than any prompt has; what gateways add up stays a number that the contract can carry.
MAX_EXPECTED_TOKENS = 1 << 32

_FINISH = {
    None: pb.FINISH_REASON_UNSPECIFIED,
    FinishReason.STOP: pb.STOP,
    FinishReason.LENGTH: pb.LENGTH,
}
_FINISHED = {pb.STOP: FinishReason.STOP, pb.LENGTH: FinishReason.LENGTH}
_WANTS = {
    pb.GENERATION: Want.GENERATION,
    pb.TOKENS: Want.TOKENS,
    pb.TEXT: Want.TEXT,
    pb.VALUES: Want.VALUES,
}
_DFLASH = {
    pb.DFLASH_AUTO: Mode.AUTO,
    pb.DFLASH_ON: Mode.ON,
    pb.DFLASH_OFF: Mode.OFF,
}
_TOOL_MODES = {
    pb.ToolChoice.AUTO: ToolMode.AUTO,
    pb.ToolChoice.NONE: ToolMode.NONE,
    pb.ToolChoice.REQUIRED: ToolMode.REQUIRED,
}
_EVENT = {
    EventKind.STORED: pb.CacheEvent.STORED,
    EventKind.EVICTED: pb.CacheEvent.EVICTED,
    EventKind.CLEARED: pb.CacheEvent.CLEARED,
}


@dataclass(frozen=True, slots=True)
class Identity:
    """What a worker says of itself when a link opens."""

    worker: str
    incarnation: str
    model: str
    task: str
    max_model_len: int
    prefix_cache: str
    page_size: int
    cache_tokens: int
    max_running_sequences: int
    max_waiting_sequences: int
    version: str
    vocab_size: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """Prompt tokens expected of requests without output: of all links, and of this one."""

    total: int
    own: int


# ---------------------------------------------------------------- gateway -> worker


def submission(message: pb.Submit) -> Submission:
    """Returns the request as our own value, the contract's defaults put in.

    Boundaries beyond MAX_BOUNDARIES are left out: they carry no answer.
    """
    return Submission(
        request_id=message.request_id,
        prompt=_prompt(message),
        sampling=_sampling(message.sampling),
        seed=message.sampling.seed if message.sampling.HasField("seed") else None,
        rules=_rules(message.stopping),
        n=max(message.n, 1),
        top_logprobs=message.top_logprobs if message.HasField("top_logprobs") else None,
        trace_id=message.trace_id,
        tenant=message.tenant,
        namespace=message.namespace,
        boundaries=tuple(
            _boundary(one) for one in message.boundaries[:MAX_BOUNDARIES] if one.digest
        ),
        expected_tokens=min(message.expected_tokens, MAX_EXPECTED_TOKENS),
        resume=tuple(
            Resumed(one.choice, one.token_ids, one.text_chars, one.finished)
            for one in message.resume
        ),
        share=_share(message.share),
        public_messages=message.public_messages,
        score_prompt=message.score_prompt,
        echo=message.echo,
        constraint=_constraint(message.constraint) if message.HasField("constraint") else None,
        want=_WANTS.get(message.want, Want.GENERATION),
        dflash=_DFLASH.get(message.dflash),
    )


def _share(share: pb.Share) -> Share:
    """What a newer or careless gateway sends beyond the allowed range counts as its end."""
    return Share(
        priority=min(max(share.priority, -MAX_PRIORITY), MAX_PRIORITY),
        weight=share.weight if 0 < share.weight < inf else 1.0,
        cache_share=_fraction(share.cache_share),
        cache_cap=_fraction(share.cache_cap) if share.HasField("cache_cap") else 1.0,
    )


def _fraction(value: float) -> float:
    return min(value, 1.0) if value > 0 else 0.0


def _prompt(message: pb.Submit) -> Prompt:
    kind = message.WhichOneof("prompt")
    if kind == "chat":
        chat = message.chat
        choice = ToolChoice(
            _TOOL_MODES.get(chat.tool_choice.mode, ToolMode.AUTO),
            chat.tool_choice.name,
            chat.tool_choice.single,
        )
        return ChatInput(
            chat.messages, chat.tools, chat.template_kwargs, choice, chat.keep_reasoning
        )
    if kind == "program":
        session = message.session if message.HasField("session") else None
        return ProgramInput(
            message.program,
            tuple(_node(one) for one in message.nodes),
            None if session is None else Session(session.id, session.ttl_s, session.resumes),
        )
    if kind == "pair":
        return PairInput(message.pair.query, message.pair.document, message.pair.instruction)
    return message.text if kind == "text" else message.token_ids


def _node(node: pb.NodeOutput) -> NodeOutput:
    """What another worker gave out of a node."""
    return NodeOutput(
        name=node.name,
        index=node.index,
        text=node.text,
        tokens=node.token_ids,
        finish=_FINISHED.get(node.finish_reason),
        choice=node.choice,
        scores=tuple(node.scores),
        prompt_tokens=node.prompt_tokens,
        cached_tokens=node.cached_tokens,
    )


def _constraint(constraint: pb.Constraint) -> Constraint | None:
    language = constraint.WhichOneof("language")
    if language is None:
        return None
    if language == "choices":
        return Constraint(Language.CHOICES, choices=tuple(constraint.choices.texts))
    return Constraint(Language(language), getattr(constraint, language))


def _sampling(sampling: pb.Sampling) -> Sampling:
    return Sampling(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty or 1.0,
        logit_bias=dict(sampling.logit_bias),
    )


def _rules(stopping: pb.Stopping) -> StopRules:
    return StopRules(
        max_tokens=stopping.max_tokens if stopping.HasField("max_tokens") else None,
        stop=tuple(stopping.stop),
        stop_token_ids=tuple(stopping.stop_token_ids),
        min_tokens=stopping.min_tokens,
        ignore_eos=stopping.ignore_eos,
        include_stop=stopping.include_stop,
    )


def _boundary(boundary: pb.Boundary) -> NamedBoundary:
    place = boundary.WhichOneof("place")
    if place == "num_tokens":
        return NamedBoundary(boundary.digest, boundary.num_tokens, Unit.TOKENS)
    if place == "num_chars":
        return NamedBoundary(boundary.digest, boundary.num_chars, Unit.CHARS)
    return NamedBoundary(boundary.digest, boundary.num_messages)


# ---------------------------------------------------------------- worker -> gateway


def hello_of(me: Identity, snapshot: list[BoundaryEvent], cache_sequence: int) -> pb.WorkerHello:
    """Returns a worker's first words on a link."""
    return pb.WorkerHello(
        protocol=PROTOCOL,
        worker=me.worker,
        incarnation=me.incarnation,
        model=me.model,
        task=me.task,
        max_model_len=me.max_model_len,
        prefix_cache=me.prefix_cache,
        page_size=me.page_size,
        cache_tokens=me.cache_tokens,
        max_running_sequences=me.max_running_sequences,
        max_waiting_sequences=me.max_waiting_sequences,
        version=me.version,
        vocab_size=me.vocab_size,
        snapshot=[event_of(event) for event in snapshot],
        cache_sequence=cache_sequence,
    )


def output_of(request_id: int, output: Output, token_bytes: Callable[[int], bytes]) -> pb.Output:
    """Returns a choice's new tokens."""

    def logprob(token: int, value: float) -> pb.Logprob:
        return pb.Logprob(token_id=token, logprob=value, token=token_bytes(token))

    def logprobs(entry: TokenLogprobs) -> pb.TokenLogprobs:
        return pb.TokenLogprobs(
            sampled=logprob(*entry.sampled), top=[logprob(*one) for one in entry.top]
        )

    return pb.Output(
        request_id=request_id,
        choice=output.choice,
        text=output.text,
        token_ids=pack_tokens(output.tokens),
        logprobs=[logprobs(entry) for entry in output.logprobs],
        finish_reason=_FINISH[output.finish],
        stop_reason=output.stop or "",
        prompt_scores=[_score_of(*one, token_bytes) for one in output.prompt_scores],
        reasoning=output.reasoning,
        tool_calls=[
            pb.ToolCallDelta(index=call.index, name=call.name, arguments=call.arguments)
            for call in output.tool_calls
        ],
        text_chars=output.text_chars,
        values=output.values,
        prompt_text=output.prompt_text,
        nodes=[_node_of(node) for node in output.nodes],
        prompt_tokens=output.prompt_tokens,
        cached_tokens=output.cached_tokens,
    )


def _node_of(node: NodeOutput) -> pb.NodeOutput:
    return pb.NodeOutput(
        name=node.name,
        index=node.index,
        text=node.text,
        token_ids=node.tokens,
        finish_reason=_FINISH[node.finish],
        choice=node.choice,
        scores=node.scores,
        prompt_tokens=node.prompt_tokens,
        cached_tokens=node.cached_tokens,
        started_s=node.started_s,
        ended_s=node.ended_s,
        root_text=node.root_text,
    )


def _score_of(token: int, score: TokenScore, token_bytes: Callable[[int], bytes]) -> pb.PromptScore:
    found = pb.PromptScore(
        token_id=token, token=token_bytes(token), logprob=score.logprob, rank=score.rank
    )
    if score.best is not None:
        found.best_id, found.best_logprob = score.best
        found.best_token = token_bytes(score.best[0])
    return found


def done_of(request_id: int, usage: Usage, timing: Timing) -> pb.Done:
    """Returns a request's end."""
    return pb.Done(
        request_id=request_id,
        usage=pb.Usage(
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
        ),
        timing=_timing_of(timing),
    )


def failed_of(request_id: int, error: RequestFailed, timing: Timing) -> pb.Failed:
    """Returns a request's other end."""
    return pb.Failed(
        request_id=request_id,
        code=failure_code(error),
        message=error.message,
        param=error.param,
        timing=_timing_of(timing),
        exhausted=isinstance(error, Exhausted),
    )


def _timing_of(timing: Timing) -> pb.Timing:
    def us(seconds: float | None) -> int | None:
        return None if seconds is None else int(seconds * _US)

    return pb.Timing(
        prepared_us=us(timing.prepared_s),
        admitted_us=us(timing.admitted_s),
        first_token_us=us(timing.first_token_s),
        ended_us=int(timing.ended_s * _US),
        num_preemptions=timing.num_preemptions,
    )


def event_of(event: BoundaryEvent) -> pb.CacheEvent:
    """Returns a change of the cache."""
    return pb.CacheEvent(
        kind=_EVENT[event.kind],
        digest=event.digest,
        num_tokens=event.num_tokens,
        by_another=event.by_another,
    )


def load_of(load: Load, assigned: Assigned, *, draining: bool) -> pb.Load:
    """Returns what the worker has to do."""
    counters = load.counters
    return pb.Load(
        running_sequences=load.running,
        waiting_sequences=load.waiting,
        uncomputed_tokens=load.uncomputed_tokens,
        total_pages=load.total_pages,
        used_pages=load.used_pages,
        cached_pages=load.cached_pages,
        prompt_tokens_total=counters.prompt_tokens,
        cached_tokens_total=counters.cached_tokens,
        generated_tokens_total=counters.generated_tokens,
        evicted_pages_total=load.evicted_pages,
        preemptions_total=counters.preemptions,
        draining=draining,
        assigned_tokens=assigned.total,
        steps_total=counters.steps,
    )
