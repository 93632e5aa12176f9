"""A server that somebody runs already (vLLM, SGLang, any with OpenAI's API) in our fleet.

    run()   for ever: ask for its models and its load; as long as it answers it is in the fleet
    Door    one HTTP request per ask; the events go where a link's would

Its view is what we sent there, since it tells nothing of its cache; its load is read from its
metrics, where it has some. What it began goes nowhere else once a client has some of it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import msgspec
from msgspec.structs import replace

from gateway.config import ForeignConfig
from gateway.errors import GatewayError, InternalError, WorkerLost
from gateway.fleet.openai_door import call_of, error_of, piece_of
from gateway.fleet.workers import Fleet, NameTaken, WorkerInfo, WorkerLoad
from gateway.request import Ask, Deliver, Done, Event, Failed, Usage
from gateway.telemetry.log import EventLog
from gateway.telemetry.metrics import Telemetry

# How servers call what we read of their load: running and waiting requests.
_GAUGES = {
    "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
}
_MAX_ERROR_BYTES = 64 * 1024
_MAX_LINE_BYTES = 1024 * 1024
_NUMBER = r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
_MOST = 1e9


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class ForeignDoor:
    """Asks over HTTP.

    A server that tells no usage is given one: the tokens that came, and `prompt_tokens == 0`, which
    says that nobody counted the prompt. Whoever bills puts an estimate in its place.
    """

    def __init__(self, client: httpx.AsyncClient, config: ForeignConfig, model: str):
        self._client = client
        self._config = config
        self._model = model
        self._tasks: set[asyncio.Task[None]] = set()

    @contextmanager
    def submit(self, ask: Ask, deliver: Deliver) -> Iterator[None]:
        """As Door.submit. What this server cannot do comes as a failure."""
        task = asyncio.create_task(self._converse(ask, deliver))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            yield
        finally:
            task.cancel()

    async def _converse(self, ask: Ask, deliver: Deliver) -> None:
        """Exactly one end is delivered, unless the task is cancelled."""
        deliver(await self._answered(ask, deliver))

    async def _answered(self, ask: Ask, deliver: Deliver) -> Event:
        """The end of the ask; its outputs are delivered before it."""
        try:
            call = call_of(ask, self._model, self._config.kind)
            return Done(await self._stream(call.path, call.body, deliver))
        except GatewayError as error:
            return Failed(error)
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            return Failed(WorkerLost(f"{self._config.name}: {_reason_of(error)}"))
        except Exception as error:
            return Failed(InternalError(f"{self._config.name}: {error!r}"))

    async def _stream(self, path: str, body: bytes, deliver: Deliver) -> Usage:
        """Deliver the outputs; returns the usage. Raises GatewayError, httpx.HTTPError."""
        usage, num_tokens = Usage(), 0
        headers = {"content-type": "application/json"}
        request = self._client.stream("POST", path, content=body, headers=headers)
        async with request as response:
            if response.status_code != 200:
                raise error_of(response.status_code, await _limited(response))
            async for line in lines_of(response.aiter_bytes()):
                if not line.startswith(b"data:"):
                    continue
                data = line.removeprefix(b"data:").strip()
                if data == b"[DONE]":
                    told = usage.completion_tokens
                    return replace(usage, completion_tokens=told or num_tokens)
                piece = piece_of(data)
                if piece.error is not None:
                    raise WorkerLost(piece.error)
                for output in piece.outputs:
                    num_tokens += output.num_tokens
                    deliver(output)
                usage = piece.usage or usage
        raise WorkerLost("the stream ended early")


async def lines_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of a stream, without their ends.

    A line ends with \\n alone: JSON may hold U+2028 and the like as they are. Raises WorkerLost
    where a line is too long.
    """
    begun: list[bytes] = []
    size = 0
    async for piece in pieces:
        *ended, rest = piece.split(b"\n")
        for line in ended:
            yield b"".join([*begun, line])
            begun, size = [], 0
        begun.append(rest)
        size += len(rest)
        if size > _MAX_LINE_BYTES:
            raise WorkerLost(f"a line of its answer is longer than {_MAX_LINE_BYTES} bytes")
    if begun:
        yield b"".join(begun)


@dataclass(frozen=True, slots=True)
class ForeignContext:
    """What all foreign members of a gateway share."""

    fleet: Fleet
    telemetry: Telemetry
    log: EventLog


class ForeignMember:
    """Keeps one server in the fleet for as long as it answers."""

    def __init__(
        self,
        config: ForeignConfig,
        context: ForeignContext,
        make_client: Callable[[], httpx.AsyncClient],
    ):
        self._config = config
        self._context = context
        self._make_client = make_client
        self._log = context.log.bind(worker=config.name, url=config.url)
        self._last_reason = ""
        self._is_load_unreadable = False
        self._num_failures = 0
        self._incarnation = 0
        context.fleet.expect(config.url)

    async def run(self) -> None:
        """Look for ever, every `poll_s`; gone after `failures` looks in a row that failed."""
        async with self._make_client() as client:
            await self._follow(client)

    async def _follow(self, client: httpx.AsyncClient) -> None:
        fleet, joined = self._context.fleet, False
        telemetry = self._context.telemetry
        try:
            while True:
                info = await self._look(client)
                fleet.heard(self._config.url)
                if info is not None and not joined:
                    joined = self._join(info, client)
                elif info is None and joined and self._num_failures >= self._config.failures:
                    fleet.leave(self._config.name)
                    self._log.warning("worker_left")
                    joined = False
                if joined:
                    fleet.report(self._config.name, await self._load(client))
                telemetry.worker_stands(self._config.name, joined)
                await asyncio.sleep(self._config.poll_s)
        finally:
            telemetry.worker_stands(self._config.name, False)
            if joined:
                fleet.leave(self._config.name)

    async def _look(self, client: httpx.AsyncClient) -> WorkerInfo | None:
        """What it serves; None when it does not answer, or serves nothing that is wanted."""
        try:
            response = await client.get("/v1/models", timeout=self._config.timeout_s)
            response.raise_for_status()
            models = msgspec.json.decode(response.content, type=_Models).data
        except Exception as error:
            self._missed(_reason_of(error))
            return None
        wanted = self._config.model
        found = next((one for one in models if wanted is None or one.id == wanted), None)
        if found is None:
            self._missed(f"it lists no model {wanted!r}" if wanted else "it lists no model")
            return None
        self._num_failures = 0
        return WorkerInfo(
            name=self._config.name,
            incarnation=f"{self._config.url}#{self._incarnation}",
            model=self._config.served_model_name or found.id,
            max_model_len=found.max_model_len or 0,
            prefix_cache="unknown",
            max_running_sequences=self._config.max_running_sequences,
            resumes=False,
        )

    def _missed(self, reason: str) -> None:
        self._num_failures += 1
        self._tell("worker_unreachable", reason)

    def _tell(self, event: str, reason: str) -> None:
        """One reason is told once, not with every look."""
        if reason != self._last_reason:
            self._log.warning(event, reason=reason)
        self._last_reason = reason

    def _join(self, info: WorkerInfo, client: httpx.AsyncClient) -> bool:
        door = ForeignDoor(client, self._config, self._config.model or info.model)
        try:
            self._context.fleet.join(info, door)
        except NameTaken:
            self._tell("name_taken", "another worker has this name")
            return False
        self._incarnation += 1
        self._last_reason = ""
        self._log.info("worker_joined", model=info.model, kind=self._config.kind)
        return True

    async def _load(self, client: httpx.AsyncClient) -> WorkerLoad:
        """Its own account, as far as its metrics give one."""
        gauges = _GAUGES.get(self._config.kind)
        if gauges is None:
            return WorkerLoad()
        try:
            response = await client.get("/metrics", timeout=self._config.timeout_s)
            response.raise_for_status()
            running, waiting = (_gauge(response.text, name) for name in gauges)
        except Exception as error:
            if not self._is_load_unreadable:
                self._log.warning("load_unreadable", reason=_reason_of(error))
            self._is_load_unreadable = True
            return WorkerLoad()
        self._is_load_unreadable = False
        return WorkerLoad(running_sequences=running, waiting_sequences=waiting)


def _gauge(text: str, name: str) -> int:
    """The sum over a gauge's samples in Prometheus' text, without those that are no number."""
    sample = rf"^{re.escape(name)}(?:\{{.*\}})?[ \t]+{_NUMBER}(?![^\s])"
    total = sum(map(float, re.findall(sample, text, re.MULTILINE)))
    return int(min(max(total, 0.0), _MOST))


def _reason_of(error: Exception) -> str:
    """What went wrong, without the key that was sent."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"it answered {error.response.status_code}"
    if isinstance(error, httpx.LocalProtocolError):  # it quotes the header
        return "the request cannot be sent: a header, of the key perhaps, is not well formed"
    return f"{type(error).__name__}: {error}"


async def _limited(response: httpx.Response) -> bytes:
    body = b""
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > _MAX_ERROR_BYTES:
            break
    return body


def client_for(config: ForeignConfig, api_key: str | None) -> httpx.AsyncClient:
    """A client of its own for one server; it takes no proxy from the environment."""
    headers = {"accept-encoding": "identity"}
    if api_key:
        headers["authorization"] = f"Bearer {api_key}"
    timeout = httpx.Timeout(config.timeout_s, read=config.silence_s)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    return httpx.AsyncClient(
        base_url=config.url, headers=headers, timeout=timeout, limits=limits, trust_env=False
    )
