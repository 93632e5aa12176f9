"""`make ui-picture`: the page over a small fleet under load, as docs/pictures/ui.png (minutes).

Two workers with the default model and little memory for pages, three tenants with a system prompt
each; one of them puts a counter into it, which the page names.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from gateway.tenancy.keys import digest_of
from pando.ports import free_ports
from tests.gateway.ui import chromium

OUT = Path(__file__).resolve().parents[3] / "docs" / "pictures" / "ui.png"
MODEL = "smollm2-135m-instruct"
TENANTS = ("atlas", "birch", "cedar")
ADMIN_KEY = "adm-picture"
RULE = "Answer in one short sentence, and never guess what is not in the handbook. "


def settings(admin_port: int) -> dict[str, object]:
    """The gateway's: tenants, and the admin API whose server shows the page."""
    tenants = [{"id": name, "keys": [digest_of(f"pnd-{name}")]} for name in TENANTS]
    return {"tenants": tenants, "admin": {"port": admin_port, "keys": [digest_of(ADMIN_KEY)]}}


@asynccontextmanager
async def fleet(folder: Path, port: int, admin_port: int) -> AsyncIterator[None]:
    """A gateway and two workers, until the context is left."""
    config = folder / "gateway.json"
    config.write_text(json.dumps(settings(admin_port)))
    command = f"-m pando.command up --workers 2 --port {port} --kv-memory 96MiB --threads 1"
    command += f" --gateway-config {config} --log-folder {folder}"
    process = await asyncio.create_subprocess_exec(sys.executable, *command.split())
    try:
        async with httpx.AsyncClient(trust_env=False) as http, asyncio.timeout(300):
            while not await ready(http, port):  # noqa: ASYNC110 - another process gets ready
                await asyncio.sleep(0.5)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        await process.wait()


async def ready(http: httpx.AsyncClient, port: int) -> bool:
    """Whether both workers are linked."""
    try:
        answer = await http.get(f"http://127.0.0.1:{port}/ready")
    except httpx.TransportError:
        return False
    return bool(answer.json()["workers"] == 2)


async def ask_for_ever(port: int, tenant: str, chance: random.Random) -> None:
    """One client of a tenant: chats of a few turns under its system prompt."""
    headers = {"authorization": f"Bearer pnd-{tenant}"}
    async with httpx.AsyncClient(trust_env=False, timeout=120, headers=headers) as http:
        for number in itertools.count():
            turn = f"Ticket {number * 7 + 1000}. " if tenant == "cedar" else ""
            system = f"{turn}You work for {tenant}. {RULE * chance.choice((6, 6, 6, 10))}"
            messages = [{"role": "system", "content": system}]
            for _ in range(3):
                question = f"What about case {chance.randrange(10_000)}?"
                messages.append({"role": "user", "content": question})
                body = {"model": MODEL, "messages": messages, "max_tokens": 12}
                url = f"http://127.0.0.1:{port}/v1/chat/completions"
                answer = (await http.post(url, json=body)).raise_for_status().json()
                messages.append(answer["choices"][0]["message"])
                await asyncio.sleep(chance.expovariate(1.0))


async def drawn(seconds: float) -> bytes:
    """The picture."""
    program = chromium.found()
    if program is None:
        sys.exit("No chromium is here: apt-get install chromium-headless-shell")
    port, admin_port = free_ports(2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with fleet(folder, port, admin_port), chromium.tab(program, folder / "tab") as tab:
            clients = [
                asyncio.create_task(ask_for_ever(port, tenant, random.Random(seed)))
                for seed, tenant in enumerate(TENANTS * 2)
            ]
            await asyncio.sleep(seconds)
            await tab.size(1280, 1150)
            await tab.open(f"http://127.0.0.1:{admin_port}/ui")
            await tab.until("document.getElementById('login')?.hidden === false")
            await tab.value(f"document.getElementById('key').value = '{ADMIN_KEY}'")
            await tab.value("document.querySelector('#login button').click()")
            await tab.until("document.getElementById('content').hidden === false")
            await asyncio.sleep(3)
            picture = await tab.picture()
            for client in clients:
                client.cancel()
            for ended in await asyncio.gather(*clients, return_exceptions=True):
                if not isinstance(ended, asyncio.CancelledError):
                    print(f"a client failed: {ended!r}")
    return picture


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(prog="tests.gateway.ui.picture", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--seconds", type=float, default=240, help="of load before it is drawn")
    given = parser.parse_args()
    os.chdir(Path(__file__).resolve().parents[3])
    picture = asyncio.run(drawn(given.seconds))
    given.out.write_bytes(picture)
    print(f"{given.out}: {len(picture)} bytes")


if __name__ == "__main__":
    main()
