"""The values between intake, link and answer: what a worker is asked, and what comes back.

Plain and frozen; protobuf stops at the link and JSON at the door. Token ids travel as packed
little-endian int32 (`bytes`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec

from gateway.errors import GatewayError
from gateway.timing import Timing


class Sampling(msgspec.Struct, frozen=True):
    """How a token is drawn. temperature 0 is greedy; top_p 1, top_k 0 and min_p 0 keep all."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    logit_bias: dict[int, float] = {}


class Stopping(msgspec.Struct, frozen=True):
    """When a choice ends. max_tokens None: as far as the model's window allows."""

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    include_stop: bool = False


class ToolMode(enum.Enum):
    """Whether tools are called; the values are the contract's names."""

    AUTO = "AUTO"
    NONE = "NONE"
    REQUIRED = "REQUIRED"


class ToolChoice(msgspec.Struct, frozen=True):
    """How the tools may be used. name: with REQUIRED, of this name. single: at most one call."""

    mode: ToolMode = ToolMode.AUTO
    name: str = ""
    single: bool = False


class ChatPrompt(msgspec.Struct, frozen=True):
    """Messages, tools and template variables as JSON bytes; empty tools or variables: none.

    keep_reasoning: it is not told apart from text.
    """

    messages: bytes
    tools: bytes = b""
    template_kwargs: bytes = b""
    tool_choice: ToolChoice = ToolChoice()
    keep_reasoning: bool = False


class TextPrompt(msgspec.Struct, frozen=True):
    """Plain text; the worker tokenises it."""

    text: str


class TokenPrompt(msgspec.Struct, frozen=True):
    """Token ids, packed little-endian int32, taken as they are."""

    token_ids: bytes


class PairPrompt(msgspec.Struct, frozen=True):
    """A query and a document; the worker writes them as its model wants. instruction "": none."""

    query: str
    document: str
    instruction: str = ""


class ProgramPrompt(msgspec.Struct, frozen=True):
    """A program as JSON. text_bytes: of the literal text that it begins with.

    prompt_tokens: in front of all its steps together, at most; tokens: that it may generate.
    """

    source: bytes
    text_bytes: int = 0
    prompt_tokens: int = 0
    tokens: int = 0


Prompt = ChatPrompt | TextPrompt | TokenPrompt | PairPrompt | ProgramPrompt


class Want(enum.Enum):
    """What is wanted of a prompt; the values are the contract's names.

    TOKENS: its ids. TEXT: the text of a prompt of ids. VALUES: a pair's score, else an embedding.
    """

    GENERATION = "GENERATION"
    TOKENS = "TOKENS"
    TEXT = "TEXT"
    VALUES = "VALUES"


class Language(enum.Enum):
    """In what a constraint is written; the values are the contract's field names."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    GRAMMAR = "grammar"


class Constraint(msgspec.Struct, frozen=True):
    """What every choice must conform to: a source in a language, or one of these texts."""

    language: Language = Language.REGEX
    source: str = ""
    choices: tuple[str, ...] = ()


class Unit(enum.Enum):
    """In what a boundary's place is counted; the values are the contract's field names."""

    MESSAGES = "num_messages"
    CHARS = "num_chars"
    TOKENS = "num_tokens"


class Boundary(msgspec.Struct, frozen=True):
    """A position that the gateway names: behind so many messages (and the tools), or characters
    (code points) of a text, or token ids. digest: of everything up to here.
    """

    digest: bytes
    place: int
    unit: Unit = Unit.MESSAGES


class Dflash(enum.Enum):
    """Whether decoding may read a part of a long context. AUTO: from the worker's limits on."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Decoding(msgspec.Struct, frozen=True):
    """How the answer is made: n choices; top_logprobs None: no logprobs, else so many more.

    score_prompt: whether the logprobs of the prompt's own tokens are wanted. echo: whether its text
    is. constraint None: the answer is free. dflash None: as the worker is set.
    """

    sampling: Sampling
    stopping: Stopping
    n: int = 1
    top_logprobs: int | None = None
    score_prompt: bool = False
    echo: bool = False
    constraint: Constraint | None = None
    dflash: Dflash | None = None


class Resume(msgspec.Struct, frozen=True):
    """A choice that another worker began: what of it the client has. finished: only count it."""

    choice: int
    token_ids: bytes
    text_chars: int
    finished: bool = False


class FinishReason(enum.Enum):
    """Why a choice ended by itself; the values are OpenAI's."""

    STOP = "stop"
    LENGTH = "length"


class NodeOutput(msgspec.Struct, frozen=True):
    """More of a program's node: its n's number, text, ids, and with its last one the rest.

    choice, scores: of a select. started_s, ended_s: since the program began there. root_text: with
    a program's very last one, whose name is empty.
    """

    name: str
    index: int = 0
    text: str = ""
    token_ids: bytes = b""
    finish_reason: FinishReason | None = None
    choice: int = 0
    scores: tuple[float, ...] = ()
    prompt_tokens: int = 0
    cached_tokens: int = 0
    started_s: float = 0.0
    ended_s: float = 0.0
    root_text: str = ""


class Session(msgspec.Struct, frozen=True):
    """What a program's state is kept under at its worker, and for how long behind its end.

    resumes: it was kept before, and the program goes on from it. id "": it is not kept again.
    """

    id: str
    ttl_s: int
    resumes: bool = False


class Share(msgspec.Struct, frozen=True):
    """What a tenant may have of each worker. priority: a higher one is served sooner.

    weight: its part of work and cache, relative to others. cache_share, cache_cap: the fractions of
    the cache that it keeps while it is active, and that may lie unused for it.
    """

    priority: int = 0
    weight: float = 1.0
    cache_share: float = 0.0
    cache_cap: float = 1.0


class Ask(msgspec.Struct, frozen=True):
    """All that one worker needs to answer one prompt.

    expected_tokens: prompt tokens that it will have to compute, as far as the gateway knows.
    public_messages: of a chat, how many of the first (and the tools) every tenant may share. nodes:
    what was given out of a program. width: sequences that it runs side by side, 0: its choices.
    traceparent: below which a foreign server's spans go, where the request is traced.
    """

    trace_id: str
    tenant: str
    namespace: bytes
    prompt: Prompt
    decoding: Decoding
    boundaries: tuple[Boundary, ...] = ()
    expected_tokens: int = 0
    resume: tuple[Resume, ...] = ()
    share: Share = Share()
    public_messages: int = 0
    want: Want = Want.GENERATION
    nodes: tuple[NodeOutput, ...] = ()
    session: Session | None = None
    width: int = 0
    traceparent: str = ""

    @property
    def num_sequences(self) -> int:
        """What it takes of a worker's credit."""
        return self.width or self.decoding.n

    @property
    def task(self) -> str | None:
        """The workers' task that gives what is wanted; None: every one does."""
        if self.want is Want.GENERATION:
            return "generate"
        if self.want is not Want.VALUES:
            return None
        return "rerank" if isinstance(self.prompt, PairPrompt) else "embed"


class Logprob(msgspec.Struct, frozen=True, gc=False):
    """A token's own bytes, which need not be whole characters, and its natural logarithm."""

    token_id: int
    logprob: float
    token: bytes


class TokenLogprobs(msgspec.Struct, frozen=True):
    """The sampled token and the best alternatives, best first."""

    sampled: Logprob
    top: tuple[Logprob, ...] = ()


class PromptScore(msgspec.Struct, frozen=True, gc=False):
    """A prompt token, its logprob given those before it, and its rank among all ids, from 1.

    The first token, whose probability nothing gives, has rank 0. best: the most probable one where
    that is another.
    """

    token_id: int
    token: bytes
    logprob: float
    rank: int
    best: Logprob | None = None


class ToolCallDelta(msgspec.Struct, frozen=True, gc=False):
    """More of a choice's call number `index`. name: with its first delta, whole; else empty."""

    index: int
    name: str = ""
    arguments: str = ""


class Output(msgspec.Struct, frozen=True):
    """New tokens of one choice. Text may lag behind the tokens, and come without any.

    unnamed_tokens: those whose ids a foreign server does not tell. prompt_scores: of every prompt
    token, once, if they were asked for; so prompt_text. reasoning, tool_calls: parts of the text
    that stand here in its place. text_chars: characters of the whole text given out so far, as what
    ever; 0: so many as `text` had. values: a score or an embedding. prompt_tokens, cached_tokens:
    of the prompt, with the first output; 0: not told with this one.
    """

    choice: int
    text: str
    token_ids: bytes = b""
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    unnamed_tokens: int = 0
    prompt_scores: tuple[PromptScore, ...] = ()
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    text_chars: int = 0
    values: tuple[float, ...] = ()
    prompt_text: str = ""
    nodes: tuple[NodeOutput, ...] = ()
    prompt_tokens: int = 0
    cached_tokens: int = 0

    @property
    def num_tokens(self) -> int:
        """How many tokens it brings."""
        named = len(self.token_ids) + sum(len(node.token_ids) for node in self.nodes)
        return named // 4 + self.unnamed_tokens


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of a finished request; cached_tokens of the prompt came from the prefix cache."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        """The sum of two prompts' usage."""
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
        )


class Done(msgspec.Struct, frozen=True):
    """The worker finished every choice. timing: where the time went there, if it told."""

    usage: Usage
    timing: Timing | None = None


class Failed(msgspec.Struct, frozen=True):
    """The worker, or the link to it, gave the request up. timing: as Done."""

    error: GatewayError
    timing: Timing | None = None


Event = Output | Done | Failed
Deliver = Callable[[Event], None]
