"""Runs in a thread of their own: streams, for threads and for event loops, and `arun`."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from pando.errors import ProgramError
from pando.programs.client import Stopper, Tell
from pando.programs.result import Result
from pando.programs.wire import Event

T = TypeVar("T")
Work = Callable[[Tell], Result]


def in_thread(work: Callable[[], T]) -> Future[T]:
    """The work runs in a thread of its own, with the caller's context variables."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # nobody but the run ends it
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(work))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="pando-program", daemon=True).start()
    return future


async def awaited(work: Callable[[], T], stopper: Stopper) -> T:
    """What the work gives; if whoever awaits it is cancelled, so is the run."""
    try:
        return await asyncio.wrap_future(in_thread(work))
    except asyncio.CancelledError:
        stopper.stop()
        raise


class Stream:
    """Events while a program runs; then its result. Closing it, or leaving `with`, ends the run."""

    def __init__(self, work: Work, stopper: Stopper) -> None:
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._stopper = stopper
        self._future = in_thread(lambda: work(self._events.put))
        self._future.add_done_callback(lambda _: self._events.put(None))

    def __iter__(self) -> Iterator[Event]:
        """Raises ProgramError, behind the events that came before."""
        while (event := self._events.get()) is not None:
            yield event
        self._events.put(None)
        self._future.result()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def result(self) -> Result:
        """The run at its end; waits for it. Raises ProgramError."""
        return self._future.result()

    def close(self) -> None:
        """The run is given up if it isn't at its end."""
        self._stopper.stop()


class AsyncStream:
    """As Stream, for an event loop."""

    def __init__(self, work: Work, stopper: Stopper) -> None:
        self._work = work
        self._stopper = stopper
        self._future: asyncio.Future[Result] | None = None

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Runs the program; can be used once. Raises ProgramError."""
        if self._future is not None:
            raise ProgramError("A stream is read once.")
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event | None] = asyncio.Queue()

        def tell(event: Event | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(events.put_nowait, event)

        self._future = asyncio.wrap_future(in_thread(lambda: self._work(tell)))

        def ended(done: asyncio.Future[Result]) -> None:
            if not done.cancelled():
                done.exception()  # is looked at, since who left the stream won't
            events.put_nowait(None)

        self._future.add_done_callback(ended)
        try:
            while (event := await events.get()) is not None:
                yield event
        finally:
            self._stopper.stop()
        await self._future

    @property
    def result(self) -> Result:
        """The run at its end. Raises ProgramError, also before it."""
        if self._future is None or not self._future.done():
            raise ProgramError("The stream isn't at its end.")
        return self._future.result()

    async def aclose(self) -> None:
        """The run is given up if it isn't at its end."""
        self._stopper.stop()
