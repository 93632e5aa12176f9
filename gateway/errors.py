"""What can go wrong, and what the client is told.

    GatewayError
    ├── InvalidRequest            400  the request is at fault, by the field in param
    │   └── ContextLengthExceeded 400  prompt and output do not fit the model's window
    ├── InvalidHTTP               400  what came is no HTTP request
    ├── Unauthenticated           401  no key, or one that nobody holds
    ├── NotFound                  404  no such route
    │   ├── ModelNotFound         404  no such model, or not for this tenant
    │   ├── SessionLost           404  the session that a program goes on from is not kept any more
    │   └── TenantNotFound        404  admin API: no such tenant, or no such key of it
    ├── MethodNotAllowed          405
    ├── BodyTimeout               408  the body stopped coming
    ├── Conflict                  409  admin API: it cannot be changed so, or here
    ├── PreconditionFailed        412  admin API: somebody else changed it
    ├── BodyTooLarge              413
    ├── QueueFull                 429  too many of the tenant's requests wait; with Retry-After
    ├── RateLimited               429  the tenant's quota is used up; when to come back is computed
    ├── HeadTooLarge              431  the request line and headers, or a header behind the body
    ├── ClientGone                499  nobody is left to be told
    ├── InternalError             500  our own fault, or a worker's
    ├── WorkerLost                502  the link to the worker broke
    ├── Unavailable               503  with Retry-After
    │   ├── NoWorker                   none is linked for the model
    │   ├── Overloaded                 the workers' queues are full
    │   │   └── Exhausted              the worker has no memory for it
    │   ├── Draining                   the worker is leaving
    │   ├── ShuttingDown               the gateway is leaving, and waited as long as it may
    │   ├── TenantsUnknown             where tenants are kept cannot be read, so whose key it is
    │   └── StoreUnavailable           admin API: where it is kept cannot be reached
    └── RequestTimeout            504  the answer took longer than it may

Only the 4xx carry their own text to the client. A 5xx says the sentence of the table; what
happened inside stays in the log.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

Headers = tuple[tuple[str, str], ...]


class GatewayError(Exception):
    """A request ends with this. `detail` is for the log, and for the client if below 500.

    retry_after_s: in place of the table's; headers: further ones of the answer.
    """

    retry_after_s: float | None = None
    headers: Headers = ()

    def __init__(self, detail: str = "", *, param: str | None = None, code: str | None = None):
        super().__init__(detail)
        self.detail = detail
        self.param = param
        self.code = code


class InvalidRequest(GatewayError):
    """The request is at fault; param names the field as OpenAI does."""


class ContextLengthExceeded(InvalidRequest):
    """Prompt and output do not fit the model's window."""


class InvalidHTTP(GatewayError):
    """What came is no HTTP request."""


class Unauthenticated(GatewayError):
    """No key, or one that nobody holds."""


class NotFound(GatewayError):
    """No such route."""


class ModelNotFound(NotFound):
    """No such model, or none that this tenant may use: the two are told alike."""

    def __init__(self, model: str):
        super().__init__(
            f"The model '{model}' does not exist or you do not have access to it.", param="model"
        )


class SessionLost(NotFound):
    """The session that a program goes on from has expired, or its worker is gone."""


class TenantNotFound(NotFound):
    """The admin API knows no such tenant, or the tenant no such key."""


class MethodNotAllowed(GatewayError):
    """The route exists, not with this method."""


class BodyTimeout(GatewayError):
    """The body stopped coming."""


class Conflict(GatewayError):
    """What is asked cannot be done to a tenant as it is, or where it is kept."""


class PreconditionFailed(GatewayError):
    """A tenant is not any more what If-Match says."""


class BodyTooLarge(GatewayError):
    """The body is larger than the gateway takes."""


class QueueFull(GatewayError):
    """As many of the tenant's requests wait as it may have waiting."""


class RateLimited(GatewayError):
    """A quota of the tenant, named by param, is used up. retry_after_s None: no wait will do."""

    def __init__(self, detail: str, param: str, retry_after_s: float | None, headers: Headers):
        super().__init__(detail, param=param)
        self.retry_after_s = retry_after_s
        self.headers = headers


class HeadTooLarge(GatewayError):
    """The request line and headers are larger than the gateway takes."""


class ClientGone(GatewayError):
    """The client hung up; nobody is left to be told."""


class InternalError(GatewayError):
    """Our own fault, or a worker's."""


class WorkerLost(GatewayError):
    """The link to the worker broke while the request was there."""


class Unavailable(GatewayError):
    """Nobody takes the request now; a later try may pass."""


class NoWorker(Unavailable):
    """No worker is linked for the model."""


class Overloaded(Unavailable):
    """The worker's queue is full."""


class Exhausted(Overloaded):
    """The worker has no memory, or no threads, for it."""


class Draining(Unavailable):
    """The worker is leaving."""


class ShuttingDown(Unavailable):
    """The gateway is leaving, and what ran had its time."""


class TenantsUnknown(Unavailable):
    """Where tenants are kept was never read, so nobody knows whose key it is."""


class StoreUnavailable(Unavailable):
    """Where it is kept cannot be reached."""


class RequestTimeout(GatewayError):
    """The answer took longer than it may."""


@dataclass(frozen=True, slots=True)
class Face:
    """How a kind of error looks from outside. sentence: told in place of the error's own text."""

    status: int
    type: str
    code: str | None
    sentence: str | None = None
    retry_after_s: int | None = None


FACES: dict[type[GatewayError], Face] = {
    InvalidRequest: Face(400, "invalid_request_error", "invalid_value"),
    ContextLengthExceeded: Face(400, "invalid_request_error", "context_length_exceeded"),
    InvalidHTTP: Face(
        400, "invalid_request_error", "invalid_http", "What came is not a valid HTTP/1.1 request."
    ),
    Unauthenticated: Face(401, "invalid_request_error", "invalid_api_key"),
    NotFound: Face(404, "invalid_request_error", "unknown_url"),
    SessionLost: Face(404, "invalid_request_error", "session_lost"),
    ModelNotFound: Face(404, "invalid_request_error", "model_not_found"),
    TenantNotFound: Face(404, "invalid_request_error", "tenant_not_found"),
    MethodNotAllowed: Face(405, "invalid_request_error", "method_not_allowed"),
    BodyTimeout: Face(408, "invalid_request_error", "body_timeout"),
    Conflict: Face(409, "invalid_request_error", "conflict"),
    PreconditionFailed: Face(412, "invalid_request_error", "tenant_changed"),
    BodyTooLarge: Face(413, "invalid_request_error", "request_too_large"),
    QueueFull: Face(429, "rate_limit_error", "queue_full", retry_after_s=1),
    RateLimited: Face(429, "rate_limit_error", "rate_limit_exceeded"),
    HeadTooLarge: Face(
        431, "invalid_request_error", "head_too_large", "The request's headers are too large."
    ),
    ClientGone: Face(499, "client_error", "client_closed", "The client closed the connection."),
    InternalError: Face(
        500, "server_error", "internal_error", "The server had an error. Please try again."
    ),
    WorkerLost: Face(
        502, "server_error", "worker_lost", "The worker that served this request was lost."
    ),
    NoWorker: Face(
        503, "server_error", "no_worker", "No worker can serve this model right now.", 1
    ),
    Overloaded: Face(
        503, "server_error", "overloaded", "The workers are at capacity. Please try again.", 1
    ),
    Exhausted: Face(
        503, "server_error", "overloaded", "The workers are at capacity. Please try again.", 1
    ),
    Draining: Face(
        503, "server_error", "draining", "The worker is shutting down. Please try again.", 1
    ),
    ShuttingDown: Face(
        503, "server_error", "shutting_down", "The gateway is shutting down. Please try again.", 1
    ),
    TenantsUnknown: Face(
        503, "server_error", "tenants_unknown", "API keys cannot be checked right now.", 2
    ),
    StoreUnavailable: Face(
        503, "server_error", "store_unavailable", "The tenants' store cannot be reached.", 2
    ),
    RequestTimeout: Face(
        504, "server_error", "request_timeout", "The request took longer than it may."
    ),
}


class ErrorObject(msgspec.Struct, frozen=True):
    """OpenAI's error object."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True):
    """What stands in an error response, and in an error event of a stream."""

    error: ErrorObject


def face_of(error: GatewayError) -> Face:
    """The table's row for an error."""
    return FACES[type(error)]


def retry_after_s(error: GatewayError) -> float | None:
    """When the client may come back, seconds; None: nobody can say."""
    return face_of(error).retry_after_s if error.retry_after_s is None else error.retry_after_s


def public_body(error: GatewayError) -> ErrorBody:
    """What the client is told: never the inside of a 5xx."""
    face = face_of(error)
    message = error.detail if face.sentence is None else face.sentence
    param = None if face.status >= 500 else error.param  # a worker may have named it
    return ErrorBody(ErrorObject(message, face.type, param, error.code or face.code))
