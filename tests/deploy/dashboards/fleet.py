"""A gateway and the workers of one pool on this machine, called as the chart calls them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from gateway.tenancy.keys import digest_of
from loadtest.starting import wait_until
from pando.children import Child, Children
from pando.ports import free_ports
from pando.up import num_linked
from tests.deploy.charting import RELEASE
from tests.deploy.dashboards.monitored import Target

# The pool of the chart's own values.
POOL, NUM_WORKERS = "small", 2
TENANTS = ("acme", "globex", "initech")
# One tenant is refused now and then; the pool is too small for all that is asked.
SETTINGS = """
host: 127.0.0.1
port: {port}
workers: [{workers}]
tenants_file: tenants.yaml
"""
ACCOUNTS = """
tenants:
- {{id: acme, keys: [{acme}], weight: 2, quota: {{tokens_per_minute: 1000000}}}}
- {{id: globex, keys: [{globex}], quota: {{requests_per_minute: 4}}}}
- {{id: initech, keys: [{initech}], priority: low}}
"""
# Less than what runs together may take in the end: sequences give way to one another.
KV_MEMORY, RUNNING = "1600 tokens", "6"
_START_S = 900.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """What runs. url: where clients ask; targets: where metrics are; workers: by name."""

    url: str
    targets: list[Target]
    workers: dict[str, Child]
    commands: dict[str, list[str]]
    children: Children

    def kill(self, name: str) -> None:
        """A worker is gone without a word."""
        child = self.workers.pop(name)
        child.process.kill()
        child.process.wait()
        self.children.forget(child)

    def start(self, name: str) -> None:
        """A worker runs, under the name and address that it has."""
        self.workers[name] = self.children.start(name, self.commands[name])


@contextmanager
def running(children: Children, folder: Path) -> Iterator[Fleet]:
    """The fleet serves: every worker is linked. Raises FleetFailed."""
    port, *ports = free_ports(1 + 2 * NUM_WORKERS)
    names = [f"{RELEASE}-pando-worker-{POOL}-{number}" for number in range(NUM_WORKERS)]
    commands = {
        name: _worker(name, listen, metrics)
        for name, listen, metrics in zip(names, ports[::2], ports[1::2], strict=True)
    }
    found = ", ".join(
        f'{{name: {name}, address: "127.0.0.1:{listen}"}}'
        for name, listen in zip(names, ports[::2], strict=True)
    )
    settings = folder / "gateway.yaml"
    keys = {name: digest_of(f"pnd-{name}") for name in TENANTS}
    settings.write_text(SETTINGS.format(port=port, workers=found))
    (folder / "tenants.yaml").write_text(ACCOUNTS.format(**keys))
    targets = [Target("gateway", f"{RELEASE}-pando-gateway-0", f"127.0.0.1:{port}")]
    targets += [
        Target("worker", name, f"127.0.0.1:{metrics}")
        for name, metrics in zip(names, ports[1::2], strict=True)
    ]
    fleet = Fleet(f"http://127.0.0.1:{port}", targets, {}, commands, children)
    for name in names:
        fleet.start(name)
    children.start("gateway", [sys.executable, "-m", "gateway", "--config", str(settings)])
    with httpx.Client(timeout=2.0, trust_env=False) as client:
        wait_until(
            lambda: num_linked(client, fleet.url) == NUM_WORKERS,
            children,
            "No fleet",
            _START_S,
        )
    yield fleet


def _worker(name: str, listen: int, metrics: int) -> list[str]:
    return [
        *(sys.executable, "-m", "worker", "--name", name),
        *("--listen", f"127.0.0.1:{listen}", "--metrics-port", str(metrics)),
        *("--kv-memory", KV_MEMORY, "--max-running-sequences", RUNNING, "--threads", "1"),
        *("--drain-s", "1"),
    ]
