"""`pando up`: a gateway and its workers on this machine, as child processes of the command.

prepare the model once -> start workers and gateway -> wait until all are linked -> announce
-> watch, and start workers that died again -> Ctrl-C, SIGTERM or the gateway's end ends them all

The gateway leaves first: what runs is finished by workers that are still there, or fails in words.
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

from pando.announcement import Serving, announcement
from pando.children import Child, Children
from pando.errors import ChildDied, StartFailed, how_it_ended
from pando.keeper import Keeper, Patience
from pando.ports import client_url, free_ports, listens, refuse_taken_port

ROOT = Path(__file__).resolve().parent.parent
POLL_S = 0.2
# Behind the gateway nothing runs any more: what a worker needs to leave, at most.
DRAIN_S = 5
# What a gateway may take beyond its shutdown_s before it is killed: to tell clients that take
# their time, to write what tenants used, to close the links.
FAREWELL_S = 15.0
START_TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What `pando up` is asked for. threads: per worker. kv_memory: per worker, as "1GiB".

    gateway_config: the gateway's own settings file. shutdown_s: what running requests get in the
    end.
    """

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
    gateway_config: Path | None = None
    shutdown_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Programs:
    """How each kind of process is started; their flags follow."""

    prepare: tuple[str, ...] = (sys.executable, "-m", "worker.model.prepare")
    worker: tuple[str, ...] = (sys.executable, "-m", "worker")
    gateway: tuple[str, ...] = (sys.executable, "-m", "gateway")
    cwd: Path = ROOT


@dataclass(slots=True)
class Up:
    """One run of `pando up`. console: for progress; what is served goes to standard output.

    patience: with workers that die.
    """

    options: UpOptions
    console: Console
    programs: Programs = field(default_factory=Programs)
    patience: Patience = field(default_factory=Patience)
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
            keeper = Keeper(children, self._say, self.patience)
            addresses = self._start_workers(keeper)
            gateway = self._start_gateway(children, addresses)
            if gateway is None or not self._announce(children):
                return
            keeper.loaded()
            self._watch(children, keeper, gateway)
            self.console.print("Stopping.")
            children.end(gateway, self.options.shutdown_s + FAREWELL_S)

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

    def _start_workers(self, keeper: Keeper) -> dict[str, str]:
        """Returns the workers' addresses by name."""
        options = self.options
        ports = iter(free_ports(2 * options.num_workers))
        addresses = {f"worker-{n}": f"127.0.0.1:{next(ports)}" for n in range(options.num_workers)}
        keeper.start(
            {
                name: [*self.programs.worker, *worker_flags(options, name, address, next(ports))]
                for name, address in addresses.items()
            }
        )
        return addresses

    def _start_gateway(self, children: Children, addresses: dict[str, str]) -> Child | None:
        """Returns it once all workers listen, so that it doesn't knock in vain.

        None when a stop was asked for.
        """
        if not self._wait(children, lambda: sum(map(listens, addresses.values()))):
            return None
        flags = gateway_flags(self.options, addresses)
        return children.start("gateway", [*self.programs.gateway, *flags])

    def _announce(self, children: Children) -> bool:
        """Says what is served once every worker is linked; False when a stop was asked for."""
        url = client_url(self.options.host, self.options.port)
        with httpx.Client(timeout=2.0) as client:
            if not self._wait(children, lambda: num_linked(client, url)):
                return False
            print(announcement(serving(client, url, self.options)), flush=True)
        return True

    def _wait(self, children: Children, num_ready: Callable[[], int]) -> bool:
        """Whether all workers became ready; False when a stop was asked for."""
        began = time.monotonic()
        with self.console.status("Loading") as status:
            while not self.stopping.wait(POLL_S):
                self._show_logs(children, verbose=True)
                dead = children.dead()
                if dead is not None:
                    raise ChildDied(dead.name, dead.process.returncode, dead.last_lines())
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

    def _watch(self, children: Children, keeper: Keeper, gateway: Child) -> None:
        """Returns when a stop is asked for; raises when the gateway or all workers have ended."""
        while not self.stopping.wait(POLL_S):
            self._show_logs(children, self.options.verbose)
            keeper.look()
            if gateway.process.poll() is not None:
                ended = how_it_ended(gateway.name, gateway.process.returncode)
                self._say(f"{ended}; the workers leave, and so does this command.")
                raise ChildDied(gateway.name, gateway.process.returncode, gateway.last_lines())

    def _show_logs(self, children: Children, verbose: bool) -> None:
        """Shows what was logged since the last time."""
        for child in children.running:
            for line in child.fresh_lines():
                if verbose:
                    self._say(f"{child.name} | {line}")

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)


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
    config = options.gateway_config
    workers = [flag for name, address in addresses.items() for flag in _worker_flag(name, address)]
    return [
        *(() if config is None else ("--config", str(config.absolute()))),
        *("--host", options.host),
        *("--port", str(options.port)),
        *("--shutdown-s", f"{options.shutdown_s:g}"),
        *workers,
    ]


def _worker_flag(name: str, address: str) -> tuple[str, str]:
    return "--worker", f"{name}={address}"


def num_linked(client: httpx.Client, url: str) -> int:
    """Returns how many workers the gateway can use now; 0 when it doesn't answer."""
    try:
        answer = client.get(f"{url}/ready").json()
    except (httpx.HTTPError, ValueError):
        return 0
    return int(answer.get("workers", 0)) if answer.get("ready") else 0


def serving(client: httpx.Client, url: str, options: UpOptions) -> Serving:
    """Returns what a ready gateway serves, as far as it tells somebody without a key."""
    try:
        answer = client.get(f"{url}/v1/models")
        models = answer.json().get("data", [])
        needs_key = answer.status_code == httpx.codes.UNAUTHORIZED
    except (httpx.HTTPError, ValueError):
        models, needs_key = [], False
    return Serving(
        url=url,
        model=str(models[0]["id"]) if models else Path(options.model).name.removesuffix(".gguf"),
        num_workers=options.num_workers,
        prefix_cache=options.prefix_cache,
        log_folder=options.log_folder,
        needs_key=needs_key,
    )


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
