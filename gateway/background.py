"""What works beside the requests, for as long as the application lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from gateway.telemetry.log import EventLog

Work = Callable[[], Awaitable[None]]
Context = Callable[[], AbstractAsyncContextManager[None]]


def around(contexts: Sequence[Context]) -> Callable[[object], AbstractAsyncContextManager[None]]:
    """A lifespan within all the contexts, the first one outermost."""

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for context in contexts:
                await stack.enter_async_context(context())
            yield

    return lifespan


@asynccontextmanager
async def running(
    works: Sequence[Work], close: Callable[[], Awaitable[None]], log: EventLog
) -> AsyncIterator[None]:
    """The works run, each begun again when it fails; close: what comes after their end."""
    tasks = [asyncio.create_task(for_ever(work, log)) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await close()


async def for_ever(work: Work, log: EventLog) -> None:
    """A background work that fails is told of and begun again."""
    inner = getattr(work, "func", work)
    while True:
        try:
            await work()
        except Exception:
            log.exception("background_failed", work=getattr(inner, "__qualname__", ""))
        await asyncio.sleep(1.0)
