from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Dflash(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DFLASH_UNSPECIFIED: _ClassVar[Dflash]
    DFLASH_AUTO: _ClassVar[Dflash]
    DFLASH_ON: _ClassVar[Dflash]
    DFLASH_OFF: _ClassVar[Dflash]

class Want(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WANT_UNSPECIFIED: _ClassVar[Want]
    GENERATION: _ClassVar[Want]
    TOKENS: _ClassVar[Want]
    TEXT: _ClassVar[Want]
    VALUES: _ClassVar[Want]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    STOP: _ClassVar[FinishReason]
    LENGTH: _ClassVar[FinishReason]

class FailureCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAILURE_CODE_UNSPECIFIED: _ClassVar[FailureCode]
    INVALID_REQUEST: _ClassVar[FailureCode]
    CONTEXT_LENGTH_EXCEEDED: _ClassVar[FailureCode]
    OVERLOADED: _ClassVar[FailureCode]
    CANCELLED: _ClassVar[FailureCode]
    INTERNAL: _ClassVar[FailureCode]
    DRAINING: _ClassVar[FailureCode]
    SESSION_LOST: _ClassVar[FailureCode]
DFLASH_UNSPECIFIED: Dflash
DFLASH_AUTO: Dflash
DFLASH_ON: Dflash
DFLASH_OFF: Dflash
WANT_UNSPECIFIED: Want
GENERATION: Want
TOKENS: Want
TEXT: Want
VALUES: Want
FINISH_REASON_UNSPECIFIED: FinishReason
STOP: FinishReason
LENGTH: FinishReason
FAILURE_CODE_UNSPECIFIED: FailureCode
INVALID_REQUEST: FailureCode
CONTEXT_LENGTH_EXCEEDED: FailureCode
OVERLOADED: FailureCode
CANCELLED: FailureCode
INTERNAL: FailureCode
DRAINING: FailureCode
SESSION_LOST: FailureCode

class ToWorker(_message.Message):
    __slots__ = ("hello", "submit", "cancel", "resync")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    RESYNC_FIELD_NUMBER: _ClassVar[int]
    hello: GatewayHello
    submit: Submit
    cancel: Cancel
    resync: Resync
    def __init__(self, hello: _Optional[_Union[GatewayHello, _Mapping]] = ..., submit: _Optional[_Union[Submit, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., resync: _Optional[_Union[Resync, _Mapping]] = ...) -> None: ...

class GatewayHello(_message.Message):
    __slots__ = ("protocol", "gateway")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    gateway: str
    def __init__(self, protocol: _Optional[int] = ..., gateway: _Optional[str] = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ("request_id", "trace_id", "tenant", "namespace", "chat", "text", "token_ids", "pair", "program", "sampling", "stopping", "n", "top_logprobs", "boundaries", "expected_tokens", "resume", "share", "public_messages", "score_prompt", "constraint", "want", "echo", "nodes", "session", "dflash")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PAIR_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    BOUNDARIES_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SCORE_PROMPT_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    WANT_FIELD_NUMBER: _ClassVar[int]
    ECHO_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    DFLASH_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    trace_id: str
    tenant: str
    namespace: bytes
    chat: ChatPrompt
    text: str
    token_ids: bytes
    pair: PairPrompt
    program: bytes
    sampling: Sampling
    stopping: Stopping
    n: int
    top_logprobs: int
    boundaries: _containers.RepeatedCompositeFieldContainer[Boundary]
    expected_tokens: int
    resume: _containers.RepeatedCompositeFieldContainer[Resume]
    share: Share
    public_messages: int
    score_prompt: bool
    constraint: Constraint
    want: Want
    echo: bool
    nodes: _containers.RepeatedCompositeFieldContainer[NodeOutput]
    session: Session
    dflash: Dflash
    def __init__(self, request_id: _Optional[int] = ..., trace_id: _Optional[str] = ..., tenant: _Optional[str] = ..., namespace: _Optional[bytes] = ..., chat: _Optional[_Union[ChatPrompt, _Mapping]] = ..., text: _Optional[str] = ..., token_ids: _Optional[bytes] = ..., pair: _Optional[_Union[PairPrompt, _Mapping]] = ..., program: _Optional[bytes] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., stopping: _Optional[_Union[Stopping, _Mapping]] = ..., n: _Optional[int] = ..., top_logprobs: _Optional[int] = ..., boundaries: _Optional[_Iterable[_Union[Boundary, _Mapping]]] = ..., expected_tokens: _Optional[int] = ..., resume: _Optional[_Iterable[_Union[Resume, _Mapping]]] = ..., share: _Optional[_Union[Share, _Mapping]] = ..., public_messages: _Optional[int] = ..., score_prompt: _Optional[bool] = ..., constraint: _Optional[_Union[Constraint, _Mapping]] = ..., want: _Optional[_Union[Want, str]] = ..., echo: _Optional[bool] = ..., nodes: _Optional[_Iterable[_Union[NodeOutput, _Mapping]]] = ..., session: _Optional[_Union[Session, _Mapping]] = ..., dflash: _Optional[_Union[Dflash, str]] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ("id", "resumes", "ttl_s")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESUMES_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    id: str
    resumes: bool
    ttl_s: int
    def __init__(self, id: _Optional[str] = ..., resumes: _Optional[bool] = ..., ttl_s: _Optional[int] = ...) -> None: ...

class Constraint(_message.Message):
    __slots__ = ("json_schema", "regex", "grammar", "choices")
    JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    json_schema: str
    regex: str
    grammar: str
    choices: Choices
    def __init__(self, json_schema: _Optional[str] = ..., regex: _Optional[str] = ..., grammar: _Optional[str] = ..., choices: _Optional[_Union[Choices, _Mapping]] = ...) -> None: ...

class Choices(_message.Message):
    __slots__ = ("texts",)
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, texts: _Optional[_Iterable[str]] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("priority", "weight", "cache_share", "cache_cap")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    CACHE_SHARE_FIELD_NUMBER: _ClassVar[int]
    CACHE_CAP_FIELD_NUMBER: _ClassVar[int]
    priority: int
    weight: float
    cache_share: float
    cache_cap: float
    def __init__(self, priority: _Optional[int] = ..., weight: _Optional[float] = ..., cache_share: _Optional[float] = ..., cache_cap: _Optional[float] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("choice", "token_ids", "text_chars", "finished")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TEXT_CHARS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    choice: int
    token_ids: bytes
    text_chars: int
    finished: bool
    def __init__(self, choice: _Optional[int] = ..., token_ids: _Optional[bytes] = ..., text_chars: _Optional[int] = ..., finished: _Optional[bool] = ...) -> None: ...

class ChatPrompt(_message.Message):
    __slots__ = ("messages", "tools", "template_kwargs", "tool_choice", "keep_reasoning")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_KWARGS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    KEEP_REASONING_FIELD_NUMBER: _ClassVar[int]
    messages: bytes
    tools: bytes
    template_kwargs: bytes
    tool_choice: ToolChoice
    keep_reasoning: bool
    def __init__(self, messages: _Optional[bytes] = ..., tools: _Optional[bytes] = ..., template_kwargs: _Optional[bytes] = ..., tool_choice: _Optional[_Union[ToolChoice, _Mapping]] = ..., keep_reasoning: _Optional[bool] = ...) -> None: ...

class ToolChoice(_message.Message):
    __slots__ = ("mode", "name", "single")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MODE_UNSPECIFIED: _ClassVar[ToolChoice.Mode]
        AUTO: _ClassVar[ToolChoice.Mode]
        NONE: _ClassVar[ToolChoice.Mode]
        REQUIRED: _ClassVar[ToolChoice.Mode]
    MODE_UNSPECIFIED: ToolChoice.Mode
    AUTO: ToolChoice.Mode
    NONE: ToolChoice.Mode
    REQUIRED: ToolChoice.Mode
    MODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SINGLE_FIELD_NUMBER: _ClassVar[int]
    mode: ToolChoice.Mode
    name: str
    single: bool
    def __init__(self, mode: _Optional[_Union[ToolChoice.Mode, str]] = ..., name: _Optional[str] = ..., single: _Optional[bool] = ...) -> None: ...

class PairPrompt(_message.Message):
    __slots__ = ("query", "document", "instruction")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    query: str
    document: str
    instruction: str
    def __init__(self, query: _Optional[str] = ..., document: _Optional[str] = ..., instruction: _Optional[str] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "seed", "logit_bias")
    class LogitBiasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int
    logit_bias: _containers.ScalarMap[int, float]
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., min_p: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., seed: _Optional[int] = ..., logit_bias: _Optional[_Mapping[int, float]] = ...) -> None: ...

class Stopping(_message.Message):
    __slots__ = ("max_tokens", "stop", "stop_token_ids", "min_tokens", "ignore_eos", "include_stop")
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_STOP_FIELD_NUMBER: _ClassVar[int]
    max_tokens: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    min_tokens: int
    ignore_eos: bool
    include_stop: bool
    def __init__(self, max_tokens: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., min_tokens: _Optional[int] = ..., ignore_eos: _Optional[bool] = ..., include_stop: _Optional[bool] = ...) -> None: ...

class Boundary(_message.Message):
    __slots__ = ("digest", "num_messages", "num_tokens", "num_chars")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NUM_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_CHARS_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    num_messages: int
    num_tokens: int
    num_chars: int
    def __init__(self, digest: _Optional[bytes] = ..., num_messages: _Optional[int] = ..., num_tokens: _Optional[int] = ..., num_chars: _Optional[int] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    def __init__(self, request_id: _Optional[int] = ...) -> None: ...

class Resync(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ToGateway(_message.Message):
    __slots__ = ("hello", "step")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    hello: WorkerHello
    step: Step
    def __init__(self, hello: _Optional[_Union[WorkerHello, _Mapping]] = ..., step: _Optional[_Union[Step, _Mapping]] = ...) -> None: ...

class WorkerHello(_message.Message):
    __slots__ = ("protocol", "worker", "incarnation", "model", "task", "max_model_len", "prefix_cache", "page_size", "cache_tokens", "max_running_sequences", "version", "vocab_size", "snapshot", "cache_sequence", "max_waiting_sequences")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    PREFIX_CACHE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    CACHE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNNING_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    CACHE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MAX_WAITING_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    worker: str
    incarnation: str
    model: str
    task: str
    max_model_len: int
    prefix_cache: str
    page_size: int
    cache_tokens: int
    max_running_sequences: int
    version: str
    vocab_size: int
    snapshot: _containers.RepeatedCompositeFieldContainer[CacheEvent]
    cache_sequence: int
    max_waiting_sequences: int
    def __init__(self, protocol: _Optional[int] = ..., worker: _Optional[str] = ..., incarnation: _Optional[str] = ..., model: _Optional[str] = ..., task: _Optional[str] = ..., max_model_len: _Optional[int] = ..., prefix_cache: _Optional[str] = ..., page_size: _Optional[int] = ..., cache_tokens: _Optional[int] = ..., max_running_sequences: _Optional[int] = ..., version: _Optional[str] = ..., vocab_size: _Optional[int] = ..., snapshot: _Optional[_Iterable[_Union[CacheEvent, _Mapping]]] = ..., cache_sequence: _Optional[int] = ..., max_waiting_sequences: _Optional[int] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("sequence", "outputs", "done", "failed", "load", "cache_events", "cache_sequence", "snapshot", "own_assigned_tokens")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    CACHE_EVENTS_FIELD_NUMBER: _ClassVar[int]
    CACHE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    OWN_ASSIGNED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    outputs: _containers.RepeatedCompositeFieldContainer[Output]
    done: _containers.RepeatedCompositeFieldContainer[Done]
    failed: _containers.RepeatedCompositeFieldContainer[Failed]
    load: Load
    cache_events: _containers.RepeatedCompositeFieldContainer[CacheEvent]
    cache_sequence: int
    snapshot: Snapshot
    own_assigned_tokens: int
    def __init__(self, sequence: _Optional[int] = ..., outputs: _Optional[_Iterable[_Union[Output, _Mapping]]] = ..., done: _Optional[_Iterable[_Union[Done, _Mapping]]] = ..., failed: _Optional[_Iterable[_Union[Failed, _Mapping]]] = ..., load: _Optional[_Union[Load, _Mapping]] = ..., cache_events: _Optional[_Iterable[_Union[CacheEvent, _Mapping]]] = ..., cache_sequence: _Optional[int] = ..., snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., own_assigned_tokens: _Optional[int] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("stored",)
    STORED_FIELD_NUMBER: _ClassVar[int]
    stored: _containers.RepeatedCompositeFieldContainer[CacheEvent]
    def __init__(self, stored: _Optional[_Iterable[_Union[CacheEvent, _Mapping]]] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("request_id", "choice", "text", "token_ids", "logprobs", "finish_reason", "stop_reason", "prompt_scores", "reasoning", "tool_calls", "text_chars", "values", "prompt_text", "nodes", "prompt_tokens", "cached_tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    PROMPT_SCORES_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TEXT_CHARS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TEXT_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    choice: int
    text: str
    token_ids: bytes
    logprobs: _containers.RepeatedCompositeFieldContainer[TokenLogprobs]
    finish_reason: FinishReason
    stop_reason: str
    prompt_scores: _containers.RepeatedCompositeFieldContainer[PromptScore]
    reasoning: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCallDelta]
    text_chars: int
    values: _containers.RepeatedScalarFieldContainer[float]
    prompt_text: str
    nodes: _containers.RepeatedCompositeFieldContainer[NodeOutput]
    prompt_tokens: int
    cached_tokens: int
    def __init__(self, request_id: _Optional[int] = ..., choice: _Optional[int] = ..., text: _Optional[str] = ..., token_ids: _Optional[bytes] = ..., logprobs: _Optional[_Iterable[_Union[TokenLogprobs, _Mapping]]] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., stop_reason: _Optional[str] = ..., prompt_scores: _Optional[_Iterable[_Union[PromptScore, _Mapping]]] = ..., reasoning: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCallDelta, _Mapping]]] = ..., text_chars: _Optional[int] = ..., values: _Optional[_Iterable[float]] = ..., prompt_text: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[NodeOutput, _Mapping]]] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ...) -> None: ...

class NodeOutput(_message.Message):
    __slots__ = ("name", "index", "text", "token_ids", "finish_reason", "choice", "scores", "prompt_tokens", "cached_tokens", "started_s", "ended_s", "root_text")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STARTED_S_FIELD_NUMBER: _ClassVar[int]
    ENDED_S_FIELD_NUMBER: _ClassVar[int]
    ROOT_TEXT_FIELD_NUMBER: _ClassVar[int]
    name: str
    index: int
    text: str
    token_ids: bytes
    finish_reason: FinishReason
    choice: int
    scores: _containers.RepeatedScalarFieldContainer[float]
    prompt_tokens: int
    cached_tokens: int
    started_s: float
    ended_s: float
    root_text: str
    def __init__(self, name: _Optional[str] = ..., index: _Optional[int] = ..., text: _Optional[str] = ..., token_ids: _Optional[bytes] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., choice: _Optional[int] = ..., scores: _Optional[_Iterable[float]] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., started_s: _Optional[float] = ..., ended_s: _Optional[float] = ..., root_text: _Optional[str] = ...) -> None: ...

class ToolCallDelta(_message.Message):
    __slots__ = ("index", "name", "arguments")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    index: int
    name: str
    arguments: str
    def __init__(self, index: _Optional[int] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class PromptScore(_message.Message):
    __slots__ = ("token_id", "token", "logprob", "rank", "best_id", "best_token", "best_logprob")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    BEST_ID_FIELD_NUMBER: _ClassVar[int]
    BEST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    BEST_LOGPROB_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    token: bytes
    logprob: float
    rank: int
    best_id: int
    best_token: bytes
    best_logprob: float
    def __init__(self, token_id: _Optional[int] = ..., token: _Optional[bytes] = ..., logprob: _Optional[float] = ..., rank: _Optional[int] = ..., best_id: _Optional[int] = ..., best_token: _Optional[bytes] = ..., best_logprob: _Optional[float] = ...) -> None: ...

class TokenLogprobs(_message.Message):
    __slots__ = ("sampled", "top")
    SAMPLED_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    sampled: Logprob
    top: _containers.RepeatedCompositeFieldContainer[Logprob]
    def __init__(self, sampled: _Optional[_Union[Logprob, _Mapping]] = ..., top: _Optional[_Iterable[_Union[Logprob, _Mapping]]] = ...) -> None: ...

class Logprob(_message.Message):
    __slots__ = ("token_id", "logprob", "token")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    logprob: float
    token: bytes
    def __init__(self, token_id: _Optional[int] = ..., logprob: _Optional[float] = ..., token: _Optional[bytes] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ("request_id", "usage", "timing")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    usage: Usage
    timing: Timing
    def __init__(self, request_id: _Optional[int] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ...) -> None: ...

class Timing(_message.Message):
    __slots__ = ("prepared_us", "admitted_us", "first_token_us", "ended_us", "num_preemptions")
    PREPARED_US_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_US_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_US_FIELD_NUMBER: _ClassVar[int]
    ENDED_US_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    prepared_us: int
    admitted_us: int
    first_token_us: int
    ended_us: int
    num_preemptions: int
    def __init__(self, prepared_us: _Optional[int] = ..., admitted_us: _Optional[int] = ..., first_token_us: _Optional[int] = ..., ended_us: _Optional[int] = ..., num_preemptions: _Optional[int] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "cached_tokens", "completion_tokens")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("request_id", "code", "message", "param", "timing", "exhausted")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    code: FailureCode
    message: str
    param: str
    timing: Timing
    exhausted: bool
    def __init__(self, request_id: _Optional[int] = ..., code: _Optional[_Union[FailureCode, str]] = ..., message: _Optional[str] = ..., param: _Optional[str] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., exhausted: _Optional[bool] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("running_sequences", "waiting_sequences", "uncomputed_tokens", "total_pages", "used_pages", "cached_pages", "prompt_tokens_total", "cached_tokens_total", "generated_tokens_total", "evicted_pages_total", "preemptions_total", "draining", "assigned_tokens", "steps_total")
    RUNNING_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    WAITING_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    UNCOMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_PAGES_FIELD_NUMBER: _ClassVar[int]
    USED_PAGES_FIELD_NUMBER: _ClassVar[int]
    CACHED_PAGES_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    EVICTED_PAGES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STEPS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    running_sequences: int
    waiting_sequences: int
    uncomputed_tokens: int
    total_pages: int
    used_pages: int
    cached_pages: int
    prompt_tokens_total: int
    cached_tokens_total: int
    generated_tokens_total: int
    evicted_pages_total: int
    preemptions_total: int
    draining: bool
    assigned_tokens: int
    steps_total: int
    def __init__(self, running_sequences: _Optional[int] = ..., waiting_sequences: _Optional[int] = ..., uncomputed_tokens: _Optional[int] = ..., total_pages: _Optional[int] = ..., used_pages: _Optional[int] = ..., cached_pages: _Optional[int] = ..., prompt_tokens_total: _Optional[int] = ..., cached_tokens_total: _Optional[int] = ..., generated_tokens_total: _Optional[int] = ..., evicted_pages_total: _Optional[int] = ..., preemptions_total: _Optional[int] = ..., draining: _Optional[bool] = ..., assigned_tokens: _Optional[int] = ..., steps_total: _Optional[int] = ...) -> None: ...

class CacheEvent(_message.Message):
    __slots__ = ("kind", "digest", "num_tokens", "by_another")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[CacheEvent.Kind]
        STORED: _ClassVar[CacheEvent.Kind]
        EVICTED: _ClassVar[CacheEvent.Kind]
        CLEARED: _ClassVar[CacheEvent.Kind]
    KIND_UNSPECIFIED: CacheEvent.Kind
    STORED: CacheEvent.Kind
    EVICTED: CacheEvent.Kind
    CLEARED: CacheEvent.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BY_ANOTHER_FIELD_NUMBER: _ClassVar[int]
    kind: CacheEvent.Kind
    digest: bytes
    num_tokens: int
    by_another: bool
    def __init__(self, kind: _Optional[_Union[CacheEvent.Kind, str]] = ..., digest: _Optional[bytes] = ..., num_tokens: _Optional[int] = ..., by_another: _Optional[bool] = ...) -> None: ...
