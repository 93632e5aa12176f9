"""A headless Chromium, driven by its DevTools protocol: no more than the page's tests need."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--remote-debugging-port=0", "--hide-scrollbars"),
)


def found() -> str | None:
    """The program, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page of the browser. complaints: what it wrote into its console or refused."""

    def __init__(self, line: ClientConnection):
        self._line = line
        self._numbers = itertools.count(1)
        self.complaints: list[str] = []

    async def call(self, method: str, **fields: Any) -> dict[str, Any]:
        """One command of the protocol; events that come meanwhile are looked through."""
        number = next(self._numbers)
        await self._line.send(json.dumps({"id": number, "method": method, "params": fields}))
        while True:
            message = json.loads(await self._line.recv())
            if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(json.dumps(message["params"]))
            if message.get("id") == number:
                result: dict[str, Any] = message["result"]
                return result

    async def value(self, expression: str) -> Any:
        """What an expression is in the page."""
        told = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression holds in the page."""
        async with asyncio.timeout(30):
            while not await self.value(expression):  # noqa: ASYNC110 - it holds elsewhere
                await asyncio.sleep(0.05)

    async def open(self, url: str) -> None:
        """The page of this address is being read."""
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)

    async def size(self, width: int, height: int) -> None:
        """The window has this size."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def picture(self) -> bytes:
        """The window as a PNG."""
        told = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(told["data"])


def port_told(told: Path) -> bool:
    """Whether the browser wrote where it listens."""
    return told.exists() and len(told.read_text().splitlines()) == 2


@asynccontextmanager
async def tab(program: str, folder: Path) -> AsyncIterator[Tab]:
    """An empty page of a browser of its own, which ends with it."""
    process = await asyncio.create_subprocess_exec(
        program,
        *_FLAGS,
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        told = folder / "DevToolsActivePort"
        async with asyncio.timeout(30):
            while not port_told(told):  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.05)
        port, path = told.read_text().splitlines()
        async with connect(f"ws://127.0.0.1:{port}{path}", proxy=None) as browser:
            target = (await Tab(browser).call("Target.createTarget", url="about:blank"))["targetId"]
        page = f"ws://127.0.0.1:{port}/devtools/page/{target}"
        async with connect(page, proxy=None, max_size=None) as line:
            yield Tab(line)
    finally:
        process.kill()
        await process.wait()
