"""A request as it comes from a gateway, and what goes back. Plain values; the link translates."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from worker.dflash import Mode
from worker.request import FinishReason, Sampling, TokenLogprobs, TokenScore


class ToolMode(enum.Enum):
    """Whether tools are called: as the model likes, never, or at least one."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """How the tools may be used. name: with REQUIRED, of this name. single: at most one call."""

    mode: ToolMode = ToolMode.AUTO
    name: str = ""
    single: bool = False


@dataclass(frozen=True, slots=True)
class ChatInput:
    """JSON text of the messages, the tools and further template variables; empty: none.

    keep_reasoning: it is not told apart from text.
    """

    messages: bytes
    tools: bytes = b""
    template_kwargs: bytes = b""
    tool_choice: ToolChoice = ToolChoice()
    keep_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class PairInput:
    """A query and a document whose relevance is asked for. instruction: empty: none."""

    query: str
    document: str
    instruction: str = ""


@dataclass(frozen=True, slots=True)
class ProgramInput:
    """A program as JSON, and what other workers gave out of its nodes. session None: none."""

    source: bytes
    nodes: tuple[NodeOutput, ...] = ()
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """What a program's state is kept under, and for how long behind its end; 0: not any more.

    resumes: it was kept before, and the program goes on from it.
    """

    id: str
    ttl_s: int
    resumes: bool = False


@dataclass(frozen=True, slots=True)
class NodeOutput:
    """More of a program's node: its n's number, text, packed ids, and with its last one the rest.

    choice, scores: of a select. prompt_tokens, cached_tokens: in front of it. started_s, ended_s:
    since the program began. root_text: with the very last one, whose name is empty.
    """

    name: str
    index: int = 0
    text: str = ""
    tokens: bytes = b""
    finish: FinishReason | None = None
    choice: int = 0
    scores: tuple[float, ...] = ()
    prompt_tokens: int = 0
    cached_tokens: int = 0
    started_s: float = 0.0
    ended_s: float = 0.0
    root_text: str = ""


Prompt = ChatInput | PairInput | ProgramInput | str | bytes


class Want(enum.Enum):
    """What is wanted of a prompt.

    TOKENS: its ids. TEXT: the text of a prompt of ids. VALUES: a pair's score, else an embedding.
    """

    GENERATION = "generation"
    TOKENS = "tokens"
    TEXT = "text"
    VALUES = "values"


class Language(enum.Enum):
    """In what a constraint is written. GRAMMARS: llguidance's own list; no client's."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    GRAMMAR = "grammar"
    CHOICES = "choices"
    GRAMMARS = "grammars"


@dataclass(frozen=True, slots=True)
class Constraint:
    """What every choice must conform to: a source in a language, or one of these texts.

    param: of GRAMMARS, the field of the request. ids: special tokens that may come of them.
    """

    language: Language
    source: str = ""
    choices: tuple[str, ...] = ()
    param: str = ""
    ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class StopRules:
    """When a choice ends, as asked. max_tokens None: as far as the window allows."""

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    include_stop: bool = False


class Unit(enum.Enum):
    """In what a boundary's place is counted, by the kind of prompt that it belongs to."""

    MESSAGES = "messages"
    TOKENS = "tokens"
    CHARS = "chars"


@dataclass(frozen=True, slots=True)
class NamedBoundary:
    """A digest of the gateway's for everything up to a place in the prompt."""

    digest: bytes
    count: int
    unit: Unit = Unit.MESSAGES


@dataclass(frozen=True, slots=True)
class Resumed:
    """What another worker has given out of a choice.

    tokens: packed. text_chars: code points of text. finished: it has ended there.
    """

    choice: int
    tokens: bytes
    text_chars: int = 0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """What the tenant may have. priority: a higher one is served sooner.

    weight: its part of work and cache. cache_share, cache_cap: fractions of the cache that it keeps
    while active, and that may lie unused for it.
    """

    priority: int = 0
    weight: float = 1.0
    cache_share: float = 0.0
    cache_cap: float = 1.0


@dataclass(frozen=True, slots=True)
class Submission:
    """One request. prompt: a chat, a pair, plain text, or packed token ids. seed None: draw one.

    expected_tokens: what the gateway expects to be computed of the prompt. resume: choices to go
    on with; one that isn't named starts afresh. public_messages: how many of a chat's first
    messages (and the tools) are shared by all namespaces. score_prompt, echo: whether the scores of
    the prompt's tokens, and its text, are wanted, with the first choice that is open. constraint
    None: the answer is free. dflash None: as the worker is set.
    """

    request_id: int
    prompt: Prompt
    sampling: Sampling = field(default_factory=Sampling)
    seed: int | None = None
    rules: StopRules = field(default_factory=StopRules)
    n: int = 1
    top_logprobs: int | None = None
    trace_id: str = ""
    tenant: str = ""
    namespace: bytes = b""
    boundaries: tuple[NamedBoundary, ...] = ()
    expected_tokens: int = 0
    resume: tuple[Resumed, ...] = ()
    share: Share = field(default_factory=Share)
    public_messages: int = 0
    score_prompt: bool = False
    echo: bool = False
    constraint: Constraint | None = None
    want: Want = Want.GENERATION
    dflash: Mode | None = None

    @property
    def is_restricted(self) -> bool:
        """Whether a grammar may have to be compiled for it."""
        calls = isinstance(self.prompt, ChatInput) and bool(self.prompt.tools)
        return self.constraint is not None or calls

    @property
    def num_bytes(self) -> int:
        """What is tokenised, or replayed."""
        prompt = self.prompt
        begun = sum(len(one.tokens) for one in self.resume)
        if isinstance(prompt, ChatInput):
            return len(prompt.messages) + len(prompt.tools) + begun
        if isinstance(prompt, PairInput):
            return len(prompt.query) + len(prompt.document) + len(prompt.instruction)
        return len(prompt.source if isinstance(prompt, ProgramInput) else prompt) + begun

    @property
    def num_open(self) -> int:
        """Choices that are still to be computed."""
        return max(self.n - sum(one.finished for one in self.resume), 0)


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of a choice's call number `index`. name: with its first delta, whole; else empty."""

    index: int
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """New tokens of one choice. stop: the stop string that ended it.

    prompt_scores: of the prompt's tokens, by their ids. reasoning, tool_calls: parts of the text
    that stand here in its place. text_chars: characters of the whole text given out so far, as
    whatever. values: a score or an embedding. prompt_text: the echo. prompt_tokens, cached_tokens:
    of the prompt, with a request's first output; 0: not told with this one.
    """

    choice: int
    text: str
    tokens: list[int]
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish: FinishReason | None = None
    stop: str | None = None
    prompt_scores: list[tuple[int, TokenScore]] = field(default_factory=list)
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    text_chars: int = 0
    values: tuple[float, ...] = ()
    prompt_text: str = ""
    nodes: tuple[NodeOutput, ...] = ()
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request: prompt (once), of them cached, and generated over all choices."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
