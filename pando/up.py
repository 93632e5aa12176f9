"""`pando up`: a gateway and its workers on this machine, as child processes of the command.

prepare the model once -> start workers and gateway -> wait until all are linked -> announce
-> watch; Ctrl-C, SIGTERM or the end of any one ends them all
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from rich.console import Console
from rich.status import Status

from pando.announcement import Serving, announcement
from pando.children import Children
from pando.errors import ChildDied, StartFailed
from pando.ports import client_url, free_ports, listens, refuse_taken_port

ROOT = Path(__file__).resolve().parent.parent
POLL_S = 0.2
# What running requests get after Ctrl-C; the processes are killed a few seconds later.
DRAIN_S = 5
START_TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What `pando up` is asked for. threads: per worker. kv_memory: per worker, as "1GiB"."""

    model: str
    num_workers: int
    host: str
    port: int
    prefix_cache: str
    page_size: int
    kv_memory: str
    threads: int
    log_folder: Path
    verbose: bool = False
    worker_flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Programs:
    """How each kind of process is started; their flags follow."""

    prepare: tuple[str, ...] = (sys.executable, "-m", "worker.model.prepare")
    worker: tuple[str, ...] = (sys.executable, "-m", "worker")
    gateway: tuple[str, ...] = (sys.executable, "-m", "gateway")
    cwd: Path = ROOT


@dataclass(slots=True)
class Up:
    """One run of `pando up`. console: for progress; what is served goes to standard output."""

    options: UpOptions
    console: Console
    programs: Programs = field(default_factory=Programs)
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Returns after a stop was asked for; raises PandoError when anything else ends it."""
        refuse_taken_port(self.options.host, self.options.port)
        with ExitStack() as stack:
            stack.enter_context(stop_on_signal(self.stopping))
            children = stack.enter_context(Children(self.options.log_folder, self.programs.cwd))
            self._prepare(children)
            if self.stopping.is_set():
                return
            addresses = self._start_workers(children)
            serving = self._wait_until_ready(children, addresses)
            if serving is None:
                return
            print(announcement(serving), flush=True)
            while not self.stopping.wait(POLL_S):
                self._look_after(children, self.options.verbose)
            self.console.print("Stopping.")

    def _prepare(self, children: Children) -> None:
        """Makes the model ready once, before several workers ask for it."""
        command = [*self.programs.prepare, "--model", self.options.model]
        child = children.start("prepare", command)
        with self.console.status(f"Preparing {self.options.model} (the first time converts it)"):
            while child.process.poll() is None and not self.stopping.wait(POLL_S / 4):
                pass
        if self.stopping.is_set():
            return
        children.forget(child)
        if child.process.returncode:
            raise StartFailed(child.last_lines())

    def _start_workers(self, children: Children) -> dict[str, str]:
        """Returns the workers' addresses by name."""
        options = self.options
        ports = iter(free_ports(2 * options.num_workers))
        addresses = {f"worker-{n}": f"127.0.0.1:{next(ports)}" for n in range(options.num_workers)}
        for name, address in addresses.items():
            flags = worker_flags(options, name, address, next(ports))
            children.start(name, [*self.programs.worker, *flags])
        return addresses

    def _wait_until_ready(self, children: Children, addresses: dict[str, str]) -> Serving | None:
        """Returns what is served once every worker is linked; None when a stop was asked for.

        The gateway is started once all workers listen, so that it doesn't knock in vain.
        """
        url = client_url(self.options.host, self.options.port)
        with self.console.status("Loading") as status, httpx.Client(timeout=2.0) as client:
            if not self._wait(children, status, lambda: sum(map(listens, addresses.values()))):
                return None
            flags = gateway_flags(self.options, addresses)
            children.start("gateway", [*self.programs.gateway, *flags])
            if not self._wait(children, status, lambda: num_linked(client, url)):
                return None
            model = first_model(client, url) or self.options.model
        return Serving(url, model, len(addresses), self.options.prefix_cache)

    def _wait(self, children: Children, status: Status, num_ready: Callable[[], int]) -> bool:
        """Whether all workers became ready; False when a stop was asked for."""
        began = time.monotonic()
        while not self.stopping.wait(POLL_S):
            self._look_after(children, verbose=True)
            ready, all_workers = num_ready(), self.options.num_workers
            if ready >= all_workers:
                return True
            waited = time.monotonic() - began
            status.update(f"Loading: {ready} of {all_workers} workers, {waited:.0f} s")
            if waited > START_TIMEOUT_S:
                raise StartFailed(
                    f"Only {ready} of {all_workers} workers were ready after {waited:.0f} s. "
                    f"Logs are in {self.options.log_folder}."
                )
        return False

    def _look_after(self, children: Children, verbose: bool) -> None:
        """Shows what was logged; raises ChildDied when a process has ended."""
        for child in children.running:
            for line in child.fresh_lines():
                if verbose:
                    self.console.print(f"{child.name} | {line}", markup=False, highlight=False)
        dead = children.dead()
        if dead is not None:
            raise ChildDied(dead.name, dead.process.returncode, dead.last_lines())


def worker_flags(options: UpOptions, name: str, address: str, metrics_port: int) -> list[str]:
    """Returns the flags of one worker."""
    return [
        *("--name", name),
        *("--listen", address),
        *("--model", options.model),
        *("--prefix-cache", options.prefix_cache),
        *("--page-size", str(options.page_size)),
        *("--kv-memory", options.kv_memory),
        *("--threads", str(options.threads)),
        *("--metrics-port", str(metrics_port)),
        *("--drain-s", str(DRAIN_S)),
        *options.worker_flags,
    ]


def gateway_flags(options: UpOptions, addresses: dict[str, str]) -> list[str]:
    """Returns the flags of the gateway. addresses: of the workers, by name."""
    workers = [flag for name, address in addresses.items() for flag in _worker_flag(name, address)]
    return ["--host", options.host, "--port", str(options.port), *workers]


def _worker_flag(name: str, address: str) -> tuple[str, str]:
    return "--worker", f"{name}={address}"


def num_linked(client: httpx.Client, url: str) -> int:
    """Returns how many workers the gateway can use now; 0 when it doesn't answer."""
    try:
        answer = client.get(f"{url}/ready").json()
    except (httpx.HTTPError, ValueError):
        return 0
    return int(answer.get("workers", 0)) if answer.get("ready") else 0


def first_model(client: httpx.Client, url: str) -> str | None:
    """Returns the name under which the gateway serves the model, if it says one."""
    try:
        models = client.get(f"{url}/v1/models").json().get("data", [])
    except (httpx.HTTPError, ValueError):
        return None
    return str(models[0]["id"]) if models else None


@contextmanager
def stop_on_signal(stopping: threading.Event) -> Iterator[None]:
    """While it lasts, Ctrl-C, SIGTERM and a closed terminal only set the event."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
