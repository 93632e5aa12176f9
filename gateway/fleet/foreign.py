"""A server that somebody runs already (vLLM, SGLang, any with OpenAI's API) in our fleet.

It is asked again and again for its models and its load; as long as it answers it is in the fleet,
and requests go through its door. Its view is what we sent there, since it tells nothing of its
cache; its load is read from its metrics, where it has some. What it began goes nowhere else once a
client has some of it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx
import msgspec

from gateway.config import ForeignConfig
from gateway.fleet.foreign_door import ForeignDoor, limited, reason_of
from gateway.fleet.workers import Fleet, NameTaken, WorkerInfo, WorkerLoad
from gateway.telemetry.log import EventLog
from gateway.telemetry.metrics import Telemetry

# How servers call what we read of their load: running and waiting requests.
_GAUGES = {
    "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
}
# Of what it tells of itself; the metrics of a large server are some hundred KiB.
_MAX_TOLD_BYTES = 4 * 1024 * 1024
_NUMBER = r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
_MOST = 1e9
# How a server answers to a key that it doesn't take.
_REFUSED_KEY = (401, 403)


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class _TooLong(Exception):
    """It tells more of itself than is read."""


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
        self._num_joins = 0
        self._served: _Model | None = None
        context.fleet.expect(config.url)

    async def run(self) -> None:
        """Look for ever, every `poll_s`; gone after `failures` looks in a row that failed."""
        async with self._make_client() as client:
            await self._follow(client)

    async def _follow(self, client: httpx.AsyncClient) -> None:
        fleet, name = self._context.fleet, self._config.name
        if not fleet.has(name):
            self._context.telemetry.worker_stands(name, False)
        try:
            while True:
                found = await self._look(client)
                fleet.heard(self._config.url)
                self._keep_up(found, client)
                if self._served is not None:
                    fleet.report(name, await self._load(client))
                await asyncio.sleep(self._config.poll_s)
        finally:
            self._leave()

    def _keep_up(self, found: _Model | None, client: httpx.AsyncClient) -> None:
        """It is in the fleet with the model that it serves; not at all if it is gone."""
        if self._served is not None and found is None:
            if self._num_failures >= self._config.failures:
                self._leave()
                self._log.warning("worker_left")
        elif self._served is not None and found != self._served:
            self._log.warning("model_changed", before=self._served.id)
            self._leave()
        if self._served is None and found is not None:
            self._join(found, client)

    async def _look(self, client: httpx.AsyncClient) -> _Model | None:
        """What it serves; None when it does not answer, or serves nothing that is wanted."""
        try:
            told = await self._told(client, "/v1/models")
            models = msgspec.json.decode(told, type=_Models).data
        except Exception as error:
            self._missed(_why(error) + self._about_its_key(error))
            return None
        found = self._wanted(models)
        if found is None:
            wanted = self._config.model
            self._missed(f"it lists no model {wanted!r}" if wanted else "it lists no model")
            return None
        self._num_failures = 0
        return found

    def _wanted(self, models: Sequence[_Model]) -> _Model | None:
        """The model that is configured; else the one it has in the fleet, else the first."""
        wanted = self._config.model
        if wanted is None and self._served is not None:
            wanted = self._served.id
        named = next((one for one in models if one.id == wanted), None)
        if named is None and self._config.model is None:
            return next(iter(models), None)
        return named

    async def _told(self, client: httpx.AsyncClient, path: str) -> bytes:
        """What it answers there. Raises _TooLong, TimeoutError, httpx.HTTPError."""
        async with (
            asyncio.timeout(self._config.timeout_s),
            client.stream("GET", path, timeout=self._config.timeout_s) as response,
        ):
            body = await limited(response, _MAX_TOLD_BYTES)
            if len(body) > _MAX_TOLD_BYTES:
                raise _TooLong(f"its answer to {path} is longer than {_MAX_TOLD_BYTES} bytes")
            response.raise_for_status()
            return body

    def _about_its_key(self, error: Exception) -> str:
        """A clause where the server doesn't take the key, or wants one."""
        if not isinstance(error, httpx.HTTPStatusError):
            return ""
        if error.response.status_code not in _REFUSED_KEY:
            return ""
        variable = self._config.key_variable
        if variable is None:
            return ", and it was sent no key: key_variable names the variable that holds one"
        return f" to the key in {variable}, which key_variable names"

    def _missed(self, reason: str) -> None:
        self._num_failures += 1
        self._tell("worker_unreachable", reason)

    def _tell(self, event: str, reason: str) -> None:
        """One reason is told once, not with every look."""
        if reason != self._last_reason:
            self._log.warning(event, reason=reason)
        self._last_reason = reason

    def _join(self, found: _Model, client: httpx.AsyncClient) -> None:
        config = self._config
        info = WorkerInfo(
            name=config.name,
            incarnation=f"{config.url}#{self._num_joins}",
            model=config.served_model_name or found.id,
            max_model_len=found.max_model_len or 0,
            prefix_cache="unknown",
            max_running_sequences=config.max_running_sequences,
            max_waiting_sequences=config.max_running_sequences,
            resumes=False,
        )
        try:
            self._context.fleet.join(info, ForeignDoor(client, config, found.id))
        except NameTaken:
            self._tell("name_taken", "another worker has this name")
            return
        self._served = found
        self._num_joins += 1
        self._last_reason = ""
        self._context.telemetry.worker_stands(config.name, True)
        self._log.info("worker_joined", model=info.model, kind=config.kind)

    def _leave(self) -> None:
        """It is in the fleet no more, if it was."""
        if self._served is not None:
            self._served = None
            self._context.fleet.leave(self._config.name)
            self._context.telemetry.worker_stands(self._config.name, False)

    async def _load(self, client: httpx.AsyncClient) -> WorkerLoad:
        """Its own account, as far as its metrics give one."""
        gauges = _GAUGES.get(self._config.kind)
        if gauges is None:
            return WorkerLoad()
        try:
            told = (await self._told(client, "/metrics")).decode(errors="replace")
            running, waiting = (_gauge(told, name) for name in gauges)
        except Exception as error:
            if not self._is_load_unreadable:
                self._log.warning("load_unreadable", reason=_why(error))
            self._is_load_unreadable = True
            return WorkerLoad()
        self._is_load_unreadable = False
        return WorkerLoad(running_sequences=running, waiting_sequences=waiting)


def _gauge(text: str, name: str) -> int:
    """The sum over a gauge's samples in Prometheus' text, without those that are no number."""
    sample = rf"^{re.escape(name)}(?:\{{.*\}})?[ \t]+{_NUMBER}(?![^\s])"
    total = sum(map(float, re.findall(sample, text, re.MULTILINE)))
    return int(min(max(total, 0.0), _MOST))


def _why(error: Exception) -> str:
    """What went wrong with a look."""
    if isinstance(error, _TooLong):
        return str(error)
    return "it took too long" if isinstance(error, TimeoutError) else reason_of(error)


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
