"""A gateway process before fake workers, and what can be made to happen to them.

w0, w1     caches that hold everything     w2   a small cache
w3, w4     take their time, and begin anew when they are told to
w5         has no cache
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec

from loadtest.client import Client
from loadtest.errors import RequestRefused
from loadtest.faults.fleet import BARE, SLOW
from loadtest.faults.planted import RENAME, RESTART
from loadtest.parts import PartsWish, running
from loadtest.starting import wait_until
from pando.children import Child, Children
from pando.ports import free_ports, listens
from pando.up import ROOT, num_linked

MODEL = "fake-model"
START_TIMEOUT_S = 60.0
TENANTS: dict[str, dict[str, object]] = {
    "plain": {"policy": {"name": "dedicated", "workers": ["w0"]}},
    "pinned": {"policy": {"name": "dedicated", "workers": ["w2"]}},
    "in_turn": {"policy": {"name": "round_robin"}},
    "moved": {"policy": {"name": "dedicated", "workers": ["w0"]}},
    "elsewhere": {},
}
# Tenants of recorded sessions with a fault: each case has one of its own.
REAL_TENANTS = tuple(f"real{number}" for number in range(400))
_ADMIN_KEY = "pnd-loadtest-doctor-admin"
_QUICK = ("--tick-ms", "0", "--prefill-tokens-s", "1e9")
# What is started: the number of the first worker, how many, and flags.
_WORKERS: tuple[tuple[int, int, tuple[str, ...]], ...] = (
    (0, 2, ("--cache-tokens", "100000000", *_QUICK)),
    (2, 1, ("--cache-tokens", "160000", *_QUICK)),
    (3, 2, ("--model", SLOW, "--tick-ms", "10", "--prefill-tokens-s", "30000")),
    (5, 1, ("--model", BARE, "--prefix-cache", "off", *_QUICK)),
)
_RESTARTED = 3


@dataclass(frozen=True, slots=True)
class Target:
    """A gateway, and what to ask it for. events: what can be made to happen, by name."""

    url: str
    model: str = MODEL
    events: Mapping[str, Callable[[], None]] = field(default_factory=dict)


def key_of(tenant: str) -> str:
    """The tenant's API key."""
    return f"pnd-loadtest-doctor-{tenant}"


def gateway_settings() -> dict[str, object]:
    """A doctor that looks at everything."""
    return {
        "doctor": {"examinations_per_s": 100_000, "remember": 200_000},
        "log_level": "warning",
        "link": {"backoff_max_s": 0.2},
    }


def tenants(names: Mapping[str, Mapping[str, object]]) -> list[dict[str, object]]:
    """Their settings; each may see what is found."""
    return [
        {"id": name, "namespace": name, "debug": True, "keys": [_digest(key_of(name))], **more}
        for name, more in names.items()
    ]


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


class _House:
    """The processes. One event at a time is made to happen, and is over when a call returns."""

    def __init__(self, children: Children, folder: Path, http: httpx.Client):
        self._children = children
        self._http = http
        *self._ports, port, admin = free_ports(sum(count for _, count, _ in _WORKERS) + 2)
        self.url = f"http://127.0.0.1:{port}"
        self._admin_url = f"http://127.0.0.1:{admin}"
        self._started = {first: self._start(first) for first, _, _ in _WORKERS}
        self._wait(lambda: all(listens(f"127.0.0.1:{one}") for one in self._ports))
        file = folder / "gateway.json"
        file.write_bytes(msgspec.json.encode(self._settings(folder, port, admin)))
        children.start("gateway", [sys.executable, "-m", "gateway", "--config", str(file)])
        self._wait(self._all_linked)

    def restart(self) -> None:
        """Those that may be are another process, and the gateway knows."""
        self._children.end(self._started[_RESTARTED], grace_s=0.0)
        self._wait(lambda: not self._all_linked())
        self._started[_RESTARTED] = self._start(_RESTARTED)
        self._wait(self._all_linked)

    def rename(self) -> None:
        """The tenant that may be moved has another namespace. Raises RequestRefused."""
        answer = self._http.patch(
            f"{self._admin_url}/admin/tenants/moved",
            json={"namespace": "moved-on"},
            headers={"authorization": f"Bearer {_ADMIN_KEY}"},
        )
        if answer.is_error:
            raise RequestRefused(f"HTTP {answer.status_code}: {answer.text}")

    def _start(self, first: int) -> Child:
        count, flags = next((count, flags) for one, count, flags in _WORKERS if one == first)
        ports = ",".join(map(str, self._ports[first : first + count]))
        told = ["--ports", ports, "--first", str(first), *flags]
        command = [sys.executable, "-m", "loadtest.fake.worker", *told]
        return self._children.start(f"workers-{first}", command)

    def _settings(self, folder: Path, port: int, admin: int) -> dict[str, object]:
        names = {**TENANTS, **dict.fromkeys(REAL_TENANTS, TENANTS["plain"])}
        (folder / "tenants.json").write_bytes(msgspec.json.encode({"tenants": tenants(names)}))
        workers = [
            {"name": f"w{number}", "address": f"127.0.0.1:{one}"}
            for number, one in enumerate(self._ports)
        ]
        return gateway_settings() | {
            "port": port,
            "workers": workers,
            "tenants_file": "tenants.json",
            "admin": {"port": admin, "keys": [_digest(_ADMIN_KEY)]},
        }

    def _all_linked(self) -> bool:
        return num_linked(self._http, self.url) >= len(self._ports)

    def _wait(self, condition: Callable[[], bool]) -> None:
        wait_until(condition, self._children, "not all is ready", START_TIMEOUT_S)


@contextmanager
def serving() -> Iterator[Target]:
    """Yields a gateway process before six fake workers. Raises FleetFailed."""
    with tempfile.TemporaryDirectory(prefix="pando-doctor-") as name:
        folder = Path(name)
        with (
            Children(folder, ROOT) as children,
            httpx.Client(timeout=5.0, trust_env=False) as http,
        ):
            house = _House(children, folder, http)
            events = {RESTART: house.restart, RENAME: house.rename}
            yield Target(house.url, events=events)


@contextmanager
def serving_fleet(model: str) -> Iterator[Target]:
    """Yields a gateway before one real worker. Raises FleetFailed."""
    settings = gateway_settings() | {"tenants": tenants({"plain": {}})}
    lines = [f"{name}: {msgspec.json.encode(value).decode()}" for name, value in settings.items()]
    told = "\n".join(lines)
    wish = PartsWish(model, 1, threads=2, kv_memory="1GiB", gateway_settings=told)
    with running(wish) as parts:
        yield Target(parts.urls[0], Client(parts.urls[0], key_of("plain")).first_model())
