"""What can go wrong in a worker, and the name under which a gateway hears of it.

    WorkerError
    ├── RequestFailed               ends one request with one failure
    │   ├── InvalidRequest          the client's fault; names the field
    │   │   └── ChatUnsupported     the model has no chat template
    │   ├── ContextLengthExceeded   the prompt leaves no room for a token, or for max_tokens
    │   │   └── InputTooLong        nothing is generated, and it is too long by itself
    │   ├── Overloaded              the queue is full; another worker may take it
    │   │   └── Exhausted           memory or threads are used up; another worker may take it
    │   ├── Draining                the worker is leaving; another worker may take it
    │   ├── Cancelled               the gateway took it back
    │   └── InternalError           a defect of ours; its message says nothing of the inside
    ├── ModelUnavailable            the model can't be found, converted or run: no start
    └── EngineBroken                a defect ended the engine: the process ends
        └── RankLost                a rank of a split model is gone, or out of step with the others

`FAILURE_CODES` is the one table from an error to its name in the contract (`FailureCode`);
only the link turns the name into a number.
"""

from __future__ import annotations


class WorkerError(Exception):
    """Any error of ours."""


class ModelUnavailable(WorkerError):
    """The model cannot be found, converted or run. The message says what to do."""


class EngineBroken(WorkerError):
    """A defect of ours ended the engine's loop. The log has it."""

    def __init__(self) -> None:
        super().__init__("The engine was ended by an error of its own; the log above has it.")


class RankLost(EngineBroken):
    """One of the processes over which the model is split is lost, and so is the worker."""

    def __init__(self, what: str) -> None:
        WorkerError.__init__(self, f"{what} A model over several ranks can't go on without one.")


class RequestFailed(WorkerError):
    """Ends one request. `message` is a sentence for the client, `param` the field at fault."""

    def __init__(self, message: str, param: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidRequest(RequestFailed):
    """The request itself is wrong; no worker would take it."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message, param)


class ChatUnsupported(InvalidRequest):
    """The model has no chat template."""

    def __init__(self) -> None:
        super().__init__(
            "messages",
            "This model has no chat template, so chat is not supported; send a plain completion.",
        )


class ContextLengthExceeded(RequestFailed):
    """The prompt is longer than the model's window allows, or leaves less room than is asked for.

    num_tokens: the prompt's, or words for it. max_tokens: where the room is what lacks.
    """

    def __init__(
        self,
        num_tokens: int | str,
        max_model_len: int,
        param: str = "messages",
        max_tokens: int | None = None,
    ) -> None:
        asked = "" if max_tokens is None else f" and max_tokens is {max_tokens}"
        super().__init__(
            f"The prompt has {num_tokens} tokens{asked}; prompt and output together may have "
            f"at most {max_model_len}.",
            param,
        )


class InputTooLong(ContextLengthExceeded):
    """A text or a pair is longer than the model takes. what: which of the two."""

    def __init__(self, what: str, num_tokens: int | str, max_model_len: int, param: str) -> None:
        RequestFailed.__init__(
            self,
            f"The {what} has {num_tokens} tokens; this model takes at most {max_model_len}.",
            param,
        )


class Overloaded(RequestFailed):
    """The worker's queue is full."""

    def __init__(self) -> None:
        super().__init__("The worker's queue is full.")


class Exhausted(Overloaded):
    """The machine gives the worker no more memory, or no more threads."""

    def __init__(self) -> None:
        RequestFailed.__init__(self, "The worker has no memory left for this request.")


class Draining(RequestFailed):
    """The worker is leaving and takes nothing new."""

    def __init__(self) -> None:
        super().__init__("The worker is shutting down.")


class SessionLost(RequestFailed):
    """What a program goes on from is not kept any more."""

    def __init__(self) -> None:
        super().__init__(
            "The session has expired, or its worker was started again; send the program from its "
            "beginning.",
            "session",
        )


class Cancelled(RequestFailed):
    """The gateway took the request back."""

    def __init__(self) -> None:
        super().__init__("The request was cancelled.")


class InternalError(RequestFailed):
    """A defect of ours. What happened is logged, never sent."""

    def __init__(self) -> None:
        super().__init__("The worker failed on this request.")


FAILURE_CODES: dict[type[RequestFailed], str] = {
    InvalidRequest: "INVALID_REQUEST",
    SessionLost: "SESSION_LOST",
    ChatUnsupported: "INVALID_REQUEST",
    ContextLengthExceeded: "CONTEXT_LENGTH_EXCEEDED",
    InputTooLong: "CONTEXT_LENGTH_EXCEEDED",
    Overloaded: "OVERLOADED",
    Exhausted: "OVERLOADED",
    Draining: "DRAINING",
    Cancelled: "CANCELLED",
    InternalError: "INTERNAL",
}


def failure_code(error: RequestFailed) -> str:
    """Returns the contract's name for the error; a kind without a row is INTERNAL."""
    return FAILURE_CODES.get(type(error), "INTERNAL")


# How torch, CPython and the operating system say it, where they raise no MemoryError.
_EXHAUSTED = ("out of memory", "not enough memory", "allocate memory", "can't start new thread")


def failure_of(error: BaseException) -> RequestFailed:
    """Returns what a request ends with for which this was raised.

    Raises the error again if it is none: a task is cancelled, or the process is to end. A panic of
    a library in Rust is one, though it is no Exception.
    """
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error
    text = str(error)
    if isinstance(error, MemoryError) or any(words in text for words in _EXHAUSTED):
        return Exhausted()
    return InternalError()
