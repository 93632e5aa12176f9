"""`python -m gateway`: settings from file, flags and environment; then serve until a signal."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from gateway.assembly import build
from gateway.config import ConfigError, GatewayConfig, load, worker_flag
from gateway.http.public_server import PublicServer
from gateway.telemetry.log import EventLog, set_up_logging


def main() -> None:
    """Serve until a signal; exit 2 on a wrong setting."""
    try:
        config = _configure(sys.argv[1:])
    except ConfigError as error:
        _refuse(error)
    log = set_up_logging(config.log_level, config.log_format)
    _write_the_log_first(log)
    listener = _listen(config.host, config.port)
    admin = config.admin
    admin_listener = None if admin.port is None else _listen(admin.host, admin.port)
    host, port = listener.getsockname()[:2]
    log.info("listening", host=host, port=port, workers=len(config.workers))
    if not config.looks_for_workers:
        log.warning("no_workers_named", reason="set workers, dns, foreign or redis.workers")
    try:
        gateway = build(config, log, admin_listener)
    except ConfigError as error:
        _refuse(error)
    PublicServer(gateway.app, config).run(sockets=[listener])


def _write_the_log_first(log: EventLog) -> None:
    """A SIGTERM ends the process when the log is written. uvicorn raises it again in the end."""

    def end(number: int, _: FrameType | None) -> None:
        log.close()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    signal.signal(signal.SIGTERM, end)


def _refuse(error: ConfigError) -> NoReturn:
    print(f"gateway: {error}", file=sys.stderr)
    sys.exit(2)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        sys.exit(f"gateway: cannot listen on {host}:{port}: {error.strerror}")


def _configure(arguments: list[str]) -> GatewayConfig:
    parser = argparse.ArgumentParser(prog="gateway", description="The Pando gateway.")
    parser.add_argument("--config", type=Path, help="settings file (YAML or JSON)")
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", type=int, help="port to listen on; 0 takes any free one")
    parser.add_argument("--shutdown-s", type=float, help="what running requests get in the end")
    parser.add_argument(
        "--worker",
        action="append",
        type=worker_flag,
        metavar="[NAME=]HOST:PORT",
        help="a worker to link to, besides the file's; may be repeated",
    )
    given = vars(parser.parse_args(arguments))
    path = given.pop("config")
    given["workers"] = given.pop("worker")
    flags = {name: value for name, value in given.items() if value is not None}
    return load(path, flags, os.environ)


if __name__ == "__main__":
    main()
