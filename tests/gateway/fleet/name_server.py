"""A small DNS server: one name whose addresses change, and the ways in which a real one fails."""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Mode = Literal["answers", "nxdomain", "servfail", "silent"]
_A, _AAAA = 1, 28
_RCODES = {"answers": 0, "servfail": 2, "nxdomain": 3}
_RESPONSE, _TRUNCATED = 0x8180, 0x0200
# What a datagram may hold without EDNS, which glibc does not ask for (RFC 1035, 4.2.1).
_MAX_UDP = 512
_TTL_S = 5


@dataclass
class NameServer:
    """Answers for one name on a port of 127.0.0.1; for any other there is none.

    The test writes addresses, mode and serves_tcp; asked counts questions by transport.
    """

    name: str
    addresses: Iterable[str] = ()
    mode: Mode = "answers"
    serves_tcp: bool = True
    asked: Counter[str] = field(default_factory=Counter)

    async def start(self, port: int) -> None:
        """It listens, over UDP and TCP."""
        loop = asyncio.get_running_loop()
        place = ("127.0.0.1", port)
        self._udp, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), place)
        self._tcp = await asyncio.start_server(self._converse, *place)

    async def stop(self) -> None:
        """It listens no more."""
        self._udp.close()
        self._tcp.close()
        await self._tcp.wait_closed()

    def answer(self, question: bytes, max_bytes: int | None = None) -> bytes | None:
        """The response's bytes, cut where it is longer than that; None: none is given."""
        if self.mode == "silent":
            return None
        name, end = _name(question, 12)
        [kind] = struct.unpack_from(">H", question, end)
        asked = question[12 : end + 4]
        code = _RCODES[self.mode]
        records = []
        if name != self.name:
            code = code or _RCODES["nxdomain"]
        elif not code:
            records = [_record(one, kind) for one in self.addresses if _kind(one) == kind]
        body = b"".join(records)
        cut = max_bytes is not None and 12 + len(asked) + len(body) > max_bytes
        flags = _RESPONSE | code | (_TRUNCATED if cut else 0)
        head = question[:2] + struct.pack(">5H", flags, 1, 0 if cut else len(records), 0, 0)
        return head + asked + (b"" if cut else body)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: each message behind its length (RFC 1035, 4.2.2)."""
        try:
            while self.serves_tcp:
                [length] = struct.unpack(">H", await reader.readexactly(2))
                self.asked["tcp"] += 1
                answer = self.answer(await reader.readexactly(length))
                if answer is not None:
                    writer.write(struct.pack(">H", len(answer)) + answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: NameServer):
        self._server = server

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._server.asked["udp"] += 1
        answer = self._server.answer(data, _MAX_UDP)
        if answer is not None:
            self._transport.sendto(answer, addr)


def _name(message: bytes, start: int) -> tuple[str, int]:
    """The name that stands there, and where it ends."""
    labels = []
    while length := message[start]:
        labels.append(message[start + 1 : start + 1 + length].decode().lower())
        start += 1 + length
    return ".".join(labels), start + 1


def _kind(address: str) -> int:
    return _A if ipaddress.ip_address(address).version == 4 else _AAAA


def _record(address: str, kind: int) -> bytes:
    """A resource record of the name that was asked for."""
    packed = ipaddress.ip_address(address).packed
    return struct.pack(">3HIH", 0xC00C, kind, 1, _TTL_S, len(packed)) + packed
