"""The page in a browser: it shows the gateway's numbers, and names are text whatever they hold."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import httpx
import pytest

from gateway.config import GatewayConfig, WorkerConfig
from gateway.tenancy.keys import digest_of
from gateway.tenant_config import AdminConfig, TenantConfig
from proto import worker_pb2 as pb
from tests.gateway.conftest import BY_RING, FAST_LINK, StartWorker, served
from tests.gateway.fake_worker import Line
from tests.gateway.ui import chromium

EVIL = "<script>window.evil = 1</script><img src=x onerror='window.evil = 1'>"
KEY = "adm-secret"

pytestmark = pytest.mark.skipif(
    chromium.found() is None, reason="no chromium here: apt-get install chromium-headless-shell"
)


async def test_the_page_asks_for_a_key_and_shows_the_numbers_as_text(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    load = pb.Load(running_sequences=3, used_pages=4711, total_pages=9000)
    worker = await start_worker(model=f"tiny {EVIL}", script=timely, load=load)
    config = GatewayConfig(
        admin=AdminConfig(port=0, keys=(digest_of(KEY),)),
        tenants=(TenantConfig(f"acme {EVIL}", (digest_of("pnd-acme"),)),),
        workers=(WorkerConfig(worker.address), WorkerConfig("127.0.0.1:1", name=f"w1 {EVIL}")),
        link=FAST_LINK,
        routing=BY_RING,
        shutdown_s=1.0,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/ui"
    async with (
        served(config, listener) as live,
        chromium.tab(str(chromium.found()), tmp_path) as tab,
    ):
        await live.until_linked("w0")
        (model,) = live.gateway.fleet.models()
        for turn in range(2):
            await ask(live.http, model, turn)
        await tab.open(url)
        await tab.until("document.getElementById('login')?.hidden === false")
        assert await tab.value("document.getElementById('content').hidden")
        await tab.value(typed("wrong"))
        await tab.until("document.getElementById('refused').textContent !== ''")
        await tab.value(typed(KEY))
        await tab.until("document.getElementById('content').hidden === false")
        shown = await tab.value("document.getElementById('content').innerText")
        for number in ("4,711", "9,000", "8,642", "8,000", "4,321", "acme", "my-1"):
            assert number in shown
        for name in ("tiny", "acme", "w1"):
            assert f"{name} {EVIL}" in shown
        assert await tab.value("typeof window.evil") == "undefined"
        made = "document.querySelectorAll('#content img, #content script').length"
        assert await tab.value(made) == 0
        assert not [one for one in tab.complaints if "401" not in one]
        await tab.value("[...document.querySelectorAll('button.link')].at(-1).click()")
        await tab.until("document.getElementById('life').innerText.includes('sent to w0')")
        bar = "[...document.querySelectorAll('.times .bar span')].map((one) => one.className)"
        assert await tab.value(f"{bar}.join()") == "stay,prepare,wait,prefill,decode"
        drawn = await tab.value("document.querySelector('.times .bar .stay').style.width")
        assert 0 < float(drawn.removesuffix("%")) <= 100
        shown = await tab.value("document.querySelector('.times').innerText")
        assert "w0: prepare 0.100 ms, wait 0.200 ms, prefill 0.300 ms, decode 0.400 ms" in shown
        told = await tab.value("[0.5, 9, 100, 1500].map(rate).join(' ')")
        assert told == "0.5 9.0 100 1,500"
        assert await tab.value("[0.02, 0.9997, 120].map(seconds).join()") == "20.0 ms,1.00 s,120 s"
        await tab.size(360, 800)
        assert await tab.value("document.documentElement.scrollWidth") <= 360


async def ask(http: httpx.AsyncClient, model: str, turn: int) -> None:
    messages = [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": f"And {turn}?"},
    ]
    headers = {"authorization": "Bearer pnd-acme", "x-request-id": f"my-{turn}"}
    body = {"model": model, "messages": messages}
    assert (await http.post("/v1/chat/completions", json=body, headers=headers)).status_code == 200


async def timely(submit: pb.Submit, line: Line) -> None:
    """An answer of a worker that tells what its time went to: a part of what it took."""
    await asyncio.sleep(0.01)
    number = submit.request_id
    line.text(number, "Hello", finish_reason=pb.STOP)
    usage = pb.Usage(prompt_tokens=4321, cached_tokens=4000, completion_tokens=1)
    timing = pb.Timing(prepared_us=100, admitted_us=300, first_token_us=600, ended_us=1000)
    line.step(done=[pb.Done(request_id=number, usage=usage, timing=timing)])


def typed(key: str) -> str:
    """A key is typed in and sent."""
    return (
        f"document.getElementById('key').value = '{key}';"
        "document.querySelector('#login button').click()"
    )
