"""The link to one worker: connect, greet, converse, and again, for as long as it is wanted.

While a session lasts its worker is in the fleet; when it breaks, the worker leaves and each of its
requests ends with one WorkerLost. A worker whose engine hung comes back when it computes again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gateway.config import WorkerConfig
from gateway.errors import WorkerLost
from gateway.fields import is_name
from gateway.fleet import wire
from gateway.fleet.channel import channel_to
from gateway.fleet.ledger import Ledger
from gateway.fleet.session import Call, LinkBroken, LinkContext, Session, breaking, next_message
from gateway.fleet.workers import NameTaken, WorkerInfo
from proto import worker_pb2 as pb
from proto import worker_pb2_grpc

PROTOCOL = 1


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """How a link is. label: its worker's name, or address; reason: why it broke the last time."""

    label: str
    address: str
    stands: bool
    reason: str


class WorkerLink:
    """Keeps a session with the worker at one address, for as long as `run` runs.

    target: who is looked for there, from the next attempt on.
    """

    def __init__(self, target: WorkerConfig, context: LinkContext):
        self.target = self._target = target
        self._context = context
        self._label = target.name or target.address
        self._log = context.log.bind(worker=self._label, address=target.address)
        self._incarnation = ""
        self._name = ""
        self._hung: tuple[str, int] | None = None
        self._last_reason = ""
        self._stands = False
        self.wanted = True
        context.fleet.expect(target.address)
        context.telemetry.worker_expected(self._label)

    @property
    def status(self) -> LinkStatus:
        """How it is now."""
        name = self._name or self._label
        return LinkStatus(name, self._target.address, self._stands, self._last_reason)

    async def run(self) -> None:
        """Connect, converse, and again after a pause that grows while it does not hold.

        Returns once it is not `wanted` and does not stand.
        """
        settings, clock = self._context.settings, self._context.telemetry.clock
        pause = settings.backoff_min_s
        while self.wanted:
            self._aim()
            began = clock()
            reason = await self._attempt()
            self._context.fleet.heard(self._target.address)
            self._context.telemetry.link_breaks.labels(self._label, reason).inc()
            if clock() - began > settings.backoff_max_s:
                pause = settings.backoff_min_s
            await asyncio.sleep(pause * self._context.chance.uniform(0.5, 1.0))
            pause = min(pause * 1.6, settings.backoff_max_s)
        self._forget()

    def _aim(self) -> None:
        """The attempt is for the present target; who was looked for before is given up."""
        if self.target == self._target:
            return
        self._forget()
        self._target, self._name, self._last_reason = self.target, "", ""
        self._label = self._target.name or self._target.address
        self._log = self._context.log.bind(worker=self._label, address=self._target.address)
        self._context.telemetry.worker_expected(self._label)

    def _forget(self) -> None:
        """It is given up for good, and so is what was counted under its names."""
        for name in {self._label, self._name}:
            self._context.telemetry.worker_given_up(name)

    async def _attempt(self) -> str:
        """One connection from start to end; the reason it ended."""
        channel = channel_to(self._target.address, self._context.encryption)
        try:
            async with channel:
                call: Call = worker_pb2_grpc.WorkerStub(channel).Link()
                await self._serve(call, await self._greet(call))
        except LinkBroken as broken:
            self._tell(broken)
            return broken.reason
        except Exception:
            self._log.exception("link_failed")
            return "internal"
        raise AssertionError("a session ends by an exception")

    def _tell(self, broken: LinkBroken) -> None:
        """A worker that stays away is told of once, not with every attempt."""
        write = self._log.debug if broken.reason == self._last_reason else self._log.warning
        self._last_reason = broken.reason
        write("link_broken", reason=broken.reason, detail=str(broken))

    async def _greet(self, call: Call) -> pb.WorkerHello:
        """Exchange hellos. Raises LinkBroken."""
        hello = pb.GatewayHello(protocol=PROTOCOL, gateway=self._context.gateway)
        try:
            async with asyncio.timeout(self._context.settings.hello_timeout_s):
                with breaking("unreachable"):
                    await call.write(pb.ToWorker(hello=hello))
                message = await next_message(call)
        except TimeoutError as error:
            raise LinkBroken("no_hello") from error
        if message.WhichOneof("kind") != "hello" or message.hello.protocol != PROTOCOL:
            raise LinkBroken("protocol", f"want a hello of protocol {PROTOCOL}")
        info = wire.info_of(message.hello)
        if not is_name(info.name) or self._target.name not in (None, info.name):
            raise LinkBroken("name", f"it calls itself {info.name!r:.200}")
        return message.hello

    async def _serve(self, call: Call, hello: pb.WorkerHello) -> None:
        """The worker is in the fleet for as long as the session lasts. Raises LinkBroken."""
        context, info = self._context, wire.info_of(hello)
        session = Session(call, info.name, context)
        await self._trust(session, info.incarnation)
        try:
            worker = context.fleet.join(info, session)
        except NameTaken as error:
            raise LinkBroken("name", f"{info.name!r} is linked already") from error
        session.open(Ledger(worker.view), hello)
        self._joined(info)
        self._stands = True
        try:
            await session.converse()
        except LinkBroken as broken:
            if broken.reason == "wedged":
                self._hung = info.incarnation, session.steps_total
            raise
        finally:
            self._stands = False
            context.telemetry.worker_stands(info.name, False)
            context.fleet.leave(info.name)
            session.close(WorkerLost(f"the link to {info.name} broke"))
            call.cancel()

    async def _trust(self, session: Session, incarnation: str) -> None:
        """The process is not one that hung, or is at work again. Raises LinkBroken."""
        if self._hung is not None and self._hung[0] == incarnation:
            self._context.fleet.heard(self._target.address)
            await session.prove(self._hung[1])
        self._hung = None

    def _joined(self, info: WorkerInfo) -> None:
        """Tell of it. What stands at the address may call itself otherwise than before."""
        telemetry = self._context.telemetry
        self._context.fleet.heard(self._target.address)
        self._last_reason = ""
        if info.name != self._name:
            telemetry.worker_given_up(self._name)
        self._name = info.name
        telemetry.worker_stands(info.name, True)
        if info.incarnation != self._incarnation:
            self._incarnation = info.incarnation
            telemetry.incarnations.labels(info.name).inc()
        self._log.info(
            "worker_joined", name=info.name, model=info.model, incarnation=info.incarnation
        )
