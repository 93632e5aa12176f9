"""Stands in for workers and gateway: `python fake_fleet.py KIND MOOD [their flags]`.

KIND is prepare, worker or gateway. MOOD: "well", "fails" (ends with status 3 and a line), "dies"
(ends so a moment after it's up), "stubborn" (ignores SIGTERM), "parent" (has a child of its own),
"mortal" (well in its first life, and fails in every later one), "curious" (a gateway that looks, as
it leaves, which workers are still there).
With KIND "up" it runs `pando up` itself over such processes: `up FOLDER PREPARE WORKER GATEWAY`.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

MOMENT_S = 1.0


def flag(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


class Gateway(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answers: dict[str, Any] = {
            "/ready": {"ready": True, "workers": sys.argv.count("--worker")},
            "/v1/models": {"data": [{"id": "fake-model"}]},
        }
        body = json.dumps(answers[self.path]).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def behave(mood: str) -> None:
    if mood == "fails":
        sys.exit("this is why") if sys.argv[1] == "prepare" else print("this is why", flush=True)
        sys.exit(3)
    if mood == "mortal":
        lived = Path(f"{flag('--name')}.lived")
        if lived.exists():
            sys.exit("this is why")
        lived.touch()
    if mood == "curious":
        signal.signal(signal.SIGTERM, leave)
    if mood == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mood == "parent":
        subprocess.Popen(["sleep", "600"])
    if mood == "dies":
        threading.Timer(MOMENT_S, lambda: signal.raise_signal(signal.SIGABRT)).start()


def leave(*_: object) -> None:
    time.sleep(MOMENT_S / 2)
    workers = [one.split("=")[1] for one in sys.argv if one.startswith("worker-")]
    for worker in workers:
        host, port = worker.split(":")
        with socket.create_connection((host, int(port)), timeout=5):
            print("a worker is there", flush=True)
    print("--shutdown-s", flag("--shutdown-s"), flush=True)
    sys.exit()


def serve(kind: str) -> None:
    address = ("127.0.0.1", int(flag("--port" if kind == "gateway" else "--listen").split(":")[-1]))
    print(f"{kind} is up", flush=True)
    HTTPServer(address, Gateway).serve_forever()


def run_up(folder: Path, moods: list[str]) -> None:
    from rich.console import Console

    from pando.errors import PandoError
    from pando.keeper import Patience
    from pando.up import Programs, Up, UpOptions

    kinds = ("prepare", "worker", "gateway")
    prepare, worker, gateway = (
        (sys.executable, __file__, kind, mood) for kind, mood in zip(kinds, moods, strict=True)
    )
    port = int((folder / "port").read_text())
    options = UpOptions("m", 2, "127.0.0.1", port, "radix", 16, "1GiB", 1, folder / "logs")
    patience = Patience(max_deaths=3, pause_s=0.05)
    programs = Programs(prepare, worker, gateway, folder)
    try:
        Up(options, Console(stderr=True, soft_wrap=True), programs, patience).run()
    except PandoError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    if sys.argv[1] == "up":
        run_up(Path(sys.argv[2]), sys.argv[3:])
    else:
        behave(sys.argv[2])
        if sys.argv[1] != "prepare":
            serve(sys.argv[1])
