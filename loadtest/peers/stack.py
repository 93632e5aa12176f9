"""The floor under our gateway: uvicorn and one gRPC stream to each worker, and nothing else.

Every request is the same Submit, answered when the worker is done with it; no JSON is read, no
tenant known, nothing counted. What our gateway costs beyond it is our own code.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio
import uvicorn

from proto import worker_pb2 as pb
from proto import worker_pb2_grpc as rpc

PROTOCOL = 1
_ANSWER = b"x" * 600
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"600")]


class Stack:
    """The ASGI application."""

    def __init__(self, workers: list[str]):
        self._workers = workers
        self._ids = itertools.count(1)
        self._open: dict[int, asyncio.Future[None]] = {}
        self._outboxes: list[asyncio.Queue[pb.ToWorker]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer one request, or begin."""
        await receive()
        if scope["type"] == "lifespan":
            for worker in self._workers:
                await self._link(worker)
            await send({"type": "lifespan.startup.complete"})
            return
        await self._asked()
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": _ANSWER})

    async def _asked(self) -> None:
        request_id = next(self._ids)
        ended = self._open[request_id] = asyncio.get_running_loop().create_future()
        outbox = self._outboxes[request_id % len(self._outboxes)]
        outbox.put_nowait(pb.ToWorker(submit=_submit(request_id)))
        await ended

    async def _link(self, worker: str) -> None:
        call = rpc.WorkerStub(grpc.aio.insecure_channel(worker)).Link()
        await call.write(pb.ToWorker(hello=pb.GatewayHello(protocol=PROTOCOL, gateway="stack")))
        await call.read()
        outbox: asyncio.Queue[pb.ToWorker] = asyncio.Queue()
        self._outboxes.append(outbox)
        works = (self._read(call), self._write(call, outbox))
        self._tasks += [asyncio.create_task(work) for work in works]

    async def _read(self, call: Any) -> None:
        while True:
            message = await call.read()
            for done in message.step.done:
                self._open.pop(done.request_id).set_result(None)

    async def _write(self, call: Any, outbox: asyncio.Queue[pb.ToWorker]) -> None:
        while True:
            await call.write(await outbox.get())


def _submit(request_id: int) -> pb.Submit:
    return pb.Submit(
        request_id=request_id,
        trace_id="stack",
        tenant="stack",
        chat=pb.ChatPrompt(messages=b'[{"role":"user","content":"Hi"}]'),
        stopping=pb.Stopping(max_tokens=16),
        n=1,
    )


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.peers.stack")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--worker", action="append", required=True, metavar="HOST:PORT")
    given = parser.parse_args()
    app = Stack(given.worker)
    uvicorn.run(app, host="127.0.0.1", port=given.port, access_log=False, ws="none")


if __name__ == "__main__":
    main()
