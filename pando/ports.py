"""Ports of this machine: which are free, which are listened on, and the URL behind one."""

from __future__ import annotations

import os
import random
import socket
from contextlib import ExitStack, suppress

from pando.errors import StartFailed

QUIET_PORTS = range(15_000, 32_000)
SPARE_TRIES = 200


def refuse_taken_port(host: str, port: int) -> None:
    """Raises StartFailed when something listens there already, or the address isn't ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            pass
    except OSError as error:
        raise StartFailed(
            f"Port {port} on {host} can't be listened on ({os.strerror(error.errno or 0)}): "
            "choose another one with --port, or end what uses it."
        ) from error


def free_ports(count: int) -> list[int]:
    """Returns so many ports of 127.0.0.1 on which nothing listens, all different.

    They are drawn from below those that systems give to outgoing connections, which could take one
    before it is listened on. Raises StartFailed where too few are free.
    """
    found: list[int] = []
    with ExitStack() as stack:
        for port in random.SystemRandom().sample(QUIET_PORTS, count + SPARE_TRIES):
            if len(found) == count:
                break
            with suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
    if len(found) < count:
        raise StartFailed(
            f"Of {count + SPARE_TRIES} ports of 127.0.0.1 that were tried, too few are free."
        )
    return found


def client_url(host: str, port: int) -> str:
    """Returns the URL under which this machine reaches a server that listens there."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


def listens(address: str) -> bool:
    """Whether something accepts connections at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1.0):
            return True
    except OSError:
        return False
