"""Speaks to a gateway over HTTP: one implementation for threads and for event loops.

Requests run on an event loop in a thread of the library's own. Whoever waits for one can give it up
from another thread: the request is cancelled, which hangs up, which ends the program in its worker.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

from pando.errors import ProgramError, Stopped
from pando.programs.wire import (
    Answer,
    Event,
    NodeTrace,
    event_data,
    parsed,
    read_answer,
    read_error,
    read_event,
)

if TYPE_CHECKING:
    import httpx

DEFAULT_BASE_URL = "http://127.0.0.1:8000"
MAX_PAUSE_S = 30.0
T = TypeVar("T")
Tell = Callable[[Event], None]


class _Loop:
    """An event loop in a daemon thread, from the first use on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = self._loop.run_forever
                threading.Thread(target=run, name="pando-http", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)


_loop = _Loop()


class Stopper:
    """One run's: waits for requests, and lets another thread give the run up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: Future[Any] | None = None
        self._is_stopped = False

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work gives. Raises Stopped."""
        with self._lock:
            if self._is_stopped:
                work.close()
                raise Stopped
            future = _loop.submit(work)
            self._current = future
        try:
            return future.result()
        except CancelledError:
            raise Stopped from None
        finally:
            future.cancel()  # for an interrupt from the keyboard

    def stop(self) -> None:
        """The run ends now, with Stopped."""
        with self._lock:
            self._is_stopped = True
            if self._current is not None:
                self._current.cancel()


class Client:
    """A gateway, and as whom and with which model it is asked.

    base_url, api_key, model: if not given, the environment's PANDO_BASE_URL, PANDO_API_KEY and
    PANDO_MODEL; then this machine's gateway, no key, and the only model that it serves. timeout:
    seconds without a byte. max_retries: where the gateway says 429 or 503, or can't be reached.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        model: str | None = None,
        *,
        timeout: float = 600.0,
        max_retries: int = 2,
    ) -> None:
        url = base_url or os.environ.get("PANDO_BASE_URL") or DEFAULT_BASE_URL
        self.base_url = url.rstrip("/").removesuffix("/v1")
        self.model = model or os.environ.get("PANDO_MODEL")
        self._key = api_key or os.environ.get("PANDO_API_KEY")
        self._timeout = timeout
        self._max_retries = max_retries
        self._http: httpx.AsyncClient | None = None
        self._dropped: set[Future[Answer]] = set()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Its connections are closed; the next request opens new ones."""
        wait(tuple(self._dropped), timeout=5.0)
        http, self._http = self._http, None
        if http is not None:
            _loop.submit(http.aclose()).result()

    def ask(self, body: dict[str, Any], stopper: Stopper, tell: Tell | None) -> Answer:
        """Runs a program. tell: gets its events while it runs, in a thread of the library's.

        Raises ProgramError.
        """
        return stopper.wait(self._ask(body, tell))

    def model_for(self, stopper: Stopper) -> str:
        """The client's model, or the only one that the gateway serves. Raises ProgramError."""
        if self.model is None:
            self.model = stopper.wait(self._only_model())
        return self.model

    def drop(self, body: dict[str, Any]) -> None:
        """Sends without waiting; what comes of it doesn't matter."""
        future = _loop.submit(self._ask(body, None))
        self._dropped.add(future)
        future.add_done_callback(self._dropped.discard)

    async def _ask(self, body: dict[str, Any], tell: Tell | None) -> Answer:
        import httpx

        request = {**body, "stream": tell is not None}
        try:
            for attempt in range(self._max_retries + 1):
                answer = await self._once(request, tell, is_last=attempt == self._max_retries)
                if isinstance(answer, Answer):
                    return answer
                await asyncio.sleep(answer)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        raise AssertionError("the last attempt returns or raises")

    async def _once(
        self, body: dict[str, Any], tell: Tell | None, *, is_last: bool
    ) -> Answer | float:
        """The answer, or for how long to wait before the next attempt."""
        import httpx

        try:
            url = f"{self.base_url}/v1/programs"
            async with self._client().stream("POST", url, json=body) as response:
                if _is_worth_a_retry(response) and not is_last:
                    await response.aread()
                    return _pause_s(response)
                if not response.is_success:
                    raise read_error(response.status_code, parsed(await response.aread()))
                if tell is None:
                    return self._whole(await response.aread())
                return await self._events(response, tell)
        except httpx.ConnectError:
            if is_last:
                raise
            return 0.2

    def _whole(self, body: bytes) -> Answer:
        told = parsed(body)
        if not isinstance(told, dict) or not isinstance(told.get("variables"), dict):
            raise ProgramError(f"{self.base_url} doesn't answer as a gateway of Pando does.")
        return read_answer(told)

    async def _events(self, response: httpx.Response, tell: Tell) -> Answer:
        nodes: list[NodeTrace] = []
        async for data in event_data(response.aiter_bytes()):
            told = parsed(data)
            event = read_event(told) if isinstance(told, dict) else None
            if isinstance(event, Answer):
                event.nodes = nodes
                return event
            if event is not None:
                tell(event)
                nodes += [event.node] if event.node is not None else []
        raise ProgramError("The stream ended before its program did.", code="stream_cut")

    async def _only_model(self) -> str:
        import httpx

        try:
            response = await self._client().get(f"{self.base_url}/v1/models")
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        told = parsed(response.content)
        if not response.is_success:
            raise read_error(response.status_code, told)
        names = [model["id"] for model in told["data"]]
        if len(names) != 1:
            listed = ", ".join(names) or "none"
            raise ProgramError(f"Name a model (model=...): {self.base_url} serves {listed}.")
        return str(names[0])

    def _client(self) -> httpx.AsyncClient:
        """Only the loop's thread comes here."""
        import httpx

        if self._http is None:
            headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
            timeout = httpx.Timeout(self._timeout, connect=10.0)
            limits = httpx.Limits(max_connections=None)
            self._http = httpx.AsyncClient(headers=headers, timeout=timeout, limits=limits)
        return self._http

    def _unreachable(self, error: Exception) -> ProgramError:
        reason = str(error) or type(error).__name__
        return ProgramError(
            f"The gateway at {self.base_url} can't be asked: {reason}. Where it is, base_url (a "
            "command's --base-url) or PANDO_BASE_URL says."
        )


def _is_worth_a_retry(response: httpx.Response) -> bool:
    """Whether the gateway may take it later. It says so where it never will (a quota's size)."""
    may_later = response.headers.get("x-should-retry") != "false"
    return response.status_code in (429, 503) and may_later


def _pause_s(response: httpx.Response) -> float:
    try:
        wished = float(response.headers.get("retry-after", "1"))
    except ValueError:
        wished = 1.0
    return min(max(wished, 0.0), MAX_PAUSE_S)


class _Default:
    """The client of runs that name none."""

    client: Client | None = None


def set_default_client(client: Client | None) -> None:
    """Runs that name no client use this one; None: one from the environment."""
    _Default.client = client


def default_client() -> Client:
    """The client of runs that name none."""
    if _Default.client is None:
        _Default.client = Client()
    return _Default.client
